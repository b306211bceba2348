"""A chip and its numbers, each with unit, tag, source and date. Reading the files is chipfile.py's; no jax here.

Tags: M measured, S from a document, D derived (its derivation beside it). Rates are dense, link rates one-way,
and every number is per chip unless its convention says otherwise.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costtrace.chipfile import ChipFile, Conflict, Number
from costtrace.errors import UsageError
from costtrace.grid import Grid

COMPARED = ("bfloat16", "float8_e4m3fn", "int8", "float4_e2m1fn", "float32", "float64")
# What a dtype without hardware of its own runs as: complex products are counted as real FLOPs already.
PRICED_AS = {"complex64": "float32", "complex128": "float64", "uint8": "int8", "uint4": "int4"}


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip file as loaded. `numbers` by key ('matrix.bfloat16'); `missing`: key -> why that number is not there."""

    name: str
    title: str
    vendor: str
    kind: str
    numbers: dict[str, Number]
    aliases: tuple[str, ...] = ()
    topology: str = ""
    notes: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    path: str = ""
    grids: dict[tuple[str, str], Grid] = field(default_factory=dict)
    """(kind, dtype) -> measured rates by size, of a file that costtrace calibrate wrote."""

    def __repr__(self) -> str:
        return f"Chip({self.name!r}, {len(self.numbers)} numbers)"

    def number(self, key: str) -> Number | None:
        return self.numbers.get(key)

    def value(self, key: str) -> float | None:
        number = self.numbers.get(key)
        return None if number is None else number.value

    def rate(self, unit: str, dtype: str | None = None) -> Number | None:
        """The peak of "matrix" or "vector" for a numpy dtype's name, "transcendental" or "integer"; None if unknown."""
        return self.numbers.get(f"{unit}.{self.dtype_of(unit, dtype)}")

    @staticmethod
    def dtype_of(unit: str, dtype: str | None) -> str:
        """The dtype whose rate prices `dtype` on this unit."""
        default = {"transcendental": "float32", "integer": "int32"}.get(unit)
        return default or PRICED_AS.get(str(dtype), str(dtype))

    def lacks(self, unit: str, dtype: str | None = None) -> str:
        """One line that says a rate is not there, with the file's reason if it gives one."""
        dtype = {"hbm": "bandwidth", "link": "bandwidth", "host": "bandwidth"}.get(unit) or self.dtype_of(unit, dtype)
        why = self.missing.get(f"{unit}.{dtype}")
        what = f"no {dtype} {unit} rate" if unit in ("matrix", "vector") else f"no {unit} rate"
        return f"{what} on {self.name}" + (f": {why}" if why else "")

    def efficiency(self, key: str) -> Number | None:
        """Measured share of a peak, as a fraction (unit '1'): key a dtype of the matrix unit, or 'hbm'."""
        return self.numbers.get(f"efficiency.{key}")

    @property
    def hbm_bytes_per_s(self) -> Number | None:
        return self.numbers.get("hbm.bandwidth")

    @property
    def hbm_bytes(self) -> Number | None:
        return self.numbers.get("hbm.capacity")

    @property
    def devices(self) -> int:
        """How many devices jax shows for one chip (1 where the file does not say)."""
        return int(self.value("cores.devices") or 1)

    @property
    def link_bytes_per_s(self) -> float | None:
        """One-way bytes per second of all the chip's links together."""
        count, each = self.value("link.count"), self.value("link.bandwidth")
        return None if count is None or each is None else count * each

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every number for `costtrace chips NAME`, in the file's order; then what is missing, with value None."""
        for n in self.numbers.values():
            yield dataclasses.asdict(n) | {"derivation": n.derivation or None, "conflicts": [*map(_row, n.conflicts)]}
        for key, why in self.missing.items():
            absent = dict.fromkeys(("value", "unit", "tag", "source", "date", "derivation"))
            yield {"key": key, "text": "?", **absent, "convention": why, "conflicts": []}


def comparison(chips: list[Chip]) -> list[dict[str, Any]]:
    """One row a chip for `costtrace chips`, in base units; None where a number is missing."""
    return [
        {
            "chip": c.name,
            "title": c.title,
            "kind": c.kind,
            "devices": c.devices,
            **{f"{dtype}_per_s": c.value(f"matrix.{dtype}") for dtype in COMPARED},
            "vector_float32_per_s": c.value("vector.float32"),
            "vector_float64_per_s": c.value("vector.float64"),
            "transcendental_per_s": c.value("transcendental.float32"),
            "integer_per_s": c.value("integer.int32"),
            "hbm_bytes_per_s": c.value("hbm.bandwidth"),
            "hbm_bytes": c.value("hbm.capacity"),
            "ridge_bfloat16": _ratio(c.value("matrix.bfloat16"), c.value("hbm.bandwidth")),
            "link_bytes_per_s": c.link_bytes_per_s,
            "topology": c.topology,
            "tdp_w": c.value("power.tdp"),
            "usd_per_hour": c.value("price.on_demand"),
            "lacks": list(c.missing),
            "conflicts": sum(len(n.conflicts) for n in c.numbers.values()),
        }
        for c in chips
    ]


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


def _row(conflict: Conflict) -> dict[str, Any]:
    return dataclasses.asdict(conflict)


def folder() -> Path:
    """Where the shipped chips lie: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "chips"
    return inside if inside.is_dir() else package.parent / "chips"


def user_folders() -> list[Path]:
    """Where a user's own chips lie: $COSTTRACE_CHIPS, else the platform's folder for settings."""
    own = os.environ.get("COSTTRACE_CHIPS")
    if own:
        return [Path(p).expanduser() for p in own.split(os.pathsep) if p]
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming")
    elif sys.platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return [base / "costtrace" / "chips"]


def files() -> dict[str, Path]:
    """Name -> file of every chip known by name, sorted; a user's file goes before a shipped one of the same name."""
    found = {p.stem: p for place in (folder(), *reversed(user_folders())) for p in place.glob("*.toml")}
    return dict(sorted(found.items()))


def names() -> list[str]:
    """The names that `load` takes, sorted: the shipped chips and the user's own."""
    return list(files())


def load(name: str) -> Chip:
    """The chip of a name ('v6e'), an alias ('trillium') or a path to a TOML file.

    Raises UsageError where there is no such chip, ChipError where its file must not load.
    """
    if name.endswith(".toml") or os.sep in name:
        path = Path(name).expanduser()
        if not path.is_file():
            raise UsageError(f"no chip file {name!r}: give the path of a TOML file, or a name: {', '.join(names())}")
        return _read(path, name)
    known = files()
    wanted = _plain(name)
    for stem, path in known.items():
        if _plain(stem) == wanted:
            return _read(path)
    loaded = [_read(path) for path in known.values()]
    for chip in loaded:
        if wanted in {_plain(a) for a in (chip.name, *chip.aliases)}:
            return chip
    words = {_plain(w): c.name for c in loaded for w in (c.name, *c.aliases)}
    near = list(dict.fromkeys(words[w] for w in difflib.get_close_matches(wanted, list(words), 3, 0.6)))
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(f"no chip {name!r}: {hint}known are {', '.join(known)}, or give the path of a TOML file")


def _read(path: Path, shown: str = "") -> Chip:
    if not shown:
        shown = f"chips/{path.name}" if path.parent == folder() else str(path)
    read = ChipFile(path, shown)
    head = read.head
    words = (head.name, head.title, head.vendor, head.kind)
    return Chip(
        *words, read.numbers, tuple(head.aliases), head.topology, tuple(head.notes), head.missing, shown, read.grids
    )


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.lower())
