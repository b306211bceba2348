"""Charts, by matplotlib: the roofline, seconds by part and by strategy, memory over the program, a sweep's points.

A chart is drawn in page.py's colours. `inline` is its SVG for the page, where colours are the page's variables (so that
they follow light and dark) and marks have titles to read; `file` is an SVG or PNG of its own, for light paper.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from costtrace import units
from costtrace.errors import UsageError
from costtrace.report.page import STYLE
from costtrace.report.table import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
COLOURS = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6});", STYLE.partition("@media")[0]))
"""Name of a variable of the page -> its colour on light paper; every colour is one name's only."""
WIDE_IN = 10.0
BARS = 24
"""Parts that the chart of times shows, the longest first."""
DOTS_PER_INCH = 150
READABLE = 200
"""Points of a chart that the keyboard reaches, the largest first."""


@dataclass(frozen=True, slots=True)
class Point:
    """A part: FLOPs and scoped bytes, its floor and pessimistic seconds (all calls), what binds."""

    name: str
    flops: float
    nbytes: float
    floor_s: float
    seconds: float
    bound: str
    share: float


@contextmanager
def _style(salt: str) -> Iterator[None]:
    try:
        import matplotlib
    except ImportError:
        raise UsageError("charts need matplotlib: pip install matplotlib") from None
    fg, soft, line = COLOURS["fg"], COLOURS["soft"], COLOURS["line"]
    rules: Any = {
        "svg.fonttype": "none", "svg.hashsalt": salt, "text.parse_math": False, "font.size": 9.0, "text.color": fg,
        "axes.edgecolor": soft, "axes.labelcolor": fg, "xtick.color": fg, "ytick.color": fg, "grid.color": line,
        "axes.grid": True, "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False,
        "grid.linewidth": 0.6, "legend.frameon": False, "font.family": "sans-serif",
    }  # fmt: skip
    with matplotlib.rc_context(rules), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # of a name that the font lacks a letter for
        yield


