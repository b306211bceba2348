"""Answers -> one HTML page that needs no network: figures, a table to sort, an icicle to zoom, a roofline, times.

Nothing of a program's names is ever markup: text is escaped here, data goes in as JSON without "<", and a content
security policy lets only the page's own script run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from costtrace import capacity, units
from costtrace.chip import Chip
from costtrace.errors import UsageError
from costtrace.report.document import Document, Grouping, Stages, document
from costtrace.report.page import SCRIPT, STYLE
from costtrace.report.svg import HEIGHT, WIDTH, Point, attribute, bars
from costtrace.report.svg import roofline as roofline_chart
from costtrace.report.table import Table, shown
from costtrace.report.text import NOT_MODELLED, TAGS, written
from costtrace.report.views import fields, rows
from costtrace.roofline import TERMS
from costtrace.timeline import OWN, leaves
from costtrace.version import __version__

Answers = Sequence[tuple[str, Mapping[str, Any], Stages, Mapping[str, int], Chip]]
"""(program, configuration, stages, depth of each stage's rows, chip)"""
MEASURES = (("pessimistic time", "s"), ("FLOPs", "FLOP"), ("bytes, a kernel a scope", "B"),
            ("bytes, a kernel a primitive", "B"), ("parameter bytes", "B"))  # fmt: skip
"""What the icicle's widths can be."""


def page(answers: Answers) -> str:
    """The page of all answers; a picker shows one at a time."""
    made = [(document(name, config, chip, stages, Grouping(depth=depths, merge=True)), stages, chip)
            for name, config, stages, depths, chip in answers]  # fmt: skip
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_digest(SCRIPT)}'"
    names = ", ".join(dict.fromkeys(doc["model"] for doc, _, _ in made))
    out = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{attribute(policy)}">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>costtrace: {escape(names)}</title><style>{STYLE}</style></head><body><main>",
        f'<h1>{escape(names)}</h1><p><label>Show <select id="picker">',
        *(f'<option value="{k}">{escape(_called(doc))}</option>' for k, (doc, _, _) in enumerate(made)),
        "</select></label></p>",
    ]
    for k, one in enumerate(made):
        out += [f'<section data-answer="{k}"{" hidden" if k else ""}>', *_section(*one), "</section>"]
    out.append(f'<p class="soft">costtrace {escape(__version__)}; {escape(NOT_MODELLED)}</p>')
    return "\n".join([*out, f"</main><script>{SCRIPT}</script></body></html>\n"])


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _config(doc: Document) -> str:
    return ", ".join(f"{key} {written(value)}" for key, value in doc["config"].items())


def _called(doc: Document) -> str:
    return f"{doc['model']} on {doc['chip_title']}" + (f": {_config(doc)}" if doc["config"] else "")


def plot(answers: Answers) -> str:
    """The roofline chart of the first answer as an SVG file, with its own style, for light paper. Raises UsageError
    where the program or the chip has nothing to draw."""
    name, config, stages, depths, chip = answers[0]
    doc = document(name, config, chip, stages, Grouping(depth=depths, merge=True))
    chart = _chart(doc, _points(doc), chip)
    if not chart:
        raise UsageError(
            f"--plot: {name} on {chip.name} has no roofline: no part with FLOPs, or no rate in the chip file"
        )
    light = dict(re.findall(r"--([a-z]+): (#[0-9a-f]+)", STYLE.partition("@media")[0]))
    rules = re.sub(r"var\(--([a-z]+)\)", lambda found: light[found[1]], STYLE)
    wanted = [rule for rule in re.findall(r"[^{}]+\{[^{}]*\}", rules) if rule.lstrip().startswith(("svg", *SHAPES))]
    style = "".join(rule.replace("svg .", ".").replace("svg text", "text") for rule in wanted)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"'
    title = f"<title>{escape(_called(doc))}</title><style>{style}</style>"
    return chart.replace("<svg", head, 1).replace(">", f">{title}", 1) + "\n"


SHAPES = tuple(f".{term}" for term in TERMS)


