"""Many configurations, chips and numbers of chips of one model -> a row each: in parallel, remembered, never lost.

A job is one configuration: traced once, priced on every chip. Its rows are on disk as soon as they are known, under a
key of costtrace's and the model's own files and what those import, so a sweep that was stopped goes on where it was.
joblib runs the jobs.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costtrace import authored, capacity, model, roofline
from costtrace import chip as chips
from costtrace.chip import Chip
from costtrace.core import Cost
from costtrace.errors import CosttraceError, UsageError
from costtrace.target import compiler, setup
from costtrace.target.cache import Answers, folder, key

Row = dict[str, Any]

HOUR = 3600
INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")
"""sysconfig's names of the folders that installed packages lie in."""


@dataclass(frozen=True, slots=True)
class Job:
    """One configuration of a model, with everything that it is to be priced on."""

    name: str
    options: tuple[tuple[str, str], ...]
    chips: tuple[str, ...]
    counts: tuple[int, ...]
    strategies: tuple[str, ...]
    price: float | None
    compiled: bool = False


def jobs(
    name: str, given: Mapping[str, Sequence[str]], on: Sequence[str], counts: Sequence[int],
    strategies: Sequence[str] = (), price: float | None = None, compiled: bool = False,
) -> list[Job]:  # fmt: skip
    """A job for every combination of the options' values, in their order. price: USD per hour and chip, instead of the
    chip files'. compiled: one chip's programs go to its compiler too. Raises UsageError for a model, chip, strategy or
    compiler that is not there, before anything runs."""
    from costtrace import sharding

    known = model.find(name).options()
    if unknown := [option for option in given if option not in known]:
        raise UsageError(f"{name} has no option {unknown[0]!r}: it takes {', '.join(known)}")
    for each in on:
        on_chip = chips.load(each)
        if compiled:
            compiler.platform(on_chip)
            setup.python(on_chip.kind)
    for each, n in itertools.product(strategies, counts):
        sharding.axes_of(each, n)
    each_option = [[(option, value) for value in values] for option, values in given.items()]
    rest = (tuple(on), tuple(counts), tuple(strategies), price, compiled)
    return [Job(name, some, *rest) for some in itertools.product(*each_option)]


def sweep(
    some: Sequence[Job],
    workers: int = 1,
    backend: str = "loky",
    told: Callable[[int, int], None] | None = None,
    remembers: Callable[[int], None] | None = None,
) -> list[Row]:
    """The rows of all jobs, in the jobs' order; a job that fails is a row with `error`. `told` hears how many are done,
    `remembers`, at the end, how many an earlier sweep knew.

    Raises UsageError where joblib (or dask's distributed) is missing.
    """
    try:
        import joblib  # it takes 0.2 s
    except ImportError:
        raise UsageError("a sweep needs joblib: pip install joblib") from None
    if not workers:
        raise UsageError("--jobs 0: write how many processes, or -1 for one a core")
    if backend == "dask":
        _cluster()
    found: dict[int, list[Row]] = {}
    known = 0
    with joblib.parallel_config(backend=backend, n_jobs=workers):
        run = joblib.Parallel(return_as="generator_unordered")
        for index, rows, was_known in run(joblib.delayed(numbered)(k, job) for k, job in enumerate(some)):
            found[index] = rows
            known += was_known
            if told is not None:
                told(len(found), len(some))
    if remembers is not None:
        remembers(known)
    return [row for k in range(len(some)) for row in found[k]]


def _cluster() -> None:
    """A client of $DASK_SCHEDULER_ADDRESS, or of a cluster on this machine, which joblib then finds."""
    try:
        from distributed import Client
    except ImportError:
        raise UsageError("--backend dask needs dask's distributed: pip install distributed") from None
    Client(set_as_default=True)


def numbered(index: int, job: Job) -> tuple[int, list[Row], bool]:
    """(index, the job's rows, whether an earlier sweep knew them)"""
    with authored.prints_apart():  # also in a process of joblib's, whose stdout is the command's
        known = recalled(job)
        return index, remembered(job) if known is None else known, known is not None


