"""`--speedscope FILE` and the like: files for other programs to open, written beside what is printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from costtrace.errors import UsageError

if TYPE_CHECKING:
    from costtrace.chip import Chip
    from costtrace.report.document import Stages

WEIGHTS = ("time", "flops", "bytes")
OPTIONS: tuple[click.Option, ...] = (
    click.Option(["--speedscope"], metavar="FILE.json", help="Flame graphs of time, FLOPs and bytes for speedscope.app."),
    click.Option(["--collapsed"], metavar="FILE", help="Collapsed stacks for flame graph tools, weighed by --weight."),
    click.Option(["--weight", "stack_weight"], type=click.Choice(WEIGHTS), default="time", show_default=True,
                 help="What --collapsed weighs stacks by."),
    click.Option(["--timeline"], metavar="FILE.json", help="The modelled timeline for ui.perfetto.dev, a track a unit."),
    click.Option(["--graph"], metavar="FILE.dot", help="Scopes and the bytes between them, as Graphviz DOT."),
)  # fmt: skip


def _speedscope(name: str, stages: Stages, chip: Chip, options: Mapping[str, Any]) -> str:
    from costtrace.report import flame

    return flame.speedscope(name, stages, chip)


def _collapsed(name: str, stages: Stages, chip: Chip, options: Mapping[str, Any]) -> str:
    from costtrace.report import flame

    return flame.collapsed(name, stages, chip, options["stack_weight"])


def _timeline(name: str, stages: Stages, chip: Chip, options: Mapping[str, Any]) -> str:
    from costtrace.report import timeline

    return timeline.trace_events(name, stages, chip)


def _graph(name: str, stages: Stages, chip: Chip, options: Mapping[str, Any]) -> str:
    from costtrace.report import graph

    return graph.dot(name, stages, chip, options["depth"])


WRITERS: dict[str, Callable[[str, Stages, Chip, Mapping[str, Any]], str]] = {
    "speedscope": _speedscope,
    "collapsed": _collapsed,
    "timeline": _timeline,
    "graph": _graph,
}
"""Option -> the text of its file, for one configuration on one chip."""


def wanted(options: Mapping[str, Any]) -> bool:
    """True where any file is asked for."""
    return any(options.get(name) for name in WRITERS)


def write(name: str, stages: Stages, chip: Chip, options: Mapping[str, Any]) -> None:
    """Writes every file that the options ask for. Raises UsageError where that cannot be done."""
    for option, text in WRITERS.items():
        if options.get(option):
            save(option, options[option], text(name, stages, chip, options))


def alone(runs: int, chips: int, options: Mapping[str, Any]) -> None:
    """Raises UsageError where one file would have to hold several answers."""
    if wanted(options) and runs * chips > 1:
        option = next(name for name in WRITERS if options.get(name))
        raise UsageError(f"--{option} holds one configuration on one chip, not {runs * chips}: ask for them one by one")


def save(option: str, path: str, text: str) -> None:
    """Raises UsageError with the option, the path and the reason."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as e:
        raise UsageError(f"--{option} {path}: {e.strerror}: give a path that can be written") from None
