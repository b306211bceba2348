"""The chip's own compiler as a witness: what it made of each part of a program, beside what was traced of it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costtrace import roofline
from costtrace.core import Note
from costtrace.evidence.collectives import hidden, summed
from costtrace.grouping import NUMBERED
from costtrace.summary import Profile
from costtrace.target import cache, hlo, opname
from costtrace.target.collective import Network
from costtrace.target.compiler import Answer
from costtrace.target.kernel import kernels
from costtrace.target.price import BESIDE, COMPILER, NETWORK, REPLACED, ROOFLINE, Timed, timed


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
    by: dict[str, float] = field(default_factory=dict)
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
            self.by[each.by] = self.by.get(each.by, 0.0) + each.all_s

    @property
    def estimated_by(self) -> str:
        """compiler, roofline, network, or several with the shares of the time that are not the compiler's."""
        own = {ROOFLINE: self.by.get(ROOFLINE, 0.0) + self.by.get(REPLACED, 0.0), NETWORK: self.by.get(NETWORK, 0.0)}
        own = {name: seconds for name, seconds in own.items() if seconds}
        if not own:
            return COMPILER
        if len(own) == 1 and not self.by.get(COMPILER):
            return next(iter(own))
        shares = [f"{name} {100 * seconds / self.time_s:.0f} %" for name, seconds in own.items()]
        return ", ".join([COMPILER] * bool(self.by.get(COMPILER)) + shares)

    def to_dict(self) -> dict[str, Any]:
        """The `compiled` object of a row."""
        return {"flops": self.flops, "matmul_flops": self.matmul_flops, "hbm_bytes": self.hbm_bytes,
                "chip_bytes": self.chip_bytes, "kernels": self.kernels, "time_s": self.time_s,
                "estimated_by": self.estimated_by}  # fmt: skip

    def __add__(self, other: Part) -> Part:
        by = {key: self.by.get(key, 0.0) + other.by.get(key, 0.0) for key in {**self.by, **other.by}}
        return Part(**{key: getattr(self, key) + getattr(other, key) for key in SUMS}, by=by)


SUMS = ("flops", "matmul_flops", "hbm_bytes", "chip_bytes", "kernels", "time_s")


@dataclass(slots=True)
class Compiled:
    """One stage as compiled for a chip, by scope; each kernel is in exactly one, so parts add up to the stage."""

    answer: Answer
    parts: dict[str, Part]
    notes: list[Note]
    known: frozenset[str] | None
    collectives: list[dict[str, Any]]
    """By scope, kind and axis: see evidence.collectives."""
    _kernels: list[Timed] | None = None

    @property
    def kernels(self) -> list[Timed]:
        """Every kernel with its scope and seconds, in schedule order; read from the text when first asked for."""
        if self._kernels is None:
            self._kernels, _ = _read(self.answer, self.known)
        return self._kernels

    @property
    def total(self) -> Part:
        return sum(self.parts.values(), Part())

    def rows(self, key: Callable[[str], str]) -> dict[str, Part]:
        """{row: Part}; `key` says the row of a scope (see `row_of`)."""
        out: dict[str, Part] = {}
        for scope, part in self.parts.items():
            out[key(scope)] = out.get(key(scope), Part()) + part
        return out


def compiled(answer: Answer, profile: Profile | None = None, answers: cache.Answers | None = None) -> Compiled:
    """The compiler's answer read, with scopes as in the profile of the same function (where there is one).

    answers: where what was read is remembered, under the answer's key, this reader, the scopes and the chip's numbers.
    """
    known = None if profile is None else frozenset(profile.by_scope)
    scopes = None if known is None else sorted(known)
    name = cache.key("parts", _reader(), answer.key, scopes, repr(answer.chip.numbers))
    remembered = answers.get(name) if answers is not None and answer.key else None
    if remembered:
        parts = {scope: Part(**some) for scope, some in remembered["parts"].items()}
        notes = [Note(*note) for note in remembered["notes"]]
        return Compiled(answer, parts, notes, known, remembered["collectives"])
    each, notes = _read(answer, known)
    parts = defaultdict(Part)
    for one in each:
        parts[one.scope].add(one)
    moved = summed(each)
    if answers is not None and answer.key:
        kept = {scope: dataclasses.asdict(part) for scope, part in parts.items()}
        said = [[n.kind, n.scope, n.text] for n in notes]
        answers.put(name, {"parts": kept, "notes": said, "collectives": moved})
    return Compiled(answer, dict(parts), notes, known, moved, each)


def _read(answer: Answer, known: frozenset[str] | None) -> tuple[list[Timed], list[Note]]:
    found = kernels(answer.module)
    network = Network(answer.mesh, answer.chip, answer.topology)
    each = hidden(list(timed(answer.module, found, network, known)))
    return each, [*dict.fromkeys(found.notes), *_loops(each)]


@functools.cache
def _reader() -> str:
    """Changes where the code that reads and prices changes."""
    sources = [*sorted(Path(hlo.__file__).parent.glob("*.py")), Path(roofline.__file__), Path(__file__)]
    return cache.key(*(path.read_text(encoding="utf-8") for path in sources))


LOOPED = 0.1
"""The share of the time in loops from which their note is worth reading."""


def _loops(kernels: list[Timed]) -> list[Note]:
    """That a program's loops are scheduled a trip at a time: what lies on the chip is decided for one trip, and
    weights are not fetched before it begins. Unrolled the layers are one schedule, with other choices."""
    total = sum(each.all_s for each in kernels)
    looped = sum(each.all_s for each in kernels if each.kernel.repeat > 1 and each.by == COMPILER)
    if not total or looped < LOOPED * total:
        return []
    trips = max(each.kernel.repeat for each in kernels if each.by == COMPILER)
    return [Note("loop", "", f"{100 * looped / total:.0f} % of the compiled time is in loops of up to {trips} trips: "
                 "each trip is scheduled alone, so the same layers unrolled may take more or less")]  # fmt: skip


def row_of(keys: Collection[str]) -> Callable[[str], str]:
    """scope -> which of a profile's rows by scope, given by their keys, it is part of.

    What is in none (the compiler's own, work that was all moved elsewhere) keeps a row of its own.
    """
    memo: dict[str, str] = {}

    def found(scope: str) -> str:
        if scope not in memo:
            memo[scope] = _row(scope, keys)
        return memo[scope]

    return found


def _row(scope: str, keys: Collection[str]) -> str:
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
