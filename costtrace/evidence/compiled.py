"""The chip's own compiler as a witness: what it made of each part of a program, beside what was traced of it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from costtrace.core import Note
from costtrace.grouping import NUMBERED
from costtrace.summary import Profile
from costtrace.target import opname
from costtrace.target.compiler import Answer
from costtrace.target.kernel import kernels
from costtrace.target.price import BESIDE, COMPILER, REPLACED, ROOFLINE, Timed, timed


@dataclass(slots=True)
class Part:
    """What the compiled program does in one row; bytes and FLOPs of all executions in one call, of one device."""

    flops: int = 0
    matmul_flops: int = 0
    hbm_bytes: int = 0
    chip_bytes: int = 0
    kernels: int = 0
    """Executions of kernels; a copy that runs beside them is none."""
    time_s: float = 0.0
    by: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """{whose estimate: seconds}"""

    def add(self, each: Timed) -> None:
        k = each.kernel
        self.flops += k.work.flops * k.repeat
        self.matmul_flops += k.work.matmul_flops * k.repeat
        self.hbm_bytes += k.traffic.hbm * k.repeat
        self.chip_bytes += k.traffic.chip * k.repeat
        self.kernels += 0 if each.by == BESIDE else k.repeat
        self.time_s += each.all_s
        if each.by != BESIDE:
            self.by[each.by] += each.all_s

    @property
    def estimated_by(self) -> str:
        """compiler, roofline, or both with the roofline's share of the time."""
        own = self.by.get(ROOFLINE, 0.0) + self.by.get(REPLACED, 0.0)
        if not own:
            return COMPILER
        return ROOFLINE if not self.by.get(COMPILER) else f"{COMPILER}, {ROOFLINE} {100 * own / self.time_s:.0f} %"

    def to_dict(self) -> dict[str, Any]:
        """The `compiled` object of a row."""
        return {"flops": self.flops, "matmul_flops": self.matmul_flops, "hbm_bytes": self.hbm_bytes,
                "chip_bytes": self.chip_bytes, "kernels": self.kernels, "time_s": self.time_s,
                "estimated_by": self.estimated_by}  # fmt: skip


@dataclass(slots=True)
class Compiled:
    """One stage as compiled for a chip: every kernel with its scope and seconds; sums of rows are the stage's."""

    answer: Answer
    kernels: list[Timed]
    notes: list[Note]

    @property
    def total(self) -> Part:
        return self.part(self.kernels)

    @staticmethod
    def part(some: Iterable[Timed]) -> Part:
        out = Part()
        for each in some:
            out.add(each)
        return out

    def rows(self, key: Callable[[str], str]) -> dict[str, Part]:
        """{row: Part}, each kernel in exactly one; `key` says the row of a scope (see `row_of`)."""
        out: dict[str, Part] = {}
        for each in self.kernels:
            out.setdefault(key(each.scope), Part()).add(each)
        return out


def compiled(answer: Answer, profile: Profile | None = None) -> Compiled:
    """The compiler's answer read, with scopes as in the profile of the same function (where there is one)."""
    devices = 1
    for size in answer.mesh.values():
        devices *= size
    found = kernels(answer.module)
    known = None if profile is None else frozenset(profile.by_scope)
    each = _hidden(list(timed(found, answer.chip, known, devices)))
    return Compiled(answer, each, [*dict.fromkeys(found.notes), *_loops(each, answer.chip.kind)])


LOOPED = 0.1
"""The share of the time in loops from which their note is worth reading."""


def _loops(kernels: list[Timed], kind: str) -> list[Note]:
    """What a TPU program loses in a loop: copies into the chip's memory are not begun for the next trip."""
    total = sum(each.all_s for each in kernels)
    looped = sum(each.all_s for each in kernels if each.kernel.repeat > 1)
    if kind != "tpu" or not total or looped < LOOPED * total:
        return []
    trips = max(each.kernel.repeat for each in kernels)
    return [Note("loop", "", f"{100 * looped / total:.0f} % of the compiled time is in loops of up to {trips} trips: "
                 "weights are fetched within a trip only, so the same layers unrolled may take less")]  # fmt: skip


def _hidden(kernels: list[Timed]) -> list[Timed]:
    """Collectives that start here and are waited for later: the kernels between cover them, as far as they last."""
    out = list(kernels)
    for n, each in enumerate(kernels):
        i, computation = each.kernel.instruction, each.kernel.computation
        if not each.kernel.collective or not i.opcode.endswith("-start"):
            continue
        order = {name: position for position, name in enumerate(computation.instructions)}
        done = next((u for u in computation.users.get(i.name, ()) if u.opcode.endswith("-done")), None)
        if done is None:
            continue
        between = [o for o in kernels if o.kernel.computation is computation and not o.kernel.collective
                   and order[i.name] < order[o.kernel.name] < order[done.name]]  # fmt: skip
        out[n] = replace(each, hidden_s=min(each.seconds, sum(o.seconds for o in between)))
    return out


def row_of(profile: Profile, depth: int | None, merge: bool) -> Callable[[str], str]:
    """scope -> the key of the row of `profile.rows(depth, merge)` that it is part of.

    What has no such row (the compiler's own, work that was all moved elsewhere) keeps a row of its own.
    """
    keys = {row.key for row in profile.rows("scope", depth, merge)}
    memo: dict[str, str] = {}

    def found(scope: str) -> str:
        if scope not in memo:
            memo[scope] = _row(scope, keys)
        return memo[scope]

    return found


def _row(scope: str, keys: set[str]) -> str:
    if scope in (".", opname.COMPILER):
        return scope
    names = scope.split("/")
    for end in range(len(names), 0, -1):
        each = [[name, *_starred(name)] for name in names[:end]]
        for path in map("/".join, itertools.product(*each)):
            if path in keys:
                return path
            if f"{path}/." in keys:
                return f"{path}/."
    return scope


def _starred(name: str) -> list[str]:
    stem = NUMBERED.sub("", name)
    return [] if stem == name else [stem + ("[*]" if name.endswith("]") else "*")]
