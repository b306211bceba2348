"""Document -> the page that a terminal shows: one table over all stages, headings between, then what must be known."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from costtrace import coverage, units
from costtrace.report.document import Document
from costtrace.report.table import Shown, Table, lines, printable, shown
from costtrace.report.training import training
from costtrace.report.views import INITIALS, MARKS, VIEWS, Field, added, fields, macs, ordered

WIDTH = 100
HEIGHT = 40
SMALL = 0.02
"""Rows may be shown as one where the page would be longer than HEIGHT; never one with a larger share than this."""
NOTES = 3
TIED = "\u00a0"
"""A space between a number and its unit, where no line breaks."""
SHORTEST = 16
"""What a name is never cut below."""
COLOURS = {"compute": "green", "memory": "yellow", "vector": "cyan", "transcendental": "magenta", "integer": "blue",
           "link": "red", "host": "red"}  # fmt: skip
NOT_MODELLED = "not modelled: real fusion, tile padding, launches, host, throttling: a floor is no forecast."
MARKED = {"modelled": "modelled", "unknown": "partly unknown, a lower bound"}
TAGS = {"S": "documented", "D": "derived", "M": "measured"}


def page(
    doc: Document, *, unit: str = "flop", sort: str | None = None, top: int | None = None, verbose: bool = False,
    colour: bool = False,
) -> str:  # fmt: skip
    """The whole page. `verbose` shows every row and note; else the smallest rows stand as one and notes are few."""
    view = VIEWS[doc["by"]]
    foot = _foot(doc, unit, verbose)
    head = _head(doc)
    made = {some["stage"]: some for some in doc.get("throughput", ())}
    headings = [_heading(stage, made.get(stage["name"]), colour) for stage in doc["stages"]]
    budget = HEIGHT - len(head) - len(foot) - 5 - view.adds * len(headings) - sum(map(len, headings))
    parts = [ordered(doc, stage, sort, top) for stage in doc["stages"]]
    if not verbose and top is None and sort is None:
        parts = _folded([kept for kept, _ in parts], budget)
    body: list[Document] = []
    starts: dict[int, list[str]] = {}
    for heading, (kept, rest) in zip(headings, parts, strict=True):
        starts[len(body)] = heading
        body += kept
        if rest:
            body.append(added(f"{len(rest)} {'smaller' if top is None else 'other'}", rest))
        if view.adds:
            body.append(added("sum of rows", kept + rest))
    columns = fields(doc, unit)
    table = Table(tuple(f.column for f in columns), [[f.value(row) for f in columns] for row in body])
    seen = shown(table)
    _only_where_less(seen, columns)
    drawn = fitted(seen, WIDTH - 2, colour)
    above = len(drawn) - len(body)
    out = [*head, "", *(f"  {line}".rstrip() for line in drawn[:above])]
    for index, line in enumerate(drawn[above:]):
        if index in starts:
            out += starts[index]
        out.append(f"  {line}".rstrip())
    return "\n".join([*out, "", *foot])


def _only_where_less(seen: Shown, columns: Sequence[Field]) -> None:
    """Empties the cells of useful work that say what the executed work beside them says."""
    for k, field in enumerate(columns):
        if field.column.key.startswith("useful"):
            seen.cells[:] = [[*row[:k], "" if row[k] == row[k - 1] else row[k], *row[k + 1 :]] for row in seen.cells]


def fitted(seen: Shown, width: int, colour: bool = False) -> list[str]:
    """The table's lines, made to fit where they do not: columns closer together, then long names in the first column
    cut from the left."""
    gap = 2 if max(map(len, lines(seen))) <= width else 1
    over = max(map(len, lines(seen, gap))) - width
    if over > 0:
        longest = max(max(len(row[0]) for row in seen.cells) - over, SHORTEST)
        seen.cells[:] = [[_cut(row[0], longest), *row[1:]] for row in seen.cells]
    if colour:
        seen.cells[:] = [[_coloured(cell) for cell in row] for row in seen.cells]
    return lines(seen, gap)


def _cut(name: str, longest: int) -> str:
    return name if len(name) <= longest else f"...{name[len(name) - longest + 3 :]}"


def _folded(parts: list[list[Document]], budget: int) -> list[tuple[list[Document], list[Document]]]:
    """Each stage's rows as (kept, folded): where all are more than `budget`, the smallest are folded."""
    total = sum(map(len, parts))
    small = sorted((row["share"] or 0.0, s, r) for s, rows in enumerate(parts) for r, row in enumerate(rows)
                   if (row["share"] or 0.0) < SMALL)  # fmt: skip
    folded: list[set[int]] = [set() for _ in parts]
    for _, stage, row in small:
        if total - sum(max(0, len(f) - 1) for f in folded) <= budget:
            break
        folded[stage].add(row)
    folded = [f if len(f) > 1 else set() for f in folded]
    return [
        ([row for k, row in enumerate(rows) if k not in hidden], [row for k, row in enumerate(rows) if k in hidden])
        for rows, hidden in zip(parts, folded, strict=True)
    ]


