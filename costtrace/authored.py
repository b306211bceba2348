"""Code of other authors while it runs: a user's function, model, claims or rule. It is trusted as code, not as manners.

`running()` makes its sys.exit an error like any other. On the command line, whose stdout is the answer's alone, what it
prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType

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


class _AsItIs(SourceFileLoader):
    """Bytecode is told from its file by the second and the length: one that was just edited may look the same."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def module_spec(name: str, path: Path) -> tuple[ModuleSpec, SourceFileLoader]:
    """(what importlib makes a module of, its loader) of a file as it is now; nothing is written beside it."""
    loader = _AsItIs(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None  # it has a loader
    return spec, loader
