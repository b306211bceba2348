"""Several documents -> one page: the same parts down, a document a column, in as many tables as the page is wide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from costtrace.report.document import Document
from costtrace.report.flat import told, varying
from costtrace.report.table import Column, Table, lines, shown
from costtrace.report.text import NOT_MODELLED, WIDTH, fitted, marked, placed, wrapped
from costtrace.report.views import INITIALS, MARKS, macs, ordered

Place = tuple[str, str]
"""(stage, part); a part of "" is the stage as one kernel, and a stage of "" all calls together."""
WHOLE = "stage as one kernel"
EVERYTHING = {"all calls, floor": "floor_s", "all calls, pessimistic": "pessimistic_s"}


def side_by_side(
    documents: Sequence[Document], *, unit: str = "flop", sort: str | None = None, top: int | None = None,
    verbose: bool = False,
) -> str:  # fmt: skip
    """Floors of every part with the unit that binds; FLOPs once, or once for each configuration where they differ.

    With `top`, the parts that are among the first of any document.
    """
    names = told_apart(documents)
    counted = [_counted(doc, unit, sort) for doc in documents]
    wanted = [_kept(doc, sort, top) for doc in documents]
    every = list(dict.fromkeys(place for each in wanted for place in each))
    stages = list(dict.fromkeys(stage for stage, _ in every))
    places = sorted(every, key=lambda place: (stages.index(place[0]), place[1] == WHOLE))
    panels, left = [], list(range(len(documents)))
    while left:
        n = next((n for n in range(len(left), 1, -1) if _width(documents, names, counted, places, left[:n]) <= WIDTH), 1)
        panels.append(_panel(documents, names, counted, places, left[:n], unit))
        left = left[n:]
    first = documents[0]
    what = "floors" if first["by"] in ("scope", "layer") else "times with unfused bytes"
    return "\n\n".join([f"{first['model']}: {what} side by side", *panels, _foot(documents, verbose)])


def told_apart(documents: Sequence[Document]) -> list[str]:
    """A name for each document: what differs of its chip and configuration, numbered where that is the same."""
    keys = varying(documents) or ["chip"]
    names = [" ".join(told(doc, key) for key in keys) for doc in documents]
    return [name if names.count(name) == 1 else f"{name} #{names[: k + 1].count(name)}" for k, name in enumerate(names)]


def _width(
    documents: Sequence[Document], names: Sequence[str], counted: Sequence[Mapping[Place, Document]],
    places: Sequence[Place], some: Sequence[int],
) -> int:  # fmt: skip
    return max(map(len, _drawn(documents, names, counted, places, some, "flop", 0))) + 2


def _drawn(
    documents: Sequence[Document], names: Sequence[str], counted: Sequence[Mapping[Place, Document]],
    places: Sequence[Place], some: Sequence[int], unit: str, width: int = WIDTH - 2,
) -> list[str]:  # fmt: skip
    """The table of some documents; a column of FLOPs before the first, and where they are others than the last's."""
    columns = [Column("part", "part")]
    values: list[list[Any]] = [[_marked(counted, place) for place in places]]
    bounds: dict[int, list[str]] = {}
    work = [[each.get(place, {}).get("flops", "") for place in places] for each in counted]
    keys = [key for key in varying(documents) if key != "chip"]
    alike = all(column == work[0] for column in work)
    last: list[Any] = []
    for k in some:
        if work[k] != last:
            columns.append(Column(unit, "" if alike else " ".join(told(documents[k], key) for key in keys), unit.upper()))
            values.append(work[k])
            last = work[k]
        bounds[len(columns)] = [_initial(counted[k].get(place)) for place in places]
        columns.append(Column("floor", names[k], "s"))
        values.append([counted[k].get(place, {}).get("seconds", "") for place in places])
    seen = shown(Table(tuple(columns), [list(row) for row in zip(*values, strict=True)]))
    for column, initials in bounds.items():
        for row, initial in zip(seen.cells, initials, strict=True):
            row[column] = f"{row[column]} {initial}"
    return fitted(seen, width) if width else lines(seen)


def _initial(entry: Document | None) -> str:
    return INITIALS.get(entry["bound"] or "", " ") if entry else " "


