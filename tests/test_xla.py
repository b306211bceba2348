"""XLA's cost analysis of lowered programs beside ours, instruction by instruction: `pytest -m xla`.

Equal means that XLA's number is the float32 nearest to ours. What differs by design is in EXCLUDED.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from program_laws import ours, theirs

from costtrace.errors import PrivateDoorError
from costtrace.evidence import xla

pytestmark = pytest.mark.xla


def A(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:  # noqa: N802
    return jax.ShapeDtypeStruct(shape, dtype)


WAVES = ("NWC", "WIO", "NWC")
IMAGES = ("NHWC", "HWIO", "NHWC")
FORMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "batched": (jnp.matmul, (A(6, 20, 33), A(6, 33, 14))),
    "outer": (lambda a, b: jnp.einsum("bi,bj->bij", a, b), (A(6, 20), A(6, 30))),
    "two contracted axes": (lambda a, b: jnp.einsum("bmk,bkn->mn", a, b), (A(3, 16, 40), A(3, 40, 24))),
    "vector": (jnp.dot, (A(40), A(40))),
    "int8": (
        lambda a, b: lax.dot(a, b, preferred_element_type="int32"),
        (A(32, 64, dtype="int8"), A(64, 9, dtype="int8")),
    ),
    "beyond float32's integers": (jnp.matmul, (A(4099, 4111), A(4111, 4127))),
    "same padding": (
        lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=IMAGES),
        (A(2, 9, 7, 5), A(3, 3, 5, 4)),
    ),
    "strided and dilated": (
        lambda x, k: lax.conv_general_dilated(x, k, (3,), ((2, 4),), (2,), (3,), dimension_numbers=WAVES),
        (A(2, 19, 6), A(3, 6, 4)),
    ),
    "cropped": (
        lambda x, k: lax.conv_general_dilated(x, k, (1,), ((-2, 1),), dimension_numbers=WAVES),
        (A(2, 12, 3), A(3, 3, 5)),
    ),
    "grouped": (
        lambda x, k: lax.conv_general_dilated(x, k, (1,), "SAME", dimension_numbers=WAVES, feature_group_count=3),
        (A(2, 12, 6), A(3, 2, 9)),
    ),
    "batch groups": (
        lambda x, k: lax.conv_general_dilated(x, k, (1,), "VALID", dimension_numbers=WAVES, batch_group_count=2),
        (A(4, 12, 6), A(3, 6, 8)),
    ),
    "transposed": (
        lambda x, k: lax.conv_transpose(x, k, (2, 2), "VALID", dimension_numbers=IMAGES),
        (A(1, 6, 5, 3), A(2, 2, 3, 7)),
    ),
    "gradient of a grouped convolution": (
        jax.grad(
            lambda k, x: jnp.sum(
                lax.conv_general_dilated(x, k, (2,), "SAME", dimension_numbers=WAVES, feature_group_count=3) ** 2
            ),
            (0, 1),
        ),
        (A(3, 2, 9), A(2, 12, 6)),
    ),
    "attention": (jax.nn.dot_product_attention, (A(2, 12, 4, 16), A(2, 40, 4, 16), A(2, 40, 4, 16))),
    "resize": (lambda x: jax.image.resize(x, (32, 32, 3), "bilinear"), (A(16, 16, 3),)),
    "remat": (jax.grad(jax.checkpoint(lambda w, x: jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ w)))), (A(8, 8), A(4, 8))),
    "gradient of a scan": (
        jax.grad(lambda w, x: jnp.sum(lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, None, length=3)[0])),
        (A(8, 8), A(4, 8)),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    fn, args = FORMS[form]
    assert sum(theirs(fn, args).values()) > 0
    assert theirs(fn, args) == ours(fn, args)


def test_a_product_beyond_float32_is_the_nearest() -> None:
    (found,) = xla.lowered(*FORMS["beyond float32's integers"])
    exact = 2 * 4099 * 4111 * 4127
    assert found.flops != exact
    assert found.agrees(exact)
    assert not found.agrees(exact + exact // 2**22)


def test_call_sites_paths_and_loops() -> None:
    g = jax.jit(lambda h, w: h @ w)

    def fn(w, x):
        with jax.named_scope("a"):
            x = g(x, w)
        with jax.named_scope("b"):
            x = g(x, w)
            return lax.scan(lambda h, _: (g(jnp.tanh(h), w), None), x, None, length=7)[0]

    found = xla.lowered(fn, (A(8, 8), A(4, 8)))
    assert [i.flops for i in found] == [2 * 4 * 8 * 8] * 3
    assert sorted(i.looped for i in found) == [False, False, True]
    paths = [[part for part in i.path.split("/") if part in ("a", "b", "while", "body")] for i in found]
    assert sorted(paths) == [["a"], ["b"], ["b", "while", "body"]]
    assert all(i.path.endswith("dot_general") for i in found)


def test_a_branch_is_its_dearest_arm() -> None:
    def fn(p, x, w):
        return lax.cond(p, lambda: x @ w @ w, lambda: x @ w)

    assert xla.matmul_conv(fn, (A(dtype="bool"), A(4, 8), A(8, 8))) == (2 * 2 * 4 * 8 * 8, 0)


def test_what_is_excluded_is_named() -> None:
    def ragged(x, w, sizes):
        return lax.ragged_dot(x, w, sizes)

    def scaled(a, b, s, t):
        dims = (((2,), (1,)), ((0,), (0,)))
        return lax.scaled_dot(a, b, lhs_scale=s, rhs_scale=t, dimension_numbers=dims, preferred_element_type="float32")

    square = A(8, 8, dtype="complex64")
    assert xla.excluded(jnp.matmul, (square, square)) == {"complex"}
    assert [i.excluded for i in xla.lowered(jnp.matmul, (square, square))] == ["complex"]
    assert xla.excluded(ragged, (A(6, 8), A(2, 8, 3), A(2, dtype="int32"))) == {"ragged_dot"}
    e4, e8 = "float8_e4m3fn", "float8_e8m0fnu"
    args = (A(2, 16, 64, dtype=e4), A(2, 64, 24, dtype=e4), A(2, 16, 2, dtype=e8), A(2, 2, 24, dtype=e8))
    assert xla.excluded(scaled, args) == {"scaled_dot"}
    assert [i.excluded for i in xla.lowered(scaled, args)] == ["scaled_dot"]
    assert set(xla.EXCLUDED) == {"complex", "ragged_dot", "scaled_dot"}


def test_dead_products_are_not_lowered() -> None:
    def fn(x):
        x @ x
        return x + 1.0

    assert xla.lowered(fn, (A(8, 8),)) == []


def test_a_moved_door_says_which() -> None:
    with pytest.raises(PrivateDoorError, match=r"jaxlib\._hlo\.NoSuchName .*costtrace/evidence/xla\.py"):
        xla._door("jaxlib._hlo", "NoSuchName")


def test_the_sum_is_xlas_own() -> None:
    """Without loops and with small numbers, the sum over instructions is what XLA says of the whole program."""

    def fn(x, w):
        return x @ w @ w

    args = (A(4, 8), A(8, 8))
    whole = jax.jit(fn).lower(*args).cost_analysis()["flops"]
    assert xla.matmul_conv(fn, args) == (whole, 0)
    assert math.isclose(whole, 2 * 2 * 4 * 8 * 8)
