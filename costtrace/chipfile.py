"""A chip's TOML file -> Numbers. The schema and every reason why a file does not load; knows no arithmetic.

Each section below holds tables named after what they say: [matrix.bfloat16], [hbm.bandwidth]. A number is text with a
unit and has a tag, a source and a date; `sources` at the top of a file gives a document that many numbers use a short
name. Dtypes are numpy's names. docs/chips.md lists every field, key and unit; a test holds it to this file.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from costtrace import grid, units
from costtrace.errors import ChipError, UsageError

TAGS = {"M": "measured", "D": "derived", "S": "from a document"}
FLOATS = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3b11fnuz",
    "float8_e5m2",
    "float4_e2m1fn",
)
INTEGERS = ("int8", "int4")
MATRIX = dict.fromkeys(FLOATS, "FLOP/s") | dict.fromkeys(INTEGERS, "OP/s")

# Section -> what may stand in it -> the unit it is in.
SECTIONS: dict[str, dict[str, str]] = {
    "matrix": MATRIX,
    "vector": dict.fromkeys(FLOATS[:4], "FLOP/s"),
    "transcendental": {"float32": "OP/s"},
    "integer": {"int32": "OP/s"},
    "hbm": {"bandwidth": "B/s", "capacity": "B"},
    "memory": {
        "vmem_per_core": "B",
        "cmem": "B",
        "scalar_per_core": "B",
        "shared_per_sm": "B",
        "l1_per_sm": "B",
        "tensor_per_sm": "B",
        "l2": "B",
        "vmem_bandwidth": "B/s",
    },
    "cores": {
        "devices": "device",
        "tensor_cores": "core",
        "mxus": "MXU",
        "mxu_side": "row",
        "lanes": "lane",
        "sublanes": "sublane",
        "alus": "ALU",
        "sm": "SM",
        "clock": "Hz",
        "flops_per_cycle": "FLOP/cycle",
    },
    "tile": {"lanes": "lane", "rows_32bit": "row", "rows_16bit": "row", "rows_8bit": "row", "rows_4bit": "row"},
    "link": {"count": "link", "bandwidth": "B/s", "latency": "s", "pod": "chip"},
    "host": {"bandwidth": "B/s"},
    "scale_out": {"bandwidth": "B/s"},
    "overhead": {"dispatch": "s", "launch": "s", "trip": "s"},
    "power": {"tdp": "W"},
    "price": {"on_demand": "USD/h"},
    "efficiency": dict.fromkeys((*MATRIX, "hbm"), "1"),
}
KINDS = ("tpu", "gpu", "cpu")
FIXES = {
    "source": 'add source = "who says so, page or table, address"',
    "tag": 'add tag = "S", "D" or "M"',
    "date": 'add date = "when it was read, year and month"',
    "value": 'add value = "819 GB/s"',
    "why": 'add why = "the reason it is not the one used"',
    "name": 'add name = "mychip"',
    "title": 'add title = "Vendor and product"',
    "vendor": 'add vendor = "who makes it"',
    "kind": 'add kind = "tpu", "gpu" or "cpu"',
    "points": "add points = [[size, ..., seconds, spread], ...]",
    "text": 'add text = "author, page, address"',
}


class _Conflict(msgspec.Struct, forbid_unknown_fields=True):
    value: str
    source: str
    why: str


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    value: str
    tag: str
    source: str
    date: str = ""
    convention: str = ""
    derivation: str = ""
    also: list[str] = []
    conflicts: list[_Conflict] = []


class _Source(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    date: str


class _Grid(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    tag: str
    source: str
    points: list[list[float]]
    dtype: str = ""
    date: str = ""


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    title: str
    vendor: str
    kind: str
    aliases: list[str] = []
    topology: str = ""
    notes: list[str] = []
    sources: dict[str, _Source] = {}
    missing: dict[str, str] = {}
    grid: list[_Grid] = []


_CONFLICT = _Conflict.__struct_fields__
_T = TypeVar("_T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Conflict:
    """What another source says of a number, and why it is not used."""

    value: float
    text: str
    source: str
    why: str


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a chip file. `value` is in `unit` (a base unit: B/s, FLOP/s ...); `text` as the file writes it."""

    key: str
    value: float
    unit: str
    text: str
    tag: str
    source: str
    date: str
    convention: str = ""
    derivation: str = ""
    conflicts: tuple[Conflict, ...] = ()

    def cite(self) -> str:
        """'918 TFLOP/s [S: source, date]' for --explain."""
        return f"{self.text} [{self.tag}: {self.source}; {self.date}]"


