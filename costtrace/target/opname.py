"""An HLO op_name -> the scope it came from. 'jit(dit)/while/body/closed_call/single/linear1/dot_general' is in
'single/linear1'. Given the scopes of a profile, the deepest one that the name passes through; else by what jax adds."""

from __future__ import annotations

import re
from collections.abc import Collection

from costtrace.core import BACKWARD, FORWARD, RECOMPUTE

COMPILER = "(compiler)"
"""The row of kernels that no rule gives to a scope."""

_WRAPPED = re.compile(r"^(jvp|transpose|vmap|pmap|remat|checkpoint|linearize|cond_fun|body_fun)\((.*)\)$")
_ADDED = re.compile(
    r"^(?:p?jit\(.*\)|pjit|while|body|cond|closed_call|core_call|call_exported|eval_jaxpr|scan|shard_map|checkpoint|remat2?|"
    r"rematted_computation|branch_\d+_fun|custom_jvp_call|custom_vjp_call|custom_vjp_call_jaxpr|custom_lin|xla_call|"
    r"[\w. ]*(?:,[\w. ]*)*->[\w. ]*|)$"
)
_AGAIN = re.compile(r"transpose\((?!\w+\()")
_TRANSPOSED = re.compile(r"(?:\w+\()*transpose\(")
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
    path = path.partition(_EXPORTED)[2] if _EXPORTED in path else path.removesuffix("/call_exported")
    at = path.find("/(")
    return path if at < 0 else f"{path[:at]}/{path[at + 2 :].partition(':')[0].removesuffix(')')}"


def joined(above: str, name: str) -> str:
    """A name as the program's entry would say it: one that is relative to its call gets the caller's, `above`, before
    it. (jax names the operations of a function that it lowers once from that function down.)"""
    if not above or not name or name.startswith(above):
        return name or above
    return name if name.startswith(f"{split(plain(above))[0]}/") else f"{above}/{name}"


def components(path: str) -> list[str]:
    """What may be scopes of a name: its parts but the last (the primitive), transform wrappers taken off."""
    out: list[str] = []
    for part in split(plain(path))[:-1]:
        while found := _WRAPPED.match(part):
            part = found[2]
        out.extend(split(part) if "/" in part else [part])
    return out


def _once(path: str) -> list[str]:
    """The scopes of a name. jax says those around a derivative of one's own twice: f/transpose(f)/jvp(own)."""
    out: list[str] = []
    parts = _called_once(split(plain(path)))
    for k, part in enumerate(parts[:-1]):
        if _AGAIN.match(part) and out and _scopes(parts[k:])[: len(out)] == out:
            return out + _scopes(parts[k:])[len(out) :]
        out += _scopes([part, ""])
    return out


def _called_once(parts: list[str]) -> list[str]:
    """The parts of a name. From 0.12 jax says the scopes of a call in a rematerialised function twice:
    eval_jaxpr/mlp/mlp/jit(relu)."""
    for k, part in enumerate(parts):
        if part.startswith("jit(") and "eval_jaxpr" in parts[:k]:
            first = len(parts[:k]) - parts[:k][::-1].index("eval_jaxpr")
            half = (k - first) // 2
            if half and parts[first : first + half] == parts[first + half : k]:
                return parts[: first + half] + parts[k:]
    return parts


def _scopes(parts: list[str]) -> list[str]:
    return [name for name in components("/".join(parts)) if not _ADDED.match(name)]


def phase_of(path: str) -> str:
    """Forward, backward or recompute, by the marks of jax's gradient."""
    if "rematted_computation" in split(path):
        return RECOMPUTE
    return BACKWARD if any(_TRANSPOSED.match(part) for part in split(path)) else FORWARD


def scope_of(path: str, known: Collection[str] | None = None) -> str:
    """The scope path of an op_name, '' outside every scope. `known`: the scopes that there are."""
    if known is None:
        return "/".join(_once(path))
    at = ""
    for name in components(path):
        deeper = f"{at}/{name}" if at else name
        if deeper in known:
            at = deeper
    return at
