"""Charts as SVG text: the roofline with a point for each part, and the parts' times as bars. Every name is escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from costtrace import units

WIDTH, HEIGHT = 1000, 420
LEFT, RIGHT, TOP, BOTTOM = 100, 20, 24, 40
BARS = 24
"""Parts that the chart of times shows, the longest first."""


@dataclass(frozen=True, slots=True)
class Point:
    """A part: FLOPs and bytes of one kernel a scope, its floor and pessimistic seconds (all calls), what binds."""

    name: str
    flops: float
    nbytes: float
    floor_s: float
    seconds: float
    bound: str
    share: float


def attribute(text: str) -> str:
    """Text between double quotes."""
    return escape(text, quote=True)


class _Log:
    """A logarithmic axis over whole powers of ten."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low = math.floor(math.log10(min(values)))
        self.high = max(self.low + 1, math.ceil(math.log10(max(values))))
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.start + min(1.0, max(0.0, share)) * (self.end - self.start), 1)

    @property
    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def roofline(points: Sequence[Point], peaks: dict[str, float], bandwidth: float | None) -> str:
    """FLOP/s over FLOP/B, both logarithmic: the chip's bandwidth, its matrix peaks with their ridges, each part at its
    pessimistic time. Empty where no part has both FLOPs and bytes, or the chip no rates."""
    some = [p for p in points if p.flops and p.nbytes and p.seconds]
    if not some or not peaks or not bandwidth:
        return ""
    across = [p.flops / p.nbytes for p in some] + [peak / bandwidth for peak in peaks.values()]
    up = [p.flops / p.seconds for p in some] + [*peaks.values()]
    x, y = _Log(across, LEFT, WIDTH - RIGHT), _Log(up, HEIGHT - BOTTOM, TOP)
    out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="roofline: FLOP/s over FLOP per byte">']
    for tick in x.ticks:
        out.append(f'<line class="grid" x1="{x.at(tick)}" x2="{x.at(tick)}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        out.append(_text(x.at(tick), HEIGHT - BOTTOM + 16, f"{tick:g}", "middle"))
    for tick in y.ticks:
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.at(tick)}" y2="{y.at(tick)}"/>')
        out.append(_text(LEFT - 6, y.at(tick) + 4, units.text(tick, "FLOP/s", 3), "end"))
    out.append(_text((LEFT + WIDTH) / 2, HEIGHT - 6, "FLOP per byte (scoped)", "middle"))
    top = max(peaks.values())
    low = max(x.ticks[0], y.ticks[0] / bandwidth)
    out.append(_line("roof", x.at(low), y.at(low * bandwidth), x.at(top / bandwidth), y.at(top)))
    for dtype, peak in peaks.items():
        ridge = peak / bandwidth
        out.append(_line("roof", x.at(ridge), y.at(peak), WIDTH - RIGHT, y.at(peak)))
        out.append(_line("ridge", x.at(ridge), y.at(peak), x.at(ridge), HEIGHT - BOTTOM))
        out.append(_line("ridge", LEFT + 300, y.at(peak), x.at(ridge), y.at(peak)))
        words = f"{dtype} {units.text(peak, 'FLOP/s')}, ridge {ridge:.0f} FLOP/B"
        out.append(_text(LEFT + 8, y.at(peak) + 4, words, "start"))
    for p in sorted(some, key=lambda p: -p.share):
        said = (f"{p.name}: {units.text(p.flops / p.nbytes, 'FLOP/B')}, {units.text(p.flops / p.seconds, 'FLOP/s')}, "
                f"{p.bound} binds, {100 * p.share:.1f} % of the time")  # fmt: skip
        radius = round(4 + 16 * math.sqrt(p.share), 1)
        out.append(f'<circle class="part {attribute(p.bound)}" cx="{x.at(p.flops / p.nbytes)}" '
                   f'cy="{y.at(p.flops / p.seconds)}" r="{radius}" tabindex="0" aria-label="{attribute(said)}">'
                   f"<title>{escape(said)}</title></circle>")  # fmt: skip
    return "".join([*out, "</svg>"])


def bars(points: Sequence[Point]) -> str:
    """Each part's pessimistic seconds as a pale bar, its floor as a full one, the longest first."""
    some = sorted((p for p in points if p.seconds), key=lambda p: -p.seconds)
    shown, rest = some[:BARS], some[BARS:]
    if not shown:
        return ""
    names, tall = 260, 22
    longest = shown[0].seconds
    out = [f'<svg viewBox="0 0 {WIDTH} {tall * (len(shown) + bool(rest))}" role="img" aria-label="seconds by part">']
    for k, p in enumerate(shown):
        said = f"{p.name}: pessimistic {units.text(p.seconds, 's')}, floor {units.text(p.floor_s, 's')}"
        wide = [round(s / longest * (WIDTH - names - 90), 1) for s in (p.seconds, p.floor_s)]
        out.append(f"<g><title>{escape(said)}</title>")
        out.append(_text(names - 8, k * tall + 15, p.name if len(p.name) < 38 else f"…{p.name[-36:]}", "end"))
        for width, pale in zip(wide, (" pale", ""), strict=True):
            out.append(f'<rect class="{attribute(p.bound)}{pale}" x="{names}" y="{k * tall + 3}" width="{width}" '
                       f'height="{tall - 6}"/>')  # fmt: skip
        out.append(_text(names + wide[0] + 6, k * tall + 15, units.text(p.seconds, "s", 3), "start") + "</g>")
    if rest:
        words = f"{len(rest)} more: {units.text(sum(p.seconds for p in rest), 's', 3)}"
        out.append(_text(names, len(shown) * tall + 15, words, "start"))
    return "".join([*out, "</svg>"])


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'
