"""An audit -> plain data (as `--format json` prints it), tables and text. No comparison is made here."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from costtrace import formula, units
from costtrace.audit import Audit
from costtrace.claim import QUANTITIES, Claim
from costtrace.errors import UsageError
from costtrace.finding import Finding, number
from costtrace.quote import ARITHMETIC, Answer, shown
from costtrace.report import table
from costtrace.report.checkpoint import plain as plain_checkpoint
from costtrace.report.checkpoint import told as told_checkpoint
from costtrace.report.document import Document, plain, preamble
from costtrace.report.table import Column, Table, lines
from costtrace.report.text import TAGS, wrapped, written
from costtrace.rules import RULES
from costtrace.shortcut import Decomposed
from costtrace.verdict import BYTES, CONVENTION, EQUAL, FLOPS, VERDICTS, Line

SMALL = 0.0005
"""Findings of a smaller share are shown with -v only."""
WIDEST = 42
HEADS = {"weight_bytes": "weights", "bytes_fused": "fused", "bytes_scoped": "scoped", "bytes_unfused": "unfused"}


def document(audit: Audit) -> Document:
    """The whole audit in base units; None where a witness is silent."""
    return {
        **preamble(),
        "model": audit.model,
        "config": plain(audit.config),
        "rows": [_row(line) for line in audit.lines],
        "quotes": [_quote(found) for found in audit.answers],
        "shortcuts": [_shortcut(cut) for cut in audit.shortcuts],
        "findings": [_finding(found) for found in audit.findings],
        "conventions": [_finding(found) for found in audit.conventions],
        "checkpoints": [plain_checkpoint(found) for found in audit.checkpoints],
    }


def _plain(value: Any) -> Any:
    """A whole number as it is, a fraction as a float."""
    return value if value is None or isinstance(value, int) else float(value)


def _row(line: Line) -> Document:
    return {
        "stage": line.stage,
        "calls": line.calls,
        "row": line.row,
        "scope": line.scope,
        "quantity": line.quantity,
        "unit": QUANTITIES[line.quantity],
        "hand": _plain(line.hand),
        "traced": _plain(line.traced),
        "xla": _plain(line.xla),
        "compiled": _plain(line.compiled),
        "verdict": line.verdict,
        "difference": _plain(line.difference),
        **{part: _plain(value) for part, value in line.parts.items()},
        "xla_equal": line.xla_equal,
        "xla_notes": line.notes,
        "tag": _tag(line),
        "tags": {"hand": _tag(line), "traced": "D", "xla": "D"},
        "formula": [claim.formula for claim in line.claims],
    }


def _tag(line: Line) -> str:
    return line.claims[0].tag if line.claims else "D"


def _quote(found: Answer) -> Document:
    quote = found.quote
    return {
        "quoted": quote.quoted,
        "about": quote.about,
        "unit": found.unit,
        "hand": _plain(found.hand),
        "traced": _plain(found.traced),
        "verdict": found.verdict,
        "tag": quote.tag,
        "formula": quote.formula,
        "config": plain(quote.config),
        "source": quote.source,
        "contradicted_by": [{"value": _plain(value), "why": why} for value, why in found.checks],
    }


def _shortcut(cut: Decomposed) -> Document:
    return {
        "stage": cut.shortcut.stage,
        "formula": cut.shortcut.formula,
        "parameters": cut.parameters,
        "tokens": _plain(cut.tokens),
        "hand": _plain(cut.claimed),
        "traced": cut.traced,
        "without_weights": cut.other,
        "parts": [
            {
                "weights": s.weights,
                "parameters": s.elements,
                "tokens": _plain(s.tokens),
                "hand": _plain(s.claimed),
                "traced": s.traced,
                "difference": _plain(s.difference),
            }
            for s in cut.shares
        ],
    }


def _finding(found: Finding) -> Document:
    return {key: getattr(found, key) for key in ("stage", "scope", "size", "text", "quantity", "difference")}


def text(audit: Audit, form: str, source: str = "", verbose: bool = False) -> str:
    """The audit in one of the formats of report.table, or json."""
    if form == "json":
        return json.dumps(document(audit), indent=2)
    if form in table.DATA:
        rows = [{k: v for k, v in row.items() if not isinstance(v, list | dict)} for row in map(_row, audit.lines)]
        keys = list(dict.fromkeys(key for row in rows for key in row))
        return table.FORMATS[form](Table(tuple(Column(k, k) for k in keys), [[r.get(k) for k in keys] for r in rows]))
    tables = [made for _, made in (_flops(audit), _bytes(audit), _quotes(audit, True)) if made.rows]
    if form != "text":
        return "\n\n".join(table.FORMATS[form](made) for made in tables)
    return "\n".join(_page(audit, source, verbose))


def _page(audit: Audit, source: str, verbose: bool) -> Iterator[str]:
    config = ", ".join(f"{key} {written(plain(value))}" for key, value in audit.config.items())
    yield from wrapped(f"audit of {audit.model}: {config}")
    yield from wrapped(
        f"hand: {source} [D]; traced: this program [D]; XLA: its cost analysis of the lowered program, "
        "products by scope, times our trip counts [D]"
    )
    for starts, made in (_flops(audit), _bytes(audit)):
        if made.rows:
            yield ""
            yield from _drawn(made, starts)
    yield from _noted(audit.lines)
    for cut in audit.shortcuts:
        yield ""
        yield from _cut(cut)
    if audit.answers:
        yield ""
        counted = Counter(found.verdict for found in audit.answers)
        yield from wrapped(
            f"{len(audit.answers)} quoted numbers and sentences: "
            + ", ".join(f"{n} {verdict}" for verdict, n in counted.most_common())
            + ("" if verbose else "; those that do not agree (-v: all):")
        )
        yield from _drawn(_quotes(audit, verbose)[1], {})
    for found in audit.checkpoints:
        yield ""
        yield from told_checkpoint(found)
    yield ""
    yield from _told("findings, largest first (share of all calls' FLOPs or scoped bytes)", audit.findings, verbose)
    if audit.conventions:
        yield from _told("by convention alone", audit.conventions, verbose, 4)
    counted = Counter(line.verdict for line in audit.lines)
    yield from wrapped(
        "quantities of these rows: "
        + ", ".join(f"{counted[v]} {v}" for v in VERDICTS if counted[v])
        + ". Tags: "
        + ", ".join(f"[{tag}] {word}" for tag, word in TAGS.items())
        + "; --explain ROW has formulas and sources"
    )


def _told(head: str, some: Sequence[Finding], verbose: bool, most: int | None = None) -> Iterator[str]:
    if not some:
        yield f"{head}: none"
        return
    sized = [found for found in some if found.quantity != "quote"]
    kept = sized if verbose else [found for found in sized if found.size >= SMALL][:most]
    yield f"{head}:"
    for found in kept:
        share = units.text(found.size, "1", 2) if found.size >= 0.0001 else "<0.01 %"
        yield from wrapped(f"  {share:>7}  {found.text}", indent="           ")
    if len(kept) < len(sized):
        yield f"           {len(sized) - len(kept)} smaller: -v"
    for found in some:
        if found.quantity == "quote" and (verbose or "does not follow" in found.text or "cancel" in found.text):
            yield from wrapped(f"  quote    {found.text}", indent="           ")


def _drawn(made: Table, starts: dict[int, str]) -> Iterator[str]:
    """The table's lines, with a stage's name before its first row."""
    drawn = lines(table.shown(made))
    above = len(drawn) - len(made.rows)
    yield from (f"  {line}".rstrip() for line in drawn[:above])
    for index, line in enumerate(drawn[above:]):
        if index in starts:
            yield starts[index]
        yield f"  {line}".rstrip()


def _grouped(audit: Audit, quantities: Sequence[str]) -> Iterator[tuple[str, str, dict[str, Line]]]:
    groups: dict[tuple[str, str], dict[str, Line]] = {}
    for line in audit.lines:
        if line.quantity in quantities:
            groups.setdefault((line.stage, line.row), {})[line.quantity] = line
    yield from ((stage, row, found) for (stage, row), found in groups.items())


def _starts(stages: list[str], audit: Audit) -> dict[int, str]:
    calls = {name: stage.calls for name, stage in audit.stages.items()}
    return {k: f"{name} x{calls[name]}" for k, name in enumerate(stages) if not k or stages[k - 1] != name}


def _flops(audit: Audit) -> tuple[dict[int, str], Table]:
    heads = {"hand": "hand", "traced": "traced", "products": "products", "convention": "convention", "xla": "XLA"}
    compiled = any(line.compiled is not None for line in audit.lines)
    columns = [
        Column("part", "part"),
        *(Column(key, head, "FLOP") for key, head in heads.items()),
        Column("agrees", ""),
    ]
    columns += [Column("compiled", "compiled", "FLOP")] * compiled
    rows, stages = [], []
    for stage, row, found in _grouped(audit, FLOPS):
        line = found.get("flops") or next(iter(found.values()))
        agrees = {True: "=", False: "!", None: ""}[line.xla_equal]
        figures = [line.hand, line.traced, line.parts.get("products"), line.parts.get("convention")]
        cells: list[Any] = [row[:WIDEST], *("-" if n is None else _plain(n) for n in figures), line.xla, agrees]
        rows.append([*cells, *[_plain(line.compiled)] * compiled, line.verdict])
        stages.append(stage)
    return _starts(stages, audit), Table((*columns, Column("verdict", "verdict")), rows)


def _bytes(audit: Audit) -> tuple[dict[int, str], Table]:
    wanted = [q for q in ("weight_bytes", *BYTES) if any(line.quantity == q for line in audit.lines)]
    columns = [Column("part", "part")]
    for quantity in wanted:
        columns += [Column(f"{quantity}_hand", f"{HEADS[quantity]} hand", "B"), Column(quantity, "traced", "B")]
    rows, stages = [], []
    for stage, row, found in _grouped(audit, wanted):
        cells: list[Any] = [row[:WIDEST]]
        for quantity in wanted:
            line = found.get(quantity)
            cells += [_plain(line.hand), _plain(line.traced)] if line else ["-", "-"]
        rows.append([*cells, max((line.verdict for line in found.values()), key=VERDICTS.index)])
        stages.append(stage)
    return _starts(stages, audit), Table((*columns, Column("verdict", "verdict")), rows)


def _quotes(audit: Audit, verbose: bool) -> tuple[dict[int, str], Table]:
    columns = tuple(Column(key, key) for key in ("quoted", "hand", "traced", "verdict", "about"))
    rows = [
        [
            f.quote.quoted[:20],
            shown(f.hand, f.quote.quoted),
            shown(f.traced, f.quote.quoted),
            f.verdict,
            f.quote.about[:WIDEST],
        ]
        for f in audit.answers
        if verbose or f.verdict not in (EQUAL, CONVENTION, ARITHMETIC)
    ]
    return {}, Table(columns, rows)


def _cut(cut: Decomposed) -> Iterator[str]:
    claimed, traced, other = (number(n, "FLOP") for n in (cut.claimed, cut.traced, cut.other))
    yield from wrapped(
        f"{cut.shortcut.stage}: {cut.shortcut.formula} = {claimed} [D]; products that read weights: "
        f"{traced} [D]; those that read none (attention, gradients of weights): {other} [D]"
    )
    columns = (
        Column("weights", "weights"),
        Column("parameters", "parameters"),
        Column("tokens", "rows"),
        Column("hand", "shortcut", "FLOP"),
        Column("traced", "traced", "FLOP"),
        Column("difference", "difference", "FLOP"),
    )
    rows = [
        [
            s.weights[:WIDEST],
            f"{s.elements:,}",
            f"{float(s.tokens):,g}",
            float(s.claimed),
            s.traced,
            float(s.difference),
        ]
        for s in cut.shares
        if s.difference
    ]
    yield from _drawn(Table(columns, rows), {})


def _noted(some: Sequence[Line]) -> Iterator[str]:
    """What XLA's cells say of themselves, once each."""
    places: dict[str, list[str]] = {}
    for line in some:
        for note in line.notes:
            if line.row not in places.setdefault(note, []):
                places[note].append(line.row)
    for note, rows in places.items():
        yield from wrapped(f"XLA ({', '.join(rows[:3])}{' ...' if len(rows) > 3 else ''}): {note}")


