"""Several documents -> one page: the same parts down, a document a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from costtrace.report.document import Document
from costtrace.report.flat import told, varying
from costtrace.report.table import Column, Table, lines, shown
from costtrace.report.text import NOT_MODELLED, wrapped
from costtrace.report.views import INITIALS, ordered

Place = tuple[str, str]
"""(stage, part); a part of "" is the stage as one kernel, and a stage of "" all calls together."""
WHOLE, EVERYTHING = "stage as one kernel", ("all calls, floor", "all calls, pessimistic")


def side_by_side(documents: Sequence[Document], *, sort: str | None = None, top: int | None = None) -> str:
    """Floors of every part with the unit that binds; FLOPs once, or in each document where they differ."""
    keys = varying(documents) or ["chip"]
    names = [" ".join(told(doc, key) for key in keys) for doc in documents]
    stages = [stage["name"] for stage in documents[0]["stages"]]
    counted = [_counted(doc, stages, sort, top) for doc in documents]
    places = list(dict.fromkeys(place for each in counted for place in each))
    work = [[each.get(place, {}).get("flops") for place in places] for each in counted]
    same = all(column == work[0] for column in work)

    columns = [Column("part", "part")]
    values: list[list[Any]] = [[part for _, part in places]]
    bounds: dict[int, list[str]] = {}
    for name, each, flops in zip(names, counted, work, strict=True):
        if not same or len(columns) == 1:
            columns.append(Column("flops", "" if same else name, "FLOP"))
            values.append(flops)
        bounds[len(columns)] = [INITIALS.get(each.get(place, {}).get("bound", ""), " ") for place in places]
        columns.append(Column("floor", name, "s"))
        values.append([each.get(place, {}).get("seconds", "") for place in places])
    seen = shown(Table(tuple(columns), [list(row) for row in zip(*values, strict=True)]))
    for column, initials in bounds.items():
        for row, initial in zip(seen.cells, initials, strict=True):
            row[column] = f"{row[column]} {initial}"
    return _page(documents, places, lines(seen))


def _counted(doc: Document, stages: Sequence[str], sort: str | None, top: int | None) -> dict[Place, Document]:
    out: dict[Place, Document] = {}
    for stage in doc["stages"]:
        for row in ordered(doc, stage, sort, top)[0]:
            out[stage["name"], row["part"]] = _entry(row, row["cost"])
        out[stage["name"], WHOLE] = _entry(stage, stage["total"])
    flops = doc["total"]["flops"]
    out["", EVERYTHING[0]] = {"flops": flops, "seconds": doc["floor_s"]}
    out["", EVERYTHING[1]] = {"flops": flops, "seconds": doc["pessimistic_s"]}
    return out


def _entry(part: Document, cost: Document) -> Document:
    """FLOPs, floor and what binds; where a part is no kernel, the times of its primitives one by one."""
    if part["floor_s"] is None:
        return {"flops": cost["flops"], "seconds": part["unfused_s"], "bound": part["bound_unfused"]}
    return {"flops": cost["flops"], "seconds": part["floor_s"], "bound": part["bound_fused"]}


def _page(documents: Sequence[Document], places: Sequence[Place], drawn: list[str]) -> str:
    first = documents[0]
    above = len(drawn) - len(places)
    calls = {stage["name"]: stage["calls"] for stage in first["stages"]}
    out = [f"{first['model']}: floors side by side", "", *(f"  {line}".rstrip() for line in drawn[:above])]
    last = None
    for (stage, _), line in zip(places, drawn[above:], strict=True):
        if stage != last and stage:
            out.append(f"{stage} x{calls[stage]}")
        last = stage
        out.append(f"  {line}".rstrip())
    used = {word for doc in documents for stage in doc["stages"] for row in stage["rows"]
            for word in (row["bound_fused"] or row["bound_unfused"],)}  # fmt: skip
    missing = dict.fromkeys(n["text"] for doc in documents for n in doc["notes"] if n["kind"] == "missing-rate")
    foot = ["bound: " + ", ".join(f"{INITIALS[word]} {word}" for word in INITIALS if word in used)]
    foot += [f"note missing-rate: {text}" for text in missing]
    return "\n".join([*out, "", *(line for text in [*foot, NOT_MODELLED] for line in wrapped(text))])
