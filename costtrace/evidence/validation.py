"""Measurements held against the floor and against the compiler: the programs made, compiled, read, and set beside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from costtrace import chip, model, roofline
from costtrace.errors import UsageError
from costtrace.evidence.compiled import compiled
from costtrace.evidence.measured import Measurement, Validation
from costtrace.profiler import profile
from costtrace.summary import Profile
from costtrace.target import cache, compiler, program, setup


def validated(
    rows: Sequence[Measurement], answers: cache.Answers | None = None, spread: bool = False, **limits: Any
) -> tuple[list[Validation], list[str]]:
    """(each row beside its floor and its prediction, a line for each row that could not be had).

    Rows of a model that is not there are left out; where a chip's compiler is not set up the prediction is None.
    spread: each stage with its layers unrolled too, as another formulation. limits: as for compiler.ask.
    """
    answers = cache.Answers() if answers is None else answers
    lines: list[str] = []
    made: list[tuple[Measurement, Profile, float]] = []
    questions: list[compiler.Question] = []
    profiles: dict[tuple[str, str], tuple[Callable[..., Any], tuple[Any, ...], Profile]] = {}
    for row in rows:
        on = chip.load(row.chip)
        for form in FORMS if spread else FORMS[:1]:
            key = (cache.key(row.model, row.config, row.stage), form)
            try:
                if key not in profiles:
                    profiles[key] = _profiled(row, form)
            except UsageError as e:
                lines.append(f"{row.id}: left out: {e}")
                break
            fn, args, found = profiles[key]
            if form == FORMS[0]:
                made.append((row, found, roofline.times(found.total, on, found.total.bytes_fused).seconds))
            try:
                setup.python(on.kind)
            except UsageError as e:
                lines.append(f"{row.id}: {e}")
                break
            lowered = program.lowered(fn, args, compiler.platform(on))
            questions.append(compiler.Question(lowered, on, label=f"{row.id} {form}"))
    given = {q.label: a for q, a in zip(questions, compiler.ask(questions, answers, **limits), strict=True)}
    out = []
    for row, found, floor_s in made:
        read = {
            form: compiled(given[f"{row.id} {form}"], found, answers) for form in FORMS if f"{row.id} {form}" in given
        }
        first = read.pop(FORMS[0], None)
        others = tuple((form, each.total.time_s) for form, each in read.items())
        notes = () if first is None else tuple(note.text for note in first.notes)
        versions = {} if first is None else first.answer.versions
        out.append(Validation(row, floor_s, None if first is None else first.total.time_s, notes, others, versions))
    return out, lines


FORMS = ("scanned", "unrolled")
"""How a stage's repeated layers are written: the first is the model file's own."""


def _profiled(row: Measurement, form: str) -> tuple[Callable[..., Any], tuple[Any, ...], Profile]:
    """(function, abstract arguments, profile) of a row's stage. Raises UsageError where there is no such model."""
    found = model.find(row.model)
    stages = {stage.name: stage for stage in found.stages(found.configure(**row.config))}
    if row.stage not in stages:
        raise UsageError(f"model {row.model} has no stage {row.stage!r}: it has {', '.join(stages)}")
    fn, args = model.bind(stages[row.stage], unroll=form == "unrolled")
    return fn, args, profile(fn, *args, weights=0)
