"""The program as a witness: one stage's profile, its matrix products with their shapes, its weights."""

from __future__ import annotations

import fnmatch
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from costtrace import weight
from costtrace.core import Cost, Op, Trace
from costtrace.profiler import Prices, folded
from costtrace.summary import Profile
from costtrace.trace import trace
from costtrace.useful import useful
from costtrace.weight import Stage

OWN = "/."


@dataclass(frozen=True, slots=True)
class Shape:
    """(m, k) @ (k, n); a convolution has pixels, window * channels in, channels out."""

    m: int
    k: int
    n: int

    def __str__(self) -> str:
        return f"({self.m}, {self.k}) @ ({self.k}, {self.n})"


@dataclass(frozen=True, slots=True)
class Work:
    """An op that multiplies matrices: FLOPs of one run, how often it runs, and its products by shape in one run."""

    op: Op
    flops: int
    shapes: Counter[Shape]

    @property
    def scope(self) -> str:
        return self.op.scope

    @property
    def times(self) -> int:
        return self.op.repeat


class Traced:
    """One stage of the program. `fn(*args)` is what was traced, as jax takes it."""

    def __init__(self, stage: Stage) -> None:
        self.name, self.calls, self.depth = stage.name, stage.calls, stage.depth
        self.fn, self.args = weight.bind(stage)
        self.trace: Trace = trace(self.fn, *self.args, weights=0)
        self.profile: Profile = folded(self.trace)
        self.weights = {value.weight: value.size for value in self.trace.inputs if value.weight}
        self._useful, _ = useful(self.trace)
        prices = Prices()
        self.work = [
            Work(op, flops, shapes(op))
            for op in self.trace.ops
            if (flops := (cost := prices(op).cost).matmul_flops + cost.conv_flops)
        ]

    def paths(self, wanted: Iterable[str]) -> list[str]:
        """The scopes that the patterns name, none inside another; [""] (everything) where there is no pattern."""
        patterns = [pattern.split("/") for pattern in wanted]
        if not patterns:
            return [""]
        found = [path for path in self.profile.by_scope if path and any(_matches(path, p) for p in patterns)]
        return [path for path in found if not any(path.startswith(f"{other}/") for other in found)]

    def cost(self, paths: Iterable[str]) -> Cost:
        """The scopes' costs added up: bytes_fused with each scope instance as a kernel."""
        return sum((self.profile.by_scope[path] for path in paths), Cost())

    def parameters(self, paths: Collection[str]) -> int:
        """Elements of the weights under the paths; of all, for none."""
        patterns = [pattern.split("/") for pattern in paths]

        def wanted(path: str) -> bool:
            names = path.split("/")
            return not patterns or any(_matches("/".join(names[: len(p)]), p) for p in patterns)

        return sum(size for path, size in self.weights.items() if wanted(path))

    def shapes(self, paths: Iterable[str]) -> Counter[Shape]:
        """How many products of each shape run in the scopes, in one call of the stage."""
        found: Counter[Shape] = Counter()
        inside = list(paths)
        for work in self.work:
            if any(within(work.scope, path) for path in inside):
                for shape, n in work.shapes.items():
                    found[shape] += n * work.times
        return found

    def whole_windows(self, paths: Iterable[str]) -> int:
        """FLOPs of the scopes' products, a convolution's windows in full: its padding is multiplied too."""
        inside = list(paths)
        return sum(
            work.times * (sum(2 * s.m * s.k * s.n * n for s, n in work.shapes.items()) or work.flops)
            for work in self.work
            if any(within(work.scope, path) for path in inside)
        )

    def hidden(self, paths: Iterable[str]) -> int:
        """FLOPs of the scopes' products that static masks throw away; they are executed, and counted."""
        inside = list(paths)
        return sum(
            work.times * (work.flops - self._useful[work.op.index])
            for work in self.work
            if work.op.index in self._useful and any(within(work.scope, path) for path in inside)
        )

    def uncovered(self, covered: Collection[str]) -> Iterator[tuple[str, Cost]]:
        """(scope, cost) of the largest parts that touch no covered scope; "x/." is what x does itself."""
        children: dict[str, list[str]] = {path: [] for path in self.profile.by_scope}
        for path in self.profile.by_scope:
            if path:
                children[path.rpartition("/")[0]].append(path)

        def parts(path: str) -> Iterator[tuple[str, Cost]]:
            if path in covered:
                return
            if path and not any(within(other, path) for other in covered):
                yield path, self.profile.by_scope[path]
                return
            own = self._own(path, children[path])
            if own.bytes_scoped or own.flops:
                yield f"{path}{OWN}" if path else ".", own
            for child in children[path]:
                yield from parts(child)

        return parts("")

    def _own(self, path: str, children: Iterable[str]) -> Cost:
        found = sum((r.cost for r in self.profile.records if r.scope == path), Cost())
        below = sum((self.profile.by_scope[child] for child in children), Cost())
        nbytes = self.profile.by_scope[path].bytes_scoped - below.bytes_scoped
        return found.replace(bytes_fused=nbytes, bytes_scoped=nbytes)


def within(scope: str, path: str) -> bool:
    """True where `scope` is `path` or lies in it."""
    return not path or scope == path or scope.startswith(f"{path}/")


def _matches(path: str, pattern: list[str]) -> bool:
    names = path.split("/")
    return len(names) == len(pattern) and all(map(fnmatch.fnmatchcase, names, pattern))


def shapes(op: Op) -> Counter[Shape]:
    """The products of one run of a dot or convolution; nothing for another op (a kernel), whose shapes are its own."""
    if op.primitive == "dot_general":
        (left, _), (batch, _) = op.params["dimension_numbers"]
        a, b = op.inputs[0].shape, op.inputs[1].shape
        times, k = (math.prod(a[i] for i in some) for some in (batch, left))
        return Counter({Shape(_over(math.prod(a), times * k), k, _over(math.prod(b), times * k)): times})
    if op.primitive == "conv_general_dilated":
        kernel, out = op.inputs[1].shape, op.outputs[0].shape
        numbers: Any = op.params["dimension_numbers"]
        co, groups = kernel[numbers.rhs_spec[0]], op.params["feature_group_count"]
        return Counter({Shape(_over(math.prod(out), co), _over(math.prod(kernel), co), co // groups): groups})
    return Counter()


def _over(a: int, b: int) -> int:
    return a // b if b else 0