def _chart(doc: Document, points: Sequence[Point], chip: Chip) -> str:
    peaks = {dtype: rate.value for dtype in _dtypes(doc) if (rate := chip.rate("matrix", dtype)) is not None}
    hbm = chip.hbm_bytes_per_s
    return roofline_chart(points, peaks, hbm.value if hbm else None)


def _section(doc: Document, stages: Stages, chip: Chip) -> Iterator[str]:
    points = _points(doc)
    yield f'<p class="soft">{escape(_called(doc))}</p>'
    yield from _figures(doc, chip)
    yield "<h2>Parts</h2>"
    yield from _table(doc)
    yield "<h2>Where it goes</h2>"
    yield from _icicle(doc["model"], stages, chip)
    chart = _chart(doc, points, chip)
    if chart:
        yield f"<h2>Roofline</h2><p>{_key(points)}</p>{chart}"
    yield f"<h2>Time by part, all calls</h2><p>full bar: floor; pale: a kernel a scope {_key(points)}</p>{bars(points)}"
    yield from _peak(doc)
    yield from _notes(doc)
    yield from _numbers(doc)


def _dtypes(doc: Document) -> list[str]:
    return list(doc["total"]["by_dtype"])


def _figures(doc: Document, chip: Chip) -> Iterator[str]:
    peak = max((stage["peak_bytes"] for stage in doc["stages"]), default=0)
    fit = capacity.hbm(peak, chip)
    room = "" if fit is None else (" fits" if fit.fits else " does not fit") + f" in {fit.capacity.text}"
    some = [("floor, all calls", units.text(doc["floor_s"], "s")),
            ("a kernel a scope", units.text(doc["pessimistic_s"], "s")),
            ("work", units.text(doc["total"]["flops"], "FLOP")),
            ("parameters read, all calls", units.text(doc["total"]["weight_bytes"], "B")),
            (f"most memory at once:{room}", units.text(peak, "B")), ("counts", doc["status"])]  # fmt: skip
    yield '<div class="figures">'
    yield from (f"<div><b>{escape(value)}</b>{escape(words)}</div>" for words, value in some)
    yield "</div>"


def _table(doc: Document) -> Iterator[str]:
    """One body a stage, so that sorting keeps stages apart; cells hold their exact value for the script."""
    columns = fields(doc)
    parts = [(stage, rows(doc, stage)) for stage in doc["stages"]]
    values = [[column.value(row) for column in columns] for _, some in parts for row in some]
    if not values:
        yield "<p>no parts</p>"
        return
    seen = shown(Table(tuple(column.column for column in columns), values))
    heads = (f'<th scope="col"><button title="sort; [D] derived from the program">{escape(head)}</button></th>'
             for head in (" ".join(head.split()) for head in seen.heads))  # fmt: skip
    yield f'<div class="wide"><table class="sortable"><thead><tr>{"".join(heads)}</tr></thead>'
    at = 0
    for stage, some in parts:
        words = (f"{stage['name']} x{stage['calls']}: {stage['parameters']:,} parameters, floor "
                 f"{units.text(stage['floor_s'], 's')}, peak {units.text(stage['peak_bytes'], 'B')}")  # fmt: skip
        yield f'<tbody><tr class="stage"><td colspan="{len(columns)}">{escape(words)}</td></tr>'
        for cells, raw in zip(seen.cells[at : at + len(some)], values[at : at + len(some)], strict=True):
            tds = (f'<td data-v="{attribute("" if v is None else str(v))}">{escape(cell)}</td>'
                   for cell, v in zip(cells, raw, strict=True))  # fmt: skip
            yield f"<tr>{''.join(tds)}</tr>"
        yield "</tbody>"
        at += len(some)
    yield "</table></div>"


