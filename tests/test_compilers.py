"""What is sent to a compiler, and real compiles for every target where compilers are set up (marker slow)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from block import ARGS, INNER, LAYERS, TOKENS, WIDTH, block, profiled, shape, unrolled
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

import costtrace
from costtrace import chip
from costtrace.errors import UsageError
from costtrace.evidence.compiled import compiled
from costtrace.target import cache, compiler, gpu, program, setup, tpu, worker

# Lowered programs -----------------------------------------------------------------------------------------------------


def test_a_program_is_the_same_from_wherever_it_is_lowered() -> None:
    one = program.lowered(block, ARGS, "tpu")
    other = (lambda: program.lowered(block, ARGS, "tpu"))()
    assert one.digest == other.digest
    assert one.digest != program.lowered(block, ARGS, "cuda").digest
    assert one.digest != program.lowered(unrolled, ARGS, "tpu").digest
    assert program.lowered(block, ARGS, "tpu", jit={"donate_argnums": 1}).donated == (2,)


def test_a_function_that_fails_is_one_line() -> None:
    with pytest.raises(costtrace.TraceError, match=r"^bad cannot be lowered for tpu: ") as e:
        program.lowered(bad, (shape((4,)),), "tpu")
    assert "\n" not in str(e.value)


def bad(x: Any) -> Any:
    return x + jnp.zeros((3, 5))


# Real compiles --------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path) -> cache.Answers:
    return cache.Answers(tmp_path / "answers")


def asked(fn: Any, args: Any, name: str, kept: cache.Answers, **more: Any) -> compiler.Answer:
    on = chip.load(name)
    try:
        setup.python(on.kind)
    except UsageError as e:
        pytest.skip(str(e))
    lowered = program.lowered(fn, args, compiler.platform(on))
    (found,) = compiler.ask([compiler.Question(lowered, on, **more)], kept)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", [*tpu.GENERATIONS, *gpu.CAPABILITIES])
def test_every_target_compiles_and_is_read(name: str, kept: cache.Answers) -> None:
    found = asked(block, ARGS, name, kept)
    read_ = compiled(found, profiled())
    assert not found.cached and not [n for n in read_.notes if n.kind not in ("replaced-estimate", "loop")]
    assert read_.total.matmul_flops == LAYERS * 2 * 2 * TOKENS * WIDTH * INNER
    assert read_.total.time_s > 0 and found.peak_bytes >= sum(
        math.prod(x.shape) * 2 for x in jax.tree.leaves(ARGS))  # fmt: skip
    again = asked(block, ARGS, name, kept)
    assert again.cached and again.text == found.text


@pytest.mark.slow
def test_scanned_and_unrolled_agree_or_the_note_says_why(kept: cache.Answers) -> None:
    scanned, flat = (compiled(asked(fn, ARGS, "v6e", kept), profiled()) for fn in (block, unrolled))
    agree = scanned.total.time_s == pytest.approx(flat.total.time_s, rel=0.10)
    assert agree or ([note.kind for note in scanned.notes] == ["loop"] and not flat.notes)
    assert scanned.total.matmul_flops == flat.total.matmul_flops
    for each in (scanned, flat):  # a layer that runs before its weights' prefetch ends reads them once more
        assert 0.99 < each.total.hbm_bytes / profiled().total.bytes_fused < 1.3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v6e", "h100"])
def test_a_sharded_gradient_has_its_collectives_by_scope(name: str, kept: cache.Answers) -> None:
    mesh = AbstractMesh((2, 4), ("data", "model"))

    def on(x: Any, *spec: Any) -> Any:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, PartitionSpec(*spec)))

    w, x = ARGS
    args = ({"up": on(w["up"], None, None, "model"), "down": on(w["down"], None, "model")}, on(x, "data"))
    answer_ = asked(block, args, name, kept)
    assert answer_.mesh == {"data": 2, "model": 4}
    found = compiled(answer_, profiled())
    rows = found.collectives
    assert {row["scope"] for row in rows} == {"mlp/down"} and sum(row["count"] for row in rows) == LAYERS
    assert found.total.matmul_flops == LAYERS * 2 * 2 * TOKENS * WIDTH * INNER // 8


@pytest.mark.slow
def test_what_a_compiler_refuses_is_one_line(kept: cache.Answers) -> None:
    big = (shape((100_000, 1_000_000)), shape((1_000_000, 8)))  # 200 GB
    with pytest.raises(worker.CompileError, match=r"does not fit") as e:
        asked(lambda a, b: a @ b, big, "v6e", kept)
    assert "\n" not in str(e.value)
    with pytest.raises(worker.CompileError, match=r"no topology 'v6e:3x5'"):
        asked(block, ARGS, "v6e", kept, topology="3x5")
    with pytest.raises(worker.CompileError, match=r"xla_no_such_option"):
        asked(block, ARGS, "v6e", kept, options={"xla_no_such_option": True})
