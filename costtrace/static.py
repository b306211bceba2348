"""What of an array's elements follows from the program alone: the arithmetic of partly known arrays. No jax here.

Arrays are kept as small as they can be: an axis along which nothing changes has length 1, and what holds two numbers is
the places of one of them. A comparison of rows with sorted columns is an interval for each row, so that a causal mask
of n x n costs n. Numbers are float64, booleans 0 and 1, nan is unknown; an unknown number is taken to be finite: 0
times it is 0, and a masking number plus it still masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

MASKING = -1e4
"""A number at or below this hides a score: its exp counts as 0. BERT's masks add -10000, float16 ends at -65504."""
CELLS = 1 << 24
"""The largest array that is written out where rows are not intervals; of a larger one nothing is known."""
SMALL = 1 << 16

Array = np.ndarray[Any, Any]
Move = tuple[Any, ...]


class Interval(NamedTuple):
    """The places first <= index < stop along an axis of length n, a pair for each row."""

    axis: int
    n: int
    first: Array
    stop: Array


class Places(NamedTuple):
    """Any places: an array of booleans."""

    at: Array


@dataclass(frozen=True, eq=False, slots=True)
class Known:
    """`inside` at the places of `span`, `outside` elsewhere. Without a span: `inside`, or the sum of the two, kept
    apart (rows minus columns)."""

    inside: Array
    outside: Array | None = None
    span: Interval | Places | None = None

    @property
    def cases(self) -> tuple[Array, ...]:
        """The arrays that hold its numbers."""
        return (self.inside,) if self.outside is None else (self.inside, self.outside)

    @property
    def arrays(self) -> tuple[Array, ...]:
        return (*self.cases, *(a for a in self.span or () if isinstance(a, np.ndarray)))

    def written(self) -> Array | None:
        """As one array; None where that is larger than CELLS."""
        if self.outside is None:
            return self.inside
        if not isinstance(self.span, Interval):
            if _size(self.arrays) > CELLS:
                return None
            return np.where(self.span.at, self.inside, self.outside) if self.span else self.inside + self.outside
        axis, n, first, stop = self.span
        at = np.arange(n).reshape([n if d == axis else 1 for d in range(first.ndim)])
        if _size((at, *self.arrays)) > CELLS:
            return None
        return np.where((first <= at) & (at < stop), self.inside, self.outside)

    def varies(self) -> set[int]:
        """The axes along which it is not all the same."""
        own = {d for a in self.arrays for d, n in enumerate(a.shape) if n > 1}
        return own | {self.span.axis} if isinstance(self.span, Interval) else own

    def fraction(self) -> Fraction | None:
        """The share of 1 in an array of 0 and 1; None where it is too large to count."""
        if isinstance(self.span, Interval):
            rows = _row_counts(self.cases, self.span)
            if rows is not None:
                return Fraction(int(rows.sum()), rows.size * self.span.n)
        if isinstance(self.span, Places) and self.outside is not None and self.inside.size == self.outside.size == 1:
            at, all_ = int(np.count_nonzero(self.span.at)), self.span.at.size
            return Fraction(at * int(self.inside.item()) + (all_ - at) * int(self.outside.item()), all_)
        whole = self.written()
        return None if whole is None else Fraction(int(np.count_nonzero(whole)), whole.size)


def _row_counts(cases: Iterable[Array], span: Interval) -> Array | None:
    axis, n, first, stop = span
    total = np.zeros(first.shape, np.int64)
    for a, ends in zip(cases, (((first, stop, 1),), ((0, n, 1), (first, stop, -1))), strict=True):
        along = a.ndim > 0 and a.shape[axis] > 1
        if along and a.size > n:
            return None
        upto = np.concatenate([[0], np.cumsum(a.astype(np.int64))]) if along else None
        for lo, hi, sign in ends:
            total = total + sign * (a.astype(np.int64) * (hi - lo) if upto is None else upto[hi] - upto[lo])
    return total


def _size(arrays: Iterable[Array]) -> int:
    return math.prod(np.broadcast_shapes(*(a.shape for a in arrays)))


UNKNOWN = Known(np.array(np.nan))

# -- numbers, of which some are unknown


def _product(a: Array, b: Array) -> Array:
    return np.where((a == 0) | (b == 0), 0, a * b)


def _sum(a: Array, b: Array) -> Array:
    return np.where(np.isnan(a + b) & ((a <= MASKING) | (b <= MASKING)), -np.inf, a + b)


