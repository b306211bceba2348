"""Programs around the arithmetic: mutable references, ordering, placement, and calls to the host. All free.

What a callback does on the host is not modelled; trace.py says so in a note.
"""

from __future__ import annotations

from costtrace.core import Cost, Op
from costtrace.offload import crosses
from costtrace.rules.table import rule, vector


@rule("pure_callback", "io_callback", "debug_callback", "debug_print", "buffer_callback", "inspect_sharding")
def host(op: Op) -> Cost:
    """Free on the device: the host's work is not modelled."""
    return Cost()


@rule("new_ref", "empty_ref", "free_ref", "freeze", "get", "masked_load", "masked_swap", "load", "store",
      "create_linear", "pin", "unpin", "get_global", "new_box", "box_get", "box_set", "new_log", "log_read",
      "log_extend")  # fmt: skip
def reference(op: Op) -> Cost:
    """Free: a reference is made, read or written."""
    return Cost()


@rule("swap")
def swap(op: Op) -> Cost:
    """Free: a read and a write; with `add` (a sparse core's store) 1 addition per element."""
    return vector(op.inputs[1].size, op.inputs[1].dtype) if op.params.get("add") else Cost()


@rule("addupdate", "accum_grad_in_ref")
def addupdate(op: Op) -> Cost:
    """1 addition per element added to the reference."""
    return vector(op.inputs[1].size, op.inputs[1].dtype)


@rule("optimization_barrier", "create_token", "after_all", "dce_sink", "tie", "add_dependency", "stop_gradient",
      "name", "check", "xla_metadata_value", "shape_assertion")  # fmt: skip
def order(op: Op) -> Cost:
    """Free: constrains or labels the program."""
    return Cost()


@rule("device_put", "sharding_constraint", "layout_constraint", "reshard", "relayout", "with_memory_space_constraint",
      "has_memory_space", "global_array_to_host_local_array", "host_local_array_to_global_array")  # fmt: skip
def place(op: Op) -> Cost:
    """Free of arithmetic: says where a value lies. Between the host's memory and the chip's its bytes go over the host
    link; the collectives it may need are the partitioner's choice."""
    return Cost(host_bytes=sum(v.nbytes for v in op.inputs)) if crosses(op) else Cost()


@rule("dimension_size", "dim_as_value", "platform_index")
def constant(op: Op) -> Cost:
    """Free: known when the program is compiled."""
    return Cost()
