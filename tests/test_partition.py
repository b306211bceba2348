"""jit with shardings: per-device counts and XLA's collectives, from the partitioned module."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
from typing import Any

import jax
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

import costtrace
from costtrace import chip, model, partition, sharding, training
from costtrace.errors import TraceError
from costtrace.target import collective
from costtrace.target.hlo import Instruction, parsed
from costtrace.trace import trace

klein = importlib.import_module("costtrace.models_spec.klein")
P = PartitionSpec
FOUR = AbstractMesh((4,), ("d",), axis_types=(AxisType.Auto,))


def array(*shape: int, dtype: str = "bfloat16") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def on(*spec: Any, mesh: AbstractMesh = FOUR) -> NamedSharding:
    return NamedSharding(mesh, P(*spec))


def product(x: Any, w: Any) -> Any:
    with jax.named_scope("mlp"):
        return x @ w


@pytest.mark.slow
def test_a_cut_sum_is_reduced_and_bfloat16_stays_two_bytes() -> None:
    m, k, n = 64, 256, 128
    jit = {"in_shardings": (on(None, "d"), on("d", None)), "out_shardings": on()}
    p = costtrace.profile(product, array(m, k), array(k, n), jit=jit)
    assert p.status == "exact"
    assert p.total.matmul_flops == 2 * m * (k // 4) * n
    assert p.total.by_dtype == {"bfloat16": p.total.matmul_flops}
    assert p.total.collective_bytes_by_axis == {"d": 2 * 3 * m * n * 2 // 4}
    assert p.scopes()["mlp"].collective_bytes == p.total.collective_bytes
    assert p.total.bytes_fused == (m * k // 4 + k // 4 * n + m * n) * 2
    assert p.total.vector_flops == m * n  # the sum of two at each step of a ring
    assert [note.kind for note in p.notes] == ["partitioned"]
    assert costtrace.Profile.from_json(p.to_json()).total == p.total


def test_a_cut_batch_needs_nothing() -> None:
    p = costtrace.profile(product, array(64, 256), array(256, 128), jit={"in_shardings": (on("d"), on())})
    assert p.total.matmul_flops == 2 * 16 * 256 * 128
    assert p.total.collective_bytes == 0


@pytest.mark.slow
def test_a_constraint_inside_is_followed() -> None:
    def fn(x: Any, w: Any) -> Any:
        return jax.lax.with_sharding_constraint(product(x, w), on())

    p = costtrace.profile(fn, array(64, 256), array(256, 128), jit={"in_shardings": (on("d"), on())})
    # the partitioner gathers x, not the product, and multiplies it whole
    assert p.total.collective_bytes == 3 * 16 * 256 * 2
    assert p.total.matmul_flops == 2 * 64 * 256 * 128


@pytest.mark.slow
def test_a_loop_multiplies() -> None:
    def fn(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda h, each: (product(h, each), None), x, w)[0]

    jit = {"in_shardings": (on(None, "d"), on(None, "d", None)), "out_shardings": on(None, "d")}
    p = costtrace.profile(fn, array(64, 256), array(6, 256, 256), jit=jit)
    assert p.total.matmul_flops == 6 * 2 * 64 * 64 * 256
    assert p.scopes()["mlp"].collective_bytes > 0
    assert p.total.collective_bytes % 6 == 0


def test_what_cannot_be_partitioned_is_one_line() -> None:
    with pytest.raises(TraceError) as e:
        partition.partitioned(product, (array(64, 255), array(255, 128)), {"in_shardings": (on(None, "d"), on())})
    assert "\n" not in str(e.value)
    assert "'d': 4" in str(e.value)


@pytest.mark.slow
def test_forced_devices_and_the_process_own_give_one_answer() -> None:
    code = (
        "import jax, numpy, costtrace\n"
        "from jax.sharding import Mesh, NamedSharding, PartitionSpec as P\n"
        "mesh = Mesh(numpy.array(jax.devices()[:4]), ('d',))\n"
        "s = NamedSharding(mesh, P(None, 'd')), NamedSharding(mesh, P('d', None))\n"
        "x, w = jax.ShapeDtypeStruct((64, 256), 'bfloat16'), jax.ShapeDtypeStruct((256, 128), 'bfloat16')\n"
        "jit = {'in_shardings': s, 'out_shardings': NamedSharding(mesh, P())}\n"
        "p = costtrace.profile(lambda x, w: x @ w, x, w, jit=jit)\n"
        "print(p.total.matmul_flops, p.total.collective_bytes)\n"
    )
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **flags}, capture_output=True, text=True,
                          check=True)  # fmt: skip
    assert done.stdout.split() == [str(2 * 64 * 64 * 128), str(2 * 3 * 64 * 128 * 2 // 4)]


# -- replica groups


@pytest.mark.parametrize(("text", "groups"), [
    ("replica_groups={{0,1},{2,3}}", [[0, 1], [2, 3]]),
    ("replica_groups=[2,2]<=[4]", [[0, 1], [2, 3]]),
    ("replica_groups=[2,2]<=[2,2]T(1,0)", [[0, 2], [1, 3]]),
    ("replica_groups=mesh['r'=2,'c'=2] {'r'}", [[0, 2], [1, 3]]),
    ("source_target_pairs={{0,1},{1,0}}", [[0, 1], [1, 0]]),
    ("channel_id=1", [[0, 1, 2, 3]]),
])  # fmt: skip
def test_groups(text: str, groups: list[list[int]]) -> None:
    assert collective.groups(Instruction("a", "all-reduce", (), (), "", text), 4) == groups


MODULE = """HloModule m, num_partitions=8

