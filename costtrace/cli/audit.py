"""`costtrace audit MODEL`: a hand count, XLA and a checkpoint held against the program."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import click

from costtrace import model
from costtrace.cli import compiled, permodel
from costtrace.cli.waiting import working
from costtrace.errors import UsageError
from costtrace.report.output import FORMATS

FAIL = 1
OWN: tuple[click.Option, ...] = (
    click.Option(
        ["--claims"],
        metavar="FILE.toml|FILE.py",
        help="Claims instead of the model's own: TOML, which is data, or Python with CLAIMS, which is run.",
    ),
    click.Option(
        ["--checkpoint"],
        multiple=True,
        metavar="[STAGE=]FILE",
        help="A .safetensors file or index, of which only the header is read.",
    ),
    click.Option(
        ["--map", "mapping"],
        metavar="FILE.json",
        help="The program's weights -> names in the checkpoint, where they are not found.",
    ),
    click.Option(
        ["--fail-on"],
        metavar="VERDICT[,VERDICT...]",
        help="Exit code 1 where a row, quote or checkpoint is such: differs, convention, missing ...",
    ),
    click.Option(["--compiled"], metavar="CHIP", help="A further column: what that chip's own compiler makes of it."),
    click.Option(["--explain"], metavar="ROW", help="A row's formulas with their values, rules and sources."),
    click.Option(
        ["--format"],
        type=click.Choice(FORMATS),
        default="text",
        show_default=True,
        help="json, csv and tsv are in FLOP and bytes, with every digit.",
    ),
    click.Option(["--verbose", "-v"], is_flag=True, help="Every quote and every finding."),
)


def command_of(name: str) -> click.Command:
    """The audit of one model, with the model's own options."""
    return permodel.command_of(name, OWN, functools.partial(_run, name), "audit")


def _run(name: str, found: model.Model, config: Any, options: dict[str, Any]) -> None:
    from costtrace import audit, checkpoint, claim
    from costtrace.report import audit as report

    if getattr(config, "scale", 1.0) != 1.0:
        raise UsageError(f"audit {name} --scale {config.scale}: claims are of the whole model: leave --scale out")
    claims = claim.load(options["claims"]) if options["claims"] else claim.find(name)
    wanted = audit.verdicts(options["fail_on"])
    files = [_stage_and_file(given) for given in options["checkpoint"]]
    for _, file in files:
        checkpoint.read(file)  # what is wrong with it is said before the audit's seconds
    witness = compiled.parts(found, config, options["compiled"]) if options["compiled"] else None
    with working(f"auditing {found.name}"):
        made = audit.audit(found, config, claims, witness)
    mapping = checkpoint.mapping_of(options["mapping"]) if options["mapping"] else {}
    for stage, file in files:
        audit.add_checkpoint(made, found, config, file, stage, mapping)
    if options["explain"]:
        click.echo(report.explain(made, options["explain"], claims.source))
    else:
        click.echo(report.text(made, options["format"], claims.origin or "no claims", options["verbose"]))
    if audit.failed(made, wanted):
        raise click.exceptions.Exit(FAIL)


def _stage_and_file(given: str) -> tuple[str, str]:
    """("vae", "ae.safetensors") of vae=ae.safetensors; no stage where a file has the whole name."""
    stage, _, file = given.partition("=") if "=" in given and not Path(given).is_file() else ("", "", given)
    return stage, file


command = permodel.PerModel(
    "audit", command_of, own=OWN, help="Hand counts, XLA and checkpoints, held against the program row by row."
)
