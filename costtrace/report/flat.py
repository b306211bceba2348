"""Documents -> one flat table of all their rows, for csv, tsv, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from costtrace.core import COUNTS
from costtrace.report.document import GROUPS, Document
from costtrace.report.table import Column, Table
from costtrace.report.views import fields, ordered

TIMES = ("floor_s", "pessimistic_s", "unfused_s", "bound_fused", "bound_scoped", "bound_unfused", "share")


def flat(
    documents: Sequence[Document], *, data: bool, unit: str = "flop", sort: str | None = None, top: int | None = None
) -> Table:
    """Every row of every document; with `data` every quantity under its JSON name, else the view's columns."""
    keys = varying(documents)
    columns: tuple[Column, ...] = ()
    out: list[list[Any]] = []
    for doc in documents:
        leading = [told(doc, key) for key in keys]
        shown = fields(doc, unit)
        for stage in doc["stages"]:
            for row in ordered(doc, stage, sort, top)[0]:
                if data:
                    quantities = _quantities(doc, row)
                    columns = tuple(Column(key, key) for key in (*keys, "stage", "calls", *quantities))
                    out.append([*leading, stage["name"], stage["calls"], *quantities.values()])
                else:
                    columns = (*(Column(key, key) for key in (*keys, "stage")), *(f.column for f in shown))
                    named = f"{stage['name']} x{stage['calls']}"
                    out.append([*leading, named, *(f.value(row) for f in shown)])
    return Table(columns, out)


def varying(documents: Sequence[Document]) -> list[str]:
    """What tells the documents apart: the chip, and the options whose values differ."""
    keys = [key for doc in documents for key in doc["config"] if key not in doc.get("derived", ())]
    config = [key for key in dict.fromkeys(keys) if len({str(doc["config"].get(key)) for doc in documents}) > 1]
    return ["chip"] * (len({doc["chip"] for doc in documents}) > 1) + config


def told(doc: Document, key: str) -> str:
    """What stands for `key`, one of varying(), in this document."""
    return str(doc["chip"] if key == "chip" else doc["config"].get(key, ""))


def _quantities(doc: Document, row: Document) -> Document:
    group = GROUPS[doc["by"]]
    return {
        group: row[group],
        "instances": row["instances"],
        "status": row["status"],
        **{key: row["cost"][key] for key in ("flops", *COUNTS)},
        **{key: row[key] for key in TIMES},
        "useful_flops": row.get("useful_flops", row["cost"]["flops"]),
    }
