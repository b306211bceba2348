"""A Calibration -> the text of a chip file that chip.load reads, and the raw samples beside it.

Peaks of an accelerator stay its datasheet's [S] and [D], and what was measured stands beside them as [efficiency]. A
CPU has no datasheet: its rates are the best that were measured, [M], and its floor is what the machine has shown, not
what it cannot exceed.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from costtrace import chip, disk, units
from costtrace.chip import Chip
from costtrace.chipfile import SECTIONS, Number
from costtrace.errors import UsageError
from costtrace.grid import KINDS, Grid, Point
from costtrace.measure.calibration import NOISE, Calibration

DIGITS = 6
PRODUCTS = ("product", "streamed product", "batched product", "convolution")
STREAMS = ("copy", "read", "write")
MEASURED = "measured here; no datasheet: a floor at this rate is what this machine has shown, no bound"


def text(done: Calibration, name: str, date: str, datasheet: Chip | None) -> str:
    """The chip file. Raises UsageError where a rate is above the datasheet's peak."""
    device = done.device
    grids = done.grids("calibrate", date)
    how = f"costtrace calibrate{' --quick' if done.quick else ''} on {device.name}; {device.versions}"
    head: dict[str, Any] = {
        "name": name,
        "title": f"{datasheet.title if datasheet else device.name}, calibrated {date}"
        + ", on a noisy machine" * (done.noise > NOISE),
        "vendor": datasheet.vendor if datasheet else device.name.split()[0],
        "kind": device.kind,
    }
    out = [
        "# Written by costtrace calibrate: measured rates, each the median of its samples; see docs/calibrating.md.",
        f"# The samples are in {name}.samples.json.",
        *(f"{key} = {json.dumps(value)}" for key, value in head.items()),
        "notes = [" + ", ".join(map(json.dumps, _notes(done, datasheet))) + "]",
        "",
        "[sources]",
        f"calibrate = {{ text = {json.dumps(how)}, date = {json.dumps(date)} }}",
        'host = { text = "the operating system of that machine", date = ' + f"{json.dumps(date)} }}",
        "",
        *_missing(datasheet),
    ]
    numbers = [n for n in datasheet.numbers.values() if not n.key.startswith("efficiency")] if datasheet else []
    for n in numbers:
        out += _copied(n)
    for key, value, convention in _measured(done, grids, datasheet):
        source, tag = ("host", "S") if key in ("memory.l2", "hbm.capacity") else ("calibrate", "M")
        said = f"{int(value)} B" if _unit(key) == "B" else units.text(value, _unit(key), DIGITS)
        out += _entry(key, said, tag, source, convention)
    for grid in grids:
        out += _grid(grid)
    return "\n".join(out) + "\n"


def _notes(done: Calibration, datasheet: Chip | None) -> list[str]:
    notes = [] if datasheet else ["no datasheet is known: every rate is the best that was measured on this machine"]
    notes.append(f"samples of a size may spread by {2 * done.noise:.0%}, the clock drift by {done.noise:.0%}")
    noisy = "a noisy machine, allowed with --noise: rates are good to about this: " if done.noise > NOISE else ""
    lost = f"; {done.lost} sizes are left out, of which more trips took less time" if done.lost else ""
    spread = f"samples of a size spread by {done.spread_median:.0%} in the median and {done.spread_most:.0%} at most"
    drift = f"the product timed between them took up to {done.drift:.0%} longer than at its fastest"
    return [*notes, f"{noisy}{spread}, and {drift}{lost}"]


def _missing(datasheet: Chip | None) -> list[str]:
    if datasheet is None or not datasheet.missing:
        return []
    return ["[missing]", *(f"{json.dumps(key)} = {json.dumps(why)}" for key, why in datasheet.missing.items()), ""]


def _unit(key: str) -> str:
    section, _, name = key.partition(".")
    return SECTIONS[section][name]


def _entry(
    key: str, value: str, tag: str, source: str, convention: str = "", date: str = "", more: str = ""
) -> list[str]:
    lines = [f"[{key}]", f"value = {json.dumps(value)}", f'tag = "{tag}"', f"source = {json.dumps(source)}"]
    lines += [f"date = {json.dumps(date)}"] if date else []
    lines += [f"convention = {json.dumps(convention)}"] if convention else []
    lines += [f"derivation = {json.dumps(more)}"] if more else []
    return [*lines, ""]


def _copied(n: Number) -> list[str]:
    return _entry(n.key, n.text, n.tag, n.source, n.convention, n.date, n.derivation)


def _at(grid: Grid, point: Point) -> str:
    sizes = ", ".join(f"{axis} {size}" for axis, size in zip(KINDS[grid.kind], point.sizes, strict=True))
    return f"{grid.kind}, {sizes}"


