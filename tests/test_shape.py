"""Grids of measured rates, kernels of a program, and the seconds that both give."""

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costtrace import chip
from costtrace.errors import ChipError, UsageError
from costtrace.grid import Grid, Point
from costtrace.launch import launches
from costtrace.shape import shape_aware
from costtrace.trace import trace

F32, B16 = jnp.float32, jnp.bfloat16


def shape(*dims, dtype=F32):
    return jax.ShapeDtypeStruct(dims, dtype)


# -- grids


LATTICE = Grid(
    "product",
    "float32",
    tuple(
        Point((m, n, k), m * n * k / 1e9 + 1e-6 * n * k / 1e3)
        for m in (1, 32, 512)
        for n in (64, 1024)
        for k in (64, 512)
    ),
)


def test_a_grid_is_exact_at_its_points() -> None:
    for p in LATTICE.points:
        assert LATTICE.seconds(*p.sizes) == pytest.approx(p.seconds, rel=1e-12)


def test_between_two_points_the_log_of_the_rate_is_linear_in_the_log_of_the_size() -> None:
    grid = Grid("copy", "", (Point((100,), 100 / 4.0), Point((10_000,), 10_000 / 1.0)))
    assert grid.rate(1000) == pytest.approx(math.sqrt(4.0 * 1.0))  # 1000 is half way from 10^2 to 10^4
    assert grid.seconds(1000) == pytest.approx(1000 / 2.0)


def test_beyond_its_ends_a_grid_keeps_its_rate() -> None:
    grid = Grid("copy", "", (Point((100,), 25.0), Point((1000,), 500.0)))
    assert grid.seconds(10) == pytest.approx(10 / 4.0)
    assert grid.seconds(8000) == pytest.approx(8000 / 2.0)
    assert grid.seconds(0) == 0


@given(
    st.tuples(st.integers(1, 2000), st.integers(1, 4000), st.integers(1, 2000)), st.integers(0, 2), st.integers(1, 9)
)
def test_a_larger_product_takes_longer(sizes: tuple[int, int, int], axis: int, more: int) -> None:
    larger = tuple(n + more if d == axis else n for d, n in enumerate(sizes))
    assert LATTICE.seconds(*larger) >= LATTICE.seconds(*sizes) * (1 - 1e-12)


def test_a_hole_has_the_rate_of_the_next_smaller_size() -> None:
    points = [
        Point((m, n, 64), m * n * 64 / rate) for (m, n), rate in {(1, 64): 1.0, (32, 64): 2.0, (1, 512): 4.0}.items()
    ]
    grid = Grid("product", "float32", tuple(points))
    assert grid.rate(32, 512, 64) == pytest.approx(
        4.0
    )  # (32, 512) is missing: (1, 512) is one step down the first axis


# -- the file

HEAD = """
name = "mine"
title = "A machine"
vendor = "me"
kind = "cpu"
[sources]
calibrate = { text = "costtrace calibrate, jax 0.10", date = "2026-12" }
[matrix.float32]
value = "100 GFLOP/s"
tag = "M"
source = "calibrate"
[overhead.launch]
value = "1 us"
tag = "M"
source = "calibrate"
[overhead.trip]
value = "10 us"
tag = "M"
source = "calibrate"
[overhead.dispatch]
value = "100 us"
tag = "M"
source = "calibrate"
"""


def grid_text(kind: str, dtype: str, *points: list[float]) -> str:
    rows = ", ".join(map(str, points))
    return f'[[grid]]\nkind = "{kind}"\ndtype = "{dtype}"\ntag = "M"\nsource = "calibrate"\npoints = [{rows}]\n'


GRIDS = (
    grid_text("product", "float32", [1, 64, 64, 64 * 64 / 1e9, 0.0], [64, 64, 64, 64**3 / 1e10, 0.0])
    + grid_text("copy", "", [1000, 1000 / 1e9, 0.0])
    + grid_text("add", "float32", [1000, 1000 / 1e10, 0.0])
    + grid_text("exp", "float32", [1000, 1000 / 1e8, 0.0])
    + grid_text("sum last", "float32", [64, 64, 64 * 64 / 1e9, 0.0])
    + grid_text("read", "", [1000, 1000 / 2e9, 0.0])
)


