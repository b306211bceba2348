"""A lowered program and a chip -> the optimized module that the chip's own compiler makes of it. No jax here.

What was asked before comes from the cache; the rest runs in processes of its own, several at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from costtrace.chip import Chip
from costtrace.errors import UsageError
from costtrace.target import cache, gpu, setup, tpu, worker
from costtrace.target.hlo import Module, parsed
from costtrace.target.program import Program

PLATFORMS = {"tpu": "tpu", "gpu": "cuda"}
"""A chip's kind -> the platform that a program is lowered for."""
ANSWER = 2
"""Raised where an answer's form changes."""


@dataclass(frozen=True, slots=True)
class Question:
    """One program for one chip. topology: chips along each axis ('2x4'), None for one chip. options: XLA's own."""

    program: Program
    chip: Chip
    topology: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    label: str = ""


@dataclass(slots=True)
class Answer:
    """What a compiler made. Bytes are those of one device; `compile_s` is what the compile took when it was made."""

    chip: Chip
    text: str
    compile_s: float
    memory: dict[str, int]
    versions: dict[str, str]
    device: str
    cached: bool
    mesh: dict[str, int]
    key: str = ""
    """What the cache knows it by; '' where it is not of the cache."""
    topology: tuple[int, ...] = ()
    """Chips along each axis of a torus; of GPUs hosts, then those in one. () where nobody says."""
    _module: Module | None = None

    @property
    def module(self) -> Module:
        if self._module is None:
            self._module = parsed(self.text)
        return self._module

    @property
    def peak_bytes(self) -> int | None:
        """All that is in memory at once: arguments, results, temporaries and the program itself. None if not known."""
        sizes = self.memory
        if "argument" not in sizes:
            return sizes.get("peak")
        return sizes["argument"] + sizes["output"] - sizes["alias"] + sizes["temp"] + sizes["generated_code"]


def platform(chip: Chip) -> str:
    """What a program for this chip is lowered for. Raises UsageError for a chip without a compiler."""
    if chip.kind not in PLATFORMS:
        raise UsageError(
            f"{chip.name} is a {chip.kind}: --compiled asks the compilers of TPU and GPU chips: leave it out"
        )
    (tpu.generation if chip.kind == "tpu" else gpu.capability)(chip)
    return PLATFORMS[chip.kind]


def ask(
    questions: Sequence[Question],
    answers: cache.Answers | None = None,
    progress: worker.Progress | None = None,
    **limits: Any,
) -> list[Answer]:
    """An answer to each question, in order. limits: at_once, time_limit_s, memory_limit of worker.run.

    Raises UsageError where no compiler is set up or the chip or topology is unknown, CompileError where one fails.
    """
    answers = cache.Answers() if answers is None else answers
    found: dict[int, dict[str, Any]] = {}
    fields, names, fresh, made = [], [], [], set[int]()
    for n, question in enumerate(questions):
        fields.append(_fields(question))
        names.append(cache.key(ANSWER, question.program.digest, fields[n], setup.versions(question.chip.kind)))
        if remembered := answers.get(names[n]):
            found[n] = remembered
        elif names[n] not in names[:n]:
            fresh.append(n)

    def run(some: Sequence[int]) -> None:
        """Asks those that nobody has answered meanwhile."""
        found.update({n: told for n in some if (told := answers.get(names[n]))})
        left = [n for n in some if n not in found]

        def finished(position: int, result: dict[str, Any]) -> None:
            found[left[position]] = result
            made.add(left[position])
            answers.put(names[left[position]], result)

        requests = [_request(questions[n], fields[n]) for n in left]
        worker.run(requests, progress=progress, finished=finished, **limits)

    with answers.reserving() as reserved:
        run([n for n in fresh if reserved(names[n])])
        for n in fresh:
            began = time.monotonic()
            while n not in found and not reserved(names[n]):  # another process is at it
                if progress:
                    progress([(f"{questions[n].label} (in another process)", time.monotonic() - began)])
                time.sleep(worker.POLL_S)
            run([n] if n not in found else [])
    first = {name: n for n, name in reversed(list(enumerate(names)))}
    return [
        _answer(q, found[n] if n in found else found[first[names[n]]], n not in made, names[n], fields[n]["topology"])
        for n, q in enumerate(questions)
    ]


def _fields(q: Question) -> dict[str, Any]:
    make = tpu.fields if q.chip.kind == "tpu" else gpu.fields
    shape = q.topology
    if q.program.mesh:
        shape = _sized(q, shape) if shape else _grid(q)
    return {**make(q.chip, shape, q.options), "mesh": q.program.mesh, "donated": list(q.program.donated)}


def _sized(q: Question, shape: str) -> str:
    """The shape, if it is of as many devices as the program's mesh. Raises UsageError."""
    count, sizes = math.prod(q.program.mesh.values()), shape.split("x")
    found = math.prod(int(n) for n in sizes) * q.chip.devices if all(n.isdecimal() for n in sizes) else count
    if found != count and shape != (usual := _grid(q)):
        what = f"topology {shape} of {q.chip.name} has {found} devices, the program is for {count}"
        raise UsageError(f"{what}: give {usual}, or leave it out")
    return shape


def _grid(q: Question) -> str:
    """Chips enough for the program's mesh: eight in a host, or the squarest grid."""
    count = math.prod(q.program.mesh.values())
    if q.chip.kind == "gpu":
        return str(count) if count <= 8 else f"{count // 8}x8"
    chips = max(count // q.chip.devices, 4)
    known = {
        2: {4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"},
        3: {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8", 256: "4x8x8"},
    }
    axes = len(tpu.generation(q.chip).host.split("x"))
    if chips not in known[axes]:
        raise UsageError(f"no usual grid of {chips} {q.chip.name} chips: name one, like {q.chip.name}:2x4")
    return known[axes][chips]


def _request(q: Question, fields: dict[str, Any]) -> worker.Request:
    environment = tpu.environment(q.chip, fields["topology"].partition(":")[2]) if q.chip.kind == "tpu" else {}
    return worker.Request(
        q.label or f"{q.program.name} for {q.chip.name}",
        setup.python(q.chip.kind),
        q.program.artifact,
        {**fields, "jax": setup.jax_version(), "versions": setup.versions(q.chip.kind)},
        environment,
        q.chip.kind,
    )


def _answer(q: Question, result: dict[str, Any], cached: bool, name: str, topology: str) -> Answer:
    return Answer(
        q.chip,
        result["text"],
        result["compile_s"],
        result["memory"],
        result["versions"],
        result["device"],
        cached,
        q.program.mesh,
        name,
        tuple(int(n) for n in topology.rpartition(":")[2].split("x")),
    )