def _head(doc: Document) -> list[str]:
    derived = doc.get("derived", ())
    given = [f"{key} {written(value)}" for key, value in doc["config"].items() if key not in derived]
    follow = [f"{key} {written(value)}" for key, value in doc["config"].items() if key in derived]
    config = ", ".join(given) + (f"; so {', '.join(follow)}" if follow else "")
    numbers = {n["key"]: n for n in doc["numbers"]}
    wanted = [(key.partition(".")[2], n) for key, n in numbers.items() if key.startswith("matrix.")]
    wanted += [("HBM", numbers["hbm.bandwidth"])] if "hbm.bandwidth" in numbers else []
    wanted = [(what, numbers.get(f"efficiency.{what.lower()}", n)) for what, n in wanted]
    peaks = [f"{n['text']} {what} [{n['tag']}]" for what, n in wanted]
    rates = "at measured rates" if doc["efficiency"] else "at peak rates"
    first = f"{doc['model']}: {config}" if config else doc["model"]
    rates += f": {', '.join(peaks)}" if peaks else ""
    return [*wrapped(first), *wrapped(f"on {doc['chip_title']}, {rates}"), coverage.said(doc)]


def written(value: Any) -> str:
    """A config's value on one line: [1360, 768] as 1360x768."""
    if isinstance(value, list):
        return ("x" if all(isinstance(v, int) for v in value) else ",").join(map(written, value))
    return str(value)


def _heading(stage: Document, made: Document | None, colour: bool) -> list[str]:
    mark = MARKS.get(stage["status"], "")
    words = [
        f"{stage['name']}{mark} x{stage['calls']}",
        *([f"{stage['parameters']:,} params"] if stage["parameters"] else []),
        f"floor {units.text(stage['floor_s'], 's')}",
        f"pessimistic {units.text(stage['pessimistic_s'], 's')}",
        f"fused {units.text(stage['total']['bytes_fused'], 'B')}",
        f"peak {units.text(stage['peak_bytes'], 'B')}",
        *([_rate(made)] if made else []),
    ]
    text = "  ".join(words)
    text = text if len(text) <= WIDTH else " ".join(words)
    return [_styled(line, colour, bold=True) for line in wrapped(text, "    ")]


def _rate(made: Document) -> str:
    """What one call makes, and how many in a second at the floor."""
    rate = made["per_s"]
    each = "?" if rate is None else f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
    return f"makes {made['count']:,} {made['unit']}, {each}/s at the floor"


def _coloured(cell: str) -> str:
    words = {**{word: word for word in INITIALS}, **{initial: word for word, initial in INITIALS.items()}}
    if cell in INITIALS:
        return _styled(cell, True, fg=COLOURS[cell])
    pieces = cell.split("/")
    if len(pieces) > 1 and all(piece in words for piece in pieces):
        return "/".join(_styled(piece, True, fg=COLOURS[words[piece]]) for piece in pieces)
    return cell


def _styled(text: str, colour: bool, **how: Any) -> str:
    if not colour:
        return text
    import click  # a notebook needs no command line

    return click.style(text, **how)


def wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(printable(text), WIDTH, subsequent_indent=indent, break_on_hyphens=False) or [""]


def _foot(doc: Document, unit: str, verbose: bool) -> list[str]:
    out = [*training(doc["training"]), ""] if "training" in doc else []
    out += [line.replace(TIED, " ") for line in wrapped(_all_calls(doc, unit))]
    out += [line for some in doc.get("turning", ()) for line in wrapped(f"{some['stage']}: {some['text']}")]
    out += notes(doc, verbose)
    out += [line for text in _legend(doc) for line in wrapped(text)]
    by_tag = {tag: [n["key"] for n in doc["numbers"] if n["tag"] == tag] for tag in TAGS}
    by_tag["D"].insert(0, "all counts")
    tagged = "; ".join(f"[{tag}] {TAGS[tag]}: {', '.join(keys)}" for tag, keys in by_tag.items() if keys)
    out += wrapped(f"{tagged}. Sources: costtrace chips {doc['chip']}")
    return out + wrapped(NOT_MODELLED)