def loaded(tmp_path: Path, text: str) -> chip.Chip:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return chip.load(str(path))


def test_a_chip_file_holds_grids(tmp_path: Path) -> None:
    mine = loaded(tmp_path, HEAD + GRIDS)
    grid = mine.grids["product", "float32"]
    assert grid.points[0] == Point((1, 64, 64), 64 * 64 / 1e9)
    assert grid.source == "costtrace calibrate, jax 0.10" and grid.date == "2026-12"
    assert mine.value("overhead.launch") == 1e-6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GRIDS.replace('source = "calibrate"\n', "", 1), "grid has no source"),
        (GRIDS.replace('source = "calibrate"', 'source = ""', 1), "has no source"),
        (GRIDS.replace('tag = "M"', 'tag = "S"', 1), "rates by size are measured"),
        (grid_text("prodct", "float32", [1, 1, 1, 1.0, 0.0]), "did you mean product"),
        (grid_text("product", "float32", [1, 1, 1.0, 0.0]), "write [m, n, k, seconds, spread]"),
        (grid_text("copy", "", [8, 0.0, 0.0]), "seconds above zero"),
        (grid_text("copy", "", [8, 1.0, 0.0], [8, 2.0, 0.0]), "given twice"),
        (GRIDS + GRIDS, "given twice"),
        (grid_text("copy", ""), "has no points"),
        ('[[grid]]\nkind = "copy"\ntag = "M"\nsource = "calibrate"\n', "grid has no points: add points"),
    ],
)
def test_a_grid_that_says_too_little_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ChipError) as error:
        loaded(tmp_path, HEAD + text)
    assert said in str(error.value) and "\n" not in str(error.value)


# -- kernels


def kinds(fn, *args):
    plan = launches(trace(fn, *args))
    return [(k.kind, k.sizes, k.repeat) for k in plan.kernels]


def test_elementwise_ops_between_products_are_one_loop() -> None:
    def f(x, w):
        return jnp.tanh(x @ w + 1.0) * 2.0

    assert kinds(f, shape(8, 16), shape(16, 32)) == [("streamed product", (8, 32, 16), 1), ("loop", (8 * 32,), 1)]


def test_softmax_is_two_reductions_and_two_loops() -> None:
    def f(x):
        return jax.nn.softmax(x @ x, axis=-1)

    found = kinds(f, shape(8, 8))
    assert found[1:] == [
        ("max last", (8, 8), 1),
        ("loop", (64,), 1),  # exp(x - max): dear and read twice
        ("sum last", (8, 8), 1),
        ("loop", (64,), 1),
    ]


def test_a_cheap_value_is_computed_again_in_each_reader() -> None:
    def f(x):
        y = x * 2.0
        return y + 1.0, y - 1.0

    plan = launches(trace(f, shape(100)))
    assert [k.kind for k in plan.kernels] == ["loop", "loop"]
    assert [dict(k.elements) for k in plan.kernels] == [{("add", "float32"): 2 * 100}] * 2
    assert [(k.read, k.written) for k in plan.kernels] == [(400, 400)] * 2


def test_attention_products_count_their_batch_and_their_turned_operands() -> None:
    def f(q, k):
        return jnp.einsum("shd,thd->hst", q, k)

    found = kinds(f, shape(32, 4, 16), shape(64, 4, 16))
    assert found == [("swap", (32 * 4 * 16,), 1), ("swap", (64 * 4 * 16,), 1), ("batched product", (4, 32, 64, 16), 1)]


def test_joined_arrays_are_one_kernel_with_what_is_computed_for_them() -> None:
    def f(x, y):
        return jnp.concatenate([x + 1.0, y * 2.0]), jnp.stack([x, y])

    assert kinds(f, shape(16), shape(16)) == [("concatenate", (32,), 1), ("concatenate", (32,), 1)]


def test_a_convolution_keeps_its_own_shape() -> None:
    def f(x, w):
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    assert kinds(f, shape(2, 8, 8, 4), shape(3, 3, 4, 16)) == [("convolution", (2 * 8 * 8, 4, 16, 3 * 3), 1)]


