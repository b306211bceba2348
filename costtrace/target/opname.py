"""An HLO op_name -> the scope it came from. 'jit(dit)/while/body/closed_call/single/linear1/dot_general' is in
'single/linear1'. Given the scopes of a profile, the deepest one that the name passes through; else by what jax adds."""

from __future__ import annotations

import re
from collections.abc import Collection

COMPILER = "(compiler)"
"""The row of kernels that no rule gives to a scope."""

_WRAPPED = re.compile(r"^(jvp|transpose|vmap|pmap|remat|checkpoint|linearize|cond_fun|body_fun)\((.*)\)$")
_ADDED = re.compile(
    r"^(?:p?jit\(.*\)|pjit|while|body|cond|closed_call|core_call|call_exported|eval_jaxpr|scan|shard_map|checkpoint|remat2?|"
    r"rematted_computation|branch_\d+_fun|custom_jvp_call|custom_vjp_call|custom_vjp_call_jaxpr|custom_lin|xla_call|"
    r"[\w. ]*(?:,[\w. ]*)*->[\w. ]*|)$"
)
_EXPORTED = "call_exported/"


def split(path: str) -> list[str]:
    """At slashes outside parentheses."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(path):
        depth += (c == "(") - (c == ")")
        if c == "/" and not depth:
            parts.append(path[start:i])
            start = i + 1
    return [*parts, path[start:]]


def plain(path: str) -> str:
    """The name without what an exported program's caller puts before it; of names merged as x/(a:b) the first."""
    path = path.rpartition(_EXPORTED)[2] if _EXPORTED in path else path.removesuffix("/call_exported")
    at = path.find("/(")
    return path if at < 0 else f"{path[:at]}/{path[at + 2 :].partition(':')[0].removesuffix(')')}"


def components(path: str) -> list[str]:
    """What may be scopes of a name: its parts but the last (the primitive), transform wrappers taken off."""
    out: list[str] = []
    for part in split(plain(path))[:-1]:
        while found := _WRAPPED.match(part):
            part = found[2]
        out.extend(split(part) if "/" in part else [part])
    return out


def scope_of(path: str, known: Collection[str] | None = None) -> str:
    """The scope path of an op_name, '' outside every scope. `known`: the scopes that there are."""
    names = components(path)
    if known is None:
        return "/".join(name for name in names if not _ADDED.match(name))
    at = ""
    for name in names:
        deeper = f"{at}/{name}" if at else name
        if deeper in known:
            at = deeper
    return at
