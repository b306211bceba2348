"""Figures held to limits: a budget file for `costtrace check`, and assert_cost for a test of one's own.

program = "klein:res=512x512"     # as `costtrace diff` takes it; --program replaces it
chip = "v6e"

[[limit]]
stage = "dit"                     # left out: all stages and calls, or the only stage with the scope
scope = "double/mlp"              # left out: the whole stage
flops = "1.7 TFLOP"               # no sign: at most; "== 1.7 TFLOP", ">= 1 TFLOP"
bytes_scoped = "<= 3 GB"
"""

from __future__ import annotations

import math
import operator
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import msgspec

from costtrace import chip as chips
from costtrace import figure, units
from costtrace.core import UNKNOWN
from costtrace.errors import UsageError
from costtrace.figure import QUANTITIES, WHOLE, Figures
from costtrace.summary import Profile

SIGNS: dict[str, Callable[[float, float], bool]] = {"<=": operator.le, "==": operator.eq, ">=": operator.ge}
_FORM = re.compile(r"\s*(<=|==|>=)?\s*(.+?)\s*")
AT_MOST, EQUAL = "<=", "=="


@dataclass(frozen=True, slots=True)
class Bound:
    """A sign and a number of the quantity's base unit."""

    sign: str
    value: float

    def holds(self, value: float) -> bool:
        return SIGNS[self.sign](value, self.value)


def bound(quantity: str, given: Any, default: str) -> Bound:
    """ "<= 3 GB", "3 GB" (with the sign `default`) or a number in the base unit. Raises UsageError."""
    unit = figure.quantity_of(quantity).unit
    if isinstance(given, Real) and not isinstance(given, bool):  # numpy's numbers are too
        given = int(given) if isinstance(given, Integral) else float(given)
        if not 0 <= given < math.inf:
            raise UsageError(f"{quantity} = {given}: a limit is a finite number, 0 or more")
        return Bound(default, given)
    form = _FORM.fullmatch(given) if isinstance(given, str) else None
    if form is None:
        raise UsageError(f"{quantity} = {given!r}: write a limit with its unit, like {units.example(unit)}")
    try:
        return Bound(form[1] or default, units.parse(form[2], unit))
    except UsageError as e:
        raise UsageError(f"{quantity} = {given!r}: {e}") from None


@dataclass(frozen=True, slots=True)
class Limit:
    """What one scope may cost. Empty `stage` and `scope`: see figure.WHOLE."""

    stage: str
    scope: str
    bounds: dict[str, Bound]