def test_a_scanned_layer_streams_its_own_weights() -> None:
    def f(ws, x):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0]

    plan = launches(trace(f, shape(5, 16, 16), shape(8, 16)))
    assert [(k.kind, k.repeat) for k in plan.kernels] == [("streamed product", 5), ("loop", 5)]
    assert plan.trips == {"": 5}


# -- seconds


def test_each_kernel_takes_what_its_grid_says(tmp_path: Path) -> None:
    mine = loaded(tmp_path, HEAD + GRIDS)

    def f(x, w):
        with jax.named_scope("up"):
            y = x @ w
        with jax.named_scope("act"):
            return jnp.exp(y) + 1.0

    found = shape_aware(trace(f, shape(64, 64), shape(64, 64), weights=1), mine)
    product = 64**3 / 1e10
    act = 64 * 64 / 1e8 + 64 * 64 / 1e10  # exp and add; its 2 x 16 kB at 1 GB/s are 33 us, less
    assert found.by_scope["up"] == pytest.approx(product + 1e-6)
    assert found.by_scope["act"] == pytest.approx(act + 1e-6)
    assert found.total_s == pytest.approx(product + act + 2e-6 + 100e-6)
    assert found.by_mechanism["dispatch"] == 100e-6 and found.by_mechanism["launch"] == pytest.approx(2e-6)
    assert sum(found.by_mechanism.values()) == pytest.approx(found.total_s)
    assert found.notes == ("streamed product float32 is priced as product float32",)


def test_a_kernel_without_a_grid_takes_its_work_at_the_best_rates(tmp_path: Path) -> None:
    mine = loaded(tmp_path, HEAD + GRIDS)
    sizes = jax.ShapeDtypeStruct((4,), "int32")
    found = shape_aware(trace(jax.lax.ragged_dot, shape(256, 256), shape(4, 256, 256), sizes), mine)
    ragged = 256**3 / 1e10  # its 2 x 256^3 FLOPs at the best rate; its 1.5 MB at 1 GB/s are 1.57 ms, less
    assert found.by_mechanism["move"] == pytest.approx(ragged)
    lines = shape_aware(trace(lambda x: jnp.cumsum(x, 1), shape(64, 64)), mine)
    assert lines.by_mechanism["move"] == pytest.approx(2 * 4 * 64 * 64 / 1e9)  # its bytes; 64 x 63 additions are less


def test_a_small_m_is_priced_at_its_own_rate(tmp_path: Path) -> None:
    mine = loaded(tmp_path, HEAD + GRIDS)
    row = shape_aware(trace(lambda x, w: x @ w, shape(1, 64), shape(64, 64)), mine)
    assert row.by_mechanism["product"] == pytest.approx(64 * 64 / 1e9)  # a tenth of the rate at m = 64


def test_trips_of_a_loop_have_their_overhead(tmp_path: Path) -> None:
    mine = loaded(tmp_path, HEAD + GRIDS)

    def f(ws, x):
        return jax.lax.scan(lambda x, w: (x @ w, None), x, ws)[0]

    found = shape_aware(trace(f, shape(5, 64, 64), shape(64, 64)), mine)
    assert found.by_mechanism["trip"] == pytest.approx(5 * 10e-6)
    assert found.by_mechanism["product"] == pytest.approx(5 * 64**3 / 1e10)


def test_a_chip_without_grids_says_how_to_get_them() -> None:
    with pytest.raises(UsageError, match="costtrace calibrate"):
        shape_aware(trace(lambda x: x + 1, shape(4)), chip.load("v6e"))


def test_an_overhead_that_is_not_known_is_said(tmp_path: Path) -> None:
    """Left out of the sum, as a rate that is not there is, and not in silence."""
    launch = HEAD[HEAD.index("[overhead.launch]") : HEAD.index("[overhead.trip]")]
    program = trace(lambda x, w: x @ w, shape(64, 64), shape(64, 64))
    whole, bare = (shape_aware(program, loaded(tmp_path, text + GRIDS)) for text in (HEAD, HEAD.replace(launch, "")))
    assert "no overhead.launch on mine: left out" in bare.notes and not whole.notes
    assert whole.total_s - bare.total_s == pytest.approx(1e-6)  # one kernel's launch
