"""A program's figures by stage and scope, to be compared: from its profiles, or from what was saved of them.

Owns QUANTITIES, the names under which figures are compared, budgeted and asserted. Knows no report.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from costtrace import chip as chips
from costtrace import roofline
from costtrace.chip import Chip
from costtrace.core import EXACT, Cost
from costtrace.errors import FormatError, UsageError
from costtrace.summary import SCHEMA as PROFILE
from costtrace.summary import Profile, worst
from costtrace.version import DOCUMENT

WHOLE = ""
"""The scope that is a whole stage; the stage that is all stages, each as often as it is called."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure's unit, its words, and its value for a cost on a chip."""

    unit: str
    words: str
    of: Callable[[Cost, Chip, bool], float | None]


def _count(name: str) -> Callable[[Cost, Chip, bool], float | None]:
    return lambda cost, chip, named: getattr(cost, name)


QUANTITIES: dict[str, Quantity] = {
    "flops": Quantity("FLOP", "FLOPs", _count("flops")),
    "matmul_flops": Quantity("FLOP", "FLOPs of matrix products", _count("matmul_flops")),
    "conv_flops": Quantity("FLOP", "FLOPs of convolutions", _count("conv_flops")),
    "vector_flops": Quantity("FLOP", "FLOPs of elementwise work", _count("vector_flops")),
    "transcendentals": Quantity("OP", "exp, log, sin ...", _count("transcendentals")),
    "weight_bytes": Quantity("B", "parameters read", _count("weight_bytes")),
    "bytes_fused": Quantity("B", "bytes as one kernel", _count("bytes_fused")),
    "bytes_scoped": Quantity("B", "bytes, a kernel a scope", _count("bytes_scoped")),
    "bytes_unfused": Quantity("B", "bytes, a kernel a primitive", _count("bytes_unfused")),
    "collective_bytes": Quantity("B", "bytes between chips", _count("collective_bytes")),
    "host_bytes": Quantity("B", "bytes to and from the host's memory", _count("host_bytes")),
    "peak_bytes": Quantity("B", "most bytes alive at once", lambda cost, chip, named: None),
    "floor_s": Quantity("s", "seconds at the floor", lambda cost, chip, named: roofline.floor_s(cost, chip)),
    "pessimistic_s": Quantity(
        "s",
        "seconds, pessimistic: the longest unit, with scoped bytes",
        lambda cost, chip, named: roofline.pessimistic_s(cost, chip, scoped=named),
    ),
}
"""Every quantity by its name in JSON, in budgets and in assert_cost. peak_bytes is a stage's, not a scope's."""


@dataclass(slots=True)
class Stage:
    """One stage: figures of one call. `rows` cut it into parts; `scopes` has every part that can be asked for."""

    calls: int
    peak_bytes: int
    total: Cost
    rows: dict[str, Cost]
    scopes: dict[str, Cost] = field(default_factory=dict)
    status: str = EXACT
    named: bool = True
    """False where the program names no scope: pessimistic seconds then use unfused bytes."""


@dataclass(slots=True)
class Figures:
    """A program on a chip, by stage."""

    title: str
    chip: Chip
    stages: dict[str, Stage]
    saved: bool = False
    """Read from a document: it has its table's rows, and no scope that lies deeper."""

    @property
    def status(self) -> str:
        return worst(stage.status for stage in self.stages.values())

    def lacking(self, stage: str = WHOLE, scope: str = WHOLE) -> tuple[str, ...]:
        """A line for each rate that the chip lacks for work of that part: its seconds leave that work out."""
        if stage == WHOLE and scope == WHOLE:
            some = [each.total for each in self.stages.values()]
        else:
            found = self.stage(stage, scope)
            some = [found.scopes[scope] if scope else found.total]
        lines = (line for cost in some for line in roofline.times(cost, self.chip, cost.bytes_fused).missing)
        return tuple(dict.fromkeys(lines))

    def of(self, quantity: str, stage: str = WHOLE, scope: str = WHOLE) -> float | None:
        """One call's figure of a scope or a stage; of all stages and calls where both are WHOLE (peak: the largest).

        None where it is not known. Raises UsageError for a quantity, stage or scope that is not there.
        """
        wanted = quantity_of(quantity)
        if stage == WHOLE and scope == WHOLE:
            some = [(each.calls, self.of(quantity, name)) for name, each in self.stages.items()]
            if any(value is None for _, value in some):
                return None
            if quantity == "peak_bytes":
                return max(value or 0 for _, value in some)
            return sum(calls * (value or 0) for calls, value in some)
        found = self.stage(stage, scope)
        if quantity == "peak_bytes":
            if scope:
                raise UsageError(f"peak_bytes of scope {scope}: a peak is a whole stage's: leave the scope out")
            return found.peak_bytes
        return wanted.of(found.scopes[scope] if scope else found.total, self.chip, found.named)

    def stage(self, name: str, scope: str = WHOLE) -> Stage:
        """The stage of that name, or the only one that has the scope. Raises UsageError."""
        if name and name not in self.stages:
            raise UsageError(f"{self.title} has no stage {name!r}: it has {', '.join(self.stages)}")
        some = {k: s for k, s in self.stages.items() if name in (WHOLE, k) and (not scope or scope in s.scopes)}
        if not some:
            near = _near(scope, (each for s in self.stages.values() for each in s.scopes))
            inside = any(scope.startswith(f"{each}/") for s in self.stages.values() for each in s.scopes)
            fix = (
                ": its rows go no deeper: save it with --depth 9, or by Profile.to_json"
                if self.saved and inside
                else ""
            )
            raise UsageError(f"{self.title}{name and ', stage ' + name} has no scope {scope!r}: it has {near}{fix}")
        if len(some) > 1:
            raise UsageError(f"scope {scope!r} is in stages {', '.join(some)}: name one of them")
        return next(iter(some.values()))