%add (x: bf16[], y: bf16[]) -> bf16[] {
  %x = bf16[] parameter(0)
  %y = bf16[] parameter(1)
  ROOT %s = bf16[] add(%x, %y)
}

%scatter (q: bf16[64,32]) -> bf16[16,32] {
  %q = bf16[64,32]{1,0} parameter(0)
  %t = bf16[64,32]{1,0} all-reduce(%q), replica_groups=[2,4]<=[8], to_apply=%add
  %z = u32[] constant(0)
  ROOT %d = bf16[16,32]{1,0} dynamic-slice(%t, %z, %z), dynamic_slice_sizes={16,32}
}

ENTRY %main (p: bf16[64,32]) -> bf16[16,32] {
  %p = bf16[64,32]{1,0} parameter(0)
  %r = bf16[64,32]{1,0} all-reduce(%p), replica_groups=[4,2]<=[2,4]T(1,0), to_apply=%add,metadata={op_name="jit(f)/a/x"}
  %g = bf16[256,32]{1,0} all-gather(%r), replica_groups=[2,4]<=[8], dimensions={0}, metadata={op_name="jit(f)/b/x"}
  %c = bf16[256,32]{1,0} collective-permute(%g), source_target_pairs={{0,1},{1,0}}, metadata={op_name="jit(f)/c/x"}
  %l = bf16[64,32]{1,0} slice(%c), slice={[0:64], [0:32]}
  ROOT %f = bf16[16,32]{1,0} fusion(%l), kind=kCustom, calls=%scatter, metadata={op_name="jit(f)/e/x"}
}
"""


def test_collectives_are_read_by_axis_and_scope() -> None:
    found = {c.scope: c for c in collective.collectives(parsed(MODULE), {"r": 2, "d": 4})}
    n = 64 * 32 * 2
    assert (found["a"].axis, found["a"].nbytes) == ("r", 2 * n // 2)
    assert (found["b"].axis, found["b"].nbytes) == ("d", 3 * n)
    assert (found["c"].axis, found["c"].nbytes) == ("d", 4 * n)
    # the TPU compiler's reduce-scatter is a fusion of an all-reduce and a slice
    assert (found["e"].kind, found["e"].axis, found["e"].nbytes) == ("reduce_scatter", "d", 3 * n // 4)


# -- the strategies, given to jit as shardings


@functools.cache
def block() -> tuple[Any, Any, sharding.Part]:
    x, mods = array(1, 1536, 3072), tuple(array(1, 1, 3072) for _ in range(3))
    stage = model.Stage("block", klein.single_block, (x, mods, array(1, 1536, 1, 64, 2, 2, dtype="float32")))
    fn, args = model.bind(stage)
    return fn, args, sharding.Part("block", 1, trace(fn, *args, weights=0))


@pytest.mark.slow
def test_xla_reduces_where_the_strategy_does_and_permutes_packed_columns() -> None:
    """Tensor parallel: the all-reduce is the derived one to the byte. linear1 makes q, k, v and two halves of an MLP in
    one matrix: cut into eighths of its columns, the parts do not lie on the chips that need them; XLA moves them."""
    fn, args, part = block()
    mesh = AbstractMesh((8,), ("a",), axis_types=(AxisType.Auto,))
    leaves, tree = jax.tree.flatten(args)
    cuts = sharding.arguments(part, "tp", 8)
    given = [NamedSharding(mesh, P(*("a" if d == cut else None for d in range(len(leaf.shape)))))
             for leaf, cut in zip(leaves, cuts, strict=True)]  # fmt: skip
    text, axes = partition.partitioned(fn, args, {"in_shardings": jax.tree.unflatten(tree, given)})
    sent: dict[str, int] = {}
    for c in collective.collectives(parsed(text), axes):
        sent[c.kind] = sent.get(c.kind, 0) + c.bytes_sent
    derived = sharding.placed("tp", [part], chip.load("v6e"), 8)
    assert sent["all_reduce"] == sum(c.bytes_sent for c in derived.collectives) == 2 * 1536 * 3072 * 2 * 7 // 8
    assert sent["permute"] > 0
    counted = partition.counted(parsed(text), axes, "block")
    assert counted.total.matmul_flops == derived.cost.matmul_flops


# -- a small transformer, forward and training step

LAYERS, WIDTH, TOKENS = 4, 128, 64
SMALL = {**dict.fromkeys("qkvo", array(LAYERS, WIDTH, WIDTH)), "up": array(LAYERS, WIDTH, 512),
         "down": array(LAYERS, 512, WIDTH)}  # fmt: skip


def transformer(w: Any, x: Any) -> Any:
    def layer(h: Any, w: Any) -> tuple[Any, None]:
        q, k, v = ((h @ w[name]).reshape(8, TOKENS, 8, -1) for name in "qkv")
        p = jax.nn.softmax(jax.numpy.einsum("bqhd,bkhd->bhqk", q, k))
        h = h + jax.numpy.einsum("bhqk,bkhd->bqhd", p, v).reshape(h.shape) @ w["o"]
        return h + jax.nn.silu(h @ w["up"]) @ w["down"], None

    return jax.lax.scan(layer, x, w)[0]


def both(strategy: str, train: bool) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes sent by kind: derived, and as XLA partitions it with the strategy's cuts of the arguments."""
    fn: Any = transformer
    args: tuple[Any, ...] = (SMALL, array(8, TOKENS, WIDTH))
    if train:
        made = training.step(fn, args)
        fn, args = made.fn, made.args
    part = sharding.Part("small", 1, trace(fn, *args, weights=0))
    leaves, tree = jax.tree.flatten(args)
    mesh = AbstractMesh((8,), ("a",), axis_types=(AxisType.Auto,))
    given = [NamedSharding(mesh, P(*("a" if d == cut else None for d in range(len(leaf.shape)))))
             for leaf, cut in zip(leaves, sharding.arguments(part, strategy, 8), strict=True)]  # fmt: skip
    text, axes = partition.partitioned(fn, args, {"in_shardings": jax.tree.unflatten(tree, given)})
    derived, real = {}, {}
    for c in sharding.placed(strategy, [part], chip.load("v6e"), 8).collectives:
        derived[c.kind] = derived.get(c.kind, 0) + c.bytes_sent
    for c in collective.collectives(parsed(text), axes):
        real[c.kind] = real.get(c.kind, 0) + c.bytes_sent
    return derived, real


