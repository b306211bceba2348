"""flax.nnx: a module holds its variables; it is split into them and merged on traced ones. nnx opens no scopes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from costtrace.module.naming import Path, named
from costtrace.module.parts import Parts, loaded


def owns(x: Any) -> bool:
    nnx = loaded("flax.nnx")
    return nnx is not None and isinstance(x, nnx.Module)


def constructs(x: Any) -> bool:
    """True for a class of modules."""
    nnx = loaded("flax.nnx")
    return nnx is not None and isinstance(x, type) and issubclass(x, nnx.Module)


def seeds() -> dict[str, Any]:
    """What constructors ask for by name."""
    nnx = loaded("flax.nnx")
    return {"rngs": nnx.Rngs(0)} if nnx is not None else {}


def abstract(make: Callable[[], Any]) -> Any:
    """The module that `make` returns, its arrays abstract."""
    return loaded("flax.nnx").eval_shape(make)


def tree(module: Any) -> Iterable[tuple[Path, Any]]:
    return loaded("flax.nnx").iter_modules(module)


def base() -> Any:
    return loaded("flax.nnx").Module


def parts(module: Any) -> Parts:
    """Parameters (nnx.Param), and every other variable as state: running statistics, caches, random counters."""
    import jax

    nnx = loaded("flax.nnx")
    definition, weights, state = nnx.split(module, nnx.Param, ...)

    def build(weights: Any, state: Any) -> Any:
        return nnx.merge(definition, weights, state, copy=True)

    def changed(module: Any, state: Any) -> Any:
        _, _, after = nnx.split(module, nnx.Param, ...)
        pairs = zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=False)
        return [new for old, new in pairs if new is not old]

    def run(weights: Any, state: Any, method: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        module = build(weights, state)
        with named([module], tree, base()):
            out = getattr(module, method)(*args, **keywords)
        return out, changed(module, state)

    spec = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (weights, state))
    return Parts(spec[0], spec[1], run, build, changed)
