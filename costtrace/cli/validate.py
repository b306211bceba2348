"""`costtrace validate`: published measurements beside the floor and the compiler's prediction."""

from __future__ import annotations

from datetime import date

import click

from costtrace import disk
from costtrace.cli.shared import FORMAT
from costtrace.cli.waiting import progress
from costtrace.errors import UsageError


@click.command()
@click.option("--chip", metavar="NAME[,NAME...]", help="Only measurements on these chips.")
@click.option("--model", metavar="NAME[,NAME...]", help="Only measurements of these models.")
@click.option("--spread", is_flag=True, help="Each stage with its layers unrolled too.")
@click.option(
    "--record",
    is_flag=True,
    help="Keep the predictions, for the bands that later ones carry: measurements/predictions.toml.",
)
@FORMAT
def command(chip: str | None, model: str | None, spread: bool, record: bool, format: str) -> None:
    """Measured seconds beside the floor and what the chip's compiler predicts, with both ratios and mean errors."""
    from costtrace.evidence import band, measured, validation
    from costtrace.report import validate
    from costtrace.report.document import preamble
    from costtrace.target import cache

    if record and (chip or model):
        raise UsageError("--record keeps every row's prediction: leave --chip and --model out")
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
    pairs = [(row.measurement, row.predicted_s) for row in found if row.predicted_s is not None]
    head = {**preamble(), "left_out": [*left_out, *dict.fromkeys(answers.problems)],
            "bands": [one.to_dict() for one in band.bands(pairs)]}  # fmt: skip
    if record:
        path = measured.folder() / measured.PREDICTIONS
        try:
            disk.write(path, band.recorded(found, f"{date.today():%Y-%m}"))
        except OSError as e:
            raise UsageError(f"--record: {path}: {e.strerror}: it needs a checkout that can be written") from None
    click.echo(validate.printed(measured.document(found, head), format))
