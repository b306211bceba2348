"""`--compiled`: the options, the questions to the chip's compiler, and the pages of its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from costtrace.cli.waiting import progress
from costtrace.errors import UsageError
from costtrace.report.document import Document, Grouping, Stages

if TYPE_CHECKING:  # jax and the compilers, which --help does not need
    from costtrace.chip import Chip
    from costtrace.evidence.compiled import Part
    from costtrace.model import Model
    from costtrace.report.compiled import Found
    from costtrace.target.program import Program

Programs = Callable[[str], "Sequence[Program]"]
"""platform -> each stage's lowered program"""
OPTIONS: tuple[click.Option, ...] = (
    click.Option(["--compiled"], is_flag=True, help="What the chip's own compiler makes of it: see costtrace setup."),
    click.Option(["--view"], type=click.Choice(["kernels", "fusion"]),
                 help="kernels: the slowest, what binds and why; fusion: bytes as one kernel, by scope, as compiled."),
    click.Option(["--compiler-option", "compiler_options"], multiple=True, metavar="NAME=VALUE",
                 help="Passed to the compiler: xla_tpu_scoped_vmem_limit_kib=65536."),
    click.Option(["--topology"], metavar="SHAPE", help="Chips of a sharded program: 2x4 (TPU), 8 or 2x8 (GPU)."),
)  # fmt: skip


def wanted(options: Mapping[str, Any]) -> bool:
    """True where an option asks for a compile. Raises UsageError where rows cannot be compared with one."""
    asked = bool(options["compiled"] or options["view"])
    if asked and options["by"] not in ("scope", "layer"):
        raise UsageError(f"--compiled with --by {options['by']}: the compiler knows scopes; leave --by out")
    if not asked and (options["compiler_options"] or options["topology"]):
        raise UsageError("--compiler-option and --topology are for --compiled: add it")
    return asked


@dataclass(frozen=True, slots=True)
class Compile:
    """One document with what the compiler made of its stages."""

    doc: Document
    found: Found
    chip: Chip
    grouping: Grouping


def compile_of(
    doc: Document, stages: Stages, programs: Programs, chip: Chip, grouping: Grouping, options: Mapping[str, Any]
) -> Compile:
    """Asks the chip's compiler about every stage of a document; the cache's troubles become notes of it."""
    from costtrace.evidence.compiled import compiled
    from costtrace.target import cache, compiler

    answers, passed = cache.Answers(), _passed(options["compiler_options"])
    lowered = programs(compiler.platform(chip))
    questions = [
        compiler.Question(
            program,
            chip,
            options["topology"],
            passed,
            f"{' '.join(dict.fromkeys((doc['model'], stage)))} for {chip.name}",
        )
        for program, (stage, _, _) in zip(lowered, stages, strict=True)
    ]
    with progress() as told:
        made = compiler.ask(questions, answers, told)
    found = {
        stage: (profile, compiled(one, profile, answers)) for one, (stage, _, profile) in zip(made, stages, strict=True)
    }
    doc["notes"] += [
        {"kind": "cache", "stage": "", "scope": "", "text": text} for text in dict.fromkeys(answers.problems)
    ]
    return Compile(doc, found, chip, grouping)


def parts(found: Model, config: Any, name: str) -> dict[str, dict[str, Part]]:
    """{stage: {scope: what the compiler of the chip called `name` made of its own ops}} of a model."""
    from costtrace import chip, model
    from costtrace.evidence.compiled import compiled
    from costtrace.profiler import profile
    from costtrace.target import cache, compiler
    from costtrace.target.program import lowered

    on, answers = chip.load(name), cache.Answers()
    stages = [(stage.name, *model.bind(stage)) for stage in found.stages(config)]
    questions = [
        compiler.Question(lowered(fn, args, compiler.platform(on)), on, None, {}, f"{found.name} {stage} for {on.name}")
        for stage, fn, args in stages
    ]
    with progress() as told:
        made = compiler.ask(questions, answers, told)
    return {
        stage: compiled(one, profile(fn, *args, weights=0), answers).rows(lambda scope: scope)
        for one, (stage, fn, args) in zip(made, stages, strict=True)
    }


def shown(compiles: Sequence[Compile], options: Mapping[str, Any]) -> str:
    """The pages of documents with what was found of each, in the form and view that the options ask for."""
    from costtrace.report import compiled

    form, view = options["format"], options["view"]
    if view:
        return "\n\n".join(compiled.view(view, c.doc, c.found, c.grouping, options["top"], form) for c in compiles)
    return compiled.pages([compiled.attached(c.doc, c.found, c.chip) for c in compiles], form, options["verbose"])


def _passed(pairs: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE as XLA takes it: true and false, whole numbers, text."""
    out: dict[str, Any] = {}
    for pair in pairs:
        name, is_pair, value = pair.partition("=")
        if not is_pair or not name:
            raise UsageError(f"--compiler-option {pair!r}: write NAME=VALUE, as in xla_gpu_autotune_level=0")
        flags = {"true": True, "false": False}
        out[name] = flags.get(value.lower(), int(value) if value.lstrip("-").isdecimal() else value)
    return out


DUMPS = (".hlo", ".txt", ".pb")
"""How the names of HLO dumps end."""


def dumped(target: str, options: Mapping[str, Any]) -> str:
    """The pages of a user's own HLO dump on each chip of --chip."""
    from costtrace import chip
    from costtrace.evidence import dump
    from costtrace.report.compiled import dumped as page

    path = Path(target)
    some = [dump.compiled(path, chip.load(name)) for name in options["chip"].split(",")]
    return "\n\n".join(page(one, path.name, options["format"], options["depth"], options["top"]) for one in some)
