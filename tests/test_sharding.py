"""Strategies derived from the trace: against programs written by hand under shard_map, hand sums, and bad input."""

from __future__ import annotations

import functools
import importlib
import time
from collections import defaultdict
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

import costtrace
from costtrace import chip, mesh, model, sharding, training
from costtrace.errors import UsageError
from costtrace.trace import trace

klein = importlib.import_module("costtrace.models_spec.klein")
V6E = chip.load("v6e")
N, S, H = 8, 1536, klein.HIDDEN
P = PartitionSpec


def stages(name: str, **options: Any) -> list[model.Stage]:
    found = model.find(name)
    return found.stages(found.configure(**options))


@functools.cache
def parts(name: str, **options: Any) -> tuple[sharding.Part, ...]:
    bound = [(stage, *model.bind(stage)) for stage in stages(name, **options)]
    return tuple(sharding.Part(s.name, s.calls, trace(fn, *args, weights=0)) for s, fn, args in bound)


def dit(strategy: str, n: int = N, **options: Any) -> sharding.Placed:
    return sharding.placed(strategy, [p for p in parts("klein", **options) if p.name == "dit"], V6E, n)


def sent(p: sharding.Placed) -> dict[str, int]:
    out: dict[str, int] = defaultdict(int)
    for c in p.collectives:
        out[c.kind] += c.bytes_sent
    return dict(out)


# -- one single-stream block, by hand and derived

WEIGHTS = {"linear1": (H, 27648), "linear2": (12288, H), "query": (128,), "key": (128,)}


def array(shape: tuple[int, ...], dtype: str = "bfloat16") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def block_args(batch: int) -> tuple[Any, ...]:
    mods = tuple(array((1, 1, H)) for _ in range(3))
    return array((batch, S, H)), mods, array((1, S, 1, 64, 2, 2), "float32")


def derived(strategy: str, batch: int = 1) -> sharding.Placed:
    stage = model.Stage("block", klein.single_block, block_args(batch))
    fn, args = model.bind(stage)
    return sharding.placed(strategy, [sharding.Part("block", 1, trace(fn, *args, weights=0))], V6E, N)


def by_hand(body: Any, weights: dict[str, Any], specs: tuple[Any, ...], batch: int = 1) -> costtrace.Profile:
    """The profile of `body` under shard_map on an axis "a" of 8."""
    on = AbstractMesh((N,), ("a",), axis_types=(AxisType.Auto,))
    fn = jax.shard_map(body, mesh=on, in_specs=(weights, *specs[:-1]), out_specs=specs[-1], check_vma=False)
    return costtrace.profile(fn, {k: array(s) for k, s in WEIGHTS.items()}, *block_args(batch))


def normed(scale: Any, x: Any) -> Any:
    return klein.normal(x.astype(jnp.float32), 3).astype(x.dtype) * scale


def heads(x: Any) -> Any:
    return x.reshape(*x.shape[:2], -1, 128)


def block(w: Any, x: Any, mods: Any, table: Any, attend: Any, width: int = H, mlp: int = klein.MLP) -> Any:
    """klein's single block on local arrays; `attend` takes q, k, v and gives (b, s, width)."""
    shift, scale, gate = mods
    y = klein.modulated_norm(x, shift, scale) @ w["linear1"]
    q, k, v, a, b = jnp.split(y, [width, 2 * width, 3 * width, 3 * width + mlp], -1)
    q, k = normed(w["query"], heads(q)), normed(w["key"], heads(k))
    y = attend(turned(q, table), turned(k, table), heads(v))
    return gate, lax.concatenate([y, klein.silu(a) * b], 2) @ w["linear2"]


def turned(x: Any, table: Any) -> Any:
    pairs = x.astype(jnp.float32).reshape(*x.shape[:3], 64, 1, 2)
    return (table[..., 0] * pairs[..., 0] + table[..., 1] * pairs[..., 1]).reshape(x.shape).astype(x.dtype)


