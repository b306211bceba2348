"""Cost x Chip -> seconds: one term per unit of the chip that the work uses, the largest binds. No jax here.

Matrix work of all dtypes shares one unit, so its times add up; so does vector work (with linalg and fft). A rate that the
chip file lacks leaves its term out, named in `Times.missing`: the seconds are then a lower bound of the roofline itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from costtrace import units
from costtrace.chip import Chip
from costtrace.chipfile import Number
from costtrace.core import Cost

TERMS = ("compute", "memory", "vector", "transcendental", "integer", "link")


@dataclass(frozen=True, slots=True)
class Part:
    """One quotient of a term: `amount` (in `unit`) over `rate` per second (times `share`, a measured efficiency)."""

    term: str
    amount: int
    unit: str
    dtype: str
    rate: float
    numbers: tuple[Number, ...]
    share: Number | None = None

    @property
    def seconds(self) -> float:
        return self.amount / (self.rate * (self.share.value if self.share else 1.0))


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds by term (only terms with work and a rate); `missing` says, a line each, what is left out or unscaled."""

    terms: dict[str, float]
    missing: tuple[str, ...] = ()

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
    """Seconds per term for `cost` moving `nbytes` to and from HBM; with `efficiency`, at measured rates where the file has them."""
    missing: list[str] = []
    terms: dict[str, float] = {}
    for part in parts(cost, chip, nbytes, efficiency, missing):
        terms[part.term] = terms.get(part.term, 0.0) + part.seconds
    return Times({t: terms[t] for t in TERMS if t in terms}, tuple(missing))


def parts(cost: Cost, chip: Chip, nbytes: int, efficiency: bool = False,
          missing: list[str] | None = None) -> Iterator[Part]:
    """The quotients that `times` adds up, in TERMS' order; what no rate prices goes to `missing`."""
    lacks = [] if missing is None else missing
    for term, unit, work in (("compute", "matrix", cost.by_dtype), ("memory", "hbm", {"": nbytes}),
                             ("vector", "vector", cost.vector_by_dtype),
                             ("transcendental", "transcendental", {"": cost.transcendentals}),
                             ("integer", "integer", {"": cost.integer_ops}), ("link", "link", {"": cost.collective_bytes})):
        for dtype, amount in work.items():
            if not amount:
                continue
            rate, numbers = _rate(chip, unit, dtype)
            if rate is None:
                lacks.append(chip.lacks(unit, dtype))
                continue
            share = _share(chip, unit, dtype, lacks) if efficiency and unit in ("matrix", "hbm") else None
            written = "B" if unit in ("hbm", "link") else "OP" if numbers[0].unit == "OP/s" else "FLOP"
            yield Part(term, amount, written, dtype, rate, numbers, share)


def _rate(chip: Chip, unit: str, dtype: str) -> tuple[float | None, tuple[Number, ...]]:
    keys = {"hbm": ("hbm.bandwidth",), "link": ("link.count", "link.bandwidth")}.get(unit) or (
        f"{unit}.{chip.dtype_of(unit, dtype)}",)
    numbers = [chip.number(k) for k in keys]
    found = tuple(n for n in numbers if n is not None)
    if len(found) < len(keys):
        return None, ()
    rate = found[0].value
    for n in found[1:]:
        rate *= n.value
    return rate, found


def _share(chip: Chip, unit: str, dtype: str, lacks: list[str]) -> Number | None:
    key = "hbm" if unit == "hbm" else chip.dtype_of(unit, dtype)
    share = chip.efficiency(key)
    if share is None:
        lacks.append(f"no measured {'HBM rate' if unit == 'hbm' else f'{key} matrix rate'} on {chip.name}: its peak is used")
    return share


def floor_s(cost: Cost, chip: Chip, efficiency: bool = False) -> float | None:
    """Seconds of `cost` as one kernel: its fused bytes, every unit at peak. None where its fused bytes are not defined."""
    return None if cost.bytes_fused is None else times(cost, chip, cost.bytes_fused, efficiency).seconds


def pessimistic_s(cost: Cost, chip: Chip, scoped: bool = True, efficiency: bool = False) -> float | None:
    """The same with every leaf scope a kernel (scoped bytes), or with `scoped=False` every primitive (unfused bytes)."""
    nbytes = cost.bytes_scoped if scoped else cost.bytes_unfused
    return None if nbytes is None else times(cost, chip, nbytes, efficiency).seconds


def serial_s(costs: Iterable[Cost], chip: Chip, scoped: bool = True) -> float:
    """The sum of rows' pessimistic seconds: no row overlaps another. Rows whose bytes are not defined count nothing."""
    return sum(pessimistic_s(c, chip, scoped) or 0.0 for c in costs)


def bounds(cost: Cost, chip: Chip) -> dict[str, str | None]:
    """The binding term for fused, scoped and unfused bytes; None where those bytes are not defined."""
    by = {"fused": cost.bytes_fused, "scoped": cost.bytes_scoped, "unfused": cost.bytes_unfused}
    return {name: None if n is None else times(cost, chip, n).bound for name, n in by.items()}


def ridge(chip: Chip, dtype: str = "bfloat16") -> float | None:
    """FLOP per byte above which a product of `dtype` is bound by the matrix unit: peak / bandwidth. None if unknown."""
    peak, hbm = chip.rate("matrix", dtype), chip.hbm_bytes_per_s
    return None if peak is None or hbm is None else peak.value / hbm.value


def explain(cost: Cost, chip: Chip, nbytes: int, efficiency: bool = False) -> list[str]:
    """Lines that can be followed by hand: each term's formula with its values, then every number with its source."""
    missing: list[str] = []
    found = list(parts(cost, chip, nbytes, efficiency, missing))
    total = times(cost, chip, nbytes, efficiency)
    lines = []
    for term, seconds in total.terms.items():
        quotients = [_quotient(p) for p in found if p.term == term]
        lines.append(f"{term} = {' + '.join(quotients)} = {units.text(seconds, 's')}")
    each = ", ".join(f"{t} {units.text(s, 's')}" for t, s in total.terms.items())
    lines.append(f"time = max({each}) = {units.text(total.seconds, 's')}: {total.bound} binds")
    cited = dict.fromkeys(n for p in found for n in (*p.numbers, *([p.share] if p.share else [])))
    for n in cited:
        lines.append(f"{chip.name} {n.key}: {n.cite()}{f'; {n.convention}' if n.convention else ''}")
        if n.derivation:
            lines.append(f"    derived: {n.derivation}")
        lines += [f"    not used: {c.text}, {c.source}: {c.why}" for c in n.conflicts]
    return lines + [f"left out: {m}" if "peak is used" not in m else f"note: {m}" for m in missing]


def _quotient(p: Part) -> str:
    amount = f"{units.text(p.amount, p.unit)}{f' {p.dtype}' if p.dtype else ''}"
    rate = " x ".join(n.text for n in p.numbers)
    share = f" x {units.text(p.share.value, '1')}" if p.share else ""
    return f"{amount} / ({rate}{share})" if share or len(p.numbers) > 1 else f"{amount} / {rate}"
