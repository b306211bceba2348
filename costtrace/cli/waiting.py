"""What a terminal shows while compilers work: which, and for how long. On stderr, so that answers stay clean."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from costtrace.target.worker import Progress

EVERY_S = 0.2
LINE_EVERY_S = 10.0
"""Where stderr is no terminal: a line now and then."""
WIDTH = 100


class _Line:
    """A line on stderr: on a terminal each one is drawn over the last and gone at the end, elsewhere they stay."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()
        self.last_s = 0.0
        self.drawn = 0

    def due(self) -> bool:
        """True where the last one stood long enough."""
        return time.monotonic() - self.last_s >= (EVERY_S if self.shown else LINE_EVERY_S)

    def draw(self, text: str) -> None:
        text = text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."
        click.echo(f"\r{text.ljust(self.drawn)}" if self.shown else text, err=True, nl=not self.shown)
        self.last_s, self.drawn = time.monotonic(), len(text)

    def keep(self, text: str) -> None:
        """A line that stays, whatever is drawn after it."""
        click.echo(f"\r{text.ljust(self.drawn)}" if self.shown else text, err=True)
        self.last_s, self.drawn = time.monotonic(), 0

    @contextlib.contextmanager
    def cleared(self) -> Iterator[None]:
        """While open, it may be drawn; afterwards a terminal shows nothing of it."""
        try:
            yield
        finally:
            if self.shown and self.drawn:
                click.echo(f"\r{' ' * self.drawn}\r", err=True, nl=False)


@contextlib.contextmanager
def progress(quiet: bool = False) -> Iterator[Progress]:
    """A Progress for worker.run; the line it drew is gone afterwards."""
    line = _Line()

    def told(running: Sequence[tuple[str, float]]) -> None:
        if quiet or not running or not line.due():
            return
        if not line.last_s and not line.shown:
            line.last_s = time.monotonic()
            return  # nothing to say of what is quick
        line.draw("compiling " + ", ".join(f"{label} ({seconds:.0f} s)" for label, seconds in running))

    with line.cleared():
        yield told


@contextlib.contextmanager
def working(label: str) -> Iterator[None]:
    """Names on a terminal what takes a while, until it is done."""
    with stepped() as told:
        told(f"{label} ...")
        yield


@contextlib.contextmanager
def stepped() -> Iterator[Callable[[str], None]]:
    """told(what) for one piece of work after the other, on a terminal."""
    line = _Line()
    with line.cleared():
        yield lambda what: line.draw(what) if line.shown else None


@dataclass(slots=True)
class Ticker:
    """What is under way, for how long. `told(what)` names the next piece of work, `noted(text)` is a line that stays;
    in between a line comes by itself, since one piece may be a single long call."""

    line: _Line = field(default_factory=_Line)
    start: float = field(default_factory=time.monotonic)
    what: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def told(self, what: str) -> None:
        with self.lock:
            self.what = what
            if self.line.shown:
                self._draw()

    def noted(self, text: str) -> None:
        with self.lock:
            self.line.keep(text)

    def tick(self, done: threading.Event) -> None:
        """Draws until `done`: each second on a terminal, else a line now and then."""
        while not done.wait(1.0 if self.line.shown else LINE_EVERY_S):
            with self.lock:
                self._draw()

    def _draw(self) -> None:
        if self.what:
            self.line.draw(f"{time.monotonic() - self.start:.0f} s: {self.what}")


@contextlib.contextmanager
def ticking() -> Iterator[Ticker]:
    """A Ticker for work whose pieces take long."""
    ticker, done = Ticker(), threading.Event()
    thread = threading.Thread(target=ticker.tick, args=(done,), daemon=True)
    with ticker.line.cleared():
        thread.start()
        try:
            yield ticker
        finally:
            done.set()
            thread.join()


@contextlib.contextmanager
def counted() -> Iterator[Callable[[str, int, int], None]]:
    """told(what, done, of) for work of many pieces: a line that is drawn over, or one now and then."""
    line = _Line()
    start = time.monotonic()

    def told(what: str, done: int, of: int) -> None:
        if line.due():
            line.draw(f"{done} of {of}, {time.monotonic() - start:.0f} s: {what}")

    with line.cleared():
        yield told