def _chosen(which: Array, a: Array, b: Array) -> Array:
    """select_n: b where `which`. Where that is unknown: known if both are equal, or both masking."""
    either = np.where(a == b, a, np.where((a <= MASKING) & (b <= MASKING), -np.inf, np.nan))
    return np.where(which == 1, b, np.where(which == 0, a, either))


def _comparison(f: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, f(a, b))


COMPARISONS = {"ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less, "eq": np.equal,
               "ne": np.not_equal}  # fmt: skip
ARITHMETIC: dict[str, Callable[..., Array]] = {
    "mul": _product, "and": _product, "or": lambda a, b: 1 - _product(1 - a, 1 - b), "not": lambda a: 1 - a,
    "add": _sum, "add_any": _sum, "sub": lambda a, b: np.where((a <= MASKING) & np.isnan(b), -np.inf, a - b),
    "div": lambda a, b: np.where((a == 0) & (b != 0), 0, a / b), "rem": np.fmod, "max": np.maximum, "min": np.minimum,
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "square": np.square,
    "sqrt": np.sqrt, "tanh": np.tanh, "sin": np.sin, "log": np.log, "select_n": _chosen,
    **dict.fromkeys(("exp", "exp2", "logistic"), lambda a: np.where(a <= MASKING, 0, np.nan)),
    **{name: _comparison(f) for name, f in COMPARISONS.items()},
}  # fmt: skip
"""Primitives whose result may be known in part."""
QUESTIONS: dict[str, Callable[..., Array]] = {
    "integer": np.trunc, "true": lambda a: np.where(np.isnan(a), np.nan, a != 0),
    "within": lambda a, lo, hi: np.where((a < lo) | (a > hi), np.nan, a),
    "maybe 0": lambda a: a != 1, "maybe 1": lambda a: a != 0, "not masking": lambda a: ~(a <= MASKING),
    "shown": lambda a: ~((a == 0) | (a <= MASKING)),
}  # fmt: skip
"""What else is asked of numbers; the answers of the last four are never unknown. "maybe 1": it may be other than 0."""
MIRRORED = {"ge": "le", "gt": "lt", "le": "ge", "lt": "gt", "eq": "eq", "ne": "ne"}
ABSORBING: dict[str, Callable[[Array], Array]] = {
    "mul": lambda a: a == 0, "and": lambda a: a == 0, "add": lambda a: a <= MASKING, "add_any": lambda a: a <= MASKING,
}  # fmt: skip
"""Numbers of one operand that decide the result whatever the other is."""

# -- moves: ("transpose", permutation), ("keep", axes), ("broadcast", axes, rank), ("reshape", from, to),
# ("slice", starts, stops, strides)


