"""How far measured times were from predictions of their kind, so that a later prediction can say so. No jax here.

measurements/predictions.toml holds what the compilers predicted for the published measurements; `costtrace validate
--record` writes it. A band is the range of measured / predicted over the rows of one kind on one platform.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from costtrace import chip, units
from costtrace.errors import FormatError, UsageError
from costtrace.evidence import measured
from costtrace.evidence.measured import Measurement

PRODUCTS, CONVOLUTIONS = "products", "convolutions"
HEAD = "# Made by `costtrace validate --record`: the compilers' predictions for the rows measured. Not to be edited.\n"


@dataclass(frozen=True, slots=True)
class Band:
    """The factors measured / predicted seen for one kind of part on one platform ("tpu", "gpu"); 1 is always within."""

    platform: str
    kind: str
    low: float
    high: float
    rows: tuple[str, ...]

    def __str__(self) -> str:
        several = f"{len(self.rows)} rows" if len(self.rows) > 1 else "1 row"
        return f"{self.kind} on a {self.platform.upper()} {self.low:.2f} to {self.high:.2f} ({several})"

    def to_dict(self) -> dict[str, Any]:
        return {"platform": self.platform, "kind": self.kind, "low": self.low, "high": self.high,
                "rows": list(self.rows)}  # fmt: skip


class _Prediction(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    time: str
    tag: str
    source: str
    date: str


class _File(msgspec.Struct, forbid_unknown_fields=True):
    prediction: list[_Prediction] = []


def kind_of(matmul_flops: int, conv_flops: int) -> str | None:
    """What a part is made of, as bands know it; None for one without products, of which nothing was measured alone."""
    if conv_flops > matmul_flops:
        return CONVOLUTIONS
    return PRODUCTS if matmul_flops else None


def bands(pairs: Iterable[tuple[Measurement, float]]) -> list[Band]:
    """A band for each platform and kind, of (measurement, predicted seconds) whose time is the device's."""
    found: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    for row, predicted_s in pairs:
        if row.device:
            found[chip.load(row.chip).kind, row.kind].append((row.id, row.measured_s / predicted_s))
    return [Band(platform, kind, min(1.0, *(r for _, r in some)), max(1.0, *(r for _, r in some)),
                 tuple(name for name, _ in some)) for (platform, kind), some in found.items()]  # fmt: skip


def known(path: Path | None = None) -> dict[tuple[str, str], Band]:
    """{(platform, kind): Band} of what is recorded. Raises FormatError, which names the file."""
    path = path or measured.folder() / measured.PREDICTIONS
    rows = {row.id: row for row in measured.measurements()}
    try:
        data = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
        pairs = [(rows[p.id], units.parse(p.time, "s")) for p in data.prediction]
    except KeyError as e:
        raise FormatError(
            f"measurements/{measured.PREDICTIONS}: no measurement {e}: costtrace validate --record makes it anew"
        ) from None
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError, UsageError, ValueError) as e:
        raise FormatError(
            f"measurements/{measured.PREDICTIONS}: {e}: costtrace validate --record makes it anew"
        ) from None
    return {(band.platform, band.kind): band for band in bands(pairs)}


def recorded(rows: Iterable[measured.Validation], date: str) -> str:
    """The text of measurements/predictions.toml."""
    out = [HEAD]
    for row in rows:
        if row.predicted_s is not None:
            versions = ", ".join(f"{name} {version}" for name, version in row.versions.items())
            out.append(f"[[prediction]]\nid = \"{row.measurement.id}\"\ntime = \"{1000 * row.predicted_s:.6g} ms\"\n"
                       f"tag = \"D\"\nsource = \"costtrace validate: {versions}\"\ndate = \"{date}\"\n")  # fmt: skip
    return "\n".join(out)
