"""Where a plan lays each value: the dimension that is cut, and one chip's part of its shape. Plan, Layout.

The plan says which classes of dimensions are cut; a Layout looks up what that means for a value. Where an op leaves its
results, and what must move, is placement.py's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from costtrace.classes import Classes, Place
from costtrace.core import Trace, Value

CASTS = ("convert_element_type", "reduce_precision", "copy", "copy_p", "stop_gradient", "reshape", "squeeze",
         "expand_dims", "transpose", "slice", "split", "all_gather")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """classes: dimensions that are cut, the first that a value has. whole: classes cut only in floating-point values
    (tokens: masks and indices stay whole). weights: parameters cut along a dimension of their own, gathered where they
    are used. attention: "heads" moves queries, keys and values to whole sequences of some heads and back (all-to-all),
    "ring" passes keys and values round, "" gathers them. scatter: sums go to a cut dimension where there is one.
    dispatch: rows are sent to the chip that has their group of a ragged product.
    """

    classes: tuple[Place, ...] = ()
    whole: frozenset[Place] = frozenset()
    weights: dict[Value, int] = field(default_factory=dict)
    attention: str = ""
    scatter: bool = False
    dispatch: bool = False


def is_float(v: Value) -> bool:
    return v.dtype.startswith(("float", "bfloat", "complex"))


def gradient(v: Value, n: int) -> int | None:
    """The dimension along which a parameter, or its gradient, is kept in parts: the largest that divides."""
    good = [d for d, size in enumerate(v.shape) if size % n == 0]
    return max(good, key=lambda d: (v.shape[d], d)) if good else None


class Layout:
    """Where the values of a trace lie on one of `n` chips of an axis."""

    def __init__(self, trace: Trace, classes: Classes, plan: Plan, axis: str, n: int) -> None:
        self.trace, self.classes, self.plan, self.axis, self.n = trace, classes, plan, axis, n
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
                     frame=v.frame, donated=v.donated, host=v.host, **more)  # fmt: skip

    def _weights(self) -> set[Value]:
        """Values that are parameters, through views and casts."""
        out = {v for v in self.trace.inputs if v.weight}

        def known(v: Value) -> bool:
            return v.behind("row") in out

        for op in self.trace.ops:
            if op.inputs and op.primitive in CASTS and known(op.inputs[0]):
                out.update(op.outputs)
        out.update(v for op in self.trace.ops for v in op.inputs if known(v))
        return out
