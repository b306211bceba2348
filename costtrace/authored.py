"""Code of other authors while it runs: a user's function, model, claims or rule. It is trusted as code, not as manners.

`running()` makes its sys.exit an error like any other. On the command line, whose stdout is the answer's alone, what it
prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar

_APART: ContextVar[bool] = ContextVar("costtrace_prints_apart", default=False)


class Exited(Exception):
    """The code called sys.exit."""


@contextlib.contextmanager
def prints_apart() -> Iterator[None]:
    """Within, what authored code prints goes to stderr."""
    token = _APART.set(True)
    try:
        yield
    finally:
        _APART.reset(token)


@contextlib.contextmanager
def running() -> Iterator[None]:
    """Around every call of code that is not costtrace's own. Raises Exited where that calls sys.exit."""
    with contextlib.redirect_stdout(sys.stderr) if _APART.get() else contextlib.nullcontext():
        try:
            yield
        except SystemExit as e:
            said = "" if e.code is None else repr(e.code)
            raise Exited(f"it calls sys.exit({said}): let it return, or raise an error that says why") from e
