"""Verdicts -> sentences, largest first. Nobody writes a finding by hand: each comes from a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from costtrace import formula, units
from costtrace.claim import QUANTITIES, Claim
from costtrace.evidence.hand import PARTS, Hand
from costtrace.evidence.traced import Shape, Traced
from costtrace.quote import CANCELS, UNFOUNDED, Answer, shown
from costtrace.shortcut import Decomposed
from costtrace.verdict import CONVENTION, DIFFERS, EQUAL, NOT_CLAIMED, NOT_THERE, Line

SAID = {
    "product_flops": "products",
    "vector_flops": "elementwise",
    "flops": "FLOPs",
    "weight_bytes": "weights",
    "bytes_fused": "fused bytes",
    "bytes_scoped": "scoped bytes",
    "bytes_unfused": "unfused bytes",
    "transcendentals": "transcendentals",
    "parameters": "parameters",
}
SHOWN_SHARES = 6


@dataclass(frozen=True, slots=True)
class Finding:
    """What a comparison found. size: the difference as a share of all calls' FLOPs, or of their scoped bytes, by which
    findings are ordered; 0 for a quote. `difference` is hand - traced in base units, of one call of the stage."""

    stage: str
    scope: str
    size: float
    text: str
    quantity: str = ""
    difference: float = 0.0


def findings(
    lines: Iterable[Line],
    answers: Iterable[Answer],
    shortcuts: Iterable[Decomposed],
    hand: Hand,
    stages: Mapping[str, Traced],
    totals: Mapping[str, int],
) -> list[Finding]:
    """Everything that does not agree, largest first: what differs, is missing or is masked, then quotes, whose size has
    no common measure."""
    some = list(lines)
    found = [_finding(line, hand, stages, totals) for line in told(some) if line.verdict in (DIFFERS, NOT_THERE)]
    found += _missing(some, totals) + _masked(some, hand, stages, totals)
    for cut in shortcuts:
        away = float(cut.claimed - cut.traced)
        if away:
            size = _share(abs(away) * cut.calls, "product_flops", totals)
            found.append(Finding(cut.shortcut.stage, ".", size, _cut(cut), "product_flops", away))
    found.sort(key=lambda finding: -finding.size)
    return found + [Finding("", "", 0.0, text, "quote") for text in map(quoted, answers) if text]


def conventions(
    lines: Iterable[Line], hand: Hand, stages: Mapping[str, Traced], totals: Mapping[str, int]
) -> list[Finding]:
    """What differs by convention alone, largest first."""
    some = (line for line in told(lines) if line.verdict == CONVENTION)
    return sorted((_finding(line, hand, stages, totals) for line in some), key=lambda finding: -finding.size)


def told(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines that do not agree, each difference once: FLOPs are said of their parts where there are parts, scoped
    bytes together with fused where both differ alike."""
    some = list(lines)
    by_key = {(line.stage, line.row, line.quantity): line for line in some}
    for line in some:
        if line.verdict == EQUAL:
            continue
        if line.quantity == "flops" and any((line.stage, line.row, part) in by_key for part in PARTS):
            continue
        fused = by_key.get((line.stage, line.row, "bytes_fused"))
        if line.quantity == "bytes_scoped" and fused and (fused.hand, fused.traced) == (line.hand, line.traced):
            continue
        yield line


def _share(away: float, quantity: str, totals: Mapping[str, int]) -> float:
    """Of all calls' FLOPs, or of their scoped bytes, whatever the kind."""
    measure = {"FLOP": "flops", "B": "bytes_scoped"}.get(QUANTITIES[quantity], quantity)
    whole = totals.get(measure) or 0
    return away / whole if whole else 0.0


def _finding(line: Line, hand: Hand, stages: Mapping[str, Traced], totals: Mapping[str, int]) -> Finding:
    away = float(line.difference if line.hand is not None else (line.xla or 0) - line.traced)
    size = _share(abs(away) * line.calls, line.quantity, totals)
    return Finding(line.stage, line.scope, size, _sentence(line, hand, stages[line.stage]), line.quantity, away)


