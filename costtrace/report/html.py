"""Answers -> one HTML page that needs no network: figures, a table to sort, an icicle to zoom, a roofline, times.

Nothing of a program's names is ever markup: text is escaped here, data goes in as JSON without "<", and a content
security policy lets only the page's own script run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

from costtrace import capacity, coverage, roofline, units
from costtrace.chip import Chip
from costtrace.core import Cost
from costtrace.errors import UsageError
from costtrace.report import chart
from costtrace.report.chart import Point
from costtrace.report.document import Answer, Document, Grouping, document
from costtrace.report.page import SCRIPT, STYLE
from costtrace.report.table import Column, Table, shown
from costtrace.report.text import NOT_MODELLED, TAGS, written
from costtrace.report.views import INITIALS, MARKS, fields, rows
from costtrace.roofline import TERMS
from costtrace.timeline import OWN, Leaf, leaves
from costtrace.version import __version__

MEASURES = (
    ("serial time", "s"), ("floor", "s"), ("predicted time", "s"), ("FLOPs", "FLOP"), ("fused bytes", "B"),
    ("scoped bytes", "B"), ("unfused bytes", "B"), ("parameter bytes", "B"), ("memory at the peak, of one call", "B"),
)  # fmt: skip
"""What the icicle's widths can be; predicted time where the program is compiled."""
PREDICTED = 2
ROWS = 300
"""Of a stage, before one asks for the rest: a browser takes seconds to lay out thousands."""
FINDINGS = 8
"""Of an audit, the largest, before one asks for the rest."""


def page(answers: Sequence[Answer]) -> str:
    """The page of all answers; a picker shows one at a time."""
    made = [(_document(each), each) for each in answers]
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_digest(SCRIPT)}'"
    names = ", ".join(dict.fromkeys(doc["model"] for doc, _ in made))
    out = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{attribute(policy)}">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>costtrace: {escape(names)}</title><style>{STYLE}</style></head><body><main>",
        f'<h1>{escape(names)}</h1><p{"" if len(made) > 1 else " hidden"}><label>Show <select id="picker">',
        *(f'<option value="{k}">{escape(_called(doc))}</option>' for k, (doc, _) in enumerate(made)),
        "</select></label></p>",
    ]
    for k, one in enumerate(made):
        named = ' class="named"' if len(made) > 1 else ""  # the picker has its name on a screen
        out += [f'<section data-answer="{k}"{named}{" hidden" if k else ""}>', *_section(*one), "</section>"]
    out.append(f'<p class="soft">costtrace {escape(__version__)}; {escape(NOT_MODELLED)}</p>')
    return "\n".join([*out, f"</main><script>{SCRIPT}</script></body></html>\n"])


def attribute(text: str) -> str:
    """Text between double quotes."""
    return escape(text, quote=True)


def _document(each: Answer) -> Document:
    doc = document(each.name, each.config, each.chip, each.stages, Grouping(depth=each.depth, merge=True))
    if each.compiled is not None:
        from costtrace.report.compiled import attached

        attached(doc, each.compiled, each.chip)
    return doc


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _config(doc: Document) -> str:
    return ", ".join(f"{key} {written(value)}" for key, value in doc["config"].items())


def _called(doc: Document) -> str:
    return f"{doc['model']} on {doc['chip_title']}" + (f": {_config(doc)}" if doc["config"] else "")


def plot(each: Answer, kind: str) -> bytes:
    """The roofline as an "svg" or "png" of its own. Raises UsageError where the program or the chip has nothing to
    draw."""
    doc = _document(each)
    made = _roofline(doc, _points(doc), each.chip)
    if made is None:
        raise UsageError(f"--plot: {each.name} on {each.chip.name} has no roofline: no matrix products, no part with "
                         "FLOPs and bytes, or no rate in the chip file")  # fmt: skip
    return made.file(kind, _called(doc))


def _roofline(doc: Document, points: Sequence[Point], chip: Chip) -> chart.Chart | None:
    peaks = {dtype: rate.value for dtype in _dtypes(doc) if (rate := chip.rate("matrix", dtype)) is not None}
    hbm = chip.hbm_bytes_per_s
    return chart.roofline(points, peaks, hbm.value if hbm else None)


