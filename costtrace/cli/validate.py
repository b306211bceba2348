"""`costtrace validate`: published measurements beside the floor and the compiler's prediction."""

from __future__ import annotations

import click

from costtrace.cli.shared import FORMAT
from costtrace.cli.waiting import progress
from costtrace.errors import UsageError


@click.command()
@click.option("--chip", metavar="NAME[,NAME...]", help="Only measurements on these chips.")
@click.option("--model", metavar="NAME[,NAME...]", help="Only measurements of these models.")
@click.option("--spread", is_flag=True, help="Each stage with its layers unrolled too.")
@FORMAT
def command(chip: str | None, model: str | None, spread: bool, format: str) -> None:
    """Measured seconds beside the floor and what the chip's compiler predicts, with both ratios and mean errors."""
    from costtrace.evidence import measured, validation
    from costtrace.report import validate
    from costtrace.report.document import preamble
    from costtrace.target import cache

    rows = [
        row
        for row in measured.measurements()
        if (chip is None or row.chip in chip.split(",")) and (model is None or row.model in model.split(","))
    ]
    if not rows:
        raise UsageError(
            f"no measurement of {model or 'any model'} on {chip or 'any chip'}: there are "
            + ", ".join(sorted({f"{row.model} on {row.chip}" for row in measured.measurements()}))
        )
    answers = cache.Answers()
    with progress() as told:
        found, left_out = validation.validated(rows, answers, spread, progress=told)
    head = {**preamble(), "left_out": [*left_out, *dict.fromkeys(answers.problems)]}
    click.echo(validate.printed(measured.document(found, head), format))