def _marked(counted: Sequence[Mapping[Place, Document]], place: Place) -> str:
    """The part's label with the mark of its status in any document."""
    statuses = {each[place]["status"] for each in counted if place in each}
    return place[1] + next((mark for status, mark in reversed(MARKS.items()) if status in statuses), "")


def _counted(doc: Document, unit: str, sort: str | None) -> dict[Place, Document]:
    out: dict[Place, Document] = {}
    for stage in doc["stages"]:
        for row in ordered(doc, stage, sort)[0]:
            out[stage["name"], row["label"]] = _entry(row, row["cost"], unit)
        out[stage["name"], WHOLE] = _entry(stage, stage["total"], unit)
    for part, key in EVERYTHING.items():
        out["", part] = {"flops": _work(doc["total"], unit), "seconds": doc[key], "bound": None, "status": doc["status"]}
    return out


def _kept(doc: Document, sort: str | None, top: int | None) -> list[Place]:
    out = []
    for stage in doc["stages"]:
        out += [(stage["name"], row["label"]) for row in ordered(doc, stage, sort, top)[0]]
        out.append((stage["name"], WHOLE))
    return out + [("", part) for part in EVERYTHING]


def _work(cost: Document, unit: str) -> float:
    return macs(cost) if unit == "mac" else float(cost["flops"])


def _entry(part: Document, cost: Document, unit: str) -> Document:
    """FLOPs, floor and what binds; where a part is no kernel, its time with unfused bytes."""
    whole = part["cost"]["bytes_fused"] is not None if "cost" in part else True
    return {
        "flops": _work(cost, unit),
        "seconds": part["floor_s" if whole else "unfused_s"],
        "bound": part["bound_fused" if whole else "bound_unfused"],
        "status": part["status"],
    }


def _panel(
    documents: Sequence[Document], names: Sequence[str], counted: Sequence[Mapping[Place, Document]],
    places: Sequence[Place], some: Sequence[int], unit: str,
) -> str:  # fmt: skip
    drawn = _drawn(documents, names, counted, places, some, unit)
    above = len(drawn) - len(places)
    calls: dict[str, list[int]] = {}
    for k in some:
        for stage in documents[k]["stages"]:
            calls.setdefault(stage["name"], []).append(stage["calls"])
    out, last = [f"  {line}".rstrip() for line in drawn[:above]], None
    for (stage, _), line in zip(places, drawn[above:], strict=True):
        if stage != last and stage:
            out.append(f"{stage} x{','.join(map(str, dict.fromkeys(calls.get(stage, []))))}")
        last = stage
        out.append(f"  {line}".rstrip())
    return "\n".join(out)


def _foot(documents: Sequence[Document], verbose: bool) -> str:
    """What the letters and marks mean; then every kind of note once, with the documents that it is of."""
    rows = [row for doc in documents for stage in doc["stages"] for row in stage["rows"]]
    used = {row["bound_fused"] or row["bound_unfused"] for row in rows}
    said = ["bound: " + ", ".join(f"{INITIALS[word]} {word}" for word in INITIALS if word in used)]
    said += marked({row["status"] for row in rows} | {doc["status"] for doc in documents})
    notes: dict[tuple[str, str], list[str]] = {}
    for doc, name in zip(documents, told_apart(documents), strict=True):
        for note in doc["notes"]:
            text = f"{placed(note, len(doc['stages']) == 1)}{note['text']}"
            who = notes.setdefault((note["kind"], text), [])
            if name not in who:
                who.append(name)
    foot = ["; ".join(said)]
    for (kind, text), who in _few(notes, verbose):
        some = f"{', '.join(who[:4])}{' ...' if len(who) > 4 else ''}: " if len(who) < len(documents) else ""
        foot.append(f"note {kind}: {some}{text}")
    left = len(notes) - len(foot) + 1
    foot += [f"{left} more notes: -v shows them"] if left else []
    return "\n".join(line for text in [*foot, NOT_MODELLED] for line in wrapped(text))


EACH = 3


def _few(notes: Mapping[tuple[str, str], list[str]], verbose: bool) -> list[tuple[tuple[str, str], list[str]]]:
    """All notes, or the first EACH of every kind."""
    seen: dict[str, int] = {}
    out = []
    for (kind, text), who in notes.items():
        seen[kind] = seen.get(kind, 0) + 1
        if verbose or seen[kind] <= EACH:
            out.append(((kind, text), who))
    return out
