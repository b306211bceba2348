"""How values get where an op needs them: the collectives between two placements, and sums that chips hold in parts.

A value is cut along one dimension or whole. Moving it from one placement to another is one collective, done once where
it can be and not in each trip of a loop. What an op needs, placement.py says.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from costtrace.classes import Classes
from costtrace.core import Carry, Edge, Frame, Op, Trace, Value
from costtrace.layout import Layout, Plan, gradient, is_float

SEEN_THROUGH = ("slice", "squeeze", "reshape", "expand_dims", "convert_element_type")
MAXIMA = ("reduce_max", "reduce_min", "reduce_and", "reduce_or")
ADDS = ("add", "add_any")
LINEAR = ("transpose", "reshape", "convert_element_type")


@dataclass(frozen=True, slots=True)
class Partial:
    """A sum of which each chip has a part: `value`, made by `op`; `rest`, which no chip has in parts, is added once by
    `join` when the parts are summed."""

    op: Op
    value: Value
    rest: Value | None = None
    join: Op | None = None


class Transfers(Layout):
    def __init__(self, trace: Trace, classes: Classes, plan: Plan, axis: str, n: int) -> None:
        super().__init__(trace, classes, plan, axis, n)
        self.env: dict[Value, tuple[int | None, Value]] = {}
        self.maker: dict[Value, int] = {v: i for i, op in enumerate(trace.ops) for v in op.outputs}
        self.starts: dict[Value, Carry] = {c.inner: c for c in trace.carries}
        self.moved: dict[tuple[Value, int | str | None], Value] = {}
        self.before: dict[int, list[Op]] = defaultdict(list)
        self.after: dict[int, list[Op]] = defaultdict(list)
        self.now: list[Op] = []
        self.late: set[Value] = set()
        self.partial: dict[Value, Partial] = {}
        self.users: dict[Value, list[Op]] = defaultdict(list)
        for op in trace.ops:
            for v in op.inputs:
                self.users[v].append(op)
        self.read_outside = {*trace.outputs, *(c.end for c in trace.carries)}
        for v in (*trace.outputs, *(c.end for c in trace.carries), *(v for op in trace.ops for v in op.inputs)):
            while v.edge is not None:
                v = v.edge.source
                self.read_outside.add(v)

    def at(self, v: Value) -> tuple[int | None, Value]:
        """(the dimension that is cut, the local value); parts of a sum are summed first."""
        if v in self.partial:
            self.summed(v)
        found = self.env.get(v)
        if found is None:
            found = self.env[v] = self._at(v)
        return found

    def _at(self, v: Value) -> tuple[int | None, Value]:
        edge = v.edge
        if edge is not None and edge.kind in ("row", "stack", "last"):
            d, source = self.at(edge.source)
            if edge.kind == "row" and d == 0:
                source, d = self.relaid(edge.source, None, None), None
            shift = {"row": -1, "stack": 1}.get(edge.kind, 0)
            d = None if d is None else d + shift
            return d, self.fresh(v, d, edge=Edge(edge.kind, source, edge.loop))
        if v.kind == "carry" and v in self.starts:
            start = self.starts[v].start
            d = self.at(start)[0]
            d = self.home(v) if d is None else d
            return d, self.fresh(v, d)
        if v.kind == "literal" or not v.shape:
            return None, v
        return None, self.fresh(v, None, edge=edge) if edge is None else v

    def relaid(self, v: Value, want: int | str | None, op: Op | None) -> Value:
        """`v` cut along `want` (None: whole; "ring": whole, passed round)."""
        have, local = self.at(v)
        if have == want or (have is None and want == "ring"):
            return local
        key = (v, f"ring {op.phase}" if want == "ring" and op else want)  # the backward passes keys and values again
        if key not in self.moved:
            self.moved[key] = self.kept(v, want) or self._move(v, local, have, want, op)
        return self.moved[key]

    def kept(self, v: Value, want: int | str | None) -> Value | None:
        """What a forward loop moved by all-to-all, a backward one need not move again: it keeps what came out. Gathered
        values are larger: they are gathered again, as Megatron and FSDP do."""
        stack = v.edge.source if v.edge is not None and v.edge.kind == "row" else None
        if v.edge is None or stack is None or stack.edge is None or stack.edge.kind != "stack":
            return None
        source = stack.edge.source
        moved = self.moved.get((source, want))
        if moved is None or self.at(source)[0] is None or moved.size > self.at(source)[1].size:
            return None
        whole = Value((stack.shape[0], *moved.shape), v.dtype, v.bits, frame=stack.frame,
                      edge=Edge("stack", moved, stack.edge.loop))  # fmt: skip
        return Value(moved.shape, v.dtype, v.bits, frame=v.frame, name=v.name, edge=Edge("row", whole, v.edge.loop))

    def _move(self, v: Value, local: Value, have: int | None, want: int | str | None, op: Op | None) -> Value:
        maker = self.trace.ops[self.maker[v]] if v in self.maker else None
        if want is None and op is not None and maker is not None and maker.primitive in SEEN_THROUGH:
            source = maker.inputs[0]
            if source.kind != "literal" and _loop(source) is not op.frame.loop:  # moved once, not in each trip
                made = Value(v.shape, v.dtype, v.bits, frame=op.frame)
                whole = self.relaid(source, None, op)
                self.now.append(Op(maker.primitive, (whole,), (made,), maker.params, op.frame, op.phase))
                return made
        frame, into = self._place(v, op)
        to = want if isinstance(want, int) else None
        out = Value(self.local(v, to), v.dtype, v.bits, frame=frame, name=v.name)
        if have is None:
            assert to is not None
            start = (0,) * len(v.shape)
            into.append(Op("slice", (local,), (out,), {"start_indices": start, "limit_indices": out.shape,
                                                           "strides": None}, frame))  # fmt: skip
        elif want == "ring":
            self.hop(into, local, frame, self.n - 1)
            shown = {"shape": out.shape, "broadcast_dimensions": tuple(range(len(out.shape))), "sharding": None}
            into.append(Op("broadcast_in_dim", (local,), (out,), shown, frame))
        elif to is None:
            self.collective(into, "all_gather", local, out, frame, all_gather_dimension=have, tiled=True)
        else:
            self.collective(into, "all_to_all", local, out, frame, split_axis=to, concat_axis=have, tiled=True)
        return out

    def hop(self, into: list[Op], local: Value, frame: Frame, times: int = 1) -> Value:
        """`local` handed to the neighbour, `times` in a row."""
        inner = Frame(frame, "loop", trips=times, phase=frame.phase) if times > 1 else frame
        out = Value(local.shape, local.dtype, local.bits, frame=inner)
        ring = tuple((i, (i + 1) % self.n) for i in range(self.n))
        self.collective(into, "ppermute", local, out, inner, perm=ring)
        return out

    def _place(self, v: Value, op: Op | None) -> tuple[Frame, list[Op]]:
        """Where a move of `v` for `op` stands: before it, or once, where `v` is made, if that is outside its loop."""
        maker = self.maker.get(v)
        if op is not None and (v.kind == "carry" or _loop(v) is op.frame.loop):
            return op.frame, self.now
        if maker is not None:
            return self.trace.ops[maker].frame, self.after[maker]
        if op is not None and v.edge is not None:
            return op.frame, self.now
        return self.trace.root, self.before[-1]

    def collective(self, into: list[Op], name: str, x: Value, out: Value, frame: Frame, **params: Any) -> None:
        known = {"axis_name": (self.axis,), "axis_sizes": {self.axis: self.n}, "axis_size": self.n,
                 "axis_index_groups": None, **params}  # fmt: skip
        if name in ("psum", "pmax"):
            known["axes"] = (self.axis,)
        into.append(Op(name, (x,), (out,), known, frame, frame.phase))

    # -- sums in parts

    def stays_partial(self, op: Op) -> tuple[Op | None] | None:
        """A sum of sums in parts, or a cast of one, is in parts too: it is reduced once, where something else reads it.
        (the op that a chip does for it now, if any), or None where the parts have to be summed first."""
        parts = [v for v in op.inputs if self.waits(v, op)]
        out = op.outputs[0] if op.outputs else None
        if not parts or out is None or op.phase == "recompute":
            return None
        first = self.partial[parts[0]]
        if op.primitive in LINEAR:
            narrow = first.rest is None and out.bits <= parts[0].bits
            return self.joined(op, out, [first], None, None) if narrow else None
        if op.primitive not in ADDS:
            return None
        found = [self.partial[v] for v in parts]
        others = [v for v in op.inputs if v not in parts]
        rests = [each for each in found if each.rest is not None]
        if len(rests) + len(others) > 1 or (others and others[0].shape != out.shape):
            return None
        if others:  # worth it where more parts are to come
            users = self.users.get(out, [])
            if len(users) != 1 or users[0].primitive not in ADDS or out in self.read_outside:
                return None
            self.partial.pop(parts[0])
            self.partial[out] = Partial(first.op, first.value, others[0], op)
            return (None,)
        rest, join = (rests[0].rest, rests[0].join) if rests else (None, None)
        return self.joined(op, out, found, rest, join)

    def joined(self, op: Op, out: Value, found: list[Partial], rest: Value | None, join: Op | None) -> tuple[Op]:
        """The op on the parts themselves."""
        for v in op.inputs:
            self.partial.pop(v, None)
        value = out
        if rest is not None:
            value = Value(out.shape, out.dtype, out.bits, frame=op.frame)
            self.maker[value] = self.maker[out]
        self.env[value] = None, self.fresh(value, None)
        self.partial[out] = Partial(op, value, rest, join)
        given = tuple(self.env[each.value][1] for each in found)
        made = Op(op.primitive, given, (self.env[value][1],), op.params, op.frame, op.phase, op.source)
        if out in self.read_outside:
            self.summed(out)
        return (made,)

    def waits(self, v: Value, op: Op) -> bool:
        """True where a sum in parts need not be summed for `op`, its only reader."""
        part = self.partial.get(v)
        return part is not None and part.op.primitive not in MAXIMA and len(self.users[v]) == 1 \
            and v not in self.read_outside and _loop(v) is op.frame.loop  # fmt: skip

    def summed(self, v: Value) -> None:
        """The parts become the sum, and what is added once is added."""
        part = self.partial.pop(v)
        self.reduce(part.op, part.value, v)
        if part.rest is None or part.join is None:
            return
        i, before = self.maker[v], self.now
        self.now = self.after[i]
        d = self.at(part.rest)[0]
        d = self.env[part.value][0] if d is None else d
        given = tuple(self.relaid(x, d, part.join) for x in (part.rest, part.value))
        self.env[v] = d, self.fresh(v, d)
        self.now.append(Op(part.join.primitive, given, (self.env[v][1],), part.join.params, part.join.frame,
                           part.join.phase, part.join.source))  # fmt: skip
        self.now = before

    def reduce(self, op: Op, v: Value, like: Value) -> None:
        """The parts of a sum become the sum: whole everywhere, or each chip's part of it."""
        part = self.env[v][1]
        d = self.home(like) if self.plan.scatter else None
        if d is None and self.plan.weights and is_float(v) and v.shape and op.primitive not in MAXIMA:
            d = gradient(v, self.n) if v.shape in self.parameters else None
        out = Value(self.local(v, d), v.dtype, v.bits, frame=op.frame)
        into = self.after[self.maker[v]]
        if d is None:
            self.collective(into, "pmax" if op.primitive in MAXIMA else "psum", part, out, op.frame)
        else:
            self.collective(into, "reduce_scatter", part, out, op.frame, scatter_dimension=d, tiled=True)
        self.env[v] = d, out

    def settle(self, op: Op, v: Value) -> None:
        """Attention's result goes back to its tokens; where it is only cast to something narrower, after that."""
        d, local = self.env[v]
        home = self.home(v)
        if home is None or d is None or home == d:
            return
        if cast := self.narrowed(v):
            self.late.add(cast)
            return
        out = Value(self.local(v, home), v.dtype, v.bits, frame=op.frame)
        into = self.after[self.maker[v]]
        self.collective(into, "all_to_all", local, out, op.frame, split_axis=home, concat_axis=d, tiled=True)
        self.env[v] = home, out

    def narrowed(self, v: Value) -> Value | None:
        """The cast of a value that nothing else reads, where it takes fewer bytes; a transpose may lie between."""
        while len(users := self.users.get(v, [])) == 1 and v not in self.read_outside:
            (op,), v = users, users[0].outputs[0]
            if op.primitive == "convert_element_type":
                return v if v.bits < op.inputs[0].bits else None
            if op.primitive not in ("transpose", "reshape"):
                return None
        return None

    def halo(self, op: Op, x: Value, d: int, rows: int) -> Value:
        """The neighbours' rows beside a chip's own."""
        edge = Value((*x.shape[:d], rows, *x.shape[d + 1 :]), x.dtype, x.bits, frame=op.frame)
        starts = {"start_indices": (0,) * len(x.shape), "limit_indices": edge.shape, "strides": None}
        if rows <= x.shape[d]:
            self.now.append(Op("slice", (x,), (edge,), starts, op.frame))
        got = self.hop(self.now, edge if rows <= x.shape[d] else x, op.frame)
        out = Value((*x.shape[:d], x.shape[d] + got.shape[d], *x.shape[d + 1 :]), x.dtype, x.bits, frame=op.frame)
        self.now.append(Op("concatenate", (x, got), (out,), {"dimension": d}, op.frame))
        return out


def _loop(v: Value) -> Frame | None:
    """The loop that a value is made in."""
    return None if v.frame is None else v.frame.loop
