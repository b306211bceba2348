"""What a library's module is made of: its weights, its other arrays, and how it is called on them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from costtrace.trace import jaxpr_of


@dataclass(frozen=True, slots=True)
class Parts:
    """A module taken apart. `weights` and `state` are pytrees of abstract arrays (state: whatever is no parameter).

    run(weights, state, method, args, keywords) -> (result, arrays of the module that the call changed).
    """

    weights: Any
    state: Any
    run: Callable[[Any, Any, str, tuple[Any, ...], Mapping[str, Any]], tuple[Any, Any]]
    build: Callable[[Any, Any], Any] | None = None
    """(weights, state) -> the module itself, where it holds its own weights: then it may also be an argument."""
    changed: Callable[[Any, Any], Any] = lambda module, before: ()
    """(module, the arrays it was built on) -> arrays of it that are others by now: what a call changed in place."""


def loaded(name: str) -> Any:
    """A library that the user's code imported, else None: costtrace imports none of them."""
    return sys.modules.get(name)


def differing(before: Any, after: Any) -> list[Any]:
    """The leaves of `after` that are other arrays than those of `before`."""
    import jax

    known = {id(leaf) for leaf in jax.tree.leaves(before)}
    return [leaf for leaf in jax.tree.leaves(after) if id(leaf) not in known]


def shaped(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """fn's result on abstract arguments, abstract. Raises TraceError where it fails, with its own line."""
    import jax

    trees = []

    def call(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(fn(*args))
        trees.append(tree)
        return leaves

    call.__name__ = fn.__name__
    found = jaxpr_of(call, args).out_avals
    return jax.tree.unflatten(trees[0], [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in found])