def answers() -> Answers:
    """Where the rows are remembered."""
    return Answers(place=folder() / "sweep")


def remembered(job: Job) -> list[Row]:
    """The job's rows, from disk where they are known. Failures are not remembered."""
    known = recalled(job)
    if known is not None:
        return known
    rows = list(_rows(job))
    if not any(row["error"] for row in rows):
        answers().put(_key(job), {"rows": rows, "imported": _imported()})
    return rows


def recalled(job: Job) -> list[Row] | None:
    """The job's rows as an earlier sweep left them on disk, None where there are none or a file has changed."""
    known = answers().get(_key(job))
    if known is None or any(_digest(Path(path)) != was for path, was in known["imported"].items()):
        return None
    return list(known["rows"])


def _key(job: Job) -> str:
    on = [chips.load(name) for name in job.chips]
    versions = [setup.versions(chip.kind) for chip in on] if job.compiled else []
    return key(
        "sweep", _sources(), _packages(), _file(job.name), *(repr(chip.numbers) for chip in on), versions, repr(job)
    )


def _imported() -> dict[str, str]:
    """{file: digest} of the modules that are loaded and neither costtrace's own nor an installed package's: what a
    model's file imports, when it is read and while it is traced. They are held against the disk when a row is asked
    for again; installed packages are told by their versions."""
    apart = [str(Path(__file__).parent), str(model.folder()), *(sysconfig.get_path(p) for p in INSTALLED)]
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    return {path: _digest(Path(path)) for path in sorted(files)
            if path.endswith(".py") and not path.startswith(tuple(f"{p}{os.sep}" for p in apart))}  # fmt: skip


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _packages() -> list[str]:
    """Every installed package with its version, as their folders are named."""
    places = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    return sorted(each.name for place in places for each in Path(place).glob("*.dist-info"))


