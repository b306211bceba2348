"""Which dimensions of an op's operands and results are one and the same axis: the table DIMS, by kind of primitive.

A label names an axis within one op. Cutting it over chips cuts every operand and result that carries it; a label that
only operands carry is summed over, so each chip then holds a part of the sum. None: cannot be cut. No chips here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from costtrace import routing
from costtrace.core import BACKWARD, Op

Labels = tuple["int | None", ...]


@dataclass(frozen=True, slots=True)
class Dims:
    """Labels of each operand's and each result's dimensions. `summed`: labels whose results are parts of a sum (or of a
    maximum). `halo`: label -> rows that a chip needs of its neighbours."""

    inputs: tuple[Labels, ...]
    outputs: tuple[Labels, ...]
    summed: frozenset[int] = frozenset()
    halo: dict[int, int] = field(default_factory=dict)
    beside: int | None = None
    """The groups of a ragged product."""


DIMS: dict[str, Callable[[Op], Dims]] = {}
ALONG = {"cumsum": "axis", "cumprod": "axis", "cummax": "axis", "cummin": "axis", "cumlogsumexp": "axis",
         "sort": "dimension", "rev": "dimensions"}  # fmt: skip
"""Primitives that keep a shape but work along one dimension, and the parameter that names it."""
REDUCED = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor")
COLLECTIVE = ("psum", "pmax", "all_gather", "reduce_scatter", "all_to_all", "ppermute")


def dims(*primitives: str) -> Callable[[Callable[[Op], Dims]], Callable[[Op], Dims]]:
    def register(f: Callable[[Op], Dims]) -> Callable[[Op], Dims]:
        DIMS.update(dict.fromkeys(primitives, f))
        return f

    return register


def of(op: Op, routed: bool = False) -> Dims:
    """The labels of an op; elementwise where every array has one shape (or 1 in its place), else nothing can be cut.
    routed: it moves rows by an index that each chip can make of its own rows (routing.py)."""
    made = DIMS.get(op.primitive)
    if made is not None:
        found = made(op)
        return _carried(op, found) if routed else found
    shapes = [v.shape for v in (*op.inputs, *op.outputs) if v.shape]
    whole = tuple(max(sizes) for sizes in zip(*shapes, strict=False))
    if op.priced is not None or any(len(s) != len(whole) or any(n not in (1, m) for n, m in zip(s, whole, strict=True))
                                    for s in shapes):  # fmt: skip
        return opaque(op)
    along = () if routed else op.params.get(ALONG.get(op.primitive, ""), ())
    fixed = set(along) if isinstance(along, (tuple, list)) else {along}

    def labels(shape: tuple[int, ...]) -> Labels:
        return tuple(None if d in fixed or n != m else d for d, (n, m) in enumerate(zip(shape, whole, strict=False)))

    return Dims(tuple(labels(v.shape) for v in op.inputs), tuple(labels(v.shape) for v in op.outputs))


def opaque(op: Op) -> Dims:
    """Nothing can be cut."""
    return Dims(tuple((None,) * len(v.shape) for v in op.inputs), tuple((None,) * len(v.shape) for v in op.outputs))


@dims("transpose")
def transposed(op: Op) -> Dims:
    order = tuple(op.params["permutation"])
    return Dims((tuple(range(len(order))),), (order,))


@dims("iota", "random_bits", "rng_uniform")
def born(op: Op) -> Dims:
    """Each chip makes its own part."""
    return Dims(opaque(op).inputs, (tuple(range(len(op.outputs[0].shape))),))


@dims("broadcast_in_dim")
def broadcast(op: Op) -> Dims:
    """A dimension that is repeated, or new, is born where it is."""
    x, out = op.inputs[0], op.outputs[0]
    places = op.params["broadcast_dimensions"]
    kept = tuple(p if x.shape[d] == out.shape[p] else None for d, p in enumerate(places))
    rest = opaque(op).inputs[1:]
    return Dims((kept, *rest), (tuple(range(len(out.shape))),))


@dims("reshape", "squeeze", "expand_dims")
def reshaped(op: Op) -> Dims:
    """Groups of dimensions with equal products; where a group is split or merged, its outermost dimension stays one."""
    a, b = op.inputs[0].shape, op.outputs[0].shape
    left: list[int | None] = [None] * len(a)
    right: list[int | None] = [None] * len(b)
    label = 0
    for ins, outs in _groups(a, b):
        wide = [d for d in ins if a[d] > 1], [d for d in outs if b[d] > 1]
        pairs = list(zip(*wide, strict=False))
        if [a[d] for d in wide[0]] != [b[d] for d in wide[1]]:
            pairs = pairs[:1]
        for i, o in pairs:
            left[i] = right[o] = label
            label += 1
    return Dims((tuple(left), *opaque(op).inputs[1:]), (tuple(right),))


def _groups(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    i = j = 0
    while i < len(a) or j < len(b):
        i0, j0, m, n = i, j, 1, 1
        while m != n or (i == i0 and j == j0):
            if (m <= n and i < len(a)) or j == len(b):
                if i == len(a):
                    return
                m, i = m * a[i], i + 1
            else:
                n, j = n * b[j], j + 1
            if 0 in (m, n):
                return
        yield list(range(i0, i)), list(range(j0, j))


@dims("dot_general")
def dot(op: Op) -> Dims:
    (contract, batch), (x, y) = op.params["dimension_numbers"], op.inputs[:2]
    labels: tuple[list[int | None], list[int | None]] = ([None] * len(x.shape), [None] * len(y.shape))
    label = 0
    for pairs in (batch, contract):
        for d, e in zip(*pairs, strict=True):
            labels[0][d] = labels[1][e] = label
            label += 1
    summed = frozenset(range(len(batch[0]), label))
    free: list[int | None] = []
    for side in labels:
        for d, known in enumerate(side):
            if known is None:
                side[d] = label
                free.append(label)
                label += 1
    return Dims((tuple(labels[0]), tuple(labels[1])), ((*range(len(batch[0])), *free),), summed)


@dims("ragged_dot_general")
def ragged(op: Op) -> Dims:
    """(m, k) x (g, k, n): rows in the order of their groups. Cut by rows, each chip meets every group, unless the rows
    have been sent to the chips that have their groups (`beside`). A ragged k makes a matrix for each group."""
    numbers = op.params["ragged_dot_dimension_numbers"]
    contract, batch = numbers.dot_dimension_numbers
    if batch[0]:
        return opaque(op)
    x, y = op.inputs[:2]
    left: list[int | None] = [None] * len(x.shape)
    right: list[int | None] = [None] * len(y.shape)
    group = 0
    for d in numbers.rhs_group_dimensions:
        right[d] = group
    label = 1
    for d, e in zip(*contract, strict=True):
        left[d] = right[e] = label
        label += 1
    summed = frozenset(range(1, label))
    free: list[int | None] = []
    for side in (left, right):
        for d, known in enumerate(side):
            if known is None:
                side[d] = label
                free.append(label)
                label += 1
    kept = () if numbers.rhs_group_dimensions else (group,)
    return Dims((tuple(left), tuple(right), (group,)), ((*kept, *free),), summed, beside=group)


@dims(*REDUCED)
def reduced(op: Op) -> Dims:
    axes = set(op.params["axes"])
    every = tuple(range(len(op.inputs[0].shape)))
    return Dims((every,), (tuple(d for d in every if d not in axes),), frozenset(axes))


@dims("argmax", "argmin")
def picked(op: Op) -> Dims:
    axes = set(op.params["axes"])
    every = range(len(op.inputs[0].shape))
    return Dims((tuple(None if d in axes else d for d in every),), (tuple(d for d in every if d not in axes),))


@dims("concatenate", "split")
def joined(op: Op) -> Dims:
    """A dimension made of parts is cut by cutting each part: chips hold [part 0's share, part 1's share ...]."""
    every = tuple(range(len(op.inputs[0].shape)))
    return Dims((every,) * len(op.inputs), (every,) * len(op.outputs))


@dims("stack")
def stacked(op: Op) -> Dims:
    out, each = op.outputs[0].shape, op.inputs[0].shape
    new = op.params.get("axis", 0) % len(out)
    labels = tuple(d for d in range(len(out)) if d != new)
    if len(labels) != len(each):
        return opaque(op)
    return Dims((labels,) * len(op.inputs), (tuple(None if d == new else d for d in range(len(out))),))


@dims("slice", "dynamic_slice")
def sliced(op: Op) -> Dims:
    """A slice takes each chip's share of it; one row lies on one chip, and the others get it as a sum with zeros."""
    x, out = op.inputs[0].shape, op.outputs[0].shape
    one = frozenset(d for d in range(len(x)) if out[d] == 1 < x[d])
    still = op.primitive == "slice"
    left = tuple(d if still or out[d] in (1, x[d]) else None for d in range(len(x)))
    right = tuple(None if d in one else left[d] for d in range(len(x)))
    return Dims((left, *opaque(op).inputs[1:]), (right,), one)


