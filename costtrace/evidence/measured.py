"""Published measurements as data, and how far a floor and a prediction are from them. No jax here.

Nothing is fitted. The mean error is that of |ln(t / measured)|: an error of twice and of half weigh the same.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from costtrace import units
from costtrace.errors import FormatError, UsageError

TAGS = ("M",)
PREDICTIONS = "predictions.toml"
"""Beside the measurements: see evidence.band."""
RATIOS = "ratios.toml"
"""Published ratios: see evidence.ratio."""


class Source(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    date: str


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    chip: str
    model: str
    config: dict[str, str]
    stage: str
    time: str
    tag: str
    source: str
    derivation: str
    device: bool
    kind: str
    why: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    sources: dict[str, Source]
    row: list[_Row]
    formulation: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Measurement:
    """One stage's seconds on one chip. `device`: the time is the chip's own; else `why` says what else is in it.
    `kind`: what the stage is made of; errors are grouped by it."""

    id: str
    chip: str
    model: str
    config: dict[str, str]
    stage: str
    measured_s: float
    source: str
    date: str
    derivation: str
    formulation: str
    device: bool
    kind: str
    why: str = ""


def folder() -> Path:
    return Path(__file__).parent.parent / "measurements"


def load(path: Path) -> list[Measurement]:
    """A file's rows. Raises FormatError, which names the file, for what must not load."""
    try:
        data = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
        rows = [_measurement(row, data) for row in data.row]
    except (OSError, msgspec.ValidationError, UsageError, ValueError, RecursionError) as e:
        raise FormatError(f"measurements/{path.name}: {e}: mend the file") from None
    return rows


def _measurement(row: _Row, data: _File) -> Measurement:
    if row.tag not in TAGS:
        raise ValueError(f"row {row.id!r} has tag {row.tag!r}: a measurement has M")
    if row.source not in data.sources:
        raise ValueError(f"row {row.id!r} has source {row.source!r}, which [sources] does not name")
    if row.device == bool(row.why):
        raise ValueError(
            f"row {row.id!r} says device = {str(row.device).lower()}: `why` is for, and only for, those false"
        )
    source = data.sources[row.source]
    return Measurement(
        row.id, row.chip, row.model, row.config, row.stage, units.parse(row.time, "s"), source.text, source.date,
        row.derivation, data.formulation.get(row.stage, ""), row.device, row.kind, row.why,
    )  # fmt: skip


def measurements() -> list[Measurement]:
    """Every row of the package's files. Raises FormatError where two have one id."""
    files = [path for path in sorted(folder().glob("*.toml")) if path.name not in (PREDICTIONS, RATIOS)]
    rows = [row for path in files for row in load(path)]
    seen: set[str] = set()
    for row in rows:
        if row.id in seen:
            raise FormatError(f"measurements: two rows have the id {row.id!r}: rename one")
        seen.add(row.id)
    return rows


@dataclass(frozen=True, slots=True)
class Validation:
    """A measurement beside what the floor and the compiler say of the same stage."""

    measurement: Measurement
    floor_s: float
    predicted_s: float | None
    """None where no compiler is set up for the chip."""
    notes: tuple[str, ...] = ()
    spread: tuple[tuple[str, float], ...] = ()
    """(another formulation of the same stage, its predicted seconds)"""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the compiler's packages."""

    def to_dict(self) -> dict[str, Any]:
        m = self.measurement
        return {
            "id": m.id, "chip": m.chip, "model": m.model, "config": m.config, "stage": m.stage, "kind": m.kind,
            "measured_s": m.measured_s, "floor_s": self.floor_s, "predicted_s": self.predicted_s,
            "measured_over_floor": m.measured_s / self.floor_s,
            "measured_over_predicted": None if self.predicted_s is None else m.measured_s / self.predicted_s,
            "device": m.device, "why": m.why, "formulation": m.formulation, "derivation": m.derivation, "tag": "M",
            "source": m.source, "date": m.date, "notes": list(self.notes), "spread": dict(self.spread),
        }  # fmt: skip


def error(found_s: float, measured_s: float) -> float:
    """|ln(found / measured)|."""
    return abs(math.log(found_s / measured_s))


def _mean(values: Iterable[float]) -> float | None:
    some = list(values)
    return sum(some) / len(some) if some else None


def document(rows: Sequence[Validation], head: dict[str, Any]) -> dict[str, Any]:
    """The answer of `costtrace validate`: rows, and mean errors over those whose time is the device's."""
    device = [row for row in rows if row.measurement.device]
    return {
        **head,
        "rows": [row.to_dict() for row in rows],
        "mean_error_floor": _mean(error(r.floor_s, r.measurement.measured_s) for r in device),
        "mean_error_predicted": _mean(
            error(r.predicted_s, r.measurement.measured_s) for r in device if r.predicted_s is not None
        ),
    }