@functools.cache
def _sources() -> str:
    """A digest of costtrace's own files and its models: another version asks anew."""
    digest = hashlib.sha256()
    for place in (Path(__file__).parent, model.folder()):
        for path in sorted(place.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _file(name: str) -> str:
    path = Path(name)
    return path.read_text(encoding="utf-8") if name.endswith(".py") and path.is_file() else ""


def _rows(job: Job) -> Iterator[Row]:
    on = [(chips.load(name), n) for name, n in itertools.product(job.chips, job.counts)]
    try:
        found = model.find(job.name)
        config = found.configure(**dict(job.options))
        traced = list(_traced(found, config))
        shown = found.shown(config)
        derived = {name: value for name, value in shown.items() if name not in found.options()}
    except CosttraceError as e:
        yield from (_row(job, chip, n, error=str(e)) for chip, n in on)
        return
    for chip, n in on:
        try:
            row = _alone(job, chip, found, traced) if n == 1 else _several(job, chip, n, traced)
            yield row | {"derived": derived}
        except CosttraceError as e:
            yield _row(job, chip, n, error=str(e))


def _traced(found: model.Model, config: Any) -> Iterator[tuple[Any, Any]]:
    """(stage as sharding takes it, its profile)."""
    from costtrace import sharding
    from costtrace.profiler import folded
    from costtrace.trace import trace

    for stage in found.stages(config):
        fn, args = model.bind(stage)
        made = trace(fn, *args, weights=0)
        yield sharding.Part(stage.name, stage.calls, made), folded(made)


def _row(job: Job, chip: Chip, n: int, error: str = "", **known: Any) -> Row:
    names = ("derived", "stages", "strategy", "flops", "bytes_fused", "peak_bytes", "fits", "floor_s", "pessimistic_s",
             "predicted_s", "compiled_peak_bytes", "usd", "status")  # fmt: skip
    return {"config": dict(job.options), "chip": chip.name, "chips": n, **dict.fromkeys(names), "missing": [], **known,
            "error": error}  # fmt: skip


def _missing(chip: Chip, totals: Iterable[Cost]) -> list[str]:
    """A line for each rate that the chip lacks: the row's seconds leave that work out."""
    return list(dict.fromkeys(line for cost in totals for line in roofline.times(cost, chip, 0).missing))


def _usd(job: Job, chip: Chip, n: int, seconds: float) -> float | None:
    """What the seconds cost; None where neither the chip file nor the user says a price."""
    price = job.price if job.price is not None else chip.value("price.on_demand")
    return None if price is None else price * n * seconds / HOUR


def _alone(job: Job, chip: Chip, found: model.Model, traced: Sequence[tuple[Any, Any]]) -> Row:
    roofline.timed(chip)
    floor = pessimistic = 0.0
    for part, profile in traced:
        cost = profile.total
        nbytes = cost.bytes_scoped if _named(profile) else cost.bytes_unfused
        floor += part.calls * roofline.times(cost, chip, cost.bytes_fused).seconds
        pessimistic += part.calls * roofline.times(cost, chip, nbytes).seconds
    total = sum((part.calls * profile.total for part, profile in traced), Cost())
    peak = max((profile.peak.nbytes for _, profile in traced), default=0)
    predicted, compiled_peak, error = _compiled(job, chip, found, traced) if job.compiled else (None, None, "")
    fit = capacity.hbm(peak, chip)
    from costtrace.summary import worst

    return _row(
        job, chip, 1, error, stages={part.name: part.calls * profile.total.flops for part, profile in traced},
        strategy="one chip", flops=total.flops, bytes_fused=total.bytes_fused, peak_bytes=peak,
        fits=fit is None or fit.fits, floor_s=floor, pessimistic_s=pessimistic, predicted_s=predicted,
        compiled_peak_bytes=compiled_peak, usd=_usd(job, chip, 1, floor if predicted is None else predicted),
        status=worst(profile.status for _, profile in traced), missing=_missing(chip, [total]),
    )  # fmt: skip


def _named(profile: Any) -> bool:
    return all(note.kind != "no-scopes" for note in profile.notes)


def _compiled(
    job: Job, chip: Chip, found: model.Model, traced: Sequence[tuple[Any, Any]]
) -> tuple[float | None, int | None, str]:
    """(seconds of all calls as the chip's compiler has them, its largest peak, why there is none)."""
    from costtrace.evidence.compiled import compiled
    from costtrace.target.program import lowered

    answers, seconds, peaks = Answers(), 0.0, []
    try:
        stages = found.stages(found.configure(**dict(job.options)))
        label = " ".join([found.name, *(value for _, value in job.options)])
        questions = [compiler.Question(lowered(*model.bind(stage), compiler.platform(chip)), chip, None, {},
                                       f"{label} {stage.name} for {chip.name}") for stage in stages]  # fmt: skip
        for one, (part, profile) in zip(compiler.ask(questions, answers, at_once=1), traced, strict=True):
            seconds += part.calls * compiled(one, profile, answers).total.time_s
            peaks += [] if one.peak_bytes is None else [one.peak_bytes]
    except CosttraceError as e:
        return None, None, str(e)
    return seconds, max(peaks, default=None), ""


def _several(job: Job, chip: Chip, n: int, traced: Sequence[tuple[Any, Any]]) -> Row:
    """The best of the strategies: figures of one chip, seconds of all; `pessimistic_s` has no link overlapped."""
    from costtrace import sharding
    from costtrace.summary import worst

    parts = [part for part, _ in traced]
    if job.strategies:
        best, *_ = sharding.ranked(sharding.placed(name, parts, chip, n) for name in job.strategies)
    else:
        best, *_ = sharding.everything(parts, chip, n)
    floor = best.floor_s()
    return _row(
        job, chip, n, error=best.problems[-1] if best.blocked and best.problems else "",
        stages={s.name: s.calls * s.total.flops for s in best.stages}, strategy=best.name,
        flops=best.cost.flops, bytes_fused=best.cost.bytes_fused, peak_bytes=best.peak_bytes, fits=best.fits,
        floor_s=floor, pessimistic_s=best.pessimistic_s({part.name for part, made in traced if _named(made)}),
        usd=_usd(job, chip, n, floor), status=worst(profile.status for _, profile in traced),
        missing=_missing(chip, [best.cost]),
    )  # fmt: skip
