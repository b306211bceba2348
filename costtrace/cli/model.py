"""`costtrace MODEL`: a command made from the model's config, one option a field."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from costtrace import chip as chips
from costtrace import model, roofline, serving
from costtrace.chip import Chip
from costtrace.cli import advise, compiled, files, sharded, strategies
from costtrace.cli.shared import OPTIONS, Run, show
from costtrace.cli.waiting import stepped, working
from costtrace.core import Note
from costtrace.errors import UsageError
from costtrace.option import flag
from costtrace.profiler import profile

if TYPE_CHECKING:
    from costtrace.report.document import Stages
    from costtrace.summary import Profile
    from costtrace.target.program import Program


def command(name: str) -> click.Command:
    """The command of the model called `name`, or of the MODEL in the file at that path."""
    found = model.find(name)
    many = (*strategies.OPTIONS, strategies.TRAIN, advise.WHAT_IF)
    taken = {option.name for option in (*OPTIONS, *many)}
    if clash := sorted(taken & found.options().keys()):
        raise UsageError(f"model {found.name}: its option {clash[0]!r} is costtrace's own: give the field another name")
    own = [_option(field) for field in found.options().values()]

    def callback(**options: Any) -> None:
        files.checked(options)
        values = {key: options.pop(key) for key in found.options()}
        if options["what_if"]:
            files.refused(options, "with --what-if there is only a table")
            advise.show(found, list(_product(values)), options)
            return
        configs = [found.configure(**some) for some in _product(values)]
        if strategies.wanted(options):
            files.refused(options, "with --chips there is a table, and --html", but="html")
            if compiled.wanted(options) or options["sort"]:
                sharded.compile_and_show(found.name, sharded.of_model(found, configs), options)
                return
            programs = strategies.of_model(name, found, configs, options["train"])
            documents = strategies.show(found.name, programs, options)
            if options["html"]:
                _page(name, found, configs, documents, options)
            return
        runs = (
            dataclasses.replace(
                _run(found, config, options["strict"]), beside=functools.partial(_witnesses, name, found, config)
            )
            for config in configs
        )
        show(runs, options)

    return click.Command(
        name, params=[*own, *OPTIONS, *many], callback=callback, help=found.title, epilog=_epilog(found)
    )


def _page(
    name: str, found: model.Model, configs: list[Any], documents: list[dict[str, Any]], options: dict[str, Any]
) -> None:
    """The page of every configuration and chip, with the strategies that were compared."""
    from costtrace.report.document import Answer

    answers: list[Answer] = []
    for config in configs:
        run = _run(found, config, options["strict"])
        for chip in options["chip"].split(","):
            on, some = chips.load(chip), documents[len(answers)]["strategies"]
            beside = _witnesses(name, found, config, on)
            depth = options["depth"] or run.depths
            answers.append(Answer(run.name, run.config, run.stages, depth, on, strategies=some, **beside))
    files.write(answers, options)


def _witnesses(name: str, found: model.Model, config: Any, on: Chip) -> dict[str, Any]:
    """What a hand count and a stopwatch say of a model in this configuration, where they say anything."""
    from costtrace import audit, claim
    from costtrace.evidence.measured import measurements
    from costtrace.report.audit import document

    rows = [row for row in measurements() if row.model == found.name and row.chip == on.name
            and all(getattr(config, key) == getattr(found.configure(**{key: value}), key)
                    for key, value in row.config.items())]  # fmt: skip
    out: dict[str, Any] = {"measured": {row.stage: (row.measured_s, row.source) for row in rows}}
    claims = claim.find(name)
    if claims.claims or claims.quotes:
        with (
            contextlib.suppress(UsageError),
            working(f"auditing {found.name}"),
        ):  # they may be about another configuration
            out["audit"] = document(audit.audit(found, config, claims))
    return out


def _epilog(found: model.Model) -> str:
    first = next(((flag(name), field.default) for name, field in found.options().items()), ("--chip", "v6e"))
    return f"Several values, {first[0]} {first[1]},..., stand side by side."


def _option(field: Any) -> click.Option:
    return click.Option([flag(field.name), field.name], metavar=field.metadata["metavar"],
                        help=f"{field.metadata['help']}  [default: {field.default}]")  # fmt: skip


def _product(values: dict[str, str | None]) -> Iterator[dict[str, str | None]]:
    """Every combination of comma-separated values."""
    each = [[None] if text is None else text.split(",") for text in values.values()]
    return (dict(zip(values, some, strict=True)) for some in itertools.product(*each))


def _run(found: model.Model, config: Any, strict: bool) -> Run:
    stages = found.stages(config)
    profiles, bound = [], []
    with stepped() as told:
        for stage in stages:
            told(f"tracing {found.name}: {stage.name} ...")
            fn, args = model.bind(stage)
            bound.append((fn, args))
            made = profile(fn, *args, weights=0, strict=strict)
            made.notes += [Note(kind, "", text) for kind, text in stage.notes]
            profiles.append((stage.name, stage.calls, made))

    def programs(platform: str) -> list[Program]:
        from costtrace.target.program import lowered

        return [lowered(fn, args, platform) for fn, args in bound]

    def extra(on: Chip, efficiency: bool) -> dict[str, Any]:
        derived = [name for name in found.shown(config) if name not in found.options()]
        served = _served(found, config, stages, profiles, on, efficiency)
        return ({"derived": derived} if derived else {}) | served

    depths = {stage.name: stage.depth for stage in stages}
    return Run(found.name, found.shown(config), profiles, depths, extra, programs)


def _served(
    found: model.Model, config: Any, stages: list[model.Stage], profiles: Stages, on: Chip, efficiency: bool
) -> dict[str, Any]:
    """What stages make in a second, and where those that grow with an option turn compute-bound."""
    rates, turns = [], []
    for k, (stage, (_, _, made)) in enumerate(zip(stages, profiles, strict=True)):
        if stage.makes:
            rates.append(serving.throughput(stage.name, stage.makes, roofline.floor_s(made.total, on, efficiency)))
        if stage.grows:
            turns.append(serving.turning(stage.name, stage.grows, getattr(config, stage.grows),
                                         _grown(found, config, k, made), stage.depth, on))  # fmt: skip
    some = [turn.to_dict() for turn in turns if turn]
    return ({"throughput": rates} if rates else {}) | ({"turning": some} if some else {})


def _grown(found: model.Model, config: Any, k: int, made: Profile) -> Callable[[int], Profile]:
    """The profile of the k-th stage at another size of the option that it grows with."""

    def at(n: int) -> Profile:
        stage = found.stages(config)[k]
        if n == getattr(config, stage.grows):
            return made
        fn, args = model.bind(found.stages(dataclasses.replace(config, **{stage.grows: n}))[k])
        return profile(fn, *args, weights=0)

    return at
