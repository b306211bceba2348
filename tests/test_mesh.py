"""Prices of collectives: the report's hand column, the real networks, and worked problems of a public book."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from costtrace import chip, mesh, sharding
from costtrace.errors import UsageError
from costtrace.mesh import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, PERMUTE, REDUCE_SCATTER, Group, Mesh, Ring
from costtrace.trace import trace

V6E, V4, H100 = chip.load("v6e"), chip.load("v4"), chip.load("h100")
BF16 = 2
SMALL, LARGE = 1536, 4592
"""klein's joint sequences: 512x512 and 1360x768."""
HIDDEN, WEIGHTS = 3072, 3_875_544_576


def ms(kind: str, whole: float) -> float:
    """Over 8 chips, one ring of all four links: 400 GB/s."""
    return 1000 * mesh.hand(kind, whole, 8, V6E).seconds


# -- the hand column: "Roofline and communication cost of klein-4B ... on TPU v6e" (report), section 5


@pytest.mark.parametrize(("kind", "whole", "times", "quoted"), [
    (ALL_GATHER, WEIGHTS * BF16, 1, 16.96),
    (ALL_TO_ALL, 4 * SMALL * HIDDEN * BF16, 25, 0.26),
    (ALL_TO_ALL, 4 * LARGE * HIDDEN * BF16, 25, 0.77),
    (ALL_REDUCE, SMALL * HIDDEN * BF16, 35, 1.45),
    (ALL_REDUCE, LARGE * HIDDEN * BF16, 35, 4.32),
    (ALL_GATHER, 5.450e9, 1, 11.92),
    (ALL_GATHER, 1_453_170_192 * BF16, 1, 6.36),
    (ALL_TO_ALL, 3 * 4 * 1422 * 1536 * BF16, 24, 0.34),
])  # fmt: skip
def test_the_hand_column_is_the_reports(kind: str, whole: float, times: int, quoted: float) -> None:
    assert round(times * ms(kind, whole), 2) == quoted


def test_the_reports_pipelines_count_a_collective_once_an_image() -> None:
    math_ms = 1000 * (4 * 10.1905e12 + 2.90908e12 + 1.99403e12) / 8 / 918e12
    ulysses = 25 * ms(ALL_TO_ALL, 4 * SMALL * HIDDEN * BF16)
    fsdp = ms(ALL_GATHER, WEIGHTS * BF16)
    assert [round(x, 2) for x in (math_ms, math_ms + ulysses, math_ms + fsdp)] == [6.22, 6.48, 23.17]
    assert [round(100 * math_ms / (math_ms + x), 1) for x in (ulysses, fsdp)] == [96.0, 26.8]
    assert round(math_ms + 4 * ulysses, 2) == 7.25  # four forwards have four
    assert round(math_ms + 4 * fsdp, 2) == 74.04


def test_the_reports_sa3_pipelines() -> None:
    rest = 8.95 - 24 * ms(ALL_TO_ALL, 3 * 4 * 1422 * 1536 * BF16)
    assert round(rest + ms(ALL_GATHER, 1_453_170_192 * BF16), 2) == pytest.approx(14.96, abs=0.011)


# -- formulas


@pytest.mark.parametrize(("kind", "factor"), [
    (ALL_REDUCE, 2 * 7 / 8), (ALL_GATHER, 7 / 8), (REDUCE_SCATTER, 7 / 8), (ALL_TO_ALL, 7 / 64), (PERMUTE, 1),
])  # fmt: skip
def test_bytes_sent(kind: str, factor: float) -> None:
    assert mesh.sent(kind, 6400.0, 8) == pytest.approx(factor * 6400)
    assert mesh.sent(kind, 6400.0, 1) == 0


def test_steps_of_a_ring() -> None:
    assert [mesh.steps(kind, 8) for kind in mesh.PRICES] == [14, 7, 7, 7, 1]
    assert [mesh.steps(kind, 1) for kind in mesh.PRICES] == [0] * 5


