"""Several documents -> one page: the same parts down, a document a column, in as many tables as the page is wide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costtrace import coverage
from costtrace.report.document import Document
from costtrace.report.flat import told, varying
from costtrace.report.table import Column, Shown, Table, lines, shown
from costtrace.report.text import DETAILS, NOT_MODELLED, WIDTH, fitted, marked, placed, wrapped
from costtrace.report.training import trainings
from costtrace.report.views import INITIALS, MARKS, macs, ordered

EACH = 3
"""How many notes of a kind are shown."""
Place = tuple[str, str]
"""(stage, part); a part of "" is the stage as one kernel, and a stage of "" all calls together."""
WHOLE = "stage as one kernel"
INDENT = "  "
EVERYTHING = {"all calls, floor": "floor_s", "all calls, pessimistic": "pessimistic_s"}


def side_by_side(
    documents: Sequence[Document], *, unit: str = "flop", sort: str | None = None, top: int | None = None,
    verbose: bool = False,
) -> str:  # fmt: skip
    """Floors of every part with the unit that binds; FLOPs once, or once for each configuration where they differ.

    With `top`, the parts that are among the first of any document.
    """
    kept = [_kept(doc, sort, top) for doc in documents]
    every = list(dict.fromkeys(place for each in kept for place in each))
    stages = list(dict.fromkeys(stage for stage, _ in every))
    places = sorted(every, key=lambda place: (stages.index(place[0]), place[1] == WHOLE))
    sheet = Sheet(documents, told_apart(documents), [_counted(doc, unit) for doc in documents], places, unit)
    panels, left = [], list(range(len(documents)))
    while left:
        n = next((n for n in range(len(left), 1, -1) if sheet.width(left[:n]) <= WIDTH), 1)
        panels.append(sheet.panel(left[:n]))
        left = left[n:]
    first = documents[0]
    what = "floors" if first["by"] in ("scope", "layer") else "times with unfused bytes"
    by = ", ".join(varying(documents) or ["chip"])
    trained = {name: doc["training"] for name, doc in zip(sheet.names, documents, strict=True) if "training" in doc}
    below = ["\n".join(trainings(trained))] if trained else []
    head = "\n".join([f"{first['model']}: {what} side by side, by {by}", *_covered(sheet)])
    return "\n\n".join([head, *panels, *below, _foot(sheet, verbose)])


def _covered(sheet: Sheet) -> list[str]:
    """How much is counted exactly: once, or for each of the documents that differ."""
    said: dict[str, list[str]] = {}
    for doc, name in zip(sheet.documents, sheet.names, strict=True):
        said.setdefault(coverage.said(doc), []).append(name)
    if len(said) == 1:
        return list(said)
    return [line for text, who in said.items() for line in wrapped(f"{_some(who)}: {text}")]


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:4])}{' ...' if len(names) > 4 else ''}"


def told_apart(documents: Sequence[Document]) -> list[str]:
    """A name for each document: what differs of its chip and configuration, numbered where that is the same."""
    keys = varying(documents) or ["chip"]
    names = [" ".join(told(doc, key) for key in keys) for doc in documents]
    return [name if names.count(name) == 1 else f"{name} #{names[: k + 1].count(name)}" for k, name in enumerate(names)]


@dataclass(frozen=True, slots=True)
class Sheet:
    """Documents with their names, what each counts at each place, and the places in the order of the page."""

    documents: Sequence[Document]
    names: Sequence[str]
    counted: Sequence[Mapping[Place, Document]]
    places: Sequence[Place]
    unit: str

    def width(self, some: Sequence[int]) -> int:
        """Of the table of some documents, by their positions."""
        return max(map(len, lines(self.table(some)))) + len(INDENT)

    def table(self, some: Sequence[int]) -> Shown:
        """A column of floors for each document; one of FLOPs before the first, and before any that does other work."""
        columns = [Column("part", "part")]
        values: list[list[Any]] = [[self.label(place) for place in self.places]]
        bounds: dict[int, list[str]] = {}
        work = [[each.get(place, {}).get("flops", "") for place in self.places] for each in self.counted]
        keys = [key for key in varying(self.documents) if key != "chip"]
        alike = all(column == work[0] for column in work)
        last: list[Any] = []
        for k in some:
            if work[k] != last:
                head = "" if alike else " ".join(told(self.documents[k], key) for key in keys)
                columns.append(Column(self.unit, head, self.unit.upper()))
                values.append(work[k])
                last = work[k]
            found = [self.counted[k].get(place, {}) for place in self.places]
            bounds[len(columns)] = [INITIALS.get(entry.get("bound") or "", " ") for entry in found]
            columns.append(Column("floor", self.names[k], "s"))
            values.append([entry.get("seconds", "") for entry in found])
        seen = shown(Table(tuple(columns), [list(row) for row in zip(*values, strict=True)]))
        for column, initials in bounds.items():
            for row, initial in zip(seen.cells, initials, strict=True):
                row[column] = f"{row[column]} {initial}"
        return seen

    def label(self, place: Place) -> str:
        """The part, with the mark of its worst status in any document."""
        statuses = {each[place]["status"] for each in self.counted if place in each}
        return place[1] + next((mark for status, mark in reversed(MARKS.items()) if status in statuses), "")

    def panel(self, some: Sequence[int]) -> str:
        """The table of some documents as text, with a heading before each stage."""
        drawn = fitted(self.table(some), WIDTH - len(INDENT))
        above = len(drawn) - len(self.places)
        calls: dict[str, dict[str, None]] = {}
        for k in some:
            for stage in self.documents[k]["stages"]:
                calls.setdefault(stage["name"], {})[str(stage["calls"])] = None
        out, last = [f"{INDENT}{line}".rstrip() for line in drawn[:above]], None
        for (stage, _), line in zip(self.places, drawn[above:], strict=True):
            if stage != last and stage:
                out.append(f"{stage} x{','.join(calls.get(stage, {}))}")
            last = stage
            out.append(f"{INDENT}{line}".rstrip())
        return "\n".join(out)


def _counted(doc: Document, unit: str) -> dict[Place, Document]:
    out: dict[Place, Document] = {}
    for stage in doc["stages"]:
        for row in ordered(doc, stage)[0]:
            out[stage["name"], row["part"]] = _entry(row, row["cost"], unit)
        out[stage["name"], WHOLE] = _entry(stage, stage["total"], unit)
    for part, key in EVERYTHING.items():
        out["", part] = {
            "flops": _work(doc["total"], unit),
            "seconds": doc[key],
            "bound": None,
            "status": doc["status"],
        }
    return out


def _kept(doc: Document, sort: str | None, top: int | None) -> list[Place]:
    out = []
    for stage in doc["stages"]:
        out += [(stage["name"], row["part"]) for row in ordered(doc, stage, sort, top)[0]]
        out.append((stage["name"], WHOLE))
    return out + [("", part) for part in EVERYTHING]


def _work(cost: Document, unit: str) -> float | None:
    return macs(cost) if unit == "mac" else cost["flops"]


def _entry(part: Document, cost: Document, unit: str) -> Document:
    """FLOPs, floor and what binds; where a part is no kernel, its time with unfused bytes."""
    whole = part["cost"]["bytes_fused"] is not None if "cost" in part else True
    return {
        "flops": _work(cost, unit),
        "seconds": part["floor_s" if whole else "unfused_s"],
        "bound": part["bound_fused" if whole else "bound_unfused"],
        "status": part["status"],
    }


def _foot(sheet: Sheet, verbose: bool) -> str:
    """What the letters and marks mean; then every kind of note once, with the documents that it is of."""
    documents = sheet.documents
    rows = [row for doc in documents for stage in doc["stages"] for row in stage["rows"]]
    used = {row["bound_fused"] or row["bound_unfused"] for row in rows}
    said = ["bound: " + ", ".join(f"{INITIALS[word]} {word}" for word in INITIALS if word in used)]
    said += marked({row["status"] for row in rows} | {doc["status"] for doc in documents})
    notes: dict[tuple[str, str], list[str]] = {}
    for doc, name in zip(documents, sheet.names, strict=True):
        for note in doc["notes"]:
            if note["kind"] in DETAILS and not verbose:
                continue
            text = f"{placed(note, len(doc['stages']) == 1)}{note['text']}"
            who = notes.setdefault((note["kind"], text), [])
            if name not in who:
                who.append(name)
    foot = ["; ".join(said)]
    for (kind, text), who in _few(notes, verbose):
        some = f"{_some(who)}: " if len(who) < len(documents) else ""
        foot.append(f"note {kind}: {some}{text}")
    left = len(notes) - len(foot) + 1
    foot += [f"{left} more note{'s' * (left > 1)}: -v shows all"] if left else []
    return "\n".join(line for text in [*foot, NOT_MODELLED] for line in wrapped(text))


def _few(notes: Mapping[tuple[str, str], list[str]], verbose: bool) -> list[tuple[tuple[str, str], list[str]]]:
    """All notes, or the first EACH of every kind."""
    seen: dict[str, int] = {}
    out = []
    for (kind, text), who in notes.items():
        seen[kind] = seen.get(kind, 0) + 1
        if verbose or seen[kind] <= EACH:
            out.append(((kind, text), who))
    return out
