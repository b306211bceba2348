"""Unions of touched elements against a brute-force set of indices, and views against numpy's own indexing."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import costtrace
from costtrace import access
from costtrace.core import Frame
from costtrace.errors import UsageError
from costtrace.region import FULL, Row, Some, box, volume

SHAPES = st.lists(st.integers(0, 5), min_size=0, max_size=3).map(tuple)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Any]]:
    shape = draw(SHAPES)

    def axis(n: int) -> Any:
        lo = draw(st.integers(0, n))
        return draw(st.sampled_from([None, (lo, draw(st.integers(lo, n)))]))

    return shape, [box(shape, tuple(axis(n) for n in shape)) for _ in range(draw(st.integers(1, 4)))]


@settings(max_examples=150)
@given(boxes())
def test_a_union_of_boxes_counts_each_element_once(case: tuple[tuple[int, ...], list[Any]]) -> None:
    shape, regions = case
    inside = 0
    for index in itertools.product(*(range(n) for n in shape)):
        inside += any(
            r is FULL or all(a is None or a[0] <= i < a[1] for a, i in zip(r, index, strict=True)) for r in regions
        )
    assert volume(shape, regions) == inside


def test_a_row_is_one_from_inside_the_loop_and_all_from_outside() -> None:
    loop = Frame(Frame(None, "root"), "loop", trips=5)
    assert volume((5, 7), (Row(loop), None), frozenset([id(loop)])) == 7
    assert volume((5, 7), (Row(loop), None)) == 5 * 7


def test_places_that_depend_on_data_add_up_to_the_whole_at_most() -> None:
    assert volume((10,), [Some(3, 1), Some(4, 2)]) == 3 + 4
    assert volume((10,), [Some(3, 1), Some(3, 1)]) == 3  # the same places
    assert volume((10,), [Some(3, 1), Some(9, 2)]) == 10
    assert volume((100,), Some(3, 1, repeat=5)) == 3 * 5


X = np.arange(2 * 3 * 4).reshape(2, 3, 4)
VIEWS = [
    ("slice", lambda x: x[1:, :2, 1:3]),
    ("reshape then slice", lambda x: x.reshape(6, 4)[1:3]),
    ("merge then slice", lambda x: x.reshape(24)[4:12]),
    ("split an axis then slice", lambda x: x.reshape(2, 3, 2, 2)[:, 1, 1]),
    ("squeeze and expand", lambda x: x[:, 1][None, :, 2]),
    ("transpose then slice", lambda x: x.transpose(2, 0, 1)[1:3, 1]),
    ("reverse then slice", lambda x: x[:, ::-1][:, :1]),
    ("concatenate then slice", lambda x: jnp.concatenate([x, x + 0], 1)[:, 2:4]),
    ("stride", lambda x: x[:, :, ::2]),
    ("two overlapping slices", lambda x: x[:, :2] + x[:, 1:]),
    ("two disjoint slices", lambda x: x[:, :, 0] + x[:, :, 3]),
    ("crop", lambda x: jax.lax.pad(x, 0, ((0, 0, 0), (-1, -1, 0), (0, 0, 0)))),
    ("reduce one axis of a slice", lambda x: x[:, 1:2].sum(2)),
    ("split", lambda x: jnp.split(x, 2, 2)[1]),
]


@pytest.mark.parametrize("fn", [v[1] for v in VIEWS], ids=[v[0] for v in VIEWS])
def test_what_is_read_is_what_the_result_depends_on(fn: Any) -> None:
    """Brute force: an element of the input is needed if changing it changes the result."""
    x = X.astype(np.int32)
    base = np.asarray(fn(jnp.asarray(x)))
    needed = 0
    for index in itertools.product(*(range(n) for n in x.shape)):
        y = x.copy()
        y[index] += 1000
        needed += not np.array_equal(base, np.asarray(fn(jnp.asarray(y))))
    found = costtrace.profile(lambda x: fn(x) + 1, jax.ShapeDtypeStruct(x.shape, "int32")).total.bytes_fused
    assert found == 4 * (needed + math.prod(base.shape))


def test_a_primitive_has_one_entry_in_a_table() -> None:
    for register, taken in ((access.view, "reshape"), (access.touch, "gather")):
        with pytest.raises(UsageError, match=f"primitive '{taken}' is in access.py twice: remove one of the two"):
            register(taken)(lambda *_: None)
