"""A program cut at its named scopes: the equations of one scope as a program of its own, and how often it runs.

What enters a piece is an argument of it, what others read of it is a result. A scope in a loop's body is cut out of the
body, once, with the loop's trips as its `times`; two of them that are one program are one piece.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from costtrace import dce
from costtrace.walk import SILENT


@dataclass(frozen=True, slots=True)
class Piece:
    """Equations of one scope that lie side by side: `fn(*arrays)` for arrays like `args`, run `times` in one call."""

    closed: Any
    times: int

    @property
    def args(self) -> tuple[Any, ...]:
        import jax

        return tuple(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in self.closed.jaxpr.invars)

    @property
    def key(self) -> str:
        """Equal for pieces that are one program."""
        return str(self.closed.jaxpr)

    def fn(self, *arrays: Any) -> Any:
        from jax.extend.core import jaxpr_as_fun

        return jaxpr_as_fun(self.closed)(*arrays)


@dataclass(slots=True)
class _Found:
    pieces: dict[str, list[Piece]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    """Scopes of which some lies in a loop whose trips depend on data, or in a branch: they have no piece."""


def pieces(closed: Any, scopes: Collection[str]) -> dict[str, list[Piece]]:
    """{scope: its pieces}; equal pieces are one, run as often as all of them. A scope that cannot be cut is left out:
    one inside a while loop or a branch, whose trips depend on data, or one that makes nothing that others read."""
    found = _Found()
    _cut(closed, "", 1, frozenset(scope for scope in scopes if scope), found)
    out: dict[str, list[Piece]] = {}
    for scope in scopes:
        some = found.pieces.get(scope, [])
        if not some or scope in found.unknown:
            continue
        by_key: dict[str, Piece] = {}
        for piece in some:
            have = by_key.get(piece.key)
            by_key[piece.key] = piece if have is None else Piece(have.closed, have.times + piece.times)
        out[scope] = list(by_key.values())
    return out


def within(path: str, scope: str) -> bool:
    """True where `path` is `scope` or lies in it."""
    return path == scope or path.startswith(f"{scope}/")


def _cut(closed: Any, above: str, times: int, wanted: frozenset[str], found: _Found) -> None:
    jaxpr = dce.opened(closed)
    consts = dict(zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=False))
    paths = [_path(above, eqn) for eqn in jaxpr.eqns]
    for scope in wanted:
        inside = [eqn for eqn, path in zip(jaxpr.eqns, paths, strict=True) if within(path, scope)]
        if inside:
            piece = _piece(jaxpr, inside, consts, times)
            if piece is not None:
                found.pieces.setdefault(scope, []).append(piece)
    for eqn, path in zip(jaxpr.eqns, paths, strict=True):
        deeper = frozenset(scope for scope in wanted if not within(path, scope) and (not path or within(scope, path)))
        if deeper:
            _inside(eqn, path, times, deeper, found)


def _inside(eqn: Any, path: str, times: int, wanted: frozenset[str], found: _Found) -> None:
    """Looks for the scopes in the programs that an equation runs."""
    name = eqn.primitive.name
    if name == "scan":
        _cut(eqn.params["jaxpr"], path, times * eqn.params["length"], wanted, found)
    elif name in ("while", "cond"):
        bodies = [eqn.params["body_jaxpr"]] if name == "while" else list(eqn.params["branches"])
        seen = _Found()
        for body in bodies:
            _cut(body, path, times, wanted, seen)
        found.unknown |= seen.pieces.keys() | seen.unknown
    else:
        inner = dce.inner(eqn)
        if inner is not None:
            _cut(inner, path, times, wanted, found)


def _path(above: str, eqn: Any) -> str:
    names = [above] if above else []
    for each in eqn.source_info.name_stack.stack:
        if type(each).__name__ == "Transform" or each.name == "rematted_computation" or SILENT.match(each.name):
            continue
        names.append(each.name)
    return "/".join(names)


def _piece(jaxpr: Any, eqns: list[Any], consts: dict[Any, Any], times: int) -> Piece | None:
    from jax.extend.core import ClosedJaxpr

    own = {id(eqn) for eqn in eqns}
    made = {var for eqn in eqns for var in eqn.outvars}
    entering = dict.fromkeys(var for eqn in eqns for var in _variables(eqn.invars) if var not in made)
    read = {var for eqn in jaxpr.eqns if id(eqn) not in own for var in _variables(eqn.invars)}
    read |= set(_variables(jaxpr.outvars))
    leaving = [var for eqn in eqns for var in eqn.outvars if var in read]
    if not leaving:
        return None
    known = [var for var in entering if var in consts]
    free = [var for var in entering if var not in consts]
    cut = jaxpr.replace(constvars=known, invars=free, outvars=leaving, eqns=eqns, debug_info=_no_names(jaxpr, free))
    return Piece(ClosedJaxpr(cut, [consts[var] for var in known]), times)


def _no_names(jaxpr: Any, invars: list[Any]) -> Any:
    """The debug info without names of arguments and results, which are others now."""
    return jaxpr.debug_info._replace(arg_names=None, result_paths=None)


def _variables(some: Any) -> Iterator[Any]:
    return (var for var in some if not hasattr(var, "val"))
