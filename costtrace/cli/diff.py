"""`costtrace diff A B`: what changed between two programs, scope by scope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from costtrace.cli import trace
from costtrace.cli.shared import FORMAT
from costtrace.cli.waiting import working
from costtrace.errors import UsageError

if TYPE_CHECKING:
    from costtrace.figure import Figures

OF_FUNCTIONS = ("given", "maker", "dim", "trips", "weights", "grad", "optimizer")
"""Options of `costtrace trace`, by their names there."""
TAKEN = [option for option in trace.OWN if isinstance(option, click.Option) and option.name in OF_FUNCTIONS]
QUANTITY = click.Option(["--by", "quantity"], default="pessimistic_s", show_default=True, metavar="QUANTITY",
                        help="What the largest change is of: flops, bytes_fused, bytes_scoped, floor_s.")  # fmt: skip
CHIP = click.Option(["--chip"], metavar="NAME", help="The chip of both; by default a file's own, v6e for a model.")
VERBOSE = click.Option(["--verbose", "-v"], is_flag=True, help="Every scope that differs.")
DEPTH = click.Option(["--depth"], type=click.IntRange(1), metavar="N",
                     help="How deep rows go into a program's nested scopes.")  # fmt: skip


def callback(
    before: str, after: str | None, quantity: str, chip: str | None, depth: int | None, format: str, verbose: bool,
    **of_functions: Any,
) -> None:  # fmt: skip
    """What changed between two programs, scope by scope, the largest change first.

    Each is SAVED.json, which --format json or Profile.to_json wrote; or MODEL[:OPTION=VALUE,...]; or FILE.py:FUNCTION
    with its arguments. FILE.py@REVISION[:OPTION=VALUE,...] and FILE.py:FUNCTION@REVISION are of a git revision, with
    all files of the repository as they were then. Without AFTER it is the first one's file as it is on disk.
    """
    from costtrace import diff, revision, subject
    from costtrace.cli import apart
    from costtrace.report import diff as report

    diff.ranked(quantity)
    given = _given(of_functions)
    if after is None:
        after = _without_revision(before)
    places = [revision.parsed(subject.parsed(text)[0]) for text in (before, after)]
    if given and not any(place and place.function for place in places):
        raise UsageError(f"{given[0]} is for a function, and neither side is one: write FILE.py:FUNCTION")
    deep = [] if depth is None else ["--depth", str(depth)]

    def opened(text: str, place: revision.Place | None) -> Figures:
        if place is None or not (place.function or place.revision):
            with working(f"tracing {text}"):
                return subject.opened(text, chip, depth)
        options = subject.parsed(text)[1]
        on = options.pop("chip", None) or chip
        if options and place.function:
            raise UsageError(f"{text}: a function has no options but chip: its arguments are --arg or --args")
        return apart.side(place, [*given, *deep], options, on, text)

    one, other = (opened(text, place) for text, place in zip((before, after), places, strict=True))
    if all(place and place.function for place in places):
        one.stages = dict(zip(other.stages, one.stages.values(), strict=True))  # one each, whatever its name
    doc = report.document(one, other, diff.diff(one, other, quantity), diff.totals(one, other, quantity), quantity)
    click.echo(report.printed(doc, format, verbose))


def _without_revision(text: str) -> str:
    from costtrace import revision, subject

    name, options = subject.parsed(text)
    place = revision.parsed(name)
    if place is None or not place.revision:
        raise UsageError(f"diff {text}: against what? give a second program, or a revision: FILE.py:FUNCTION@main")
    whole = place.file + (f":{place.function}" if place.function else "")
    return whole + (":" + ",".join(f"{key}={value}" for key, value in options.items()) if options else "")


def _given(options: dict[str, Any]) -> Sequence[str]:
    """The options of functions as they stand on a command line."""
    words: list[str] = []
    for option in TAKEN:
        value = options[str(option.name)]
        if value is True:
            words.append(option.opts[0])
        elif value:
            words += [
                word for each in ([value] if isinstance(value, str) else value) for word in (option.opts[0], each)
            ]
    return words


PARAMS = [
    click.Argument(["before"], metavar="BEFORE"),
    click.Argument(["after"], metavar="[AFTER]", required=False),
    *(QUANTITY, CHIP, DEPTH, *TAKEN),
]
command = FORMAT(click.Command("diff", params=PARAMS, callback=callback, help=callback.__doc__))
command.params.append(VERBOSE)
