"""Measured beside modelled, scope by scope: the datasheet's floor, floor and prediction at measured rates,
what the chip's compiler predicts; and what share of the gap each mechanism has. Nothing is fitted.
"""

from __future__ import annotations

import difflib
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from costtrace import roofline, shape
from costtrace.chip import Chip
from costtrace.core import Cost
from costtrace.errors import UsageError
from costtrace.evidence.compiled import Part
from costtrace.evidence.recording import Recording, Timed
from costtrace.evidence.xplane import REST
from costtrace.measure.job import Job

MECHANISMS = ("hardware", "small shapes", "fusion", "launch", "dispatch", "host", "unexplained")
"""hardware: rates below the datasheet's; small shapes: products at the rate of their own shape; fusion: arrays that go
to memory and back; launch: of kernels and of a loop's trips; dispatch: of the whole program; host: the device idle."""
OWN = "/."


@dataclass(frozen=True, slots=True)
class Subject:
    """A stage that was measured; `compiled`: what the chip's compiler made of each scope."""

    job: Job
    compiled: Mapping[str, Part] | None = None

    def cost(self, scope: str) -> Cost | None:
        """Of one call; of "x/." what x does outside its children. None for a scope that is no row."""
        profile = self.job.profile
        if not scope.endswith(OWN):
            return profile.by_scope.get(scope)
        rows = profile.rows(depth=scope.count("/") + 1, merge=False)
        return next((row.cost for row in rows if row.key == scope), None)