def _axes(tall: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure  # without pyplot: no window, no global state

    figure = Figure(figsize=(WIDE_IN, tall), layout="constrained")
    figure.patch.set_alpha(0.0)
    axes = figure.subplots()
    axes.patch.set_alpha(0.0)
    return figure, axes


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure; `titles`: {name of a group of marks: what each mark in it says}."""

    figure: Figure
    titles: Mapping[str, Sequence[str]]
    label: str

    def inline(self) -> str:
        """SVG for the page."""
        root = self._svg()
        root.set("role", "group" if self.titles else "img")
        root.set("aria-label", self.label)
        for size in ("width", "height"):
            root.attrib.pop(size)
        text = ElementTree.tostring(root, encoding="unicode")
        for name, colour in COLOURS.items():
            text = text.replace(colour, f"var(--{name})")
        return text

    def file(self, kind: str, title: str) -> bytes:
        """An "svg" or "png" with a title."""
        with _style(self.label):
            self.figure.suptitle(printable(title), x=0.01, ha="left", fontsize=10)
            self.figure.patch.set_alpha(1.0)
            if kind == "svg":
                root = self._svg()
                head = ElementTree.Element(f"{{{SVG}}}title")
                head.text = printable(title)
                root.insert(0, head)
                return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
            out = io.BytesIO()
            self.figure.savefig(out, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
            return out.getvalue()

    def _svg(self) -> ElementTree.Element:
        out = io.BytesIO()
        with _style(self.label):
            self.figure.savefig(out, format="svg", metadata={"Date": None})
        ElementTree.register_namespace("", SVG)
        ElementTree.register_namespace("xlink", XLINK)
        root = ElementTree.fromstring(out.getvalue())
        for each in root.findall(f"{{{SVG}}}metadata"):
            root.remove(each)
        for gid, said in self.titles.items():
            group = next(g for g in root.iter(f"{{{SVG}}}g") if g.get("id") == gid)
            marks = list(group.iter(f"{{{SVG}}}use")) or [p for p in group.iter(f"{{{SVG}}}path") if p.get("style")]
            for k, (mark, words) in enumerate(zip(marks, said, strict=False)):
                ElementTree.SubElement(mark, f"{{{SVG}}}title").text = printable(words)
                if k < READABLE:
                    mark.set("tabindex", "0")
                    mark.set("role", "img")
                    mark.set("aria-label", printable(words))
        return root


NAMED = 12
"""Points of a roofline, the largest, that have their names beside them."""
ACROSS, UP, LETTER, LINE = 610.0, 275.0, 4.4, 10.0
"""A roofline's axes in points, a letter and a line of its names too."""
Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""


def roofline(points: Sequence[Point], peaks: Mapping[str, float], bandwidth: float | None) -> Chart | None:
    """FLOP/s over FLOP/B, both logarithmic: the chip's bandwidth, its matrix peaks with their ridges, each part at its
    pessimistic time, its area by share. None where no part has both FLOPs and bytes, or the chip no rates."""
    some = sorted((p for p in points if p.flops and p.nbytes and p.seconds), key=lambda p: -p.share)
    if not some or not peaks or not bandwidth:
        return None
    titles: dict[str, list[str]] = {}
    with _style("roofline"):
        figure, axes = _axes(4.6)
        axes.set(xscale="log", yscale="log", xlabel="FLOP per scoped byte", ylabel="FLOP/s")
        top = max(peaks.values())
        across = [p.flops / p.nbytes for p in some] + [peak / bandwidth for peak in peaks.values()]
        up = [p.flops / p.seconds for p in some] + list(peaks.values())
        low, high = min(across) / 2, 2 * max(across)
        axes.set_xlim(low, high)
        axes.set_ylim(min(*up, low * bandwidth) / 5, 3 * top)
        for dtype, peak in peaks.items():
            ridge = peak / bandwidth
            axes.plot([low, ridge, high], [low * bandwidth, peak, peak], color=COLOURS["accent"], linewidth=1.4)
            axes.axvline(ridge, color=COLOURS["soft"], linewidth=0.8, linestyle="--")
            words = f"{dtype} {units.text(peak, 'FLOP/s')}, ridge {ridge:.0f} FLOP/B"
            axes.annotate(words, (low, peak), (4, 3), textcoords="offset points", va="bottom")
        for bound in dict.fromkeys(p.bound for p in some):
            these = [p for p in some if p.bound == bound]
            gid = f"points-{bound}"
            axes.scatter(
                [p.flops / p.nbytes for p in these], [p.flops / p.seconds for p in these],
                s=[(4 + 16 * math.sqrt(p.share)) ** 2 for p in these], c=COLOURS[bound], alpha=0.75, linewidths=0.5,
                edgecolors=COLOURS["fg"], gid=gid, label=f"{bound} binds", zorder=3,
            )  # fmt: skip
            titles[gid] = [f"{p.name}: {units.text(p.flops / p.nbytes, 'FLOP/B')}, "
                           f"{units.text(p.flops / p.seconds, 'FLOP/s')}, {bound} binds, {100 * p.share:.1f} % of the "
                           "time" for p in these]  # fmt: skip
        _named(axes, some, len(titles))
        axes.legend(loc="lower right")
        _dense(axes, "x")
        _dense(axes, "y")
        _readable(axes, "y", "FLOP/s")
        _readable(axes, "x", "")
    return Chart(figure, titles, "roofline: FLOP/s over FLOP per byte")


def _named(axes: Axes, points: Sequence[Point], legends: int) -> None:
    """Names of the largest marks, as flags: on a line down from the mark, to its right; to its left where the axes end,
    or a flag further right flies over it. The rightmost (leftmost) flies highest, so that no line crosses a name."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    marks: list[Box] = []
    for p in points:
        x = ACROSS * math.log(p.flops / p.nbytes / left) / math.log(right / left)
        y = UP * math.log(p.flops / p.seconds / bottom) / math.log(top / bottom)
        half = (4 + 16 * math.sqrt(p.share)) / 2
        marks.append((x - half, y - half, x + half, y + half))
    names: list[Box] = [(ACROSS - 130, 0, ACROSS, 8 + 15 * legends)]
    lines: list[Box] = []
    over = ACROSS
    """How far left the flags reach that fly to the left."""
    to_right, to_left = [], []
    for mark, p in sorted(zip(marks[:NAMED], points, strict=False), key=lambda each: -each[0][2]):
        x, name = (mark[0] + mark[2]) / 2, printable(_short(p.name))
        wide = LETTER * len(name) + 4
        if x + wide <= over:
            to_right.append((p, name, mark, 1, (x + 1, x + wide)))
        else:
            to_left.append((p, name, mark, -1, (x - wide, x - 1)))
            over = min(over, x - wide)
    for p, name, mark, side, (start, end) in [*to_right, *reversed(to_left)]:
        x, y = (mark[0] + mark[2]) / 2, (mark[1] + mark[3]) / 2
        for low in range(1, int(mark[1] / LINE)):
            foot = mark[1] - LINE * low
            box, line = (start, foot, end, foot + LINE), (x - 0.5, foot, x + 0.5, y)
            if any(_meet(box, b) for b in (*marks, *names, *lines)) or any(_meet(line, b) for b in names):
                continue
            names.append(box)
            lines.append(line)
            at = (p.flops / p.nbytes, p.flops / p.seconds)
            axes.annotate(name, at, (3 * side, foot + LINE - y), fontsize=7.5, va="top", textcoords="offset points",
                          ha="left" if side > 0 else "right")  # fmt: skip
            axes.annotate("", at, (0, foot - y), textcoords="offset points", arrowprops=POLE)
            break


POLE = {"arrowstyle": "-", "linewidth": 0.5, "color": COLOURS["soft"], "shrinkA": 0.0, "shrinkB": 0.0}


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def parts(points: Sequence[Point]) -> Chart | None:
    """Each part's pessimistic seconds as a pale bar, its floor as a full one, the longest first."""
    some = sorted((p for p in points if p.seconds), key=lambda p: -p.seconds)
    shown, rest = some[:BARS], some[BARS:]
    if not shown:
        return None
    names = [_short(p.name) for p in shown] + ([f"{len(rest)} more"] if rest else [])
    whole = [p.seconds for p in shown] + ([sum(p.seconds for p in rest)] if rest else [])
    floors = [p.floor_s for p in shown] + ([sum(p.floor_s for p in rest)] if rest else [])
    colours = [COLOURS[p.bound] for p in shown] + ([COLOURS["group"]] if rest else [])
    said = [f"{p.name}: pessimistic {units.text(p.seconds, 's')}, floor {units.text(p.floor_s, 's')}, {p.bound} binds"
            for p in shown]  # fmt: skip
    return _bars(names, [(whole, colours, 0.35), (floors, colours, 1.0)], said, "seconds by part", stacked=False)


def strategies(some: Sequence[Mapping[str, Any]]) -> Chart | None:
    """Each strategy's work and links, one after the other, as reports.strategies' documents have them."""
    if not some:
        return None
    names = [f"{s['name']}, {s['chips']} chips" + (" (does not fit or divide)" if s["blocked"] else "") for s in some]
    work, links = [s["work_s"] for s in some], [s["collective_s"] for s in some]
    said = [f"{name}: work {units.text(w, 's')}, links {units.text(c, 's')}"
            for name, w, c in zip(names, work, links, strict=True)]  # fmt: skip
    bars = [(work, [COLOURS["compute"]] * len(names), 1.0), (links, [COLOURS["link"]] * len(names), 1.0)]
    return _bars(names, bars, said, "seconds by strategy: work, then links", stacked=True)


def _bars(
    names: Sequence[str], bars: Sequence[tuple[list[float], list[str], float]], said: Sequence[str], label: str,
    stacked: bool,
) -> Chart:  # fmt: skip
    titles: dict[str, list[str]] = {}
    with _style(label):
        figure, axes = _axes(0.6 + 0.22 * len(names))
        rows, start = list(range(len(names))), [0.0] * len(names)
        for k, (widths, colours, alpha) in enumerate(bars):
            drawn = axes.barh(rows, widths, left=list(start), color=colours, alpha=alpha, height=0.75)
            for row, patch in enumerate(drawn):
                patch.set_gid(f"bar-{k}-{row}")
                if row < len(said):
                    titles[f"bar-{k}-{row}"] = [said[row]]
            start = [a + b for a, b in zip(start, widths, strict=True)] if stacked else start
        ends = start if stacked else [max(each) for each in zip(*(widths for widths, _, _ in bars), strict=True)]
        for row, end in zip(rows, ends, strict=True):
            axes.annotate(units.text(end, "s", 3), (end, row), (4, 0), textcoords="offset points", va="center")
        axes.set_yticks(rows, [printable(name) for name in names])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.1, y=0.01)
        _readable(axes, "x", "s")
    return Chart(figure, titles, label)


