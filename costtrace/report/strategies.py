"""Placed strategies -> the document of `--chips`, and its pages: one line each, the best one's parts, a scaling table.

Two columns of seconds: `traced`, on the chip's real network, every call of every stage; `hand`, one ring over all of a
chip's links and the collectives of each stage counted once, as a report's back of an envelope has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from costtrace import coverage, mesh, roofline, units
from costtrace.chip import Chip
from costtrace.report.document import Document, plain, preamble
from costtrace.report.table import Column, Table, lines, shown
from costtrace.report.text import URGENT, placed, wrapped, written
from costtrace.sharding import STRATEGIES, Part, Placed
from costtrace.summary import worst

if TYPE_CHECKING:
    from costtrace.quote import Said

LEGEND = """work: each stage's floor on one chip; floor: work and links overlapped; in turn: not; hand: as published,
else FLOPs at peak plus each stage's collectives once, over one ring of all links. ! does not fit or divide. Formulas
of a row: --explain with its name."""
SHOWN = 12
"""Collectives that a page shows, the longest first."""
PROBLEMS = 6
"""Of one strategy, where one number of chips was asked for; else one."""


def document(
    model: str,
    config: Mapping[str, Any],
    chip: Chip,
    parts: Sequence[Part],
    some: Sequence[Placed],
    said: Said | None = None,
) -> Document:
    """The answer for some strategies and numbers of chips, best first, as the JSON contract has it; what is counted
    exactly is of the undivided program."""
    return {
        **preamble(),
        "model": model,
        "config": plain(config),
        "chip": chip.name,
        "chip_title": chip.title,
        **coverage.coverage((p.calls, p.counted.status, p.counted.groups) for p in parts).to_dict(),
        "status": worst(p.counted.status for p in parts),
        "notes": [
            {"kind": note.kind, "stage": p.name, "scope": note.scope, "text": note.text}
            for p in parts
            for note in p.counted.notes
        ],
        "strategies": [entry(p, said) for p in some],
    }


def entry(p: Placed, said: Said | None = None) -> Document:
    """One strategy on one mesh. Seconds are of all calls; `floor_s` overlaps work and links, `serial_s` does not."""
    chip = p.mesh.chip
    return {
        "name": p.name,
        "mesh": dict(p.mesh.axes),
        "slice": "x".join(map(str, p.mesh.shape)),
        "chips": p.mesh.chips,
        "cost_per_chip": p.cost.to_dict(),
        "peak_bytes": p.peak_bytes,
        "fits": p.fits,
        "blocked": p.blocked,
        "collectives": [
            {
                "kind": c.kind,
                "axis": c.axis,
                "scope": c.scope,
                "count": c.count,
                "steps": mesh.steps(c.kind, p.mesh.group(c.axis).size),
                "bytes_sent": c.bytes_sent,
                "time_s": c.count * (price := p.mesh.price(c)).seconds,
                "bandwidth_s": c.count * price.bandwidth_s,
                "latency_s": c.count * price.latency_s,
                "formula": price.formula,
            }
            for c in p.collectives
        ],
        "collective_s": p.link_s(),
        "work_s": p.work_s(),
        "floor_s": p.floor_s(),
        "serial_s": p.serial_s(),
        "percent_of_peak": p.percent_of_peak(),
        "hand": hand(p, said),
        "problems": p.problems,
        "divisions": [
            {
                "stage": stage,
                "kind": d.kind,
                "size": d.size,
                "chips": d.chips,
                "each": d.each,
                "padded": d.padded,
                "tokens_percent": 100 * d.more,
                "attention_percent": 100 * d.squared,
                "text": str(d),
            }
            for stage, d in p.divisions
        ],
        "stages": [
            {
                "name": s.name,
                "calls": s.calls,
                "cost_per_chip": s.total.to_dict(),
                "peak_bytes": s.peak.nbytes,
                "work_s": s.bubble
                * roofline.times(s.total.replace(collective_bytes=0), chip, s.total.bytes_fused).seconds,
                "bubble": s.bubble,
            }
            for s in p.stages
        ],
    }


def hand(p: Placed, said: Said | None = None) -> Document:
    """An envelope's arithmetic. `source`: whose figures they are, where they are published for these chips. Else they
    are on the traced counts: FLOPs over all chips at peak, and each stage's collectives once over one ring of all
    links, None where the chip has no links."""
    chip, n = p.mesh.chip, p.mesh.chips
    source: str | None = None
    once: float | None = None
    if said is not None and (said.chip, said.chips) == (chip.name, n) and p.name in said.collective_s:
        compute, once, source = said.work_s, said.collective_s[p.name], said.source
    else:
        matrix = p.whole.replace(collective_bytes=0, host_bytes=0)
        compute = roofline.times(matrix, chip, 0).terms.get("compute", 0.0) / n
        rate = chip.link_bytes_per_s
        if rate is not None:
            once = sum(s.total.collective_bytes for s in p.stages) / rate
    whole = None if once is None else compute + once
    return {"compute_s": compute, "collective_s": once, "floor_s": whole,
            "percent_of_peak": 100 * compute / whole if whole else None, "source": source}  # fmt: skip


_COLUMNS = (
    Column("strategy", "strategy"),
    Column("mesh", "mesh"),
    Column("flops", "a chip", "FLOP"),
    Column("weights", "weights", "B"),
    Column("peak", "peak", "B"),
    Column("sent", "sent", "B"),
    Column("work", "work", "s"),
    Column("link", "links", "s"),
    Column("floor", "floor", "s"),
    Column("serial", "in turn", "s"),
    Column("percent", "of peak", "%"),
    Column("hand", "hand", "s"),
)


def _row(s: Document) -> list[Any]:
    cost = s["cost_per_chip"]
    mark = "" if s["fits"] and not s["blocked"] else " !"
    where = ",".join(f"{axis}={n}" for axis, n in s["mesh"].items())
    weights = max((stage["cost_per_chip"]["weight_bytes"] for stage in s["stages"]), default=0)
    return [s["name"] + mark, f"{where} ({s['slice']})", cost["flops"], weights, s["peak_bytes"],
            sum(c["bytes_sent"] for c in s["collectives"]), s["work_s"], s["collective_s"], s["floor_s"], s["serial_s"],
            s["percent_of_peak"] / 100, s["hand"]["floor_s"]]  # fmt: skip


def table(doc: Document) -> Table:
    """One line a strategy and mesh, as they are ranked."""
    return Table(_COLUMNS, [_row(s) for s in doc["strategies"]])


def page(doc: Document) -> str:
    """The table; then, where one number of chips was asked for, the best strategy's parts and collectives."""
    config = ", ".join(f"{key} {written(value)}" for key, value in doc["config"].items())
    out = [*wrapped(f"{doc['model']}: {config}"), *wrapped(f"on {doc['chip_title']}, all calls, at peak rates"),
           coverage.said(doc), ""]  # fmt: skip
    out += [f"  {line}".rstrip() for line in lines(shown(table(doc)))]
    strategies = doc["strategies"]
    if strategies and len({s["chips"] for s in strategies}) == 1:
        out += ["", *_why(strategies), *_parts(strategies[0])]
    out += ["", *_problems(strategies)]
    urgent = [note for note in doc["notes"] if note["kind"] in URGENT]
    alone = all(len(s["stages"]) == 1 for s in strategies)
    out += [line for note in urgent for line in wrapped(f"note {note['kind']}: {placed(note, alone)}{note['text']}")]
    out += wrapped(LEGEND)
    out += _published(doc)
    return "\n".join(out)


