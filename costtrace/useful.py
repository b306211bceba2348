"""Matmul FLOPs that a static mask makes needless: what a kernel that skips masked scores would not do. No jax here.

A causal mask or a window is written as a select (or a sum, a product) with an array that follows from the program
alone. Two passes find what it hides. Forward: which elements of which values are certainly 0, a masking number
(MASKING or less, which is 0 after exp; a row that is masked throughout is ignored) or another known number; all else is
unknown. Backward: which elements are asked for at all; what is multiplied by a known 0, or replaced or swamped by a
masking value, is not. A product is useful where its operands may be non-zero and its result is asked for. Data never
hide anything: where a mask also depends on them (padding), that part counts as all live. So the useful FLOPs are an
upper bound, exact where one mask is at work.

Arrays are kept as small as they can be: an axis along which nothing changes has length 1, and a comparison of rows with
sorted columns is one interval per row, so that a causal mask of n x n costs n. Numbers are float64, booleans 0 and 1,
nan is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from costtrace.access import IDENTITY
from costtrace.core import Op

MASKING = -1e4
"""A number at or below this, chosen or added by a static predicate, hides a score (BERT's masks add -10000)."""
CELLS = 1 << 24
"""The largest array that is written out, where a mask's rows are not intervals; a larger one hides nothing."""

Array = np.ndarray[Any, Any]
Span = tuple[int, int, Array, Array]
Move = tuple[Any, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Known:
    """What is known of an array. span (axis, n, first, stop): `inside` where first <= index < stop along an axis of
    length n, else `outside`. `outside` without a span: the sum of the two, kept apart (rows minus columns)."""

    inside: Array
    outside: Array | None = None
    span: Span | None = None

    def arrays(self) -> Iterator[Array]:
        yield self.inside
        if self.outside is not None:
            yield self.outside
        if self.span is not None:
            yield from self.span[2:]

    def written(self) -> Array | None:
        """The array as one; None where that is larger than CELLS."""
        if self.outside is None:
            return self.inside
        if self.span is None:
            return self.inside + self.outside if _size(self.arrays()) <= CELLS else None
        axis, n, first, stop = self.span
        at = np.arange(n).reshape([n if d == axis else 1 for d in range(first.ndim)])
        if _size((at, *self.arrays())) > CELLS:
            return None
        return np.where((first <= at) & (at < stop), self.inside, self.outside)


def _size(arrays: Iterator[Array] | tuple[Array, ...]) -> int:
    return math.prod(np.broadcast_shapes(*(a.shape for a in arrays)))


UNKNOWN = Known(np.array(np.nan))

# -- arithmetic of which some numbers are unknown


def _product(a: Array, b: Array) -> Array:
    return np.where((a == 0) | (b == 0), 0, a * b)


def _either(a: Array, b: Array) -> Array:
    return 1 - _product(1 - a, 1 - b)


def _sum(a: Array, b: Array) -> Array:
    return np.where(np.isnan(a + b) & ((a <= MASKING) | (b <= MASKING)), -np.inf, a + b)


def _difference(a: Array, b: Array) -> Array:
    return np.where((a <= MASKING) & np.isnan(b), -np.inf, a - b)


def _quotient(a: Array, b: Array) -> Array:
    return np.where((a == 0) & (b != 0), 0, a / b)


def _chosen(which: Array, a: Array, b: Array) -> Array:
    """select_n: b where `which`. Either where that is unknown: known if both are equal, or both masking."""
    both = np.where(a == b, a, np.where((a <= MASKING) & (b <= MASKING), -np.inf, np.nan))
    return np.where(which == 1, b, np.where(which == 0, a, both))


def _zero_if_masked(a: Array) -> Array:
    return np.where(a <= MASKING, 0, np.nan)


def _compared(f: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, f(a, b))


COMPARED = {"ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less, "eq": np.equal,
            "ne": np.not_equal}  # fmt: skip
MIRRORED = {"ge": "le", "gt": "lt", "le": "ge", "lt": "gt", "eq": "eq", "ne": "ne"}
KNOWN: dict[str, Callable[..., Array]] = {
    "mul": _product, "and": _product, "or": _either, "not": lambda a: 1 - a, "add": _sum, "add_any": _sum,
    "sub": _difference, "div": _quotient, "neg": np.negative, "max": np.maximum, "min": np.minimum, "rem": np.fmod,
    "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "square": np.square, "sqrt": np.sqrt,
    "tanh": np.tanh, "sin": np.sin, "log": np.log, "exp": _zero_if_masked, "exp2": _zero_if_masked,
    "logistic": _zero_if_masked, "select_n": _chosen, "integer_pow": lambda a, y: a**y, "reduce_precision": np.copy,
    "convert_element_type": np.copy, **dict.fromkeys(IDENTITY, np.copy),
    **{name: _compared(f) for name, f in COMPARED.items()},
    # for the passes themselves
    "trunc": np.trunc, "true": lambda a: np.where(np.isnan(a), np.nan, a != 0),
    "non-zero": lambda a: np.where(a == 0, 0, 1), "not masking": lambda a: np.where(a <= MASKING, 0, 1),
    "shown": lambda a: np.where((a == 0) | (a <= MASKING), 0, 1), "may be 0": lambda a: np.where(a == 1, 0, 1),
    "may be 1": lambda a: np.where(a == 0, 0, 1), "in range": lambda a, lo, hi: np.where((a < lo) | (a > hi), np.nan, a),
}  # fmt: skip
MOVES = ("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice")
BITWISE = ("and", "or", "not")
OUTER = ("add", "sub")

# -- moving known arrays


def move_of(op: Op) -> Move | None:
    """How a view moves its operand: a hashable description that holds for any array of its rank."""
    p, source, shape = op.params, op.inputs[0].shape, op.outputs[0].shape
    if op.primitive == "transpose":
        return "transpose", tuple(p["permutation"])
    if op.primitive == "broadcast_in_dim":
        return "broadcast", tuple(map(int, p["broadcast_dimensions"])), source, shape
    if op.primitive == "slice":
        return "slice", tuple(p["start_indices"]), tuple(p["limit_indices"]), p["strides"] or (1,) * len(source)
    return None if op.primitive == "reshape" and p.get("dimensions") else ("reshape", source, shape)


def _undone(move: Move, asked: Known) -> Move | None:
    """The move that takes what is asked of a view's result to its operand; None: all of it is asked for."""
    if move[0] == "transpose":
        return "transpose", tuple(int(d) for d in np.argsort(move[1]))
    if move[0] == "reshape":
        return "reshape", move[2], move[1]
    if move[0] == "broadcast":
        _, dims, source, shape = move
        kept = [d for d, n in zip(dims, source, strict=True) if n == shape[d]]
        varies = {d for a in asked.arrays() for d, n in enumerate(a.shape) if n > 1} | set(
            asked.span[:1] if asked.span else ()
        )
        return ("keep", dims) if varies <= set(kept) else None
    return None


def _groups(source: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[tuple[range, range]]:
    """The axes of a reshape in the smallest groups of equal products."""
    i = j = 0
    while i < len(source) or j < len(shape):
        i0, j0, a, b = i, j, 1, 1
        while a != b or (i == i0 and j == j0):
            if i < len(source) and (a <= b or j == len(shape)):
                a, i = a * source[i], i + 1
            else:
                b, j = b * shape[j], j + 1
        yield range(i0, i), range(j0, j)


def _moved(move: Move, a: Array) -> Array | None:
    if a.ndim == 0:
        return a
    how = move[0]
    if how == "transpose":
        return a.transpose(move[1])
    if how == "keep":
        return a.reshape([a.shape[d] for d in move[1]])
    if how == "slice":
        return a[tuple(slice(None) if n == 1 else slice(*cut) for n, *cut in zip(a.shape, *move[1:], strict=True))]
    if how == "broadcast":
        _, dims, _, shape = move
        at = dict(zip(dims, a.shape, strict=True))
        return a.reshape([at.get(d, 1) for d in range(len(shape))])
    _, source, shape = move
    wide, out = list(a.shape), [1] * len(shape)
    for before, after in _groups(source, shape):
        if any(a.shape[d] > 1 for d in before):
            wide[before.start : before.stop] = source[before.start : before.stop]
            out[after.start : after.stop] = shape[after.start : after.stop]
    return np.broadcast_to(a, wide).reshape(out) if math.prod(wide) <= CELLS else None


def _moved_axis(move: Move, axis: int) -> int | None:
    """Where an axis goes; None where it is merged or cut with a stride."""
    how = move[0]
    if how == "transpose" or how == "keep":
        return move[1].index(axis)
    if how == "broadcast":
        return move[1][axis]
    if how == "slice":
        return axis if move[3][axis] == 1 else None
    for before, after in _groups(*move[1:]):
        if axis in before:
            wide = [d for d in after if move[2][d] > 1]
            return wide[0] if len(wide) == 1 == sum(move[1][d] > 1 for d in before) else None
    return None
