"""equinox: a module is a pytree; its floating-point arrays are the weights. Its scopes give siblings one name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from costtrace.arguments import path_name
from costtrace.module.naming import Mark, Path, Tree, named
from costtrace.module.parts import Parts, loaded


def owns(x: Any) -> bool:
    equinox = loaded("equinox")
    return equinox is not None and isinstance(x, equinox.Module)


def constructs(x: Any) -> bool:
    """True for a class of modules."""
    equinox = loaded("equinox")
    return equinox is not None and isinstance(x, type) and issubclass(x, equinox.Module)


def seeds() -> dict[str, Any]:
    """What constructors ask for by name."""
    import jax

    return {"key": jax.random.key(0)}


def abstract(make: Callable[[], Any]) -> Any:
    """The module that `make` returns, its arrays abstract."""
    return loaded("equinox").filter_eval_shape(make)


def tree() -> Tree:
    """A mark is the docstring of the instance: equinox carries those of modules that wrap a function, and only those,
    through flattening. One that wraps a function keeps its own, and has no mark."""
    return Tree(_below, loaded("equinox").Module, lambda module, mark: module.__dict__.setdefault("__doc__", mark),
                lambda module: mark if isinstance(mark := module.__dict__.get("__doc__"), Mark) else None)  # fmt: skip


def _below(x: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Modules in fields, sequences and mappings, outermost first."""
    if owns(x):
        yield path, x
        for f in dataclasses.fields(x):
            if hasattr(x, f.name):
                yield from _below(getattr(x, f.name), (*path, f.name))
    elif isinstance(x, list | tuple):
        for i, item in enumerate(x):
            yield from _below(item, (*path, i))
    elif isinstance(x, dict):
        for key, item in x.items():
            yield from _below(item, (*path, str(key)))


def _array(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype")


def parts(module: Any) -> Parts:
    """Floating-point arrays as weights, other arrays as state, both by path; everything else is fixed."""
    import jax
    import jax.numpy as jnp

    equinox = loaded("equinox")
    arrays, fixed = equinox.partition(module, _array)
    leaves, structure = jax.tree_util.tree_flatten_with_path(arrays)
    spec = {path_name(at): jax.ShapeDtypeStruct(x.shape, x.dtype) for at, x in leaves}
    weights = {name: x for name, x in spec.items() if jnp.issubdtype(x.dtype, jnp.inexact)}
    state = {name: x for name, x in spec.items() if name not in weights}

    def build(weights: Any, state: Any) -> Any:
        known = {**weights, **state}
        return equinox.combine(jax.tree.unflatten(structure, [known[name] for name in spec]), fixed)

    def run(weights: Any, state: Any, method: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        module = build(weights, state)
        with named([module], tree()):
            return getattr(module, method)(*args, **keywords), ()

    return Parts(weights, state, run, build)