def _groups(source: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[tuple[range, range]]:
    """The axes of a reshape, in the smallest groups of equal products."""
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
    how = move[0]
    if a.ndim == 0:
        return a
    if how == "transpose":
        return a.transpose(move[1])
    if how == "keep":
        return a.reshape([a.shape[d] for d in move[1]])
    if how == "slice":
        return a[tuple(slice(None) if n == 1 else slice(*cut) for n, *cut in zip(a.shape, *move[1:], strict=True))]
    if how == "broadcast":
        at = dict(zip(move[1], a.shape, strict=True))
        return a.reshape([at.get(d, 1) for d in range(move[2])])
    _, source, shape = move
    wide, out = list(a.shape), [1] * len(shape)
    for before, after in _groups(source, shape):
        if any(a.shape[d] > 1 for d in before):
            wide[before.start : before.stop] = source[before.start : before.stop]
            out[after.start : after.stop] = shape[after.start : after.stop]
    return np.broadcast_to(a, wide).reshape(out) if math.prod(wide) <= CELLS else None


def _moved_axis(move: Move, axis: int) -> int | None:
    """Where an axis goes; None where it is merged, split or cut with a stride."""
    how = move[0]
    if how in ("transpose", "keep"):
        return move[1].index(axis)
    if how == "broadcast":
        return move[1][axis]
    if how == "slice":
        return axis if move[3][axis] == 1 else None
    _, source, shape = move
    before, after = next(group for group in _groups(source, shape) if axis in group[0])
    wide = [d for d in after if shape[d] > 1]
    return wide[0] if len(wide) == 1 == sum(source[d] > 1 for d in before) else None


def _moved_known(move: Move, known: Known) -> Known | None:
    span = known.span
    axis = _moved_axis(move, span.axis) if isinstance(span, Interval) else None
    if isinstance(span, Interval) and axis is None:
        if (whole := known.written()) is None:
            return None
        known, span = Known(whole), None
    arrays = [_moved(move, a) for a in known.arrays]
    if any(a is None for a in arrays):
        return None
    inside, *rest = (a for a in arrays if a is not None)
    if isinstance(span, Places):
        return Known(inside, rest[0], Places(rest[1]))
    if span is None or axis is None:
        return Known(inside, rest[0] if rest else None)
    outside, first, stop = rest
    n = span.n
    if move[0] == "slice":
        start, n = move[1][axis], move[2][axis] - move[1][axis]
        first, stop = np.clip(first - start, 0, n), np.clip(stop - start, 0, n)
    return Known(inside, outside, Interval(axis, n, first, stop))


def _joined(parts: tuple[Known, ...], lengths: tuple[int, ...], axis: int) -> Known | None:
    arrays = [a for k in parts if (a := k.written()) is not None]
    rank = max(a.ndim for a in arrays) if len(arrays) == len(parts) else 0
    if rank == 0:
        return None
    arrays = [a.reshape((1,) * rank) if a.ndim == 0 else a for a in arrays]
    rows = np.broadcast_shapes(*((*a.shape[:axis], 1, *a.shape[axis + 1 :]) for a in arrays))
    if math.prod(rows) * sum(lengths) > CELLS:
        return None
    shapes = [(*rows[:axis], n, *rows[axis + 1 :]) for n in lengths]
    return Known(np.concatenate([np.broadcast_to(a, n) for a, n in zip(arrays, shapes, strict=True)], axis))


def _rows(name: str, a: Array, b: Array) -> Known | None:
    """`a name b` where one side is sorted along an axis that the other lacks: an interval of it for each row."""
    sides = []
    for x, y, how in ((a, b, name), (b, a, MIRRORED[name])):
        wide = [d for d, n in enumerate(y.shape) if n > 1]
        if len(wide) == 1 and x.ndim == y.ndim and x.size > 1 and x.shape[wide[0]] == 1 and not np.isnan(x).any():
            sides.append((wide[0], x, y.ravel(), how))
    for axis, x, y, how in sorted(sides, key=lambda side: -side[0]):
        steps = np.diff(y)
        if (steps <= 0).all():
            x, y, how = -x, -y, MIRRORED[how]
        elif not (steps >= 0).all():
            continue
        left, right = np.searchsorted(y, x, "left"), np.searchsorted(y, x, "right")
        start, end = np.zeros_like(left), np.full_like(left, y.size)
        ends = {"ge": (start, right), "gt": (start, left), "le": (left, end), "lt": (right, end)}
        first, stop = ends.get(how, (left, right))
        inside = np.array(float(how != "ne"))
        return Known(inside, 1 - inside, Interval(axis, y.size, first, stop))
    return None


def _absorbing_outside(known: Known, absorbs: Callable[[Array], Array]) -> tuple[Known, Interval] | None:
    """The same with an absorbing number outside its intervals, where it has one on either side; and these."""
    inside, outside = known.cases
    assert isinstance(known.span, Interval)
    axis, n, first, stop = known.span
    if absorbs(outside).all():
        return known, known.span
    if absorbs(inside).all() and (first == 0).all():
        rest = Interval(axis, n, stop, np.full_like(stop, n))
    elif absorbs(inside).all() and (stop == n).all():
        rest = Interval(axis, n, np.zeros_like(first), first)
    else:
        return None
    return Known(outside, inside, rest), rest


def _split(a: Array) -> Known:
    """A large array of two numbers as places."""
    if a.size <= SMALL:
        return Known(a)
    one = a.flat[0]
    at = np.isnan(a) if np.isnan(one) else a == one
    rest = a[~at]
    if not rest.size or not (np.isnan(rest).all() if np.isnan(rest[0]) else (rest == rest[0]).all()):
        return Known(a)
    return Known(np.array(one), np.array(rest[0]), Places(at))


class Statics:
    """Known arrays of one program. Equal questions get the same answer, so layers that share a mask cost one."""

    def __init__(self) -> None:
        self.memo: dict[tuple[Any, ...], tuple[Known | None, tuple[Known, ...]]] = {}
        self.same: dict[tuple[Any, ...], Any] = {}

    def one(self, known: Known | None) -> Known | None:
        """The one object that stands for equal small arrays; None where nothing is known."""
        if known is None or all(np.isnan(a).all() for a in known.cases):
            return None
        if known.span is None and known.outside is None:
            known = _split(known.inside)
        span = known.span
        if span is not None:
            places = (x if isinstance(x, int) else (x.shape, hash(x.tobytes())) for x in span)
            span = self.same.setdefault((type(span), *places), span)
            known = Known(known.inside, known.outside, span)
        if sum(a.size for a in known.cases) > SMALL:
            return known
        return self.same.setdefault((id(span), *((a.shape, a.tobytes()) for a in known.cases)), known)

    def number(self, x: Any) -> Known:
        return self.one(Known(np.asarray(x, np.float64))) or UNKNOWN

    def once(self, find: Callable[..., Known | None], key: tuple[Any, ...], args: tuple[Known, ...]) -> Known | None:
        """What `find` gives for a question about `args`, found once; the memo keeps them and so their ids."""
        whole = (*key, *map(id, args))
        if whole not in self.memo:
            with np.errstate(all="ignore"):
                self.memo[whole] = self.one(find()), args
        return self.memo[whole][0]

    def apply(self, name: str, *args: Known) -> Known | None:
        """One primitive or question, element by element; None where nothing is known of it, or it is too large."""
        return self.once(lambda: self._apply(name, args), (name,), args)

    def moved(self, move: Move, known: Known) -> Known | None:
        return self.once(lambda: _moved_known(move, known), move, (known,))

    def joined(self, parts: tuple[Known, ...], lengths: tuple[int, ...], axis: int) -> Known | None:
        """Side by side along `axis`."""
        return self.once(lambda: _joined(parts, lengths, axis), ("concatenate", axis, *lengths), parts)

    def _apply(self, name: str, args: tuple[Known, ...]) -> Known | None:
        special = self._pair(name, *args) if len(args) == 2 else self._cut(*args) if name == "select_n" else None
        if special is not None:
            return special
        spans = list({id(k.span): k.span for k in args if k.span is not None}.values())
        if len(spans) > 1 or any(k.span is None and k.outside is not None for k in args):
            arrays = [k.written() for k in args]
            if any(a is None for a in arrays):
                return None
            args, spans = tuple(Known(a) for a in arrays if a is not None), []
        f = ARITHMETIC.get(name) or QUESTIONS[name]
        inside, outside = [k.inside for k in args], [k.cases[-1] for k in args]
        if max(_size(inside), _size(outside)) > CELLS:
            return None
        found = np.asarray(f(*inside), np.float64)
        return Known(found, np.asarray(f(*outside), np.float64), spans[0]) if spans else Known(found)

    def _pair(self, name: str, a: Known, b: Known) -> Known | None:
        """The pairs that need not be written out: comparisons, outer sums, intersections and unions of intervals."""
        if a.span is b.span is not None:
            return None
        plain = a.outside is None and b.outside is None
        if name in COMPARISONS:
            for x, y, how in ((a, b, name), (b, a, MIRRORED[name])):
                if x.outside is not None and x.span is None and y.outside is None and y.inside.size == 1:
                    return _rows(how, x.inside - y.inside, -x.outside)
            return _rows(name, a.inside, b.inside) if plain else None
        if (
            name in ("add", "sub")
            and plain
            and _size((a.inside, b.inside)) > max(a.inside.size, b.inside.size)
            and (np.isfinite(a.inside).all() and np.isfinite(b.inside).all())
        ):
            return Known(a.inside, b.inside if name == "add" else -b.inside)
        if not isinstance(a.span, Interval) or not isinstance(b.span, Interval) or a.span[:2] != b.span[:2]:
            return None
        if name == "or":
            no_a, no_b = self.apply("not", a), self.apply("not", b)
            both = None if no_a is None or no_b is None else self._pair("and", no_a, no_b)
            return None if both is None else self.apply("not", both)
        if name not in ABSORBING:
            return None
        left, right = (_absorbing_outside(k, ABSORBING[name]) for k in (a, b))
        if left is None or right is None:
            return None
        first = np.maximum(left[1].first, right[1].first)
        stop = np.maximum(first, np.minimum(left[1].stop, right[1].stop))
        inside = ARITHMETIC[name](left[0].inside, right[0].inside)
        return Known(inside, left[0].outside, Interval(*a.span[:2], first, stop))

    def _cut(self, which: Known, a: Known, b: Known) -> Known | None:
        """A select of which one case is all 0 is a product: tril(triu(x))."""
        for case, other in ((a, b), (b, a)):
            if case.outside is None and (case.inside == 0).all() and None not in (which.span, other.span):
                kept = which if case is a else self.apply("not", which)
                return None if kept is None else self._pair("mul", other, kept)
        return None
