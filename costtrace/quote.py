"""Quoted numbers and sentences, each derived again: from the hand count's own rows, and from the program.

A quote that only its author's figures give is told from one that the program gives too; one whose parts are wrong and
cancel is told from one that is right; one that its author's own rules contradict is told from all of these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from costtrace import formula, units
from costtrace.claim import Claims, Quote
from costtrace.errors import UsageError
from costtrace.evidence.hand import ALL, FIGURES, Hand, row_of
from costtrace.evidence.traced import Traced
from costtrace.verdict import CONVENTION, DIFFERS, EQUAL, figures

ARITHMETIC, CANCELS, UNFOUNDED = "arithmetic", "cancels", "does not follow"
"""arithmetic: it rests on no figure of the model, and holds. cancels: the program gives it too, from other figures.
does not follow: its author's own figures or rules do not give it."""
QUOTE_VERDICTS = (EQUAL, CONVENTION, DIFFERS, CANCELS, ARITHMETIC, UNFOUNDED)

_NUMBER = re.compile(r"([\d,]*\.?\d+)\s*(.*)")


class Witness(Protocol):
    """What a quote's formula asks: figures of rows, stages or the pipeline."""

    def figure(self, quantity: str, key: str) -> Any: ...
    def parameters(self, stage: str) -> Any: ...


class Program:
    """The traced stages as a witness of the hand count's rows. A stage's fused bytes are those of its rows and of what
    no row covers, each a kernel, as in a report's table."""

    def __init__(self, hand: Hand, stages: Mapping[str, Traced]) -> None:
        self.hand, self.stages = hand, stages
        self.paths: dict[tuple[str, str], list[str]] = {}
        for claim in hand.claims.claims:
            if claim.measures != "parameters" and claim.stage in stages:
                self.paths.setdefault((claim.stage, claim.label), stages[claim.stage].paths(claim.paths))

    def figure(self, quantity: str, key: str) -> Any:
        if key == ALL:
            return sum(stage.calls * self.figure(quantity, name) for name, stage in self.stages.items())
        if key in self.stages:
            if quantity != "bytes_fused":
                return figures(self.stages[key].profile.total)[quantity]
            some = [path for (stage, _), paths in self.paths.items() if stage == key for path in paths if path]
            rest = self.stages[key].uncovered(set(some))
            return self.stages[key].cost(some).bytes_fused + sum(cost.bytes_fused for _, cost in rest)
        stage, row = row_of(key, self.hand.rows)
        return figures(self.stages[stage].cost(self.paths[stage, row]))[quantity]

    def parameters(self, stage: str) -> int:
        return self.stages[stage].profile.parameters


class Mixed:
    """The program's products and bytes with the hand count's elementwise work: what is left of a difference when the
    convention is taken out."""

    def __init__(self, hand: Hand, program: Program) -> None:
        self.hand, self.program = hand, program

    def figure(self, quantity: str, key: str) -> Any:
        if quantity == "flops":
            return self.program.figure("product_flops", key) + self.hand.figure("vector_flops", key)
        return (self.hand if quantity == "vector_flops" else self.program).figure(quantity, key)

    def parameters(self, stage: str) -> Any:
        return self.program.parameters(stage)


class Swapped:
    """The hand count with one figure, (function, row), taken from the program."""

    def __init__(self, hand: Hand, program: Program, key: tuple[str, str]) -> None:
        self.hand, self.program, self.key = hand, program, key

    def figure(self, quantity: str, key: str) -> Any:
        mine = (FIGURES.get(self.key[0]), self.key[1]) == (quantity, key)
        return (self.program if mine else self.hand).figure(quantity, key)

    def parameters(self, stage: str) -> Any:
        return (self.program if self.key == ("params", stage) else self.hand).parameters(stage)


@dataclass(slots=True)
class Answer:
    """A quote with what its formula gives. Values are in base units, `unit` says which; truths for a sentence."""

    quote: Quote
    unit: str
    hand: Any
    traced: Any
    verdict: str
    checks: list[tuple[Any, str]] = field(default_factory=list)
    """(what the author's own rule gives, why) where it contradicts the quote."""
    figures: list[tuple[str, str, Any, Any]] = field(default_factory=list)
    """(function, row, hand, traced) of what the formula asked."""
    sides: tuple[str, ...] = ()
    """A sentence's comparison with its values: the hand count's, the program's."""


def answer(quote: Quote, hand: Hand, program: Program) -> Answer:
    """The quote derived from both witnesses. Raises UsageError where its formula is none."""
    place = f"quote {quote.quoted!r} ({quote.about})"
    asked: dict[tuple[str, str], Any] = {}
    given = formula.value(quote.formula, hand.names | _functions(hand, hand, asked), place)
    seen: dict[tuple[str, str], Any] = {}
    traced = formula.value(quote.formula, hand.names | _functions(program, hand, seen), place)
    mixed = formula.value(quote.formula, hand.names | _functions(Mixed(hand, program), hand, {}), place)
    found = Answer(quote, unit_of(quote.quoted), given, traced if asked else None, EQUAL)
    if isinstance(given, bool):
        found.sides = tuple(
            formula.sides(quote.formula, hand.names | _functions(which, hand, {})) for which in (hand, program)
        )
    found.figures = [(what, key, asked[what, key], seen[what, key]) for what, key in asked]
    for text, why in quote.checks:
        other = formula.value(text, hand.names | _functions(hand, hand, {}), place)
        if not prints(other, quote.quoted):
            found.checks.append((other, why))
    if not prints(given, quote.quoted) or found.checks:
        found.verdict = UNFOUNDED
    elif not asked:
        found.verdict = ARITHMETIC
    elif prints(traced, quote.quoted):
        found.verdict = CANCELS if _cancelling(quote, hand, program, asked) else EQUAL
    else:
        found.verdict = CONVENTION if prints(mixed, quote.quoted) else DIFFERS
    return found


