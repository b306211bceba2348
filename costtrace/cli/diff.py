"""`costtrace diff A B`: what changed between two programs, scope by scope."""

from __future__ import annotations

import click

from costtrace.cli.shared import FORMAT

HELP = "SAVED.json|MODEL[:OPTION=VALUE,...]"


@click.command()
@click.argument("before", metavar=HELP)
@click.argument("after", metavar=HELP)
@click.option(
    "--by",
    "quantity",
    default="pessimistic_s",
    show_default=True,
    metavar="QUANTITY",
    help="What the largest change is of: flops, bytes_fused, bytes_scoped, floor_s ...",
)
@click.option("--chip", metavar="NAME", help="The chip of both; by default a file's own, v6e for a model.")
@click.option("--depth", type=click.IntRange(1), metavar="N", help="How deep rows go into a model's nested scopes.")
@FORMAT
@click.option("--verbose", "-v", is_flag=True, help="Every scope that differs.")
def command(
    before: str, after: str, quantity: str, chip: str | None, depth: int | None, format: str, verbose: bool
) -> None:
    """What changed between two programs, scope by scope, the largest change first.

    Each is a file that --format json or Profile.to_json wrote, or a model with its options:

    costtrace diff klein klein:res=1360x768; costtrace diff klein klein:chip=h100; costtrace diff old.json new.json
    """
    from costtrace import diff, subject
    from costtrace.figure import quantity_of
    from costtrace.report import diff as report

    quantity_of(quantity)
    one, other = (subject.opened(text, chip, depth) for text in (before, after))
    doc = report.document(one, other, diff.diff(one, other, quantity), diff.totals(one, other), quantity)
    click.echo(report.printed(doc, format, verbose))
