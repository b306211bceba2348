"""`costtrace calibrate`: what the device at hand can do, as a chip file of measured rates."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import click

from costtrace.cli import files
from costtrace.cli.number import Number
from costtrace.cli.waiting import counted
from costtrace.errors import UsageError


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("my-chip.toml"), show_default=True,
              metavar="FILE.toml", help="The chip file; the samples go beside it, as NAME.samples.json.")  # fmt: skip
@click.option("--quick", is_flag=True, help="Fewer sizes and samples: under a minute on two cores.")
@click.option("--noise", type=Number(0.01), default=0.15, show_default=True, metavar="SHARE",
              help="How far the clock may drift; the samples of a size may spread by twice that. 2 is 200 %: the file "
              "says how noisy it was.")  # fmt: skip
@click.option("--datasheet", metavar="CHIP", help="Whose peaks this device has; by default the chip of its name.")
@click.option("--format", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="json has every number, in base units.")  # fmt: skip
def command(out: Path, quick: bool, noise: float, datasheet: str | None, format: str) -> None:
    """Times products, convolutions, streams, elementwise work and launches on the device that jax computes on.

    The file is a chip like any other: costtrace klein --chip ./my-chip.toml. Nothing is written where the machine is
    too noisy to be timed. docs/calibrating.md says what is timed and how.
    """
    if not out.name.endswith(".toml"):
        raise UsageError(f"--out {out}: a chip file ends in .toml: write --out {out}.toml")
    files.placed("--out", out)
    from costtrace.measure import calibration, chipwriter, device
    from costtrace.report import calibrate

    device.keep_memory()
    at_hand = device.at_hand()
    sheet = device.datasheet(at_hand, datasheet)
    with counted() as told:
        done = calibration.Session(at_hand, quick, noise, told=told).run()
    samples = chipwriter.write(out, done, datetime.date.today().isoformat(), sheet)
    doc = calibrate.document(done, out, samples)
    click.echo(json.dumps(doc, indent=2) if format == "json" else calibrate.text(doc))
