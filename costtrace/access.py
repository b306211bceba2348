"""What an op touches of each operand, given what is asked of its result.

VIEWS: primitives whose result is (a part of) their first operand: nothing moves while it is only read. TOUCHES: other
primitives that need less than all of an operand. Everything else needs all of every operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from costtrace.core import Op, Value
from costtrace.errors import UsageError
from costtrace.region import FULL, Axis, Box, Region, Row, Some, axes_of, box, shared, volume
from costtrace.rules import RULES

View = Callable[[Op, int, Region], Region]
"""(op, which result, region asked of it) -> region of the first operand (of operand `which` for IDENTITY)."""

Touch = Callable[[Op, Region], list[Region | bool]]
"""(op, region asked of its first result) -> the region of each operand; False: not read at all."""
F = TypeVar("F", View, Touch)

VIEWS: dict[str, View] = {}
TOUCHES: dict[str, Touch] = {}
IDENTITY = ("copy", "copy_p", "stop_gradient", "optimization_barrier", "pvary", "pbroadcast", "reshard",
            "sharding_constraint", "layout_constraint", "device_put", "random_wrap", "random_unwrap", "name",
            "reduced_vary_cast_p", "vary_unreduced_cast_p", "preduced", "layout_cast", "tie", "pin", "unpin",
            "with_memory_space_constraint", "to_edtype", "from_edtype")  # fmt: skip
"""Views whose result k is operand k."""


def _entered(table: dict[str, F], primitives: tuple[str, ...]) -> Callable[[F], F]:
    """Registers a function in `table`. Raises UsageError where the primitive has an entry already."""

    def register(f: F) -> F:
        for primitive in primitives:
            if primitive in table:
                raise UsageError(f"primitive {primitive!r} is in access.py twice: remove one of the two")
            table[primitive] = f
        return f

    return register


def view(*primitives: str) -> Callable[[View], View]:
    return _entered(VIEWS, primitives)


@view(*IDENTITY)
def identity(op: Op, k: int, region: Region) -> Region:
    return region if op.inputs[_source(op, k)].shape == op.outputs[k].shape else FULL


def _source(op: Op, k: int) -> int:
    return k if op.primitive in IDENTITY and k < len(op.inputs) and len(op.outputs) > 1 else 0


def source(op: Op, k: int) -> Value:
    """The operand that result `k` of a view is a part of."""
    return op.inputs[_source(op, k)]


def _anywhere(op: Op, region: Region, shape: tuple[int, ...], size: int) -> Region:
    """As many elements as `region` of the result has, somewhere in an operand of `size` elements."""
    if isinstance(region, Some):
        return Some(min(size, region.count), region.token, region.repeat, region.fixed)
    count = volume(shape, region)
    if count >= size:
        return FULL
    if op.primitive == "dynamic_slice":
        return Some(count, hash((id(op), region)))
    return Some(count, hash((op.primitive, id(op.inputs[0]), shape, str(op.params), region)), fixed=True)


@view("reshape", "squeeze", "expand_dims")
def reshape(op: Op, k: int, region: Region) -> Region:
    """Groups of axes with equal products are mapped one by one; a cut through a merged axis keeps its size only."""
    if region is FULL:
        return FULL
    source, shape = op.inputs[0].shape, op.outputs[0].shape
    if isinstance(region, Some) or (op.params.get("dimensions") and op.primitive == "reshape"):
        return _anywhere(op, region, shape, op.inputs[0].size)
    out: list[Axis] = []
    i = j = 0
    while i < len(source) or j < len(shape):
        i0, j0, a, b = i, j, 1, 1
        while a != b or (i == i0 and j == j0):
            if (a <= b and i < len(source)) or j == len(shape):
                a *= source[i]
                i += 1
            else:
                b *= shape[j]
                j += 1
            if 0 in (a, b):
                return FULL
        axes = _mapped(source[i0:i], shape[j0:j], region[j0:j])
        if axes is None:
            return _anywhere(op, region, shape, op.inputs[0].size)
        out += axes
    return box(source, tuple(out))


def _mapped(source: tuple[int, ...], shape: tuple[int, ...], axes: Box) -> Box | None:
    if all(a is None for a in axes):
        return (None,) * len(source)
    if source == shape:
        return axes
    wide_s, wide_r = [d for d, n in enumerate(source) if n > 1], [d for d, n in enumerate(shape) if n > 1]
    if [source[d] for d in wide_s] == [shape[d] for d in wide_r]:
        if any(axes[d] is not None for d in range(len(shape)) if d not in wide_r):
            return None
        given = dict(zip(wide_s, (axes[d] for d in wide_r), strict=True))
        return tuple(given.get(d) for d in range(len(source)))
    cut = [d for d in wide_r if axes[d] is not None]
    if len(wide_s) == 1 and cut == wide_r[:1] and isinstance(axes[cut[0]], tuple):
        inner = math.prod(shape[cut[0] + 1 :])
        lo, hi = axes[cut[0]]  # type: ignore[misc]
        return tuple((lo * inner, hi * inner) if d == wide_s[0] else None for d in range(len(source)))
    return None


@view("broadcast_in_dim", "broadcast_to")
def broadcast(op: Op, k: int, region: Region) -> Region:
    x = op.inputs[0]
    if region is FULL or x.size <= 1:
        return FULL
    if isinstance(region, Some):
        return Some(min(region.count, x.size), region.token, region.repeat, region.fixed)
    dims = op.params.get("broadcast_dimensions")
    if dims is None:
        dims = range(len(region) - len(x.shape), len(region))
    return box(x.shape, tuple(region[d] if n > 1 else None for d, n in zip(dims, x.shape, strict=True)))


@view("slice")
def slice_(op: Op, k: int, region: Region) -> Region:
    p, x = op.params, op.inputs[0]
    if isinstance(region, Some):
        return region
    if p["strides"] is not None and any(s > 1 < n for s, n in zip(p["strides"], op.outputs[0].shape, strict=True)):
        return _anywhere(op, region, op.outputs[0].shape, x.size)
    return _shifted(x, op.outputs[0], p["start_indices"], region)


def _shifted(x: Value, part: Value, starts: tuple[int, ...], region: Region) -> Region:
    asked = axes_of(region, len(x.shape))
    axes: list[Axis] = []
    for s, n, whole, a in zip(starts, part.shape, x.shape, asked, strict=True):
        s = int(s)  # jnp.split hands numpy's integers on
        if a is None:
            axes.append((s, s + n))
        elif isinstance(a, Row):
            axes.append(a if n == whole else (s, s + n))
        else:
            axes.append((s + a[0], s + a[1]))
    return box(x.shape, tuple(axes))


@view("dynamic_slice")
def dynamic_slice(op: Op, k: int, region: Region) -> Region:
    x, out = op.inputs[0], op.outputs[0]
    if isinstance(region, Some):
        return region
    starts = [v.literal for v in op.inputs[1:]]
    free = [d for d in range(len(x.shape)) if x.shape[d] != out.shape[d]]
    if all(starts[d] is not None for d in free):
        at = tuple(
            min(max(int(starts[d]), 0), x.shape[d] - out.shape[d]) if d in free else 0 for d in range(len(x.shape))
        )
        return _shifted(x, out, at, region)
    return _anywhere(op, region, out.shape, x.size)


@view("transpose")
def transpose(op: Op, k: int, region: Region) -> Region:
    if not isinstance(region, tuple):
        return region
    axes: list[Axis] = [None] * len(region)
    for d, p in enumerate(op.params["permutation"]):
        axes[p] = region[d]
    return tuple(axes)


@view("bitcast_convert_type")
def bitcast(op: Op, k: int, region: Region) -> Region:
    if region is FULL or op.inputs[0].shape == op.outputs[0].shape:
        return region
    x, out = op.inputs[0], op.outputs[0]
    count = region.count if isinstance(region, Some) else volume(out.shape, region)
    return Some(-(-count * out.bits // max(x.bits, 1)), hash((id(op), region)), fixed=True)


@view("split")
def split(op: Op, k: int, region: Region) -> Region:
    if isinstance(region, Some):
        return region
    starts = [0] * len(op.inputs[0].shape)
    starts[op.params["axis"]] = sum(op.params["sizes"][:k])
    return _shifted(op.inputs[0], op.outputs[k], tuple(starts), region)


@view("unstack")
def unstack(op: Op, k: int, region: Region) -> Region:
    if isinstance(region, Some):
        return region
    axes = list(axes_of(region, len(op.outputs[k].shape)))
    axes.insert(op.params["axis"], (k, k + 1))
    return box(op.inputs[0].shape, tuple(axes))


# -- what is touched by ops that do move data


def touch(*primitives: str) -> Callable[[Touch], Touch]:
    return _entered(TOUCHES, primitives)


def touched(op: Op, regions: list[Region]) -> list[Region | bool]:
    """The region of each operand that `op` needs for `regions` of its results (False: nothing)."""
    if op.priced is not None and any(op.priced.touched):
        return [FULL if n is None else Some(n, hash((id(op), i)), fixed=True) for i, n in enumerate(op.priced.touched)]
    f = TOUCHES.get(op.primitive)
    if f is not None:
        return f(op, regions[0] if len(regions) == 1 else FULL)
    if all(r is FULL for r in regions):
        return [FULL] * len(op.inputs)
    rule = RULES.get(op.primitive)
    shape = op.outputs[0].shape if op.outputs else ()
    if len(regions) == 1 and rule is not None and rule.owner.endswith(".pointwise"):
        return [regions[0] if v.shape == shape else FULL for v in op.inputs]
    return [FULL] * len(op.inputs)


PARTS = ("split", "unstack")
"""Views of several results, each another part of the operand."""


@touch("transpose", "broadcast_in_dim", "broadcast_to", "slice", "reshape", "squeeze", *PARTS, *IDENTITY)
def returned_view(op: Op, region: Region) -> list[Region | bool]:
    """A view that must be written out after all (it is a result of the program)."""
    return [VIEWS[op.primitive](op, 0, region), *([FULL] * (len(op.inputs) - 1))]


@touch("dynamic_slice")
def sliced(op: Op, region: Region) -> list[Region | bool]:
    return [dynamic_slice(op, 0, region), *([FULL] * (len(op.inputs) - 1))]


@touch("rev")
def rev(op: Op, region: Region) -> list[Region | bool]:
    if not isinstance(region, tuple):
        return [region]
    flipped = op.params["dimensions"]
    return [
        tuple(
            (n - a[1], n - a[0]) if d in flipped and isinstance(a, tuple) else a
            for d, (a, n) in enumerate(zip(region, op.inputs[0].shape, strict=True))
        )
    ]


@touch("concatenate")
def concatenate(op: Op, region: Region) -> list[Region | bool]:
    if not isinstance(region, tuple):
        return [FULL] * len(op.inputs)
    d, at = op.params["dimension"], 0
    out: list[Region | bool] = []
    for v in op.inputs:
        n, a = v.shape[d], region[d]
        if isinstance(a, tuple):
            lo, hi = max(a[0] - at, 0), min(a[1] - at, n)
            part: Region | bool = box(v.shape, (*region[:d], (lo, hi), *region[d + 1 :])) if lo < hi else False
        else:
            part = box(v.shape, (*region[:d], None, *region[d + 1 :]))
        out.append(part)
        at += n
    return out


@touch("pad")
def pad(op: Op, region: Region) -> list[Region | bool]:
    """Negative padding crops; what is cropped is not read."""
    x, out = op.inputs[0], op.outputs[0]
    asked = axes_of(region, len(x.shape))
    axes: list[tuple[int, int] | None] = []
    for a, n, whole, (lo, _, hole) in zip(asked, x.shape, out.shape, op.params["padding_config"], strict=True):
        first, last = a if isinstance(a, tuple) else (0, whole)
        step = hole + 1
        start, stop = max(0, -(-(first - lo) // step)), min(n, (last - 1 - lo) // step + 1)
        if stop <= start:
            return [False, FULL]
        axes.append((start, stop))
    return [box(x.shape, tuple(axes)), FULL]


def reduced(op: Op, region: Region) -> list[Region | bool]:
    axes = op.params["axes"]
    if not isinstance(region, tuple):
        return [FULL] * len(op.inputs)
    kept = iter(region)
    return [tuple(None if d in axes else next(kept) for d in range(len(op.inputs[0].shape)))]


for _name in ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor",
              "argmax", "argmin"):  # fmt: skip
    TOUCHES[_name] = reduced


def _window(v: Value, index: Value, dims: tuple[int, ...], sizes: dict[int, int]) -> Box | None:
    """The box of `v` of the given sizes at one index vector over `dims`, if the index is written in the program."""
    known = index.literal if index.literal is not None else index.index
    if known is None or index.size != len(dims):
        return None
    at = [int(n) for n in np.ravel(known)]
    start = {d: min(max(n, 0), v.shape[d] - sizes[d]) for d, n in zip(dims, at, strict=True)}
    return tuple((start.get(d, 0), start.get(d, 0) + sizes[d]) for d in range(len(v.shape)))


def place(op: Op) -> Box | None:
    """The box of its first operand that an update changes; None where that depends on data."""
    at = span(op)
    return at if at is not None and not any(a is None for a in at) else None


def span(op: Op) -> Box | None:
    """A box that holds all that an update changes: None in an axis where the place depends on data; None where it does
    in every axis, or cannot be told."""
    x = op.inputs[0]
    if op.primitive == "dynamic_update_slice":
        axes: list[Axis] = []
        for v, n, m in zip(op.inputs[2:], x.shape, op.inputs[1].shape, strict=True):
            if v.literal is None and n != m:
                axes.append(None)
            else:
                at = min(max(int(v.literal or 0), 0), n - m)
                axes.append((at, at + m))
        return tuple(axes)
    dims = op.params["dimension_numbers"]
    if dims.operand_batching_dims:
        return None
    kept = [d for d in range(len(x.shape)) if d not in dims.inserted_window_dims]
    sizes_of = dict.fromkeys(range(len(x.shape)), 1)
    sizes_of.update(zip(kept, (op.inputs[2].shape[d] for d in dims.update_window_dims), strict=True))
    return _window(x, op.inputs[1], dims.scatter_dims_to_operand_dims, sizes_of)


@touch("gather")
def gather(op: Op, region: Region) -> list[Region | bool]:
    """Only the touched rows: one element of the operand for each element of the result that is asked for."""
    x, out = op.inputs[0], op.outputs[0]
    dims = op.params["dimension_numbers"]
    if region is FULL and not dims.operand_batching_dims:
        window = _window(x, op.inputs[1], dims.start_index_map, dict(enumerate(op.params["slice_sizes"])))
        if window is not None:
            return [box(x.shape, window), FULL]
    count = volume(out.shape, region)
    return [FULL if count >= x.size else Some(count, hash((id(op), region))), FULL]


def updated(op: Op) -> int:
    """Elements of the operand that a scatter or dynamic_update_slice overwrites or adds to, at most."""
    updates = op.inputs[1] if op.primitive == "dynamic_update_slice" else op.inputs[2]
    return min(updates.size, op.inputs[0].size)


@touch("dynamic_update_slice", "scatter")
def overwritten(op: Op, region: Region) -> list[Region | bool]:
    """Copied where it is not in place: the rows that stay are read, the rest comes from the updates."""
    x = op.inputs[0]
    changed = place(op)
    asked = x.size if region is FULL else volume(x.shape, region)
    if changed is not None and not isinstance(region, Some):
        new = shared(x.shape, region, changed)
        if new is False:
            return [region, *([False] * (len(op.inputs) - 1))]
        left = asked - volume(x.shape, new)
    else:
        left = asked - min(asked, updated(op))
    kept: Region | bool = Some(left, hash((id(op), "kept", region)), fixed=True) if left else False
    return [kept, *([FULL] * (len(op.inputs) - 1))]


UPDATES = ("dynamic_update_slice", "scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max", "scatter-sub")
"""Primitives that change a part of their first operand: in place where nothing else needs the old one."""
