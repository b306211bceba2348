"""`--explain` of three rows of different kinds, followed by hand: bound by products, by memory, by the vector unit."""

from __future__ import annotations

import pytest

import costtrace
from costtrace import chip, model
from costtrace.report.document import Grouping
from costtrace.report.explain import explained

TOKENS, HIDDEN, BLOCKS, HEADS, WIDTH = 1024 + 512, 3072, 20, 24, 128
V6E = {"products": 918e12, "memory": 1638e9, "vector": 1024 * 4 * 1.75e9}  # 8 x 128 lanes, 4 slots, 1.75 GHz


@pytest.fixture(scope="module")
def lines() -> dict[str, str]:
    found = model.find("klein")
    stage = found.stages(found.configure(res="512x512"))[1]
    fn, args = model.bind(stage)
    stages = [(stage.name, stage.calls, costtrace.profile(fn, *args, weights=0))]
    names = ("single/linear1", "modulation", "single/attention")
    on, depth = chip.load("v6e"), Grouping(depth=2)
    return {name: "\n".join(explained(name, stages, on, depth)[0]["lines"]) for name in names}


def test_a_product(lines: dict[str, str]) -> None:
    out = 3 * HIDDEN + 2 * 9216  # q, k, v and both halves of the gated unit
    flops = BLOCKS * 2 * TOKENS * HIDDEN * out
    nbytes = BLOCKS * 2 * (HIDDEN * out + TOKENS * HIDDEN + TOKENS * out)  # weights, in, out; bfloat16
    assert f"matmul_flops {flops:,}" in lines["single/linear1"]
    assert f"fused {nbytes:,}" in lines["single/linear1"]
    assert f"= {1e3 * flops / V6E['products']:.3f} ms\n" in lines["single/linear1"]
    assert f"= {1e3 * nbytes / V6E['memory']:.3f} ms\n" in lines["single/linear1"]
    assert "compute binds" in lines["single/linear1"]


def test_weights_for_one_row(lines: dict[str, str]) -> None:
    columns = 2 * 6 * HIDDEN + 3 * HIDDEN  # two streams of shift, scale, gate twice over; one of three
    flops, weights = 2 * HIDDEN * columns, 2 * HIDDEN * columns
    moved = weights + 2 * (HIDDEN + HIDDEN + columns)  # the one row in, its silu (the final layer reads it too), out
    assert f"matmul_flops {flops:,}" in lines["modulation"]
    assert f"weights {weights:,}" in lines["modulation"] and f"fused {moved:,}" in lines["modulation"]
    assert f"= {1e6 * moved / V6E['memory']:.1f} us\n" in lines["modulation"]
    assert "memory binds" in lines["modulation"]


def test_attention(lines: dict[str, str]) -> None:
    scores = BLOCKS * HEADS * TOKENS * TOKENS
    products = 4 * WIDTH * scores  # q k and p v
    rows = BLOCKS * HEADS * TOKENS
    # scale, less the maximum (and finding it), the sum, the division
    vector = scores + (scores - rows) + scores + (scores - rows) + scores
    text = lines["single/attention"]
    assert f"matmul_flops {products:,}" in text and f"transcendentals {scores:,}" in text
    assert f"vector_flops {vector:,}" in text
    assert f"= {1e6 * vector / V6E['vector']:.1f} us\n" in text
    assert f"fused {BLOCKS * 4 * 2 * TOKENS * HIDDEN:,}" in text  # q, k, v, out: never the scores
    assert "vector binds" in text