def _near(name: str, known: Any) -> str:
    import difflib

    all_of = list(dict.fromkeys(known))
    return ", ".join(difflib.get_close_matches(name, all_of, 3) or all_of[:8]) or "no scopes"


def quantity_of(name: str) -> Quantity:
    """Raises UsageError where there is none of that name."""
    if name not in QUANTITIES:
        raise UsageError(f"no quantity {name!r}: there are {', '.join(QUANTITIES)}")
    return QUANTITIES[name]


def of_profiles(
    title: str, chip: Chip, stages: Sequence[tuple[str, int, Profile]], depths: Mapping[str, int | None] | None = None
) -> Figures:
    """The figures of profiles; rows at `depths` by stage (one row a top-level scope where it names none)."""
    out = {}
    for name, calls, profile in stages:
        depth = (depths or {}).get(name) or 1
        rows = {row.key: row.cost for row in profile.rows(depth=depth, merge=False)}
        named = all(note.kind != "no-scopes" for note in profile.notes)
        out[name] = Stage(
            calls, profile.peak.nbytes, profile.total, rows, profile.scopes(), profile.status, named
        )  # fmt: skip
    return Figures(title, chip, out)


def read(path: Path, chip: str | None = None) -> Figures:
    """The figures of a saved file: what `--format json` printed, or a Profile's to_json, which needs a chip.

    Raises UsageError for a file that is not there, FormatError for another file or another schema.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}: give a saved JSON file, or a model") from None
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{path} is not JSON ({e}): save it with --format json") from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema == PROFILE:
        try:
            profile = Profile.from_json(text)
        except FormatError as e:
            raise FormatError(f"{path}: {e}") from None
        return of_profiles(path.name, chips.load(chip or "v6e"), [(profile.name or path.stem, 1, profile)])
    if schema != DOCUMENT or "stages" not in data:
        more = (
            "it has several runs: save them apart"
            if isinstance(data, dict) and "runs" in data
            else f"schema {schema!r}"
        )
        raise FormatError(f"{path} is no document of a model or a profile ({more}): save it with --format json")
    return of_document(data, path.name, chip)


class _Row(msgspec.Struct):
    scope: str
    cost: dict[str, int | dict[str, int] | None]

    def known(self) -> Cost:
        """What has no price is null, and its stage's status says so."""
        return msgspec.convert({key: n for key, n in self.cost.items() if n is not None}, Cost)


class _Part(msgspec.Struct):
    name: str
    calls: Annotated[int, msgspec.Meta(ge=0)]
    peak_bytes: int
    total: Cost
    rows: list[_Row]
    status: Literal["exact", "modelled", "unknown"]


class _Note(msgspec.Struct):
    kind: str
    stage: str


class _Document(msgspec.Struct):
    """What is read of a document; report.document writes it, with more."""

    model: str
    chip: str
    config: dict[str, Any]
    stages: list[_Part]
    notes: list[_Note]


def of_document(data: Mapping[str, Any], title: str, chip: str | None = None) -> Figures:
    """The figures in a document of report.document, on its own chip or another. Raises FormatError."""
    if data.get("by") not in ("scope", "layer"):
        raise FormatError(f"{title} has rows by {data.get('by')}: save it with --by scope")
    try:
        found = msgspec.convert(data, _Document)
        rows = {part.name: {row.scope: row.known() for row in part.rows} for part in found.stages}
    except msgspec.ValidationError as e:
        raise FormatError(f"{title} is no whole document: {e}: save it again with --format json") from None
    if not all(rows) or len(rows) != len(found.stages) or not rows:
        raise FormatError(f"{title}: its stages need names, each another: save it again with --format json")
    stages = {}
    for part in found.stages:
        costs = rows[part.name]
        named = not any((note.stage, note.kind) == (part.name, "no-scopes") for note in found.notes)
        stages[part.name] = Stage(part.calls, part.peak_bytes, part.total, costs, costs, part.status, named)
    config = ",".join(f"{k}={_plain(v)}" for k, v in found.config.items())
    return Figures(
        f"{title} ({found.model}{config and ': ' + config})", chips.load(chip or found.chip), stages, saved=True
    )


def _plain(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)