def _section(doc: Document, each: Answer) -> Iterator[str]:
    points, chip = _points(doc), each.chip
    yield f'<p class="called soft">{escape(_called(doc))}</p><p class="soft">{escape(coverage.said(doc))}'
    yield "; undivided, on one chip: strategies are below</p>" if each.strategies else "</p>"
    yield from _figures(doc, chip)
    yield "<h2>Parts, one call</h2>"
    yield from _table(doc, each)
    yield f'<p class="soft">{escape(_legend(doc, each))}</p>'
    yield "<h2>Where it goes</h2>"
    yield from _icicle(doc["model"], each)
    yield from _drawn("Roofline", _key(points), _roofline(doc, points, chip))
    words = f"full bar: floor; pale: pessimistic, each alone {_key(points)}"
    yield from _drawn("Time by part, all calls", words, chart.parts(points))
    yield from _strategies(each.strategies)
    curves = [(name, profile.peak.curve) for name, _, profile in each.stages]
    room = chip.value("hbm.capacity")
    yield from _drawn("Memory over the program", "each stage's calls one after the other", chart.memory(curves, room))
    yield from _peak(doc)
    if each.audit is not None:
        yield from _audit(each.audit)
    yield from _notes(doc)
    yield from _numbers(doc)


def _strategies(some: Sequence[Document]) -> Iterator[str]:
    """Those that can run, on a scale that the others, often far longer, do not spoil; all where none can."""
    running = [s for s in some if not s["blocked"]] or some
    left = [f"{s['name']}, {s['chips']} chips" for s in some if s not in running]
    words = 'work, then links, not overlapped <span class="key compute"></span>work<span class="key link"></span>links'
    words += escape(f"; does not fit or divide: {'; '.join(left)}") if left else ""
    if some:
        yield from _drawn("Time by strategy, all calls", words, chart.strategies(running))


def _drawn(head: str, words: str, made: chart.Chart | None) -> Iterator[str]:
    if made is not None:
        yield f'<h2>{escape(head)}</h2><p>{words}</p><div class="chart">{made.inline()}</div>'


def _dtypes(doc: Document) -> list[str]:
    return list(doc["total"]["by_dtype"])


def _figures(doc: Document, chip: Chip) -> Iterator[str]:
    peak = max((stage["peak_bytes"] for stage in doc["stages"]), default=0)
    fit = capacity.hbm(peak, chip)
    room = "" if fit is None else (" fits" if fit.fits else " does not fit") + f" in {fit.capacity.text}"
    mark = MARKS.get(doc["status"], "")
    some = [("floor, all calls", units.text(doc["floor_s"], "s")),
            ("pessimistic, all calls", units.text(doc["pessimistic_s"], "s")),
            ("work", units.text(doc["total"]["flops"], "FLOP")),
            ("parameters read, all calls", units.text(doc["total"]["weight_bytes"], "B")),
            (f"most memory at once:{room}", units.text(peak, "B"))]  # fmt: skip
    if doc.get("compiled_s") is not None:
        some.insert(1, ("predicted by its compiler", units.text(doc["compiled_s"], "s")))
    yield '<div class="figures">'
    yield from (f"<div><b>{escape(value + mark)}</b>{escape(words)}</div>" for words, value in some)
    yield "</div>"


COMPILED = (("HBM compiled", "hbm_bytes", "B"), ("kernels", "kernels", ""), ("predicted", "time_s", "s"))
"""Columns of what the chip's compiler made: head, key of a row's `compiled`, unit."""
WORDS = {
    "part": "a named scope", "flops": "floating-point work; a multiply-add is 2",
    "useful": "work without what static masks hide", "weight": "parameters read",
    "fused": "bytes that must move, were the part one kernel", "scoped": "bytes with every innermost scope a kernel",
    "unfused": "bytes with every primitive a kernel", "intensity": "FLOPs per fused byte",
    "bound": "what takes longest", "floor": "the longest unit at its peak rate, with fused bytes",
    "share": "of all rows' calls x pessimistic time", "hbm_bytes": "bytes to and from the chip's memory",
    "kernels": "how many the compiler made of it", "time_s": "seconds of one call",
}  # fmt: skip
"""Column -> what is in it, beside its head."""


