"""Bytes of small programs by hand: fused, scoped and unfused, the arithmetic written out in each row.

Each row is asked of costtrace and of the brute-force account (brute.py); float32 and int32 elements are 4 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brute import accounts
from jax import lax

import costtrace


def A(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:  # noqa: N802
    return jax.ShapeDtypeStruct(shape, dtype)


def I(*shape: int) -> jax.ShapeDtypeStruct:  # noqa: E743, N802
    return A(*shape, dtype="int32")


@dataclass(frozen=True)
class Case:
    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    fused: int
    unfused: int | None
    scoped: int | None = None
    rows: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Scope -> (fused, scoped, unfused)."""
    donate: tuple[int, ...] = ()
    brute: bool = True
    """False where the brute-force account does not know a primitive."""


CASES: list[Case] = []
WRAP = (4 + 1) + (4 + 4) + (1 + 4 + 4 + 4)
"""jax wraps a negative index before it uses it: a comparison, an addition, a selection of one int32."""


def case(*args: Any, fused: int, unfused: int | None, scoped: int | None = None, **more: Any) -> Callable[..., Any]:
    """Adds a function to the table. Without scopes, scoped bytes equal fused ones; unfused None: not worked out."""

    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        assert fn.__name__ not in [c.name for c in CASES]
        CASES.append(Case(fn.__name__, fn, args, fused, unfused, fused if scoped is None else scoped, **more))
        return fn

    return add


# --- elementwise -------------------------------------------------------------------------------------------------


@case(A(10), fused=4 * (10 + 10), unfused=3 * 4 * (10 + 10))
def chain(x):
    return jnp.tanh(x * 2.0 + 1.0)


@case(A(10), A(10), A(10), fused=4 * (3 * 10 + 10), unfused=2 * 4 * (2 * 10 + 10))
def multiply_add(a, b, c):
    return a * b + c


@case(A(10), fused=4 * (10 + 10), unfused=4 * (10 + 10))
def an_operand_used_twice_is_read_once(x):
    return lax.mul(x, x)


@case(A(10), fused=4 * (10 + 10), unfused=4 * ((10 + 10) + (20 + 10) + (20 + 10)))
def diamond(x):
    y = jnp.exp(x)
    return y + y * x


@case(A(), A(), fused=4 * (1 + 1 + 1), unfused=4 * (2 + 1) + 4 * (2 + 1))
def scalars(a, b):
    return a * b + a


@case(A(10), A(10), fused=4 * 20 + 10, unfused=4 * 20 + 10)
def a_bool_is_one_byte(x, y):
    return lax.gt(x, y)


@case(A(10, dtype="bool"), A(10), A(10), fused=10 + 4 * (20 + 10), unfused=10 + 4 * (20 + 10))
def select(p, x, y):
    return lax.select(p, x, y)


@case(A(10), fused=4 * (10 + 10), unfused=4 * (10 + 10))
def dead_code(x):
    jnp.exp(x)
    return x + 1.0


@case(A(10), fused=4 * (10 + 10 + 10), unfused=4 * (10 + 10) + 4 * (10 + 10))
def a_result_that_is_also_used(x):
    y = x * 2.0
    return y, jnp.exp(y)


@case(A(8), fused=4 * (8 + 8 + 8), unfused=4 * (8 + 8 + 8))
def a_captured_array_is_read(x):
    return x + np.arange(8, dtype=np.float32)


@case(A(0, 4), A(4, 5), fused=0, unfused=None)
def empty(a, b):
    return jnp.tanh(a @ b)


# --- widths ------------------------------------------------------------------------------------------------------


@case(A(10, dtype="bfloat16"), fused=2 * 10 + 4 * 10, unfused=2 * 10 + 4 * 10)
def cast(x):
    return x.astype("float32")


@case(A(5, dtype="int4"), fused=3 + 5, unfused=3 + 5)
def five_int4_are_three_bytes(x):
    return x.astype("int8")


