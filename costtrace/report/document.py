"""Profiles and a chip -> the document: plain data, as `--format json` prints it and every table reads it.

Base units without prefix; None where a number is not known or not defined; a share is a fraction of 1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from costtrace import capacity, roofline, units
from costtrace.chip import Chip
from costtrace.core import EXACT, Cost
from costtrace.coverage import STATUS, WORK, coverage, unpriced
from costtrace.version import DOCUMENT, __version__

if TYPE_CHECKING:  # `costtrace --help` reads GROUPS and needs neither the engine nor numpy
    from costtrace.profiler import Profile, Row

Document = dict[str, Any]
Stages = Sequence[tuple[str, int, "Profile"]]
"""(stage name, calls, Profile of one call)"""
DEEPEST = 4

GROUPS = {"scope": "scope", "layer": "scope", "primitive": "primitive", "dtype": "dtype", "phase": "phase",
          "weight": "weight", "line": "line"}  # fmt: skip
"""What rows can be grouped by -> the key of a document's row that names the group."""


@dataclasses.dataclass(frozen=True, slots=True)
class Grouping:
    """How rows are cut: by what, how deep (in all stages, or by stage), numbered siblings merged (for tables) or not;
    and whether times are at measured rates."""

    by: str = "scope"
    depth: int | Mapping[str, int] | None = None
    merge: bool = False
    efficiency: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """One configuration of a program on one chip, and what other witnesses say of it, for a file that shows it."""

    name: str
    config: Mapping[str, Any]
    stages: Stages
    depth: int | Mapping[str, int] | None
    """As a Grouping has it."""
    chip: Chip
    compiled: Any = None
    """report.compiled's Found: {stage: (its profile, what the chip's compiler made)}"""
    audit: Document | None = None
    strategies: Sequence[Document] = ()
    measured: Mapping[str, tuple[float, str]] = dataclasses.field(default_factory=dict)
    """{stage: (seconds of one call, where they are from)}"""


def document(
    model: str, config: Mapping[str, Any], chip: Chip, stages: Stages, grouping: Grouping | None = None
) -> Document:
    """The whole answer for one model, one configuration and one chip, as DESIGN's JSON contract has it."""
    grouping = grouping or Grouping()
    parts = [_stage(name, calls, profile, chip, grouping) for name, calls, profile in stages]
    everything = _everything(parts, grouping.by)
    for part in parts:
        for row in part["rows"]:
            row["share"] = part["calls"] * row["pessimistic_s"] / everything if everything else None
    total = sum((calls * profile.total for _, calls, profile in stages), Cost())
    doc: Document = {
        **preamble(),
        "model": model,
        "config": plain(config),
        "chip": chip.name,
        "chip_title": chip.title,
        "by": grouping.by,
        "efficiency": grouping.efficiency,
        "stages": parts,
        "total": total.to_dict(),
        "floor_s": _all_calls(parts, "floor_s"),
        "pessimistic_s": _all_calls(parts, "pessimistic_s"),
        "status": max((profile.status for _, _, profile in stages), key=STATUS.index, default=EXACT),
        **coverage((calls, made.status, made.groups()) for _, calls, made in stages).to_dict(),
        "numbers": _numbers(total, chip, grouping.efficiency),
        "notes": [
            {"kind": note.kind, "stage": name, "scope": note.scope, "text": note.text}
            for name, _, profile in stages
            for note in profile.notes
        ]
        + _chip_notes(total, stages, chip, grouping.efficiency),
    }
    if any("useful_flops" in part for part in parts):
        doc["useful_flops"] = sum(calls * profile.useful_flops for _, calls, profile in stages)
        floors = [(part["calls"], part.get("useful_floor_s", part["floor_s"])) for part in parts]
        doc["useful_floor_s"] = added(n * s if s is not None else None for n, s in floors)
    return doc


def preamble() -> Document:
    """How every document that costtrace writes begins: its schema and the version that wrote it."""
    return {"schema": DOCUMENT, "costtrace": __version__}


