"""Advice -> plain data, a table and text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from costtrace.advice import Advice
from costtrace.chip import Chip
from costtrace.report import table
from costtrace.report.document import Document, plain, preamble
from costtrace.report.table import Column, Table
from costtrace.report.text import wrapped, written

WIDEST = 36
_COLUMNS = (
    Column("share", "saves", "%"), Column("saved", "saves", "s"), Column("before", "of", "s"),
    Column("floor", "floor saves", "s"), Column("kind", "what-if"), Column("scope", "where"), Column("what", "do"),
    Column("costs", "costs"),
)  # fmt: skip
TOLD = ("seconds of all calls, each innermost scope as one kernel, one after the other, on one chip; strategies: each "
        "stage's floor plus its collectives, on all chips. Savings do not add up.")  # fmt: skip


def document(model: str, config: Mapping[str, Any], chip: Chip, chips: int, some: Sequence[Advice]) -> Document:
    """Every piece of advice, what pays first."""
    return {
        **preamble(),
        "model": model,
        "config": plain(config),
        "chip": chip.name,
        "chip_title": chip.title,
        "chips": chips,
        "rows": [
            {
                "kind": a.kind, "scope": a.scope, "what": a.what, "before_s": a.before_s, "after_s": a.after_s,
                "saved_s": a.saved_s, "share": a.share, "floor_saved_s": a.floor_saved_s, "holds": a.holds,
                "costs": a.costs,
            }
            for a in some
        ],
    }  # fmt: skip


def printed(doc: Document, form: str) -> str:
    """The document in one of report.output.FORMATS."""
    rows = doc["rows"]
    if form == "json":
        return json.dumps(doc, indent=2)
    if form in table.DATA:
        keys = list(rows[0]) if rows else []
        return table.FORMATS[form](Table(tuple(Column(k, k) for k in keys), [[r[k] for k in keys] for r in rows]))
    if form != "text":
        return table.FORMATS[form](Table(_COLUMNS, [_cells(row) for row in rows]))
    config = ", ".join(f"{key} {written(value)}" for key, value in doc["config"].items())
    out = wrapped(f"{doc['model']}: {config}") + wrapped(f"on {doc['chips']} x {doc['chip_title']}, at peak rates")
    for holds, head in ((True, ""), (False, "does not pay here:")):
        some = [row for row in rows if row["holds"] is holds]
        if some:
            columns = tuple(c for c in _COLUMNS if c.key not in ("scope", "what", "costs"))
            keys = [c.key for c in columns]
            lines = table.text(Table(columns, [_cells(row, keys) for row in some])).splitlines()
            above = len(lines) - len(some)
            out += ["", *([head] if head else []), *(f"  {line}".rstrip() for line in lines[:above])]
            for line, row in zip(lines[above:], some, strict=True):
                out.append(f"  {line}".rstrip())
                told = ": ".join(part for part in (row["scope"].replace(",", ", "), row["what"]) if part)
                out += wrapped(f"      {told}" + (f" ({row['costs']})" if row["costs"] else ""), "        ")
    return "\n".join([*out, "", *wrapped(TOLD)])


def _cells(row: Document, keys: Sequence[str] | None = None) -> list[Any]:
    floor = "-" if row["floor_saved_s"] is None else row["floor_saved_s"]
    scope = row["scope"] if len(row["scope"]) <= WIDEST else f"{row['scope'][: WIDEST - 3]}..."
    cells = {"share": row["share"], "saved": row["saved_s"], "before": row["before_s"], "floor": floor,
             "kind": row["kind"], "scope": scope, "what": row["what"], "costs": row["costs"]}  # fmt: skip
    return [cells[key] for key in (keys or cells)]