@dataclass(frozen=True, slots=True)
class On:
    """The chip's numbers. `datasheet`: peaks; `rates`: measured rates, the numbers of a machine without a datasheet, or
    measured `shares` of peaks; None where there is none. `calibrated`: rates by shape are among them."""

    datasheet: Chip | None
    rates: Chip | None
    shares: bool
    calibrated: bool

    @classmethod
    def of(cls, chip: Chip, datasheet: Chip | None = None) -> On:
        """A calibrated machine without a datasheet has measured numbers only; any other chip's numbers are peaks, and
        its measured shares of them, if any, give the rates."""
        shares, calibrated = any(key.startswith("efficiency.") for key in chip.numbers), bool(chip.grids)
        own = chip if shares or not calibrated else None
        return cls(datasheet or own, chip if shares or calibrated else None, shares, calibrated)

    def floor_s(self, cost: Cost | None) -> float | None:
        return None if cost is None or self.datasheet is None else roofline.floor_s(cost, self.datasheet)

    def at_rates(self, cost: Cost | None, nbytes: int | None) -> roofline.Times | None:
        if cost is None or self.rates is None or nbytes is None or (nbytes and self.rates.hbm_bytes_per_s is None):
            return None
        return roofline.times(cost, self.rates, nbytes, efficiency=self.shares)

    def missing(self, cost: Cost) -> Iterator[str]:
        """A line for each rate that a chip lacks for this work: its seconds leave that out."""
        for chip in (self.datasheet, self.rates):
            if chip is not None:
                yield from (f"{line}: floors leave that work out"
                            for line in roofline.times(cost, chip, cost.bytes_fused).missing)  # fmt: skip

    @property
    def bytes_per_s(self) -> float | None:
        """Of memory, as measured."""
        found = None if self.rates is None else self.rates.hbm_bytes_per_s
        if self.rates is None or found is None:
            return None
        share = self.rates.efficiency("hbm") if self.shares and found.tag != "M" else None
        return found.value * (share.value if share else 1.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One scope ("" is the stage). `ratio`: measured over the floor of the datasheet, where there is none over that at
    measured rates; `gap`: {mechanism: share of what is measured beyond that floor}, None where it is not known."""

    stage: str
    scope: str
    measured_s: float
    runs_s: tuple[float, ...]
    floor_s: float | None
    floor_measured_rates_s: float | None
    shape_aware_s: float | None
    compiled_s: float | None
    gap: Mapping[str, float | None]
    below: str = ""
    """What it is measured below, and what may be the reason; '' where it is not."""
    what: str = ""

    @property
    def base_s(self) -> float | None:
        return self.floor_measured_rates_s if self.floor_s is None else self.floor_s

    @property
    def ratio(self) -> float | None:
        return self.measured_s / self.base_s if self.base_s else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "stage": self.stage, "scope": self.scope or ".", "measured_s": self.measured_s, "runs_s": list(self.runs_s),
            "floor_s": self.floor_s, "floor_measured_rates_s": self.floor_measured_rates_s,
            "shape_aware_s": self.shape_aware_s, "compiled_s": self.compiled_s, "ratio": self.ratio,
            "gap": dict(self.gap), "below": self.below, "what": self.what,
        }  # fmt: skip


@dataclass(slots=True)
class Comparison:
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def error(self, key: str) -> float | None:
        """The mean of |found - measured| / measured over whole stages."""
        pairs = [(getattr(row, key), row.measured_s) for row in self.rows if not row.scope]
        some = [abs(found - measured) / measured for found, measured in pairs if found is not None]
        return sum(some) / len(some) if some else None

    def document(self, head: dict[str, Any]) -> dict[str, Any]:
        return {**head, "rows": [row.to_dict() for row in self.rows], "notes": self.notes,
                "mean_error_floor": self.error("floor_s"),
                "mean_error_floor_measured_rates": self.error("floor_measured_rates_s"),
                "mean_error_shape_aware": self.error("shape_aware_s"),
                "mean_error_compiled": self.error("compiled_s")}  # fmt: skip


def checked(recording: Recording, model: str, shown: Mapping[str, Any], given: Mapping[str, Any] | None) -> None:
    """Raises UsageError where a recording is of another model or configuration. shown: this model's options and what
    follows from them; given: the same of the recording."""
    if recording.model is not None and recording.model != model:
        raise UsageError(f"{recording.place} was measured of {recording.model}, not of {model}: compare it with that")
    if given is None:
        return
    ours, theirs = _plain(shown), _plain(given)
    differing = sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))
    if differing:
        said = ", ".join(f"{key} {_written(theirs.get(key, 'by default'))}" for key in differing)
        here = ", ".join(f"{key} {_written(ours.get(key, 'by default'))}" for key in differing)
        raise UsageError(f"{recording.place} was measured with {said}, this is {here}: give the same options")


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(dict(config)))
    return found


def _written(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def compared(subjects: Sequence[Subject], recordings: Sequence[Recording], on: On, some: bool = False) -> Comparison:
    """Every timed scope as a row, stages in their order. Several recordings are runs of the same: the median stands.
    some: stages of a recording that are none of the subjects are left out.

    Raises UsageError for a stage or a scope that the model does not have.
    """
    by_name = {subject.job.name: subject for subject in subjects}
    each: dict[tuple[str, str], list[Timed]] = {}
    for recording in recordings:
        for timed in recording.rows:
            stage = timed.stage or _only(by_name, recording)
            if some and stage not in by_name:
                continue
            _there(by_name, stage, timed.scope, recording)
            each.setdefault((stage, timed.scope), []).append(timed)
    out = Comparison(notes=list(dict.fromkeys(note for recording in recordings for note in recording.notes)))
    chip = on.rates or on.datasheet
    for recording in recordings:
        if chip is not None and recording.platform not in (None, chip.kind):
            out.notes.append(
                f"{recording.place} was measured on a {recording.platform}, {chip.name} is a {chip.kind}: the gap is "
                "between two machines. Calibrate first, on the one that was measured: costtrace calibrate --out "
                "my-chip.toml, then compare with --chip my-chip.toml"
            )
    aware: dict[str, shape.ShapeAware] = {}
    for subject in subjects:
        if on.calibrated and on.rates is not None and any(stage == subject.job.name for stage, _ in each):
            aware[subject.job.name] = shape.shape_aware(subject.job.trace, on.rates)
            out.notes += [note for note in aware[subject.job.name].notes if note not in out.notes]
        for (stage, scope), timings in each.items():
            if stage == subject.job.name:
                if (cost := subject.cost(scope)) is not None:
                    out.notes += [note for note in dict.fromkeys(on.missing(cost)) if note not in out.notes]
                out.rows.append(_row(subject, scope, timings, on, aware.get(stage)))
    return out


def _only(by_name: Mapping[str, Subject], recording: Recording) -> str:
    if len(by_name) > 1:
        raise UsageError(f"{recording.place}: a row names no stage: add it, one of {', '.join(by_name)}")
    return next(iter(by_name))


def _there(by_name: Mapping[str, Subject], stage: str, scope: str, recording: Recording) -> None:
    if stage not in by_name:
        raise UsageError(f"{recording.place}: no stage {stage!r} in this model: it has {', '.join(by_name)}")
    scopes = by_name[stage].job.profile.by_scope
    if scope not in scopes and scope.removesuffix(OWN) not in scopes and scope not in (REST, "."):
        near = difflib.get_close_matches(scope, scopes, 1)
        fix = f"did you mean {near[0]}?" if near else f"it has {', '.join(list(scopes)[1:6])} ..."
        raise UsageError(f"{recording.place}: no scope {scope!r} in {stage}: {fix}")


def _row(subject: Subject, scope: str, some: Sequence[Timed], on: On, aware: shape.ShapeAware | None) -> Row:
    measured_s, runs = statistics.median(t.seconds for t in some), max(t.runs for t in some)
    cost = subject.cost(scope)
    floor_s, rated = on.floor_s(cost), on.at_rates(cost, None if cost is None else cost.bytes_fused)
    each_s = on.rates.value("overhead.dispatch") if on.calibrated and on.rates else None
    dispatches = None if each_s is None else runs * each_s
    split = None if aware is None or cost is None else _Split.of(aware, scope)
    shape_aware_s = None if split is None else split.seconds + (dispatches or 0.0)
    part = _part(subject, scope)
    told = [t.dispatch_s for t in some if t.dispatch_s is not None]
    host = [t.host_s for t in some if t.host_s is not None]
    gap = dict.fromkeys(MECHANISMS[:-1], None) | _mechanisms(cost, on, floor_s, rated, split, part)
    gap["dispatch"] = statistics.median(told) if told else dispatches
    gap["host"] = statistics.median(host) if host else None
    rated_s = None if rated is None else rated.seconds
    base_s = rated_s if floor_s is None else floor_s
    return Row(
        subject.job.name, scope, measured_s, tuple(t.seconds for t in some), floor_s, rated_s, shape_aware_s,
        None if part is None else part.time_s, _shares(gap, measured_s, base_s),
        _below(subject, scope, measured_s, base_s), some[0].what,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Split:
    """What the prediction by shape says of a scope: products and convolutions, other work, launches and trips."""

    products_s: float
    others_s: float
    launch_s: float

    @property
    def seconds(self) -> float:
        return self.products_s + self.others_s + self.launch_s

    @classmethod
    def of(cls, aware: shape.ShapeAware, scope: str) -> _Split:
        own, scope = scope.endswith(OWN), scope.removesuffix(OWN)
        kernels = [k for k in aware.kernels if k.launch.scope == scope or (not own and _within(k.launch.scope, scope))]
        products = [k for k in kernels if shape.OF_KIND.get(k.launch.kind, k.launch.kind) in ("product", "convolution")]
        work_s = sum(k.work_s for k in kernels)
        launch_s = sum(k.launch_s for k in kernels)
        if not own:  # a loop's trips are in its scope's sum, no kernel has them; a dispatch is no launch
            launch_s = aware.by_scope.get(scope, 0.0) - work_s - (aware.by_mechanism["dispatch"] if not scope else 0.0)
        products_s = sum(k.work_s for k in products)
        return cls(products_s, work_s - products_s, launch_s)


def _within(path: str, scope: str) -> bool:
    return not scope or path.startswith(f"{scope}/")


def _part(subject: Subject, scope: str) -> Part | None:
    """What the compiler made of a scope and all in it."""
    if subject.compiled is None or scope == REST:
        return None
    own, scope = scope.endswith(OWN), scope.removesuffix(OWN)
    some = [part for path, part in subject.compiled.items() if path == scope or (not own and _within(path, scope))]
    return sum(some, Part()) if some else None


def _mechanisms(
    cost: Cost | None, on: On, floor_s: float | None, rated: roofline.Times | None, split: _Split | None,
    part: Part | None,
) -> dict[str, float | None]:  # fmt: skip
    """Seconds of each mechanism that the counts and rates tell."""
    out: dict[str, float | None] = {}
    if rated is None or cost is None:
        return out
    out["hardware"] = None if floor_s is None else rated.seconds - floor_s
    compute_s = rated.terms.get("compute", 0.0)
    if split is not None:
        out["small shapes"], out["launch"] = split.products_s - compute_s, split.launch_s
        out["fusion"] = split.others_s - (rated.seconds - compute_s)
    if part is not None and on.bytes_per_s and cost.bytes_fused is not None:
        out["fusion"] = max(0, part.hbm_bytes - cost.bytes_fused) / on.bytes_per_s
    elif split is None and (scoped := on.at_rates(cost, cost.bytes_scoped)) is not None:
        out["fusion"] = scoped.seconds - rated.seconds
    return out


def _shares(gap: Mapping[str, float | None], measured_s: float, base_s: float | None) -> dict[str, float | None]:
    """Seconds as shares of the gap; the rest of it is unexplained. Where there is no gap no share is defined."""
    whole = None if base_s is None else measured_s - base_s
    if whole is None or whole <= 0:
        return dict.fromkeys(MECHANISMS)
    shares = {name: None if seconds is None else seconds / whole for name, seconds in gap.items()}
    return {**shares, "unexplained": 1 - sum(share for share in shares.values() if share is not None)}


def _below(subject: Subject, scope: str, measured_s: float, base_s: float | None) -> str:
    """What may be the reason where a measurement is below its floor: said before anybody calls it an error."""
    if base_s is None or measured_s >= base_s:
        return ""
    return "; ".join(_candidates(subject, scope))


def _candidates(subject: Subject, scope: str) -> Iterator[str]:
    profile = subject.job.profile
    if profile.useful_flops < profile.total.flops:
        hidden = 100 * (1 - profile.useful_flops / profile.total.flops)
        yield f"masks: {hidden:.0f} % of the stage's FLOPs are behind static masks and may be skipped"
    branches = [note for note in profile.notes if note.kind == "branch"]
    if branches:
        yield f"branches: the dearest arm is counted ({branches[0].scope or 'outside every scope'})"
    if any(op.repeat > 1 for op in subject.job.trace.ops):
        yield "hoisting: what no trip of a loop changes may run once, outside it"
    yield "common subexpressions: what is computed twice may run once"
    yield "caches: what stays in them from call to call is not read from memory again"
