"""What the device at hand can do: PLAN says which sizes of which work are timed, and `calibrated` times them.

A product of one size is timed between the others. Where it took longer than its fastest by more than the noise allowed,
the clock or a neighbour was in the way, and what was timed since is timed again; so is a size whose samples disagree.
What stays noisy refuses the whole.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from costtrace.errors import UsageError
from costtrace.grid import Grid, Point
from costtrace.measure import clock, workload
from costtrace.measure.clock import Effort, Timing
from costtrace.measure.device import Device
from costtrace.measure.workload import WORKLOADS, Workload

NOISE = 0.15
TOLERANCE = {"float32": 0.02, "bfloat16": 0.05}
"""Of a result's norm from numpy's: a matrix unit may round float32 operands to bfloat16."""
Told = Callable[[str, int, int], None]
"""(what, how many are done, of how many)"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The lattice of one kind: dtypes, and sizes along each axis. `most`: work of one run beyond which it is left out
    (a hole)."""

    dtypes: tuple[str, ...]
    axes: tuple[tuple[int, ...], ...]
    most: float = math.inf

    def points(self) -> Iterable[tuple[str, tuple[int, ...]]]:
        for dtype, sizes in itertools.product(self.dtypes, itertools.product(*self.axes)):
            if math.prod(sizes) <= self.most:
                yield dtype, sizes


BOTH, WIDE, NONE = ("float32", "bfloat16"), ("float32",), ("",)
KB, MB = 2**10, 2**20
GB = 1024 * MB
QUICK: dict[str, Sizes] = {
    "copy": Sizes(NONE, ((64 * KB, 4 * MB, 256 * MB),)),
    "read": Sizes(NONE, ((64 * KB, 4 * MB, 256 * MB),)),
    "write": Sizes(NONE, ((4 * MB, 256 * MB),)),
    "product": Sizes(BOTH, ((1, 32, 512), (64, 1024), (64, 1024)), GB),
    "streamed product": Sizes(BOTH, ((1, 16, 128, 1024), (128, 2048), (128, 2048)), GB),
    "batched product": Sizes(BOTH, ((4, 24), (64, 512), (64, 512), (64, 512)), GB),
    "convolution": Sizes(BOTH, ((16**2, 64**2), (32, 256), (32, 256), (1, 9)), GB),
    "sum last": Sizes(WIDE, ((64, 4096), (64, 1024))),
    "max last": Sizes(WIDE, ((64, 4096), (64, 1024))),
    "sum first": Sizes(WIDE, ((64, 4096), (64, 1024))),
    "transpose": Sizes(BOTH, ((128**2, 1024**2),)),
    "swap": Sizes(BOTH, ((16**2 * 64, 128**2 * 64),)),
    "concatenate": Sizes(BOTH, ((2**14, 2**20),)),
    "gather": Sizes(BOTH, ((64, 1024), (1024,))),
    "add": Sizes((*BOTH, "int32"), ((2**14, 2**20),)),
    **dict.fromkeys(("divide", "exp", "tanh", "erf", "logistic", "sine", "rsqrt", "select"),
                    Sizes(BOTH, ((2**18,),))),
    "host to device": Sizes(NONE, ((64 * MB,),)),
    "all-reduce": Sizes(NONE, ((MB, 64 * MB),)),
    "all-gather": Sizes(NONE, ((MB, 64 * MB),)),
}  # fmt: skip
FULL: dict[str, Sizes] = QUICK | {
    "copy": Sizes(NONE, ((64 * KB, MB, 4 * MB, 16 * MB, 64 * MB, 256 * MB),)),
    "read": Sizes(NONE, ((64 * KB, MB, 4 * MB, 16 * MB, 64 * MB, 256 * MB),)),
    "product": Sizes(BOTH, ((1, 8, 64, 256, 1024), (16, 128, 1024), (64, 256, 1024)), 2**31),
    "streamed product": Sizes(BOTH, ((1, 8, 32, 128, 512, 2048), (64, 256, 1024, 4096), (64, 256, 1024, 4096)), 2**33),
    "batched product": Sizes(BOTH, ((4, 24), (16, 64, 256, 1024), (64, 256, 1024), (64, 256, 1024)), 2**33),
    "convolution": Sizes(BOTH, ((16**2, 32**2, 64**2, 128**2), (4, 32, 128, 512), (4, 32, 128, 512), (1, 9)), 2**33),
    "sum last": Sizes(WIDE, ((16, 256, 4096, 65536), (16, 128, 1024))),
    "max last": Sizes(WIDE, ((16, 256, 4096, 65536), (16, 128, 1024))),
    "sum first": Sizes(WIDE, ((16, 256, 4096), (16, 128, 1024))),
    "transpose": Sizes(BOTH, ((64**2, 256**2, 1024**2, 4096**2),)),
    "swap": Sizes(BOTH, ((16**2 * 64, 64**2 * 64, 256**2 * 64),)),
    "add": Sizes((*BOTH, "int32"), ((2**12, 2**16, 2**20, 2**24),)),
    **dict.fromkeys(("divide", "exp", "log", "tanh", "erf", "logistic", "sine", "rsqrt", "power", "select"),
                    Sizes(BOTH, ((2**12, 2**16, 2**20, 2**24),))),
}  # fmt: skip
BETWEEN = ("all-reduce", "all-gather")
CHECKED: dict[str, tuple[int, ...]] = {
    "product": (5, 7, 9), "streamed product": (5, 7, 9), "batched product": (3, 5, 7, 9), "convolution": (25, 3, 4, 9),
    "copy": (800,), "read": (4096,), "write": (400,), "transpose": (49,), "swap": (16 * 64,), "concatenate": (64,),
    "gather": (5, 8), "sum last": (5, 33), "max last": (5, 33), "sum first": (33, 5), "all-reduce": (4096,),
    "all-gather": (4096,),
}  # fmt: skip
"""The size at which each kind's result is held against numpy's; elementwise kinds take 100 elements."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One size and the samples of its trips. `seconds`: of one run of the work alone, without launch and trip."""

    kind: str
    dtype: str
    sizes: tuple[int, ...]
    timing: Timing
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "dtype": self.dtype, "sizes": list(self.sizes), "seconds": self.seconds,
                **self.timing.to_dict()}  # fmt: skip


