"""Launches on a calibrated chip -> seconds: each kernel at the measured rate of its own shape. No jax here.

Products, convolutions, gathers and reductions take what their grid says at their sizes; a loop takes the longer of its
bytes at the copy rate and its elements at the rates of their operations; every kernel adds a launch, every trip of a
loop its own overhead, every call a dispatch. Kernels add up: none overlaps another. Nothing is fitted to a model.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from costtrace.chip import PRICED_AS, Chip
from costtrace.core import Trace
from costtrace.errors import UsageError
from costtrace.grid import Grid
from costtrace.launch import Launch, Launches, launches

MECHANISMS = ("product", "convolution", "loop", "reduction", "move", "launch", "trip", "dispatch")
"""What a second is spent on: see docs/calibrating.md."""
OF_KIND = {"streamed product": "product", "batched product": "product", "sum last": "reduction",
           "max last": "reduction", "sum first": "reduction", "gather": "move", "swap": "move", "copy": "move",
           "other": "move", "concatenate": "move"}  # fmt: skip
INSTEAD = {"streamed product": "product", "logistic": "exp", "power": "exp",
           "max last": "sum last", "select": "add", "log": "exp", "tanh": "exp", "erf": "exp",
           "sine": "exp", "rsqrt": "divide", "divide": "add", "concatenate": "add", "swap": "transpose"}  # fmt: skip
"""Kind of grid -> the one that prices it where a chip's file lacks it."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A kernel beside its seconds, all its runs in a call; `launch_s` of them are launches."""

    launch: Launch
    work_s: float
    launch_s: float


@dataclass(frozen=True, slots=True)
class ShapeAware:
    """Seconds of one call. `by_scope`: under each scope and its prefixes, "" the whole (with dispatch); a loop's time
    is in the scope of the op that its array comes from. `by_mechanism`: the same by MECHANISMS. `notes`: what had no
    grid of its own and was priced by another."""

    total_s: float
    by_scope: dict[str, float]
    by_mechanism: dict[str, float]
    kernels: list[KernelTime]
    notes: tuple[str, ...]


def shape_aware(trace: Trace, chip: Chip) -> ShapeAware:
    """What one call of `trace` takes on a calibrated chip. Raises UsageError where the chip's file has no grids."""
    return priced(launches(trace), chip)


def priced(plan: Launches, chip: Chip) -> ShapeAware:
    """The same of kernels that are known already."""
    rates = _Rates(chip)
    cached = chip.value("memory.l2") or 0.0
    launch_s, trip_s, dispatch_s = (rates.overhead_s(key) for key in ("launch", "trip", "dispatch"))
    scopes: dict[str, float] = defaultdict(float)
    mechanisms = dict.fromkeys(MECHANISMS, 0.0)
    kernels: list[KernelTime] = []
    for kernel in plan.kernels:
        kind = kernel.kind
        if kind == "streamed product" and plan.parameters <= cached:
            kind = "product"  # all the parameters stay in the cache from call to call
        work_s = kernel.repeat * _work_s(kernel, kind, rates)
        kernels.append(KernelTime(kernel, work_s, kernel.repeat * launch_s))
        mechanisms[OF_KIND.get(kind, kind)] += work_s
        mechanisms["launch"] += kernels[-1].launch_s
        scopes[kernel.scope] += work_s + kernels[-1].launch_s
    for scope, trips in plan.trips.items():
        mechanisms["trip"] += trips * trip_s
        scopes[scope] += trips * trip_s
    mechanisms["dispatch"] = dispatch_s
    scopes[""] += dispatch_s
    by_scope = _summed(scopes)
    return ShapeAware(by_scope[""], by_scope, mechanisms, kernels, tuple(rates.notes))


def _work_s(kernel: Launch, kind: str, rates: _Rates) -> float:
    """Of one run, without its launch."""
    elements_s = sum(rates.seconds(name, dtype, n) for (name, dtype), n in kernel.elements.items())
    moved_s = rates.seconds("copy", "", kernel.nbytes)
    if kind in ("loop", "other"):
        return max(moved_s, elements_s + sum(n / 2 / rates.best("product", dtype) for dtype, n in kernel.flops.items()))
    if kind == "concatenate":
        return max(moved_s, elements_s + rates.seconds(kind, kernel.dtype, *kernel.sizes))
    if OF_KIND.get(kind) == "reduction":
        return max(
            rates.seconds("read", "", kernel.read), elements_s + rates.seconds(kind, kernel.dtype, *kernel.sizes)
        )
    return rates.seconds(kind, kernel.dtype, *kernel.sizes)


class _Rates:
    """The grids of a chip, each found once; what another had to stand in for, as notes."""

    def __init__(self, chip: Chip) -> None:
        if not chip.grids:
            raise UsageError(
                f"{chip.name} has no rates by shape: costtrace calibrate --out my-chip.toml measures those of the "
                "device at hand, then --chip my-chip.toml"
            )
        self.chip = chip
        self.found: dict[tuple[str, str], Grid | None] = {}
        self.notes: dict[str, None] = {}

    def seconds(self, kind: str, dtype: str, *sizes: int) -> float:
        """Of work of these sizes; of none without sizes."""
        key = (kind, dtype)
        if key not in self.found:
            self.found[key] = self._find(kind, dtype)
        grid = self.found[key]
        return 0.0 if grid is None or not sizes else grid.seconds(*sizes)

    def best(self, kind: str, dtype: str) -> float:
        """Work per second at the best size; endless where there is no such rate, with a note."""
        self.seconds(kind, dtype)
        grid = self.found[kind, dtype]
        return math.inf if grid is None else grid.best.rate

    def overhead_s(self, key: str) -> float:
        """Seconds of one launch, trip or dispatch; where the chip's file has none it is left out, with a note."""
        found = self.chip.value(f"overhead.{key}")
        if found is None:
            self.notes[f"no overhead.{key} on {self.chip.name}: left out"] = None
        return found or 0.0

    def _find(self, kind: str, dtype: str) -> Grid | None:
        have: Mapping[tuple[str, str], Grid] = self.chip.grids
        wanted: str | None = kind
        while wanted is not None:
            for of in dict.fromkeys((dtype, PRICED_AS.get(dtype, dtype), "float32", "")):
                if (wanted, of) in have:
                    if (wanted, of) != (kind, dtype):
                        self.notes[f"{kind} {dtype} is priced as {wanted} {of}".replace("  ", " ")] = None
                    return have[wanted, of]
            wanted = INSTEAD.get(wanted)
        self.notes[f"no rate of {kind} {dtype} on {self.chip.name}: left out"] = None
        return None


def _summed(own: Mapping[str, float]) -> dict[str, float]:
    """Each scope's own seconds added to all its prefixes."""
    out: dict[str, float] = defaultdict(float, {"": 0.0})
    for scope, seconds in own.items():
        names = scope.split("/") if scope else []
        for depth in range(len(names) + 1):
            out["/".join(names[:depth])] += seconds
    return dict(out)
