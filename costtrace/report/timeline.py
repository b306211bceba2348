"""The modelled timeline -> Chrome's trace event JSON, for ui.perfetto.dev and chrome://tracing.

One process a stage (one call of it), with a track for the scopes and a track for each unit of the chip. All names say
"modelled": nothing here was measured. Format: Trace Event Format, complete events ("X") in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from costtrace.chip import Chip
from costtrace.report.document import Stages
from costtrace.timeline import Slice, timeline
from costtrace.units import PREFIXES
from costtrace.version import __version__

UNITS = {
    "compute": "matrix",
    "vector": "vector",
    "transcendental": "transcendental",
    "integer": "integer",
    "memory": "HBM",
    "link": "links",
    "host": "host link",
}
"""Term of a roofline -> the track of its unit."""
NANOSECOND = 10.0 ** PREFIXES["n"]
Event = dict[str, Any]


def trace_events(name: str, stages: Stages, chip: Chip) -> str:
    """The whole file. Stages follow each other in time; each is one call, whatever its number of calls."""
    events: list[Event] = []
    at = 0.0
    for pid, (stage, calls, profile) in enumerate(stages, 1):
        slices = timeline(profile, chip)
        more = f", one of {calls} calls" if calls > 1 else ""
        events += _tracks(pid, f"{stage} (modelled for {chip.name}{more})")
        for each in slices:
            events += _events(pid, each, at)
        at += max((each.end_s for each in slices), default=0.0)
    about = {"program": name, "chip": chip.title, "modelled": "scopes one after the other, each as one kernel, units "
             "at peak side by side: no measurement", "costtrace": __version__}  # fmt: skip
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about})


def _tracks(pid: int, name: str) -> Iterator[Event]:
    yield _named("process_name", pid, _tid(pid, 0), {"name": name})
    yield _named("process_sort_index", pid, _tid(pid, 0), {"sort_index": pid})
    for k, track in enumerate(("scopes", *UNITS.values())):
        yield _named("thread_name", pid, _tid(pid, k), {"name": f"{track} (modelled)"})
        yield _named("thread_sort_index", pid, _tid(pid, k), {"sort_index": k})


def _tid(pid: int, k: int) -> int:
    """The number of the k-th track: no other's, not pid and not 0, which Perfetto takes for the thread numbered pid."""
    return pid * (len(UNITS) + 1) + k


def _named(what: str, pid: int, tid: int, args: Event) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _events(pid: int, one: Slice, at: float) -> Iterator[Event]:
    name = one.path[-1] if one.path[-1] != "." else "(own)"
    start = _ns(at + one.start_s)
    args: Event = {"scope": "/".join(one.path), "runs": one.of}
    if one.leaf is not None:
        cost = one.leaf.cost
        args |= {
            "bound": one.leaf.times.bound,
            "flops": cost.flops / one.of,
            "bytes_scoped": cost.bytes_scoped / one.of,
        }
    yield _slice(name, pid, _tid(pid, 0), start, _ns(at + one.end_s), args)
    for k, term in enumerate(UNITS, 1):
        if seconds := one.terms.get(term):
            yield _slice(name, pid, _tid(pid, k), start, _ns(at + one.start_s + seconds), args)


def _ns(seconds: float) -> int:
    """Whole nanoseconds, so that rounding moves no slice out of the one it lies in."""
    return round(seconds / NANOSECOND)


def _slice(name: str, pid: int, tid: int, start: int, end: int, args: Event) -> Event:
    return {"ph": "X", "name": name, "cat": "modelled", "pid": pid, "tid": tid, "ts": start / 1000,
            "dur": (end - start) / 1000, "args": args}  # fmt: skip