@dims("dynamic_update_slice")
def updated(op: Op) -> Dims:
    x, u = op.inputs[0].shape, op.inputs[1].shape
    labels = tuple(d if n == m else None for d, (n, m) in enumerate(zip(x, u, strict=True)))
    return Dims((labels, labels, *opaque(op).inputs[2:]), (labels,))


@dims("top_k")
def largest(op: Op) -> Dims:
    x = op.inputs[0]
    last = op.params.get("axis", len(x.shape) - 1) % len(x.shape)
    kept = tuple(None if d == last else d for d in range(len(x.shape)))
    return Dims((kept,), (kept, kept))


@dims("gather")
def gathered(op: Op) -> Dims:
    """Rows by index: result rows follow the indices, a table cut by rows gives sums with zeros, the rest stays."""
    numbers, sizes = op.params["dimension_numbers"], op.params["slice_sizes"]
    x, index, out = op.inputs[0].shape, op.inputs[1].shape, op.outputs[0].shape
    gone, batched = numbers.collapsed_slice_dims, numbers.operand_batching_dims
    left, rows, right = _indexed(x, index, out, numbers.offset_dims, gone, batched, numbers.start_indices_batching_dims)
    for d, o in zip((d for d in range(len(x)) if d not in (*gone, *batched)), numbers.offset_dims, strict=True):
        if sizes[d] != x[d]:
            left[d] = right[o] = None
    summed: frozenset[int] = frozenset()
    if len(gone) == 1 and tuple(numbers.start_index_map) == tuple(gone):
        left[gone[0]] = len(out)
        summed = frozenset({len(out)})
    return Dims((tuple(left), tuple(rows)), (tuple(right),), summed)


