"""The host's memory: bytes over the host link, seconds, and what the chip's memory no longer holds."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import checkpoint_policies, lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import SingleDeviceSharding

import costtrace
from costtrace import chip, roofline, sharding, training
from costtrace.trace import trace

Space = jax.memory.Space
LAYERS, D, B = 4, 64, 8
V6E = chip.load("v6e")


def array(*shape: int, dtype: str = "bfloat16") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def kind(name: str) -> SingleDeviceSharding:
    return SingleDeviceSharding(jax.devices()[0], memory_kind=name)


def layer(h: Any, w: Any) -> tuple[Any, None]:
    return jnp.tanh(h @ w), None


def fetched(w: Any, x: Any) -> Any:
    h = lax.scan(lambda h, each: layer(h, jax.device_put(each, Space.Device)), x, w)[0]
    return jax.device_put(h, Space.Host)


WEIGHTS, X = LAYERS * D * D * 2, B * D * 2


def test_layers_fetched_one_by_one_and_a_result_sent_back() -> None:
    p = costtrace.profile(fetched, array(LAYERS, D, D), array(B, D), weights=0)
    assert p.total.host_bytes == WEIGHTS + X
    assert p.total.weight_bytes == WEIGHTS
    # one layer, the input, the carry and the layer's result; the other layers wait on the host
    assert p.peak.nbytes == D * D * 2 + 3 * X
    assert next((n.kind, n.text.split()[0]) for n in p.notes) == ("offload", "w")
    assert costtrace.Profile.from_json(p.to_json()).total.host_bytes == WEIGHTS + X


def test_a_policy_that_offloads_residuals_sends_and_fetches_them() -> None:
    policy = checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["h"], offload_src="device", offload_dst="pinned_host"
    )

    def loss(w: Any, x: Any) -> Any:
        def step(h: Any, each: Any) -> tuple[Any, None]:
            return jnp.tanh(checkpoint_name(h @ each, "h")), None

        return lax.scan(jax.checkpoint(step, policy=policy), x, w)[0].sum()

    p = costtrace.profile(jax.grad(loss), array(LAYERS, D, D), array(B, D))
    assert p.total.host_bytes == 2 * LAYERS * X


def test_memory_kinds_of_shardings_count_too() -> None:
    assert costtrace.profile(lambda x: jax.device_put(x, kind("pinned_host")), array(B, D)).total.host_bytes == X
    there = jax.ShapeDtypeStruct((B, D), "bfloat16", sharding=kind("pinned_host"))
    p = costtrace.profile(lambda x: jax.device_put(x, kind("device")) * 2, there)
    assert p.total.host_bytes == X
    assert p.peak.nbytes == 2 * X  # the copy and the result, not the argument


def test_a_move_that_is_none_is_free() -> None:
    assert costtrace.profile(lambda x: jax.device_put(x * 2, Space.Device), array(B, D)).total.host_bytes == 0
    assert costtrace.profile(lambda x: jax.device_put(x, kind("device")), array(B, D)).total.host_bytes == 0
    assert costtrace.profile(lambda x: jax.device_put(x), array(B, D)).total.host_bytes == 0


def test_the_host_link_is_a_term_of_the_roofline() -> None:
    times = roofline.times(costtrace.Cost(host_bytes=32_000), V6E, 0)
    assert times.terms == {"host": pytest.approx(32_000 / 32e9)}
    assert times.bound == "host"


def stream(made: Any, n: int = 1, name: str = "v6e") -> sharding.Placed:
    return sharding.placed("stream", [sharding.Part("whole", 1, made)], chip.load(name), n)


def forward(w: Any, x: Any) -> Any:
    h = lax.scan(layer, x, w["layers"])[0]
    return h @ w["out"]


TREE = {"layers": array(LAYERS, D, D), "out": array(D, 2 * D)}


def test_streamed_weights_cross_once_and_leave_the_chip() -> None:
    whole = trace(forward, TREE, array(B, D), weights=0)
    p = stream(whole)
    assert p.cost.host_bytes == WEIGHTS + 2 * D * D * 2
    assert p.cost.weight_bytes == p.whole.weight_bytes
    assert p.work_s() == pytest.approx(p.cost.host_bytes / 32e9)
    # the last matrix, the input, the carry and the result; no layer is left by then
    assert p.peak_bytes == 2 * D * D * 2 + 4 * X
    assert stream(whole, 8).cost.matmul_flops * 8 == p.cost.matmul_flops


def test_streamed_weights_that_are_cut_too_come_in_parts() -> None:
    def pair(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w["up"]) @ w["down"]

    weights = {"up": array(D, 4 * D), "down": array(4 * D, D)}
    whole = sharding.Part("whole", 1, trace(pair, weights, array(B, D), weights=0))
    for name in ("stream+tp", "tp+stream"):
        p = sharding.placed(name, [whole], V6E, 8, {"stream": 2, "model": 4})
        assert p.cost.host_bytes == 2 * D * 4 * D * 2 // 4
        assert p.cost.matmul_flops * 8 == whole.share.total.matmul_flops


def test_a_training_step_fetches_a_loops_layers_twice_and_sends_all_back() -> None:
    made = training.step(forward, (TREE, array(B, D)), "adam")
    p = stream(trace(made.fn, *made.args, jit=made.jit, weights=0))
    # forward, backward and the optimizer read a layer, the last matrix is at hand between its uses; all go back once
    assert p.cost.host_bytes == 3 * WEIGHTS + 2 * D * D * 2 + WEIGHTS + 2 * D * D * 2
    assert p.problems == []


def test_a_chip_without_a_host_link_says_so() -> None:
    v6e = chip.load("v6e")
    bare = type(v6e)(**{**{f: getattr(v6e, f) for f in v6e.__dataclass_fields__},
                        "numbers": {k: v for k, v in v6e.numbers.items() if not k.startswith("host")}})  # fmt: skip
    whole = sharding.Part("whole", 1, trace(forward, TREE, array(B, D), weights=0))
    p = sharding.placed("stream", [whole], bare, 1)
    assert p.blocked
    assert p.problems == ["no host rate on v6e: what crosses the host link has no price"]
