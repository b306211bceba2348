"""haiku: parameters and state come from an abstract init on the call's own arguments; haiku names its scopes itself."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from costtrace.arguments import name_of
from costtrace.errors import TraceError
from costtrace.module.inputs import Inputs, arrays
from costtrace.module.parts import Parts, differing, loaded, shaped


def owns(x: Any) -> bool:
    haiku = loaded("haiku")
    return haiku is not None and isinstance(x, haiku.Transformed | haiku.TransformedWithState)


def opened(transform: Any, method: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Parts:
    """A transform's parameters for a call on these (partly abstract) arguments; state where it has any; a random key is
    an input only where the call asks for one."""
    import jax

    inputs = Inputs(args, keywords)
    stateful = isinstance(transform, loaded("haiku").TransformedWithState)
    takes_key = "rng" in inspect.signature(transform.apply).parameters
    key = jax.eval_shape(lambda: jax.random.key(0))

    def initialised(inputs: Inputs) -> Any:
        def initial(key: Any, values: Any) -> Any:
            args, keywords = inputs.joined(values)
            return transform.init(key, *args, **keywords)

        initial.__name__ = name_of(function(transform) or transform)
        return shaped(initial, (key, inputs.values))

    try:
        made = initialised(inputs)
    except TraceError:  # haiku's batch norm makes its state in training mode only
        training = _training(args, keywords)
        if training == (args, keywords):
            raise
        made = initialised(Inputs(*training))
    weights, own = made if stateful else (made, {})
    state = {"state": own} if own else {}

    def run(weights: Any, state: Any, method: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        held = (state.get("state", {}),) if stateful else ()
        keys = (state.get("key"),) if takes_key else ()
        out = transform.apply(weights, *held, *keys, *args, **keywords)
        return (out[0], differing(held, out[1])) if stateful else (out, ())

    def attempt(weights: Any, state: Any, values: Any) -> Any:
        args, keywords = inputs.joined(values)
        return arrays(run(weights, state, method, args, keywords))

    attempt.__name__ = name_of(function(transform) or transform)
    try:
        shaped(attempt, (weights, state, inputs.values))
    except TraceError as e:
        if type(e.__cause__).__name__ != "MissingRNGError":
            raise
        state = {**state, "key": key}
    return Parts(weights, state, run)


def _training(args: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """The arguments with every False as True."""
    return tuple(True if x is False else x for x in args), {k: True if x is False else x for k, x in keywords.items()}


def function(transform: Any) -> Any:
    """The function that was transformed, found in the closures around it; None where there is none to be found."""
    for cell in getattr(inspect.unwrap(transform.apply), "__closure__", None) or ():
        held = cell.cell_contents
        if inspect.isfunction(held) and not held.__module__.startswith("haiku."):
            return held
        if owns(held) and (inside := function(held)) is not None:
            return inside
    return None