@case(A(2, 8, dtype="bfloat16"), A(8, 3, dtype="int4"), fused=2 * 16 + 24 // 2 + 2 * 6,
      unfused=(24 // 2 + 2 * 24) + (2 * 16 + 2 * 24 + 2 * 6))  # fmt: skip
def int4_weights(x, w):
    return x @ w.astype("bfloat16")


@case(A(6, dtype="complex64"), fused=8 * 12, unfused=8 * 12)
def complex_is_eight(x):
    return lax.mul(x, x)


# --- broadcast, iota, literals -------------------------------------------------------------------------------------


@case(A(3, 4), A(4), fused=4 * (12 + 4 + 12), unfused=4 * (12 + 4 + 12))
def a_broadcast_operand_stays_small(x, b):
    return x + b


@case(A(3, 1), A(1, 4), fused=4 * (3 + 4 + 12), unfused=4 * (3 + 4 + 12))
def outer_sum(a, b):
    return a + b


@case(A(4), fused=4 * (4 + 20), unfused=4 * (4 + 20))
def a_returned_broadcast_is_written(x):
    return lax.broadcast(x, (5,))


@case(fused=4 * 10, unfused=4 * 10)
def a_returned_iota_is_written():
    return lax.iota("int32", 10)


@case(I(10), fused=4 * (10 + 10), unfused=4 * 10 + 4 * (20 + 10))
def iota_inside(x):
    return x + lax.iota("int32", 10)


@case(A(10), fused=4 * (10 + 10), unfused=4 * (10 + 10))
def a_full_of_a_literal_is_not_read(x):
    return x + lax.broadcast(np.float32(3), (10,))


# --- slices --------------------------------------------------------------------------------------------------------


@case(A(10), fused=4 * (4 + 4), unfused=4 * (4 + 4))
def a_slice_that_is_read(x):
    return jnp.exp(x[2:6])


@case(A(10), fused=4 * (4 + 4), unfused=4 * (4 + 4))
def a_slice_that_is_returned(x):
    return x[2:6]


@case(A(10), fused=4 * (10 + 6), unfused=4 * (10 + 6))
def overlapping_slices_are_their_union(x):
    return x[0:6] + x[4:10]


@case(A(10), fused=4 * (6 + 3), unfused=4 * (6 + 3))
def disjoint_slices(x):
    return x[0:3] + x[7:10]


@case(A(10), fused=4 * (4 + 4), unfused=4 * (4 + 4))
def every_third(x):
    return jnp.exp(lax.slice(x, (0,), (10,), (3,)))


@case(A(100), fused=4 * (25 + 25), unfused=4 * (25 + 25))
def a_strided_slice_is_at_a_known_place(x):
    return lax.mul(x[::4], x[::4])


@case(A(10), A(5), fused=4 * (5 + 5 + 5), unfused=3 * 4 * (5 + 5 + 5))
def a_strided_slice_read_in_every_trip(x, c):
    return lax.scan(lambda c, _: (c + x[::2], None), c, None, length=3)[0]


@case(A(10), I(), fused=4 * 3 + 4 + 4 * 3, unfused=WRAP + 4 * 3 + 4 + 4 * 3)
def a_slice_at_a_place_that_is_data(x, i):
    return lax.dynamic_slice(x, (i,), (3,))


@case(A(4, 6), fused=4 * (2 * 2 + 2 * 2), unfused=4 * (4 + 4))
def a_slice_of_a_slice(x):
    return jnp.exp(x[1:4, 2:6][:2, 1:3])


# --- gather, scatter, update ---------------------------------------------------------------------------------------


@case(A(50, 4), I(3), fused=3 * 16 + 3 * 4 + 3 * 16, unfused=3 * WRAP + 3 * 16 + 3 * 4 + 3 * 16)
def gather_reads_its_rows(t, i):
    return t.at[i].get(mode="promise_in_bounds")


@case(A(2, 4), I(3), fused=2 * 16 + 3 * 4 + 3 * 16, unfused=3 * WRAP + 2 * 16 + 3 * 4 + 3 * 16)
def gather_reads_no_more_than_there_is(t, i):
    return t.at[i].get(mode="promise_in_bounds")


@case(A(50, 4), I(3), A(3, 4), fused=(50 - 3) * 16 + 3 * 16 + 3 * 4 + 50 * 16,
      unfused=3 * WRAP + (50 - 3) * 16 + 3 * 16 + 3 * 4 + 50 * 16)  # fmt: skip
def scatter_into_a_copy(t, i, u):
    return t.at[i].set(u)


@case(A(50, 4), I(3), A(3, 4), fused=3 * 16 + 3 * 4 + 3 * 16, unfused=3 * WRAP + 3 * 16 + 3 * 4 + 3 * 16, donate=(0,))
def scatter_in_place(t, i, u):
    return t.at[i].set(u)


@case(A(50, 4), I(3), A(3, 4), fused=3 * 16 + 3 * 16 + 3 * 4 + 3 * 16,
      unfused=3 * WRAP + 3 * 16 + 3 * 16 + 3 * 4 + 3 * 16, donate=(0,))  # fmt: skip
def scatter_add_in_place_reads_its_rows_too(t, i, u):
    return t.at[i].add(u)


@case(A(10), A(3), fused=4 * (7 + 3 + 10), unfused=4 * (7 + 3 + 10))
def update_of_a_copy(x, u):
    return lax.dynamic_update_slice(x, u, (2,))


@case(A(10), A(3), I(), fused=4 * (3 + 3) + 4, unfused=WRAP + 4 * (3 + 3) + 4, donate=(0,))
def update_in_place(x, u, i):
    return lax.dynamic_update_slice(x, u, (i,))


@case(A(3), A(3), fused=4 * (3 + 3), unfused=4 * (3 + 3) + 4 * (3 + 3))
def an_update_of_all_of_a_result_leaves_nothing_of_it(x, u):
    return lax.dynamic_update_slice(x * 2.0, u, (0,))


@case(A(10), A(3), fused=4 * (7 + 3 + 20), unfused=4 * (10 + 10) + 4 * (3 + 3) + 4 * (10 + 20))
def a_returned_broadcast_of_an_update(x, u):
    return lax.broadcast(lax.dynamic_update_slice(x * 2.0, u, (0,)), (2,))


@case(A(10), A(3), fused=4 * (3 + 1 + 4), unfused=4 * (10 + 10) + 4 * (3 + 3) + 4 * (4 + 4))
def a_returned_slice_of_an_update(x, u):
    return lax.dynamic_update_slice(x * 2.0, u, (0,))[:4]


@case(A(10), fused=4 * (10 + 10), unfused=4 * (10 + 10), donate=(0,))
def a_donated_argument_is_read_and_written(x):
    return x + 1.0


# --- layout --------------------------------------------------------------------------------------------------------


@case(A(3, 4), fused=4 * (12 + 12), unfused=4 * (12 + 12))
def a_returned_transpose_moves(x):
    return x.T


@case(A(3, 4), A(4, 3), fused=4 * (12 + 12 + 12), unfused=4 * (12 + 12) + 4 * (24 + 12))
def a_transpose_that_is_added_moves(x, y):
    return x.T + y


@case(A(2, 4), A(3, 4), fused=4 * (8 + 12 + 6), unfused=4 * (8 + 12 + 6))
def a_transpose_folds_into_a_dot(a, b):
    return a @ b.T


@case(A(3, 4), fused=4 * (12 + 9), unfused=4 * (12 + 9))
def gram(x):
    return x @ x.T


@case(A(2, 4), A(3, 4), fused=4 * (8 + 12 + 6 + 12), unfused=4 * (12 + 12) + 4 * (8 + 12 + 6) + 4 * (12 + 12))
def a_transpose_that_is_also_read_otherwise(a, b):
    t = b.T
    return a @ t, t + 1.0


@case(A(10), fused=4 * (10 + 10), unfused=2 * 4 * (10 + 10))
def reshape_between(x):
    return (x * 2.0).reshape(2, 5) + 1.0


@case(A(10), fused=4 * (10 + 10), unfused=4 * (10 + 10))
def a_returned_reshape_of_an_argument(x):
    return x.reshape(2, 5)


@case(A(10), fused=4 * (10 + 10), unfused=4 * (10 + 10))
def a_returned_reshape_of_a_result(x):
    return (x * 2.0).reshape(2, 5)


@case(A(3), A(5), fused=4 * (8 + 8), unfused=4 * (8 + 8))
def concatenate(a, b):
    return jnp.concatenate([a, b])


@case(A(3), A(5), fused=4 * (4 + 4), unfused=4 * (8 + 8) + 4 * (4 + 4))
def concatenate_then_slice(a, b):
    return jnp.exp(jnp.concatenate([a, b])[2:6])


@case(A(10, 2), A(6, 2), fused=4 * (12 + 12), unfused=4 * (32 + 32) + 4 * (32 + 32) + 4 * (12 + 12))
def concatenate_reverse_slice(a, b):
    return jnp.flip(jnp.concatenate([a, b]), 0)[10:]


@case(A(4), fused=4 * (4 + 7), unfused=4 * (4 + 7))
def pad(x):
    return lax.pad(x, np.float32(0), ((2, 1, 0),))


# --- reductions and products -----------------------------------------------------------------------------------------


@case(A(3, 4), fused=4 * (12 + 1), unfused=4 * (12 + 1))
def total(x):
    return jnp.sum(x)


@case(A(3, 4), fused=4 * (12 + 12), unfused=4 * (12 + 3) + 4 * (12 + 3 + 12))
def subtract_row_sums(x):
    return x - jnp.sum(x, 1, keepdims=True)


@case(A(3, 4), fused=4 * (12 + 3 + 3), unfused=2 * 4 * (12 + 3))
def two_reductions_of_one_argument(x):
    return jnp.max(x, 1), lax.argmax(x, 1, "int32")


@case(A(10), fused=4 * (10 + 10), unfused=4 * (10 + 10))
def running_sum(x):
    return lax.cumsum(x)


@case(A(2, 3, 4), A(2, 4, 5), fused=4 * (24 + 40 + 30), unfused=4 * (24 + 40 + 30))
def batched_product(a, b):
    return a @ b


@case(A(5, 4), A(4, 3), fused=4 * (20 + 12 + 15), unfused=4 * (20 + 12 + 15))
def vmap_reads_a_shared_weight_once(x, w):
    return jax.vmap(lambda r: r @ w)(x)


@case(A(1, 7, 2), A(3, 2, 4), fused=4 * (14 + 24 + 20), unfused=4 * (14 + 24 + 20), brute=False)
def convolution(x, k):
    return lax.conv_general_dilated(x, k, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC"))


# --- loops and branches ----------------------------------------------------------------------------------------------


@case(A(4), A(3, 4), fused=4 * (4 + 12 + 4 + 12), unfused=3 * (4 * (4 + 4 + 4) + 4 * (4 + 4)))
def scan_carry_rows_and_stack(h, xs):
    def body(h, x):
        h = h + x
        return h, jnp.tanh(h)

    return lax.scan(body, h, xs)


@case(A(4), A(3, 4), fused=4 * (4 + 12 + 4 + 12), unfused=3 * 4 * (4 + 4 + 4) + 4 * 4)
def the_last_row_is_also_the_last_carry(h, xs):
    def body(h, x):
        h = h + x
        return h, h

    return lax.scan(body, h, xs)


@case(A(10), fused=4 * (10 + 10 + 10), unfused=4 * (10 + 10 + 10))
def a_value_that_is_two_results_is_written_twice(x):
    y = x * 2.0
    return y, y


@case(A(4), A(3, 4), fused=4 * (4 + 12 + 4 + 12), unfused=None)
def rows_that_are_the_carry_as_it_was(h, xs):
    return lax.scan(lambda h, x: (h + x, h), h, xs)


@case(A(2, 4), A(4, 4), fused=4 * (8 + 16 + 8), unfused=3 * 4 * (8 + 16 + 8))
def scan_reads_an_invariant_once(h, w):
    return lax.scan(lambda h, _: (h @ w, None), h, None, length=3)[0]


@case(A(2, 4), A(3, 4, 4), fused=4 * (8 + 48 + 8), unfused=3 * 4 * (8 + 16 + 8))
def scan_over_stacked_weights(h, ws):
    return lax.scan(lambda h, w: (h @ w, None), h, ws)[0]


@case(A(4), A(2, 3, 4), fused=4 * (4 + 24 + 4), unfused=6 * 4 * (4 + 4 + 4))
def scan_in_a_scan(h, xs):
    inner = lambda h, x: (h + x, None)  # noqa: E731
    return lax.scan(lambda h, rows: (lax.scan(inner, h, rows)[0], None), h, xs)[0]


@case(A(4), A(3, 4), fused=4 * (4 + 12 + 4), unfused=3 * 4 * (4 + 4 + 4))
def scan_with_a_dead_stack(h, xs):
    return lax.scan(lambda h, x: (h + x, jnp.exp(h)), h, xs)[0]


@case(A(3, 4), fused=4 * (12 + 12), unfused=3 * 4 * (4 + 4))
def scan_from_the_end(xs):
    return lax.scan(lambda c, x: (c, x * 2.0), 0.0, xs, reverse=True)[1]


@case(A(4), fused=4 * (4 + 4 + 1), unfused=3 * 4 * (4 + 4) + 4 * (1 + 1))
def a_returned_part_of_a_last_carry(x):
    y = lax.fori_loop(0, 3, lambda i, h: h * 2.0, x)
    return y, y[:1]


@case(A(4), fused=4 * (4 + 4), unfused=None, brute=False)
def counted_while(x):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2.0), (0, x))[1]


@case(A(4), fused=4 * (4 + 4), unfused=5 * 4 * (4 + 4))
def counted_fori(x):
    return lax.fori_loop(2, 7, lambda i, h: h * 2.0, x)


@case(A(dtype="bool"), A(2, 4), A(4, 4), fused=1 + 4 * (8 + 16 + 8), unfused=None)
def branch_counts_its_dearest_arm(p, x, w):
    return lax.cond(p, lambda x: x @ w, lambda x: x, x)


# --- scopes --------------------------------------------------------------------------------------------------------


@case(A(10), fused=4 * (10 + 10), scoped=2 * 4 * (10 + 10), unfused=3 * 4 * (10 + 10),
      rows={"a": (80, 80, 160), "b": (80, 80, 80)})  # fmt: skip
def siblings(x):
    with jax.named_scope("a"):
        y = x * 2.0 + 1.0
    with jax.named_scope("b"):
        return lax.mul(y, y)


@case(A(10), fused=4 * (10 + 10), scoped=4 * (10 + 10 + 10 + 10) + 4 * (10 + 10), unfused=80 + 80 + 4 * (20 + 10),
      rows={"p": (80, 160 + 80, 80 + 80 + 120), "p/c": (80, 80, 80)})  # fmt: skip
def own_ops_of_a_scope_are_one_more_leaf(x):
    with jax.named_scope("p"):
        y = x * 2.0  # own: reads x and z, writes y and the result
        with jax.named_scope("c"):
            z = jnp.exp(y)
        return z + y


@case(fused=4 * 3, scoped=4 * 3 + 4 * (3 + 3), unfused=4 * 10 + 4 * (10 + 10) + 4 * (3 + 3),
      rows={"a": (4 * 3, 4 * 3, 4 * 10 + 4 * 20), "b": (4 * 6, 4 * 6, 4 * 6)})  # fmt: skip
def of_a_buffer_only_what_is_read_outside_leaves():
    with jax.named_scope("a"):
        y = lax.iota("int32", 10) * 2
    with jax.named_scope("b"):
        return y[:3] + 1


@case(A(10), fused=4 * (10 + 10), scoped=4 * (10 + 1) + 4 * (10 + 1 + 10), unfused=4 * (10 + 1) + 4 * (10 + 1 + 10),
      rows={"a": (44, 44, 44), "b": (84, 84, 84)})  # fmt: skip
def an_argument_read_in_two_scopes(x):
    with jax.named_scope("a"):
        s = jnp.sum(x)
    with jax.named_scope("b"):
        return x - s


@case(A(10), fused=4 * (10 + 10), scoped=2 * 4 * (10 + 10), unfused=2 * 4 * (10 + 10), rows={"a": (160, 160, 160)})
def one_name_twice_is_two_instances(x):
    for _ in range(2):
        with jax.named_scope("a"):
            x = jnp.exp(x)
    return x


@case(A(2, 4), A(4, 4), fused=4 * (8 + 16 + 8), scoped=3 * 4 * (8 + 16 + 8), unfused=3 * 4 * (8 + 16 + 8),
      rows={"s": (3 * 128, 3 * 128, 3 * 128)})  # fmt: skip
def a_scope_in_a_loop_is_an_instance_per_trip(h, w):
    def body(h, _):
        with jax.named_scope("s"):
            return h @ w, None

    return lax.scan(body, h, None, length=3)[0]


@case(A(2, 4), A(4, 4), fused=4 * (8 + 16 + 8), unfused=3 * 4 * (8 + 16 + 8), rows={"s": (128, 128, 3 * 128)})
def a_loop_in_a_scope_is_one_instance(h, w):
    with jax.named_scope("s"):
        return lax.scan(lambda h, _: (h @ w, None), h, None, length=3)[0]


@case(A(4), A(3, 4), fused=4 * (4 + 12 + 12), scoped=3 * 4 * (4 + 4 + 4), unfused=3 * 4 * (4 + 4 + 4),
      rows={"s": (3 * 48, 3 * 48, 3 * 48)})  # fmt: skip
def a_value_carried_and_stacked_leaves_once(h, xs):
    def body(h, x):
        with jax.named_scope("s"):
            h = h + x
        return h, h

    return lax.scan(body, h, xs)[1]


@case(A(4), fused=4 * (4 + 4), scoped=3 * 4 * (4 + 4) + 4 * (4 + 3 * 4 + 3 * 4),
      unfused=3 * (4 * (4 + 4) + 4 * (4 + 4 + 4)), rows={"s": (3 * 32, 3 * 32, 3 * 32)})  # fmt: skip
def own_ops_in_a_loop_read_their_child_in_every_trip(x):
    def body(h, _):
        with jax.named_scope("s"):
            y = jnp.exp(h)  # reads h, writes y: 3 instances
        return h + y, None  # own: reads x once and y three times, writes each trip's sum

    return lax.scan(body, x, None, length=3)[0]


@case(A(4), fused=4 * (4 + 4 + 4), unfused=4 * (4 + 4 + 4))
def a_view_of_a_result_is_written_by_its_maker(x):
    y = x * 2.0
    with jax.named_scope("s"):
        return y, y.reshape(2, 2)


@case(A(2, 5), fused=4 * (10 + 10), unfused=4 * (10 + 10), rows={"b": (80, 80, 80)})
def a_view_belongs_to_nobody(x):
    with jax.named_scope("a"):
        y = x.reshape(10)
    with jax.named_scope("b"):
        return jnp.exp(y)


@case(A(2, 4), A(3, 4), fused=4 * (8 + 12 + 6), unfused=4 * (8 + 12 + 6), rows={"b": (104, 104, 104)})
def a_transpose_folds_across_scopes(a, b):
    with jax.named_scope("a"):
        t = b.T
    with jax.named_scope("b"):
        return a @ t


@case(A(2, 3), A(3, 4), fused=4 * (6 + 12 + 8), unfused=4 * (6 + 12 + 8), rows={"a": (104, 104, 104)})
def a_pattern_is_no_scope(x, y):
    with jax.named_scope("a"):
        return jnp.einsum("ij,jk->ik", x, y)


@case(A(3, 4), fused=4 * (12 + 12), scoped=4 * (12 + 3) + 4 * (12 + 3 + 12), unfused=60 + 108,
      rows={"n": (96, 60 + 108, 60 + 108), "n/sum": (60, 60, 60), "n/sub": (108, 108, 108)})  # fmt: skip
def nested(x):
    with jax.named_scope("n"):
        with jax.named_scope("sum"):
            s = jnp.sum(x, 1, keepdims=True)
        with jax.named_scope("sub"):
            return x - s


@case(A(10), fused=4 * (10 + 10), scoped=2 * 4 * (10 + 10), unfused=2 * 4 * (10 + 10), rows={"s": (160, 160, 160)})
def two_calls_of_one_jitted_function(x):
    @jax.jit
    def f(x):
        with jax.named_scope("s"):
            return jnp.exp(x)

    return f(f(x))


@pytest.mark.parametrize("row", CASES, ids=lambda c: c.name)
def test_bytes_by_hand(row: Case) -> None:
    profile = costtrace.profile(row.fn, *row.args, jit={"donate_argnums": row.donate} if row.donate else None)
    found = {"": profile.total, **profile.scopes()}
    for path, cost in found.items():
        assert cost.bytes_fused <= cost.bytes_scoped <= cost.bytes_unfused, path
    for path, (fused, scoped, unfused) in {"": (row.fused, row.scoped, row.unfused), **row.rows}.items():
        cost = found[path]
        assert (cost.bytes_fused, cost.bytes_scoped) == (fused, scoped), path
        assert unfused is None or cost.bytes_unfused == unfused, path


@pytest.mark.parametrize("row", [c for c in CASES if c.brute], ids=lambda c: c.name)
def test_the_oracle_agrees_with_the_hand(row: Case) -> None:
    found = accounts(row.fn, row.args, row.donate).rows
    for path, (fused, scoped, unfused) in {"": (row.fused, row.scoped, row.unfused), **row.rows}.items():
        account = found[path]
        assert (account.fused, account.scoped) == (fused, scoped), path
        assert unfused is None or account.unfused == unfused, path


def test_weight_bytes_are_the_touched_rows() -> None:
    def fn(p, i, x):
        return p["table"].at[i].get(mode="promise_in_bounds") @ p["out"], x

    params = {"table": A(50, 4), "out": A(4, 6)}
    found = costtrace.profile(fn, params, I(3), A(2))
    assert found.total.weight_bytes == 3 * 16 + 24 * 4