def explain(audit: Audit, name: str, source: str) -> str:
    """Each quantity of the rows called `name` (or "stage:row", a scope, or the end of one): the claim's formula with
    its values and source, the program's ops with their rules. Raises UsageError where there is none."""
    found = [line for line in audit.lines if name in _called(line)]
    found = found or [line for line in audit.lines if any(each.endswith(f"/{name}") for each in _called(line))]
    if not found:
        known = list(dict.fromkeys(line.row for line in audit.lines))
        near = difflib.get_close_matches(name, known, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
        raise UsageError(f"--explain {name}: no such row: {hint}")
    out: list[str] = []
    for stage, row in dict.fromkeys((line.stage, line.row) for line in found):
        some = [line for line in found if (line.stage, line.row) == (stage, row)]
        out += [f"{stage}: {row} (scope {some[0].scope}), one call", *_explained(some, audit, source), ""]
    return "\n".join(out).rstrip()


def _called(line: Line) -> tuple[str, ...]:
    return (line.row, line.scope, f"{line.stage}:{line.row}", *line.scopes, *line.wanted)


def _explained(some: Sequence[Line], audit: Audit, source: str) -> Iterator[str]:
    for line in some:
        unit = QUANTITIES[line.quantity]
        figures = f"hand {_exact(line.hand)} [{_tag(line)}], traced {_exact(line.traced)} [D]"
        yield f"  {line.quantity}: {figures} {unit}: {line.verdict}"
        for claim in line.claims:
            yield from _claim(claim, audit, source)
        if line.xla is not None and line.quantity == "product_flops":
            agrees = {True: "equal", False: "not equal", None: "not comparable"}[line.xla_equal]
            yield f"    XLA {_exact(line.xla)} [D], HloCostAnalysis of each instruction, times our trips: {agrees}"
        yield from (f"    XLA: {note}" for note in line.notes if line.quantity == "product_flops")
    yield "  traced, by primitive:"
    stage = audit.stages[some[0].stage]
    inside = some[0].scopes or ("",)
    counted: dict[str, list[int]] = {}
    for record in stage.profile.records:
        if any(not path or record.scope == path or record.scope.startswith(f"{path}/") for path in inside):
            sums = counted.setdefault(record.primitive, [0, 0, 0])
            sums[0] += record.ops
            sums[1] += record.cost.flops
            sums[2] += record.cost.bytes_unfused
    for primitive, (ops, flops, nbytes) in sorted(counted.items(), key=lambda item: -item[1][1]):
        if flops:
            rule = RULES.get(primitive)
            said = (rule.formula.__doc__ or "").partition("\n")[0] if rule else "priced by its own body"
            counted_as = f"{ops} ops, {flops:,} FLOP, {nbytes:,} B unfused [D]"
            yield from wrapped(f"    {primitive}: {counted_as}; rule: {said}", "      ")


def _claim(claim: Claim, audit: Audit, source: str) -> Iterator[str]:
    yield from wrapped(f"    claim {claim.measures} = {claim.formula}", "      ")
    yield from wrapped(f"      = {formula.with_values(claim.formula, audit.hand.names)}", "        ")
    yield f"      = {_exact(audit.hand.value(claim))} [{claim.tag}]"
    yield from wrapped(f"      source: {claim.source or source}", "        ")
    if claim.tolerance:
        yield f"      tolerance {claim.tolerance:g}: {claim.reason}"


def _exact(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{float(value):,.10g}"
