"""The program that tests/traces/toy.xplane.pb is a trace of: three runs on two cores, jax 0.10.2. A loop of three
blocks, each of two products with a norm between; jax.profiler.trace around jitted calls made it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def toy(w: dict[str, Any], x: Any) -> Any:
    def body(carry: Any, layer: dict[str, Any]) -> tuple[Any, None]:
        with jax.named_scope("block"):
            with jax.named_scope("up"):
                y = jax.nn.silu(carry @ layer["up"])
            with jax.named_scope("norm"):
                y = y / jnp.sqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)
            with jax.named_scope("down"):
                return carry + y @ layer["down"], None

    x, _ = lax.scan(body, x, w)
    with jax.named_scope("out"):
        return jnp.tanh(x)