def _all_calls(doc: Document, unit: str) -> str:
    """Each stage's own figures times its calls, added up; useful work where that says something else."""
    total, masked = doc["total"], doc["total"]["flops"] - doc.get("useful_flops", doc["total"]["flops"])

    def said(value: float | None, unit: str) -> str:
        return units.text(value, unit).replace(" ", TIED)

    work = said(macs(total), "MAC") if unit == "mac" else said(total["flops"], "FLOP")
    left = said(macs(total) - masked / 2, "MAC") if unit == "mac" else said(total["flops"] - masked, "FLOP")
    floor, useful_floor = said(doc["floor_s"], "s"), said(doc.get("useful_floor_s", doc["floor_s"]), "s")
    sizes = {"weights": "weight_bytes"} | {cut: f"bytes_{cut}" for cut in ("fused", "scoped", "unfused")}
    return ", ".join([
        f"all calls{MARKS.get(doc['status'], '')}: {work}" + f" ({left} useful)" * (left != work),
        *(f"{name} {said(total[key], 'B')}" for name, key in sizes.items()),
        f"floor {floor}" + f" ({useful_floor} useful)" * (left != work and useful_floor not in (floor, "?")),
        f"pessimistic {said(doc['pessimistic_s'], 's')}",
    ])  # fmt: skip


ROWS = {
    "scope": "a row's floor is its own, as one kernel; rows add up serially, to more than their stage's (heading)",
    "weight": "rows overlap where an op reads two weights; what reads none is in no row: so there is no sum",
    "other": "a row's time is with unfused bytes, every op a kernel; rows add up serially",
}
SHARES = {
    "scope": "share of all rows' calls x pessimistic time",
    "weight": "share of the stages' own time with unfused bytes",
    "other": "share of all rows' calls x time",
}
"""What must be known of rows, and what a share is of: for scopes, weights, anything else."""


def _legend(doc: Document) -> list[str]:
    by = "scope" if doc["by"] == "layer" else doc["by"] if doc["by"] in ROWS else "other"
    rows = [row for stage in doc["stages"] for row in stage["rows"]]
    cuts = ("fused", "scoped", "unfused")
    bounds = [[row[f"bound_{cut}"] for cut in cuts] for row in rows if row["floor_s"] is not None]
    differing = {word for words in bounds if len(set(words)) > 1 for word in words if word}
    said = [SHARES[by]]
    if any(field.column.head == "useful" for field in fields(doc)):
        said.append("useful: without masked work, where it is less")
    if differing:
        initials = ", ".join(f"{INITIALS[word]} {word}" for word in INITIALS if word in differing)
        said.append(f"bound fused/scoped/unfused: {initials}")
    return [ROWS[by], "; ".join([*said, *marked(part["status"] for part in [*rows, *doc["stages"]])])]


def marked(statuses: Iterable[str]) -> list[str]:
    """What the marks of these statuses mean."""
    statuses = set(statuses)
    return [f"{MARKS[status].strip()} {words}" for status, words in MARKED.items() if status in statuses]


URGENT = ("does-not-fit", "links", "unknown-primitive", "unknown-trip", "routing")
"""Kinds of notes that stand before others: without them the table is read wrong."""
DETAILS = ("working-set",)
"""Kinds of notes that are shown with -v only, and by --explain."""


def notes(doc: Document, verbose: bool) -> list[str]:
    """The notes as lines: all of them, or the first of each of the first kinds with the number of others like it."""
    some, alone = doc["notes"], len(doc["stages"]) == 1
    if verbose:
        return [line for n in some for line in wrapped(f"note {n['kind']}: {placed(n, alone)}{n['text']}")]
    kinds: dict[str, list[Document]] = {}
    for note in some:
        if note["kind"] in DETAILS:
            continue
        kinds.setdefault(note["kind"], []).append(note)
    out = []
    first = sorted(kinds.items(), key=lambda each: (*URGENT, each[0]).index(each[0]))
    for kind, alike in first[:NOTES]:
        more = f" (and {len(alike) - 1} more: -v)" if len(alike) > 1 else ""
        out += wrapped(f"note {kind}: {placed(alike[0], alone)}{alike[0]['text']}{more}")
    if len(kinds) > NOTES:
        out.append(f"notes of {len(kinds) - NOTES} more kinds: -v shows them")
    return out


def placed(note: Document, alone: bool) -> str:
    """A note's stage and scope, with a colon: what its text is about."""
    stage = "" if alone else note["stage"]
    place = ": ".join(part for part in (stage, note["scope"]) if part and part != ".")
    return f"{place}: " if place else ""
