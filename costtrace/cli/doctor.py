"""`costtrace doctor`: what is installed, what is set up, where the cache lies, what is missing and how to get it."""

from __future__ import annotations

import click

from costtrace.cli.shared import FORMAT

FAIL = 1


@click.command()
@FORMAT
def command(format: str) -> None:
    """Versions, extras, compilers and cache of this installation; what is missing, and the command that gets it.

    Imports none of the packages that it looks for. Exit code 1 where something is missing that commands need.
    """
    from costtrace import installation
    from costtrace.report import doctor

    doc = doctor.document(installation.found())
    click.echo(doctor.printed(doc, format))
    if doc["problems"]:
        raise click.exceptions.Exit(FAIL)