def _legend(doc: Document, each: Answer) -> str:
    """What stands in cells that are no number."""
    found = {str(field.value(row)) for field in fields(doc) if field.column.key == "bound"
             for stage in doc["stages"] for row in rows(doc, stage)}  # fmt: skip
    letters = {letter for text in found if "/" in text for letter in text.split("/")}
    some = ", ".join(f"{letter} {word}" for word, letter in INITIALS.items() if letter in letters)
    said = ["a column's head says what it is, and sorts", "~ modelled, ? not known, - has no meaning there"]
    said += [f"bound where fused/scoped/unfused bytes differ: {some}"] if some else []
    said += ["- as compiled: no kernel of its own, fused into others"] if each.compiled is not None else []
    return "; ".join(said)


def _table(doc: Document, each: Answer) -> Iterator[str]:
    """One body a stage, so that sorting keeps stages apart; cells hold their exact value for the script."""
    columns = [(column.column, column.value, "[D] derived from the program") for column in fields(doc)]
    if each.compiled is not None:
        who = "[D] what the chip's own compiler says"
        columns += [(Column(key, head, unit), _made(key), who) for head, key, unit in COMPILED]
    parts = [(stage, rows(doc, stage)) for stage in doc["stages"]]
    values = [[value(row) for _, value, _ in columns] for _, some in parts for row in some]
    if not values:
        yield "<p>no parts</p>"
        return
    seen = shown(Table(tuple(column for column, _, _ in columns), values))
    heads = (f'<th scope="col"><button title="{attribute(f"{WORDS[column.key]} {who}; sort")}">'
             f"{escape(' '.join(head.split()))}</button></th>"
             for head, (column, _, who) in zip(seen.heads, columns, strict=True))  # fmt: skip
    yield f'<div class="wide"><table class="sortable"><thead><tr>{"".join(heads)}</tr></thead>'
    at = 0
    for stage, some in parts:
        measured = each.measured.get(stage["name"])
        name = f"{stage['name']}{MARKS.get(stage['status'], '')} x{stage['calls']}"
        words = (f"{name}: {stage['parameters']:,} parameters, floor "
                 f"{units.text(stage['floor_s'], 's')}, peak {units.text(stage['peak_bytes'], 'B')}"
                 + (f", predicted {units.text(stage['compiled_s'], 's')}" if "compiled_s" in stage else "")
                 )  # fmt: skip
        told = escape(words)
        if measured is not None:
            told += (f', <abbr title="{attribute(measured[1])}">measured {escape(units.text(measured[0], "s", 3))} [M]'
                     "</abbr>")  # fmt: skip
        yield f'<tbody><tr class="stage"><td colspan="{len(columns)}"><span>{told}</span></td></tr>'
        each_row = zip(seen.cells[at : at + len(some)], values[at : at + len(some)], strict=True)
        for number, (cells, raw) in enumerate(each_row):
            tds = [f'<td data-v="{attribute("" if v is None else str(v))}">{escape(cell)}</td>'
                   for cell, v in zip(cells, raw, strict=True)]  # fmt: skip
            tds[0] = tds[0].replace("<td ", f'<td class="part" title="{attribute(str(raw[0]))}" ', 1)
            more = ' class="more"' if number >= ROWS else ""
            yield f"<tr{more}>{''.join(tds)}</tr>"
        yield "</tbody>"
        at += len(some)
    yield "</table></div>"
    if any(len(some) > ROWS for _, some in parts):
        yield f'<p><button class="all">Show all {len(values):,} rows, not {ROWS} of each stage</button></p>'


def _made(key: str) -> Callable[[Document], Any]:
    return lambda row: row["compiled"][key] if row.get("compiled") else "-"


def _icicle(name: str, each: Answer) -> Iterator[str]:
    there = [k for k in range(len(MEASURES)) if k != PREDICTED or each.compiled is not None]
    options = "".join(f'<option value="{k}">{escape(MEASURES[k][0])}</option>' for k in there)
    tree = tree_of(name, each) | {"units": [unit for _, unit in MEASURES]}
    data = json.dumps(tree, separators=(",", ":")).replace("<", "\\u003c")
    yield '<div class="icicle"><p><label>width: <select>' + options + "</select></label> "
    yield '<span class="screen soft">click or Enter: zoom; arrows: move; Escape: out</span></p>'
    yield '<nav class="crumbs"></nav>'
    yield f'<svg role="group" aria-label="scopes"></svg><script type="application/json">{data}</script></div>'