def _icicle(name: str, stages: Stages, chip: Chip) -> Iterator[str]:
    options = "".join(f'<option value="{k}">{escape(words)}</option>' for k, (words, _) in enumerate(MEASURES))
    tree = tree_of(name, stages, chip) | {"units": [unit for _, unit in MEASURES]}
    data = json.dumps(tree, separators=(",", ":")).replace("<", "\\u003c")
    yield '<div class="icicle"><p><label>width: <select>' + options + "</select></label> "
    yield '<span class="soft">Click or Enter: zoom; Escape: out</span></p><nav class="crumbs"></nav>'
    yield f'<svg role="group" aria-label="scopes"></svg><script type="application/json">{data}</script></div>'


def tree_of(name: str, stages: Stages, chip: Chip) -> dict[str, Any]:
    """{n: name, c: children}, down to leaves {n, v: MEASURES of all calls, b: what binds}."""
    root: dict[str, Any] = {"n": name, "c": []}
    for stage, calls, profile in stages:
        top: dict[str, Any] = {"n": f"{stage} x{calls}", "c": []}
        nodes: dict[tuple[str, ...], dict[str, Any]] = {(): top}
        root["c"].append(top)
        for leaf in leaves(profile, chip):
            path = leaf.path or (OWN,)
            for k in range(1, len(path)):
                if path[:k] not in nodes:
                    nodes[path[:k]] = {"n": path[k - 1], "c": []}
                    nodes[path[: k - 1]]["c"].append(nodes[path[:k]])
            cost = leaf.cost
            figures = (leaf.times.seconds, cost.flops, cost.bytes_scoped, cost.bytes_unfused, cost.weight_bytes)
            last = "(own)" if path[-1] == OWN else path[-1]
            nodes[path[:-1]]["c"].append({"n": last, "v": [calls * n for n in figures], "b": leaf.times.bound})
    return root


def _points(doc: Document) -> list[Point]:
    out = []
    for stage in doc["stages"]:
        for row in rows(doc, stage):
            cost, calls = row["cost"], stage["calls"]
            if cost["flops"] is None:
                continue  # work without a price has no place on a roofline
            out.append(Point(f"{stage['name']}: {row['part']}", calls * cost["flops"], calls * cost["bytes_scoped"],
                             calls * row["floor_s"], calls * row["pessimistic_s"], row["bound_scoped"],
                             row["share"] or 0.0))  # fmt: skip
    return out


def _key(points: Sequence[Point]) -> str:
    there = {p.bound for p in points}
    return "".join(f'<span class="key {term}"></span>{term}' for term in TERMS if term in there)


def _peak(doc: Document) -> Iterator[str]:
    yield "<h2>Memory at its peak</h2>"
    for stage in doc["stages"]:
        peak = stage["peak"]
        words = (
            f"{stage['name']}: {units.text(stage['peak_bytes'], 'B')} at {peak['primitive']} in {peak['scope'] or '.'}"
        )
        yield f"<details><summary>{escape(words)}</summary><table>"
        for each in peak["alive"]:
            yield f"<tr><td>{escape(each['value'])}</td><td>{escape(units.text(each['bytes'], 'B'))}</td></tr>"
        yield "</table></details>"


def _notes(doc: Document) -> Iterator[str]:
    if doc["notes"]:
        yield "<h2>Notes</h2><ul>"
        for note in doc["notes"]:
            place = ": ".join(part for part in (note["stage"], note["scope"]) if part)
            yield f"<li><b>{escape(note['kind'])}</b> {escape(place)} {escape(note['text'])}</li>"
        yield "</ul>"


def _numbers(doc: Document) -> Iterator[str]:
    yield f'<h2>Numbers of {escape(doc["chip_title"])}</h2><div class="wide"><table>'
    for n in doc["numbers"]:
        tag = f'<abbr title="{attribute(TAGS[n["tag"]])}">[{escape(n["tag"])}]</abbr>'
        source = f"{n['source']}, {n['date']}" if n["date"] else n["source"]
        yield (f'<tr><td>{escape(n["key"])}</td><td>{escape(n["text"])} {tag}</td>'
               f'<td class="left">{escape(source)}</td></tr>')  # fmt: skip
    yield "</table></div>"
