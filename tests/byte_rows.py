"""Bytes of straight lines by hand: elementwise, widths, slices, gathers, updates, layout.

float32 and int32 elements are 4 bytes; the arithmetic says who reads and writes what.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from byte_case import WRAP, A, I, case
from jax import lax

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
