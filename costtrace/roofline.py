"""Cost x Chip -> seconds: one term per unit of the chip that the work uses, the largest binds. No jax here.

Matrix work of all dtypes shares one unit, so its times add up; so does vector work (with linalg and fft). A rate that
the chip file lacks leaves its work out, named in `Times.missing`: the seconds are then too low by an unknown amount.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from costtrace import units
from costtrace.chip import Chip
from costtrace.chipfile import Number
from costtrace.core import Cost
from costtrace.errors import UsageError

TERMS = ("compute", "memory", "vector", "transcendental", "integer", "link", "host")


@dataclass(frozen=True, slots=True)
class Part:
    """One quotient of a term: `amount` in `unit` over the product of `numbers` (and `share`, a measured efficiency)."""

    term: str
    amount: int
    unit: str
    dtype: str
    numbers: tuple[Number, ...]
    share: Number | None = None

    @property
    def seconds(self) -> float:
        rate = math.prod(n.value for n in self.numbers)
        return self.amount / (rate * (self.share.value if self.share else 1.0))

    def formula(self) -> str:
        """'10.19 TFLOP bfloat16 / 918 TFLOP/s', as one would write it."""
        amount = f"{units.text(self.amount, self.unit)} {self.dtype}".rstrip()
        rate = " x ".join(n.text for n in self.numbers)
        if self.share:
            rate += f" x {units.text(self.share.value, '1')}"
        return f"{amount} / ({rate})" if " x " in rate else f"{amount} / {rate}"


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds by term, only terms with work and a rate. `missing`: a line for each rate the chip file lacks; `notes`: a
    line for each measured rate it lacks where one was asked for."""

    terms: dict[str, float]
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The largest term: all units busy at once."""
        return max(self.terms.values(), default=0.0)

    @property
    def serial_s(self) -> float:
        """The sum of the terms: no two units busy at once."""
        return sum(self.terms.values())

    @property
    def bound(self) -> str:
        """The term that binds, one of TERMS; memory where there is no work at all."""
        return max(self.terms, key=self.terms.__getitem__, default="memory")


def times(cost: Cost, chip: Chip, nbytes: int, efficiency: bool = False) -> Times:
    """Seconds per term for `cost` and `nbytes` to and from HBM; with `efficiency` at measured rates where known."""
    missing: list[str] = []
    notes: list[str] = []
    terms: dict[str, float] = {}
    for part in parts(cost, chip, nbytes, efficiency, missing, notes):
        terms[part.term] = terms.get(part.term, 0.0) + part.seconds
    return Times(terms, tuple(missing), tuple(notes))


def parts(
    cost: Cost,
    chip: Chip,
    nbytes: int,
    efficiency: bool = False,
    missing: list[str] | None = None,
    notes: list[str] | None = None,
) -> Iterator[Part]:
    """The quotients that `times` adds up; `missing` and `notes` collect what it says there."""
    missing, notes = [] if missing is None else missing, [] if notes is None else notes
    work: dict[tuple[str, str], Mapping[str, int]] = {
        ("compute", "matrix"): cost.by_dtype,
        ("memory", "hbm"): {"": nbytes},
        ("vector", "vector"): cost.vector_by_dtype,
        ("transcendental", "transcendental"): {"": cost.transcendentals},
        ("integer", "integer"): {"": cost.integer_ops},
        ("link", "link"): {"": cost.collective_bytes},
        ("host", "host"): {"": cost.host_bytes},
    }
    for (term, unit), by_dtype in work.items():
        for dtype, amount in by_dtype.items():
            if not amount:
                continue
            numbers = _rate(chip, unit, dtype)
            if not numbers:
                missing.append(chip.lacks(unit, dtype))
                continue
            asked = efficiency and unit in ("matrix", "hbm") and numbers[-1].tag != "M"
            share = _share(chip, unit, dtype, notes) if asked else None
            yield Part(term, amount, numbers[-1].unit.removesuffix("/s"), dtype, numbers, share)


def _rate(chip: Chip, unit: str, dtype: str) -> tuple[Number, ...]:
    """The numbers whose product is the rate; empty if one is missing."""
    keys = {"hbm": ("hbm.bandwidth",), "link": ("link.count", "link.bandwidth"), "host": ("host.bandwidth",)}.get(unit)
    found = [chip.number(k) for k in keys] if keys else [chip.rate(unit, dtype)]
    return tuple(n for n in found if n is not None) if all(found) else ()


def _share(chip: Chip, unit: str, dtype: str, notes: list[str]) -> Number | None:
    key = "hbm" if unit == "hbm" else chip.dtype_of(unit, dtype)
    share = chip.efficiency(key)
    if share is None:
        what = "HBM bandwidth" if unit == "hbm" else f"{key} matrix rate"
        notes.append(f"no measured {what} on {chip.name}: its peak is used")
    return share


def timed(chip: Chip) -> Chip:
    """The chip. Raises UsageError where its file has no memory rate: nothing on it can be told in seconds."""
    if chip.hbm_bytes_per_s is None:
        raise UsageError(f"{chip.lacks('hbm')}: no seconds are known on it: give its file an [hbm.bandwidth]")
    return chip


def floor_s(cost: Cost, chip: Chip, efficiency: bool = False) -> float | None:
    """Seconds of `cost` as one kernel: fused bytes, every unit at peak. None where fused bytes are not defined, or the
    chip has no rate for them."""
    return _seconds(cost, chip, cost.bytes_fused, efficiency)


def _seconds(cost: Cost, chip: Chip, nbytes: int | None, efficiency: bool) -> float | None:
    if nbytes is None or (nbytes and chip.hbm_bytes_per_s is None):
        return None
    return times(cost, chip, nbytes, efficiency).seconds


def pessimistic_s(cost: Cost, chip: Chip, scoped: bool = True, efficiency: bool = False) -> float | None:
    """The same with every leaf scope a kernel (scoped bytes); with `scoped=False` every primitive (unfused bytes)."""
    return _seconds(cost, chip, cost.bytes_scoped if scoped else cost.bytes_unfused, efficiency)


def serial_s(costs: Iterable[Cost], chip: Chip, scoped: bool = True) -> float:
    """The sum of rows' pessimistic seconds: no row overlaps another. Rows whose bytes are not defined add nothing."""
    return sum(pessimistic_s(c, chip, scoped) or 0.0 for c in costs)


