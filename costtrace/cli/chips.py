"""`costtrace chips [NAME]`: the chips side by side, or every number of one with its source."""

from __future__ import annotations

import click

from costtrace.cli.shared import FORMAT


@click.command()
@click.argument("name", required=False)
@FORMAT
def command(name: str | None, format: str) -> None:
    """All chips side by side, or one with every source.

    NAME is a chip, or the path of a chip's TOML file.
    """
    from costtrace import chip
    from costtrace.report import listing

    if name is None:
        click.echo(listing.chips([chip.load(each) for each in chip.names()], format))
    else:
        click.echo(listing.one_chip(chip.load(name), format))
