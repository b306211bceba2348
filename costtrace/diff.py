"""Two programs' figures -> what changed, scope by scope, the largest change first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costtrace.errors import UsageError
from costtrace.figure import QUANTITIES, WHOLE, Figures, quantity_of

PEAK = "peak_bytes"
SHOWN = ("flops", "weight_bytes", "bytes_fused", "bytes_scoped", "bytes_unfused", "floor_s", "pessimistic_s")
"""What is compared besides the quantity that was asked for."""
ADDED, REMOVED, CHANGED, SAME = "added", "removed", "changed", "same"


@dataclass(frozen=True, slots=True)
class Change:
    """One scope on both sides: {quantity: (before, after)} of all calls; None where a side has no such scope."""

    stage: str
    scope: str
    verdict: str
    values: dict[str, tuple[float | None, float | None]]

    def delta(self, quantity: str) -> float | None:
        """After minus before; a scope that is missing on one side counts as none there. None: not known."""
        before, after = self.values[quantity]
        if self.verdict in (CHANGED, SAME) and (before is None or after is None):
            return None
        return (after or 0) - (before or 0)


def ranked(quantity: str) -> None:
    """Raises UsageError for what scopes cannot be ordered by: an unknown quantity, or a peak, which none has."""
    quantity_of(quantity)
    if quantity == PEAK:
        raise UsageError(f"--by {PEAK}: a peak is a whole stage's, and every answer ends with it: "
                         f"sort by one of {', '.join(q for q in QUANTITIES if q != PEAK)}")  # fmt: skip


def shown(quantity: str) -> tuple[str, ...]:
    """The quantities that are compared where the largest change is of this one."""
    return SHOWN if quantity in SHOWN else (*SHOWN, quantity)


def diff(before: Figures, after: Figures, quantity: str = "pessimistic_s") -> list[Change]:
    """Every row of both programs, the largest change of `quantity` first (all calls of its stage).

    Raises UsageError as ranked does.
    """
    ranked(quantity)
    keys = dict.fromkeys((s, k) for side in (before, after) for s, stage in side.stages.items() for k in stage.rows)
    some = [_change(before, after, *key, shown(quantity)) for key in keys]
    return sorted(some, key=lambda c: tuple(-abs(c.delta(q) or 0) for q in (quantity, *SHOWN)))


def _change(before: Figures, after: Figures, stage: str, scope: str, wanted: Sequence[str]) -> Change:
    sides = [_row(side, stage, scope, wanted) for side in (before, after)]
    missing = [side is None for side in sides]
    values = {q: (sides[0] and sides[0][q], sides[1] and sides[1][q]) for q in wanted}
    differs = any(a != b for a, b in values.values())
    verdict = ADDED if missing[0] else REMOVED if missing[1] else CHANGED if differs else SAME
    return Change(stage, scope, verdict, {q: (a, b) for q, (a, b) in values.items()})  # type: ignore[misc]


def _row(side: Figures, name: str, scope: str, wanted: Sequence[str]) -> dict[str, float | None] | None:
    stage = side.stages.get(name)
    if stage is None or scope not in stage.rows:
        return None
    cost = stage.rows[scope]
    values = {q: QUANTITIES[q].of(cost, side.chip, stage.named) for q in wanted}
    return {q: None if v is None else stage.calls * v for q, v in values.items()}


def totals(before: Figures, after: Figures, quantity: str = "") -> dict[str, tuple[float | None, float | None]]:
    """{quantity: (before, after)} of all stages and calls, with the largest peak."""
    return {q: (before.of(q, WHOLE), after.of(q, WHOLE)) for q in (*shown(quantity or SHOWN[0]), PEAK)}
