"""A small program traced as a stage, for what-ifs and advice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from costtrace import chip
from costtrace.profiler import folded
from costtrace.trace import trace
from costtrace.whatif import Stage

V6E = chip.load("v6e")
M, K, N = 4096, 2048, 8192
BYTES = 2
BF16_PER_S, INT8_PER_S, HBM_PER_S = 918e12, 1836e12, 1638e9
shape = jax.ShapeDtypeStruct


def staged(fn: Callable[..., Any], *args: Any, calls: int = 1, weights: int | None = 0) -> Stage:
    made = trace(fn, *args, weights=weights)
    return Stage(fn.__name__, calls, made, folded(made))


def mlp(w: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    with jax.named_scope("up"):
        y = x @ w["up"]
    with jax.named_scope("act"):
        y = jax.nn.relu(y)
    with jax.named_scope("down"):
        return y @ w["down"]


def large() -> Stage:
    """Two large products and a ReLU between them, three calls."""
    weights = {"up": shape((K, N), "bfloat16"), "down": shape((N, K), "bfloat16")}
    return staged(mlp, weights, shape((M, K), "bfloat16"), calls=3)
