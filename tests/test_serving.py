"""What a stage makes in a second, and the batch from which it is compute-bound: by hand, and by trying each batch."""

from __future__ import annotations

import json

import jax
import pytest

from costtrace import chip, model, serving
from costtrace.cli import main
from costtrace.core import Cost
from costtrace.profiler import profile
from costtrace.summary import Profile

V6E = chip.load("v6e")
PEAK, HBM = 918e12, 1638e9  # FLOP/s of bfloat16, B/s: chips/v6e.toml
QWEN3 = model.find("qwen3")


def decode(batch: int, **options: object) -> Profile:
    stage = QWEN3.stages(QWEN3.configure(batch=batch, **options))[1]
    fn, args = model.bind(stage)
    return profile(fn, *args, weights=0)


def turned(now: int, **options: object) -> serving.Turning:
    found = serving.turning("decode", "batch", now, lambda n: decode(n, **options), 2, V6E)
    assert found is not None
    return found


def test_mlp_turns_where_arithmetic_says() -> None:
    """0.6b: 28 layers of three 1024 x 3072 matrices in bfloat16. What else crosses the row's edge is each token's."""
    weights = 28 * 3 * 1024 * 3072
    row = {r.key: r.cost for r in decode(1, size="0.6b").rows(by="scope", depth=2)}["layers/mlp"]
    assert row.weight_bytes == 2 * weights and row.by_dtype == {"bfloat16": 2 * weights}
    each = row.bytes_fused - 2 * weights
    # n 2 W / peak >= (2 W + n each) / bandwidth
    least = 2 * weights / HBM / (2 * weights / PEAK - each / HBM)
    found = turned(8, size="0.6b", prompt=64, decode=1)
    assert found.row == "layers/mlp"
    assert found.at == int(least) + 1


@pytest.mark.slow
@pytest.mark.parametrize("now", [1, 8, 700, 5000])
def test_it_is_the_least_batch_whatever_the_batch_asked_for(now) -> None:
    options = {"size": "4b", "prompt": 16, "decode": 1}
    found = turned(now, **options)
    assert found.whole is not None

    def slower(n: int) -> bool:
        """The matrix unit takes at least as long as memory."""
        cost = decode(n, **options).total
        return sum(cost.by_dtype.values()) / PEAK >= cost.bytes_fused / HBM

    assert not slower(found.whole - 1) and slower(found.whole)


def test_a_cache_of_each_prompt_keeps_a_step_bound_by_memory() -> None:
    found = turned(8, size="4b")
    assert found.whole is None and found.intensity < found.ridge == PEAK / HBM
    assert found.at is not None and "memory-bound at any batch" in found.text()


def test_experts_see_a_share_of_the_batch() -> None:
    """30b-a3b: 8 of 128 experts a token, so 16 tokens for each that a dense matrix would see."""
    found = turned(1, size="30b-a3b")
    dense = 2 / HBM / (2 / PEAK)  # tokens at which a matrix alone is as long in the unit as in memory
    assert found.row == "layers/mlp" and found.at is not None and found.at > 16 * dense


@pytest.mark.parametrize("turn", [1, 2, 3, 77, 4096, 65_535, 65_536, None])
def test_the_search_finds_any_turn(turn) -> None:
    """A cost that jumps: memory longer below `turn`, the matrix unit from there on."""

    def cost(n: int) -> Cost:
        flops = 10**15 if turn is not None and n >= turn else 1
        return Cost(matmul_flops=flops, by_dtype={"bfloat16": flops}, bytes_fused=10**9)

    for now in (1, 2, 50, 65_536):
        assert serving._least(cost, V6E, now) == turn


def test_no_products_no_turning() -> None:
    none = profile(lambda x: x + x, jax.ShapeDtypeStruct((4,), "float32"))
    assert serving.turning("stage", "n", 1, lambda n: none, 1, V6E) is None


def test_the_command_says_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["qwen3", "--size", "0.6b", "--format", "json"]) == 0
    doc = json.loads(capsys.readouterr().out)
    stages = {stage["name"]: stage for stage in doc["stages"]}
    rates = {some["stage"]: some for some in doc["throughput"]}
    assert rates["decode"]["count"] == 8 and rates["decode"]["unit"] == "tokens"
    assert rates["decode"]["per_s"] == 8 / stages["decode"]["floor_s"]
    assert rates["prefill"]["count"] == 8 * 2048
    assert doc["turning"][0]["option"] == "batch"
    assert main(["qwen3", "--size", "0.6b"]) == 0
    text = capsys.readouterr().out
    assert f"makes 8 tokens, {rates['decode']['per_s']:,.0f}/s at the floor" in text
    assert "compute-bound from batch" in text
