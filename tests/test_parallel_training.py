"""A small transformer's forward pass and training step on eight chips, each strategy's bytes against a hand sum."""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from costtrace import chip, sharding, training
from costtrace.trace import trace

N, B, S, H, HEADS, LAYERS = 8, 8, 256, 512, 8, 4
"""Chips, batch, tokens, width, heads, layers."""


def array(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "bfloat16")


SHAPES = {**dict.fromkeys("qkvo", (H, H)), "up": (H, 4 * H), "down": (4 * H, H)}
WEIGHTS = {k: array(LAYERS, *shape) for k, shape in SHAPES.items()}


def layer(h: Any, w: Any) -> tuple[Any, None]:
    q, k, v = ((h @ w[name]).reshape(*h.shape[:2], HEADS, -1) for name in "qkv")
    p = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k).astype("float32")).astype(h.dtype)
    h = h + jnp.einsum("bhqk,bkhd->bqhd", p, v).reshape(h.shape) @ w["o"]
    return h + jax.nn.silu(h @ w["up"]) @ w["down"], None


def scanned(w: Any, x: Any) -> Any:
    return lax.scan(layer, x, w)[0]


def unrolled(w: Any, x: Any) -> Any:
    for i in range(LAYERS):
        x = layer(x, {k: each[f"{i}"] for k, each in w.items()})[0]
    return x


def rematerialised(w: Any, x: Any) -> Any:
    return lax.scan(jax.checkpoint(layer), x, w)[0]


@functools.cache
def part(fn: Any, train: str | None, batch: int = B) -> sharding.Part:
    """train: an optimizer, "" for the gradient alone, None for the forward pass."""
    one = fn is unrolled
    weights = {k: {f"{i}": array(*shape) for i in range(LAYERS)} for k, shape in SHAPES.items()} if one else WEIGHTS
    args: tuple[Any, ...] = (weights, array(batch, S, H))
    made = training.step(fn, args, train or None) if train is not None else None
    if made is not None:
        return sharding.Part("step", 1, trace(made.fn, *made.args, jit=made.jit, weights=0))
    return sharding.Part("forward", 1, trace(fn, *args, weights=0))


def placed(strategy: str, train: str | None = None, fn: Any = scanned, given: Any = None) -> sharding.Placed:
    return sharding.placed(strategy, [part(fn, train)], chip.load("v5p"), N, given)


def sent(p: sharding.Placed) -> dict[tuple[str, str], int]:
    """{(kind, axis): bytes}; without sums of a number or a row."""
    out: dict[tuple[str, str], int] = defaultdict(int)
    for c in p.collectives:
        if c.local > 4 * H:
            out[c.kind, c.axis] += c.bytes_sent
    return dict(out)


