"""A chip's TOML file -> Numbers. The schema and every reason why a file does not load; knows no arithmetic.

Each section below holds tables named after what they say: [matrix.bfloat16], [hbm.bandwidth]. A number is text with a unit
and has a tag, a source and a date; `sources` at the top of a file lets many numbers name one document by a short word.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from costtrace import units
from costtrace.errors import ChipError, UsageError

TAGS = {"M": "measured", "D": "derived", "S": "from a document"}
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e5m2",
          "float4_e2m1fn")
INTEGERS = ("int32", "int8", "int4")
MATRIX = {d: "FLOP/s" for d in FLOATS} | {d: "OP/s" for d in INTEGERS}

# Section -> what may stand in it -> the unit it is in.
SECTIONS: dict[str, dict[str, str]] = {
    "matrix": MATRIX,
    "vector": {d: "FLOP/s" for d in FLOATS[:4]},
    "transcendental": {"float32": "OP/s"},
    "integer": {"int32": "OP/s"},
    "hbm": {"bandwidth": "B/s", "capacity": "B"},
    "memory": {"vmem_per_core": "B", "cmem": "B", "scalar_per_core": "B", "shared_per_sm": "B", "l1_per_sm": "B",
               "tensor_per_sm": "B", "l2": "B", "vmem_bandwidth": "B/s"},
    "cores": {"devices": "device", "tensor_cores": "core", "mxus": "MXU", "mxu_side": "row", "lanes": "lane",
              "sublanes": "sublane", "alus": "ALU", "sm": "SM", "clock": "Hz", "flops_per_cycle": "FLOP/cycle"},
    "tile": {"lanes": "lane", "rows_32bit": "row", "rows_16bit": "row", "rows_8bit": "row", "rows_4bit": "row"},
    "link": {"count": "link", "bandwidth": "B/s", "latency": "s", "pod": "chip"},
    "host": {"bandwidth": "B/s"},
    "scale_out": {"bandwidth": "B/s"},
    "power": {"tdp": "W"},
    "price": {"on_demand": "USD/h"},
    "efficiency": {d: "1" for d in MATRIX} | {"hbm": "1"},
}
FIXES = {"source": 'add source = "who says so, page or table, address"', "tag": 'add tag = "S", "D" or "M"',
         "date": 'add date = "when it was read, year and month"', "value": 'add value = "819 GB/s"',
         "why": 'add why = "the reason it is not the one used"', "name": 'add name = "mychip"',
         "title": 'add title = "Vendor and product"', "vendor": 'add vendor = "who makes it"',
         "kind": 'add kind = "tpu" or "gpu"', "text": 'add text = "author, page, address"'}


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
    """One file, read and checked: `head` (name, title, kind ...) and `numbers` by key. Raises ChipError, always one line
    with file, line and fix."""

    def __init__(self, path: Path, shown: str = "") -> None:
        self.shown = shown or str(path)
        try:
            self.text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise UsageError(f"{self.shown}: this chip file cannot be read: {e}") from None
        try:
            document = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as e:
            self._not_toml(str(e))
        sections = {k: v for k, v in document.items() if k in SECTIONS}
        self.head = self._convert({k: v for k, v in document.items() if k not in SECTIONS}, _Head, "", "")
        if self.head.kind not in ("tpu", "gpu"):
            self._fail("", "", "kind", f"kind is {self.head.kind!r}: write kind = \"tpu\" or \"gpu\"")
        self.numbers: dict[str, Number] = {}
        for section, entries in sections.items():
            if not isinstance(entries, dict):
                self._fail(section, "", "", f"{section} is not a section: write [{section}.{_first(section)}]")
            for key, entry in entries.items():
                self._number(section, key, entry)
        for key in self.head.missing:
            self._missing(key)
        self._check_efficiency()

    def _number(self, section: str, key: str, entry: Any) -> None:
        known, place = SECTIONS[section], f"{section}.{key}"
        if "spars" in key.lower():
            self._fail(section, key, "", f"{place} is a sparse rate: remove it, rates here are dense")
        if key not in known:
            self._fail(section, key, "", f"{place} is not known: {_nearest(key, known)}")
        if not isinstance(entry, dict):
            self._fail(section, key, "", f"{place} is a bare value: write a table [{place}] with value, tag, source and date")
        e = self._convert(entry, _Entry, section, key)
        said = f"{e.value} {e.convention} {e.derivation}".lower()
        if "spars" in said or "2:4" in said:
            self._fail(section, key, "convention" if "spars" in e.convention.lower() else "value",
                       f"{place} is a sparse rate: give the dense one (half of a 2:4 rate)")
        if e.tag not in TAGS:
            self._fail(section, key, "tag", f"{place} has tag {e.tag!r}: {FIXES['tag'].removeprefix('add ')}")
        if e.tag == "D" and not e.derivation:
            self._fail(section, key, "tag", f'{place} is derived without saying how: add derivation = "lanes x clock"')
        source, date = self._source(section, key, e)
        conflicts = tuple(Conflict(self._value(section, key, c.value, known[key]), c.value,
                                   self._cited(c.source), c.why) for c in e.conflicts)
        value = self._value(section, key, e.value, known[key])
        if value == 0:
            self._fail(section, key, "value", f"{place} is zero: leave it out, and say why in [missing]")
        for name in (key, *e.also):
            at = f"{section}.{name}"
            if name not in known:
                self._fail(section, key, "also", f"{at} is not known: {_nearest(name, known)}")
            if at in self.numbers:
                self._fail(section, key, "also", f"{at} is given twice: keep one")
            if known[name] != known[key]:
                self._fail(section, key, "also", f"{at} is in {known[name]}, {place} in {known[key]}: give it a table of its own")
            self.numbers[at] = Number(at, value, known[key], e.value, e.tag, source, date, e.convention, e.derivation,
                                      conflicts)

    def _source(self, section: str, key: str, e: _Entry) -> tuple[str, str]:
        place = f"{section}.{key}"
        if not e.source.strip():
            self._fail(section, key, "source", f"{place} has no source: {FIXES['source']}")
        named = self.head.sources.get(e.source)
        if named is None and " " not in e.source.strip():
            self._fail(section, key, "source", f"{place} names source {e.source!r}, which is not in [sources]: "
                       f"{_nearest(e.source, self.head.sources) if self.head.sources else FIXES['source']}")
        date = e.date or (named.date if named else "")
        if not re.match(r"\d{4}-\d{2}", date):
            self._fail(section, key, "date" if e.date else "", f"{place} has no date: {FIXES['date']}")
        return self._cited(e.source), date

    def _cited(self, source: str) -> str:
        named = self.head.sources.get(source)
        return named.text if named else source

    def _value(self, section: str, key: str, text: str, unit: str) -> float:
        try:
            if unit == "1" and not text.rstrip().endswith("%"):
                return self._share(section, key, text)
            return units.parse(text, unit)
        except UsageError as e:
            self._fail(section, key, "value", f"{section}.{key}: {e}")

    def _share(self, section: str, key: str, text: str) -> float:
        """A measured rate as a fraction of the peak of the same file."""
        peak = self.numbers.get("hbm.bandwidth" if key == "hbm" else f"matrix.{key}")
        if peak is None:
            self._fail(section, key, "value", f"{section}.{key} has no peak above it: give the peak's table first, or a share in %")
        return units.parse(text, peak.unit) / peak.value

    def _check_efficiency(self) -> None:
        for n in self.numbers.values():
            if n.key.startswith("efficiency.") and n.value > 1:
                section, key = n.key.split(".")
                self._fail(section, key, "value", f"{n.key} is {n.value:.2f} of the peak: a measured rate cannot be above it")

    def _missing(self, place: str) -> None:
        section, _, key = place.partition(".")
        if key not in SECTIONS.get(section, {}):
            known = [f"{s}.{k}" for s, keys in SECTIONS.items() for k in keys]
            self._fail("missing", f'"{place}"', "", f"missing names {place!r}, which is not known: {_nearest(place, known)}")
        if place in self.numbers:
            self._fail("missing", f'"{place}"', "", f"{place} is both given and missing: keep one")

    def _convert(self, data: Any, kind: type[Any], section: str, key: str) -> Any:
        try:
            return msgspec.convert(data, kind, strict=True)
        except msgspec.ValidationError as e:
            message, _, inside = str(e).partition(" - at `$")
            place = f"{section}.{key}" if section else ""
            where = (place + re.sub(r"\[(\d+|\.\.\.)\]", "", inside.rstrip("`"))).strip(".") or "the file"
            if field := re.search(r"required field `(\w+)`", message):
                self._fail(section, key, "", f"{where} has no {field[1]}: {FIXES[field[1]]}")
            if field := re.search(r"unknown field `(.+)`", message):
                if "spars" in field[1].lower():
                    self._fail(section, key, field[1], f"{where} has a sparse rate ({field[1]}): remove it, rates here are dense")
                known = list(kind.__struct_fields__) + ([] if section else list(SECTIONS))
                self._fail(section, key, field[1], f"{where} has an unknown key {field[1]!r}: {_nearest(field[1], known)}")
            field = where.rpartition(".")[2]
            unit = SECTIONS.get(section, {}).get(key)
            fix = f"write text with a unit, like {units.example(unit)}" if field == "value" and unit else "mend its type"
            what = "has no unit" if field == "value" else message[0].lower() + message[1:]
            self._fail(section, key, field, f"{where.removesuffix('.value')} {what}: {fix}")

    def _not_toml(self, message: str) -> NoReturn:
        at = re.search(r" \(at line (\d+), column \d+\)$", message)
        line, what = (int(at[1]), message[: at.start()]) if at else (1, message)
        fix = "keep one of the two" if "twice" in what or "overwrite" in what else "mend the TOML there"
        raise ChipError(f"{self.shown}:{line}: {what[0].lower() + what[1:]}: {fix}")

    def _fail(self, section: str, key: str, field: str, message: str) -> NoReturn:
        raise ChipError(f"{self.shown}:{_line(self.text, section, key, field)}: {message}")


def _line(text: str, section: str, key: str, field: str) -> int:
    """The line where a field stands (or its table, where the field is what lacks), found in the TOML's text."""
    lines = text.splitlines()
    name = r'"?{}"?'.format
    heads = [rf"\[\s*{name(re.escape(section))}\s*\.\s*{name(re.escape(key))}\s*\]", rf"\[\s*{name(re.escape(section))}\s*\]"]
    start = 0
    for head in heads if section else []:
        start = next((n for n, line in enumerate(lines, 1) if re.match(rf"\s*{head}", line)), 0)
        if start:
            break
    table = bool(section) and bool(start) and bool(re.match(rf"\s*{heads[0]}", lines[start - 1]))
    for wanted in (field, "" if table else key.strip('"')):
        for n, line in enumerate(lines[start:], start + 1):
            if start and line.lstrip().startswith("["):
                break
            if wanted and re.match(rf"\s*\"?{re.escape(wanted)}\"?\s*[=.]", line):
                return n
            if wanted and not section and re.match(rf"\s*\[\s*\"?{re.escape(wanted)}\b", line):
                return n
    return start or 1


def _nearest(word: str, known: Any) -> str:
    near = difflib.get_close_matches(word, list(known), 3, 0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(known)}"


def _first(section: str) -> str:
    return next(iter(SECTIONS[section]))
