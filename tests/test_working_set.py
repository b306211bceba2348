"""Does it fit: a row's largest array on the chip, a peak in padded tiles."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import costtrace
from costtrace import capacity, chip
from costtrace.report.document import Grouping, document
from costtrace.report.explain import explained

V6E = chip.load("v6e")
Q = jax.ShapeDtypeStruct((24, 1422, 64), "float32")
SCORES = 24 * 1422 * 1422 * 4  # 194.1 MB


def attention(q: Any, k: Any, v: Any) -> Any:
    with jax.named_scope("attention"):
        return jax.nn.softmax(q @ jnp.swapaxes(k, 1, 2)) @ v


def test_the_score_matrix_is_a_rows_largest_array_and_does_not_fit() -> None:
    found = costtrace.profile(attention, Q, Q, Q)
    (row,) = found.rows()
    assert row.largest is not None and row.largest.nbytes == SCORES == capacity.score_nbytes(24, 1422, 1422)
    notes = document("attention", {}, V6E, [("attention", 1, found)], Grouping())["notes"]
    (note,) = [n for n in notes if n["kind"] == "working-set"]
    assert note["text"].endswith("194.1 MB does not fit vmem per core (128 MiB)")
    lines = " ".join(explained("attention", [("attention", 1, found)], V6E, Grouping())[0]["lines"])
    assert "194.1 MB does not fit vmem per core" in lines
    # two operands of 512 x 512 at 16 bits, twice, and the result at 32 bits
    assert capacity.tile_nbytes(512, 512, 512, 16) == 2 * 2 * 512 * 512 * 2 + 512 * 512 * 4
    assert "3.146 MB fits vmem per core" in lines


def test_a_small_one_fits_and_is_no_note() -> None:
    q = jax.ShapeDtypeStruct((2, 128, 64), "float32")
    found = costtrace.profile(attention, q, q, q)
    notes = document("attention", {}, V6E, [("attention", 1, found)], Grouping())["notes"]
    assert not [n for n in notes if n["kind"] == "working-set"]


def test_tiles_double_a_last_axis_of_64() -> None:
    found = costtrace.profile(lambda x: x * 2, jax.ShapeDtypeStruct((16, 1024, 64), "float32"))
    assert found.peak.nbytes == 2 * 16 * 1024 * 64 * 4
    assert capacity.tiled_peak(found.peak.shapes, V6E) == 2 * found.peak.nbytes
    assert capacity.tiled_peak(found.peak.shapes, chip.load("h100")) == found.peak.nbytes


def test_a_peak_that_only_its_tiles_push_over_is_said() -> None:
    x = jax.ShapeDtypeStruct((32, 1024, 1024, 64), "float32")  # 8.6 GB, twice: 17.2 of 34.4 GB dense
    found = costtrace.profile(lambda x: x * 2, x)
    notes = document("f", {}, V6E, [("f", 1, found)], Grouping())["notes"]
    assert [n["kind"] for n in notes if "peak" in n["text"]] == []
    found = costtrace.profile(lambda x: x * 2 + jnp.tanh(x), x)
    notes = document("f", {}, V6E, [("f", 1, found)], Grouping())["notes"]
    assert [n["kind"] for n in notes if "peak" in n["text"]] == ["tiled-peak"]
