"""`costtrace measure MODEL`: the real forward on random weights, on the device at hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from costtrace import disk
from costtrace.cli import files, permodel
from costtrace.cli.number import Number
from costtrace.cli.waiting import ticking
from costtrace.errors import UsageError
from costtrace.report.output import FORMATS

if TYPE_CHECKING:
    from costtrace import model
    from costtrace.measure.job import Job

OWN: tuple[click.Option, ...] = (
    click.Option(["--depth"], type=click.IntRange(0), metavar="N",
                 help="How deep scopes are compiled apart; 0: the whole stages only.  [default: as in the table]"),
    click.Option(["--stage"], metavar="NAME[,NAME...]", help="Only these stages."),
    click.Option(["--seconds-each", "budget_s"], type=Number(0.01), default=1.0, show_default=True,
                 metavar="X", help="How long one timing may look for a steady median."),
    click.Option(["--trace", "folder"], metavar="FOLDER",
                 help="A jax.profiler trace of each stage, with its HLO, for costtrace compare --measured FOLDER."),
    click.Option(["--out"], metavar="FILE.json", help="The JSON into a file, the table on the screen."),
    click.Option(["--format"], type=click.Choice(FORMATS), default="text", show_default=True,
                 help="json, csv and tsv are in base units, with every digit."),
)  # fmt: skip
FUNCTION: tuple[click.Option, ...] = (
    click.Option(["--arg", "given"], multiple=True, metavar="[NAME=]DTYPE[SIZE,...]", help="As for costtrace trace."),
    click.Option(["--args", "maker"], metavar="FUNCTION", help="As for costtrace trace."),
    click.Option(["--dim"], multiple=True, metavar="NAME=N", help="As for costtrace trace."),
)


def _of_model(found: model.Model, config: Any, options: dict[str, Any]) -> None:
    from costtrace.measure import job

    jobs = chosen(job.of_model(found, config), options)
    _run(jobs, {"model": found.name, "config": found.shown(config)}, options, lambda: smaller(found, config, options))


def smaller(found: model.Model, config: Any, options: dict[str, Any]) -> Iterator[tuple[str, Sequence[Job]]]:
    """The same model at half the scale, and so on, where it has one."""
    from costtrace.measure import job, run

    by = getattr(config, "scale", None)
    while by is not None and by > run.SMALLEST:
        by /= 2
        values = {name: getattr(config, name) for name in found.options()} | {"scale": by}
        yield f"--scale {by:g}", chosen(job.of_model(found, found.configure(**values)), options)


def function_jobs(target: str, options: dict[str, Any]) -> tuple[list[Job], dict[str, Any]]:
    """A function of the user's own as the one job, and its head in a document."""
    from costtrace.cli.trace import sourced
    from costtrace.measure import job

    fn, args, config, _ = sourced(target, options["given"], options["maker"], None, options["dim"])
    jobs = job.of_function(fn, args)
    return jobs, {"model": jobs[0].name, "config": config}


def _of_function(target: str) -> click.Command:
    def callback(**options: Any) -> None:
        jobs, head = function_jobs(target, options)
        _run(jobs, head, options, lambda: iter(()))

    return click.Command(target, params=[*FUNCTION, *OWN], callback=callback, help=f"Measure {target}.")


def chosen(jobs: list[Job], options: dict[str, Any]) -> list[Job]:
    """The jobs that --stage names; all without it."""
    names = [job.name for job in jobs]
    wanted = options["stage"].split(",") if options["stage"] else names
    if unknown := [name for name in wanted if name not in names]:
        raise UsageError(f"--stage {unknown[0]}: no such stage: there are {', '.join(names)}")
    return [job for job in jobs if job.name in wanted]


def _run(
    jobs: Sequence[Job], head: dict[str, Any], options: dict[str, Any],
    smaller: Callable[[], Iterator[tuple[str, Sequence[Job]]]],
) -> None:  # fmt: skip
    from costtrace.measure import device, run
    from costtrace.measure.clock import Effort
    from costtrace.report import measure as report
    from costtrace.report.document import preamble

    if options["out"]:
        files.placed("--out", options["out"])
    run.refused(jobs, smaller, run.room())
    folder = Path(options["folder"]) if options["folder"] else None
    effort = Effort(budget_s=options["budget_s"])
    device.keep_memory()
    with ticking() as ticker:
        doc = run.measured(jobs, {**preamble(), **head}, options["depth"], effort, ticker.told, folder, ticker.noted)
    click.echo(report.printed(doc, options["format"]))
    if options["out"]:
        disk.keep({options["out"]: json.dumps(doc, indent=1) + "\n"})


command = permodel.PerModel(
    "measure",
    lambda name: permodel.command_of(name, OWN, _of_model, "measure"),
    _of_function,
    own=OWN,
    help="Runs the real forward on random weights on this machine's device: seconds by stage and by scope, compile, "
    "staging, memory, dispatch.",
)
