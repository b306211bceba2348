"""Peak memory of small programs by hand, the live buffers written out in each row (float32: 4 bytes an element).

Each row is asked of costtrace and of the slow account in liveness.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from liveness import peak

import costtrace


def A(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:  # noqa: N802
    return jax.ShapeDtypeStruct(shape, dtype)


ROWS: list[tuple[Callable[..., Any], tuple[Any, ...], int, tuple[int, ...]]] = []


def row(*args: Any, peak: int, donate: tuple[int, ...] = ()) -> Callable[..., Any]:
    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        ROWS.append((fn, args, peak, donate))
        return fn

    return add


# --- straight lines ------------------------------------------------------------------------------------------------


@row(A(10), peak=4 * (10 + 10))  # x, y
def one_op(x):
    return x + 1.0


@row(A(10), peak=4 * (10 + 10 + 10))  # x, and two of the chain
def chain(x):
    return jnp.tanh(x * 2.0 + 1.0)


@row(A(10), peak=4 * (10 + 10 + 10 + 10))  # x, y, y * x, result
def diamond(x):
    y = jnp.exp(x)
    return y + y * x


@row(A(100), A(10), peak=4 * (100 + 10 + 1 + 10))  # arguments stay after their last use
def arguments_live_throughout(x, y):
    return y * jnp.sum(x)


@row(A(10), A(100), peak=4 * (10 + 100 + 10))
def an_unused_argument_lives_too(x, y):
    return x + 1.0


@row(A(10), peak=4 * (10 + 10 + 10 + 10))  # x, a (a result), exp, result
def results_live_to_the_end(x):
    a = x * 2.0
    return a, jnp.tanh(jnp.exp(x))


@row(A(10), peak=4 * (10 + 10 + 10))  # x, and two arrays that hold the same
def two_results_of_one_value(x):
    y = x * 2.0
    return y, y


@row(A(30), A(40), peak=4 * (30 + 40 + 30 * 40 + 30))  # both arguments, the outer product, its row sums
def a_large_intermediate(a, b):
    return jnp.sum(lax.mul(lax.broadcast_in_dim(a, (30, 40), (0,)), lax.broadcast_in_dim(b, (30, 40), (1,))), 1)


@row(A(10, 10), peak=4 * (100 + 10 + 100 + 10))  # x, the first sums, the second square, the second sums
def one_after_the_other(x):
    a = jnp.sum(x * x, 1)
    b = jnp.sum(lax.mul(x, jnp.float32(3)), 1)
    return a + b


@row(A(10), peak=4 * (10 + 10))
def dead_code_makes_no_buffer(x):
    jnp.exp(x)
    return x + 1.0


@row(peak=4 * 10)
def no_arguments():
    return lax.iota("int32", 10)


@row(A(0, 4), peak=0)
def empty(x):
    return jnp.exp(x)


@row(A(8), peak=4 * (8 + 8 + 8))  # x, the captured array, result
def a_captured_array_lives_throughout(x):
    return x + np.arange(8, dtype=np.float32)


@row(A(5, dtype="int4"), peak=3 + 5)
def sub_byte(x):
    return x.astype("int8")


@row(A(10, dtype="bfloat16"), peak=2 * 10 + 4 * 10 + 4 * 10)  # x, cast, exp
def cast_then_exp(x):
    return jnp.exp(x.astype("float32"))


# --- views ---------------------------------------------------------------------------------------------------------


@row(A(10), peak=4 * (10 + 10 + 10))  # x, x * 2, result
def reshape_is_no_buffer(x):
    return (x * 2.0).reshape(2, 5) + 1.0


@row(A(4), A(5, 4), peak=4 * (4 + 20 + 20))
def broadcast_is_no_buffer(x, y):
    return x + y


@row(A(10), peak=4 * (10 + 10 + 3 + 1))  # x, y (a part of it is read last), exp of a part, its sum
def a_slice_keeps_its_source(x):
    y = x * 2.0
    s = jnp.exp(y[:3])
    return x + jnp.sum(s) * y[3]


@row(A(2, 4), A(3, 4), peak=4 * (8 + 12 + 6))
def a_folded_transpose_is_no_buffer(a, b):
    return a @ b.T


@row(A(3, 4), A(4, 3), peak=4 * (12 + 12 + 12 + 12))  # x, y, x.T, result
def a_transpose_that_is_added_is_one(x, y):
    return x.T + y


@row(A(2, 3), A(3, 4), A(4, 5), peak=4 * (6 + 12 + 20 + 8 + 10))  # arguments, first product, result
def two_products(a, b, c):
    return (a @ b) @ c


@row(A(3), A(5), peak=4 * (3 + 5 + 8 + 8))  # arguments, concatenation, result
def concatenate(a, b):
    return jnp.exp(jnp.concatenate([a, b]))


# --- updates and donation --------------------------------------------------------------------------------------------


@row(A(10), A(3), peak=4 * (10 + 3 + 10))
def update_of_a_copy(x, u):
    return lax.dynamic_update_slice(x, u, (2,))


@row(A(10), A(3), peak=4 * (10 + 3), donate=(0,))
def update_in_place(x, u):
    return lax.dynamic_update_slice(x, u, (2,))


@row(A(10), A(10), peak=4 * (10 + 10 + 10 + 10), donate=(0,))  # y, and x, x * 2, x * y at the second product
def a_donated_argument_lives_to_its_last_use(x, y):
    a = x * 2.0
    b = x * y
    return jnp.sum(a) + jnp.sum(b)


@row(A(10), A(10), peak=4 * (10 + 10 + 10), donate=(0,))  # y, and never more than two of x, a, b
def a_donated_argument_dies(x, y):
    a = x * 2.0
    b = a * y
    return jnp.exp(b)


# --- calls, branches, loops ------------------------------------------------------------------------------------------


@row(A(10), peak=4 * (10 + 10 + 10))
def jit_is_transparent(x):
    return jax.jit(lambda x: jnp.tanh(jax.jit(jnp.exp)(x)))(x)


@row(A(dtype="bool"), A(10), peak=1 + 4 * (10 + 10))  # the predicate, x, exp; the index is read before the arm runs
def a_branch_is_its_dearest_arm(p, x):
    return lax.cond(p, lambda x: jnp.exp(x), lambda x: x, x)


@row(A(2, 4), A(4, 4), peak=4 * (8 + 16 + 8 + 8))  # h, w, the carry, its next value
def a_loop_is_its_body_and_its_carry(h, w):
    return lax.scan(lambda h, _: (h @ w, None), h, None, length=3)[0]


@row(A(2, 4), A(4, 9), A(9, 4), peak=4 * (8 + 36 + 36 + 8 + 18 + 8))  # arguments, carry, wide, next carry
def what_the_body_makes(h, up, down):
    return lax.scan(lambda h, _: ((h @ up) @ down, None), h, None, length=3)[0]


@row(A(4), A(3, 4), peak=4 * (4 + 12 + 4 + 4))  # h, xs, carry, next carry; a row of xs is no buffer
def scanned_rows_are_views(h, xs):
    return lax.scan(lambda h, x: (h + x, None), h, xs)[0]


@row(A(3, 4), A(4), peak=4 * (12 + 4 + 12 + 4 + 4))  # xs, h, exp(xs) all through the loop, carry, next carry
def scanned_rows_of_an_intermediate(xs, h):
    return lax.scan(lambda h, x: (h + x, None), h, jnp.exp(xs))[0]


@row(A(4), A(4), peak=4 * (4 + 4 + 4 + 4 + 4 + 4))  # h, b, exp(b) all through the loop, carry, h * e, next carry
def an_invariant_lives_through_the_loop(h, b):
    e = jnp.exp(b)
    return lax.scan(lambda h, _: (jnp.tanh(h * e), None), h, None, length=3)[0]


@row(A(4), peak=4 * (4 + 4 + 4))  # x; exp(x), which becomes the carry; its next value
def an_intermediate_becomes_the_carry(x):
    return lax.scan(lambda h, _: (h * 2.0, None), jnp.exp(x), None, length=3)[0]


@row(A(4), peak=4 * (4 + 4 + 4 + 4))  # x, exp(x) for every trip, the carry, its next value
def a_start_that_the_body_reads_too_stays(x):
    s = jnp.exp(x)
    return lax.scan(lambda h, _: (h + s, None), s, None, length=3)[0]


@row(A(3, 4), peak=4 * (12 + 12 + 12))  # xs; the stacked rows, which become the carry; its next value
def stacked_rows_become_the_carry(xs):
    ys = lax.scan(lambda c, x: (c, jnp.exp(x)), 0.0, xs)[1]
    return lax.scan(lambda h, _: (h * 2.0, None), ys, None, length=3)[0]


@row(A(4), peak=4 * (4 + 4 + 4))  # x, the carry (handed from loop to loop), its next value
def one_loop_after_the_other(x):
    h = lax.scan(lambda h, _: (h * 2.0, None), x, None, length=3)[0]
    return lax.scan(lambda h, _: (h + 1.0, None), h, None, length=3)[0]


@row(A(4), A(2, 3, 4), peak=4 * (4 + 24 + 4 + 4 + 4))  # h, xs, outer carry, inner carry, next inner carry
def a_loop_in_a_loop(h, xs):
    inner = lambda h, x: (h + x, None)  # noqa: E731
    return lax.scan(lambda h, rows: (lax.scan(inner, h, rows)[0], None), h, xs)[0]


# x, xs, exp(x) for every trip, the carry; then exp(t), h * it, their sum (the inner carry is gone)
@row(A(4), A(2, 3), peak=4 * (4 + 6 + 4 + 4 + 4 + 4 + 4))
def an_inner_start_from_outside_lives_through_the_outer_loop(x, xs):
    s = jnp.exp(x)

    def body(h, _):
        t = lax.scan(lambda c, _: (c * 2.0, None), s, None, length=3)[0]
        v = jnp.exp(t)
        return lax.add(lax.mul(h, v), v), None

    return lax.scan(body, x, xs)[0]


@row(A(4), A(7), peak=4 * (4 + 7 + 4 + 4 + 4))  # x, y; carry, h * 2, next carry
def five_trips_as_one(x, y):
    return lax.fori_loop(0, 5, lambda i, h: (h * 2.0) + 1.0, x), jnp.sum(y)


@pytest.mark.parametrize(("fn", "args", "want", "donate"), ROWS, ids=[r[0].__name__ for r in ROWS])
def test_peak_by_hand(fn, args, want, donate):
    found = costtrace.profile(fn, *args, jit={"donate_argnums": donate} if donate else None)
    assert found.peak.nbytes == want, found.peak.alive


@pytest.mark.parametrize(
    ("fn", "args", "want"), [r[:3] for r in ROWS if not r[3]], ids=[r[0].__name__ for r in ROWS if not r[3]]
)
def test_the_oracle_agrees_with_the_hand(fn, args, want):
    assert peak(fn, args) == want


def test_the_peak_says_where_and_what():
    def fn(a, b):
        with jax.named_scope("outer"):
            wide = lax.mul(lax.broadcast_in_dim(a, (30, 40), (0,)), lax.broadcast_in_dim(b, (30, 40), (1,)))
        with jax.named_scope("sums"):
            return jnp.sum(wide, 1)

    found = costtrace.profile(fn, A(30), A(40)).peak
    assert (found.scope, found.primitive) == ("sums", "reduce_sum")
    assert found.alive[0][1] == 4 * 30 * 40
    assert {n for _, n in found.alive} == {4 * 30 * 40, 4 * 40, 4 * 30}
    assert {"a", "b"} <= {label for label, _ in found.alive}