def ulysses(w: Any, x: Any, mods: Any, table: Any) -> Any:
    def attend(*qkv: Any) -> Any:
        q, k, v = (lax.all_to_all(t, "a", 2, 1, tiled=True) for t in qkv)
        out = heads(klein.attention(q, k, v))
        return lax.all_to_all(out, "a", 1, 2, tiled=True).reshape(*x.shape[:2], H)

    gate, y = block(w, x, mods, table, attend)
    return x + gate * y


def tensor(w: Any, x: Any, mods: Any, table: Any) -> Any:
    gate, y = block(w, x, mods, table, klein.attention, H // N, klein.MLP // N)
    return x + gate * lax.psum(y, "a")


def fsdp(w: Any, x: Any, mods: Any, table: Any) -> Any:
    whole = {k: lax.all_gather(v, "a", axis=1 if k == "linear1" else 0, tiled=True) for k, v in w.items()}
    gate, y = block(whole, x, mods, table, klein.attention)
    return x + gate * y


WHOLE = dict.fromkeys(WEIGHTS, P())
TOKENS = (P(None, "a"), P(), P(None, "a"), P(None, "a"))
HAND = {
    # q, k, v and the result, 7/8 of a chip's eighth each
    "ulysses": (ulysses, WHOLE, TOKENS, 1, {"all_to_all": 4 * S * H * 2 * 7 // 64}),
    # one all-reduce of the whole result
    "tp": (tensor, {**WHOLE, "linear1": P(None, "a"), "linear2": P("a")}, (P(), P(), P(), P()), 1,
           {"all_reduce": 2 * S * H * 2 * 7 // 8}),
    # every parameter, 7/8 of it
    "fsdp": (fsdp, {"linear1": P(None, "a"), "linear2": P("a"), "query": P("a"), "key": P("a")},
             (P("a"), P(), P(), P("a")), N, {"all_gather": (H * 27648 + 12288 * H + 2 * 128) * 2 * 7 // 8}),
}  # fmt: skip


@pytest.mark.parametrize("strategy", HAND)
def test_a_derived_block_sends_what_the_one_written_by_hand_sends(strategy: str) -> None:
    body, weights, specs, batch, wanted = HAND[strategy]
    profile, placed = by_hand(body, weights, specs, batch), derived(strategy, batch)
    assert profile.status == "exact"
    assert sent(placed) == wanted
    assert profile.total.collective_bytes == sum(wanted.values())
    assert profile.total.matmul_flops == placed.cost.matmul_flops


def test_collectives_of_any_program_by_kind_axis_and_scope() -> None:
    on = AbstractMesh((2, 4), ("r", "d"), axis_types=(AxisType.Auto, AxisType.Auto))

    def body(x: Any) -> Any:
        with jax.named_scope("sum"):
            total = lax.psum({"a": x, "b": x[:8]}, ("r", "d"))

        def trip(h: Any, _: Any) -> Any:
            with jax.named_scope("shift"):
                return lax.ppermute(h, "d", [(i, (i + 1) % 4) for i in range(4)]), None

        return lax.scan(trip, x, None, length=12)[0] + total["a"]

    fn = jax.shard_map(body, mesh=on, in_specs=P(("r", "d")), out_specs=P(("r", "d")), check_vma=False)
    found = {c.scope: c for c in sharding.collectives(trace(fn, array((8 * 64,), "float32")))}
    assert (found["shift"].kind, found["shift"].axis, found["shift"].count) == ("permute", "d", 12)
    assert found["shift"].bytes_sent == 12 * 64 * 4
    assert (found["sum"].kind, found["sum"].axis) == ("all_reduce", "r,d")
    assert found["sum"].bytes_sent == 2 * 64 * 4 * 7 // 8  # the part of the tree that nothing reads is dead code


# -- whole models


def test_ulysses_sends_four_tensors_an_attention() -> None:
    # 25 blocks, each q, k, v and the result: S H of 2 bytes, of which (8-1)/8^2 leave a chip
    assert sent(dit("ulysses")) == {"all_to_all": 4 * 25 * 4 * S * H * 2 * 7 // 64}


def test_tensor_parallel_reduces_once_a_residual_branch() -> None:
    # per forward: two a double block and stream (text and image together S tokens), one a single block
    p = dit("tp")
    mine = [c for c in p.collectives if c.scope.startswith(("double", "single"))]
    assert {c.kind for c in mine} == {"all_reduce"}
    assert sum(c.bytes_sent for c in mine) == 4 * (2 * 5 + 20) * 2 * S * H * 2 * 7 // 8


def test_ring_passes_keys_and_values_seven_times() -> None:
    assert sent(dit("ring")) == {"permute": 4 * 25 * 7 * 2 * (S // 8) * H * 2}


def test_fsdp_gathers_every_parameter_that_divides() -> None:
    p = dit("fsdp", batch=N)
    # all 3,875,544,576 parameters but 7/8 of them come from other chips
    assert sent(p)["all_gather"] == 4 * 3_875_544_576 * 2 * 7 // 8
    assert p.cost.matmul_flops == dit("data", batch=N).cost.matmul_flops


def test_sequence_parallel_sends_what_tensor_parallel_does() -> None:
    two = sent(dit("sp"))
    blocks = 4 * (2 * 5 + 20) * S * H * 2 * 7 // 8
    assert two["reduce_scatter"] == pytest.approx(blocks, rel=0.001)
    assert two["all_gather"] >= blocks


def test_pipeline_has_one_chip_at_work() -> None:
    p = dit("pipeline")
    assert [s.bubble for s in p.stages] == [8.0]  # (1 + 8 - 1) / 1: a 7/8 bubble
    assert [(c.kind, c.count, c.nbytes) for c in p.collectives] == [("permute", 4, S * H * 2)]  # 9.44 MB
    packed = dit("pipeline", batch=N)
    assert [s.bubble for s in packed.stages] == [15 / 8]  # (8 + 8 - 1) / 8


@pytest.mark.parametrize("strategy", ["data", "fsdp", "tp", "ulysses", "ring"])
def test_matrix_work_divides_by_the_chips(strategy: str) -> None:
    whole = dit(strategy, 1, batch=N).cost
    placed = dit(strategy, N, batch=N)
    assert placed.cost.matmul_flops * N == pytest.approx(whole.matmul_flops, rel=0.02)
    assert placed.cost.bytes_fused < whole.bytes_fused


def test_weights_are_read_whole_where_they_are_not_cut() -> None:
    whole = parts("klein")[1].share.total.weight_bytes
    assert dit("ulysses").stages[0].total.weight_bytes == whole
    assert dit("tp").stages[0].total.weight_bytes < whole / 4


def test_one_chip_is_the_program_itself() -> None:
    for strategy in sharding.STRATEGIES.keys() - {"stream"}:
        p = dit(strategy, 1)
        assert p.collectives == []
        assert p.cost == 4 * parts("klein")[1].share.total
        assert p.serial_s() == p.floor_s() == p.work_s()


def test_the_share_of_the_whole_is_its_profile() -> None:
    from costtrace.profiler import folded

    part = parts("klein")[1]
    assert part.share.total == folded(part.trace).total
    assert part.share.peak == folded(part.trace).peak


def test_tokens_that_do_not_divide_are_padded() -> None:
    # 1358 latents and 64 memory tokens over 8 chips: 170 + 8 a chip, 1424 for 1422. Keys and values of the 257 context
    # tokens are made on every chip, in each of 24 blocks.
    p = sharding.placed("ulysses", [parts("sa3")[1]], V6E, N)
    whole = parts("sa3")[1].share.total.matmul_flops
    again = 7 * 24 * 2 * 257 * 1536 * 3 * 1536
    assert whole < p.stages[0].total.matmul_flops * N - again < 1.01 * whole


def test_a_parameter_between_two_cuts_goes_to_the_one_with_most_work() -> None:
    """SA3's keys and values of the prompt: cut by heads, in 24 blocks, and the prompt gathered once; not by
    rows with a sum in each block. Which of the two must not hang on the order of a set."""
    p = sharding.placed("tp", [parts("sa3")[1]], V6E, N)
    assert [c.scope for c in p.collectives if "cross_qkv" in c.scope] == []
    assert sum(c.bytes_sent for c in p.collectives if c.scope == "context" and c.kind == "all_gather") == \
        8 * 2 * 257 * 1536 * 2 * 7 // 8  # fmt: skip


@pytest.mark.slow
def test_two_axes_divide_twice() -> None:
    one = sharding.placed("tp", [parts("klein", batch=2)[1]], V6E, 8, {"data": 2, "model": 4})
    assert one.cost.matmul_flops * 8 == pytest.approx(4 * parts("klein", batch=2)[1].share.total.matmul_flops, rel=0.02)
    assert {c.axis for c in one.collectives} == {"model"}
    both = sharding.placed("fsdp+tp", [parts("klein", batch=2)[1]], V6E, 8, {"fsdp": 2, "model": 4})
    assert {c.axis for c in both.collectives} == {"fsdp", "model"}


def test_what_does_not_divide_says_so_and_ranks_last() -> None:
    ranked = sharding.ranked(dit(s) for s in ("data", "ulysses", "tp"))
    assert ranked[-1].name == "data"
    assert ranked[-1].blocked
    assert ranked[-1].problems == ["dit: batch 1 does not divide by 8: every chip does the whole of it"]


def test_what_does_not_fit_says_so_and_ranks_last() -> None:
    p = sharding.placed("ulysses", [parts("klein", batch=64)[1]], chip.load("v5e"), 2)
    assert not p.fits
    assert p.blocked
    assert any("does not fit hbm" in text for text in p.problems)


def step(strategy: str) -> dict[str, int]:
    """What a chip sends in a step of a two-layer network without an optimizer, by kind."""

    def loss(w: Any, x: Any) -> Any:
        y = jnp.tanh(x @ w["up"]) @ w["down"]
        return jnp.sum(y * y)

    made = training.step(loss, ({"up": array((64, 256)), "down": array((256, 64))}, array((N, 64))))
    part = sharding.Part("step", 1, trace(made.fn, *made.args, weights=0))
    return sent(sharding.placed(strategy, [part], V6E, N))


WEIGHT = 64 * 256 * 2


def test_data_parallel_training_reduces_every_gradient() -> None:
    assert step("data")["all_reduce"] - 2 * 2 * WEIGHT * 7 // 8 < 16  # and the loss, a number


def test_fsdp_training_scatters_gradients_and_gathers_what_the_backward_needs() -> None:
    found = step("fsdp")
    assert found["reduce_scatter"] == 2 * WEIGHT * 7 // 8
    assert found["all_gather"] == 2 * WEIGHT * 7 // 8  # outside a loop the gathered parameters are kept
    # in a loop over layers they are gathered again: blocks of klein's DiT twice, the rest once
    fn, args = model.bind(next(s for s in stages("klein", batch=N) if s.name == "dit"))
    made = training.step(fn, args, "adam")
    whole = sharding.Part("dit", 1, trace(made.fn, *made.args, jit=made.jit, weights=0))
    sends = sent(sharding.placed("fsdp", [whole], V6E, N))
    blocks = 5 * 245_367_296 + 20 * 122_683_648
    assert sends["all_gather"] == pytest.approx((blocks + 3_875_544_576) * 2 * 7 / 8, rel=0.005)
    assert sends["reduce_scatter"] == pytest.approx(3_875_544_576 * 2 * 7 / 8, rel=0.001)
    data = sent(sharding.placed("data", [whole], V6E, N))
    assert data["all_reduce"] == pytest.approx(2 * 3_875_544_576 * 2 * 7 / 8, rel=0.001)


def test_zero_parts_state_then_gradients_then_parameters() -> None:
    """The paper's figure 1: 7.5 G parameters on 64 chips."""
    assert [round(sharding.zero_bytes(7_500_000_000, 64, k) / 1e9, 1) for k in range(4)] == [120.0, 31.4, 16.6, 1.9]
    with pytest.raises(UsageError, match="ZeRO stage 4"):
        sharding.zero_bytes(1, 1, 4)


def test_experts_get_their_tokens_and_send_them_back() -> None:
    """GShard: tokens in groups g, dispatched to experts e and combined; two all-to-alls of (e, g, c, d)."""
    g, s, e, c, d, f = 8, 64, 16, 8, 32, 128

    def layer(w: Any, x: Any, dispatch: Any) -> Any:
        sent = jnp.einsum("gsec,gsd->egcd", dispatch, x)
        y = jnp.einsum("egcf,efd->egcd", jax.nn.relu(jnp.einsum("egcd,edf->egcf", sent, w["up"])), w["down"])
        return jnp.einsum("gsec,egcd->gsd", dispatch, y)

    shapes = {"up": array((e, d, f)), "down": array((e, f, d))}
    made = trace(layer, shapes, array((g, s, d)), array((g, s, e, c)), weights=0)
    p = sharding.placed("expert", [sharding.Part("moe", 1, made)], V6E, N)
    assert sent(p) == {"all_to_all": 2 * (e * g * c * d * 2) * 7 // 64}


# -- speed and bad input


def test_one_to_256_chips_in_two_seconds() -> None:
    some = parts("klein")
    began = time.process_time()
    for n in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        sharding.placed("ulysses", some, V6E, n)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(("name", "n", "given", "said"), [
    ("ulises", 8, None, "no strategy 'ulises': there are data, fsdp"),
    ("tp", 8, {"data": 2, "model": 2}, "has 4 chips, --chips says 8"),
    ("tp", 8, {"seq": 8}, "strategy tp knows the axes model, tensor, tp, and the mesh has seq"),
    ("tp", 8, {"model": 4, "seq": 2}, "does not know the mesh axis 'seq'"),
    ("tp+tp", 8, {"model": 2, "tensor": 4}, "names one twice"),
    ("fsdp+tp", 8, None, "say how many chips each has, as in --mesh fsdp=2,model=2"),
])  # fmt: skip
def test_bad_input_is_one_line(name: str, n: int, given: dict[str, int] | None, said: str) -> None:
    with pytest.raises(UsageError) as e:
        sharding.axes_of(name, n, given)
    assert said in str(e.value)
    assert "\n" not in str(e.value)


def test_a_chip_without_links() -> None:
    with pytest.raises(UsageError, match="has no links"):
        mesh.hand(mesh.ALL_REDUCE, 1e6, 8, chip.load("l4"))


def test_fsdp_that_cuts_no_parameter_is_no_use() -> None:
    """6 divides neither 1024 nor 4096: every chip would hold and read all of both, as it does without fsdp."""

    def mlp(w: Any, x: Any) -> Any:
        return jax.nn.relu(x @ w["up"]) @ w["down"]

    w = {"up": array((1024, 4096)), "down": array((4096, 1024))}
    whole = sharding.Part("mlp", 1, trace(mlp, w, array((18, 1024)), weights=0))
    found = sharding.placed("fsdp", [whole], V6E, 6)
    assert found.blocked and found.problems == [
        "mlp: no parameter has a dimension that 6 divides: every chip does the whole of it"
    ]
    assert found.cost.weight_bytes == 2 * 2 * 1024 * 4096
