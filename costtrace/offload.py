"""What lies in the host's memory and crosses to the chip: which ops do it, and a program that streams its weights.

JAX says it by memory kinds: device_put to jax.memory.Space.Host or .Device, or to a sharding whose memory kind is
pinned_host; offloading policies of jax.checkpoint make such ops. Each time the bytes go over the chip's host link.
No jax here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from costtrace.core import Frame, Op, Trace, Value

PLACES = ("device_put", "with_memory_space_constraint")
HOST, DEVICE = "Host", "Device"


def _place(params: Mapping[str, Any]) -> Any:
    """Where a placement puts its first operand, as jax says it: a memory, a sharding or a device."""
    to = params.get("devices", params.get("memory_space"))
    return to[0] if isinstance(to, (tuple, list)) and to else to


def target(params: Mapping[str, Any]) -> str:
    """HOST or DEVICE where a placement names a memory, else ''."""
    to = _place(params)
    kind = to if isinstance(to, str) else str(getattr(to, "memory_kind", None) or getattr(to, "name", None) or "")
    return HOST if kind.lower().endswith("host") else DEVICE if kind.lower() == "device" else ""


def fetches(params: Mapping[str, Any]) -> bool:
    """True where the program asks by name for the device's memory."""
    return getattr(_place(params), "name", None) == DEVICE


def whole(v: Value) -> Value:
    """The array that a row of a loop is of."""
    return v.behind("row", "part")


def on_host(v: Value) -> bool:
    return v.host or whole(v).host


def crosses(op: Op) -> bool:
    """True where the op moves its operand between the host's memory and the chip's."""
    to = target(op.params) if op.primitive in PLACES and op.inputs else ""
    return bool(to) and on_host(op.inputs[0]) != (to == HOST)


def streamed(trace: Trace) -> Trace:
    """The program with its parameters in the host's memory, each brought to the chip where it is used, in every trip of
    a loop that steps through it. What another loop uses comes again; donated parameters go back at the end."""
    held = {v: _copy(v, host=True) for v in trace.inputs if v.weight}
    seen: dict[tuple[Value, Frame | None], Value] = {}
    ops: list[Op] = []

    def local(v: Value, op: Op) -> Value:
        source = whole(v)
        if source not in held:
            return v
        key = v, op.frame.loop
        if key not in seen:
            seen[key] = Value(v.shape, v.dtype, v.bits, name=v.name, frame=op.frame)
            ops.append(Op("device_put", (_seen(v, held),), (seen[key],), {"memory_space": DEVICE}, op.frame, op.phase))
        return seen[key]

    for op in trace.ops:
        inputs = tuple(local(v, op) for v in op.inputs)
        made = Op(op.primitive, inputs, op.outputs, op.params, op.frame, op.phase, op.source)
        made.priced = op.priced
        ops.append(made)
    outputs = list(trace.outputs)
    for i, (old, v) in enumerate(zip(held, trace.outputs, strict=False)):
        if old.donated and (old.shape, old.dtype) == (v.shape, v.dtype):
            outputs[i] = Value(v.shape, v.dtype, v.bits, frame=trace.root, host=True)
            ops.append(Op("device_put", (v,), (outputs[i],), {"memory_space": HOST}, trace.root))
    out = replace(trace, ops=ops, inputs=[held.get(v, v) for v in trace.inputs], outputs=outputs)
    for i, op in enumerate(ops):
        op.index = i
    return out


def _copy(v: Value, host: bool) -> Value:
    return Value(v.shape, v.dtype, v.bits, v.kind, literal=v.literal, weight=v.weight, name=v.name, frame=v.frame,
                 donated=v.donated, host=host)  # fmt: skip


def _seen(v: Value, held: Mapping[Value, Value]) -> Value:
    """The same row of the array in the host's memory."""
    if v.edge is None:
        return held[v]
    made = Value(v.shape, v.dtype, v.bits, weight=v.weight, name=v.name, frame=v.frame, host=True)
    made.edge = replace(v.edge, source=_seen(v.edge.source, held))
    return made