def test_every_collective_primitive_has_a_kind() -> None:
    from costtrace.rules import RULES, collective

    free = (collective.received, collective.placement)
    named = [name for name, rule in RULES.items() if rule.formula.__module__ == collective.__name__]
    paid = {name.removesuffix("_start") for name in named if RULES[name].formula not in free}
    assert paid == set(mesh.NAMES)


# -- the network


def test_a_v6e_host_has_no_ring() -> None:
    on = Mesh({"seq": 8}, V6E)
    assert on.shape == (2, 4)
    assert on.group("seq").rings == (Ring(4, False), Ring(2, False))
    # a corner has two of its four links: twice the hand's time
    gather = mesh.price(ALL_GATHER, WEIGHTS * BF16 / 8, on.group("seq"), V6E)
    assert gather.bandwidth_s == pytest.approx(2 * mesh.hand(ALL_GATHER, WEIGHTS * BF16, 8, V6E).seconds)
    assert gather.latency_s == pytest.approx(4e-6)  # three hops and one


def test_a_whole_pod_is_closed() -> None:
    on = Mesh({"data": 16, "model": 16}, V6E)
    assert on.group("model").rings == (Ring(16, True),)
    assert mesh.price(ALL_GATHER, 1e9 / 16, on.group("model"), V6E).bandwidth_s == pytest.approx(15 / 16 * 1e9 / 200e9)
    both = on.group("data,model")
    assert both.size == 256
    assert mesh.price(ALL_GATHER, 1e9 / 256, both, V6E).bandwidth_s == pytest.approx(255 / 256 * 1e9 / 400e9)


def test_an_all_to_all_is_bound_by_the_middle() -> None:
    ring = Group(16, (Ring(16, True),))
    gather = mesh.price(ALL_GATHER, 1e9 / 16, ring, V6E).bandwidth_s * 16 / 15
    assert mesh.price(ALL_TO_ALL, 1e9 / 16, ring, V6E).bandwidth_s == pytest.approx(gather / 4)
    line = Group(4, (Ring(4, False),))  # half of what two chips hold crosses one link to the other two
    assert mesh.price(ALL_TO_ALL, 1e6, line, V6E).bandwidth_s == pytest.approx(2 * 1e6 / 2 / 100e9)


def test_a_switch_and_its_hosts() -> None:
    inside = Mesh({"model": 8}, H100).group("model")
    assert (inside.rings, inside.nodes) == ((), 1)
    assert mesh.price(ALL_REDUCE, 1e9, inside, H100).bandwidth_s == pytest.approx(2 * 7 / 8 * 1e9 / 450e9)
    on = Mesh({"data": 4, "model": 8}, H100)
    assert on.group("model").nodes == 1
    assert on.group("data").nodes == 4
    # each GPU's own shard goes over its own network card
    assert mesh.price(ALL_GATHER, 1e9, on.group("data"), H100).bandwidth_s == pytest.approx(3e9 / 50e9)
    wide = Mesh({"data": 32}, H100).group("data")
    assert wide.nodes == 4
    local = 1e6
    assert mesh.price(ALL_GATHER, local, wide, H100).bandwidth_s == pytest.approx(3 * local / 50e9 + 28 * local / 450e9)


def test_more_chips_than_a_pod_go_over_the_network() -> None:
    group = Mesh({"data": 512}, V6E).group("data")
    assert group.nodes == 2
    assert mesh.price(ALL_GATHER, 1e6, group, V6E).bandwidth_s > 1e6 / 12.5e9


def test_a_price_says_its_formula_and_its_values() -> None:
    said = mesh.price(ALL_GATHER, 1e9, Mesh({"seq": 8}, V6E).group("seq"), V6E).formula
    assert said == (
        "(N-1)/N S on 8 chips (4 x 2): 7 GB / (2 links x 100 GB/s) + 4 hops x 1 us"
    )  # fmt: skip


