"""Cost x chip -> seconds: arithmetic by hand on v6e and L4, the laws of a roofline, what fits where."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costtrace import capacity, chip, roofline
from costtrace.core import Cost

V6E, L4, V7X = chip.load("v6e"), chip.load("l4"), chip.load("v7x")


def product(flops: int, dtype: str = "bfloat16", **more: int) -> Cost:
    return Cost(matmul_flops=flops, by_dtype={dtype: flops}, **more)


def test_terms_by_hand_on_v6e() -> None:
    cost = Cost(
        by_dtype={"bfloat16": 918 * 10**9, "int8": 1836 * 10**9},
        vector_by_dtype={"float32": 7168 * 10**6},
        transcendentals=1792 * 10**6,
        integer_ops=7168 * 10**6,
        collective_bytes=400 * 10**6,
    )
    times = roofline.times(cost, V6E, nbytes=1638 * 10**6)
    assert times.terms == pytest.approx({
        "compute": 1e-3 + 1e-3,  # 918 G / 918 T and 1836 G / 1836 T: one matrix unit, so they add up
        "memory": 1e-3,  # 1.638 GB / 1638 GB/s
        "vector": 1e-3,  # 7.168 G / (8 x 128 x 4 x 1.75 G)
        "transcendental": 1e-3,  # 1.792 G / (8 x 128 x 1.75 G)
        "integer": 1e-3,
        "link": 1e-3,  # 0.4 GB / (4 links x 100 GB/s)
    })  # fmt: skip
    assert times.seconds == pytest.approx(2e-3)
    assert times.serial_s == pytest.approx(7e-3)
    assert (times.bound, times.missing, times.notes) == ("compute", (), ())


def test_floor_pessimistic_and_bounds_by_hand_on_l4() -> None:
    cost = product(121 * 10**9, bytes_fused=3 * 10**8, bytes_scoped=6 * 10**8, bytes_unfused=3 * 10**9)
    assert roofline.floor_s(cost, L4) == pytest.approx(max(121 / 121, 0.3 / 0.3) * 1e-3)
    assert roofline.pessimistic_s(cost, L4) == pytest.approx(0.6 / 300)
    assert roofline.pessimistic_s(cost, L4, scoped=False) == pytest.approx(3 / 300)
    assert roofline.bounds(cost, L4) == {"fused": "compute", "scoped": "memory", "unfused": "memory"}
    assert roofline.serial_s([cost, cost], L4) == pytest.approx(2 * 0.6 / 300)


def test_bytes_that_are_not_defined_give_no_time() -> None:
    cost = product(10**9).replace(bytes_fused=None, bytes_scoped=None)
    assert roofline.floor_s(cost, V6E) is None
    assert roofline.pessimistic_s(cost, V6E) is None
    assert roofline.bounds(cost, V6E)["fused"] is None


def test_a_missing_rate_is_left_out_and_named() -> None:
    cost = Cost(by_dtype={"float64": 10**9, "bfloat16": 918 * 10**9}, vector_by_dtype={"float32": 10**15})
    times = roofline.times(cost, V6E, nbytes=0)
    assert times.terms == pytest.approx({"compute": 1e-3, "vector": 10**15 / 7.168e12})
    assert times.missing == (
        "no float64 matrix rate on v6e: no float64 hardware; XLA emulates it in software at no published rate",
    )
    v7x = roofline.times(cost, V7X, nbytes=0)
    assert "vector" not in v7x.terms
    assert [m.partition(":")[0] for m in v7x.missing] == [
        "no float64 matrix rate on v7x", "no float32 vector rate on v7x",
    ]  # fmt: skip


def test_no_link_is_named_where_bytes_are_sent() -> None:
    assert roofline.times(Cost(collective_bytes=1), L4, 0).missing == (
        "no link rate on l4: the card has no GPU-to-GPU link",
    )
    assert roofline.times(Cost(), L4, 0).missing == ()


def test_no_work_takes_no_time() -> None:
    times = roofline.times(Cost(), V6E, 0)
    assert (times.seconds, times.bound, times.terms) == (0.0, "memory", {})


def test_measured_rates_stay_apart_from_the_peaks() -> None:
    cost = Cost(by_dtype={"bfloat16": 806 * 10**8, "int8": 242 * 10**9})
    nbytes = 2262 * 10**5
    assert roofline.times(cost, L4, nbytes).terms["compute"] == pytest.approx(0.0806 / 121 + 1e-3)
    measured = roofline.times(cost, L4, nbytes, efficiency=True)
    assert measured.terms["compute"] == pytest.approx(1e-3 + 1e-3)  # 80.6 G / 80.6 T/s, int8 at its peak
    assert measured.terms["memory"] == pytest.approx(1e-3)  # 226.2 MB / 226.2 GB/s
    assert measured.notes == ("no measured int8 matrix rate on l4: its peak is used",)
    v6e = roofline.times(product(3801 * 10**8), V6E, 1638 * 10**6, efficiency=True)
    assert v6e.terms == pytest.approx({"compute": 1e-3, "memory": 1e-3})
    assert v6e.notes == ("no measured HBM bandwidth on v6e: its peak is used",)


def test_ridge_points() -> None:
    assert roofline.ridge(V6E) == pytest.approx(918e12 / 1638e9)  # 560 FLOP per byte
    assert roofline.ridge(V6E, "int8") == pytest.approx(1836e12 / 1638e9)
    assert roofline.ridge(L4, "complex64") == pytest.approx(60e12 / 300e9)
    assert roofline.ridge(V6E, "float64") is None


@given(st.sampled_from(chip.names()), st.integers(1, 10**15), st.floats(0.01, 100).filter(lambda r: abs(r - 1) > 1e-6))
def test_the_knee_is_at_peak_over_bandwidth(name: str, flops: int, ratio: float) -> None:
    c = chip.load(name)
    knee = roofline.ridge(c)
    assert knee is not None
    nbytes = max(1, round(flops / (knee * ratio)))
    intensity = flops / nbytes
    times = roofline.times(product(flops), c, nbytes)
    assert times.bound == ("compute" if intensity >= knee else "memory") or intensity == pytest.approx(knee)


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 10**10), st.integers(1, 50))
def test_more_work_takes_no_less_time_and_n_times_the_work_n_times(a: int, b: int, nbytes: int, n: int) -> None:
    one = Cost(by_dtype={"bfloat16": a}, vector_by_dtype={"float32": b})
    seconds = roofline.times(one, V6E, nbytes).seconds
    assert roofline.times(one * n, V6E, nbytes * n).seconds == pytest.approx(n * seconds)
    assert roofline.times(one + product(10**9), V6E, nbytes).seconds >= seconds
    assert max(roofline.times(one, V6E, nbytes).serial_s, seconds) >= seconds


def test_explain_can_be_followed_by_hand() -> None:
    cost = Cost(by_dtype={"bfloat16": 1836 * 10**9, "int8": 1836 * 10**9}, collective_bytes=4 * 10**8)
    lines = roofline.explain(cost, V6E, 819 * 10**6)
    assert lines[:4] == [
        "compute = 1.836 TFLOP bfloat16 / 918 TFLOP/s + 1.836 TOP int8 / 1836 TOP/s = 3 ms",
        "memory = 819 MB / 1638 GB/s = 500 us",
        "link = 400 MB / (4 links x 100 GB/s) = 1 ms",
        "time = max(compute 3 ms, memory 500 us, link 1 ms) = 3 ms: compute binds",
    ]
    told = "\n".join(lines)
    for key in ("matrix.bfloat16", "matrix.int8", "hbm.bandwidth", "link.count", "link.bandwidth"):
        assert f"v6e {key} = {V6E.numbers[key].text} [{V6E.numbers[key].tag}: {V6E.numbers[key].source}; " in told
    assert "derived: 800 GB/s in both directions over 4 links / 4 / 2" in told
    assert "not used: 920 TFLOP/s (How to Scale Your Model" in told


def test_explain_says_what_it_leaves_out_and_at_which_efficiency() -> None:
    lines = roofline.explain(product(10**12, "float64") + product(10**12), L4, 0, efficiency=True)
    first, second = lines[0].split(" + ")
    assert first == "compute = 1 TFLOP float64 / 0.4733 TFLOP/s"
    assert second.startswith("1 TFLOP bfloat16 / (121 TFLOP/s x 66.61 %) = ")
    assert lines[-1] == "note: no measured float64 matrix rate on l4: its peak is used"
    assert "left out: no float64 matrix rate on v6e" in roofline.explain(product(1, "float64"), V6E, 1)[-1]


# What fits


def test_score_matrices_against_vmem() -> None:
    at_120_s = capacity.score_nbytes(24, 1422, 1422)
    assert at_120_s == 24 * 1422**2 * 4  # 194 MB
    assert capacity.score_nbytes(24, 4160, 4160) == 24 * 4160**2 * 4  # 1.66 GB
    (vmem,) = capacity.on_chip(at_120_s, V6E)
    assert not vmem.fits
    assert str(vmem) == "194.1 MB does not fit vmem per core (128 MiB)"
    assert capacity.on_chip(capacity.score_nbytes(1, 1422, 1422), V6E)[0].fits  # one head at a time: 8.1 MB


def test_a_matmul_tile_against_shared_memory() -> None:
    h100 = chip.load("h100")
    small = capacity.tile_nbytes(128, 128, 64, bits=16)
    assert small == 2 * (128 * 64 + 64 * 128) * 2 + 128 * 128 * 4  # operands twice, float32 sums once: 128 KiB
    shared, l2 = capacity.on_chip(small, h100)
    assert (shared.memory, shared.fits, l2.fits) == ("shared per sm", True, True)
    assert not capacity.on_chip(capacity.tile_nbytes(256, 256, 64, bits=16), h100)[0].fits  # 384 KiB of 228
    assert capacity.tile_nbytes(8, 8, 8, bits=4, buffers=1) == (64 + 64) // 2 + 64 * 4


def test_peak_memory_against_hbm() -> None:
    full = capacity.hbm(32 * 2**30, V6E)
    over = capacity.hbm(32 * 2**30 + 1, V6E)
    assert full and full.fits and over and not over.fits
    assert capacity.hbm(1, replace(V6E, numbers={})) is None


TILED = [
    # shape, bits, elements in the padded layout
    ((4096, 24, 64), 32, 4096 * 24 * 128),  # a head dim of 64 doubles
    ((24, 4096, 64), 16, 24 * 4096 * 128),
    ((8, 128), 32, 8 * 128),
    ((9, 129), 32, 16 * 256),
    ((9, 128), 16, 16 * 128),  # T(8,128)(2,1): 8 rows at 16 bits before TPU7x
    ((9, 128), 8, 32 * 128),
    ((9, 128), 4, 64 * 128),
    ((100,), 32, 128),
    ((0, 64), 32, 0),
]


@pytest.mark.parametrize(("shape", "bits", "elements"), TILED)
def test_tiled_layouts_pad_the_last_two_dimensions(shape: tuple[int, ...], bits: int, elements: int) -> None:
    assert capacity.tiled_nbytes(shape, bits, V6E) == elements * bits // 8


def test_tiles_differ_by_chip() -> None:
    assert capacity.tiled_nbytes((9, 128), 16, V7X) == 16 * 128 * 2
    assert capacity.tiled_nbytes((1, 128), 16, V7X) == 16 * 128 * 2  # 16 rows on TPU7x, 8 before it
    assert capacity.tiled_nbytes((9, 129), 16, L4) == 9 * 129 * 2  # a GPU pads nothing
    assert capacity.tiled_nbytes((), 32, V6E) == 4
