"""Scopes by the module tree: while tracing, each call of a submodule stands in a scope of its path.

For libraries that open no scope (nnx) or give siblings one name (equinox). Methods are wrapped on their classes and
put back afterwards. A method other than __call__ is named after a dot, as linen does: "embedder.decode".
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from costtrace import doors

Path = tuple[str | int, ...]


class Mark(str):
    """A module's path, kept in the module: it stays there through a transform, where the module is another object.

    All marks are equal, so that a tree.map over two modules, or a branch that returns one of them, sees one structure.
    But not to jit, which would take its trace of one module for that of another, and so its rows.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mark) and (str.__eq__(self, other) or not doors.asked_by_a_cache())

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(Mark)

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(part for part in str.__str__(self).split("/") if part)


_marking = contextvars.ContextVar("_marking", default=True)


@contextlib.contextmanager
def unmarked() -> Iterator[None]:
    """While open, modules get no marks: for a program that joins a module which has one with what has none."""
    token = _marking.set(False)
    try:
        yield
    finally:
        _marking.reset(token)


@dataclass(frozen=True, slots=True)
class Tree:
    """How a library's modules hang together."""

    below: Callable[[Any], Iterable[tuple[Path, Any]]]
    """(path, submodule) of a module and all below it; its own path is ()."""
    base: type
    """The library's own class, whose methods are no user's."""
    mark: Callable[[Any, Mark], None]
    """Puts a mark into a module, which is a copy that the trace owns."""
    marked: Callable[[Any], Mark | None]


def written(path: Path) -> tuple[str, ...]:
    """('layers', 0, 'attn') -> ('layers[0]', 'attn'); names that are private to a wrapper ('_fun') are left out."""
    out: list[str] = []
    for part in path:
        if isinstance(part, int) and out:
            out[-1] += f"[{part}]"
        elif not str(part).startswith("_"):
            out.append(f"[{part}]" if isinstance(part, int) else str(part))
    return tuple(out)


class Naming:
    """Which module is open, and the path of each. A module met inside a transform (a scan over layers, a vmap) is a new
    object, with the mark of the old one. Without a mark it takes the path of the nearest known one of its class, else
    its class's name."""

    def __init__(self, roots: Iterable[Any], tree: Tree) -> None:
        self.tree, self.paths = tree, dict[int, tuple[str, ...]]()
        self.kept: list[Any] = []
        self.open: list[tuple[Any, tuple[str, ...]]] = [(None, ())]
        for root in roots:
            self.know(root, ())

    def know(self, root: Any, at: tuple[str, ...]) -> None:
        for path, module in self.tree.below(root):
            if id(module) not in self.paths:
                self.paths[id(module)] = (*at, *written(path))
                self.kept.append(module)
                if _marking.get() and self.tree.marked(module) is None:
                    self.tree.mark(module, Mark("/".join(self.paths[id(module)])))

    def path(self, module: Any) -> tuple[str, ...]:
        if id(module) not in self.paths and (mark := self.tree.marked(module)) is not None:
            self.paths[id(module)] = mark.path
            self.kept.append(module)
        if id(module) not in self.paths:
            _, above = self.open[-1]
            busy = {id(m) for m, _ in self.open}
            alike = [
                self.paths[id(m)]
                for m in self.kept
                if type(m) is type(module) and self.paths[id(m)][: len(above)] == above and id(m) not in busy
            ]
            nearest = [p for p in alike if len(p) == min(map(len, alike))]
            self.know(module, nearest[0] if len(set(nearest)) == 1 else (*above, *written((type(module).__name__,))))
        return self.paths[id(module)]

    @contextlib.contextmanager
    def entered(self, module: Any, method: str) -> Iterator[None]:
        """In the scopes that lead from the open module to this one."""
        import jax

        known, above = self.open[-1]
        if known is module:
            yield
            return
        path = self.path(module)
        shared = next(
            (i for i, (a, b) in enumerate(zip(above, path, strict=False)) if a != b), min(len(above), len(path))
        )
        names = list(path[shared:])
        if names and method != "__call__":
            names[-1] += f".{method}"
        self.open.append((module, path))
        try:
            with contextlib.ExitStack() as scopes:
                for name in names:
                    scopes.enter_context(jax.named_scope(name))
                yield
        finally:
            self.open.pop()


@contextlib.contextmanager
def named(roots: list[Any], tree: Tree) -> Iterator[None]:
    """While open, methods of the modules under `roots`, copies that the trace owns, stand in scopes of their paths."""
    naming = Naming(roots, tree)
    classes = {type(module): None for module in naming.kept}
    before: list[tuple[type, str, Any]] = []
    try:
        for cls in classes:
            for name in _methods(cls, tree.base):
                raw = inspect.getattr_static(cls, name)
                before.append((cls, name, cls.__dict__.get(name)))
                setattr(cls, name, _scoped(naming, name, raw))
        yield
    finally:
        for cls, name, own in reversed(before):
            if own is None:
                delattr(cls, name)
            else:
                setattr(cls, name, own)


def _methods(cls: type, base: type) -> list[str]:
    own = [n for n in dir(cls) if n == "__call__" or not (n.startswith("_") or hasattr(base, n))]
    return [n for n in own if isinstance(inspect.getattr_static(cls, n), types.FunctionType)]


def _scoped(naming: Naming, name: str, method: Any) -> Any:
    inside = _unnamed(method)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **keywords: Any) -> Any:
        with naming.entered(self, name):
            return inside(self, *args, **keywords)

    return call


def _unnamed(method: Any) -> Any:
    """The method without a scope of one name for all siblings, as equinox's @named_scope("eqx.nn.Linear")."""
    return method.__wrapped__ if getattr(method, "__code__", None) is _scope_code() else method


@functools.cache
def _scope_code() -> Any:
    """The code that jax.named_scope wraps a function in."""
    import jax

    return jax.named_scope("any")(lambda: None).__code__
