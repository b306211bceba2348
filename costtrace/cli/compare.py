"""`costtrace compare MODEL --measured FILE`: measured beside modelled, and what the gap is made of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from costtrace.cli import permodel
from costtrace.cli.measure import FUNCTION, chosen, function_jobs
from costtrace.errors import UsageError
from costtrace.report.output import FORMATS

if TYPE_CHECKING:
    from costtrace import model
    from costtrace.evidence.compiled import Part
    from costtrace.measure.job import Job

OWN: tuple[click.Option, ...] = (
    click.Option(["--measured"], multiple=True, required=True, metavar="FILE|FOLDER",
                 help="What costtrace measure --out wrote, a jax.profiler trace, a JSON or CSV of scope and seconds, a "
                 "TOML of published rows. Several: runs of the same."),
    click.Option(["--chip"], metavar="NAME|FILE",
                 help="Whose rates: a calibrated file (costtrace calibrate), or a chip.  [default: v6e]"),
    click.Option(["--datasheet"], metavar="NAME", help="Whose floor, beside a calibrated --chip."),
    click.Option(["--compiled"], is_flag=True,
                 help="What the datasheet's chip's own compiler predicts: see costtrace setup."),
    click.Option(["--depth"], type=click.IntRange(1), metavar="N", help="How deep a trace's rows go into scopes."),
    click.Option(["--stage"], metavar="NAME[,NAME...]", help="Only these stages."),
    click.Option(["--format"], type=click.Choice(FORMATS), default="text", show_default=True,
                 help="json, csv and tsv are in base units, with every digit."),
)  # fmt: skip


def _of_model(found: model.Model, config: Any, options: dict[str, Any]) -> None:
    from costtrace.measure import job

    def given(values: Any) -> Any:
        """What follows from a recording's options: published rows have those that are not the default."""
        known = {key: value for key, value in values.items() if key in found.options()}
        texts = {key: "x".join(map(str, value)) if isinstance(value, list) else value for key, value in known.items()}
        return found.shown(found.configure(**texts))

    _run(job.of_model(found, config), found.name, found.shown(config), given, options, (found, config))


def _of_function(target: str) -> click.Command:
    def callback(**options: Any) -> None:
        jobs, head = function_jobs(target, options)
        _run(jobs, head["model"], head["config"], lambda values: values, options, None)

    return click.Command(target, params=[*FUNCTION, *OWN], callback=callback, help=f"Compare {target}.")


def _run(
    jobs: list[Job], name: str, config: Any, given: Any, options: dict[str, Any], made: tuple[Any, Any] | None
) -> None:
    from costtrace import chip, compare
    from costtrace.evidence import recording, xplane
    from costtrace.report import compare as report
    from costtrace.report.document import preamble

    jobs, some = chosen(jobs, options), []
    asked = chip.load(options["chip"]) if options["chip"] else None
    for text in options["measured"]:
        path = Path(text)
        one = recording.read(path, name, asked.name if asked else None) or xplane.recording(
            path, jobs, options["depth"]
        )
        compare.checked(one, name, config, None if one.config is None else given(one.config))
        some.append(one)
    on = asked or chip.load(next((one.chip for one in some if one.chip), "v6e"))
    paper = chip.load(options["datasheet"]) if options["datasheet"] else None
    compiled = _compiled(made, paper or on) if options["compiled"] else {}
    subjects = [compare.Subject(each, compiled.get(each.name)) for each in jobs]
    found = compare.compared(subjects, some, compare.On.of(on, paper), bool(options["stage"]))
    head = {**preamble(), "model": name, "config": config, "chip": on.name, "datasheet": paper.name if paper else None,
            "measured": [one.place for one in some]}  # fmt: skip
    click.echo(report.printed(found.document(head), options["format"]))


def _compiled(made: tuple[Any, Any] | None, on: Any) -> dict[str, dict[str, Part]]:
    from costtrace.cli import compiled

    if made is None:
        raise UsageError("--compiled is for models: leave it out, or ask costtrace trace --compiled")
    if on.grids:
        raise UsageError(
            f"--compiled with --chip {on.name}: no compiler is known for it: name the chip with --datasheet"
        )
    return compiled.parts(*made, on.name)


@click.command()
@click.option("--format", type=click.Choice(FORMATS), default="text", show_default=True,
              help="json, csv and tsv are in base units, with every digit.")  # fmt: skip
def published(format: str) -> None:
    """Published ratios of measured over modelled, with the floors made again from our own counts."""
    from costtrace.evidence import ratio
    from costtrace.report import compare as report
    from costtrace.report.document import preamble

    found = ratio.checked(ratio.ratios())
    click.echo(report.ratios({**preamble(), "rows": [one.to_dict() for one in found]}, format))


command = permodel.PerModel(
    "compare",
    lambda name: permodel.command_of(name, OWN, _of_model, "compare"),
    _of_function,
    {"published": published},
    own=OWN,
    help="Measured seconds beside floor, prediction by shape and compiled prediction, and what the gap is made of.",
)
