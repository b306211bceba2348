"""Several documents -> one page: the same parts down, a document a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from costtrace.report.document import Document
from costtrace.report.flat import told, varying
from costtrace.report.table import Column, Table, lines, shown
from costtrace.report.text import NOT_MODELLED, wrapped
from costtrace.report.views import INITIALS, macs, ordered

Place = tuple[str, str]
"""(stage, part); a part of "" is the stage as one kernel, and a stage of "" all calls together."""
WHOLE = "stage as one kernel"
EVERYTHING = {"all calls, floor": "floor_s", "all calls, pessimistic": "pessimistic_s"}


def side_by_side(
    documents: Sequence[Document], *, unit: str = "flop", sort: str | None = None, top: int | None = None
) -> str:
    """Floors of every part with the unit that binds; FLOPs once, or in each document where they differ."""
    keys = varying(documents) or ["chip"]
    names = [" ".join(told(doc, key) for key in keys) for doc in documents]
    counted = [_counted(doc, unit, sort, top) for doc in documents]
    every = list(dict.fromkeys(place for each in counted for place in each))
    stages = dict.fromkeys(stage for stage, _ in every)
    places = sorted(every, key=lambda place: (list(stages).index(place[0]), place[1] == WHOLE))
    work = [[each.get(place, {}).get("flops", "") for place in places] for each in counted]
    same = all(column == work[0] for column in work)

    columns = [Column("part", "part")]
    values: list[list[Any]] = [[part for _, part in places]]
    bounds: dict[int, list[str]] = {}
    for name, each, flops in zip(names, counted, work, strict=True):
        if not same or len(columns) == 1:
            columns.append(Column(unit, "" if same else name, unit.upper()))
            values.append(flops)
        bounds[len(columns)] = [INITIALS.get(each.get(place, {}).get("bound", ""), " ") for place in places]
        columns.append(Column("floor", name, "s"))
        values.append([each.get(place, {}).get("seconds", "") for place in places])
    seen = shown(Table(tuple(columns), [list(row) for row in zip(*values, strict=True)]))
    for column, initials in bounds.items():
        for row, initial in zip(seen.cells, initials, strict=True):
            row[column] = f"{row[column]} {initial}"
    return _page(documents, places, lines(seen))


def _counted(doc: Document, unit: str, sort: str | None, top: int | None) -> dict[Place, Document]:
    out: dict[Place, Document] = {}
    for stage in doc["stages"]:
        for row in ordered(doc, stage, sort, top)[0]:
            out[stage["name"], row["part"]] = _entry(row, row["cost"], unit)
        out[stage["name"], WHOLE] = _entry(stage, stage["total"], unit)
    for part, key in EVERYTHING.items():
        out["", part] = {"flops": _work(doc["total"], unit), "seconds": doc[key]}
    return out


def _work(cost: Document, unit: str) -> float:
    return macs(cost) if unit == "mac" else float(cost["flops"])


def _entry(part: Document, cost: Document, unit: str) -> Document:
    """FLOPs, floor and what binds; where a part is no kernel, its time with unfused bytes."""
    whole = part["floor_s"] is not None
    return {
        "flops": _work(cost, unit),
        "seconds": part["floor_s" if whole else "unfused_s"],
        "bound": part["bound_fused" if whole else "bound_unfused"],
    }


def _page(documents: Sequence[Document], places: Sequence[Place], drawn: list[str]) -> str:
    first = documents[0]
    above = len(drawn) - len(places)
    calls = {stage["name"]: stage["calls"] for stage in first["stages"]}
    what = "floors" if first["by"] in ("scope", "layer") else "times with unfused bytes"
    out = [f"{first['model']}: {what} side by side", "", *(f"  {line}".rstrip() for line in drawn[:above])]
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