def bounds(cost: Cost, chip: Chip) -> dict[str, str | None]:
    """The binding term for "fused", "scoped" and "unfused" bytes; None where those bytes are not defined."""
    by = {"fused": cost.bytes_fused, "scoped": cost.bytes_scoped, "unfused": cost.bytes_unfused}
    return {name: None if n is None else times(cost, chip, n).bound for name, n in by.items()}


def ridge(chip: Chip, dtype: str = "bfloat16") -> float | None:
    """FLOP per byte above which a product of `dtype` is bound by the matrix unit: peak / bandwidth. None if unknown."""
    peak, hbm = chip.rate("matrix", dtype), chip.hbm_bytes_per_s
    return None if peak is None or hbm is None else peak.value / hbm.value


def explain(cost: Cost, chip: Chip, nbytes: int, efficiency: bool = False) -> list[str]:
    """Lines to follow by hand: each term's formula with its values, the result, then every number with its source."""
    found = list(parts(cost, chip, nbytes, efficiency))
    total = times(cost, chip, nbytes, efficiency)
    lines = []
    for term, seconds in total.terms.items():
        formula = " + ".join(p.formula() for p in found if p.term == term)
        lines.append(f"{term} = {formula} = {units.text(seconds, 's')}")
    each = ", ".join(f"{t} {units.text(s, 's')}" for t, s in total.terms.items())
    lines.append(f"time = max({each}) = {units.text(total.seconds, 's')}: {total.bound} binds")
    for n in dict.fromkeys(n for p in found for n in (*p.numbers, p.share) if n):
        lines += _cited(chip, n)
    lines += [f"left out: {m}" for m in total.missing]
    return lines + [f"note: {m}" for m in total.notes]


def _cited(chip: Chip, n: Number) -> list[str]:
    lines = [f"{chip.name} {n.key} = {n.cite()}"]
    lines += [f"    {text}" for text in (n.convention, n.derivation and f"derived: {n.derivation}") if text]
    return lines + [f"    not used: {c.text} ({c.source}): {c.why}" for c in n.conflicts]