@dataclass(slots=True)
class Calibration:
    """What was measured of a device, with every raw sample."""

    device: Device
    quick: bool
    noise: float
    overhead: dict[str, float] = field(default_factory=dict)
    """dispatch, launch and trip in seconds."""
    overhead_timings: dict[str, Timing] = field(default_factory=dict)
    sampled: list[Sampled] = field(default_factory=list)
    again: int = 0
    """Sizes that were timed anew, because the clock or a neighbour was in the way."""
    reference: list[float] = field(default_factory=list)
    """Seconds of the product between the others."""
    worst: tuple[str, float] = ("", 0.0)
    """The result that was farthest from numpy's, and how far."""
    lost: int = 0
    """Sizes left out, because more trips of them took less time."""

    @property
    def spread_median(self) -> float:
        return statistics.median(s.timing.spread for s in self.sampled)

    @property
    def spread_most(self) -> float:
        return max(s.timing.spread for s in self.sampled)

    @property
    def drift(self) -> float:
        """How much longer than at its fastest the product between the others took at its slowest."""
        return max(self.reference) / min(self.reference) - 1

    def grids(self, source: str, date: str) -> list[Grid]:
        points: dict[tuple[str, str], list[Point]] = {}
        for s in self.sampled:
            points.setdefault((s.kind, s.dtype), []).append(Point(s.sizes, s.seconds, s.timing.spread))
        return [Grid(kind, dtype, tuple(p), source, date) for (kind, dtype), p in points.items()]


