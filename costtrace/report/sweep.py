"""The rows of a sweep -> plain data, a table and text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from costtrace.report import table
from costtrace.report.document import Document, preamble
from costtrace.report.table import Column, Table
from costtrace.report.text import wrapped

_COLUMNS = (
    Column("chip", "chip"), Column("chips", "chips"), Column("strategy", "strategy"),
    Column("flops", "a chip", "FLOP"), Column("peak_bytes", "peak", "B"), Column("floor_s", "floor", "s"),
    Column("pessimistic_s", "pessim.", "s"), Column("usd", "USD per 1000"), Column("error", ""),
)  # fmt: skip
TOLD = ("peak over the chip's memory: !; chips over 1: the best strategy, figures of one chip, floor with all "
        "collectives overlapped, pessim. with none; USD at the floor, by the chip file or --price")  # fmt: skip


def document(model: str, rows: Sequence[dict[str, Any]]) -> Document:
    """Every point in order; null where a failed one has no figure."""
    return {**preamble(), "model": model, "rows": list(rows)}


def printed(doc: Document, form: str) -> str:
    """The document in one of report.output.FORMATS."""
    if form == "json":
        return json.dumps(doc, indent=2)
    rows = doc["rows"]
    options = list(dict.fromkeys(name for row in rows for name in row["config"]))
    if form in table.DATA:
        keys = [k for k in rows[0] if k != "config"] if rows else []
        cells = [[*(row["config"].get(o) for o in options), *(row[k] for k in keys)] for row in rows]
        return table.FORMATS[form](Table(tuple(Column(k, k) for k in (*options, *keys)), cells))
    columns = (*(Column(o, o.replace("_", "-")) for o in options), *_COLUMNS)
    made = table.FORMATS[form](Table(columns, [_cells(row, options) for row in rows]))
    failed = sum(bool(row["error"]) for row in rows)
    if form != "text":
        return made
    foot = wrapped(TOLD) + ([f"{failed} of {len(rows)} points failed or do not fit or divide"] if failed else [])
    return "\n".join([f"{doc['model']}: {len(rows)} points", "", made, "", *foot])


def _cells(row: dict[str, Any], options: Sequence[str]) -> list[Any]:
    usd = None if row["usd"] is None else f"{1000 * row['usd']:.4g}"
    failed = row["flops"] is None
    mark = "" if failed or row["fits"] else " !"
    values = ["-" if failed else row[k] for k in ("flops", "peak_bytes", "floor_s", "pessimistic_s")]
    return [*(row["config"].get(o, "") for o in options), row["chip"] + mark, str(row["chips"]), row["strategy"] or "-",
            *values, "-" if failed else usd or "?", row["error"]]  # fmt: skip
