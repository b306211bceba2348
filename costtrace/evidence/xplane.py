"""A trace of jax.profiler (xplane.pb) -> seconds by scope. An event names an HLO instruction, not a scope: it is joined
through the HLO that the trace holds, or that lies beside it. Spans nest (a loop holds its body), so a span's seconds
are its own, without those inside it.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costtrace import units
from costtrace.errors import FormatError, UsageError
from costtrace.evidence import dump
from costtrace.evidence.compiled import row_of
from costtrace.evidence.recording import Recording, Timed
from costtrace.measure.job import Job
from costtrace.target import opname
from costtrace.target.hlo import Module, parsed
from costtrace.target.kernel import kernels

SUFFIX = ".xplane.pb"
MOST = 4
"""Kinds of op that the rest is said to be."""
REST = "(rest)"
"""The one row of what no scope of the program has: the loops' own control, copies and casts of the compiler."""
SECOND = 1e-9
"""Of a nanosecond, the unit of a trace."""
NUMBER = re.compile(r"\(\d+\)$")
"""What a trace puts behind a module's name."""
_INSTRUCTION = re.compile(r"%([\w.-]+) = ")


@dataclass(slots=True)
class Spans:
    """The ops of one compiled program in a trace: seconds by HLO instruction over all `runs`, and `wall_s` from the
    first op of a run to its last, over all runs."""

    name: str
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    windows: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def module(self) -> str:
        return NUMBER.sub("", self.name)

    @property
    def op_s(self) -> float:
        return sum(self.seconds.values())

    @property
    def runs(self) -> int:
        """By the runs' ids; where a trace has none, as often as the rarest op."""
        return len(self.windows) if any(self.windows) else min(self.counts.values())

    @property
    def wall_s(self) -> float:
        return sum(end - start for start, end in self.windows.values())


@dataclass(frozen=True, slots=True)
class Joined:
    """Op seconds of one run by scope, each op in one; REST is what no scope has, `rest` says of it {what: seconds}.
    `wall_s`: of one run. `named`: the share of the op time that scopes have."""

    by_scope: dict[str, float]
    rest: dict[str, float]
    runs: int
    wall_s: float

    @property
    def op_s(self) -> float:
        return sum(self.by_scope.values())

    @property
    def named(self) -> float:
        return 1 - self.by_scope.get(REST, 0.0) / self.op_s


def spans(path: Path) -> dict[str, Spans]:
    """{"jit_f(6)", a module with its number: its ops} of a trace. Raises FormatError where it is none or has no op."""
    from jax.profiler import ProfileData

    try:
        data = ProfileData.from_file(str(path))  # what it gives out lives as long as it does
    except (RuntimeError, ValueError, OSError) as e:
        said = str(e).partition("\n")[0]
        raise FormatError(f"{path}: no profiler trace ({said}): give a *{SUFFIX} of jax.profiler.trace") from None
    out: dict[str, Spans] = {}
    with warnings.catch_warnings():  # jaxlib 0.12's own, for a type of its events; raised there it ends the process
        warnings.simplefilter("ignore", DeprecationWarning)
        for plane in data.planes:
            for line in plane.lines:
                _line(_events(line), out)
    if not out:
        raise FormatError(f"{path}: no op of a compiled program in it: trace calls of a jitted function, waited for")
    return out


def _events(line: Any) -> list[tuple[float, float, str, str, str]]:
    """(start, end, module, op, run) of a line's ops; longer ones first where two start at once."""
    out = []
    for event in line.events:
        if event.duration_ns <= 0:
            continue
        stats = dict(event.stats)
        op = stats.get("hlo_op")
        if op is None and line.name == "XLA Ops" and (written := _INSTRUCTION.match(event.name)):
            op = written[1]
        if op is None:
            continue
        module = str(stats.get("hlo_module", ""))
        number = stats.get("program_id")
        module = module if number is None or module.endswith(")") else f"{module}({number})"
        out.append((event.start_ns, event.start_ns + event.duration_ns, module, str(op), str(stats.get("run_id", ""))))
    return sorted(out, key=lambda e: (e[0], -e[1]))


def _line(events: list[tuple[float, float, str, str, str]], out: dict[str, Spans]) -> None:
    """Adds a line's ops to `out`, each without those inside it."""
    around: list[tuple[float, float, Spans, str]] = []
    for start, end, module, op, run in events:
        own = out.setdefault(module, Spans(module))
        while around and around[-1][1] <= start:
            around.pop()
        own.seconds[op] += (end - start) * SECOND
        own.counts[op] += 1
        if around:
            _, outer_end, outer, outer_op = around[-1]
            outer.seconds[outer_op] -= (min(end, outer_end) - start) * SECOND
        around.append((start, end, own, op))
        first, last = own.windows.get(run, (start * SECOND, end * SECOND))
        own.windows[run] = (min(first, start * SECOND), max(last, end * SECOND))


def modules(path: Path, wanted: Collection[str]) -> dict[str, Module]:
    """{"jit_f(6)": HLO module} of what a trace holds, and {name: module} of the *.hlo files in its folder or above,
    which `costtrace measure --trace` saves; of the `wanted` names. A module that cannot be read is left out."""
    out: dict[str, Module] = {}
    for folder in (path.parent, *list(path.parents)[1:4]):
        for file in sorted(folder.glob("*.hlo")):
            if file.stem in wanted:
                out.setdefault(file.stem, parsed(file.read_text(encoding="utf-8")))
    for name, data in _protos(path.read_bytes()):
        if NUMBER.sub("", name) in wanted:
            with contextlib.suppress(FormatError):
                out[name] = parsed(dump.text_of(data, path))
    return out


