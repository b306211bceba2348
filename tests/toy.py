"""Small programs with their profiles, for what prints them."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from costtrace import chip
from costtrace.core import Cost, Note
from costtrace.profiler import Peak, Profile, Row, profile

V6E = chip.load("v6e")
M, K, N = 512, 1024, 4096


def part(w: Mapping[str, jax.Array], x: jax.Array) -> jax.Array:
    """A norm and a product, each in its scope."""
    with jax.named_scope("norm"):
        y = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True))
    with jax.named_scope("linear"):
        return y @ w["kernel"]


def layers(w: list[jax.Array], x: jax.Array) -> jax.Array:
    for i, kernel in enumerate(w):
        with jax.named_scope(f"layer_{i}"):
            x = x @ kernel
    return x


def array(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "bfloat16")


def small() -> Profile:
    return profile(part, {"kernel": array(K, N)}, array(M, K))


def two(first: Profile) -> list[tuple[str, int, Profile]]:
    """Two stages, the second run three times."""
    return [("first", 1, first), ("second", 3, profile(layers, [array(K, K)] * 4, array(M, K)))]


def masked(flops: int, useful: int) -> Profile:
    """A profile whose products are partly masked out."""
    cost = Cost(matmul_flops=flops, by_dtype={"bfloat16": flops}, bytes_fused=8, bytes_scoped=8, bytes_unfused=8)
    found = Profile("f", cost, "exact", [Note("no-scopes", "", "none")], 0, Peak(), [], {"": cost}, {"": 1})
    found.useful_flops = useful
    found.rows = lambda **_: [Row(".", cost, useful_flops=useful)]  # type: ignore[method-assign]
    return found
