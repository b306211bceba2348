"""What moves, names or retypes data and computes nothing: 0 FLOPs. Their bytes are fusion.py's.

Scatters that combine are here too: one operation per element of the update.
"""

from __future__ import annotations

from costtrace.core import Cost, Op
from costtrace.rules.table import rule, vector


@rule("reshape", "squeeze", "transpose", "broadcast_in_dim", "broadcast_to", "rev", "slice", "split",
      "concatenate", "pad", "tile", "stack", "unstack", "copy", "gather", "dynamic_slice",
      "dynamic_update_slice", "iota", "empty", "empty2", "zeros_like", "real", "imag", "complex")  # fmt: skip
def movement(op: Op) -> Cost:
    """Free: elements are placed, none is computed. Index arithmetic is the address unit's work."""
    return Cost()


@rule("convert_element_type", "bitcast_convert_type", "reduce_precision", "to_edtype", "from_edtype")
def cast(op: Op) -> Cost:
    """Free: a change of format is not arithmetic."""
    return Cost()


@rule("scatter")
def scatter(op: Op) -> Cost:
    """Free: rows are overwritten. A sparse core's scatter with `add` (operands end in the values, perhaps a mask)
    adds 1 per element."""
    if not op.params.get("add"):
        return Cost()
    values = next(v for v in reversed(op.inputs) if v.dtype != "bool")
    return vector(values.size, values.dtype)


@rule("scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
def scatter_combine(op: Op) -> Cost:
    """1 per element of the update, whatever its rows are."""
    updates = op.inputs[2]
    return vector(updates.size, updates.dtype)
