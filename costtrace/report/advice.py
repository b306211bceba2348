"""Advice -> plain data, a table and text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from costtrace import units
from costtrace.advice import Advice
from costtrace.chip import Chip
from costtrace.report import table
from costtrace.report.document import Document, plain, preamble
from costtrace.report.table import Column, Table
from costtrace.report.text import wrapped, written
from costtrace.scenario import Seconds

WIDEST = 36
_COLUMNS = (
    Column("saved", "saves", "s"), Column("share", "share", "%"), Column("floor", "at floor", "s"),
    Column("predicted", "predicted", "s"), Column("kind", "what-if"), Column("scope", "where"), Column("what", "do"),
    Column("costs", "costs"),
)  # fmt: skip
TOLD = ("seconds of all calls (of one item of a batch), on all chips; serial: the sum of every innermost scope's own "
        "pessimistic time, links after that (a stage's pessimistic time lets units of its scopes overlap, so it is "
        "less); saves: of serial; at floor: each stage as one kernel beside its links; strategies: each stage's floor "
        "plus its links. Savings do not add up.")  # fmt: skip
PREDICTED = ("predicted: what the chip's compiler says of each scope on one chip, changed as its modelled seconds "
             "change; a kernel of one's own takes its modelled ones")  # fmt: skip
HEADS = {"pays": "", "kept": "done already, and saves against the other way:",
         "stands": "holds, and saves nothing more:", "no": "does not pay here, or nobody knows:"}  # fmt: skip


def document(
    model: str, config: Mapping[str, Any], chip: Chip, chips: int, some: Sequence[Advice], now: Seconds
) -> Document:
    """Every piece of advice, what pays first; `now`: the seconds that it is held against."""
    return {
        **preamble(),
        "model": model,
        "config": plain(config),
        "chip": chip.name,
        "chip_title": chip.title,
        "chips": chips,
        "serial_s": now.serial,
        "floor_s": now.floor,
        "predicted_s": now.predicted,
        "missing": list(now.missing),
        "rows": [
            {
                "kind": a.kind, "scope": a.scope, "what": a.what, "before_s": a.before_s, "after_s": a.after_s,
                "saved_s": a.saved_s, "share": a.share, "floor_saved_s": a.floor_saved_s,
                "predicted_saved_s": a.predicted_saved_s, "holds": a.holds, "verdict": a.verdict,
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
    now = [f"serial {units.text(doc['serial_s'], 's')}", f"floor {units.text(doc['floor_s'], 's')}"]
    now += [f"predicted {units.text(doc['predicted_s'], 's')}"] if doc["predicted_s"] is not None else []
    out += wrapped(f"now: {', '.join(now)}")
    out += [line for lack in doc["missing"] for line in wrapped(f"{lack}: seconds leave that work out")]
    left_out = {"scope", "what", "costs"} | (set() if doc["predicted_s"] is not None else {"predicted"})
    columns = tuple(c for c in _COLUMNS if c.key not in left_out)
    for verdict, head in HEADS.items():
        some = [row for row in rows if row["verdict"] == verdict]
        if some and verdict == "stands":
            out += ["", head, *(line for row in some for line in wrapped(f"  {_told(row)}", "    "))]
        elif some:
            lines = table.text(Table(columns, [_cells(row, [c.key for c in columns]) for row in some])).splitlines()
            above = len(lines) - len(some)
            out += ["", *([head] if head else []), *(f"  {line}".rstrip() for line in lines[:above])]
            for line, row in zip(lines[above:], some, strict=True):
                out.append(f"  {line}".rstrip())
                out += wrapped(f"      {_told(row)}", "        ")
    more = wrapped(PREDICTED) if doc["predicted_s"] is not None else []
    return "\n".join([*out, "", *wrapped(TOLD), *more])


def _told(row: Document) -> str:
    told = ": ".join(part for part in (row["scope"].replace(",", ", "), row["what"]) if part)
    return told + (f" ({row['costs']})" if row["costs"] else "")


def _cells(row: Document, keys: Sequence[str] | None = None) -> list[Any]:
    floor, predicted = ("-" if row[key] is None else row[key] for key in ("floor_saved_s", "predicted_saved_s"))
    scope = row["scope"] if len(row["scope"]) <= WIDEST else f"{row['scope'][: WIDEST - 3]}..."
    cells = {"saved": row["saved_s"], "share": row["share"], "floor": floor, "predicted": predicted,
             "kind": row["kind"], "scope": scope, "what": row["what"], "costs": row["costs"]}  # fmt: skip
    return [cells[key] for key in (keys or cells)]
