"""flax.linen: variables come from an abstract init on the call's own arguments; linen names its scopes itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costtrace.errors import TraceError
from costtrace.module.inputs import Inputs, arrays
from costtrace.module.parts import Parts, loaded, shaped


def owns(x: Any) -> bool:
    linen = loaded("flax.linen")
    return linen is not None and isinstance(x, linen.Module)


def constructs(x: type) -> bool:
    """True for a class of modules."""
    linen = loaded("flax.linen")
    return linen is not None and issubclass(x, linen.Module)


def opened(module: Any, method: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Parts:
    """The module's variables for a call on these (partly abstract) arguments. Collections other than "params" are
    state, returned where the call writes them; a random key is an input only where the call asks for one."""
    import jax

    errors, inputs = loaded("flax.errors"), Inputs(args, keywords)
    key = jax.eval_shape(lambda: jax.random.key(0))

    def initial(key: Any, values: Any) -> Any:
        args, keywords = inputs.joined(values)
        return module.init({"params": key, "dropout": key}, *args, method=method, **keywords)

    initial.__name__ = type(module).__name__
    variables = shaped(initial, (key, inputs.values))
    boxed = loaded("flax.linen").meta.unbox(variables)
    weights = boxed.get("params", {})
    state: dict[str, Any] = {name: tree for name, tree in boxed.items() if name != "params"}
    written: list[str] = []

    def run(weights: Any, state: Any, method: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        held = {name: tree for name, tree in state.items() if name != KEY}
        rngs = {"params": state[KEY], "dropout": state[KEY]} if KEY in state else None
        mutable = written or False
        out = module.apply({"params": weights, **held}, *args, rngs=rngs, method=method, mutable=mutable, **keywords)
        return (out[0], dict(out[1])) if written else (out, ())

    def attempt(weights: Any, state: Any, values: Any) -> Any:
        args, keywords = inputs.joined(values)
        return arrays(run(weights, state, method, args, keywords))

    attempt.__name__ = type(module).__name__
    for _ in range(2):
        try:
            shaped(attempt, (weights, state, inputs.values))
        except TraceError as e:
            if isinstance(e.__cause__, errors.InvalidRngError) and KEY not in state:
                state = {**state, KEY: key}
            elif isinstance(e.__cause__, errors.ModifyScopeVariableError) and not written:
                written[:] = [name for name in state if name != KEY]
            else:
                raise
        else:
            break
    return Parts(weights, state, run)


KEY = "(key)"
"""Where the state holds the random key; no collection has such a name."""