def _missing(lines: Iterable[Line], totals: Mapping[str, int]) -> list[Finding]:
    """One finding for each part that no claim covers, of all its quantities."""
    parts: dict[tuple[str, str], list[Line]] = {}
    for line in told(lines):
        if line.verdict == NOT_CLAIMED:
            parts.setdefault((line.stage, line.row), []).append(line)
    found = []
    for (stage, row), some in parts.items():
        sizes = {line.quantity: _share(float(line.traced) * line.calls, line.quantity, totals) for line in some}
        products = [line for line in some if line.quantity == "product_flops"]
        first = products[0] if products else max(some, key=lambda line: sizes[line.quantity])
        what = ", ".join(f"{number(line.traced, QUANTITIES[line.quantity])} of {SAID[line.quantity]}" for line in some)
        found.append(
            Finding(
                stage,
                some[0].scope,
                max(sizes.values()),
                f"{stage}: {row}: 0 claimed, traced {what}" + _calls(first),
                first.quantity,
                float(first.difference),
            )
        )
    return found


def _masked(
    lines: Iterable[Line], hand: Hand, stages: Mapping[str, Traced], totals: Mapping[str, int]
) -> list[Finding]:
    """Products that are claimed and executed though a static mask throws a part of them away."""
    found = []
    for line in lines:
        if line.quantity != "product_flops" or not line.traced:
            continue
        hidden = stages[line.stage].hidden(line.scopes or ("",))
        if not hidden:
            continue
        left = 1 - hidden / line.traced
        text = (
            f"{line.stage}: {line.row}: masks leave {number(line.traced - hidden, 'FLOP')} of the "
            f"{number(line.traced, 'FLOP')} of products that are executed"
        )
        scores = next((p for claim in line.claims for p in claim.products if not p.weights), None)
        if scores is not None:
            keys = float(formula.value(scores.n, hand.names))
            text += f": claims {scores.n} keys, {keys:g}, of which {keys * left:.1f} are live on average"
        size = _share(hidden * line.calls, "product_flops", totals)
        away = float((line.traced if line.hand is None else line.hand) - line.traced + hidden)
        found.append(Finding(line.stage, line.scope, size, text + _calls(line), "product_flops", away))
    return found


def _calls(line: Line) -> str:
    return f" (in each of {line.calls} calls)" if line.calls > 1 else ""


def _sentence(line: Line, hand: Hand, stage: Traced) -> str:
    what, unit = SAID[line.quantity], QUANTITIES[line.quantity]
    place = f"{line.stage}: {line.row}"
    if line.hand is None:
        xla = "is silent" if line.xla is None else f"counts {number(line.xla, unit)}"
        return f"{place}: {what}: {number(line.traced, unit)} traced, XLA {xla}: {'; '.join(line.notes)}"
    if line.verdict == NOT_THERE:
        wanted = " + ".join(line.wanted) or "."
        return f"{place}: {what}: {number(line.hand, unit)} claimed, but the program has no part {wanted}"
    more = "more" if line.difference > 0 else "less"
    text = (
        f"{place}: {what}: {number(line.hand, unit)} claimed, {number(line.traced, unit)} traced, "
        f"{number(abs(line.difference), unit)} {more} claimed{_calls(line)}"
    )
    if line.absent:
        text += f" (the program has no part {' + '.join(line.absent)})"
    if line.quantity == "flops" and line.parts:
        text += f" ({number(line.parts['products'], unit)} of it products)"
    if 50 * abs(line.parts.get("weights", 0)) > abs(line.difference):
        text += f" ({number(abs(line.parts['weights']), unit)} of it weights)"
    if line.quantity == "product_flops" and line.verdict == CONVENTION:
        return f"{text}: the same products, the padding of convolutions multiplied too"
    if line.quantity in ("product_flops", "weight_bytes"):
        rows = [c for c in hand.claims.claims if (c.stage, c.label) == (line.stage, line.row) and c.products]
        apart = by_shape(rows[0], hand, stage, line.quantity == "weight_bytes") if rows else []
        text += f": {'; '.join(apart)}" if apart else ""
    return text


def number(value: Any, unit: str) -> str:
    """A figure of a sentence: "1.308 TFLOP", "0", "3,875,544,576"."""
    if not unit:
        return f"{int(value):,}"
    return "0" if not value else units.text(float(value), unit)


