"""Bytes by hand: reductions, products, loops, branches, scopes.

float32 and int32 elements are 4 bytes; the arithmetic says who reads and writes what.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from byte_case import A, case
from jax import lax

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


@case(A(4), fused=4 * (4 + 4 + 2), unfused=3 * 4 * (4 + 4) + 4 * (2 + 2))
def a_returned_strided_part_of_a_last_carry(x):
    y = lax.fori_loop(0, 3, lambda i, h: h * 2.0, x)
    return y, y[::2]


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


# --- results that are parts of an array ----------------------------------------------------------------------------


@case(A(8, 4), fused=4 * (32 + 8 + 24), unfused=4 * (32 + 8 + 24))
def both_parts_of_a_split_are_returned(x):
    return lax.split(x, (2, 6))


@case(A(8, 4), fused=4 * (24 + 24), unfused=4 * (24 + 24))
def of_a_split_one_part_is_returned(x):
    return lax.split(x, (2, 6))[1]


@case(A(8, 4), fused=4 * (32 + 8 + 24), unfused=4 * ((8 + 8) + (24 + 24)))
def of_a_split_one_part_is_returned_and_one_is_used(x):
    first, second = lax.split(x, (2, 6))
    return first, jnp.sin(second)


@case(A(8, 4), fused=4 * (32 + 32), unfused=4 * (32 + 32))
def rows_are_returned_one_by_one(x):
    return list(jnp.unstack(x))


@case(A(8, 4), fused=4 * (32 + 8 + 24), unfused=4 * (32 + 8 + 24))
def each_trip_splits_its_row(x):
    return lax.scan(lambda c, row: (c, tuple(lax.split(row, (1, 3)))), 0.0, x)[1]


@case(A(2), fused=4 * (1 + 1), unfused=4 * ((2 + 5) + (1 + 1)))
def one_element_of_a_padded_array_by_strides(x):
    return lax.slice(lax.pad(x, 0.0, ((1, 1, 1),)), (3,), (4,), (2,))