def several(documents: Sequence[Document]) -> Document:
    """One document as it is; several as `runs`, side by side."""
    if len(documents) == 1:
        return documents[0]
    return {**preamble(), "runs": list(documents)}


def plain(value: Any) -> Any:
    """A config as JSON can hold it: mappings as objects, sequences as lists, anything else (a Size) as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def added(values: Iterable[float | None]) -> float | None:
    """The sum, None where a part of it is not known."""
    some = list(values)
    known = [value for value in some if value is not None]
    return math.fsum(known) if len(known) == len(some) else None


def _all_calls(parts: Sequence[Document], key: str) -> float | None:
    return added(None if part[key] is None else part["calls"] * part[key] for part in parts)


def _everything(parts: Sequence[Document], by: str) -> float | None:
    """What shares are of: the sum of all rows' pessimistic seconds; by weight, where rows overlap and leave work out,
    of the stages' own unfused seconds."""
    if by == "weight":
        return _all_calls(parts, "unfused_s")
    return added(
        None if row["pessimistic_s"] is None else part["calls"] * row["pessimistic_s"]
        for part in parts
        for row in part["rows"]
    )


def _stage(name: str, calls: int, profile: Profile, chip: Chip, grouping: Grouping) -> Document:
    named = all(note.kind != "no-scopes" for note in profile.notes)
    return {
        "name": name,
        "calls": calls,
        "parameters": profile.parameters,
        "status": profile.status,
        "total": profile.total.to_dict(),
        "peak_bytes": profile.peak.nbytes,
        "peak": {
            "scope": profile.peak.scope,
            "primitive": profile.peak.primitive,
            "alive": [{"value": label, "bytes": nbytes} for label, nbytes in profile.peak.alive],
            "tiled_bytes": capacity.tiled_peak(profile.peak.shapes, chip),
        },
        **_times(profile.total, chip, named, grouping.efficiency),
        **_useful(profile.total, profile.useful_flops, chip, grouping.efficiency),
        "rows": [_row(row, chip, named, grouping) for row in rows_of(name, profile, grouping)],
    }


def rows_of(stage: str, profile: Profile, grouping: Grouping) -> list[Row]:
    """The profile's rows as the grouping cuts them. Where it names no depth: the least, of at most 4, with two rows."""
    depth = grouping.depth.get(stage) if isinstance(grouping.depth, Mapping) else grouping.depth
    by, merge = grouping.by, grouping.merge
    if depth is not None or by not in ("scope", "layer"):
        return profile.rows(by=by, depth=depth, merge=merge)
    tried = [profile.rows(by=by, depth=level, merge=merge) for level in range(1, DEEPEST + 1)]
    return next((rows for rows in tried if len(rows) > 1), tried[0])


def _row(row: Row, chip: Chip, named: bool, grouping: Grouping) -> Document:
    return {
        GROUPS[grouping.by]: row.key,
        "status": row.status,
        "instances": row.instances,
        "cost": row.cost.to_dict()
        | ({} if row.whole else {"bytes_fused": None, "bytes_scoped": None})
        | (dict.fromkeys(WORK) if unpriced(row.status, row.cost) else {}),
        **_times(row.cost, chip, named, grouping.efficiency, whole=row.whole),
        "share": None,
        **({} if grouping.by == "weight" else _useful(row.cost, row.useful_flops, chip, grouping.efficiency)),
    }


def _times(cost: Cost, chip: Chip, named: bool, efficiency: bool, whole: bool = True) -> Document:
    """Seconds and bounds of a part as one kernel, with a kernel a leaf scope, with a kernel a primitive.

    `pessimistic_s` is the second, or the third where the program names no scope or the part is not `whole`. None where
    bytes move and the chip's file has no bandwidth; the bound is None too, and where there is nothing to do.
    """
    cuts = {"fused": cost.bytes_fused, "scoped": cost.bytes_scoped, "unfused": cost.bytes_unfused}
    times = {cut: roofline.times(cost, chip, n, efficiency) for cut, n in cuts.items()}
    known = {cut: chip.hbm_bytes_per_s is not None or not n for cut, n in cuts.items()}
    seconds = {cut: times[cut].seconds if known[cut] else None for cut in cuts}
    bound = {cut: times[cut].bound if known[cut] and times[cut].terms else None for cut in cuts}
    return {
        "floor_s": seconds["fused"] if whole else None,
        "pessimistic_s": seconds["scoped" if named and whole else "unfused"],
        "unfused_s": seconds["unfused"],
        **{f"bound_{cut}": bound[cut] if whole or cut == "unfused" else None for cut in cuts},
    }


