"""Where a value's elements really lie: through views, loop edges and in-place updates, down to the arrays that exist.

A root is an array that is written once: an op's result, an input, a constant, or a loop's carry. `Storage.pieces`
takes a value and a region of it to the roots it is made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from costtrace.access import PARTS, UPDATES, VIEWS, place, source, span, updated
from costtrace.core import Carry, Frame, Op, Trace, Value
from costtrace.region import FULL, Axis, Region, Row, Some, axes_of, box, of_axes, shared, volume, without

DOTS = ("dot_general", "ragged_dot_general", "scaled_dot")
"""A transpose that only these read is folded into them."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A region of a root. `lead`: loops whose trips are all seen from outside (a stacked result, the last carry), with
    the trips that are asked for; the region then has these axes in front of the root's own."""

    root: Value
    region: Region
    lead: tuple[Frame, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return (*(loop.trips for loop in self.lead), *self.root.shape)


class Storage:
    """The views, in-place updates and written-out results of one Trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.maker: dict[Value, Op] = {v: op for op in trace.ops for v in op.outputs}
        self.carry: dict[Value, Carry] = {c.inner: c for c in trace.carries}
        self.moved: set[int] = set()  # indices of view ops that do move their data
        self.written: set[Value] = set()  # the results of those that exist, where others of theirs are seen through
        self.in_place: set[int] = set()
        self.same_as_start: set[Value] = set()  # carries that are updated in place from their start on
        self.memo: dict[Value, tuple[Piece, ...]] = {}
        self.ends: dict[Frame, int] = {}
        for op in trace.ops:
            at: Frame | None = op.frame
            while at is not None and self.ends.get(at) != op.index:
                if at.kind == "loop":
                    self.ends[at] = op.index
                at = at.parent
        self._transposes()
        if any(op.primitive in UPDATES for op in trace.ops):
            self._updates()
        self.again: list[Value] = []  # results that another result's array holds already
        self._results()

    def is_view(self, op: Op) -> bool:
        return op.primitive in VIEWS and op.index not in self.moved

    def through(self, op: Op, v: Value) -> bool:
        """Whether the op's result `v` is a view: of a split only those parts move that the program returns."""
        return self.is_view(op) or (op.primitive in PARTS and v not in self.written)

    def made(self, root: Value, nbytes: int, seen: tuple[Value, ...] = ()) -> Iterator[tuple[Frame | None, int]]:
        """(the frame that made it, bytes of it): a carry is its start in a loop's first trip, then what the trip before
        handed on. No frame: an argument or a constant."""
        c = self.carry.get(root) if root not in seen else None
        if c is None:
            yield root.frame if root.kind not in ("input", "const") else None, nbytes
            return
        first = nbytes // max(1, c.loop.trips)
        for v, share in ((c.start, first), (c.end, nbytes - first)):
            roots = list(dict.fromkeys(p.root for p in self.pieces(v) if p.root.kind != "literal"))
            size = sum(r.nbytes for r in roots)
            for r in roots:
                yield from self.made(r, share * r.nbytes // size if size else 0, (*seen, root))

    def pieces(self, value: Value, region: Region = FULL) -> tuple[Piece, ...]:
        """The roots, and the region of each, that hold `region` of `value`."""
        if region is not FULL:
            return tuple(self._pieces(value, region))
        found = self.memo.get(value)
        if found is None:
            found = self.memo[value] = tuple(self._pieces(value, FULL))
        return found

    def _pieces(self, value: Value, asked: Region) -> list[Piece]:
        out: list[Piece] = []
        todo: list[tuple[Value, Region, tuple[Frame, ...]]] = [(value, asked, ())]
        handed: set[Value] = set()
        while todo:
            v, region, lead = todo.pop()
            edge, op = v.edge, self.maker.get(v)
            if edge is not None:
                region, lead = _crossed(v, region, lead)
                todo.append((edge.source, region, lead))
            elif op is None:
                c = self.carry.get(v)
                if v in self.same_as_start and c is not None:
                    todo.append((c.start, region, lead))
                elif c is not None and c.loop in lead:
                    todo += self._before(c, region, lead, handed)
                else:
                    out.append(_invariant(Piece(v, region, lead)))
            elif self.through(op, v):
                k = 0 if len(op.outputs) == 1 else op.outputs.index(v)
                region = _under(lead, region, partial(VIEWS[op.primitive], op, k), source(op, k))
                todo.append((source(op, k), region, lead))
            elif op.index in self.in_place:
                new, old = _updated(op, region, lead)
                out += new
                todo += [(op.inputs[0], r, lead) for r in old]
            else:
                out.append(_invariant(Piece(v, region, lead)))
        return out

    def _before(
        self, c: Carry, region: Region, lead: tuple[Frame, ...], handed: set[Value]
    ) -> list[tuple[Value, Region, tuple[Frame, ...]]]:
        """What a carry holds, seen from outside its loop: its start in the first trip, in the others what the trip
        before handed on. `handed`: carries that only pass values round among themselves."""
        i = lead.index(c.loop)
        if isinstance(region, Some):
            return [(c.start, region, lead[:i] + lead[i + 1 :])]
        axes = axes_of(region, len(lead) + len(c.inner.shape))
        at = axes[i]
        row = at if isinstance(at, tuple) else (0, c.loop.trips)
        rest = (*axes[:i], *axes[i + 1 :])
        outer = lead[:i] + lead[i + 1 :]
        out: list[tuple[Value, Region, tuple[Frame, ...]]] = []
        if row[0] == 0 or c.inner in handed:
            out.append((c.start, of_axes(rest), outer))
        if row[1] > 1 and c.inner not in handed:
            span = (max(row[0] - 1, 0), row[1] - 1)
            out.append((c.end, (*axes[:i], span, *axes[i + 1 :]), lead))
        handed.add(c.inner)
        return out

    # -- transposes, updates, results

    def _transposes(self) -> None:
        """A transpose moves its data unless only dots read it."""
        if not any(op.primitive == "transpose" for op in self.trace.ops):
            return
        other: set[Value] = (
            set(self.trace.outputs) | {c.end for c in self.trace.carries} | {c.start for c in self.trace.carries}
        )
        for op in reversed(self.trace.ops):
            for v in op.outputs + op.inputs:
                edge = v.edge
                while edge is not None:
                    other.add(edge.source)
                    edge = edge.source.edge
            if op.primitive == "transpose" and op.outputs[0] in other:
                self.moved.add(op.index)
            if op.primitive not in VIEWS or any(v in other for v in op.outputs):
                other.update(() if op.primitive in DOTS else op.inputs)

    def _updates(self) -> None:
        """Which updates happen in place: the old array is an intermediate (or donated), made in the same trip, and
        nothing reads it afterwards."""
        last: dict[Value, int] = {}
        after = len(self.trace.ops)

        def use(v: Value, at: int) -> None:
            for p in self.pieces(v):
                last[p.root] = max(last.get(p.root, -1), at)

        for op in self.trace.ops:
            if not self.is_view(op):
                for v in op.inputs:
                    use(v, op.index)
        for v in self.trace.outputs:
            use(v, after)
        for c in self.trace.carries:
            use(c.end, self.ends.get(c.loop, after))
        for v in (v for op in self.trace.ops for v in op.inputs if v.edge is not None):
            use(v, self.maker[v].index if v in self.maker else 0)
        starts: dict[Value, int] = {c.inner: self.ends.get(c.loop, after) for c in self.trace.carries}

        def consumable(v: Value, frame: Frame, at: int) -> bool:
            pieces = self.pieces(v)
            if len(pieces) != 1 or pieces[0].region is not FULL or pieces[0].lead:
                return False
            root = pieces[0].root
            if root.size != v.size or last.get(root, -1) > at:
                return False
            if root.kind == "input":
                return root.donated and frame.loop is None
            return root.kind in ("result", "carry") and root.frame is not None and root.frame.loop is frame.loop

        chosen = []
        for op in self.trace.ops:
            if op.primitive in UPDATES and consumable(op.inputs[0], op.frame, op.index):
                root = self.pieces(op.inputs[0])[0].root
                if all(p.root is not root for v in op.inputs[1:] for p in self.pieces(v)):
                    chosen.append(op.index)
        self.memo.clear()
        self.in_place.update(chosen)
        for c in self.trace.carries:
            tail = self._pieces(c.end, FULL)[-1]
            if (
                tail.root is c.inner
                and c.loop.parent is not None
                and consumable(c.start, c.loop.parent, starts[c.inner])
            ):
                self.same_as_start.add(c.inner)
        self.memo.clear()

    def _results(self) -> None:
        """Results that are views of an input, or parts of an array, are written out by the view's own op; a result that
        an array already holds for another result is written a second time."""
        taken: dict[Value, list[Piece]] = {}
        for i, v in sorted(enumerate(self.trace.outputs), key=lambda each: -each[1].size):
            if v.kind == "input" and v.edge is None:
                continue
            pieces = self._pieces(v, FULL)
            roots = [p.root for p in pieces]
            made = all(r in self.maker or r.kind == "carry" or r.donated for r in roots)
            whole = sum(map(_size, pieces)) == v.size and (
                _rows(pieces[0]) if len(pieces) == 1 else roots[-1].size == v.size
            )
            op = self.maker.get(v)
            if made and whole and not any(_overlap(p, taken.get(p.root, [])) for p in pieces):
                for p in pieces:
                    taken.setdefault(p.root, []).append(p)
            elif made and whole:
                self.again.append(v)
            elif op is not None and op.primitive in VIEWS and v.edge is None:
                self.moved.add(op.index)
                self.written.add(v)
            else:
                self.trace.outputs[i] = self._copy(v)
        self.memo.clear()

    def _copy(self, v: Value) -> Value:
        """A result that is an argument seen through a loop's edge: a copy at the end of the program."""
        out = Value(v.shape, v.dtype, v.bits, frame=self.trace.root)
        op = Op("copy", (v,), (out,), {}, self.trace.root)
        op.index = len(self.trace.ops)
        self.trace.ops.append(op)
        self.maker[out] = op
        self.moved.add(op.index)
        return out


def _updated(op: Op, region: Region, lead: tuple[Frame, ...]) -> tuple[list[Piece], list[Region]]:
    """An in-place update's result: what of `region` it wrote itself, and what is still the old array's."""
    v, trips = op.outputs[0], math.prod(loop.trips for loop in lead)
    changed = place(op)
    if changed is not None and not isinstance(region, Some):
        axes = axes_of(region, len(lead) + len(v.shape))
        front, rest = axes[: len(lead)], axes[len(lead) :]
        new = shared(v.shape, rest, changed)
        if new is False:
            return [], [region]
        written = (*front, *axes_of(new, len(v.shape)))
        left = [(*front, *axes_of(r, len(v.shape)))
                for r in without(v.shape, rest, changed)]  # fmt: skip
        return [Piece(v, of_axes(written), lead)], [of_axes(r) for r in left]
    around = span(op)
    within = region[len(lead) :] if isinstance(region, tuple) else region.within if region is not FULL else None
    if around is not None and within is not None and shared(v.shape, within, around) is False:
        return [], [region]
    asked = (
        region.count if isinstance(region, Some) else min(v.size, volume((*(f.trips for f in lead), *v.shape), region))
    )
    fresh, fixed = min(asked, updated(op) * trips), not isinstance(region, Some) or region.fixed
    piece = Piece(v, Some(fresh, hash((id(op), "new", lead))), lead)
    old = Some(asked - fresh, hash((id(op), "old", lead, region)), 1, fixed, within)
    # two updates at places that nobody knows may meet: what is left may be nothing, and has to be made all the same
    return [piece], [old] if asked > fresh or isinstance(region, Some) else []


def _invariant(p: Piece) -> Piece:
    """A root from outside a loop is the same in all its trips: no axis for them."""
    if not p.lead:
        return p
    around = set(p.root.frame.up()) if p.root.frame is not None and p.root.kind != "input" else set()
    kept = [i for i, loop in enumerate(p.lead) if loop in around]
    if len(kept) == len(p.lead):
        return p
    region = p.region
    if region is not FULL and not isinstance(region, Some):
        axes = (*(region[i] for i in kept), *region[len(p.lead) :])
        region = of_axes(axes)
    return Piece(p.root, region, tuple(p.lead[i] for i in kept))


def _overlap(p: Piece, others: list[Piece]) -> bool:
    """Whether a piece has an element in common with others of its root, or may have."""
    if any(q.lead != p.lead or isinstance(q.region, Some) or isinstance(p.region, Some) for q in others):
        return True
    apart = sum(_size(q) for q in (p, *others))
    return bool(others) and volume(p.shape, [p.region, *(q.region for q in others)]) < apart


def _rows(p: Piece) -> bool:
    """Whether a piece is all of its root, in each trip that is asked for."""
    return p.region is FULL or (isinstance(p.region, tuple) and all(a is None for a in p.region[len(p.lead) :]))


def _size(piece: Piece) -> int:
    return volume(piece.shape, piece.region)


def _under(lead: tuple[Frame, ...], region: Region, f: Callable[[Region], Region], into: Value) -> Region:
    """Applies a view to the root's own axes of a region that has `lead` axes in front."""
    if not lead or isinstance(region, Some):
        return f(region)
    axes = region if region is not FULL else (None,) * (len(lead) + 1)
    front, rest = axes[: len(lead)], axes[len(lead) :]
    inner = f(of_axes(rest))
    if isinstance(inner, Some):
        return inner
    axes = (*front, *(inner if inner is not FULL else (None,) * len(into.shape)))
    return of_axes(axes)


def _crossed(v: Value, region: Region, lead: tuple[Frame, ...]) -> tuple[Region, tuple[Frame, ...]]:
    """The region across the edge of `v`, in its source's axes, and the loops now seen from outside."""
    edge = v.edge
    assert edge is not None
    source = edge.source
    if edge.kind == "part":
        return (region if isinstance(region, Some) else Some(min(v.size, source.size), id(v), fixed=True)), lead
    loop = edge.loop
    assert loop is not None
    if isinstance(region, Some) and edge.kind == "row":  # other elements in every trip
        return Some(region.count, region.token, region.repeat), lead
    if isinstance(region, Some):
        return region, (*lead, loop)
    axes = axes_of(region, len(lead) + len(v.shape))
    front, rest = axes[: len(lead)], axes[len(lead) :]
    if edge.kind == "row":
        if loop in lead:
            i = lead.index(loop)
            row: Axis = front[i]
            lead, front = lead[:i] + lead[i + 1 :], front[:i] + front[i + 1 :]
        else:
            row = Row(loop)
        return box((*(f.trips for f in lead), *source.shape), (*front, row, *rest)), lead
    if edge.kind == "stack":  # the first of the value's own axes is the trip
        return box((*(f.trips for f in lead), loop.trips, *source.shape), axes), (*lead, loop)
    trip = (loop.trips - 1, loop.trips)
    return box((*(f.trips for f in lead), loop.trips, *source.shape), (*front, trip, *rest)), (*lead, loop)
