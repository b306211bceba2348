"""The stopwatch, on a clock that the test turns."""

import pytest

from costtrace.measure.clock import Effort, Timing, spread, steady


class Clock:
    """Stands still but for what `take` adds."""

    def __init__(self, *takes: float) -> None:
        self.at, self.takes, self.calls = 0.0, list(takes), 0

    def now(self) -> float:
        return self.at

    def run(self) -> None:
        self.at += self.takes[min(self.calls, len(self.takes) - 1)]
        self.calls += 1


def test_compile_and_warm_up_are_in_no_sample() -> None:
    clock = Clock(9.0, 2.0, 1.0)
    found = steady(clock.run, Effort(budget_s=100, least=5), now=clock.now)
    assert found == Timing(9.0, (1.0,) * 5, 1)
    assert clock.calls == 1 + 1 + 5


def test_a_short_call_is_timed_many_at_once() -> None:
    clock = Clock(1.0, 0.25)
    found = steady(clock.run, Effort(sample_s=1.0, budget_s=100, least=3), now=clock.now)
    assert found.calls == 1.0 / 0.25
    assert found.samples_s == (0.25,) * 3


def test_samples_that_disagree_are_followed_by_more() -> None:
    clock = Clock(1.0, 1.0, 1.0, 3.0, 1.0, 3.0, 1.0)
    found = steady(clock.run, Effort(budget_s=1000, least=4, most=40, agree=0.0), now=clock.now)
    # 1 3 1 3 | 1 1 1 1 ...: the quartiles meet once three of four samples are 1: two 3s of more than eight.
    assert found.samples_s.count(3.0) == 2 and 8 < len(found.samples_s) < 12
    assert found.median_s == 1.0 and found.spread == 0.0


def test_a_budget_ends_it_after_three_samples() -> None:
    clock = Clock(1.0, 1.0, 1.0, 9.0)
    assert len(steady(clock.run, Effort(budget_s=2.0), now=clock.now).samples_s) == 3


def test_what_prepares_a_sample_is_not_timed() -> None:
    clock = Clock(5.0, 0.001)

    def evict() -> None:
        clock.at += 7.0

    found = steady(clock.run, Effort(sample_s=1.0, budget_s=1000, least=3), prepare=evict, now=clock.now)
    assert found.calls == 1
    assert found.samples_s == pytest.approx([0.001] * 3)


def test_the_first_call_is_told_before_the_second() -> None:
    clock, told = Clock(9.0, 2.0), []
    steady(clock.run, Effort(budget_s=1), now=clock.now, first=lambda seconds: told.append((seconds, clock.calls)))
    assert told == [(9.0, 1)]


def test_spread_is_the_band_of_the_quartiles() -> None:
    assert spread([8, 9, 10, 11, 12]) == (11 - 9) / 10
    assert spread([5.0]) == 0.0
