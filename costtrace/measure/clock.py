"""Steady seconds of one call: the first call apart, then samples until they agree; median and spread. No jax here.

What is timed must return only when its work is done (jax.block_until_ready), or the stopwatch times the queue.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Now = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to look: `budget_s` for one timing, between `least` and `most` samples, each of at least `sample_s`.
    `agree`: the spread at which it is enough."""

    budget_s: float = 1.0
    sample_s: float = 0.002
    least: int = 5
    most: int = 50
    agree: float = 0.03


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call. `first_s`: the first call, with compile and cold caches. Each of `samples_s` is the mean of
    `calls` calls, one after the other."""

    first_s: float
    samples_s: tuple[float, ...]
    calls: int = 1

    @property
    def median_s(self) -> float:
        return statistics.median(self.samples_s)

    @property
    def spread(self) -> float:
        return spread(self.samples_s)

    def to_dict(self) -> dict[str, Any]:
        return {"median_s": self.median_s, "spread": self.spread, "first_s": self.first_s, "calls": self.calls,
                "samples_s": list(self.samples_s)}  # fmt: skip


def spread(samples: Sequence[float]) -> float:
    """The distance between the quartiles over the median: half of the samples lie in a band so wide."""
    if len(samples) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / abs(middle) if middle else 0.0


def steady(
    run: Callable[[], Any],
    effort: Effort | None = None,
    prepare: Callable[[], Any] | None = None,
    now: Now = time.perf_counter,
    first: Callable[[float], None] = lambda seconds: None,
) -> Timing:
    """The steady timing of `run`, whose first call (compile, cold caches) and second (warm-up) are in no sample.

    prepare: called before each sample, outside of it: to evict caches. A sample is then one call. first: told the first
    call's seconds when it is done.
    """
    effort = effort or Effort()

    def once(calls: int) -> float:
        if prepare is not None:
            prepare()
        start = now()
        for _ in range(calls):
            run()
        return (now() - start) / calls

    first_s = once(1)
    first(first_s)
    warm_s = once(1)
    calls = 1 if prepare is not None or warm_s <= 0 else max(1, min(10_000, round(effort.sample_s / warm_s)))
    samples: list[float] = []
    begin = now()
    while len(samples) < effort.most:
        samples.append(once(calls))
        enough = len(samples) >= effort.least and spread(samples) <= effort.agree
        late = now() - begin >= effort.budget_s and len(samples) >= min(3, effort.least)
        if enough or late:
            break
    return Timing(first_s, tuple(samples), calls)


def slope(run: Callable[[int], Any], effort: Effort | None = None, now: Now = time.perf_counter) -> Timing:
    """The steady timing of one trip of `run(trips)`: what more trips add, so that what a call costs once (dispatch,
    fresh memory) is in no sample. Few and many trips are timed in turns, which cancels a slow drift of the clock."""
    effort = effort or Effort()

    def once(trips: int) -> float:
        start = now()
        run(trips)
        return now() - start

    first_s = once(FEW)
    few_s = once(FEW)
    many, added_s = FEW, 0.0
    while added_s < effort.sample_s and many < MANY:
        guess = effort.sample_s / (added_s / (many - FEW)) if added_s > 0 and many > FEW else 4 * many
        many = min(MANY, max(many + 2, min(round(1.2 * guess) + FEW, 16 * many)))
        few_s = min(few_s, once(FEW))
        added_s = once(many) - few_s
        if added_s > effort.budget_s:
            break
    samples: list[float] = []
    begin = now()
    while len(samples) < effort.most:
        few_s = once(FEW)
        samples.append((once(many) - few_s) / (many - FEW))
        enough = len(samples) >= effort.least and spread(samples) <= effort.agree
        if enough or (now() - begin >= effort.budget_s and len(samples) >= min(3, effort.least)):
            break
    return Timing(first_s, tuple(samples), many - FEW)


FEW, MANY = 1, 200_000
"""Trips of a slope's lower end, and at most of its upper end."""