def _published(doc: Document) -> Iterator[str]:
    """Which figures of the hand column are somebody's own."""
    own = [s for s in doc["strategies"] if s["hand"]["source"]]
    if own:
        work = units.text(own[0]["hand"]["compute_s"], "s", 3)
        each = ", ".join(f"{units.text(s['hand']['collective_s'], 's', 4)} {s['name']}" for s in own)
        said = f"as published ({own[0]['hand']['source']}): {work} of work and, once, {each} of collectives"
        yield from wrapped(f"hand: {said}. Why they part from the rest: costtrace audit {doc['model']}")


def _why(strategies: Sequence[Document]) -> Iterator[str]:
    """What ranks the first before the second."""
    running = [s for s in strategies if not s["blocked"]]
    if len(running) < 2:
        return
    first, second = running[:2]
    more = [(words, second[key] - first[key]) for words, key in (("work", "work_s"), ("links", "collective_s"))]
    said = " and ".join(f"{units.text(abs(s), 's', 3)} {'more' if s > 0 else 'less'} {words}" for words, s in more if s)
    yield from wrapped(f"ranked by time in turn: {first['name']} {units.text(first['serial_s'], 's')}; "
                       f"{second['name']}, next, has {said or 'the same'}")  # fmt: skip
    yield ""