@pytest.mark.xla
@pytest.mark.parametrize(("strategy", "train"), [("data", False), ("data", True), ("fsdp", False), ("tp", False)])
def test_xla_sends_the_derived_bytes(strategy: str, train: bool) -> None:
    derived, real = both(strategy, train)
    assert derived == real


@pytest.mark.xla
def test_xla_sums_each_of_q_k_and_v_where_one_sum_would_do() -> None:
    derived, real = both("tp", train=True)
    each = 2 * LAYERS * 8 * TOKENS * WIDTH * 2 * 7 // 8
    assert derived == {"all_reduce": 4 * each}
    assert real == {"all_reduce": 6 * each}


@pytest.mark.xla
def test_xla_reduces_gradients_whole_where_no_result_is_said_to_be_cut() -> None:
    derived, real = both("fsdp", train=True)
    parameters = 2 * LAYERS * 12 * WIDTH * WIDTH * 7 // 8
    assert derived == {"all_gather": 2 * parameters, "reduce_scatter": parameters}
    assert real == {"all_gather": 2 * parameters, "all_reduce": 2 * parameters}


def test_a_reshard_that_moves_nothing_is_no_sharding() -> None:
    """jax writes one of the gradient's seed behind a shard_map over axes that are the compiler's own."""
    mesh = AbstractMesh((2, 3), ("d", "e"), axis_types=(AxisType.Auto,) * 2)

    def fn(x: Any, w: Any) -> Any:
        summed = jax.shard_map(lambda x: jax.lax.psum(x, "d"), mesh=mesh, in_specs=P("d"), out_specs=P("d"),
                               check_vma=False)(x)  # fmt: skip
        return jax.checkpoint(lambda y: jax.grad(lambda z: (z @ w).sum())(y))(summed)

    p = costtrace.profile(fn, array(12, 2), array(2, 3))
    assert (p.status, p.notes[0].kind) == ("exact", "no-scopes")
    assert p.total.matmul_flops == 2 * 12 * 2 * 3  # the seed by w; the sum itself is dead