class _Budget(msgspec.Struct, forbid_unknown_fields=True):
    limit: list[dict[str, Any]]
    program: str = ""
    chip: str = ""


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget file as read."""

    program: str
    chip: str
    limits: list[Limit]


def load(path: Path) -> Budget:
    """The budget in a TOML file. Raises UsageError with the file, the place and the fix."""
    try:
        read = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _Budget)
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}: give the path of a budget file") from None
    except (ValueError, RecursionError, msgspec.ValidationError) as e:
        raise UsageError(f"{path}: {e}: a budget has program, chip and [[limit]] tables") from None
    limits = []
    for number, table in enumerate(read.limit, 1):
        stage, scope = (str(table.pop(key, WHOLE)) for key in ("stage", "scope"))
        if not table:
            raise UsageError(f"{path}: limit {number} limits nothing: add a quantity: {', '.join(QUANTITIES)}")
        try:
            limits.append(Limit(stage, scope, {q: bound(q, given, AT_MOST) for q, given in table.items()}))
        except UsageError as e:
            raise UsageError(f"{path}: limit {number}: {e}") from None
    return Budget(read.program, read.chip, limits)


@dataclass(frozen=True, slots=True)
class Line:
    """One limit beside the figure. `passed` is None where the figure is not known: then it is no pass."""

    stage: str
    scope: str
    quantity: str
    sign: str
    limit: float
    value: float | None
    passed: bool | None
    why: str = ""
    """Of a figure that is not known, or is a lower bound only."""

    @property
    def over(self) -> float | None:
        """The figure over the limit, less 1."""
        return None if self.value is None or not self.limit else self.value / self.limit - 1

    def told(self) -> str:
        """'dit: double/mlp: flops is 5.1 TFLOP, the limit is <= 1.7 TFLOP'; every digit, as a budget takes it, where
        text hides a breach and where the limit must be met exactly."""
        unit = QUANTITIES[self.quantity].unit
        value, limit = (units.text(n, unit) for n in (self.value, self.limit))
        if self.value is not None and not self.passed and (value == limit or self.sign == EQUAL):
            value, limit = units.exact(self.value, unit), units.exact(self.limit, unit)
        place = ": ".join(part for part in (self.stage, self.scope) if part) or "all calls"
        why = f" ({self.why})" if self.passed is None and self.why else ""
        return f"{place}: {self.quantity} is {value}, the limit is {self.sign} {limit}{why}"


def checked(figures: Figures, limits: list[Limit]) -> list[Line]:
    """A line for each quantity of each limit. Raises UsageError for a stage or scope that is not there."""
    return [line for limit in limits for line in _lines(figures, limit)]


def _lines(figures: Figures, limit: Limit) -> Iterator[Line]:
    whole = limit.stage == WHOLE and limit.scope == WHOLE
    status = figures.status if whole else figures.stage(limit.stage, limit.scope).status
    lacking = figures.lacking(limit.stage, limit.scope)
    for quantity, wanted in limit.bounds.items():
        value = figures.of(quantity, limit.stage, limit.scope)
        passed = None if value is None else wanted.holds(value)
        why = "a part of the program has no price" if status == UNKNOWN else ""
        if lacking and QUANTITIES[quantity].unit == "s":
            why = lacking[0]
        if passed and why and wanted.sign != ">=":
            passed = None  # what is known is a lower bound
        yield Line(limit.stage, limit.scope, quantity, wanted.sign, wanted.value, value, passed, why)


def assert_cost(
    fn: Callable[..., Any] | Profile, *args: Any, scope: str = WHOLE, chip: str = "v6e",
    jit: Mapping[str, Any] | None = None, weights: int | str | None = None, **limits: int | float | str,
) -> Profile:  # fmt: skip
    """The profile of `fn` on abstract arguments (or the Profile given), once every limit on `scope` holds.

        costtrace.assert_cost(mlp, params, x, flops=2 * 8 * 64 * 256, bytes_fused="<= 50 kB")

    limits: quantities of figure.QUANTITIES; a number must be met exactly, text has a sign and a unit (no sign: at
    most). chip: for floor_s and pessimistic_s. Raises AssertionError that names the scope and both numbers; UsageError.
    """
    __tracebackhide__ = True  # pytest then points at the test's own line
    if isinstance(fn, Profile):
        made = fn
    else:
        from costtrace.profiler import profile

        made = profile(fn, *args, jit=jit, weights=weights)
    if not limits:
        raise UsageError(f"assert_cost({made.name}) asserts nothing: add a quantity: {', '.join(QUANTITIES)}")
    figures = figure.of_profiles(made.name, chips.load(chip), [(made.name, 1, made)])
    bounds = {q: bound(q, v, EQUAL if not isinstance(v, str) else AT_MOST) for q, v in limits.items()}
    broken = [line.told() for line in checked(figures, [Limit(made.name, scope, bounds)]) if not line.passed]
    if broken:
        raise AssertionError("; ".join(broken))
    return made


def programs(budgets: list[tuple[Path, Budget]], given: str | None) -> Iterator[tuple[str, Budget]]:
    """(program, budget) of each file. Raises UsageError for a budget that names no program."""
    for path, each in budgets:
        if not (given or each.program):
            raise UsageError(f'{path} names no program: add program = "klein", or give --program')
        yield given or each.program, each
