"""A model's claims held against its program: lines, quotes, shortcuts, findings. Nothing is compiled, nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from costtrace import checkpoint
from costtrace.checkpoint import Comparison
from costtrace.claim import Claims
from costtrace.errors import UsageError
from costtrace.evidence.by_scope import Lowered
from costtrace.evidence.hand import Hand
from costtrace.evidence.traced import Traced
from costtrace.finding import Finding, conventions, findings
from costtrace.model import Model
from costtrace.quote import QUOTE_VERDICTS, Answer, Program, answer
from costtrace.shortcut import Decomposed, decomposed
from costtrace.verdict import DIFFERS, NOT_CLAIMED, NOT_THERE, VERDICTS, Line, Parts, figures, lines
from costtrace.weight import bind


@dataclass(slots=True)
class Audit:
    """All that was compared, and what did not agree."""

    model: str
    config: Mapping[str, Any]
    lines: list[Line]
    answers: list[Answer]
    shortcuts: list[Decomposed]
    findings: list[Finding]
    conventions: list[Finding]
    hand: Hand
    stages: dict[str, Traced]
    checkpoints: list[Comparison] = field(default_factory=list)


def audit(model: Model, config: Any, claims: Claims, compiled: Mapping[str, Parts] | None = None) -> Audit:
    """`claims` against `model` under `config`; a quote that names options under those, and defaults for the rest.

    compiled: {stage: {scope: evidence.compiled.Part of its own ops}}, a further column where it is given.

    Raises UsageError for a formula, a stage or an option that is not there.
    """
    for name, value in claims.about.items():
        if (given := str(getattr(config, name, None))) != value:
            raise UsageError(f"the claims are about {name} {value}, not {given}: audit that, or give other --claims")
    stages, hand = _program(model, config, claims)
    compared = [
        line
        for stage in stages.values()
        for line in lines(hand, stage, Lowered(stage), (compiled or {}).get(stage.name))
    ]
    cuts = [decomposed(shortcut, hand, stages[shortcut.stage]) for shortcut in claims.shortcuts]
    known = {_key(model, config): (stages, hand)}
    answers = []
    for quote in claims.quotes:
        own = model.configure(**quote.config) if quote.config else config
        if (key := _key(model, own)) not in known:
            known[key] = _program(model, own, claims)
        answers.append(answer(quote, known[key][1], Program(known[key][1], known[key][0])))
    totals: dict[str, int] = {}
    for stage in stages.values():
        for quantity, n in figures(stage.profile.total).items():
            totals[quantity] = totals.get(quantity, 0) + n * stage.calls
    totals["parameters"] = sum(stage.profile.parameters for stage in stages.values())
    return Audit(
        model.name,
        _options(model, config),
        compared,
        answers,
        cuts,
        findings(compared, answers, cuts, hand, stages, totals),
        conventions(compared, hand, stages, totals),
        hand,
        stages,
    )


def _program(model: Model, config: Any, claims: Claims) -> tuple[dict[str, Traced], Hand]:
    stages = {stage.name: Traced(stage) for stage in model.stages(config)}
    return stages, Hand(claims, config, {name: stage.calls for name, stage in stages.items()})


def _options(model: Model, config: Any) -> dict[str, Any]:
    return {name: getattr(config, name) for name in model.options()}


def _key(model: Model, config: Any) -> tuple[Any, ...]:
    return tuple(_options(model, config).values())


def add_checkpoint(
    made: Audit, model: Model, config: Any, file: str, stage: str = "", mapping: Mapping[str, Any] | None = None
) -> Comparison:
    """Compares the file's header with the weights of `stage`, by default the stage that finds most of its own in it.

    Raises UsageError as checkpoint.read does, and for a stage that is not there.
    """
    tensors = checkpoint.read(file)
    stages = [s for s in model.stages(config) if stage in ("", s.name)]
    if not stages:
        raise UsageError(f"--checkpoint {stage}={file}: no stage {stage!r}: there are {', '.join(made.stages)}")
    tried = [checkpoint.compare(file, tensors, s.name, weights(s), mapping if len(stages) == 1 else {}) for s in stages]
    found = max(tried, key=lambda c: (c.matched_elements / c.wanted_elements if c.wanted_elements else 0.0, c.by_name))
    if mapping and len(stages) > 1:
        own = next(s for s in stages if s.name == found.stage)
        found = checkpoint.compare(file, tensors, found.stage, weights(own), mapping)
    made.checkpoints.append(found)
    return found


def weights(stage: Any) -> dict[str, tuple[int, ...]]:
    """{path: shape} of a stage's weights, each block of a stack with its own."""
    _, (params, *_) = bind(stage, unroll=True)

    def leaves(tree: Mapping[str, Any], prefix: str) -> dict[str, tuple[int, ...]]:
        out: dict[str, tuple[int, ...]] = {}
        for key, node in tree.items():
            out |= leaves(node, f"{prefix}{key}/") if isinstance(node, Mapping) else {f"{prefix}{key}": node.shape}
        return out

    return leaves(params, "")


MISSING = "missing"


def verdicts(text: str | None) -> set[str]:
    """The verdicts that `--fail-on` names; "missing" is both kinds. Raises UsageError for one that is none."""
    known = {*VERDICTS, *QUOTE_VERDICTS, MISSING}
    asked = {word.strip() for word in text.split(",")} if text else set()
    if unknown := asked - known:
        raise UsageError(f"--fail-on {min(unknown)}: no such verdict: choose from {', '.join(sorted(known))}")
    return asked | ({NOT_CLAIMED, NOT_THERE} if MISSING in asked else set())


def failed(made: Audit, wanted: set[str]) -> bool:
    """True where a row, a quote or a checkpoint has one of the verdicts."""
    met = {line.verdict for line in made.lines} | {found.verdict for found in made.answers}
    met |= {DIFFERS for found in made.checkpoints if not found.agrees}
    return bool(met & wanted)
