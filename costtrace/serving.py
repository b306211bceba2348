"""What a stage makes in a second at its floor, and the size at which memory no longer binds it. No jax here.

A decoding step reads every weight for one token of each prompt. More prompts at once share that reading, so there is a
batch from which the products with weights are bound by the matrix unit; what each prompt brings itself, its cache, is
shared by nobody, and may keep the whole step bound by memory at any batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from costtrace import roofline
from costtrace.chip import Chip
from costtrace.core import Cost
from costtrace.summary import Profile, Row

MOST = 65_536
"""The largest size that is asked about."""


@dataclass(frozen=True, slots=True)
class Turning:
    """The least `option` at which the matrix unit takes at least as long as memory, fused bytes each: of the stage as
    one kernel, and of `row`, the one that reads the most weights. None: at no size up to `most`."""

    stage: str
    option: str
    whole: int | None
    row: str
    at: int | None
    most: int
    intensity: float
    """FLOPs of products per fused byte of the stage, at the largest size."""
    ridge: float | None
    """FLOPs of products per byte at which the chip's matrix unit and its memory take equally long."""

    def to_dict(self) -> dict[str, Any]:
        return {"stage": self.stage, "option": self.option, "whole": self.whole, "row": self.row, "row_at": self.at,
                "most": self.most, "intensity": self.intensity, "ridge": self.ridge, "text": self.text()}  # fmt: skip

    def text(self) -> str:
        ridge = "" if self.ridge is None else f", ridge {self.ridge:,.1f}"
        own = f"memory-bound at any {self.option} to {self.most:,} ({self.intensity:,.1f} FLOP/B there{ridge})"
        whole = own if self.whole is None else f"compute-bound from {self.option} {self.whole:,}"
        row = f"at no {self.option}" if self.at is None else f"compute-bound from {self.option} {self.at:,}"
        return f"{whole}; {self.row}, which reads the most weights, {row}" if self.row else whole


def turning(stage: str, option: str, now: int, at: Callable[[int], Profile], depth: int, chip: Chip) -> Turning | None:
    """Where `stage` turns as `option`, `now` a certain size, changes: `at(n)` is its profile at n, cut at
    `depth`.

    None where the stage has no products or the chip's file lacks one of the two rates. Memory's part of the work must
    not grow with the size; then every figure is exact, for it is checked at the size and at the size below.
    """
    known: dict[int, Profile] = {}

    def profile(n: int) -> Profile:
        return known[n] if n in known else known.setdefault(n, at(n))

    def rows(n: int) -> list[Row]:
        return profile(n).rows(by="scope", depth=depth)

    def row(n: int) -> Cost | None:
        return next((r.cost for r in rows(n) if r.key == heaviest), None)

    largest = profile(MOST)
    if _excess(largest.total, chip) is None:
        return None
    weighed = [r for r in rows(now) if r.cost.weight_bytes and r.cost.by_dtype]
    heaviest = max(weighed, key=lambda r: r.cost.weight_bytes).key if weighed else ""
    products, nbytes = sum(largest.total.by_dtype.values()), largest.total.bytes_fused
    dtype = max(largest.total.by_dtype, key=largest.total.by_dtype.__getitem__)
    return Turning(
        stage, option, _least(lambda n: profile(n).total, chip, now), heaviest, _least(row, chip, now), MOST,
        products / nbytes, roofline.ridge(chip, dtype),
    )  # fmt: skip


def _least(cost: Callable[[int], Cost | None], chip: Chip, now: int) -> int | None:
    """The least n at which the matrix unit takes at least as long as memory, found on the chord, which for what grows
    by the same amount at every step is the curve itself."""

    def excess(n: int) -> float:
        found = cost(n)
        some = None if found is None else _excess(found, chip)
        return -1.0 if some is None else some

    high, above = MOST, excess(MOST)
    low, below = now, excess(now)
    if above < 0:
        return None
    if below >= 0:
        high, above, low, below = low, below, 1, excess(1)
        if below >= 0:
            return 1
    chord = True
    while high - low > 1:
        guess = low + int((high - low) * below / (below - above)) if chord else (low + high) // 2
        for n in (guess, guess + 1):
            n = min(max(n, low + 1), high - 1)
            if low < n < high:
                some = excess(n)
                if some >= 0:
                    high, above = n, some
                else:
                    low, below = n, some
        chord = not chord
    return high


def _excess(cost: Cost, chip: Chip) -> float | None:
    """Seconds of the matrix unit less those of memory; None where one of them is not known."""
    if cost.bytes_fused is None:
        return None
    terms = roofline.times(cost, chip, cost.bytes_fused).terms
    return terms["compute"] - terms["memory"] if {"compute", "memory"} <= terms.keys() else None


def throughput(stage: str, makes: tuple[int, str], floor_s: float | None) -> dict[str, Any]:
    """`count` of `unit` that one call of the stage makes, and how many in a second at its floor."""
    count, unit = makes
    return {"stage": stage, "count": count, "unit": unit, "per_s": count / floor_s if floor_s else None}