@dims("scatter", "scatter-add", "scatter_add", "scatter_mul", "scatter_min", "scatter_max")
def scattered(op: Op) -> Dims:
    """The reverse: where the picked rows are cut, each chip has its own in a result of zeros, a part of a sum."""
    numbers = op.params["dimension_numbers"]
    x, index, update = (v.shape for v in op.inputs[:3])
    gone, batched, window = numbers.inserted_window_dims, numbers.operand_batching_dims, numbers.update_window_dims
    left, rows, right = _indexed(x, index, update, window, gone, batched, numbers.scatter_indices_batching_dims)
    for d, o in zip((d for d in range(len(x)) if d not in (*gone, *batched)), window, strict=True):
        if update[o] != x[d]:
            left[d] = right[o] = None
    held = set(left)
    summed = frozenset(label for label in right if label is not None and label not in held)
    return Dims((tuple(left), tuple(rows), tuple(right)), (tuple(left),), summed)


def _indexed(
    x: Sequence[int], index: Sequence[int], picked: Sequence[int], window: Sequence[int], gone: Sequence[int],
    batched: Sequence[int], batches: Sequence[int],
) -> tuple[list[int | None], list[int | None], list[int | None]]:  # fmt: skip
    """Labels of (the whole array, the index, the picked rows), each dimension of the picked rows a label."""
    right: list[int | None] = list(range(len(picked)))
    left: list[int | None] = [None] * len(x)
    rows: list[int | None] = [None] * len(index)
    own = [o for o in range(len(picked)) if o not in window]
    for d, o in enumerate(own):
        rows[d] = o
    for d, i in zip(batched, batches, strict=True):
        left[d] = own[i]
    for d, o in zip((d for d in range(len(x)) if d not in (*gone, *batched)), window, strict=True):
        left[d] = o
    return left, rows, right