# -- "How to Scale Your Model" (jax-ml/scaling-book, revision 04d8de58), which drops the factor (N-1)/N


def test_book_part_3_question_2_gathers_on_a_4x4x4() -> None:
    on = Mesh({"X": 4, "Y": 4, "Z": 4}, V4)
    whole = 1024 * 4096 * BF16
    one = mesh.price(ALL_GATHER, whole / 4 / 4, on.group("X"), V4).bandwidth_s * 4 / 3
    assert one == pytest.approx(23e-6, abs=0.5e-6)
    two = mesh.price(ALL_GATHER, whole / 16, on.group("X,Y"), V4).bandwidth_s * 16 / 15
    assert two == pytest.approx(46e-6, abs=1e-6)


def test_book_part_3_question_3_is_bound_by_latency() -> None:
    found = mesh.price(ALL_GATHER, 64, Mesh({"X": 4, "Y": 4, "Z": 4}, V4).group("X"), V4)
    assert found.latency_s == pytest.approx(2e-6)
    assert found.bandwidth_s < 0.01e-6


def test_book_part_3_question_10_an_all_to_all_is_a_quarter_of_a_gather() -> None:
    ring = Mesh({"X": 16, "Y": 16}, V6E).group("X")
    gather, across = (mesh.price(kind, 1e6, ring, V6E).bandwidth_s for kind in (ALL_GATHER, ALL_TO_ALL))
    assert across / gather == pytest.approx(1 / 4, rel=0.07)  # 15/16 dropped


B, D, F, X, Y = 512, 1024, 4096, 4, 2


def layer(w: Any, x: Any) -> Any:
    return jnp.square(x @ w["in"]) @ w["out"]


def layer_bytes(strategy: str, axes: dict[str, int]) -> float:
    """Bytes a chip sends in the forward pass of In[B, D] W_in[D, F] W_out[F, D], without the book's (N-1)/N."""
    weights = {"in": jax.ShapeDtypeStruct((D, F), "bfloat16"), "out": jax.ShapeDtypeStruct((F, D), "bfloat16")}
    part = sharding.Part("layer", 1, trace(layer, weights, jax.ShapeDtypeStruct((B, D), "bfloat16"), weights=0))
    n = X * Y if len(axes) > 1 else next(iter(axes.values()))
    placed = sharding.placed(strategy, [part], V4, n, axes)
    assert placed.cost.matmul_flops == 4 * B * D * F // n
    return sum(c.bytes_sent * axes[c.axis] / (axes[c.axis] - 1) for c in placed.collectives)


@pytest.mark.parametrize(("strategy", "axes", "book"), [
    ("data", {"data": X}, 0),
    ("fsdp", {"fsdp": X}, 4 * D * F),
    ("tp", {"model": Y}, 4 * B * D),
    ("fsdp+tp", {"fsdp": X, "model": Y}, 4 * B * D / X + 4 * D * F / Y),
])  # fmt: skip
def test_book_part_5_bytes_a_layer(strategy: str, axes: dict[str, int], book: float) -> None:
    assert layer_bytes(strategy, axes) == pytest.approx(book)


# -- bad input


@pytest.mark.parametrize("text", ["data", "data=0", "data=2,data=4", "data=x", ""])
def test_a_mesh_is_written_in_one_way(text: str) -> None:
    with pytest.raises(UsageError, match="write AXIS=SIZE"):
        mesh.parsed(text)


def test_a_mesh_is_read() -> None:
    assert mesh.parsed("data=2, model=4") == {"data": 2, "model": 4}


def test_a_chip_without_links_works_alone() -> None:
    alone = chip.load("rtx3050")
    assert Mesh({"data": 1}, alone).chips == 1
    with pytest.raises(UsageError, match="chip rtx3050 has no links"):
        Mesh({"data": 2}, alone)


def test_one_chip_moves_nothing() -> None:
    assert mesh.price(ALL_REDUCE, 1e9, Mesh({"data": 1}, V6E).group("data"), V6E).seconds == 0
