"""Which elements of its operands each element of a result needs, primitive by primitive; for brute.py.

Elements are numbers; -1 is one that is written in the program, so that nothing is read for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

WIDTHS = {"none": 0, "int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float4_e2m1fn": 4}


def bits(dtype: Any) -> int:
    """The true width of an element."""
    width = WIDTHS.get(str(dtype))
    return np.dtype(dtype).itemsize * 8 if width is None else width


Numbers = np.ndarray[Any, Any]
Needs = list[frozenset[int]]
Key = tuple[tuple[str, str, int], ...]
"""A place in the program: (kind, name, identity) of each call, loop trip and scope around it."""


@dataclass
class Value:
    numbers: Numbers
    known: Numbers | None = None
    """What it holds, where that is written in the program or assumed of an index: distinct, counted from 0."""
    place: Key = ()


@dataclass
class Step:
    primitive: str
    place: Key
    needs: dict[int, frozenset[int]]
    """Element made -> elements needed for it."""
    changes: frozenset[int] = frozenset()
    """The elements of the buffer that an update changes a part of."""


def scan_counts(p: Any) -> tuple[int, int]:
    """(constants, carries) of a scan: numbers in jax 0.10, the parts of a tree in 0.12."""
    if "num_carry" in p:
        return p["num_consts"], p["num_carry"]
    consts, carry, _ = p["ft_in"].unpack()
    return len(consts), len(carry)


def needed(*numbers: Any) -> frozenset[int]:
    return frozenset(int(n) for n in numbers if n >= 0)


def elementwise(ins: list[Numbers], p: Any, shape: tuple[int, ...]) -> Needs:
    wide = [np.broadcast_to(i, shape).ravel() for i in ins]
    return [needed(*column) for column in zip(*wide, strict=True)] if wide else [needed()] * math.prod(shape)


def _moved(change: Callable[[list[Numbers], Any], Numbers]) -> Callable[..., Needs]:
    return lambda ins, p, shape: [needed(n) for n in change(ins, p).ravel()]


def _reduce(ins: list[Numbers], p: Any, shape: tuple[int, ...]) -> Needs:
    axes = tuple(p["axes"])
    kept = [d for d in range(ins[0].ndim) if d not in axes]
    rows = ins[0].transpose(*kept, *axes).reshape(math.prod(shape), -1 if ins[0].size else 0)
    return [needed(*row) for row in rows]


def _whole(ins: list[Numbers], p: Any, shape: tuple[int, ...]) -> Needs:
    """A product, a sort or a running sum is computed whole, whatever is read of it."""
    return [needed(*(n for i in ins for n in i.ravel()))] * math.prod(shape)


def _pad(ins: list[Numbers], p: Any, shape: tuple[int, ...]) -> Needs:
    out = np.full(shape, ins[1].ravel()[0])
    for at in np.ndindex(*ins[0].shape):
        to = tuple(lo + i * (gap + 1) for i, (lo, _, gap) in zip(at, p["padding_config"], strict=True))
        if all(0 <= t < n for t, n in zip(to, shape, strict=True)):
            out[to] = ins[0][at]
    return [needed(n) for n in out.ravel()]


def window(starts: list[int], sizes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
    at = [min(max(s, 0), n - k) for s, k, n in zip(starts, sizes, shape, strict=True)]
    return tuple(slice(a, a + k) for a, k in zip(at, sizes, strict=True))


def starts_of(values: list[Value]) -> list[int]:
    return [0 if v.known is None else int(v.known) for v in values]


def _dynamic_update_slice(values: list[Value], p: Any, shape: tuple[int, ...]) -> Needs:
    x, update = values[0].numbers, values[1].numbers
    box, starts = window(starts_of(values[2:]), update.shape, x.shape), needed(*(int(v.numbers) for v in values[2:]))
    out, new = np.empty(x.shape, object), np.empty(update.shape, object)
    for at in np.ndindex(*x.shape):
        out[at] = needed(x[at])
    for at in np.ndindex(*update.shape):
        new[at] = needed(update[at]) | starts
    out[box] = new
    return list(out.ravel())


def _index(values: list[Value], known: int, dims: Any, row: tuple[int, ...], batching: Any) -> list[int]:
    """The place in the operand where a gather or scatter of the batch position `row` starts."""
    index, where = values[known], list(row)
    held = index.known if index.known is not None else np.zeros(index.numbers.shape, int)
    start = [0] * values[0].numbers.ndim
    for place, d in enumerate(dims):
        start[d] = int(held[(*where, place)])
    for d, i in batching:
        start[d] = where[i]
    return start


def _gather(values: list[Value], p: Any, shape: tuple[int, ...]) -> Needs:
    d, x, index = p["dimension_numbers"], values[0].numbers, values[1].numbers
    inside = [a for a in range(x.ndim) if a not in (*d.collapsed_slice_dims, *d.operand_batching_dims)]
    batching = list(zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True))
    out = np.empty(shape, object)
    for at in np.ndindex(*shape):
        row = tuple(n for a, n in enumerate(at) if a not in d.offset_dims)
        start = _index(values, 1, d.start_index_map, row, batching)
        place = [min(max(s, 0), n - k) for s, n, k in zip(start, x.shape, p["slice_sizes"], strict=True)]
        for a, o in zip(inside, d.offset_dims, strict=True):
            place[a] += at[o]
        out[at] = needed(x[tuple(place)], *index[row].ravel())
    return list(out.ravel())


def _scatter(values: list[Value], p: Any, shape: tuple[int, ...], adds: bool) -> Needs:
    d, x, index, update = p["dimension_numbers"], *(v.numbers for v in values)
    inside = [a for a in range(x.ndim) if a not in (*d.inserted_window_dims, *d.operand_batching_dims)]
    batching = list(zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True))
    out = np.empty(shape, object)
    for at in np.ndindex(*shape):
        out[at] = needed(x[at])
    for at in np.ndindex(*update.shape):
        row = tuple(n for a, n in enumerate(at) if a not in d.update_window_dims)
        place = _index(values, 1, d.scatter_dims_to_operand_dims, row, batching)
        for a, o in zip(inside, d.update_window_dims, strict=True):
            place[a] += at[o]
        if all(0 <= i < n for i, n in zip(place, shape, strict=True)):
            new = needed(update[at], *index[row].ravel())
            out[tuple(place)] = new | out[tuple(place)] if adds else new
    return list(out.ravel())


VIEWS: dict[str, Callable[[Numbers, Any, tuple[int, ...]], Numbers]] = {
    "reshape": lambda x, p, shape: x.reshape(shape),
    "squeeze": lambda x, p, shape: x.reshape(shape),
    "expand_dims": lambda x, p, shape: x.reshape(shape),
    "bitcast_convert_type": lambda x, p, shape: x.reshape(shape),
    "stop_gradient": lambda x, p, shape: x,
    "broadcast_in_dim": lambda x, p, shape: np.broadcast_to(
        x.reshape([x.shape[p["broadcast_dimensions"].index(d)] if d in p["broadcast_dimensions"] else 1
                   for d in range(len(shape))]), shape),
    "slice": lambda x, p, shape: x[tuple(
        slice(a, b, s) for a, b, s in zip(p["start_indices"], p["limit_indices"], p["strides"] or [1] * x.ndim,
                                          strict=True))],
}  # fmt: skip

MOVES: dict[str, Callable[..., Needs]] = {
    "transpose": _moved(lambda ins, p: ins[0].transpose(p["permutation"])),
    "rev": _moved(lambda ins, p: np.flip(ins[0], p["dimensions"])),
    "concatenate": _moved(lambda ins, p: np.concatenate(ins, p["dimension"])),
    "stack": _moved(lambda ins, p: np.stack(ins, p.get("axis", 0))),
    "iota": lambda ins, p, shape: [needed()] * math.prod(shape),
    "pad": _pad,
    **dict.fromkeys(
        ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_or", "reduce_and", "argmax", "argmin"),
        _reduce,
    ),
    **dict.fromkeys(("cumsum", "cummax", "cummin", "cumprod", "sort", "dot_general"), _whole),
}
INDEXED: dict[str, Callable[..., Needs]] = {
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": lambda v, p, s: _scatter(v, p, s, False),
    **dict.fromkeys(
        (
            "scatter-add",
            "scatter_add",
            "scatter_mul",
            "scatter_min",
            "scatter_max",
            "scatter-mul",
            "scatter-min",
            "scatter-max",
        ),
        lambda v, p, s: _scatter(v, p, s, True),
    ),
}
HELD: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "lt": lambda a, b: a < b,
    "ge": lambda a, b: a >= b,
    "and": lambda a, b: a & b,
    "select_n": lambda c, *cases: np.choose(np.asarray(c).astype(int), cases),
}
"""Index arithmetic that is followed, so that an index stays known."""
