"""`costtrace models`: the models that are found by name."""

from __future__ import annotations

import click

from costtrace.cli.shared import FORMAT


@click.command()
@FORMAT
def command(format: str) -> None:
    """The models that costtrace knows by name, with their options."""
    from costtrace import model
    from costtrace.report import listing

    click.echo(listing.models(model.listed(), format))