def checked(kinds: Iterable[str], dtypes: Iterable[str] = BOTH) -> tuple[str, float]:
    """The kind and dtype whose result is farthest from numpy's, and how far. Raises UsageError where one is wrong."""
    worst = ("", 0.0)
    for kind in kinds:
        if kind not in WORKLOADS:
            continue
        for dtype in dtypes if FULL[kind].dtypes != NONE else NONE:
            made = WORKLOADS[kind](dtype, 4096, *CHECKED.get(kind, (100,)))
            off = workload.wrong(kind, dtype, made)
            if not off <= TOLERANCE.get(dtype, TOLERANCE["float32"]):
                raise UsageError(
                    f"{kind} {dtype}: this device's result is {off:.2%} from numpy's: its times mean nothing; "
                    "report it to the makers of its driver and of jax"
                )
            worst = max(worst, (f"{kind} {dtype}".rstrip(), off), key=lambda each: each[1])
    return worst


class Session:
    """One calibration under way. `time_of(workload)` gives the timing of its trip; tests give their own."""

    def __init__(
        self,
        device: Device,
        quick: bool = False,
        noise: float = NOISE,
        time_of: Callable[[Workload], Timing] | None = None,
        time_of_call: Callable[[Callable[[], Any]], Timing] | None = None,
        compiled: Callable[[Workload], Any] = lambda made: made.run(1),
        told: Told = lambda what, done, of: None,
        now: clock.Now = time.perf_counter,
    ) -> None:
        self.effort = Effort(0.06, 0.006, 3, 9, 0.05) if quick else Effort(0.6, 0.03, 5, 25, 0.03)
        self.time_of = time_of or (lambda made: clock.slope(made.run, self.effort))
        self.time_of_call = time_of_call or (lambda call: clock.steady(call, self.effort))
        self.plan = QUICK if quick else FULL
        self.pool = 2 * device.cache_bytes if device.cache_bytes else 256 * MB
        self.told, self.now, self.compiled = told, now, compiled
        self.out = Calibration(device, quick, noise)
        self.kernels: dict[str, tuple[int, int]] = {}
        self.patience = 15.0 if quick else 300.0
        """Seconds for what has to be timed again."""

    def run(self) -> Calibration:
        out = self.out
        kinds = [kind for kind in self.plan if kind in WORKLOADS and (kind not in BETWEEN or out.device.count > 1)]
        self.told("results against numpy's", 0, 1)
        out.worst = checked(kinds, WIDE if out.quick else BOTH)
        points = [(kind, dtype, sizes) for kind in kinds for dtype, sizes in self.plan[kind].points()]
        self.overheads()
        self.reference = WORKLOADS["product"]("float32", self.pool, 256, 512, 512)
        found: dict[tuple[str, str, tuple[int, ...]], Timing] = {}
        done = 0
        for chunk in (points[at : at + CHUNK] for at in range(0, len(points), CHUNK)):
            self.told(f"{chunk[0][0]} {chunk[0][1]}".rstrip(), done, len(points))
            found |= self.undisturbed(chunk)
            done += len(chunk)
        noisy = [key for key, timing in found.items() if self.noisy(timing)]
        for key in noisy:
            if self.patience <= 0:
                break
            self.told(f"{key[0]} again", done, len(points))
            new = self.timed(key)
            if new.spread < found[key].spread:
                found[key] = new
        lost = [key for key, timing in found.items() if timing.median_s <= 0]
        noisy = [key for key, timing in found.items() if self.noisy(timing) and key not in lost]
        kept = [key for key in points if key not in lost]
        if len(noisy) > FEW_NOISY * len(points):
            self.refuse(noisy, found)
        if len(lost) > FEW_LOST * len(points) or {key[:2] for key in kept} != {key[:2] for key in points}:
            self.refuse(lost, found)
        out.lost = len(lost)
        out.sampled = [self.sampled(key, found[key]) for key in kept]
        self.transfer()
        return out

    def noisy(self, timing: Timing) -> bool:
        return timing.spread > 2 * self.out.noise or timing.median_s <= 0

    def refuse(self, noisy: list[tuple[str, str, tuple[int, ...]]], found: dict[Any, Timing]) -> None:
        kind, dtype, sizes = max(noisy, key=lambda key: (found[key].median_s <= 0, found[key].spread))
        worst = found[kind, dtype, sizes]
        more = worst.median_s > 0
        how = f"by {worst.spread:.0%}" if more else "so much that more trips took less time"
        raise UsageError(
            f"too noisy to write: {len(noisy)} of {len(found)} sizes vary by more than {2 * self.out.noise:.0%}, "
            f"{kind} {dtype} {'x'.join(map(str, sizes))} {how}: run it on a quiet machine"
            + (f", or allow it with --noise {_allowing(worst.spread)}" if more else "")
        )

    def overheads(self) -> None:
        """What a call, a trip and a kernel take before they do anything."""
        one, many = workload.tiny(1), workload.tiny(TINY)
        single, several = self.time_of(one), self.time_of(many)
        launch = max(0.0, (several.median_s - single.median_s) / (TINY - 1))
        trip = max(0.0, single.median_s - launch)
        call = self.time_of_call(lambda: one.run(0))
        self.out.overhead = {"dispatch": call.median_s, "launch": launch, "trip": trip}
        self.out.overhead_timings = {"trip and one kernel": single, f"trip and {TINY} kernels": several, "call": call}

    def undisturbed(self, chunk: Iterable[tuple[str, str, tuple[int, ...]]]) -> dict[Any, Timing]:
        """The chunk's timings, with the reference product at its fastest before and after; else the quietest try."""
        tries: list[tuple[float, dict[Any, Timing]]] = []
        made = {key: self.made(*key) for key in chunk}
        for each in made.values():
            self.compiled(each)
        while True:
            begin = self.now()
            before = self.time_of(self.reference).median_s
            found = {key: self.time_of(each) for key, each in made.items()}
            after = self.time_of(self.reference).median_s
            self.out.reference += [before, after]
            fastest = min(self.out.reference)
            tries.append((max(before, after) / fastest - 1, found))
            if tries[-1][0] <= self.out.noise:
                return found
            if self.patience <= 0:
                disturbed, found = min(tries, key=lambda each: each[0])
                if disturbed > 2 * self.out.noise:
                    raise UsageError(
                        f"too noisy to write: the same product took {disturbed:.0%} longer than its fastest while "
                        f"{next(iter(found))[0]} was timed: run it on a quiet machine, or allow it with "
                        f"--noise {_allowing(disturbed)}"
                    )
                return found
            self.out.again += len(found)
            self.patience -= self.now() - begin

    def made(self, kind: str, dtype: str, sizes: tuple[int, ...]) -> Workload:
        made = WORKLOADS[kind](dtype, self.pool, *sizes)
        self.kernels[kind] = (made.kernels, made.runs)
        return made

    def timed(self, key: tuple[str, str, tuple[int, ...]]) -> Timing:
        begin = self.now()
        timing = self.time_of(self.made(*key))
        if self.noisy(timing):
            self.patience -= self.now() - begin
        return timing

    def sampled(self, key: tuple[str, str, tuple[int, ...]], timing: Timing) -> Sampled:
        """The work alone: less the trip and the kernels' starts, at least half of all."""
        kind, dtype, sizes = key
        kernels, runs = self.kernels[kind]
        extra_s = self.out.overhead["trip"] + kernels * self.out.overhead["launch"]
        return Sampled(kind, dtype, sizes, timing, max(timing.median_s - extra_s, timing.median_s / 2) / runs)

    def transfer(self) -> None:
        """Numbers of the host to the device."""
        (kind, sizes) = "host to device", self.plan["host to device"].axes[0]
        for nbytes in sizes:
            timing = self.time_of_call(workload.transfer(nbytes))
            self.out.sampled.append(Sampled(kind, "", (nbytes,), timing, timing.median_s))


def _allowing(found: float) -> str:
    """What to give --noise for twice of it to allow `found`, rounded up to a tenth."""
    return f"{math.ceil(found * 5) / 10:g}"


CHUNK, TINY, FEW_NOISY, FEW_LOST = 4, 16, 0.02, 0.1
"""Sizes between two timings of the reference; kernels of the long trip; shares of sizes that may stay noisy, and
that may be left out."""
