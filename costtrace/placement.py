"""A program and a plan for one mesh axis -> the program of one chip: local shapes, and the collectives it needs.

The plan says which classes of dimensions are cut. Every op keeps the cut of its operands where its labels allow; where
they disagree, an operand is moved by the collective that does it, and a sum of parts is reduced. The result is a Trace
like any other, so that counts, bytes, memory and collectives by scope come from the one fold. One axis at a time: the
next axis is cut in the trace of the one before.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from costtrace.core import Carry, Edge, Frame, Op, Trace, Value
from costtrace.dimension import Classes, Dims, Place
from costtrace.local import PARAMETERS

CASTS = ("convert_element_type", "reduce_precision", "copy", "copy_p", "stop_gradient", "reshape", "squeeze",
         "expand_dims", "transpose", "slice", "split", "all_gather")  # fmt: skip
SEEN_THROUGH = ("slice", "squeeze", "reshape", "expand_dims", "convert_element_type")
MAXIMA = ("reduce_max", "reduce_min", "reduce_and", "reduce_or")


@dataclass(frozen=True, slots=True)
class Plan:
    """classes: dimensions that are cut, the first that a value has. whole: classes cut only in floating-point values
    (tokens: masks and indices stay whole). weights: parameters cut along a dimension of their own, gathered where they
    are used. attention: "heads" moves queries, keys and values to whole sequences of some heads and back (all-to-all),
    "ring" passes keys and values round, "" gathers them. scatter: sums go to a cut dimension where there is one.
    """

    classes: tuple[Place, ...] = ()
    whole: frozenset[Place] = frozenset()
    weights: dict[Value, int] = field(default_factory=dict)
    attention: str = ""
    scatter: bool = False


def cut(trace: Trace, classes: Classes, plan: Plan, axis: str, n: int) -> tuple[Trace, list[str]]:
    """The trace of one of `n` chips, and what could not be cut as planned, one line each."""
    if n == 1:
        return trace, []
    placer = _Placer(trace, classes, plan, axis, n)
    return placer.run(), list(dict.fromkeys(placer.problems))


def cuts(trace: Trace, classes: Classes, plan: Plan, n: int) -> list[int | None]:
    """The dimension along which each input is cut."""
    placer = _Placer(trace, classes, plan, "", n)
    return [placer.given(v) for v in trace.inputs]


def is_float(v: Value) -> bool:
    return v.dtype.startswith(("float", "bfloat", "complex"))


class _Placer:
    def __init__(self, trace: Trace, classes: Classes, plan: Plan, axis: str, n: int) -> None:
        self.trace, self.classes, self.plan, self.axis, self.n = trace, classes, plan, axis, n
        self.problems: list[str] = []
        self.env: dict[Value, tuple[int | None, Value]] = {}
        self.moved: dict[tuple[Value, int | str | None], Value] = {}
        self.maker: dict[Value, int] = {v: i for i, op in enumerate(trace.ops) for v in op.outputs}
        self.starts: dict[Value, Carry] = {c.inner: c for c in trace.carries}
        self.before: dict[int, list[Op]] = defaultdict(list)
        self.after: dict[int, list[Op]] = defaultdict(list)
        self.made: list[Op] = []
        self.weights = self._weights()
        shapes = {s for v in trace.inputs if v.weight for s in (v.shape, v.shape[1:]) if s}
        self.parameters = shapes | {s[::-1] for s in shapes}
        self.rank = {root: k for k, root in enumerate(plan.classes)}
        self.units = self._units()

    # -- sizes

    def _units(self) -> dict[Place, int]:
        """The smallest size of each cut class that the axis does not divide: what it is padded in."""
        units: dict[Place, int] = {}
        for root, members in self.classes.places().items():
            if root in self.rank:
                odd = [v.shape[d] for v, d in members if v.shape[d] % self.n and v.shape[d] >= self.n]
                if odd:
                    units[root] = min(odd)
        return units

    def share(self, v: Value, d: int) -> int:
        """One chip's part of a dimension, padded up."""
        size = v.shape[d]
        unit = self.units.get(self.classes.of(v, d), 0)
        if size % self.n and unit and size % unit == 0:
            return size // unit * -(-unit // self.n)
        return -(-size // self.n)

    def local(self, v: Value, d: int | None) -> tuple[int, ...]:
        return tuple(self.share(v, i) if i == d else size for i, size in enumerate(v.shape))

    # -- where values lie

    def home(self, v: Value) -> int | None:
        """The dimension that the plan cuts of a value."""
        best: tuple[int, int] | None = None
        for d, size in enumerate(v.shape):
            if size > 1:
                root = self.classes.of(v, d)
                k = self.rank.get(root)
                if k is not None and (root not in self.plan.whole or is_float(v)) and (best is None or k < best[0]):
                    best = k, d
        return best[1] if best and v.shape[best[1]] >= self.n else None

    def given(self, v: Value) -> int | None:
        """The dimension along which an input is cut."""
        return self.plan.weights.get(v) if v in self.plan.weights else self.home(v)

    def fresh(self, v: Value, d: int | None, **more: Any) -> Value:
        return Value(self.local(v, d), v.dtype, v.bits, v.kind, literal=v.literal, weight=v.weight, name=v.name,
                     frame=v.frame, donated=v.donated, **more)  # fmt: skip

    def at(self, v: Value) -> tuple[int | None, Value]:
        """(the dimension that is cut, the local value)."""
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

    def _weights(self) -> set[Value]:
        """Values that are parameters, through views and casts."""
        out = {v for v in self.trace.inputs if v.weight}

        def known(v: Value) -> bool:
            while v.edge is not None and v.edge.kind == "row":
                v = v.edge.source
            return v in out

        for op in self.trace.ops:
            if op.inputs and op.primitive in CASTS and known(op.inputs[0]):
                out.update(op.outputs)
        out.update(v for op in self.trace.ops for v in op.inputs if known(v))
        return out

    # -- moving values

    def relaid(self, v: Value, want: int | str | None, op: Op | None) -> Value:
        """`v` cut along `want` (None: whole; "ring": whole, passed round)."""
        have, local = self.at(v)
        if have == want or (have is None and want == "ring"):
            return local
        key = (v, want)
        if key not in self.moved:
            self.moved[key] = self._move(v, local, have, want, op)
        return self.moved[key]

    def _move(self, v: Value, local: Value, have: int | None, want: int | str | None, op: Op | None) -> Value:
        maker = self.trace.ops[self.maker[v]] if v in self.maker else None
        if want is None and op is not None and maker is not None and maker.primitive in SEEN_THROUGH:
            source = maker.inputs[0]
            if source.kind != "literal" and _loop(source.frame) is not _loop(op.frame):  # moved once, not in each trip
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
        if op is not None and (v.kind == "carry" or _loop(v.frame) is _loop(op.frame)):
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

    # -- the program

    def run(self) -> Trace:
        trace = self.trace
        self.now: list[Op] = []
        for v in trace.inputs:
            d = self.given(v)
            self.env[v] = d, self.fresh(v, d)
        for i, op in enumerate(trace.ops):
            self.now = self.before[i]
            self.made.append(self.op(op, self.classes.dims[i]))
        self.now = []
        carries = []
        for c in trace.carries:
            d, inner = self.at(c.inner)
            start = self.relaid(c.start, d, None)
            maker = self.maker.get(c.end)
            self.now = self.after[maker] if maker is not None else self.before[-1]
            carries.append(Carry(c.loop, start, inner, self.relaid(c.end, d, self.trace.ops[maker] if maker else None)))
        ends = [[self.at(v)[1] for v in side] for side in (trace.inputs, trace.outputs)]
        out = replace(trace, ops=[], inputs=ends[0], outputs=ends[1], carries=carries, constants={})
        out.ops.extend(self.before.get(-1, ()))
        for i, made in enumerate(self.made):
            out.ops += [*self.before.get(i, ()), made, *self.after.get(i, ())]
        for i, each in enumerate(out.ops):
            each.index = i
        return out

    def op(self, op: Op, found: Dims) -> Op:
        cuts: dict[int, Place] = {}  # label -> the class it is of
        for v, labels in zip(op.inputs, found.inputs, strict=False):
            d = self.at(v)[0]
            used = self.plan.weights and v in self.weights and op.primitive not in CASTS
            if d is None or (
                used and op.outputs[0].shape not in self.parameters
            ):  # an optimizer's update stays in parts
                continue
            label = labels[d]
            if label is not None:
                cuts.setdefault(label, self.classes.of(v, d))
        label = self.chosen(op, found, cuts)
        if label is not None and not self.takes(op, found, label):
            self.problems.append(
                f"{op.scope or '.'}: {op.primitive} of {self.axis}={self.n} is done whole on each chip"
            )
            label = None
        ring = self.plan.attention == "ring" and op.primitive == "dot_general"
        inputs = []
        for k, v in enumerate(op.inputs):
            labels = found.inputs[k] if k < len(found.inputs) else ()
            want: int | str | None = labels.index(label) if label is not None and label in labels else None
            if want is None and ring and self.at(v)[0] is not None and v not in self.weights:
                want = "ring"
            inputs.append(self.relaid(v, want, op))
        if label in found.halo:
            inputs[0] = self.halo(op, inputs[0], found.inputs[0].index(label), found.halo[label])
        outputs = []
        for v, labels in zip(op.outputs, found.outputs, strict=True):
            d = labels.index(label) if label is not None and label in labels else None
            self.env[v] = d, self.fresh(v, d)
            outputs.append(self.env[v][1])
        made = Op(op.primitive, tuple(inputs), tuple(outputs), self.params(op, inputs, outputs), op.frame, op.phase,
                  op.source)  # fmt: skip
        made.priced = op.priced
        if label is not None and label in found.summed:
            for v in op.outputs:
                self.reduce(op, v)
        elif self.plan.attention == "heads" and op.primitive == "dot_general" and self.contracts_cut(op, found, label):
            for v in op.outputs:
                self.settle(op, v)
        return made

    def chosen(self, op: Op, found: Dims, cuts: dict[int, Place]) -> int | None:
        """The label that the op is cut along."""
        held = {label for labels in found.outputs for label in labels}
        if len(cuts) > 1 and op.primitive == "dot_general" and self.plan.attention == "heads":
            batch = [x for x in found.inputs[0] if x in found.inputs[1] and x not in found.summed]
            sizes = {x: op.inputs[0].shape[found.inputs[0].index(x)] for x in batch}
            good = [x for x in batch if x is not None and sizes[x] >= self.n and x not in self.tokens(op, found)]
            if good:
                best = max(good, key=lambda x: (sizes[x] % self.n == 0, sizes[x]))
                if sizes[best] % self.n:
                    pad = -(-sizes[best] // self.n) * self.n / sizes[best] - 1
                    self.problems.append(f"{op.scope}: {sizes[best]} heads over {self.n} chips: {pad:.1%} idle")
                return best
            most = max(sizes.values(), default=1)
            self.problems.append(f"{op.scope}: {most} heads for {self.n} chips: keys and values are gathered")
        if cuts:
            k = self.rank.get
            of = {x for v, labels in zip(op.inputs, found.inputs, strict=False) if v in self.weights for x in labels}
            return min(cuts, key=lambda x: (x not in held, x not in of, k(cuts[x], -1), list(cuts).index(x)))
        for v, labels in zip(op.outputs, found.outputs, strict=True):
            d = self.home(v)
            born = op.inputs and not any(x.shape for x in op.inputs)
            if d is not None and labels[d] is not None and is_float(v) and not born and not self.by_weights(op):
                return labels[d]
        return None

    def by_weights(self, op: Op) -> bool:
        return bool(op.inputs) and all(v in self.weights or v.kind == "literal" for v in op.inputs)

    def tokens(self, op: Op, found: Dims) -> set[int | None]:
        return {x for v, labels in zip(op.inputs, found.inputs, strict=False) for d, x in enumerate(labels)
                if v.shape[d] > 1 and self.classes.of(v, d) in self.rank}  # fmt: skip

    def contracts_cut(self, op: Op, found: Dims, label: int | None) -> bool:
        return label is not None and bool(self.tokens(op, found) & found.summed)

    def takes(self, op: Op, found: Dims, label: int) -> bool:
        """True where every dimension with the label has a part for each chip, and a reshape's parts are whole."""
        sides = (*zip(op.inputs, found.inputs, strict=False), *zip(op.outputs, found.outputs, strict=True))
        if not all(v.shape[d] >= self.n for v, labels in sides for d, x in enumerate(labels) if x == label):
            return False
        if op.primitive not in ("reshape", "squeeze", "expand_dims"):
            return True
        ends = ((op.inputs[0], found.inputs[0]), (op.outputs[0], found.outputs[0]))
        a, b = (math.prod(self.local(v, labels.index(label) if label in labels else None)) for v, labels in ends)
        return a == b

    def reduce(self, op: Op, v: Value) -> None:
        """The parts of a sum become the sum: whole everywhere, or each chip's part of it."""
        part = self.env[v][1]
        d = self.home(v) if self.plan.scatter else None
        if d is None and self.plan.weights and v.shape and op.primitive not in MAXIMA:
            d = gradient(v, self.n) if v.shape in self.parameters else None
        out = Value(self.local(v, d), v.dtype, v.bits, frame=op.frame)
        into = self.after[self.maker[v]]
        if d is None:
            self.collective(into, "pmax" if op.primitive in MAXIMA else "psum", part, out, op.frame)
        else:
            self.collective(into, "reduce_scatter", part, out, op.frame, scatter_dimension=d, tiled=True)
        self.env[v] = d, out

    def settle(self, op: Op, v: Value) -> None:
        """Attention's result goes back to its tokens."""
        d, local = self.env[v]
        home = self.home(v)
        if home is None or d is None or home == d:
            return
        out = Value(self.local(v, home), v.dtype, v.bits, frame=op.frame)
        into = self.after[self.maker[v]]
        self.collective(into, "all_to_all", local, out, op.frame, split_axis=home, concat_axis=d, tiled=True)
        self.env[v] = home, out

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

    def params(self, op: Op, inputs: list[Value], outputs: list[Value]) -> Any:
        """The op's parameters for local shapes."""
        changes = PARAMETERS.get(op.primitive)
        if changes is None or all(a.shape == b.shape for a, b in zip((*op.inputs, *op.outputs), (*inputs, *outputs),
                                                                      strict=True)):  # fmt: skip
            return op.params
        return {**op.params, **changes(op, inputs, outputs)}


def gradient(v: Value, n: int) -> int | None:
    """The dimension along which a parameter, or its gradient, is kept in parts: the largest that divides."""
    good = [d for d, size in enumerate(v.shape) if size % n == 0]
    return max(good, key=lambda d: (v.shape[d], d)) if good else None


def _loop(frame: Frame | None) -> Frame | None:
    return next((f for f in frame.up() if f.kind == "loop"), None) if frame is not None else None


__all__ = ["Plan", "cut", "gradient", "is_float"]
