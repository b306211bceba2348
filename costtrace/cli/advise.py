"""`costtrace advise MODEL`: what to do about it, the largest saving first; `--what-if` tries what you name."""

from __future__ import annotations

from typing import Any

import click

from costtrace import model
from costtrace.cli.audit import option_of
from costtrace.errors import UsageError
from costtrace.report.output import FORMATS

OWN: tuple[click.Option, ...] = (
    click.Option(["--chip"], default="v6e", show_default=True, metavar="NAME", help="Chip, or path of its TOML file."),
    click.Option(["--chips"], type=click.IntRange(1), default=1, show_default=True, metavar="N",
                 help="Several chips: strategies are tried for each stage too."),
    click.Option(["--what-if", "what_if"], multiple=True, metavar="CHANGE",
                 help="Only this: int8:SCOPE,SCOPE or w8:SCOPE, fuse:NAME,NAME, hoist or hoist:STAGE. May be repeated; "
                 "the last row is all of them together."),
    click.Option(["--format"], type=click.Choice(FORMATS), default="text", show_default=True,
                 help="json, csv and tsv are in seconds, with every digit."),
)  # fmt: skip


def command_of(name: str) -> click.Command:
    """The advice on one model, with the model's own options."""
    found = model.find(name)
    if clash := sorted({option.name for option in OWN if option.name} & found.options().keys()):
        raise UsageError(f"model {found.name}: its option {clash[0]!r} is advise's own: give the field another name")

    def callback(**options: Any) -> None:
        _run(found, found.configure(**{key: options.pop(key) for key in found.options()}), options)

    own = [option_of(field) for field in found.options().values()]
    return click.Command(name, params=[*own, *OWN], callback=callback, help=f"Advice on {name}: {found.title}")


def _run(found: model.Model, config: Any, options: dict[str, Any]) -> None:
    from costtrace import advice, chip, whatif
    from costtrace.profiler import folded
    from costtrace.report import advice as report
    from costtrace.trace import trace

    on, stages = chip.load(options["chip"]), found.stages(config)
    traced = []
    for stage in stages:
        fn, args = model.bind(stage)
        made = trace(fn, *args, weights=0)
        traced.append(whatif.Stage(stage.name, stage.calls, made, folded(made)))
    if options["what_if"]:
        some = advice.together(options["what_if"], traced, on)
    else:
        some = advice.advise(traced, on, {stage.name: stage.depth for stage in stages}, options["chips"])
    doc = report.document(found.name, found.shown(config), on, options["chips"], some)
    click.echo(report.printed(doc, options["format"]))


class Advices(click.Group):
    """A command for every model, and for every path of a model's file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(model.names())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command_of(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Models (costtrace advise MODEL --help shows its options), or a model's file"):
            formatter.write_dl(sorted(model.names().items()))


command = Advices(
    "advise",
    help="What to do about a model on a chip, the largest saving first; --what-if tries what you name.",
    epilog="For example: costtrace advise klein --chip v6e --chips 8",
    subcommand_metavar="MODEL [OPTIONS]",
    no_args_is_help=False,
)