def _measured(done: Calibration, grids: list[Grid], datasheet: Chip | None) -> Iterable[tuple[str, float, str]]:
    """(key, value, convention) of every number that the grids give."""
    of = {(g.kind, g.dtype): g for g in grids}
    launch_s = done.overhead.get("launch", 0.0)
    for dtype in ("float32", "bfloat16"):
        found = [_best(g, launch_s, 2) for kind in PRODUCTS if (g := of.get((kind, dtype)))]
        yield from _rate(f"matrix.{dtype}", max(found), datasheet)
        yield from _rate(f"vector.{dtype}", _best(of["add", dtype], launch_s), datasheet)
    yield from _rate("transcendental.float32", _best(of["exp", "float32"], launch_s), datasheet)
    yield from _rate("integer.int32", _best(of["add", "int32"], launch_s), datasheet)
    streams = [(max(g.points, key=lambda p: p.sizes).rate, kind) for kind in STREAMS if (g := of.get((kind, "")))]
    rate, kind = max(streams)
    yield from _rate("hbm.bandwidth", (rate, f"{kind}, far beyond the caches"), datasheet)
    if datasheet is None:
        device = done.device
        if device.memory_bytes:
            yield "hbm.capacity", float(device.memory_bytes), ""
        if device.cache_bytes:
            yield "memory.l2", float(device.cache_bytes), "the largest cache of a core"
    for key, value in done.overhead.items():
        if value > 0:
            yield f"overhead.{key}", value, ""
    host = of.get(("host to device", ""))
    if host and (datasheet is None or datasheet.number("host.bandwidth") is None):
        yield "host.bandwidth", host.best.rate, _at(host, host.best)
    gather = of.get(("all-gather", ""))
    if gather and (datasheet is None or datasheet.number("link.bandwidth") is None):
        n = done.device.count
        yield "link.count", 1.0, ""
        yield "link.bandwidth", gather.best.rate * (n - 1) / n, f"what a device receives: {_at(gather, gather.best)}"


LONG = 20
"""Launches that a size has to take, to be trusted with a rate: of less, what was taken off is too much of it."""


def _best(grid: Grid, launch_s: float, flops: int = 1) -> tuple[float, str]:
    """The best rate of the sizes that take long enough, or of the largest, and where that was."""
    long = [p for p in grid.points if p.seconds >= LONG * launch_s] or [max(grid.points, key=lambda p: p.seconds)]
    best = max(long, key=lambda p: p.rate)
    return flops * best.rate, _at(grid, best)


EFFICIENCY = {"hbm.bandwidth": "hbm", "matrix.float32": "float32", "matrix.bfloat16": "bfloat16"}


def _rate(key: str, found: tuple[float, str], datasheet: Chip | None) -> Iterable[tuple[str, float, str]]:
    """A number of its own without a datasheet; else the measured share of the peak, where the file has room for one."""
    rate, where = found
    if datasheet is None:
        yield key, rate, f"{where}; {MEASURED}"
        return
    peak = datasheet.value(key)
    if key not in EFFICIENCY or peak is None:
        return
    if rate > peak:
        raise UsageError(
            f"{key}: {units.text(rate, _unit(key))} was measured ({where}), above the "
            f"{units.text(peak, _unit(key))} of {datasheet.name}'s datasheet: give the right one with --datasheet"
        )
    yield f"efficiency.{EFFICIENCY[key]}", rate / peak, where


def _grid(grid: Grid) -> list[str]:
    rows = [f"  [{', '.join(map(str, p.sizes))}, {p.seconds:.4e}, {p.spread:.3f}]," for p in grid.points]
    return ["[[grid]]", f'kind = "{grid.kind}"', f'dtype = "{grid.dtype}"', 'tag = "M"', 'source = "calibrate"',
            f"# [{', '.join(KINDS[grid.kind])}, seconds, spread]", "points = [", *rows, "]", ""]  # fmt: skip


def write(path: Path, done: Calibration, date: str, datasheet: Chip | None) -> Path:
    """Writes both files, whole or not at all; gives the path of the samples. The file must load before it is kept."""
    samples = path.with_name(f"{path.stem}.samples.json")
    document = {
        "device": done.device.name, "kind": done.device.kind, "devices": done.device.count,
        "versions": done.device.versions, "date": date, "quick": done.quick, "noise": done.noise,
        "timed_again": done.again, "reference_s": done.reference, "farthest_from_numpy": list(done.worst),
        "overhead": {key: each.to_dict() for key, each in done.overhead_timings.items()},
        "samples": [s.to_dict() for s in done.sampled],
    }  # fmt: skip
    said = text(done, path.stem, date, datasheet)
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / path.name
        trial.write_text(said, encoding="utf-8")
        chip.load(str(trial))
    disk.keep({str(path): said, str(samples): json.dumps(document, indent=1) + "\n"})
    return samples