def tree_of(name: str, each: Answer) -> dict[str, Any]:
    """{n: name, c: children}, down to leaves {n, v: MEASURES of all calls, b: what binds}."""
    root: dict[str, Any] = {"n": name, "c": []}
    for stage, calls, profile in each.stages:
        top: dict[str, Any] = {"n": f"{stage} x{calls}" if calls > 1 else stage, "c": []}
        nodes: dict[tuple[str, ...], dict[str, Any]] = {(): top}
        root["c"].append(top)
        held, predicted = dict(profile.peak.made), _predicted(each, stage)
        for leaf in leaves(profile, each.chip):
            path = leaf.path or (OWN,)
            for k in range(1, len(path)):
                if path[:k] not in nodes:
                    nodes[path[:k]] = {"n": path[k - 1], "c": []}
                    nodes[path[: k - 1]]["c"].append(nodes[path[:k]])
            figures = _leaf(leaf, calls, predicted.get(leaf.scope or ".", 0.0), held.pop(leaf.scope, 0), each.chip)
            last = "(own)" if path[-1] == OWN else path[-1]
            nodes[path[:-1]]["c"].append({"n": last, "v": figures, "b": leaf.times.bound})
        for scope, nbytes in held.items():  # arguments, above all
            top["c"].append({"n": scope, "v": [0] * (len(MEASURES) - 1) + [nbytes], "b": "group"})
    return root


def _leaf(leaf: Leaf, calls: int, predicted_s: float, held: int, chip: Chip) -> list[float]:
    cost: Cost = leaf.cost
    floor = roofline.times(cost, chip, cost.bytes_fused).seconds
    sizes = (cost.flops, cost.bytes_fused, cost.bytes_scoped, cost.bytes_unfused, cost.weight_bytes)
    return [*(calls * n for n in (leaf.times.seconds, floor, predicted_s, *sizes)), held]


def _predicted(each: Answer, stage: str) -> dict[str, float]:
    """{scope: seconds of one call} as compiled; nothing where it is not."""
    if each.compiled is None:
        return {}
    return {scope: part.time_s for scope, part in each.compiled[stage][1].parts.items()}


def _points(doc: Document) -> list[Point]:
    out = []
    for stage in doc["stages"]:
        for row in rows(doc, stage):
            cost, calls = row["cost"], stage["calls"]
            if cost["flops"] is None or row["floor_s"] is None:
                continue  # work without a price, or a chip without a memory rate, has no place on a roofline
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


def _audit(doc: Document) -> Iterator[str]:
    """What a hand count claims of the program, row by row, and what follows."""
    yield "<h2>Audit of the hand count</h2>"
    told = [f"<li>{escape(found['text'])}</li>" for found in doc["findings"]]
    yield f'<ul class="findings">{"".join(told[:FINDINGS])}</ul>'
    if told[FINDINGS:]:
        yield f'<details><summary>{len(told) - FINDINGS} smaller</summary><ul class="findings">'
        yield f"{''.join(told[FINDINGS:])}</ul></details>"
    heads = ("stage", "part", "quantity", "hand", "traced", "XLA", "compiled", "verdict")
    yield "<details><summary>Every row that is claimed</summary>"
    cells = "".join(f'<th scope="col"><button title="sort">{head}</button></th>' for head in heads)
    yield f'<div class="wide"><table class="sortable"><thead><tr>{cells}</tr></thead><tbody>'
    for row in doc["rows"]:
        tds = [f'<td class="left" data-v="{attribute(row[k])}">{escape(row[k])}</td>'
               for k in ("stage", "row", "quantity")]  # fmt: skip
        for who in ("hand", "traced", "xla", "compiled"):
            value, tag = row[who], row["tags"].get(who, "D")
            said = "-" if value is None else units.text(value, row["unit"])
            title = "; ".join(row["formula"]) if who == "hand" else TAGS.get(tag, "")
            tds.append(f'<td data-v="{attribute("" if value is None else str(value))}" title="[{attribute(tag)}] '
                       f'{attribute(title)}">{escape(said)}</td>')  # fmt: skip
        word = attribute(row["verdict"])
        tds.append(f'<td class="left verdict-{word}" data-v="{word}">{escape(row["verdict"])}</td>')
        yield f"<tr>{''.join(tds)}</tr>"
    yield "</tbody></table></div></details>"


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
