"""Dimensions of a program's values that are one axis: the labels of every op, joined. No chips here."""

from __future__ import annotations

from costtrace import routing
from costtrace.core import Trace, Value
from costtrace.dimension import of

Place = tuple[Value, int]


class Classes:
    """Dimensions of a program's values that are one axis, joined through every op, loop edge and carry."""

    def __init__(self, trace: Trace) -> None:
        self.parent: dict[Place, Place] = {}
        self.routed = routing.routed(trace)
        self.dims = [of(op, i in self.routed) for i, op in enumerate(trace.ops)]
        self.values: dict[Value, None] = dict.fromkeys(trace.inputs)
        for op, found in zip(trace.ops, self.dims, strict=True):
            seen: dict[int, Place] = {}
            pairs = (*zip(op.inputs, found.inputs, strict=False), *zip(op.outputs, found.outputs, strict=True))
            for v, labels in pairs:
                self._value(v)
                for d, label in enumerate(labels):
                    if label is not None and v.shape[d] > 1:
                        self._join(seen.setdefault(label, (v, d)), (v, d))
        for c in trace.carries:
            for v in (c.start, c.inner, c.end):
                self._value(v)
                for d, n in enumerate(v.shape):
                    if n > 1:
                        self._join((c.inner, d), (v, d))
        for v in trace.outputs:
            self._value(v)

    def _value(self, v: Value) -> None:
        while v not in self.values:
            self.values[v] = None
            if v.edge is None:
                return
            shift = {"row": 1, "stack": -1}.get(v.edge.kind, 0)
            if v.edge.kind != "part":
                for d, n in enumerate(v.shape):
                    if n > 1 and d + shift >= 0:
                        self._join((v, d), (v.edge.source, d + shift))
            v = v.edge.source

    def root(self, at: Place) -> Place:
        """One place that stands for the whole class."""
        while (up := self.parent.get(at, at)) != at:
            self.parent[at] = self.parent.get(up, up)
            at = up
        return at

    def _join(self, a: Place, b: Place) -> None:
        a, b = self.root(a), self.root(b)
        if a != b:
            self.parent[a] = b

    def of(self, v: Value, d: int) -> Place:
        return self.root((v, d))

    def places(self) -> dict[Place, list[Place]]:
        """Every class with its members."""
        out: dict[Place, list[Place]] = {}
        for v in self.values:
            for d, n in enumerate(v.shape):
                if n > 1:
                    out.setdefault(self.root((v, d)), []).append((v, d))
        return out
