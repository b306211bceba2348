"""`--html FILE`, `--speedscope FILE` and the like: files for other programs to open, beside what is printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from costtrace import disk
from costtrace.cli.waiting import working
from costtrace.errors import UsageError

if TYPE_CHECKING:
    from costtrace.report.document import Answer

WEIGHTS = ("time", "flops", "bytes")
OPTIONS: tuple[click.Option, ...] = (
    click.Option(["--html"], metavar="FILE", help="One page with tables and charts, for a browser; needs no network."),
    click.Option(["--plot"], metavar="FILE.svg|FILE.png", help="The roofline with a point for each part."),
    click.Option(["--speedscope"], metavar="FILE", help="Flame graphs of time, FLOPs and bytes, for speedscope.app."),
    click.Option(["--collapsed"], metavar="FILE", help="Stacks for flame graph tools, weighed by --stack-by."),
    click.Option(["--stack-by"], type=click.Choice(WEIGHTS), default="time", show_default=True,
                 help="What --collapsed weighs stacks by; time in picoseconds."),
    click.Option(["--timeline"], metavar="FILE", help="The modelled timeline, a track a unit, for ui.perfetto.dev."),
    click.Option(["--graph"], metavar="FILE", help="Scopes and the bytes between them, as DOT for Graphviz."),
)  # fmt: skip


PLOTS = ("svg", "png")


def kind_of(plot: str) -> str:
    """The kind of a plot's file. Raises UsageError where its name ends in none of PLOTS."""
    kind = Path(plot).suffix[1:].lower()
    if kind not in PLOTS:
        raise UsageError(f"--plot {plot}: it writes SVG and PNG: give a name that ends in .svg or .png")
    return kind


def _plot(answer: Answer, options: Mapping[str, Any]) -> bytes:
    kind = kind_of(options["plot"])
    from costtrace.report import html

    return html.plot(answer, kind)


def _speedscope(answer: Answer, options: Mapping[str, Any]) -> str:
    from costtrace.report import flame

    return flame.speedscope(answer.name, answer.stages, answer.chip)


def _collapsed(answer: Answer, options: Mapping[str, Any]) -> str:
    from costtrace.report import flame

    return flame.collapsed(answer.name, answer.stages, answer.chip, options["stack_by"])


def _timeline(answer: Answer, options: Mapping[str, Any]) -> str:
    from costtrace.report import timeline

    return timeline.trace_events(answer.name, answer.stages, answer.chip)


def _graph(answer: Answer, options: Mapping[str, Any]) -> str:
    from costtrace.report import graph

    return graph.dot(answer.name, answer.stages, answer.chip, options["depth"])


WRITERS: dict[str, Callable[[Answer, Mapping[str, Any]], str | bytes]] = {
    "plot": _plot,
    "speedscope": _speedscope,
    "collapsed": _collapsed,
    "timeline": _timeline,
    "graph": _graph,
}
"""Option -> what its file holds."""


def checked(options: Mapping[str, Any]) -> None:
    """Raises UsageError where a file that is asked for cannot be written: said before anything is traced."""
    if options["plot"]:
        kind_of(options["plot"])
    _places({option: options[option] for option in ("html", *WRITERS) if options[option]})


def write(answers: Sequence[Answer], options: Mapping[str, Any]) -> None:
    """Writes every file that the options ask for; a page holds all answers, every other file one.

    Raises UsageError where a file cannot be written, or would have to hold several answers; then none is.
    """
    texts: dict[str, str | bytes] = {}
    if options["html"]:
        from costtrace.report import html

        with working(f"drawing {options['html']}"):
            texts["html"] = html.page(answers)
    for option, text in WRITERS.items():
        if not options[option]:
            continue
        if len(answers) != 1:
            raise UsageError(f"--{option} holds one configuration on one chip, not {len(answers)}: ask for each alone")
        with working(f"drawing {options[option]}"):
            texts[option] = text(answers[0], options)
    save({option: options[option] for option in texts}, texts)


def refused(options: Mapping[str, Any], why: str, but: str = "") -> None:
    """Raises UsageError where a file is asked for of an answer that has none, as of strategies."""
    for option in ("html", *WRITERS):
        if options[option] and option != but:
            raise UsageError(f"--{option} {options[option]}: {why}: leave one of the two out")


def placed(flag: str, path: str | Path, fix: str = "give the path of a file in a folder that is there") -> None:
    """Raises UsageError where no file can be written at `path`: asked before long work begins."""
    try:
        disk.writable(path)
    except OSError as e:
        raise UsageError(f"{flag} {path}: {e.strerror}: {fix}") from None


def save(paths: Mapping[str, str], contents: Mapping[str, str | bytes]) -> None:
    """All files or none."""
    _places(paths)
    try:
        disk.write_all({paths[option]: content for option, content in contents.items()})
    except OSError as e:
        room = "make room there, or " if e.errno in disk.FULL else ""
        raise UsageError(
            f"{', '.join(paths.values())} cannot be written: {e.strerror}: {room}give another path"
        ) from None


def _places(paths: Mapping[str, str]) -> None:
    for option, path in paths.items():
        if twice := [other for other in paths if other != option and Path(paths[other]) == Path(path)]:
            raise UsageError(f"--{option} {path}: --{twice[0]} writes there too: give each a path of its own")
        placed(f"--{option}", path, "give a path that can be written")