def _useful(cost: Cost, useful: int, chip: Chip, efficiency: bool) -> Document:
    """`useful_flops` and `useful_floor_s`, only where masks make them less than what is executed. The floor is null
    where products of several dtypes leave open which of them the masked work belongs to."""
    masked = cost.flops - useful
    if not masked:
        return {}
    floor = None
    if len(cost.by_dtype) == 1 and chip.hbm_bytes_per_s is not None:
        by_dtype = {dtype: flops - masked for dtype, flops in cost.by_dtype.items()}
        needed = cost.replace(by_dtype=by_dtype, matmul_flops=cost.matmul_flops - masked)
        floor = roofline.floor_s(needed, chip, efficiency)
    return {"useful_flops": useful, "useful_floor_s": floor}


def _chip_notes(cost: Cost, stages: Stages, chip: Chip, efficiency: bool) -> list[Document]:
    """What the chip does not do or its file does not say: a peak over its memory, a rate that is missing."""
    fits = [(name, capacity.hbm(profile.peak.nbytes, chip)) for name, _, profile in stages]
    out = [{"kind": "does-not-fit", "stage": name, "scope": "", "text": f"peak memory {fit}"}
           for name, fit in fits if fit is not None and not fit.fits]  # fmt: skip
    for name, _, profile in stages:
        dense, tiled = profile.peak.nbytes, capacity.tiled_peak(profile.peak.shapes, chip)
        fit = capacity.hbm(tiled, chip)
        if tiled > dense and fit is not None and not fit.fits and dense <= fit.capacity.value:
            text = (
                f"peak memory may not fit: in the chip's padded tiles it is up to {fit}, dense {units.text(dense, 'B')}"
            )
            out.append({"kind": "tiled-peak", "stage": name, "scope": "", "text": text})
    out += _working_sets(stages, chip)
    times = roofline.times(cost, chip, cost.bytes_fused, efficiency)
    out += [{"kind": "missing-rate", "stage": "", "scope": "", "text": text} for text in times.missing]
    out += [{"kind": "peak-rate", "stage": "", "scope": "", "text": text} for text in times.notes]
    return out


def _working_sets(stages: Stages, chip: Chip) -> list[Document]:
    """Arrays inside a scope that are larger than all that crosses its edge, and than the chip's first memory: a score
    matrix that one kernel cannot hold."""
    out = []
    for name, _, profile in stages:
        for scope, array in profile.largest.items():
            fits = capacity.on_chip(array.nbytes, chip)[:1]
            edge = profile.by_scope[scope].bytes_fused // max(profile.instances.get(scope, 1), 1)
            if fits and not fits[0].fits and array.nbytes > edge:
                text = f"its largest array, {array}, is more than crosses its edge: {fits[0]}"
                out.append({"kind": "working-set", "stage": name, "scope": scope, "text": text})
    return out


def _numbers(cost: Cost, chip: Chip, efficiency: bool) -> list[Document]:
    """The chip's numbers that the times rest on, each with its tag and source."""
    parts = roofline.parts(cost, chip, cost.bytes_fused, efficiency)
    used = dict.fromkeys(n for part in parts for n in (*part.numbers, *([part.share] if part.share else [])))
    return [{"key": n.key, "text": n.text, "value": n.value, "unit": n.unit, "tag": n.tag, "source": n.source,
             "date": n.date} for n in used]  # fmt: skip
