"""The options that every profiling command takes, and how its answer is printed."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from costtrace import chip
from costtrace.cli import compiled, files, strategies
from costtrace.errors import UsageError
from costtrace.report import explain
from costtrace.report.document import GROUPS, Answer, Document, Grouping, Stages, document
from costtrace.report.output import FORMATS, written
from costtrace.report.table import DATA
from costtrace.report.views import known

FORMAT = click.option("--format", type=click.Choice(FORMATS), default="text", show_default=True,
                      help="json, csv and tsv are in base units, with every digit.")  # fmt: skip
OPTIONS: tuple[click.Option, ...] = (
    click.Option(["--chip"], default="v6e", show_default=True, metavar="NAME[,NAME...]",
                 help="Chip, or path of a chip's TOML file; several stand side by side. See: costtrace chips"),
    click.Option(["--by"], type=click.Choice(list(GROUPS)), default="scope", show_default=True,
                 help="What a row is: a named scope, a primitive, a dtype ..."),
    click.Option(["--depth"], type=click.IntRange(1), metavar="N",
                 help="How deep rows go into nested scopes: of tables, the page's parts, the plot's points."),
    click.Option(["--layers", "--no-merge", "layers"], is_flag=True,
                 help="Numbered siblings (layers_0, layers_1) each on their own row."),
    click.Option(["--sort"], metavar="COLUMN", help="Rows by a column of the table, falling: flops, fused, share ..."),
    click.Option(["--top"], type=click.IntRange(1), metavar="N",
                 help="The N rows of each stage with the largest share, or the first by --sort; the rest as one."),
    click.Option(["--format"], type=click.Choice(FORMATS), default="text", show_default=True,
                 help="json, csv and tsv are in FLOP, bytes and seconds, with every digit."),
    click.Option(["--unit"], type=click.Choice(["flop", "mac"]), default="flop", show_default=True,
                 help="mac: tables show multiply-adds of products instead of FLOPs."),
    click.Option(["--efficiency"], is_flag=True, help="Times at measured rates, where the chip's file has them."),
    click.Option(["--explain"], metavar="ROW", help="One row's time as formulas, with every number's source."),
    *compiled.OPTIONS,
    *files.OPTIONS,
    click.Option(["--strict"], is_flag=True, help="An error where anything has no price, or the chip no rate."),
    click.Option(["--verbose", "-v"], is_flag=True, help="Every row and every note."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """One configuration of a program and the profiles of its stages."""

    name: str
    config: Mapping[str, Any]
    stages: Stages
    depths: Mapping[str, int]
    extra: Callable[[chip.Chip, bool], Mapping[str, Any]] | None = None
    """What the command adds to the document of a chip, with times at measured rates or not. Its
    `notes` join the rest."""
    programs: compiled.Programs | None = None
    """The stages' lowered programs, for --compiled."""
    beside: Callable[[chip.Chip], Mapping[str, Any]] | None = None
    """What other witnesses say of it, as fields of report.document's Answer, for --html."""


def show(runs: Iterable[Run], options: Mapping[str, Any]) -> None:
    """Prints the runs on every chip of --chip, in the form that the options ask for.

    Raises UsageError for a chip or a column that is not there, before the first run is made.
    """
    from costtrace.profiler import refused  # numpy and the rules, which --help does not need

    form = options["format"]
    answers: list[Answer] = []
    documents, explanations, compiles = [], [], []
    asked = compiled.wanted(options)
    chips = [chip.load(name) for name in options["chip"].split(",")]
    sort = known(options["sort"], options["by"], options["unit"])
    if options["explain"] and form not in ("text", "json"):
        raise UsageError(f"--explain with --format {form}: an explanation is text or json: leave --format out")
    for run in runs:
        if options["strict"]:
            for name, _, made in run.stages:
                refused(name, made.status, made.notes)
        grouping = Grouping(
            by=options["by"],
            depth=run.depths if options["depth"] is None else options["depth"],
            merge=(form not in DATA or bool(options["explain"])) and not options["layers"],
            efficiency=options["efficiency"],
        )
        for on in chips:
            beside = run.beside(on) if options["html"] and run.beside else {}
            answers.append(Answer(run.name, run.config, run.stages, grouping.depth, on, **beside))
            if options["explain"]:
                explanations += explain.explained(options["explain"], run.stages, on, grouping)
            else:
                more = dict(run.extra(on, options["efficiency"])) if run.extra else {}
                told = more.pop("notes", [])
                documents.append({**document(run.name, run.config, on, run.stages, grouping), **more})
                documents[-1]["notes"] += told
                if options["layers"]:
                    documents[-1]["notes"] += _scanned(documents[-1])
                if options["strict"]:
                    strategies.rated(n["text"] for n in documents[-1]["notes"] if n["kind"] == "missing-rate")
                if asked and run.programs:
                    one = compiled.compile_of(documents[-1], run.stages, run.programs, on, grouping, options)
                    compiles.append(one)
                    answers[-1] = dataclasses.replace(answers[-1], compiled=one.found)
    files.write(answers, options)
    if explanations:
        click.echo(explain.data(explanations) if form == "json" else explain.text(explanations))
        return
    if compiles:
        click.echo(compiled.shown(compiles, options))
        return
    if form not in ("text", "json") and any("training" in doc for doc in documents):
        click.echo(f"note: {form} has no room for phases, MFU and HFU: --format text or json has them", err=True)
    colour = form == "text" and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    wanted = {key: options[key] for key in ("unit", "top", "verbose")}
    click.echo(written(documents, form, colour=colour, sort=sort, **wanted), color=colour)


def _scanned(doc: Document) -> list[Document]:
    """The note that --layers cannot tell the trips of one body apart."""
    out = []
    for stage in doc["stages"]:
        often = [row for row in stage["rows"] if row["instances"] > 1 and "scope" in row]
        if often:
            text = (
                f"{often[0]['scope']} runs {often[0]['instances']} times under one name, as a scan's body does"
                + (f", and {len(often) - 1} more rows do so" if len(often) > 1 else "")
                + ": it is one row; blocks with names of their own have a row each"
            )
            out.append({"kind": "scanned", "stage": stage["name"], "scope": "", "text": text})
    return out