def joined(found: Spans, some: Mapping[str, Module], known: Collection[str]) -> Joined:
    """The ops of one program by scope. known: the profile's scopes. Raises FormatError where no HLO has its ops."""
    module = some.get(found.name) or some.get(found.module)
    if module is None:
        raise FormatError(f"the trace has no HLO of {found.module!r}, and none lies beside it: save it there as "
                          f"{found.module}.hlo, the text of compiled.as_text()")  # fmt: skip
    named = {kernel.name: kernel.op_name for kernel in kernels(module).all}
    for computation in module.computations.values():
        for instruction in computation:
            named.setdefault(instruction.name, instruction.op_name)
    opcodes = {i.name: i.opcode for computation in module.computations.values() for i in computation}
    by_scope: dict[str, float] = defaultdict(float)
    rest: dict[str, float] = defaultdict(float)
    for op, seconds in found.seconds.items():
        scope = opname.scope_of(named.get(op, ""), known)
        by_scope[scope or REST] += seconds / found.runs
        if not scope:
            rest[opcodes.get(op, "not in the HLO")] += seconds / found.runs
    return Joined(dict(by_scope), dict(rest), found.runs, found.wall_s / found.runs)


def recording(path: Path, jobs: Sequence[Job], depth: int | None) -> Recording:
    """The stages of a model in a trace, or in the traces of a folder (the newest of each): a row for each row of their
    tables, one for the rest, and the whole with the device's idle time. Raises FormatError where none is in it."""
    files = [path] if path.is_file() else sorted(path.rglob(f"*{SUFFIX}"), key=lambda p: p.stat().st_mtime)
    if not files:
        raise UsageError(f"{path}: no *{SUFFIX} in it: give the folder that jax.profiler.trace wrote, or its file")
    rows: dict[str, list[Timed]] = {}
    notes: dict[str, str] = {}
    seen: dict[str, None] = {}
    for file in files:
        found = spans(file)
        seen |= dict.fromkeys(some.module for some in found.values())
        for job in jobs:
            mine = [some for some in found.values() if some.module == f"jit_{job.name}"]
            if mine:
                one = joined(
                    max(mine, key=lambda some: some.op_s), modules(file, (mine[0].module,)), job.profile.by_scope
                )
                rows[job.name], notes[job.name] = _timed(one, job, depth), _said(one, job.name)
    if not rows:
        wanted = ", ".join(f"jit_{job.name}" for job in jobs)
        raise FormatError(f"{path}: no stage of this model in it ({wanted}): it has {', '.join(seen)}")
    return Recording(str(path), [row for some in rows.values() for row in some], notes=list(notes.values()))


def _timed(one: Joined, job: Job, depth: int | None) -> list[Timed]:
    keys = job.rows(depth)
    place = row_of(keys)
    by_row: dict[str, float] = defaultdict(float, dict.fromkeys(keys, 0.0))
    for scope, seconds in one.by_scope.items():
        by_row[scope if scope == REST else place(scope)] += seconds
    rest = by_row.pop(REST, 0.0)
    out = [Timed(job.name, "", one.wall_s, host_s=max(0.0, one.wall_s - one.op_s))]
    out += [Timed(job.name, row, seconds) for row, seconds in by_row.items() if seconds > 0]
    return [*out, Timed(job.name, REST, rest, what=_parts(one.rest))] if rest > 0 else out


def _said(one: Joined, stage: str) -> str:
    text = f"{stage}: {100 * one.named:.1f} % of the op time of {one.runs} traced runs is in scopes"
    return f"{text}; {REST} is {_parts(one.rest)}" if one.rest else text


def _parts(rest: Mapping[str, float]) -> str:
    largest = sorted(rest.items(), key=lambda item: -item[1])[:MOST]
    return ", ".join(f"{what} {units.text(seconds, 's')}" for what, seconds in largest)


def _protos(data: bytes) -> Iterator[tuple[str, bytes]]:
    """(name of a module with its number, HloModuleProto) of the metadata of a trace's planes: XSpace.planes = 1, of
    which event_metadata = 4, a map whose values = 2 have a name = 2 and stats = 5, whose bytes_value = 6 is an HloProto
    with hlo_module = 1."""
    for plane in _some(data, 1):
        for entry in _some(plane, 4):
            for event in _some(entry, 2):
                for stat in _some(event, 5):
                    for proto in (module for value in _some(stat, 6) for module in _some(value, 1)):
                        yield b"".join(_some(event, 2)).decode(errors="replace"), proto


def _some(data: bytes, wanted: int) -> Iterator[bytes]:
    """The bytes of each field `wanted` of a protobuf message, in the wire format: a tag, a length, the bytes."""
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        kind = tag & 7
        if kind == 2:
            length, at = _number(data, at)
            if tag >> 3 == wanted:
                yield data[at : at + length]
            at += length
        elif kind == 0:
            _, at = _number(data, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            return  # no protobuf


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            break
    return value, at
