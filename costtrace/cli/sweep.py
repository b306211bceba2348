"""`costtrace sweep MODEL`: many configurations, chips and numbers of chips, a row each."""

from __future__ import annotations

import sys
from typing import Any

import click

from costtrace import model
from costtrace.cli import files, permodel
from costtrace.cli.number import Number
from costtrace.errors import UsageError
from costtrace.report.output import FORMATS

BACKENDS = ("loky", "threading", "sequential", "dask")
OWN: tuple[click.Option, ...] = (
    click.Option(["--chip"], default="v6e", show_default=True, metavar="NAME[,NAME...]", help="Chips, or their files."),
    click.Option(["--chips"], default="1", show_default=True, metavar="N[,N...]", help="Numbers of chips."),
    click.Option(["--strategy"], metavar="NAME[,NAME...]", help="For several chips: the best of these; of all."),
    click.Option(["--price"], type=Number(0, min_open=True), metavar="USD",
                 help="Per hour and chip, instead of the chip files'."),
    click.Option(["--compiled"], is_flag=True,
                 help="One chip's seconds as its own compiler predicts them, too: costtrace setup first."),
    click.Option(["--plot"], metavar="FILE.svg|FILE.png", help="Seconds of every point, a line for each chip."),
    click.Option(["--jobs"], type=int, default=1, show_default=True, metavar="N", help="Processes; -1: one a core."),
    click.Option(["--backend"], type=click.Choice(BACKENDS), default="loky", show_default=True,
                 help="How joblib runs them; dask: on $DASK_SCHEDULER_ADDRESS, or a cluster of this machine."),
    click.Option(["--format"], type=click.Choice(FORMATS), default="text", show_default=True,
                 help="json, csv and tsv are in base units, with every digit."),
)  # fmt: skip


def command_of(name: str) -> click.Command:
    """The sweep of one model, each of the model's own options with several values."""
    found = model.find(name)
    if clash := sorted({option.name for option in OWN if option.name} & found.options().keys()):
        raise UsageError(f"model {found.name}: its option {clash[0]!r} is sweep's own: give the field another name")

    def callback(**options: Any) -> None:
        given = {key: options.pop(key) for key in found.options()}
        _run(name, {key: text.split(",") for key, text in given.items() if text is not None}, options)

    own = [permodel.option_of(field) for field in found.options().values()]
    return click.Command(name, params=[*own, *OWN], callback=callback, help=f"A sweep of {name}: {found.title}")


def _run(name: str, given: dict[str, list[str]], options: dict[str, Any]) -> None:
    from costtrace import sweep
    from costtrace.cli.strategies import counts
    from costtrace.report import sweep as report

    on, strategies = options["chip"].split(","), (options["strategy"] or "").split(",")
    jobs = sweep.jobs(
        name, given, on, counts(options["chips"]), [s for s in strategies if s and s != "all"], options["price"],
        options["compiled"],
    )  # fmt: skip
    answers = sweep.answers()
    if not answers.usable():
        for text in answers.problems:
            click.echo(f"costtrace: note: nothing is remembered: {text}", err=True)
    if options["plot"]:
        files.kind_of(options["plot"])
    shown = sys.stderr.isatty() and len(jobs) > 1

    def told(done: int, of: int) -> None:
        click.echo(f"\r{done} of {of} configurations{'' if done < of else chr(10)}", err=True, nl=False)

    def remembers(known: int) -> None:
        if known:
            click.echo(f"costtrace: note: {known} of {len(jobs)} configurations are remembered from an earlier sweep; "
                       "they are made anew where a file or a package changed", err=True)  # fmt: skip

    rows = sweep.sweep(jobs, options["jobs"], options["backend"], told if shown else None, remembers)
    if rows and all(row["error"] and row["flops"] is None for row in rows):
        more = f" (and {len(rows) - 1} more configurations that fail)" if len(rows) > 1 else ""
        raise UsageError(f"{rows[0]['error']}{more}")
    if options["plot"]:
        from costtrace.report import chart

        made = chart.sweep(name, rows, files.kind_of(options["plot"]))
        files.save({"plot": options["plot"]}, {"plot": made})
    click.echo(report.printed(report.document(name, rows), options["format"]))


command = permodel.PerModel(
    "sweep",
    command_of,
    own=OWN,
    help="Many configurations, chips and numbers of chips of a model, a row each.",
    epilog="For example: costtrace sweep klein --res 512x512,1360x768 --chip v6e,h100 --chips 1,8 --jobs 2",
)