PARAMETERS = LAYERS * 12 * H * H * 2
"""Bytes: four of H x H and two of H x 4 H in each layer."""
X = B * S * H * 2
"""Bytes of the activations between layers, of the whole batch."""
FORWARD = {
    "data": {},
    "fsdp": {("all_gather", "fsdp"): PARAMETERS * 7 // 8},
    # after attention and after the MLP
    "tp": {("all_reduce", "model"): LAYERS * 2 * 2 * X * 7 // 8},
    # the same as a scatter, and a gather before each: tokens whole for q, k, v, and for up
    "sp": {("reduce_scatter", "model"): LAYERS * 2 * X * 7 // 8, ("all_gather", "model"): LAYERS * 2 * X * 7 // 8},
    # q, k, v and the result
    "ulysses": {("all_to_all", "seq"): LAYERS * 4 * X // 8 * 7 // 8},
    # keys and values, N - 1 times
    "ring": {("permute", "seq"): LAYERS * 2 * 7 * X // 8},
}
GRADIENTS = 2 * PARAMETERS * 7 // 8
"""An all-reduce of them all."""
TRAINING = {
    "data": {("all_reduce", "data"): GRADIENTS},
    "fsdp": {("all_gather", "fsdp"): 2 * PARAMETERS * 7 // 8, ("reduce_scatter", "fsdp"): PARAMETERS * 7 // 8},
    # the gradient of what entered the columns: again two a layer
    "tp": {("all_reduce", "model"): 2 * LAYERS * 2 * 2 * X * 7 // 8},
    # backward: gathers what the scatter was of, scatters what the gather was of, gathers the kept input again for the
    # weights' gradients (Korthikanti et al., arXiv:2205.05198, section 4.2.2)
    "sp": {("reduce_scatter", "model"): 2 * LAYERS * 2 * X * 7 // 8,
           ("all_gather", "model"): 3 * LAYERS * 2 * X * 7 // 8},
    "ulysses": {("all_to_all", "seq"): 2 * LAYERS * 4 * X // 8 * 7 // 8, ("all_reduce", "seq"): GRADIENTS},
    # keys and values once more, and their gradients summed over the queries' chips
    "ring": {("permute", "seq"): 2 * LAYERS * 2 * 7 * X // 8, ("reduce_scatter", "seq"): LAYERS * 2 * X * 7 // 8,
             ("all_reduce", "seq"): GRADIENTS},
}  # fmt: skip


@pytest.mark.parametrize("strategy", FORWARD)
def test_a_forward_pass_sends_what_the_hand_sum_says(strategy: str) -> None:
    p = placed(strategy)
    assert sent(p) == FORWARD[strategy]
    assert p.problems == []
    assert p.cost.matmul_flops * N == part(scanned, None).share.total.matmul_flops


@pytest.mark.parametrize("strategy", TRAINING)
def test_a_training_step_sends_what_the_hand_sum_says(strategy: str) -> None:
    p = placed(strategy, "")
    assert sent(p) == TRAINING[strategy]
    assert p.cost.matmul_flops * N == part(scanned, "").share.total.matmul_flops


@pytest.mark.parametrize("strategy", ["ulysses", "ring", "tp"])
def test_unrolled_layers_send_the_same(strategy: str) -> None:
    first = 2 * X * 7 // 8 if strategy == "tp" else 0  # nobody needs the gradient of the first layer's input
    found = sent(placed(strategy, "", unrolled))
    kind = next(iter(TRAINING[strategy]))
    assert found == TRAINING[strategy] | {kind: TRAINING[strategy][kind] - first}


def test_recomputed_attention_moves_its_operands_again() -> None:
    found = sent(placed("ulysses", "", rematerialised))
    assert found["all_to_all", "seq"] == 3 * LAYERS * 4 * X // 8 * 7 // 8


def test_two_axes_each_send_their_own() -> None:
    # data=2, model=4: half the batch meets a quarter of the features; gradients of that quarter are reduced over two
    found = sent(placed("tp", "", given={"data": 2, "model": 4}))
    assert found == {("all_reduce", "model"): 2 * LAYERS * 2 * 2 * (X // 2) * 3 // 4,
                     ("all_reduce", "data"): 2 * (PARAMETERS // 4) // 2}  # fmt: skip
    found = sent(placed("fsdp+tp", "", given={"fsdp": 4, "model": 2}))
    assert found == {("all_reduce", "model"): 2 * LAYERS * 2 * 2 * (X // 4) // 2,
                     ("all_gather", "fsdp"): 2 * (PARAMETERS // 2) * 3 // 4,
                     ("reduce_scatter", "fsdp"): (PARAMETERS // 2) * 3 // 4}  # fmt: skip
    found = sent(placed("fsdp+ulysses", "", given={"fsdp": 2, "seq": 4}))
    assert found["all_to_all", "seq"] == 2 * LAYERS * 4 * (X // 2) // 4 * 3 // 4
    assert found["all_gather", "fsdp"] == 2 * PARAMETERS // 2


def test_fsdp_holds_an_eighth_of_parameters_gradients_and_state() -> None:
    """ZeRO's third stage: with Adam a parameter, its gradient and two moments, in bfloat16 here."""
    whole, parted = placed("data", "adam").peak_bytes, placed("fsdp", "adam").peak_bytes
    # parameters and moments live all the time, gradients when the update begins; what a layer gathers comes on top
    assert whole - parted == pytest.approx(4 * PARAMETERS * 7 / 8, rel=0.1)


def test_a_pipelines_step_hands_activations_on_and_gradients_back() -> None:
    """Four layers on four chips, a batch of eight: a chip has a layer both ways, its parameters and their state."""
    for train, passes in ((None, 1), ("adam", 2)):
        whole = part(scanned, train)
        p = sharding.placed("pipeline", [whole], chip.load("v5p"), 4)
        assert [(c.count, c.nbytes) for c in p.collectives] == [(B * passes, X // B)]
        assert p.stages[0].bubble == (B + 4 - 1) / B
        assert p.cost.matmul_flops * 4 == pytest.approx(whole.share.total.matmul_flops, rel=0.01)
        held = PARAMETERS * (3 if train else 1)  # with Adam two moments
        assert whole.share.peak.nbytes - p.peak_bytes == pytest.approx(held * 3 / 4, rel=0.01)
