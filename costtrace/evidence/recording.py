"""What somebody measured, in any form, as seconds by stage and scope: a document of `costtrace measure`, a trace of
jax.profiler, a plain JSON or CSV of scope and seconds, a TOML of published rows. No jax here.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costtrace.errors import FormatError, UsageError
from costtrace.evidence import measured as published
from costtrace.version import DOCUMENT

KEYS = ("scope", "seconds")
FORMS = (
    "a JSON of costtrace measure, a jax.profiler trace (file or folder), a JSON or CSV of scope and seconds, or a TOML"
)


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of one call of a stage, in one scope of it ("" is the whole). `runs`: how often the scope was timed as a
    program of its own, each with a dispatch in it; 0 where it ran inside the whole. `host_s`: of the seconds, those in
    which the device had no work."""

    stage: str
    scope: str
    seconds: float
    runs: int = 0
    spread: float | None = None
    dispatch_s: float | None = None
    host_s: float | None = None
    what: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    """All rows of one file. `config`, `chip` and `platform` (cpu, gpu, tpu): of what, where the file says it."""

    place: str
    rows: list[Timed]
    model: str | None = None
    config: Mapping[str, Any] | None = None
    chip: str | None = None
    platform: str | None = None
    notes: list[str] = field(default_factory=list)


def read(path: Path, model: str | None = None, chip: str | None = None) -> Recording | None:
    """The recording in a file; of published rows those of the model and the chip, where these are given. None where it
    is a profiler's trace, which is read with the program (see xplane.py).

    Raises UsageError where there is no such file, FormatError where it is none of FORMS or holds no number above zero.
    """
    if path.is_dir() or path.name.endswith(".xplane.pb"):
        return None
    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets begin a CSV with a mark
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}: give {FORMS}") from None
    except UnicodeDecodeError:
        raise FormatError(f"{path} is no text: give {FORMS}") from None
    if path.suffix == ".toml":
        return _published(published.load(path), str(path), model, chip)
    found = _json(text, path) if path.suffix == ".json" else _csv(text, path)
    if not found.rows:
        raise FormatError(f"{path} has no row: give {FORMS}")
    return found


def _published(rows: list[published.Measurement], place: str, model: str | None, chip: str | None) -> Recording:
    """Raises FormatError where there is no such row, UsageError where several chips or configurations are left."""
    some = [row for row in rows if model in (None, row.model) and chip in (None, row.chip)]
    if not some:
        have = ", ".join(dict.fromkeys(f"{row.model} on {row.chip}" for row in rows))
        raise FormatError(f"{place} has no row of {model or 'it'} on {chip or 'any chip'}: it has {have or 'none'}")
    if len(chips := dict.fromkeys(row.chip for row in some)) > 1:
        raise UsageError(f"{place} has rows on {', '.join(chips)}: name one with --chip")
    if len({json.dumps(row.config, sort_keys=True) for row in some}) > 1:
        raise UsageError(
            f"{place} has rows of several configurations on {some[0].chip}: keep one in a file of your own"
        )
    first = some[0]
    timed = [Timed(row.stage, "", row.measured_s) for row in some]
    return Recording(place, timed, first.model, first.config, first.chip)


def _json(text: str, path: Path) -> Recording:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{path}: no JSON ({e}): give {FORMS}") from None
    if isinstance(data, dict) and "stages" in data and "device" in data:
        if data.get("schema") != DOCUMENT:
            raise FormatError(f"{path} has schema {data.get('schema')!r}, this costtrace reads {DOCUMENT!r}: "
                              "measure again with this version")  # fmt: skip
        return _measured(data, path)
    rows = data.get("rows") if isinstance(data, dict) else data
    if not isinstance(rows, list):
        raise FormatError(
            f"{path}: neither a document of costtrace measure nor rows of scope and seconds: give {FORMS}"
        )
    head = data if isinstance(data, dict) else {}
    return Recording(
        str(path), [_row(row, path, n) for n, row in enumerate(rows, 1)], head.get("model"), head.get("config")
    )


def _csv(text: str, path: Path) -> Recording:
    reader = csv.DictReader(io.StringIO(text))
    if not set(KEYS) <= set(reader.fieldnames or ()):
        raise FormatError(f"{path}: its first line names no columns scope and seconds (stage may be a third): add them")
    return Recording(str(path), [_row(row, path, n) for n, row in enumerate(reader, 2)])


def _row(row: Any, path: Path, line: int) -> Timed:
    if not isinstance(row, dict) or not set(KEYS) <= set(row):
        raise FormatError(f"{path}: row {line} has no scope and seconds: write both (stage may be a third)")
    place = f"{path}: row {line}"
    stage, scope = (_name(row.get(key), key, place) for key in ("stage", "scope"))
    return Timed(stage, scope, positive(row["seconds"], place))


def _name(value: Any, key: str, place: str) -> str:
    """A stage's or a scope's name, "" for none. Raises FormatError for what is no text."""
    if value is not None and not isinstance(value, str):
        raise FormatError(f'{place}: {key} {value!r} is no text: write its name, or "" for the whole')
    return value or ""


def positive(value: Any, place: str) -> float:
    """Seconds above zero. Raises FormatError for anything else."""
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise FormatError(f"{place}: {value!r} is no time: give seconds above zero")
    return seconds


def _measured(data: dict[str, Any], path: Path) -> Recording:
    rows, notes = [], []
    try:
        for stage in data["stages"]:
            name, loop = _name(stage["name"], "stage", str(path)), stage.get("loop") or {}
            whole = positive(stage["measured_s"], f"{path}: {name}")
            scanned = loop.get("scanned_s")
            dispatch_s = None if scanned is None else max(0.0, whole - scanned / loop["steps"])
            rows.append(Timed(name, "", whole, 1, stage["spread"], dispatch_s))
            for part in stage["parts"]:
                seconds = positive(part["measured_s"], f"{path}: {name} {part['scope']}")
                scope = _name(part["scope"], "scope", f"{path}: {name}")
                rows.append(Timed(name, scope, seconds, part["runs"], part["spread"]))
            if not stage["finite"]:
                notes.append(f"{name}: its results held what is no finite number when it was measured")
        return Recording(str(path), rows, data["model"], data["config"], None, data["device"]["platform"], notes)
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as e:
        raise FormatError(f"{path}: not a whole document of costtrace measure ({e}): measure again") from None
