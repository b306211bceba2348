"""An op's parameters that repeat a shape, for one chip's part of the shape: the table PARAMETERS. No chips here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from costtrace.core import Op, Value


def _slice(op: Op, inputs: list[Value], outputs: list[Value]) -> dict[str, Any]:
    starts, limits, strides = [], [], op.params.get("strides") or (1,) * len(inputs[0].shape)
    old = zip(op.params["start_indices"], op.inputs[0].shape, inputs[0].shape, outputs[0].shape, strides, strict=True)
    for start, whole, mine, size, step in old:
        span = (size - 1) * step + 1
        first = min(start * mine // whole, max(mine - span, 0))
        starts.append(first)
        limits.append(min(first + span, mine))
    return {"start_indices": tuple(starts), "limit_indices": tuple(limits)}


def _pad(op: Op, inputs: list[Value], outputs: list[Value]) -> dict[str, Any]:
    config = list(op.params["padding_config"])
    for d, (before, now, out) in enumerate(zip(op.inputs[0].shape, inputs[0].shape, outputs[0].shape, strict=True)):
        if before != now:
            config[d] = (min(0, out - now), max(0, out - now), 0)
    return {"padding_config": tuple(config)}


def _convolution(op: Op, inputs: list[Value], outputs: list[Value]) -> dict[str, Any]:
    """Rows that came from the neighbours are not padded again."""
    spec, padding = op.params["dimension_numbers"], list(op.params["padding"])
    for i, (a, b) in enumerate(zip(spec.lhs_spec[2:], spec.out_spec[2:], strict=True)):
        if outputs[0].shape[b] != op.outputs[0].shape[b] and inputs[0].shape[a] > outputs[0].shape[b]:
            padding[i] = (0, 0)
    return {"padding": tuple(padding)}


PARAMETERS: dict[str, Callable[[Op, list[Value], list[Value]], dict[str, Any]]] = {
    "slice": _slice,
    "pad": _pad,
    "conv_general_dilated": _convolution,
    "reshape": lambda op, i, o: {"new_sizes": o[0].shape},
    "broadcast_in_dim": lambda op, i, o: {"shape": o[0].shape},
    "iota": lambda op, i, o: {"shape": o[0].shape},
    "split": lambda op, i, o: {"sizes": tuple(v.shape[op.params["axis"]] for v in o)},
    "dynamic_slice": lambda op, i, o: {"slice_sizes": o[0].shape},
    "gather": lambda op, i, o: {"slice_sizes": tuple(min(s, n) for s, n in zip(op.params["slice_sizes"], i[0].shape,
                                                                                strict=True))},
}  # fmt: skip
"""Primitive -> (op, local operands, local results) -> the parameters that change."""