def memory(stages: Sequence[tuple[str, Sequence[tuple[str, int]]]], room: float | None) -> Chart | None:
    """Bytes alive over the program, stage after stage, each scope as wide as any other; the chip's memory, if near."""
    steps = [(f"{name}: {scope or '.'}", nbytes) for name, curve in stages for scope, nbytes in curve]
    if not steps:
        return None
    with _style("memory"):
        figure, axes = _axes(2.6)
        heights, edges = [nbytes for _, nbytes in steps], list(range(len(steps) + 1))
        axes.stairs(heights, edges, fill=True, color=COLOURS["integer"], alpha=0.45)
        axes.stairs(heights, edges, fill=False, color=COLOURS["integer"], linewidth=1.0)
        at = 0
        for name, curve in stages:
            axes.axvline(at, color=COLOURS["soft"], linewidth=0.8, linestyle="--")
            axes.annotate(printable(name), (at, 1.0), (3, -3), xycoords=("data", "axes fraction"),
                          textcoords="offset points", va="top")  # fmt: skip
            at += len(curve)
        if room is not None and room < 4 * max(heights):
            axes.axhline(room, color=COLOURS["link"], linewidth=1.0)
            axes.annotate(f"the chip has {units.text(room, 'B')}", (0.5, room), (0, 3), textcoords="offset points",
                          xycoords=("axes fraction", "data"))  # fmt: skip
        axes.set(xlabel="scopes in program order, a loop's body once", ylabel="alive", ylim=(0, None))
        axes.set_xlim(0, len(steps))
        axes.set_xticks([])
        _readable(axes, "y", "B")
    return Chart(figure, {}, "bytes alive over the program")