class ChipFile:
    """One file, read and checked: `head` (name, title, kind ...) and `numbers` by key.

    Raises UsageError where it cannot be read, else ChipError: one line with file, line and fix.
    """

    def __init__(self, path: Path, shown: str = "") -> None:
        self.shown = shown or str(path)
        try:
            self.text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise UsageError(f"{self.shown}: this chip file cannot be read ({e}): give a TOML file in UTF-8") from None
        try:
            document = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as e:
            self._not_toml(str(e))
        except RecursionError:
            self._not_toml("tables or arrays nest too deep")
        self.head = self._convert({k: v for k, v in document.items() if k not in SECTIONS}, _Head)
        if self.head.kind not in KINDS:
            self._fail("", "", "kind", f"kind is {self.head.kind!r}: write {FIXES['kind'].removeprefix('add ')}")
        self.numbers: dict[str, Number] = {}
        for section in SECTIONS:  # the order of SECTIONS: peaks come before the measured shares of them
            entries = document.get(section, {})
            if not isinstance(entries, dict):
                first = next(iter(SECTIONS[section]))
                self._fail(section, "", "", f"{section} is a bare value: write tables like [{section}.{first}]")
            for key, entry in entries.items():
                self._number(section, key, entry)
        for place in self.head.missing:
            self._missing(place)
        self.grids: dict[tuple[str, str], grid.Grid] = {}
        for given in self.head.grid:
            self._grid(given)

    def _number(self, section: str, key: str, entry: Any) -> None:
        known, place = SECTIONS[section], f"{section}.{key}"
        if "spars" in key.lower():
            self._fail(section, key, "", f"{place} is a sparse rate: remove it, rates here are dense")
        if key not in known:
            self._fail(section, key, "", f"{place} is not known: {_nearest(key, known)}")
        if not isinstance(entry, dict):
            self._fail(section, key, "", f"{place} is a bare value: write a table with value, tag, source and date")
        e = self._convert(entry, _Entry, section, key)
        for field, said in (("value", e.value), ("convention", e.convention)):
            if re.search(r"(?<!not )(?<!no )(?<!without )spars|2:4", said, re.IGNORECASE):
                self._fail(section, key, field, f"{place} is a sparse rate: give the dense one, half of a 2:4 rate")
        if e.tag not in TAGS:
            self._fail(section, key, "tag", f"{place} has tag {e.tag!r}: write {FIXES['tag'].removeprefix('add ')}")
        if e.tag == "D" and not e.derivation:
            self._fail(section, key, "tag", f'{place} is derived, and not said how: add derivation = "lanes x clock"')
        source, date = self._source(section, key, e)
        value = self._value(section, key, e.value)
        conflicts = tuple(
            Conflict(self._value(section, key, c.value, "conflicts"), c.value, self._cited(c.source), c.why)
            for c in e.conflicts
        )
        for name in (key, *e.also):
            at = f"{section}.{name}"
            if name not in known:
                self._fail(section, key, "also", f"{at} is not known: {_nearest(name, known)}")
            if known[name] != known[key]:
                self._fail(section, key, "also", f"{at} is in {known[name]}: give it a table of its own")
            if at in self.numbers:
                self._fail(section, key, "also", f"{at} is given twice: keep one")
            self.numbers[at] = Number(
                at, value, known[key], e.value, e.tag, source, date, e.convention, e.derivation, conflicts
            )

    def _grid(self, g: _Grid) -> None:
        """Rates by size: [[grid]] with kind, dtype, tag M, source, and points [size, ..., seconds, spread]."""
        place = f"grid {g.kind} {g.dtype}".rstrip()
        if g.kind not in grid.KINDS:
            self._fail("grid", "", "", f"{place}: this kind is not known: {_nearest(g.kind, grid.KINDS)}")
        if g.tag != "M":
            self._fail("grid", "", "", f'{place} has tag {g.tag!r}: rates by size are measured: write tag = "M"')
        source, date = self._source("grid", g.kind, g)
        axes = grid.KINDS[g.kind]
        if not g.points:
            self._fail("grid", "", "", f"{place} has no points: leave it out")
        for p in g.points:
            if len(p) != len(axes) + 2 or any(size < 1 or size != int(size) for size in p[:-2]) or p[-2] <= 0:
                fix = f"write [{', '.join(axes)}, seconds, spread], sizes whole and seconds above zero"
                self._fail("grid", "", "", f"{place}: {p} is no point: {fix}")
        points = tuple(grid.Point(tuple(int(n) for n in p[:-2]), p[-2], p[-1]) for p in g.points)
        if len({p.sizes for p in points}) < len(points) or (g.kind, g.dtype) in self.grids:
            self._fail("grid", "", "", f"{place} is given twice, whole or in part: keep one")
        self.grids[g.kind, g.dtype] = grid.Grid(g.kind, g.dtype, points, source, date)

    def _source(self, section: str, key: str, e: _Entry | _Grid) -> tuple[str, str]:
        """The source spelled out, and the date."""
        place = f"{section}.{key}"
        if not e.source.strip():
            self._fail(section, key, "source", f"{place} has no source: {FIXES['source']}")
        named = self.head.sources.get(e.source)
        if named is None and " " not in e.source.strip():
            fix = _nearest(e.source, self.head.sources) if self.head.sources else FIXES["source"]
            self._fail(section, key, "source", f"{place} has source {e.source!r}, which is not in [sources]: {fix}")
        date = e.date or (named.date if named else "")
        if not re.match(r"\d{4}-\d{2}", date):
            self._fail(section, key, "date", f"{place} has no date: {FIXES['date']}")
        return self._cited(e.source), date

    def _cited(self, source: str) -> str:
        named = self.head.sources.get(source)
        return named.text if named else source

    def _value(self, section: str, key: str, text: str, field: str = "value") -> float:
        """`text` in the unit of its place, above zero; a measured rate as a fraction of its peak."""
        unit, place = SECTIONS[section][key], f"{section}.{key}"
        peak = self.numbers.get("hbm.bandwidth" if key == "hbm" else f"matrix.{key}") if unit == "1" else None
        try:
            if unit == "1" and peak and not text.rstrip().endswith("%"):
                value = units.parse(text, peak.unit) / peak.value
            else:
                value = units.parse(text, unit)
        except UsageError as e:
            self._fail(section, key, field, f"{place}: {e}")
        if value == 0:
            self._fail(section, key, field, f"{place} is zero: leave it out and say why under [missing]")
        if unit == "1" and value > 1:
            self._fail(section, key, field, f"{place} is {value:.2f} times the peak: it can be at most the peak")
        return value

    def _missing(self, place: str) -> None:
        section, _, key = place.partition(".")
        if key not in SECTIONS.get(section, {}):
            fix = _nearest(place, [f"{s}.{k}" for s, keys in SECTIONS.items() for k in keys])
            self._fail("missing", place, "", f"missing names {place!r}, which is not known: {fix}")
        if place in self.numbers:
            self._fail("missing", place, "", f"{place} is both given and missing: keep one")

    def _convert(self, data: Any, kind: type[_T], section: str = "", key: str = "") -> _T:
        """`data` as a `kind`; msgspec's complaint becomes one with place, line and fix."""
        try:
            return msgspec.convert(data, kind, strict=True)
        except msgspec.ValidationError as e:
            self._not_valid(str(e), kind, section, key)

    def _not_valid(self, complaint: str, kind: type[msgspec.Struct], section: str, key: str) -> NoReturn:
        message, _, inside = complaint.partition(" - at `$")
        inside = re.sub(r"\[(\d+|\.\.\.)\]", "", inside.rstrip("`"))
        where = (f"{section}.{key}{inside}" if section else inside.lstrip(".")) or "the file"
        named = re.search(r"field `(.+)`", message)
        if named and "required" in message:
            self._fail(section, key, "", f"{where} has no {named[1]}: {FIXES[named[1]]}")
        if named:
            known = [*kind.__struct_fields__, *([] if section else SECTIONS)] if "conflicts" not in where else _CONFLICT
            what = "is a sparse rate" if "spars" in named[1].lower() else "is not known"
            fix = "remove it, rates here are dense" if "sparse" in what else _nearest(named[1], known)
            self._fail(section, key, named[1], f"{where}: key {named[1]!r} {what}: {fix}")
        field = where.rpartition(".")[2]
        if section and field == "value":
            fix = f"write it as text, like {units.example(SECTIONS[section][key])}"
            self._fail(section, key, field, f"{where.removesuffix('.value')} has no unit: {fix}")
        self._fail(section, key, field, f"{where}: {message[0].lower() + message[1:]}: mend its type")

    def _not_toml(self, message: str) -> NoReturn:
        at = re.search(r" \(at line (\d+), column \d+\)$", message)
        line, what = (int(at[1]), message[: at.start()]) if at else (len(self.text.splitlines()), message)
        fix = "keep one of the two" if re.search(r"twice|overwrite", what) else "mend the TOML there"
        raise ChipError(f"{self.shown}:{line}: {what[0].lower() + what[1:]}: {fix}")

    def _fail(self, section: str, key: str, field: str, message: str) -> NoReturn:
        raise ChipError(f"{self.shown}:{_line(self.text, section, key, field)}: {message}")


def _line(text: str, section: str, key: str, field: str) -> int:
    """The line of a field, else of its table, else of its section; found in the TOML's text, as tomllib keeps none."""
    lines = text.splitlines()

    def first(pattern: str, start: int = 0, stop: int = len(lines)) -> int | None:
        return next((n for n in range(start, stop) if re.match(pattern, lines[n])), None)

    def name(word: str) -> str:
        return rf'["\']?{re.escape(word)}["\']?'

    header = first(rf"\s*\[\s*{name(section)}\s*\.\s*{name(key)}\s*\]") if section and key else None
    if header is None and section:  # [section] with `key = {...}` or `key.value = ...` below it
        header = first(rf"\s*\[\s*{name(section)}\s*\]")
        field = key or field
    start = 0 if header is None else header + 1
    end = first(r"\s*\[", start) if header is not None else None
    found = first(rf"\s*(\[\s*)?{name(field)}\s*[=.\]]", start, len(lines) if end is None else end) if field else None
    return (found if found is not None else header or 0) + 1


def _nearest(word: str, known: Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(word, known, 3, 0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(known)}"
