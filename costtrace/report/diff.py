"""A diff and a budget check -> plain data, tables and text; Markdown is what a comment on a pull request shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from costtrace import units
from costtrace.budget import Line
from costtrace.core import UNKNOWN
from costtrace.diff import ADDED, REMOVED, SAME, Change, shown
from costtrace.figure import QUANTITIES, Figures
from costtrace.report import table
from costtrace.report.document import Document, preamble
from costtrace.report.table import Column, Table
from costtrace.report.text import wrapped

Pair = tuple[float | None, float | None]
ROWS = 20
"""Changes that a page shows without -v."""


def document(
    before: Figures, after: Figures, changes: Sequence[Change], totals: dict[str, Pair], quantity: str
) -> Document:
    """Every scope that differs, in the order of `changes`; seconds and counts are of all calls."""
    return preamble() | {
        "before": _side(before),
        "after": _side(after),
        "quantity": quantity,
        "total": {q: _pair(*pair) for q, pair in totals.items()},
        "rows": [
            {
                "stage": c.stage,
                "scope": c.scope,
                "verdict": c.verdict,
                **{q: _pair(*pair) for q, pair in c.values.items()},
            }
            for c in changes
            if c.verdict != SAME
        ],
        "same": sum(c.verdict == SAME for c in changes),
    }


def _side(side: Figures) -> Document:
    return {"title": side.title, "chip": side.chip.name, "status": side.status, "missing": list(side.lacking())}


def _pair(before: float | None, after: float | None) -> Document:
    return {"before": before, "after": after}


def printed(doc: Document, form: str, verbose: bool = False) -> str:
    """The document of a diff in one of report.output.FORMATS."""
    quantity, rows = doc["quantity"], doc["rows"]
    if form == "json":
        return json.dumps(doc, indent=2)
    if form in table.DATA:
        return table.FORMATS[form](_flat(rows, shown(quantity)))
    first = rows if verbose else rows[:ROWS]
    made = table.FORMATS[form](_changes(first, quantity)) if first else "no scope differs"
    head = [f"before: {_named(doc['before'])}", f"after: {_named(doc['after'])}"]
    sums = [_told(q, pair) for q, pair in doc["total"].items() if pair["before"] != pair["after"]]
    foot = [f"all calls: {', '.join(sums)}"] if sums else ["all calls: the same"]
    foot += [f"{len(rows) - len(first)} more scopes differ: -v shows them"] if len(first) < len(rows) else []
    foot += [f"{doc['same']} {'scope is' if doc['same'] == 1 else 'scopes are'} the same"] if doc["same"] else []
    foot += [f"one side has {row['scope']} as one row, the other its parts: give both the same --depth"
             for row in _folded(rows)[:1]]  # fmt: skip
    foot += [f"{side}: a part of the program has no price: its figures are a lower bound"
             for side in ("before", "after") if doc[side]["status"] == UNKNOWN]  # fmt: skip
    missing = dict.fromkeys([*doc["before"]["missing"], *doc["after"]["missing"]])
    foot += [f"{line}: seconds leave that work out" for line in missing]
    if form == "text":
        head, foot = ([line for text in some for line in wrapped(text)] for some in (head, foot))
        return "\n".join([*head, "", made, "", *foot])
    if form != "md":
        return made
    return "\n\n".join([*(f"- {_code(line)}" for line in head), made, *(f"{_code(line)}" for line in foot)])


def _folded(rows: Sequence[Document]) -> list[Document]:
    """The rows of one side that are rows of their parts on the other."""
    by_verdict = {verdict: [row for row in rows if row["verdict"] == verdict] for verdict in (ADDED, REMOVED)}
    return [
        row
        for verdict, other in ((ADDED, REMOVED), (REMOVED, ADDED))
        for row in by_verdict[verdict]
        if any(o["stage"] == row["stage"] and o["scope"].startswith(f"{row['scope']}/") for o in by_verdict[other])
    ]


def _code(line: str) -> str:
    return line.replace("|", "\\|").replace("<", "&lt;").replace("_", "\\_").replace("*", "\\*")


def _named(side: Document) -> str:
    return f"{side['title']} on {side['chip']}"


def _told(quantity: str, pair: Document) -> str:
    unit = QUANTITIES[quantity].unit
    before, after = pair["before"], pair["after"]
    change = f" ({_percent(before, after)})" if before and after is not None else ""
    return f"{quantity} {units.text(before, unit)} to {units.text(after, unit)}{change}"


def _percent(before: float, after: float) -> str:
    share = 100 * (after - before) / before
    return f"{share:+.1f} %" if abs(share) >= 0.05 else f"{share:+.1g} %"


def _changes(rows: Sequence[Document], quantity: str) -> Table:
    unit = QUANTITIES[quantity].unit
    others = [q for q in ("flops", "bytes_scoped", "pessimistic_s") if q != quantity]
    head = _head(quantity)
    columns = [Column("part", "part"), Column("before", f"before{head}", unit), Column("after", f"after{head}", unit),
               Column("change", f"change{head}", unit), Column("percent", "change", "%")]  # fmt: skip
    columns += [Column(q, f"change{_head(q)}", QUANTITIES[q].unit) for q in others]
    cells: list[list[Any]] = []
    for row in rows:
        pair = row[quantity]
        before, after = pair["before"], pair["after"]
        mark = {ADDED: " (new)", REMOVED: " (gone)"}.get(row["verdict"], "")
        cells.append([
            f"{row['stage']}: {row['scope']}{mark}", "-" if row["verdict"] == ADDED else before,
            "-" if row["verdict"] == REMOVED else after, _delta(row, quantity),
            (after - before) / before if before and after is not None else "-",
            *(_delta(row, q) for q in others),
        ])  # fmt: skip
    return Table(tuple(columns), cells)


def _delta(row: Document, quantity: str) -> float | None:
    """A scope that is not on one side counts as none there; None: not known."""
    pair = row[quantity]
    if row["verdict"] not in (ADDED, REMOVED) and None in pair.values():
        return None
    return (pair["after"] or 0) - (pair["before"] or 0)


def _head(quantity: str) -> str:
    """What a column's head says beside its unit: " floor", " scoped"; FLOPs need no more than theirs."""
    return "" if quantity == "flops" else f" {quantity.removesuffix('_s').removeprefix('bytes_').replace('_', ' ')}"


