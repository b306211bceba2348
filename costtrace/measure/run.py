"""A whole model measured on the device at hand, stage after stage; refused where it does not fit. Makes the document
that `costtrace measure` prints and `costtrace compare` reads: base units, null where a figure could not be had.
"""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from costtrace import units
from costtrace.errors import UsageError
from costtrace.measure import stage as stages
from costtrace.measure.clock import Effort, Timing
from costtrace.measure.job import Job
from costtrace.measure.stage import Told

ROOM = 1.25
"""The memory asked for, over the peak that was traced: a compiler's own copies and padding."""
SMALLEST = 1 / 64
TRACED = 3
"""Runs of a stage in a profiler's trace."""


def room() -> int:
    """Bytes that the device has for a program; of a CPU what the machine has free."""
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit:
        return int(limit)
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        pass  # another system, or no limit
    return min(found)


def needed(jobs: Sequence[Job]) -> int:
    """Bytes of the largest stage: they are staged one after the other."""
    return round(ROOM * max(job.profile.peak.nbytes for job in jobs))


def refused(jobs: Sequence[Job], smaller: Callable[[], Iterator[tuple[str, Sequence[Job]]]], have: int) -> None:
    """Raises UsageError where the largest stage does not fit, with what does. smaller: (option, jobs), falling."""
    need = needed(jobs)
    if need <= have:
        return
    largest = max(jobs, key=lambda job: job.profile.peak.nbytes)
    fix = next(
        (f"{option} fits ({units.text(n, 'B')})" for option, some in smaller() if (n := needed(some)) <= have), ""
    )
    raise UsageError(f"{largest.name} needs {units.text(need, 'B')} (its traced peak x {ROOM}), this "
                     f"{jax.devices()[0].device_kind} has {units.text(have, 'B')} free: "
                     + (fix or "no size tried fits: give a smaller one"))  # fmt: skip


def device() -> dict[str, Any]:
    """Where it ran."""
    from importlib.metadata import version

    one = jax.devices()[0]
    return {"platform": one.platform, "kind": one.device_kind, "count": jax.device_count(), "jax": jax.__version__,
            "jaxlib": version("jaxlib"), "python": platform.python_version(), "cores": os.cpu_count()}  # fmt: skip


def measured(
    jobs: Sequence[Job], head: dict[str, Any], depth: int | None, effort: Effort, told: Told,
    folder: Path | None = None, noted: Told = lambda text: None,
) -> dict[str, Any]:  # fmt: skip
    """The document. folder: where a profiler's trace of each stage goes, with its HLO beside it. told: what is under
    way; noted: once a stage that will take minutes, how long and what to do about it."""
    made = []
    for number, job in enumerate(jobs, 1):
        said = _placed(told, f"stage {number} of {len(jobs)}, " if len(jobs) > 1 else "")
        said(f"{job.name}: compiling")
        program = stages.Program(job.name, job.fn, job.args, job.donated, job.weights)
        if folder is not None:
            _traced(program, folder / job.name)
        found = stages.measured(program, job.calls, job.scopes(depth), effort, said, noted)
        made.append(_stage(job, found))
        del program  # its arrays make room for the next stage's
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat()
    return {**head, "device": device(), "date": now, "stages": made}


def _placed(told: Told, place: str) -> Told:
    return lambda what: told(f"{place}{what}")


def _traced(program: stages.Program, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    program.run()
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with jax.profiler.trace(str(folder), profiler_options=options):
        for _ in range(TRACED):
            program.run()
    text = program.text
    (folder / f"{text.split(maxsplit=2)[1].rstrip(',')}.hlo").write_text(text, encoding="utf-8")


def _stage(job: Job, found: stages.Measured) -> dict[str, Any]:
    staged = found.weights
    return {
        "name": job.name, "calls": job.calls, "compile_s": found.compile_s,
        "weight_bytes": staged.nbytes, "staging_s": staged.seconds,
        "staging_bytes_per_s": staged.nbytes / staged.seconds if staged.nbytes else None,
        **_timing(found.timing), "finite": found.finite,
        "peak_bytes": found.memory.nbytes, "peak_by": found.memory.by,
        "loop": None if found.loop is None else _loop(found.loop),
        "parts": [
            {"scope": part.scope, "runs": part.times, "programs": len(part.timings), "compile_s": part.compile_s,
             "measured_s": part.measured_s, "spread": part.spread, "finite": part.finite,
             "samples_s": [list(timing.samples_s) for _, timing in part.timings]}
            for part in found.parts
        ],
        "left_out": list(found.left_out),
    }  # fmt: skip


def _timing(timing: Timing) -> dict[str, Any]:
    return {"measured_s": timing.median_s, "spread": timing.spread, "first_s": timing.first_s,
            "samples_s": list(timing.samples_s)}  # fmt: skip


def _loop(loop: stages.Loop) -> dict[str, Any]:
    each = {"scanned": loop.scanned, "separate": loop.separate, "waited": loop.waited}
    return {
        "steps": loop.steps,
        **{f"{name}_s": None if timing is None else timing.median_s for name, timing in each.items()},
        **{f"{name}_spread": None if timing is None else timing.spread for name, timing in each.items()},
        "dispatch_s": loop.dispatch_s, "why": loop.why,
    }  # fmt: skip
