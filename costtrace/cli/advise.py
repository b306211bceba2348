"""`costtrace advise MODEL`: what to do about it, the largest saving first; `--what-if` tries what you name."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import click

from costtrace import model
from costtrace.cli import compiled, permodel
from costtrace.cli.waiting import working
from costtrace.errors import UsageError
from costtrace.report.output import FORMATS

WHAT_IF = click.Option(
    ["--what-if", "what_if"], multiple=True, metavar="CHANGE",
    help="What a change saves: int8:SCOPE,SCOPE, fp8:, w8a16:, fuse: or flash: and scopes; hoist, hoist:STAGE or "
    "hoist:SCOPE; chip:NAME; chips:N; any option of the model, as in steps:2. May be repeated; the last row is all.",
)  # fmt: skip
OWN: tuple[click.Option, ...] = (
    click.Option(["--chip"], default="v6e", show_default=True, metavar="NAME", help="Chip, or path of its TOML file."),
    click.Option(["--chips"], type=click.IntRange(1), default=1, show_default=True, metavar="N",
                 help="Several chips: each stage by its best strategy, and the others beside it."),
    WHAT_IF,
    click.Option(["--compiled"], is_flag=True, help="What each saves as the chip's own compiler predicts, too."),
    click.Option(["--format"], type=click.Choice(FORMATS), default="text", show_default=True,
                 help="json, csv and tsv are in seconds, with every digit."),
)  # fmt: skip


def command_of(name: str) -> click.Command:
    """The advice on one model, with the model's own options."""
    found = model.find(name)
    if clash := sorted({option.name for option in OWN if option.name} & found.options().keys()):
        raise UsageError(f"model {found.name}: its option {clash[0]!r} is advise's own: give the field another name")

    def callback(**options: Any) -> None:
        values = {key: value for key in found.options() if (value := options.pop(key)) is not None}
        click.echo(answer(found, values, options["chip"], options["chips"], options))

    own = [permodel.option_of(field) for field in found.options().values()]
    return click.Command(name, params=[*own, *OWN], callback=callback, help=f"Advice on {name}: {found.title}")


def show(found: model.Model, some: Sequence[Mapping[str, str | None]], options: Mapping[str, Any]) -> None:
    """What the changes of --what-if save in each configuration of a model, on each of --chip and --chips."""
    from costtrace import chip
    from costtrace.cli.strategies import counts

    for name in ("strategy", "mesh", "train", "explain"):
        if options[name]:
            raise UsageError(
                f"--{name} {options[name]}: with --what-if there is only a table: leave one of the two out"
            )
    names, sizes = options["chip"].split(","), counts(options["chips"] or "1")
    if len(some) * len(names) * len(sizes) > 1 and options["format"] == "json":
        raise UsageError("--what-if with --format json answers for one configuration on one chip: ask for each alone")
    for name in names:
        chip.load(name)
    texts = []
    for values, name, n in itertools.product(some, names, sizes):
        given = {key: value for key, value in values.items() if value is not None}
        texts.append(answer(found, given, name, n, options))
    click.echo("\n\n".join(texts))


def answer(
    found: model.Model, values: Mapping[str, str], chip_name: str, chips: int, options: Mapping[str, Any]
) -> str:
    """The advice on one configuration, or what the changes of --what-if save, in the form that the options ask for."""
    from costtrace import advice, chip, scenario
    from costtrace.evidence import measured
    from costtrace.report import advice as report

    on, given = chip.load(chip_name), scenario.source(found)
    config, wanted = found.configure(**values), list(options["what_if"])
    with working(f"{found.name} on {chips} x {on.name}"):
        base, prediction = given.setting(values, on, chips), None
        if options["compiled"]:
            per_call = {stage: {scope: part.time_s for scope, part in each.items()}
                        for stage, each in compiled.parts(found, config, on.name).items()}  # fmt: skip
            prediction = scenario.prediction(base, per_call)
        adviser = advice.Adviser(base, given, prediction)
        if wanted:
            some = [adviser.tried([text]) for text in wanted] + ([adviser.tried(wanted)] if len(wanted) > 1 else [])
        else:
            rows = [row for row in measured.measurements() if row.model == found.name]
            some = adviser.advise({stage.name: stage.depth for stage in found.stages(config)}, rows)
    doc = report.document(found.name, found.shown(config), on, chips, some, adviser.now)
    return report.printed(doc, options["format"])


command = permodel.PerModel(
    "advise",
    command_of,
    own=OWN,
    help="What to do about a model on a chip, the largest saving first; --what-if tries what you name.",
    epilog="For example: costtrace advise klein --chip v6e --chips 8",
)