def sweep(name: str, rows: Sequence[Mapping[str, Any]], kind: str) -> bytes:
    """A sweep's seconds along the option with most values, as "svg" or "png": a line for each chip, number of chips and
    value of the other options; predicted ones dashed."""
    values_of: dict[str, list[str]] = {}
    for row in rows:
        for option, value in row["config"].items():
            values_of.setdefault(option, [])
            values_of[option] += [value] if value not in values_of[option] else []
    along = max(values_of, key=lambda option: len(values_of[option]), default="")
    rest = [option for option in values_of if option != along and len(values_of[option]) > 1]
    fixed = [
        f"{_flag(option)} {values_of[option][0]}" for option in values_of if option != along and option not in rest
    ]
    points = values_of.get(along, [""])
    lines: dict[tuple[str, ...], dict[str, dict[int, float]]] = {}
    for row in rows:
        at = points.index(row["config"].get(along, ""))
        named = (f"{row['chips']} x {row['chip']}", *(f"{_flag(o)} {row['config'].get(o, '')}" for o in rest))
        line = lines.setdefault(named, {"floor_s": {}, "predicted_s": {}})
        for key, values in line.items():
            if row[key] is not None:
                values[at] = row[key]
    palette = [COLOURS[c] for c in ("accent", "link", "compute", "memory", "transcendental", "vector", "integer")]
    with _style("sweep"):
        figure, axes = _axes(4.0)
        for k, (named, line) in enumerate(lines.items()):
            for (key, values), form in zip(line.items(), ("o-", "s--"), strict=True):
                if values:
                    words = ", ".join([*named, "floor" if key == "floor_s" else "predicted"])
                    axes.plot(list(values), list(values.values()), form, color=palette[k % len(palette)], label=words)
        axes.set_yscale("log")
        _dense(axes, "y")
        few = range(0, len(points), max(1, len(points) // 12))
        axes.set_xticks(list(few), [points[k] for k in few], rotation=30 if len(points) > 5 else 0)
        axes.set(xlabel=", ".join([_flag(along), *fixed]) or "defaults", ylabel="seconds, all calls")
        _readable(axes, "y", "s")
        if lines:
            axes.legend()
    return Chart(figure, {}, f"sweep of {name}").file(kind, f"{name}: seconds of {len(rows)} points")


def _flag(option: str) -> str:
    return option.replace("_", "-")


def _dense(axes: Axes, which: str) -> None:
    """Ticks enough to read a logarithmic axis by that spans few decades, where powers of ten alone may be one."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    axis = getattr(axes, f"{which}axis")
    low, high = getattr(axes, f"get_{which}lim")()
    if high / low < 100:
        axis.set_major_locator(MaxNLocator(6) if high / low < 10 else LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_minor_locator(NullLocator())


def _readable(axes: Axes, which: str, unit: str) -> None:
    """Ticks with a unit and a prefix."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis = getattr(axes, f"{which}axis")
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value, unit)))
    axis.set_minor_formatter(NullFormatter())


def _tick(value: float, unit: str) -> str:
    if value <= 0:
        return "0"
    return units.text(value, unit, 3) if unit else f"{value:,g}"


def _short(name: str) -> str:
    return name if len(name) < 38 else f"…{name[-36:]}"
