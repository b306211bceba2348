"""flax.nnx: a module holds its variables, and a call may change any of them, its parameters too. It is split into them
and merged on traced ones; what is another array afterwards is a result. nnx opens no scopes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from costtrace.module.naming import Tree, named
from costtrace.module.parts import Parts, differing, loaded

MARK = "costtrace_path"


def owns(x: Any) -> bool:
    """True for modules, and for what else nnx changes in place: optimizers, metrics, streams of random numbers."""
    nnx = loaded("flax.nnx")
    return nnx is not None and isinstance(x, nnx.Pytree)


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


def tree() -> Tree:
    """A mark is an attribute of the module: nnx carries what is no variable through its transforms."""
    nnx = loaded("flax.nnx")
    return Tree(nnx.iter_modules, nnx.Module, lambda module, mark: setattr(module, MARK, mark),
                lambda module: getattr(module, MARK, None))  # fmt: skip


def parts(module: Any) -> Parts:
    """Parameters (nnx.Param), and every other variable as state: running statistics, caches, random counters."""
    import jax

    nnx = loaded("flax.nnx")
    definition, weights, state = nnx.split(module, nnx.Param, ...)

    def build(weights: Any, state: Any) -> Any:
        return nnx.merge(definition, weights, state, copy=True)

    def changed(module: Any, before: Any) -> Any:
        return differing(before, nnx.split(module)[1])

    def run(weights: Any, state: Any, method: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        module = build(weights, state)
        with named([module], tree()):
            out = getattr(module, method)(*args, **keywords)
        return out, changed(module, (weights, state))

    spec = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (weights, state))
    return Parts(spec[0], spec[1], run, build, changed)