def _flat(rows: Sequence[Document], some: Sequence[str]) -> Table:
    keys = ["stage", "scope", "verdict", *(f"{q}_{side}" for q in some for side in ("before", "after"))]
    return Table(
        tuple(Column(k, k) for k in keys),
        [[r["stage"], r["scope"], r["verdict"], *(r[q][s] for q in some for s in ("before", "after"))] for r in rows],
    )


def check_document(some: Sequence[tuple[Figures, Sequence[Line]]]) -> Document:
    """Every limit beside its figure, and whether all hold."""
    rows = [
        {
            "program": figures.title, "chip": figures.chip.name, "stage": line.stage, "scope": line.scope,
            "quantity": line.quantity, "unit": QUANTITIES[line.quantity].unit, "sign": line.sign,
            "limit": line.limit, "value": line.value, "passed": line.passed, "why": line.why,
        }
        for figures, lines in some
        for line in lines
    ]  # fmt: skip
    return preamble() | {"passed": all(row["passed"] for row in rows), "rows": rows}


def check_printed(doc: Document, form: str) -> str:
    """The document of a check: breaches first. Markdown begins with a line that says whether it passed."""
    if form == "json":
        return json.dumps(doc, indent=2)
    rows = sorted(doc["rows"], key=lambda row: bool(row["passed"]))
    if form in table.DATA:
        keys = list(rows[0]) if rows else ["passed"]
        return table.FORMATS[form](Table(tuple(Column(k, k) for k in keys), [[r[k] for k in keys] for r in rows]))
    broken = sum(not row["passed"] for row in rows)
    named = [f"{row['program']} on {row['chip']}" for row in rows]
    short = [f"{row['program'].partition(' (')[0]} on {row['chip']}" for row in rows]
    heads, cells = ["part", "quantity", "figure", "limit", "over", "verdict"], [_cells(row) for row in rows]
    if len(set(named)) > 1:
        heads, cells = ["program", *heads], [[name, *each] for name, each in zip(short, cells, strict=True)]
    made = table.FORMATS[form](Table(tuple(Column(k, k) for k in heads), cells))
    programs = ", ".join(dict.fromkeys(named))
    said = f"{broken} of {len(rows)} limits do not hold" if broken else f"all {len(rows)} limits hold"
    why = dict.fromkeys(f"unknown: {row['why']}" for row in rows if row["passed"] is None and row["why"])
    if form == "md":
        return "\n\n".join([f"**costtrace: {said}** for {_code(programs)}", made, *map(_code, why)])
    if form != "text":
        return made
    return "\n".join(
        [
            *wrapped(f"{programs}: {said}"),
            "",
            made,
            *([""] if why else []),
            *(line for each in why for line in wrapped(each)),
        ]
    )


def _cells(row: Document) -> list[Any]:
    place = ": ".join(part for part in (row["stage"], row["scope"]) if part) or "all calls"
    value, limit = (units.text(row[key], row["unit"]) for key in ("value", "limit"))
    exactly = row["sign"] == "==" and row["passed"] is False
    if (value == limit and row["value"] != row["limit"] and row["value"] is not None) or exactly:
        value, limit = (units.exact(row[key], row["unit"]) for key in ("value", "limit"))
    over = _percent(row["limit"], row["value"]) if row["limit"] and row["value"] is not None else "-"
    verdict = {True: "holds", False: "broken", None: "unknown"}[row["passed"]]
    sign = "" if row["sign"] == "<=" else f"{row['sign']} "
    return [place, row["quantity"], value, f"{sign}{limit}", over, verdict]