def by_shape(claim: Claim, hand: Hand, stage: Traced, weights: bool = False) -> list[str]:
    """Where the claim's products and the program's differ in one size: "claims to_kv 6 * D wide, the program has
    3 * D"; then what is left on either side. With `weights` only products that hold weights."""
    ours = stage.shapes(stage.paths(claim.paths))
    claimed: list[tuple[Any, Shape, int]] = []
    for product in claim.products:
        sizes = (formula.value(text, hand.names) for text in (product.m, product.k, product.n, product.times))
        m, k, n, times = (int(size) for size in sizes)
        shape = Shape(m, k, n)
        same = min(times, ours[shape])
        ours[shape] -= same
        if times > same and (product.weights or not weights):
            claimed.append((product, shape, times - same))
    told = []
    for product, shape, times in sorted(claimed, key=lambda c: -_flops(c[1]) * c[2]):
        near = next((other for other, n in ours.items() if n and len(_apart(shape, other)) == 1), None)
        name = f"{product.name} " if product.name else ""
        if near is None:
            told.append(f"claims {name}{shape} {times} times, which the program has not")
            continue
        ours[near] -= min(times, ours[near])
        which = _apart(shape, near)[0]
        text, word = {"m": (product.m, "rows"), "k": (product.k, "deep"), "n": (product.n, "wide")}[which]
        found = getattr(near, which)
        told.append(f"claims {name}{text} {word}, the program has {in_terms(found, text, hand.names)}")
    rest = Counter({shape: n for shape, n in ours.items() if n > 0})
    if claimed and rest and not weights:
        shape, n = max(rest.items(), key=lambda item: _flops(item[0]) * item[1])
        told.append(f"the program has {shape} {n} times, which is not claimed")
    return told


def _flops(shape: Shape) -> int:
    return 2 * shape.m * shape.k * shape.n


def _apart(a: Shape, b: Shape) -> list[str]:
    return [which for which in "mkn" if getattr(a, which) != getattr(b, which)]


def in_terms(found: int, text: str, names: Mapping[str, Any]) -> str:
    """`found` in the terms of a claim's formula, where it is a whole multiple of one: 4608 as "3 * D (4608)"."""
    sizes = {name: names[name] for name in formula.names_in(text) if isinstance(names.get(name), int)}
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        if size > 1 and found % size == 0:
            times = found // size
            return f"{name if times == 1 else f'{times} * {name}'} ({found})"
    return str(found)


def _cut(cut: Decomposed) -> str:
    share = float(cut.claimed - cut.traced) / cut.traced if cut.traced else 0.0
    parts = [
        f"{share.weights} {number(abs(share.difference), 'FLOP')} {'more' if share.difference > 0 else 'less'} "
        f"(its weights meet {_tokens(share.tokens)})"
        for share in cut.shares[:SHOWN_SHARES]
        if share.difference
    ]
    claimed, traced = number(cut.claimed, "FLOP"), number(cut.traced, "FLOP")
    head = f"{cut.shortcut.stage}: {cut.shortcut.formula} claims {claimed}, products with its weights are {traced}"
    return f"{head}: {share:+.1%}: {'; '.join(parts)}"


def _tokens(tokens: Any) -> str:
    if not tokens:
        return "no product"
    return "1 row" if tokens == 1 else f"{float(tokens):,g} rows"


def quoted(found: Answer) -> str:
    """The sentence about a quote that does not agree; empty for one that does."""
    quote = found.quote
    head = f'"{quote.quoted}" ({quote.about})'
    if found.verdict == UNFOUNDED and found.checks:
        told = "; ".join(f"{why}: {shown(value, quote.quoted)}" for value, why in found.checks)
        return f"{head} does not follow: {told}"
    if found.verdict == UNFOUNDED and found.sides:
        return f"{head} does not follow from its own numbers: {found.sides[0]} is false"
    if found.verdict == UNFOUNDED:
        return f"{head} does not follow from its own numbers: {quote.formula} is {shown(found.hand, quote.quoted)}"
    if found.verdict == CANCELS:
        apart = [f"{what} of {key} by {h / t - 1:+.1%}" for what, key, h, t in found.figures if h != t and t]
        return f"{head} agrees with the program because errors cancel: {', '.join(apart)}"
    if found.verdict in (DIFFERS, CONVENTION) and found.sides:
        return f"{head}: follows from the hand count ({found.sides[0]}), not from the program ({found.sides[1]})"
    if found.verdict in (DIFFERS, CONVENTION):
        why = " (elementwise counting alone)" if found.verdict == CONVENTION else ""
        return f"{head}: the program gives {shown(found.traced, quote.quoted)}{why}"
    return ""
