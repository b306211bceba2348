"""What a terminal shows while compilers work: which, and for how long. On stderr, so that answers stay clean."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import click

from costtrace.target.worker import Progress

EVERY_S = 0.2
LINE_EVERY_S = 10.0
"""Where stderr is no terminal: a line now and then."""
WIDTH = 100


@contextlib.contextmanager
def progress(quiet: bool = False) -> Iterator[Progress]:
    """A Progress for worker.run; the line it drew is gone afterwards."""
    shown = sys.stderr.isatty()
    last, drawn = [0.0], [0]

    def told(running: Sequence[tuple[str, float]]) -> None:
        now = time.monotonic()
        if quiet or not running or now - last[0] < (EVERY_S if shown else LINE_EVERY_S):
            return
        first, last[0] = last[0] == 0.0, now
        if first and not shown:
            return  # nothing to say of what is quick
        text = "compiling " + ", ".join(f"{label} ({seconds:.0f} s)" for label, seconds in running)
        text = text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."
        click.echo(f"\r{text.ljust(drawn[0])}" if shown else text, err=True, nl=not shown)
        drawn[0] = len(text)

    try:
        yield told
    finally:
        if shown and drawn[0]:
            click.echo(f"\r{' ' * drawn[0]}\r", err=True, nl=False)


@contextlib.contextmanager
def working(label: str) -> Iterator[None]:
    """Names on a terminal what takes a while, until it is done."""
    shown = sys.stderr.isatty()
    if shown:
        click.echo(f"{label[:WIDTH]} ...", err=True, nl=False)
    try:
        yield
    finally:
        if shown:
            click.echo(f"\r{' ' * (min(len(label), WIDTH) + 4)}\r", err=True, nl=False)


@contextlib.contextmanager
def counted() -> Iterator[Callable[[str, int, int], None]]:
    """told(what, done, of) for work of many pieces: a line that is drawn over, or one now and then."""
    shown = sys.stderr.isatty()
    start = time.monotonic()
    last, drawn = [0.0], [0]

    def told(what: str, done: int, of: int) -> None:
        now = time.monotonic()
        if now - last[0] < (EVERY_S if shown else LINE_EVERY_S):
            return
        last[0] = now
        text = f"{done} of {of}, {now - start:.0f} s: {what}"
        click.echo(f"\r{text.ljust(drawn[0])}" if shown else text, err=True, nl=not shown)
        drawn[0] = len(text)

    try:
        yield told
    finally:
        if shown and drawn[0]:
            click.echo(f"\r{' ' * drawn[0]}\r", err=True, nl=False)
