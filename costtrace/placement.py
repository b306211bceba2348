"""A program and a plan for one mesh axis -> the program of one chip: local shapes, and the collectives it needs.

The plan says which classes of dimensions are cut. Every op keeps the cut of its operands where its labels allow; where
they disagree, an operand is moved by the collective that does it, and a sum of parts is reduced. The result is a Trace
like any other, so that counts, bytes, memory and collectives by scope come from the one fold. One axis at a time: the
next axis is cut in the trace of the one before.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from costtrace.classes import Classes, Place
from costtrace.core import Carry, Op, Trace, Value
from costtrace.dimension import Dims
from costtrace.layout import CASTS, Layout, Plan, is_float
from costtrace.local import PARAMETERS
from costtrace.transfer import Partial, Transfers


def cut(trace: Trace, classes: Classes, plan: Plan, axis: str, n: int) -> tuple[Trace, list[str]]:
    """The trace of one of `n` chips, and what could not be cut as planned, one line each."""
    if n == 1:
        return trace, []
    placer = _Placer(trace, classes, plan, axis, n)
    return placer.run(), list(dict.fromkeys(placer.problems))


def cuts(trace: Trace, classes: Classes, plan: Plan, n: int) -> list[int | None]:
    """The dimension along which each input is cut."""
    lying = Layout(trace, classes, plan, "", n)
    return [lying.given(v) for v in trace.inputs]


class _Placer(Transfers):
    def __init__(self, trace: Trace, classes: Classes, plan: Plan, axis: str, n: int) -> None:
        super().__init__(trace, classes, plan, axis, n)
        self.problems: list[str] = []
        self.made: list[Op | None] = []
        self.away: set[Value] = set()
        self.constants: dict[Value, bool] = {}

    # -- the program

    def run(self) -> Trace:
        trace = self.trace
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
            out.ops += [*self.before.get(i, ()), *([made] if made else []), *self.after.get(i, ())]
        for i, each in enumerate(out.ops):
            each.index = i
        return out

    def op(self, op: Op, found: Dims) -> Op | None:
        if (done := self.stays_partial(op)) is not None:
            return done[0]
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
        grouped = self.plan.dispatch and label is not None and self.grouped(op, found)
        inputs = []
        for k, v in enumerate(op.inputs):
            labels = found.inputs[k] if k < len(found.inputs) else ()
            want: int | str | None = labels.index(label) if label is not None and label in labels else None
            if grouped and found.beside in labels:
                want = labels.index(found.beside)
            if want is None and ring and self.at(v)[0] is not None and v not in self.weights:
                want = "ring"
            inputs.append(self.relaid(v, want, op))
        if label in found.halo:
            inputs[0] = self.halo(op, inputs[0], found.inputs[0].index(label), found.halo[label])
        if self.plan.dispatch and label is not None:
            self.sent_to_groups(op, found, label, inputs, grouped)
        outputs = []
        for v, labels in zip(op.outputs, found.outputs, strict=True):
            d = labels.index(label) if label is not None and label in labels else None
            if grouped and found.beside in labels:
                d = labels.index(found.beside)
            self.env[v] = d, self.fresh(v, d)
            outputs.append(self.env[v][1])
        made = Op(op.primitive, tuple(inputs), tuple(outputs), self.params(op, inputs, outputs), op.frame, op.phase,
                  op.source)  # fmt: skip
        made.priced = op.priced
        if label is not None and label in found.summed and not grouped:
            self.partial.update((v, Partial(op, v)) for v in op.outputs)
        elif self.plan.attention == "heads" and op.primitive == "dot_general" and self.contracts_cut(op, found, label):
            for v in op.outputs:
                self.settle(op, v)
        elif op.outputs and op.outputs[0] in self.late:
            self.settle(op, op.outputs[0])
        return made

    # -- rows that go to the chip with their group (their expert) and back; groups are taken as equally full

    def grouped(self, op: Op, found: Dims) -> bool:
        """True where each chip has some of the groups of a ragged product, or of the rows of its results."""
        if found.beside is None:
            return False
        sides = zip(op.inputs[:2], found.inputs, strict=False)
        return any(d is not None and labels[d] == found.beside for v, labels in sides for d in (self.at(v)[0],)) \
            or any(self.is_away(v) for v in op.inputs)  # fmt: skip

    def is_away(self, v: Value) -> bool:
        while v.edge is not None and v not in self.away:
            v = v.edge.source
        return v in self.away

    def sent_to_groups(self, op: Op, found: Dims, label: int, inputs: list[Value], grouped: bool) -> None:
        """Rows of the operands moved to where the op needs them: home for a routing gather or scatter, else with the
        others that are away."""
        cut = [k for k, labels in enumerate(found.inputs) if label in labels and op.inputs[k].size > 1]
        back = op.index in self.classes.routed
        away = not back and (grouped or any(self.is_away(op.inputs[k]) for k in cut))
        for k in cut:
            v = op.inputs[k]
            if self.is_away(v) != away and v.kind != "literal" and self.at(v)[0] is not None:
                if (v, "group") not in self.moved and (kept := self.kept(v, "group")):
                    self.moved[v, "group"] = kept
                if (v, "group") not in self.moved:
                    out = Value(inputs[k].shape, v.dtype, v.bits, frame=op.frame, name=v.name)
                    self.collective(self.now, "all_to_all", inputs[k], out, op.frame, split_axis=0, concat_axis=0,
                                    tiled=True)  # fmt: skip
                    self.moved[v, "group"] = out
                inputs[k] = self.moved[v, "group"]
        if away:
            self.away.update(v for v, labels in zip(op.outputs, found.outputs, strict=True) if label in labels)

    def chosen(self, op: Op, found: Dims, cuts: dict[int, Place]) -> int | None:
        """The label that the op is cut along."""
        held = {label for labels in found.outputs for label in labels}
        if len(cuts) > 1 and op.primitive == "dot_general" and self.plan.attention == "heads":
            batch = [x for x in found.inputs[0] if x in found.inputs[1] and x not in found.summed]
            sizes = {x: op.inputs[0].shape[found.inputs[0].index(x)] for x in batch}
            able = [x for x in batch if x is not None and sizes[x] >= self.n and x not in self.tokens(op, found)]
            if able:
                best = max(able, key=lambda x: (x in cuts, sizes[x] % self.n == 0, sizes[x]))
                if sizes[best] % self.n:
                    pad = -(-sizes[best] // self.n) * self.n / sizes[best] - 1
                    self.problems.append(f"{op.scope}: {sizes[best]} heads over {self.n} chips: {pad:.1%} idle")
                return best
            most = max(sizes.values(), default=1)
            self.problems.append(f"{op.scope}: {most} heads for {self.n} chips: keys and values are gathered")
        if cuts:
            k = self.rank.get
            of = {x for v, labels in zip(op.inputs, found.inputs, strict=False) if v in self.weights for x in labels}
            order = {x: (x not in held, x not in of, k(cuts[x], -1)) for x in cuts}
            good = [x for x in cuts if order[x] == min(order.values())]
            return good[0] if len(good) == 1 else min(good, key=lambda x: -self.summed_at(op, found, x))
        for v, labels in zip(op.outputs, found.outputs, strict=True):
            d = self.home(v)
            born = op.inputs and all(self.is_constant(x) for x in op.inputs)
            if d is not None and labels[d] is not None and is_float(v) and not born and not self.by_weights(op):
                return labels[d]
        return None

    def summed_at(self, op: Op, found: Dims, label: int) -> int:
        """The first op that sums over the label's dimension of the result: a softmax sums over keys, not queries."""
        left = [(v, d) for v, labels in zip(op.outputs, found.outputs, strict=True) for d, x in enumerate(labels)
                if x == label]  # fmt: skip
        seen, first = set(left), len(self.trace.ops)
        while left:
            v, d = left.pop()
            for user in self.users.get(v, []):
                labels = self.classes.dims[user.index]
                for x, some in zip(user.inputs, labels.inputs, strict=False):
                    if x is not v or d >= len(some) or some[d] is None or user.index >= first:
                        continue
                    if some[d] in labels.summed:
                        first = user.index
                    after = [(y, e) for y, out in zip(user.outputs, labels.outputs, strict=True)
                             for e, z in enumerate(out) if z == some[d]]  # fmt: skip
                    left += [at for at in after if at not in seen]
                    seen.update(after)
        return first

    def is_constant(self, v: Value) -> bool:
        """Made of numbers in the program: each chip makes the part that it needs."""
        if v not in self.constants:
            maker = self.maker.get(v)
            inputs = self.trace.ops[maker].inputs if maker is not None else None
            known = not v.shape or v.kind == "literal" if inputs is None else all(map(self.is_constant, inputs))
            self.constants[v] = known
        return self.constants[v]

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

    def params(self, op: Op, inputs: list[Value], outputs: list[Value]) -> Any:
        """The op's parameters for local shapes."""
        changes = PARAMETERS.get(op.primitive)
        if changes is None or all(a.shape == b.shape for a, b in zip((*op.inputs, *op.outputs), (*inputs, *outputs),
                                                                      strict=True)):  # fmt: skip
            return op.params
        return {**op.params, **changes(op, inputs, outputs)}


__all__ = ["cut", "cuts"]
