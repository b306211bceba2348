"""Measured seconds of one kind of work on a lattice of sizes, and what they say of the sizes in between. No jax here.

Work is the product of a grid's axes: m n k of a matrix product, the bytes of a copy. Between points the logarithm of
the rate (work over seconds) is linear in the logarithm of each size; outside, the rate is that at the edge. At a point
the seconds are the measured ones. A lattice may have holes (sizes too long to time): a hole has the rate of the
nearest smaller size along the first axis, else along the next ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

KINDS: dict[str, tuple[str, ...]] = {
    "product": ("m", "n", "k"),
    "streamed product": ("m", "n", "k"),
    "batched product": ("batch", "m", "n", "k"),
    "convolution": ("pixels", "features_in", "features_out", "taps"),
    "copy": ("bytes",),
    "read": ("bytes",),
    "write": ("bytes",),
    "transpose": ("elements",),
    "swap": ("elements",),
    "gather": ("rows", "width"),
    "concatenate": ("elements",),
    "sum last": ("rows", "columns"),
    "max last": ("rows", "columns"),
    "sum first": ("rows", "columns"),
    "add": ("elements",),
    "divide": ("elements",),
    "select": ("elements",),
    "exp": ("elements",),
    "log": ("elements",),
    "tanh": ("elements",),
    "erf": ("elements",),
    "logistic": ("elements",),
    "sine": ("elements",),
    "rsqrt": ("elements",),
    "power": ("elements",),
    "host to device": ("bytes",),
    "all-reduce": ("bytes",),
    "all-gather": ("bytes",),
}
"""Kind of work -> its axes. docs/calibrating.md says what runs for each."""


@dataclass(frozen=True, slots=True)
class Point:
    """The median seconds of one size, and the spread of its samples (quartile distance over median)."""

    sizes: tuple[int, ...]
    seconds: float
    spread: float = 0.0

    @property
    def rate(self) -> float:
        """Work per second."""
        return math.prod(self.sizes) / self.seconds


@dataclass(frozen=True)
class Grid:
    """The points of one kind and dtype, with who measured them."""

    kind: str
    dtype: str
    points: tuple[Point, ...]
    source: str = ""
    date: str = ""
    _axes: list[list[int]] = field(default_factory=list, repr=False, compare=False)
    _logs: dict[tuple[int, ...], float] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._axes.extend(sorted({p.sizes[d] for p in self.points}) for d in range(len(KINDS[self.kind])))
        measured = {p.sizes: math.log(p.rate) for p in self.points}
        for sizes in itertools.product(*self._axes):
            self._logs[sizes] = measured[sizes] if sizes in measured else self._nearest(sizes, measured)

    def _nearest(self, sizes: tuple[int, ...], measured: dict[tuple[int, ...], float]) -> float:
        """The log rate of a hole: of the measured point that is fewest steps away, smaller on the first axis first."""

        def steps(p: tuple[int, ...]) -> tuple[int, ...]:
            each = [axis.index(b) - axis.index(a) for axis, a, b in zip(self._axes, p, sizes, strict=True)]
            return (sum(map(abs, each)), *(abs(e) if e >= 0 else len(self._axes[0]) - e for e in reversed(each)))

        return measured[min(measured, key=steps)]

    @property
    def best(self) -> Point:
        """The point of the highest rate."""
        return max(self.points, key=lambda p: p.rate)

    def seconds(self, *sizes: float) -> float:
        """Of one run of these sizes."""
        work = math.prod(sizes)
        return work / self.rate(*sizes) if work else 0.0

    def rate(self, *sizes: float) -> float:
        """Work per second at these sizes."""
        corners: list[list[tuple[int, float]]] = []
        for axis, size in zip(self._axes, sizes, strict=True):
            corners.append(_around(axis, size))
        log = 0.0
        for corner in itertools.product(*corners):
            weight = math.prod(w for _, w in corner)
            if weight:
                log += weight * self._logs[tuple(at for at, _ in corner)]
        return math.exp(log)


def _around(axis: list[int], size: float) -> list[tuple[int, float]]:
    """The points of an axis around a size, with the weight of each; the first or the last alone beyond its end."""
    if size <= axis[0]:
        return [(axis[0], 1.0)]
    if size >= axis[-1]:
        return [(axis[-1], 1.0)]
    above = next(i for i, at in enumerate(axis) if at >= size)
    low, high = axis[above - 1], axis[above]
    share = math.log(size / low) / math.log(high / low)
    return [(low, 1 - share), (high, share)]


def named(grids: Iterable[Grid]) -> dict[tuple[str, str], Grid]:
    """{(kind, dtype): grid}"""
    return {(g.kind, g.dtype): g for g in grids}
