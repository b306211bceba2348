"""`costtrace check --budget FILE`: figures held to limits, for a CI."""

from __future__ import annotations

from pathlib import Path

import click

from costtrace.cli.shared import FORMAT
from costtrace.cli.waiting import working

FAIL = 1


@click.command()
@click.option(
    "--budget",
    "files",
    multiple=True,
    required=True,
    metavar="FILE.toml",
    type=click.Path(path_type=Path),
    help="A budget: program, chip and [[limit]] tables. Several may be given.",
)
@click.option("--program", metavar="SAVED.json|MODEL[:OPTION=VALUE,...]", help="Instead of the budget's own program.")
@click.option("--chip", metavar="NAME", help="Instead of the budget's own chip.")
@FORMAT
def command(files: tuple[Path, ...], program: str | None, chip: str | None, format: str) -> None:
    """Figures of scopes held to a budget; exit code 1 where a limit does not hold.

    --format md is a comment for a pull request. See docs/ci.md.
    """
    from costtrace import budget, subject
    from costtrace.report import diff as report

    found = []
    for text, each in budget.programs([(path, budget.load(path)) for path in files], program):
        with working(f"tracing {text}"):
            figures = subject.opened(text, chip or each.chip or None)
        found.append((figures, budget.checked(figures, each.limits)))
    doc = report.check_document(found)
    click.echo(report.check_printed(doc, format))
    if not doc["passed"]:
        for figures, lines in found:
            place = f"{figures.title}: " if len(found) > 1 else ""
            for line in lines:
                if not line.passed:
                    click.echo(f"costtrace: {place}{line.told()}", err=True)
        raise click.exceptions.Exit(FAIL)