def _parts(s: Document) -> Iterator[str]:
    yield f"{s['name']}, one chip:"
    columns = (Column("stage", "stage"), Column("flops", "", "FLOP"), Column("weight", "weight", "B"),
               Column("fused", "fused", "B"), Column("peak", "peak", "B"), Column("work", "one call", "s"))  # fmt: skip
    rows = [[f"{part['name']} x{part['calls']}", cost["flops"], cost["weight_bytes"], cost["bytes_fused"],
             part["peak_bytes"], part["work_s"]]
            for part in s["stages"] for cost in (part["cost_per_chip"],)]  # fmt: skip
    yield from (f"  {line}".rstrip() for line in lines(shown(Table(columns, rows))))
    yield from (line for d in s["divisions"] for line in wrapped(f"  {d['stage']}: {d['text']}", "    "))
    moved = sorted(s["collectives"], key=lambda c: -c["time_s"])
    if not moved:
        return
    yield ""
    heads = ("collective", "axis", "scope", "times")
    links = (Column("sent", "sent", "B"), Column("bandwidth", "bandwidth", "s"), Column("latency", "latency", "s"))
    rows = [[c["kind"], c["axis"], c["scope"] or ".", str(c["count"]), c["bytes_sent"], c["bandwidth_s"],
             c["latency_s"]] for c in moved[:SHOWN]]  # fmt: skip
    rest = moved[SHOWN:]
    if rest:
        rows.append([f"{len(rest)} smaller", "", "", "", sum(c["bytes_sent"] for c in rest),
                     sum(c["bandwidth_s"] for c in rest), sum(c["latency_s"] for c in rest)])  # fmt: skip
    yield from (f"  {line}".rstrip() for line in lines(shown(Table((*(Column(h, h) for h in heads), *links), rows))))


def _problems(strategies: Sequence[Document]) -> Iterator[str]:
    most = PROBLEMS if len({s["chips"] for s in strategies}) == 1 else 1
    for s in strategies:
        for text in s["problems"][:most]:
            yield from wrapped(f"{s['name']} x{s['chips']}: {text}")
        if len(s["problems"]) > most > 1:
            yield f"{s['name']} x{s['chips']}: {len(s['problems']) - most} more: --format json"


NETWORK = ("link.count", "link.bandwidth", "link.latency")
"""Numbers of a chip that price collectives."""
BETWEEN = "scale_out.bandwidth"
"""The one more that prices those between hosts or pods."""


def explain(p: Placed) -> Iterator[str]:
    """The lines of `_explained`, as wide as a page."""
    for line in _explained(p):
        yield from wrapped(line, "    ")


def _explained(p: Placed) -> Iterator[str]:
    """Each stage's work and each collective's price as a formula with its values, then the numbers' sources."""
    chip = p.mesh.chip
    axes, slice_ = ", ".join(f"{k}={n}" for k, n in p.mesh.axes.items()), "x".join(map(str, p.mesh.shape))
    yield f"{p.name} on {p.mesh.chips} {chip.title}: {axes} on a slice of {slice_}"
    yield f"work {units.text(p.work_s(), 's')}, links {units.text(p.link_s(), 's')}"
    used: dict[str, None] = {}
    for s in p.stages:
        cost = s.total.replace(collective_bytes=0)
        found, parts = roofline.times(cost, chip, cost.bytes_fused), list(roofline.parts(cost, chip, cost.bytes_fused))
        binding = [part for part in parts if part.term == found.bound]
        less = ", ".join(f"{term} {units.text(t, 's')}" for term, t in found.terms.items() if term != found.bound)
        bubble = f" x {s.bubble:.4g} (bubble)" if s.bubble != 1 else ""
        formula = " + ".join(part.formula() for part in binding) or "nothing"
        seconds = units.text(s.bubble * found.seconds, "s")
        yield f"{s.name}: {s.calls} x {found.bound or 'no work'}: {formula}{bubble} = {seconds}" + (
            f"; other units: {less}" if less else ""
        )
        used |= dict.fromkeys(n.key for part in binding for n in part.numbers)
    for c in sorted(p.collectives, key=lambda c: -c.bytes_sent):
        price = p.mesh.price(c)
        where, seconds = c.scope or ".", units.text(price.seconds, "s")
        yield f"{where}: {c.count} x {c.kind} over {c.axis}: {price.formula} = {seconds}"
        if chip.link_bytes_per_s:
            n = p.mesh.group(c.axis).size
            whole = mesh.PRICES[c.kind].whole(c.local, n)
            by_hand = mesh.hand(c.kind, whole, n, chip)
            yield f"  by hand: {by_hand.formula} = {units.text(by_hand.seconds, 's')}"
    outside = any(p.mesh.group(c.axis).nodes > 1 for c in p.collectives)
    for key in (*used, *(NETWORK if p.collectives else ()), *((BETWEEN,) if outside else ())):
        number = chip.number(key)
        if number is not None:
            yield f"{chip.name} {key} = {number.cite()}"
    if p.collectives:
        yield f"formulas: {mesh.SOURCE}"


def named() -> str:
    """The strategies for --help."""
    return "; ".join(f"{name}: {s.words}" for name, s in STRATEGIES.items())