def _carried(op: Op, found: Dims) -> Dims:
    """Each chip picks of its own rows: they stay one axis."""
    at = routing.rows(op)
    assert at is not None
    large, picked = at
    last = 2 if len(op.inputs) > 2 else -1
    label = (found.inputs[last] if last > 0 else found.outputs[0])[picked]
    whole = tuple(label if d == large else x for d, x in enumerate(found.inputs[0]))
    outputs = found.outputs if last < 0 else (whole,)
    return Dims((whole, *found.inputs[1:]), outputs, found.summed - {label, found.inputs[0][large]})


@dims("conv_general_dilated")
def convolution(op: Op) -> Dims:
    """Batch, channels in (a sum) and out; space with the neighbours' rows where a stride divides it."""
    n, p = op.params["dimension_numbers"], op.params
    x, w, out = (v.shape for v in (*op.inputs[:2], *op.outputs))
    left: list[int | None] = [None] * len(x)
    kernel: list[int | None] = [None] * len(w)
    right: list[int | None] = [None] * len(out)
    left[n.lhs_spec[0]] = right[n.out_spec[0]] = 0
    if p["feature_group_count"] == 1 and p["batch_group_count"] == 1:
        left[n.lhs_spec[1]] = kernel[n.rhs_spec[1]] = 1
        kernel[n.rhs_spec[0]] = right[n.out_spec[1]] = 2
    halo = {}
    for i, (a, k, o) in enumerate(zip(n.lhs_spec[2:], n.rhs_spec[2:], n.out_spec[2:], strict=True)):
        step = p["window_strides"][i]
        if p["lhs_dilation"][i] == 1 and x[a] == step * out[o]:
            left[a] = right[o] = 3 + i
            halo[3 + i] = max(0, (w[k] - 1) * p["rhs_dilation"][i] + 1 - step)
    return Dims((tuple(left), tuple(kernel)), (tuple(right),), frozenset({1}), {k: v for k, v in halo.items() if v})


@dims("reduce_window_max", "reduce_window_min", "reduce_window_sum")
def pooled(op: Op) -> Dims:
    """Where windows stand side by side and fill a dimension, or are one wide, a chip's windows lie in its own part."""
    p = op.params
    x, out = op.inputs[0].shape, op.outputs[0].shape
    beside = tuple(
        d if (w, x[d]) == (step, step * out[d]) and (low, high, wide, apart) == (0, 0, 1, 1) else None
        for d, (w, step, (low, high), wide, apart) in enumerate(
            zip(p["window_dimensions"], p["window_strides"], p["padding"], p["base_dilation"], p["window_dilation"],
                strict=True)
        )
    )  # fmt: skip
    return Dims((beside,), (beside,))


@dims("select_and_scatter_add")
def unpooled(op: Op) -> Dims:
    """The derivative of a maximum over windows: (gradient, operand) -> the operand's shape."""
    p, small, x = op.params, op.inputs[0].shape, op.inputs[1].shape
    beside = tuple(
        d if (w, x[d], *pads) == (step, step * small[d], 0, 0) else None
        for d, (w, step, pads) in enumerate(zip(p["window_dimensions"], p["window_strides"], p["padding"], strict=True))
    )
    return Dims((beside, beside), (beside,))


@dims("pad")
def padded(op: Op) -> Dims:
    """Filled on both sides, a dimension is about to be shifted: a chip needs as many rows of its neighbours. The
    derivative of a slice fills too, and shifts nothing."""
    config = op.params["padding_config"]
    labels = tuple(None if inner else d for d, (_, _, inner) in enumerate(config))
    halo = {d: a + b for d, (a, b, _) in enumerate(config) if a > 0 and b > 0 and op.phase != BACKWARD}
    return Dims((labels, ()), (labels,), halo=halo)


@dims(*COLLECTIVE)
def moved(op: Op) -> Dims:
    """A collective over another axis: what it cuts or joins stays one axis of this one."""
    every = tuple(range(len(op.inputs[0].shape)))
    return Dims((every,) * len(op.inputs), (every,) * len(op.outputs))
