"""`costtrace chips [NAME ...]`: chips side by side, or every number of one with its source."""

from __future__ import annotations

import click

from costtrace.cli.shared import FORMAT


@click.command()
@click.argument("name", required=False, nargs=-1)
@FORMAT
def command(name: tuple[str, ...], format: str) -> None:
    """All chips side by side, or some; one alone with every source.

    NAME is a chip, or the path of a chip's TOML file: docs/chips.md has every field, key and unit of one.
    """
    from costtrace import chip
    from costtrace.report import listing

    if len(name) == 1:
        click.echo(listing.one_chip(chip.load(name[0]), format))
    else:
        click.echo(listing.chips([chip.load(each) for each in name or chip.names()], format))
