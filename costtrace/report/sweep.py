"""The rows of a sweep -> plain data, a table and text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from costtrace.report import table
from costtrace.report.document import Document, preamble
from costtrace.report.table import Column, Table
from costtrace.report.text import wrapped
from costtrace.report.views import MARKS

_COLUMNS = (
    Column("chip", "chip"), Column("chips", "chips"), Column("strategy", "strategy"),
    Column("flops", "a chip", "FLOP"), Column("peak_bytes", "peak", "B"), Column("floor_s", "floor", "s"),
    Column("pessimistic_s", "pessim.", "s"), Column("predicted_s", "predicted", "s"), Column("usd", "USD per 1000"),
    Column("error", ""),
)  # fmt: skip
TOLD = (
    "peak over the chip's memory: !; modelled: ~; partly unknown, a lower bound: ?; pessim.: pessimistic, with scoped "
    "bytes; chips over 1: the best strategy, figures of one chip, floor with all collectives overlapped, pessim. with "
    "none"
)
PRICED = "USD at the floor, or as predicted, by the chip file or --price"
SPLIT = "the last columns: each stage's share of the FLOPs"


def document(model: str, rows: Sequence[dict[str, Any]]) -> Document:
    """Every point in order; null where a failed one has no figure."""
    return {**preamble(), "model": model, "rows": list(rows)}


def printed(doc: Document, form: str) -> str:
    """The document in one of report.output.FORMATS."""
    if form == "json":
        return json.dumps(doc, indent=2)
    rows = doc["rows"]
    options = list(dict.fromkeys(name for row in rows for name in row["config"]))
    derived = list(dict.fromkeys(name for row in rows for name in row["derived"] or ()))
    stages = list(dict.fromkeys(name for row in rows for name in row["stages"] or ()))
    if form in table.DATA:
        keys = [k for k in rows[0] if k not in ("config", "derived", "stages")] if rows else []
        told = [{**row, "missing": "; ".join(row["missing"])} for row in rows]
        cells = [[*(row["config"].get(o) for o in options), *(row[k] for k in keys)] for row in told]
        return table.FORMATS[form](Table(tuple(Column(k, k) for k in (*options, *keys)), cells))
    compiled = any(row["predicted_s"] is not None for row in rows)
    unpriced = dict.fromkeys(row["chip"] for row in rows if row["usd"] is None and row["flops"] is not None)
    priced = any(row["usd"] is not None for row in rows)
    left_out = {"predicted_s": not compiled, "usd": not priced}
    own = tuple(c for c in _COLUMNS if not left_out.get(c.key))
    split = stages if len(stages) > 1 else []
    columns = (*(Column(o, o.replace("_", "-")) for o in (*options, *derived)), *own[:-1],
               *(Column(f"share {name}", name, "%") for name in split), own[-1])  # fmt: skip
    keys = [c.key for c in own]
    told = [{**row, "error": row["error"] or _slower(row, rows)} for row in rows]
    made = table.FORMATS[form](Table(columns, [_cells(row, options, derived, keys, split) for row in told]))
    failed = sum(bool(row["error"]) for row in rows)
    if form != "text":
        return made
    lacking = dict.fromkeys(line for row in rows for line in row["missing"])
    foot = wrapped("; ".join([TOLD, *[PRICED] * priced, *[SPLIT] * bool(split)]))
    if unpriced:
        foot += wrapped(f"no price of {', '.join(unpriced)} is known: --price 2.70, USD per hour and chip, adds USD")
    foot += [line for each in lacking for line in wrapped(f"{each}: seconds leave that work out")]
    foot += [f"{failed} of {len(rows)} points failed or do not fit or divide"] if failed else []
    return "\n".join([f"{doc['model']}: {len(rows)} points", "", made, "", *foot])


def _slower(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """'slower than on 1 chip', where fewer chips have a lower floor; else ''."""
    if row["floor_s"] is None:
        return ""
    fewer = [other["chips"] for other in rows
             if (other["config"], other["chip"]) == (row["config"], row["chip"]) and other["chips"] < row["chips"]
             and other["floor_s"] is not None and other["floor_s"] < row["floor_s"]]  # fmt: skip
    return f"slower than on {min(fewer)} chip{'s' * (min(fewer) > 1)}" if fewer else ""


def _cells(
    row: dict[str, Any], options: Sequence[str], derived: Sequence[str], keys: Sequence[str], split: Sequence[str]
) -> list[Any]:
    failed = row["flops"] is None
    cells = {key: "-" if failed else row[key] for key in keys if key in row}
    cells["usd"] = "-" if failed else None if row["usd"] is None else f"{1000 * row['usd']:.4g}"
    mark = " ?" if row["missing"] else MARKS.get(row["status"] or "", "")
    cells["chip"] = row["chip"] + mark + ("" if failed or row["fits"] else " !")
    cells |= {"chips": str(row["chips"]), "strategy": row["strategy"] or "-", "error": row["error"]}
    if "predicted_s" in cells and row["predicted_s"] is None:
        cells["predicted_s"] = "-"
    whole = sum((row["stages"] or {}).values())
    shares = ["-" if not whole else row["stages"].get(name, 0) / whole for name in split]
    follow = ["-" if row["derived"] is None else str(row["derived"].get(name, "-")) for name in derived]
    *first, last = (cells[key] for key in keys)
    return [*(row["config"].get(o, "") for o in options), *follow, *first, *shares, last]
