"""`costtrace schema [NAME]`: the JSON Schema of a document that costtrace writes."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("name", default="model", metavar="[model|runs|profile|diff|check|advise|...]")
def command(name: str) -> None:
    """The JSON Schema (2020-12) of a document that costtrace writes; by default a model's."""
    from costtrace.errors import UsageError
    from costtrace.report.schema import SCHEMAS

    if name not in SCHEMAS:
        raise UsageError(f"no schema {name!r}: there are {', '.join(SCHEMAS)}")
    click.echo(json.dumps(SCHEMAS[name], indent=2))
