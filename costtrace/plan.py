"""Which dimensions of a program a strategy cuts: batch, tokens, features, experts, found by what the ops do with them.

Found looks at the classes of dimensions that the ops join; each function below makes the Plan of one strategy for n
chips, and says what stands in its way.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from costtrace.classes import Classes, Place
from costtrace.core import BACKWARD, Op, Trace, Value
from costtrace.dimension import REDUCED
from costtrace.layout import Plan, gradient, is_float

STATE = "optimizer_state"
"""What a training step calls its optimizer's argument."""


class Found:
    """What the classes of a program are to its parts."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.classes = trace, Classes(trace)
        self.places = self.classes.places()
        self.with_weights = {r for r, members in self.places.items() if any(v.weight for v, _ in members)}
        self.tokens = self._tokens()
        self.batch = self._batch()

    def dots(self) -> Iterable[tuple[Op, list[Place], list[Place], list[Place], list[Place]]]:
        """(op, classes of: both sides' batch, summed, left free, right free dimensions) of each product."""
        for op, found in zip(self.trace.ops, self.classes.dims, strict=True):
            if op.primitive in ("dot_general", "ragged_dot_general"):
                left, right = found.inputs[:2]
                of = self.classes.of
                yield (
                    op,
                    [of(op.inputs[0], d) for d, x in enumerate(left) if x in right and x not in found.summed],
                    [of(op.inputs[0], d) for d, x in enumerate(left) if x in found.summed],
                    [of(op.inputs[0], d) for d, x in enumerate(left) if x not in right],
                    [of(op.inputs[1], d) for d, x in enumerate(right) if x not in left],
                )

    def _tokens(self) -> Place | None:
        """The class that attends to itself; else, of those that no parameter has, the one with most bytes."""
        scores: dict[Place, int] = defaultdict(int)
        for op, _, _, left, right in self.dots():
            if op.phase != BACKWARD and not any(self.weighty(v) for v in op.inputs[:2]):
                for root in (r for r in dict.fromkeys(left) if r in right and r in self.places):
                    scores[root] += op.outputs[0].size * op.repeat
        if scores:
            return max(scores, key=scores.__getitem__)
        leading = self._leading()
        for op in self.trace.ops:
            for v in op.outputs:
                if is_float(v):
                    for root in dict.fromkeys(self.classes.of(v, d) for d, n in enumerate(v.shape) if n > 1):
                        scores[root] += v.nbytes * op.repeat
        known = {r: n for r, n in scores.items() if r not in self.with_weights and r not in leading}
        return max(known, key=known.__getitem__) if known else None

    def _leading(self) -> dict[Place, int]:
        """Classes of the first dimension of arguments that are no parameters, of rank 2 and more."""
        out: dict[Place, int] = defaultdict(int)
        for v in self.trace.inputs:
            if not v.weight and len(v.shape) > 1 and v.shape[0] > 1:
                out[self.classes.of(v, 0)] += 1
        return out

    def _batch(self) -> Place | None:
        found = {r: n for r, n in self._leading().items() if r != self.tokens and r not in self.with_weights}
        shapes = {v.shape for v in self.trace.inputs if v.weight}
        ends = [v for v in self.trace.outputs if v.shape and v.shape not in shapes]
        if ends:  # a batch goes in and comes out
            out = {self.classes.of(v, 0) for v in ends}
            found = {r: n for r, n in found.items() if r in out}
        return max(found, key=found.__getitem__) if found else None

    def features(self) -> tuple[Place, ...]:
        """Classes that a product with a parameter makes and another sums over, and nothing else: they are in no norm's
        sum, in no argument, result or loop's carry. Most work first: where a parameter has two of them, it is cut along
        the first."""
        born: set[Place] = set()
        summed: set[Place] = set()
        work: dict[Place, int] = defaultdict(int)
        for op, batch, inner, left, right in self.dots():
            size = math.prod(op.inputs[0].shape) * op.outputs[0].size * op.repeat
            for root in {*batch, *inner, *left, *right}:
                work[root] += size
            weights = [self.weighty(v) for v in op.inputs[:2]]
            if any(weights) and not all(weights):
                born |= set(left if weights[0] else right)
                summed |= set(inner)
        sums = [op for op in self.trace.ops if op.primitive in REDUCED and op.phase != BACKWARD]
        mixed = {
            self.classes.of(op.inputs[0], d) for op in sums for d in op.params["axes"] if op.inputs[0].shape[d] > 1
        }
        shapes = {v.shape for v in self.trace.inputs if v.weight}  # trained parameters and what an optimizer keeps
        ends = [v for v in self.trace.inputs if not v.weight and is_float(v) and v.shape not in shapes]
        ends += [v for v in self.trace.outputs if v.shape not in shapes]
        ends += [c.inner for c in self.trace.carries]
        mixed |= {self.classes.of(v, d) for v in ends for d, n in enumerate(v.shape) if n > 1}
        both = (born & summed) - mixed
        return tuple(sorted((r for r in self.places if r in both), key=lambda r: -work[r]))

    def experts(self) -> tuple[Place, ...]:
        """Classes of dimensions that parameters share with activations as a product's batch, or as groups of rows."""
        found: dict[Place, None] = {}
        for op, batch, _, _, _ in self.dots():
            if any(self.weighty(v) for v in op.inputs[:2]):
                found.update(dict.fromkeys(r for r in batch if r in self.with_weights))
        for op in self.trace.ops:
            if op.primitive == "ragged_dot_general" and self.weighty(op.inputs[1]):
                numbers = op.params["ragged_dot_dimension_numbers"]
                found.update((self.classes.of(op.inputs[1], d), None) for d in numbers.rhs_group_dimensions)
        return tuple(found)

    def weighty(self, v: Value) -> bool:
        v = v.behind("row")
        if v.weight:
            return True
        maker = self._makers.get(v)
        return maker is not None and maker.primitive in ("convert_element_type", "transpose", "reshape", "all_gather") \
            and self.weighty(maker.inputs[0])  # fmt: skip

    @property
    def _makers(self) -> dict[Value, Op]:
        if not hasattr(self, "_made"):
            self._made = {v: op for op in self.trace.ops for v in op.outputs}
        return self._made

    def smallest(self, roots: Iterable[Place | None]) -> int:
        """The least size of the classes' dimensions; 1 where there is none."""
        sizes = [v.shape[d] for r in roots if r in self.places for v, d in self.places[r]]
        return min(sizes, default=1)


def _some(*roots: Place | None) -> tuple[Place, ...]:
    return tuple(r for r in roots if r is not None)


UNNAMED = "no argument is known to hold parameters: --weights NAME says which does"


def data(found: Found, n: int) -> Plan:
    return Plan(_some(found.batch) if not no_batch(found, n) else ())


def no_batch(found: Found, n: int) -> str:
    size = found.smallest([found.batch]) if found.batch else 1
    return "" if size % n == 0 else f"batch {size} does not divide by {n}: every chip does the whole of it"


def no_stream(found: Found, n: int) -> str:
    return UNNAMED if not found.with_weights else no_batch(found, n)


def fsdp(found: Found, n: int) -> Plan:
    weights = _cut(found, n)
    if not weights:
        return Plan()
    return replace(context("heads")(found, n) if no_batch(found, n) else data(found, n), weights=weights)


def _cut(found: Found, n: int) -> dict[Value, int]:
    """Parameters and an optimizer's state that n divides, and where."""
    held = [v for v in found.trace.inputs if v.weight or v.name.startswith(STATE)]
    return {v: d for v in held if (d := _kept(v, n)) is not None}


def no_fsdp(found: Found, n: int) -> str:
    if not found.with_weights:
        return UNNAMED
    if not _cut(found, n):
        return f"no parameter has a dimension that {n} divides: every chip does the whole of it"
    problem = no_batch(found, n).partition(":")[0]
    return f"{problem}: tokens are cut instead, as ulysses does" if problem else ""


def _kept(v: Value, n: int) -> int | None:
    """A parameter's cut; of a stack of layers not the first dimension, which a loop steps through."""
    rest = Value(v.shape[1:], v.dtype, v.bits) if len(v.shape) > 2 else v
    d = gradient(rest, n)
    return d if d is None or rest is v else d + 1


def tp(found: Found, n: int) -> Plan:
    return Plan(tuple(r for r in found.features() if found.smallest([r]) >= n))


def no_features(found: Found, n: int) -> str:
    roots = found.features()
    if not found.with_weights:
        return f"{UNNAMED}; every chip does the whole of it"
    if not roots:
        return "no features lie between two products: every chip does the whole of it"
    small = [size for r in roots if (size := found.smallest([r])) % n]
    return f"{min(small)} heads or features do not divide by {n}: padded" if small else ""


def sp(found: Found, n: int) -> Plan:
    plan = tp(found, n)
    return Plan((*plan.classes, *_some(found.tokens)), frozenset(_some(found.tokens)), scatter=True)


def context(attention: str) -> Callable[[Found, int], Plan]:
    """Sums over queries (gradients of keys and values) go to the chips that have those tokens."""
    return lambda found, n: Plan(_some(found.tokens), frozenset(_some(found.tokens)), attention=attention, scatter=True)


def no_tokens(found: Found, n: int) -> str:
    size = found.smallest([found.tokens]) if found.tokens else 1
    if size == 1:
        return "no dimension that only activations have: every chip does the whole of it"
    return "" if size >= n else f"{size} tokens for {n} chips: every chip does the whole of it"


def expert(found: Found, n: int) -> Plan:
    experts = tuple(r for r in found.experts() if found.smallest([r]) >= n)
    if not experts:
        return Plan()
    return Plan((*_some(found.batch or found.tokens), *experts), frozenset(_some(found.tokens)), dispatch=True)


def no_experts(found: Found, n: int) -> str:
    if not found.experts():
        return "no experts: no parameter shares a product's batch with activations"
    size = found.smallest(found.experts())
    return "" if size % n == 0 else f"{size} experts do not divide by {n}"


@dataclass(frozen=True, slots=True)
class Division:
    """How a size lies over some chips, or in a kernel's blocks. kind: batch, tokens, features or experts."""

    kind: str
    size: int
    chips: int
    block: int = 1
    """A kernel takes this many at a time (128 for a splash attention kernel); 1: as the chips divide it."""

    @property
    def padded(self) -> int:
        unit = self.block if self.block > 1 else self.chips
        return -(-self.size // unit) * unit

    @property
    def each(self) -> int:
        """On a chip, after padding."""
        return -(-self.padded // self.chips)

    @property
    def more(self) -> float:
        """What padding adds to everything that is once per token, as a share."""
        return self.padded / self.size - 1

    @property
    def squared(self) -> float:
        """What it adds to attention among them."""
        return (self.padded / self.size) ** 2 - 1

    def __str__(self) -> str:
        if self.padded == self.size and self.block == 1:
            return f"{self.kind} {self.size} = {self.chips} x {self.each}"
        what = f"blocks of {self.block}" if self.block > 1 else f"{self.chips} x {self.each}"
        squared = f", attention {self.squared:+.3%}" if self.kind == "tokens" else ""
        return f"{self.kind} {self.size} padded to {self.padded} ({what}): {self.more:+.3%}{squared}"


def divisions(found: Found, plan: Plan, n: int, block: int = 128) -> list[Division]:
    """Each size of the classes that a plan cuts, over n chips; of tokens also in a kernel's blocks where they do not
    fill them."""
    out: dict[Division, None] = {}
    for root in plan.classes:
        kind = {found.tokens: "tokens", found.batch: "batch"}.get(root, "features")
        kind = "experts" if root in found.experts() else kind
        sizes = {v.shape[d] for v, d in found.places[root] if kind != "tokens" or not v.weight}
        for size in sorted(s for s in sizes if s >= n):
            out[Division(kind, size, n)] = None
            if kind == "tokens" and size % block and size >= 8 * block:
                out[Division(kind, size, n, block)] = None
    return list(out)
