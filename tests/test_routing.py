"""A mixture of experts by ragged products: tokens sorted, sent to their experts and back, under every strategy."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from costtrace import chip, sharding, training
from costtrace.trace import trace

N, T, E, D, F, K = 8, 1024, 16, 64, 256, 2
"""Chips, tokens, experts, width, hidden width, experts a token."""


def array(*shape: int, dtype: str = "bfloat16") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


WEIGHTS = {"router": array(D, E), "up": array(E, D, F), "down": array(E, F, D)}


def mixture(w: Any, x: Any, scatter: bool = False) -> Any:
    gates, chosen = lax.top_k(jax.nn.softmax(x @ w["router"]), K)
    flat = chosen.reshape(-1)
    order = jnp.argsort(flat)
    sizes = jnp.bincount(flat, length=E)
    rows = jax.nn.silu(lax.ragged_dot(x[order // K], w["up"], sizes))
    rows = lax.ragged_dot(rows, w["down"], sizes)
    if scatter:
        rows = rows * gates.reshape(-1)[order][:, None]
        return jnp.zeros_like(x).at[order // K].add(rows)
    return jnp.einsum("tkd,tk->td", rows[jnp.argsort(order)].reshape(-1, K, D), gates)


def scattered(w: Any, x: Any) -> Any:
    return mixture(w, x, scatter=True)


def layers(w: Any, x: Any) -> Any:
    return lax.scan(lambda h, each: (h + mixture(each, h), None), x, w)[0]


def placed(fn: Any, strategy: str, weights: Any = None, train: bool = False) -> sharding.Placed:
    args: tuple[Any, ...] = (weights or WEIGHTS, array(T, D))
    if train:
        args = training.step(fn, args).args
        fn = training.step(fn, (weights or WEIGHTS, array(T, D))).fn
    return sharding.placed(strategy, [sharding.Part("moe", 1, trace(fn, *args, weights=0))], chip.load("v6e"), N)


def sent(p: sharding.Placed, least: int = 1000) -> dict[str, int]:
    """By kind, without the counts of each expert's rows (an all-reduce of E numbers)."""
    out: dict[str, int] = defaultdict(int)
    for c in p.collectives:
        if c.local > least:
            out[c.kind] += c.bytes_sent
    return dict(out)


ROWS = T * K // N * D * 2
"""Bytes of a chip's rows: each token K times."""
FLOPS = 2 * T * D * E + 2 * T * K * D * F * 2
COMBINE = 2 * T * K * D


def test_rows_go_to_their_experts_and_back() -> None:
    p = placed(mixture, "expert")
    assert sent(p) == {"all_to_all": 2 * ROWS * 7 // 8}
    assert p.cost.matmul_flops * N == FLOPS + COMBINE
    assert p.stages[0].total.weight_bytes == (2 * E * D * F // N + D * E) * 2


def test_a_scatter_that_adds_brings_them_back_too() -> None:
    p = placed(scattered, "expert")
    gates = T * K // N * 2  # each row's gate goes with it
    assert sent(p, 500) == {"all_to_all": (2 * ROWS + gates) * 7 // 8}
    assert p.cost.matmul_flops * N == FLOPS


def test_a_loop_of_layers_sends_in_each() -> None:
    shapes = {k: array(6, *v.shape) for k, v in WEIGHTS.items()}
    p = placed(layers, "expert", shapes)
    assert sent(p) == {"all_to_all": 6 * 2 * ROWS * 7 // 8}


def test_the_backward_sends_gradients_the_same_way() -> None:
    # the result's gradient goes to the experts; x is not trained, so none comes back
    p = placed(mixture, "expert", train=True)
    router = 2 * D * E * 2 * 7 // 8
    assert sent(p) == {"all_to_all": 3 * ROWS * 7 // 8, "all_reduce": router}
    # in a loop every layer's input has a gradient too, but the first's
    shapes = {k: array(6, *v.shape) for k, v in WEIGHTS.items()}
    assert sent(placed(layers, "expert", shapes, train=True))["all_to_all"] == 6 * 4 * ROWS * 7 // 8


@pytest.mark.parametrize(("strategy", "wanted"), [
    ("data", {}),
    ("fsdp", {"all_gather": 2 * E * D * F * 2 * 7 // 8}),  # both matrices of every expert
    ("tp", {"all_reduce": 2 * T * K * D * 2 * 7 // 8}),  # every row of the second product
])  # fmt: skip
def test_other_strategies_keep_rows_at_home(strategy: str, wanted: dict[str, int]) -> None:
    p = placed(mixture, strategy)
    assert sent(p, 2000) == wanted
    experts = 2 * T * K * D * F * 2
    rest = 2 * T * D * E + COMBINE  # under tp every chip routes and combines all tokens
    assert p.cost.matmul_flops == experts // N + (rest if strategy == "tp" else rest // N)


def test_data_parallel_training_reduces_every_experts_gradient() -> None:
    assert sent(placed(mixture, "data", train=True))["all_reduce"] == 2 * (2 * E * D * F + D * E) * 2 * 7 // 8


def test_an_embedding_is_no_routing() -> None:
    """A table of parameters is picked by tokens: its rows are no tokens."""

    def look(w: Any, ids: Any) -> Any:
        return w["table"][jnp.argsort(ids)]

    part = sharding.Part("look", 1, trace(look, {"table": array(2048, D)}, array(1024, dtype="int32"), weights=0))
    assert part.found.classes.routed == set()