@dataclass(frozen=True, slots=True)
class Said:
    """An author's floor on several chips: seconds of work, and of collectives by strategy."""

    chip: str
    chips: int
    work_s: float
    collective_s: Mapping[str, float]
    source: str


def said(claims: Claims, config: Any, calls: Mapping[str, int]) -> Said | None:
    """What the claims say of several chips under a configuration; None where they say nothing of it."""
    envelope = claims.envelope
    if envelope is None or any(str(getattr(config, k, None)) != v for k, v in claims.about.items()):
        return None
    hand = Hand(claims, config, calls)
    known = hand.names | _functions(hand, hand, {})
    work = formula.value(envelope.work, known, f"the work of {envelope.chips} chips")
    parts = {name: formula.value(text, known, f"the collectives of {name}") for name, text in
             envelope.collectives.items()}  # fmt: skip
    return Said(envelope.chip, envelope.chips, work, parts, envelope.source or claims.source)


def _cancelling(quote: Quote, hand: Hand, program: Program, asked: dict[tuple[str, str], Any]) -> bool:
    """True where one figure alone, taken from the program, would print other digits."""
    if len(asked) < 2:
        return False
    for key in asked:
        swapped = formula.value(quote.formula, hand.names | _functions(Swapped(hand, program, key), hand, {}))
        if not prints(swapped, quote.quoted):
            return True
    return False


def _functions(witness: Witness, hand: Hand, log: dict[tuple[str, str], Any]) -> dict[str, Callable[..., Any]]:
    """What a quote's formula may call, asking `witness`; every figure is noted in `log`."""

    def summed(what: str, quantity: str) -> Callable[..., Any]:
        def of(*keys: str) -> Any:
            for key in keys:
                log[what, key] = witness.figure(quantity, key)
            return sum(log[what, key] for key in keys)

        return of

    def params(stage: str) -> Any:
        log["params", stage] = witness.parameters(stage)
        return log["params", stage]

    made = {what: summed(what, quantity) for what, quantity in FIGURES.items()}

    def floor_s(stage: str, flops_per_s: float, bytes_per_s: float) -> Any:
        return max(made["flops"](stage) / flops_per_s, made["unfused"](stage) / bytes_per_s)

    def serial_s(stage: str, flops_per_s: float, bytes_per_s: float) -> Any:
        rows = [f"{stage}:{label}" for label in hand.rows[stage]]
        return sum(floor_s(row, flops_per_s, bytes_per_s) for row in rows)

    return {**made, "params": params, "floor_s": floor_s, "serial_s": serial_s}


def unit_of(quoted: str) -> str:
    """The base unit of a quoted number: "FLOP" of "10.191 TFLOP"; "" for a plain one and for a sentence."""
    number = _NUMBER.fullmatch(quoted)
    return _unit(number[2], quoted)[0] if number and number[2] else ""


def _unit(written: str, quoted: str) -> tuple[str, float]:
    """(base unit, factor) of a written unit. Raises UsageError."""
    if written in ("%", "x"):
        return "1", 0.01 if written == "%" else 1.0
    if written in ("k", "M", "G"):  # a plain count, prefixed
        return "", 10.0 ** units.PREFIXES[written]
    for unit in ("FLOP", "FLOP/B", "FLOP/s", "B", "B/s", "s"):
        if written.endswith(unit):
            prefix = written.removesuffix(unit)
            if prefix in (*units.PREFIXES, *units.BINARY):
                return unit, units.parse(f"1 {written}", unit)
    raise UsageError(f"quote {quoted!r}: {written!r} is no unit: write one like TFLOP, GB, ms, %, x or none")


def _places(digits: str) -> int:
    return len(digits.partition(".")[2])


def prints(value: Any, quoted: str) -> bool:
    """True where `value`, in base units, rounds to the digits of `quoted`; a sentence holds where it is true."""
    if isinstance(value, bool):
        return value
    number = _NUMBER.fullmatch(quoted)
    if number is None:
        raise UsageError(f"quote {quoted!r} is no number: give it one, or a comparison as its formula")
    factor = _unit(number[2], quoted)[1] if number[2] else 1.0
    half = 0.5 * 10.0 ** -_places(number[1])
    return bool(abs(float(value) / factor - float(number[1].replace(",", ""))) <= half * (1 + 1e-9))


def shown(value: Any, quoted: str) -> str:
    """`value` in the unit of `quoted`, two digits further: "10.19050 TFLOP"."""
    if value is None or isinstance(value, bool):
        return {True: "true", False: "false", None: "-"}[value]
    number = _NUMBER.fullmatch(quoted)
    digits, written = (number[1], number[2]) if number else ("1.0", "")
    factor = _unit(written, quoted)[1] if written else 1.0
    return f"{float(value) / factor:,.{_places(digits) + 2}f}" + (f" {written}" if written else "")
