"""Ratios of measured over modelled that somebody published, with the floors made again from our own rows."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from costtrace import chip, model, roofline, units
from costtrace.errors import FormatError, UsageError
from costtrace.evidence.measured import RATIOS, Source, folder
from costtrace.profiler import profile
from costtrace.summary import Profile

AT = ("measured", "peak")


class Ratio(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One published ratio; `time` is of one call of the stage, in `scope` of it; `at`: the rates of its floor."""

    id: str
    chip: str
    model: str
    config: dict[str, str]
    stage: str
    time: str
    derivation: str
    quoted: str
    at: str
    source: str
    scope: str = ""
    why: str = ""

    @property
    def measured_s(self) -> float:
        return units.parse(self.time, "s")


class _File(msgspec.Struct, forbid_unknown_fields=True):
    sources: dict[str, Source]
    ratio: list[Ratio]


@dataclass(frozen=True, slots=True)
class Checked:
    """A published ratio beside ours. floor_s: with fused bytes; pessimistic_s: with scoped bytes, which are what the
    report calls unfused."""

    ratio: Ratio
    source: str
    floor_s: float
    pessimistic_s: float

    @property
    def agrees(self) -> bool:
        """True where ours, with scoped bytes, is the published one to its last digit."""
        places = len(self.ratio.quoted.partition(".")[2])
        return f"{self.ratio.measured_s / self.pessimistic_s:.{places}f}" == self.ratio.quoted

    def to_dict(self) -> dict[str, Any]:
        r = self.ratio
        return {
            "id": r.id, "chip": r.chip, "model": r.model, "config": r.config, "stage": r.stage, "scope": r.scope or ".",
            "measured_s": r.measured_s, "at": r.at, "quoted": float(r.quoted), "floor_s": self.floor_s,
            "ratio": r.measured_s / self.floor_s, "pessimistic_s": self.pessimistic_s,
            "ratio_pessimistic": r.measured_s / self.pessimistic_s, "agrees": self.agrees, "why": r.why,
            "derivation": r.derivation, "tag": "M", "source": self.source,
        }  # fmt: skip


def ratios(path: Path | None = None) -> list[tuple[Ratio, str]]:
    """(ratio, its source spelled out) of the package's file. Raises FormatError for what must not load."""
    path = path or folder() / RATIOS
    try:
        data = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
        for one in data.ratio:
            if one.at not in AT or one.source not in data.sources:
                raise ValueError(f"ratio {one.id!r} is at {one.at!r} from {one.source!r}: one of {', '.join(AT)}, and "
                                 "a source that [sources] names")  # fmt: skip
            if one.measured_s <= 0 or float(one.quoted) <= 0:
                raise ValueError(f"ratio {one.id!r}: time and ratio must be above zero")
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UsageError, ValueError) as e:
        raise FormatError(f"measurements/{path.name}: {e}: mend the file") from None
    return [(one, f"{data.sources[one.source].text}, {data.sources[one.source].date}") for one in data.ratio]


def checked(some: Iterable[tuple[Ratio, str]]) -> list[Checked]:
    """Each ratio with the floors of the program that costtrace traces."""
    out = []
    for one, source in some:
        on = chip.load(one.chip)
        cost = _profile(one.model, tuple(one.config.items()), one.stage).by_scope[one.scope]
        measured = one.at == "measured"
        floor_s, pessimistic_s = (
            roofline.times(cost, on, nbytes or 0, efficiency=measured).seconds
            for nbytes in (cost.bytes_fused, cost.bytes_scoped)
        )
        out.append(Checked(one, source, floor_s, pessimistic_s))
    return out


@lru_cache
def _profile(name: str, config: tuple[tuple[str, str], ...], stage: str) -> Profile:
    found = model.find(name)
    one = next(some for some in found.stages(found.configure(**dict(config))) if some.name == stage)
    fn, args = model.bind(one)
    return profile(fn, *args, weights=0)
