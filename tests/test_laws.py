"""What must hold between two programs: a loop and its body, a batch and its half, a gradient and its function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import costtrace
from costtrace.core import COUNTS

WORK = ("matmul_flops", "conv_flops", "vector_flops", "transcendentals", "integer_ops")
SIZES = st.integers(1, 5)


def A(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:  # noqa: N802
    return jax.ShapeDtypeStruct(shape, dtype)


def total(fn: Any, *args: Any, **more: Any) -> costtrace.Cost:
    return costtrace.profile(fn, *args, **more).total


def work(cost: costtrace.Cost) -> dict[str, int]:
    return {k: getattr(cost, k) for k in WORK}


def layer(h, w):
    return jnp.tanh(h @ w) + h


@given(n=st.integers(0, 6), b=SIZES, d=SIZES)
def test_a_scan_is_n_bodies(n: int, b: int, d: int) -> None:
    looped = total(lambda h, ws: lax.scan(lambda h, w: (layer(h, w), None), h, ws)[0], A(b, d), A(n, d, d))
    body = total(layer, A(b, d), A(d, d))
    assert work(looped) == {k: n * c for k, c in work(body).items()}
    assert looped.bytes_unfused == n * body.bytes_unfused


@given(n=st.integers(0, 6), unroll=st.integers(1, 4))
def test_unroll_changes_nothing(n: int, unroll: int) -> None:
    def fn(h, ws):
        return lax.scan(lambda h, w: (layer(h, w), None), h, ws, unroll=unroll)[0]

    one = total(lambda h, ws: lax.scan(lambda h, w: (layer(h, w), None), h, ws)[0], A(2, 3), A(n, 3, 3))
    assert total(fn, A(2, 3), A(n, 3, 3)) == one


@given(start=st.integers(-5, 5), trips=st.integers(0, 9), step=st.sampled_from([-3, -1, 1, 2, 7]))
def test_a_counted_while_is_its_trips(start: int, trips: int, step: int) -> None:
    def fn(x):
        def more(c):
            return c[0] < start + trips * step if step > 0 else c[0] > start + trips * step

        return lax.while_loop(more, lambda c: (c[0] + step, c[1] * 2.0), (start, x))[1]

    found = costtrace.profile(fn, A(7))
    assert (found.total.vector_flops, found.status) == (7 * trips, "exact")


@pytest.mark.parametrize(("step", "trips"), [(2, 6), (3, 5), (10, 2)])
def test_a_counter_that_is_multiplied(step: int, trips: int) -> None:
    """2, 4, 8, ... below 100 is 6 trips; a count by the first two steps alone would be wrong."""
    fn = lambda x: lax.while_loop(lambda c: c[0] < 100, lambda c: (c[0] * step, c[1] + 1.0), (min(step, 2), x))[1]  # noqa: E731
    want = 0
    i = min(step, 2)
    while i < 100:
        i, want = i * step, want + 1
    assert total(fn, A(1)).vector_flops == want


@given(b=SIZES, d=SIZES)
def test_twice_the_batch_is_twice_the_work(b: int, d: int) -> None:
    def fn(params, x):
        return jnp.sum(jax.nn.relu(x @ params["up"]) @ params["down"], 1)

    params = {"up": A(d, 2 * d), "down": A(2 * d, d)}
    one, two = total(fn, params, A(b, d)), total(fn, params, A(2 * b, d))
    assert work(two) == {k: 2 * c for k, c in work(one).items()}
    assert two.weight_bytes == one.weight_bytes == 4 * 4 * d * d
    for cut in ("bytes_fused", "bytes_scoped"):
        assert getattr(two, cut) - one.weight_bytes == 2 * (getattr(one, cut) - one.weight_bytes)


@given(b=SIZES, m=SIZES, k=SIZES, n=SIZES)
def test_vmap_is_the_batched_product(b: int, m: int, k: int, n: int) -> None:
    mapped = total(jax.vmap(jnp.matmul), A(b, m, k), A(b, k, n))
    assert mapped.replace(by_dtype={}) == total(jnp.matmul, A(b, m, k), A(b, k, n)).replace(by_dtype={})
    assert mapped.matmul_flops == 2 * b * m * k * n
    shared = total(jax.vmap(jnp.matmul, (0, None)), A(b, m, k), A(k, n))
    assert shared.matmul_flops == mapped.matmul_flops
    assert shared.bytes_fused == 4 * (b * m * k + k * n + b * m * n)


@given(m=SIZES, k=SIZES, n=SIZES, p=SIZES)
def test_an_einsum_is_its_products(m: int, k: int, n: int, p: int) -> None:
    whole = total(
        lambda a, b, c: jnp.einsum("mk,kn,np->mp", a, b, c, optimize=[(0, 1), (0, 1)]), A(m, k), A(k, n), A(n, p)
    )
    parts = total(lambda a, b, c: (a @ b) @ c, A(m, k), A(k, n), A(n, p))
    assert whole.matmul_flops == parts.matmul_flops == 2 * m * n * (k + p)


@given(n=st.integers(1, 5), b=SIZES, d=SIZES)
def test_backward_of_a_chain_is_twice_less_the_first_input(n: int, b: int, d: int) -> None:
    def chain(ws, x):
        for w in ws:
            x = x @ w
        return jnp.sum(x * x)

    one = 2 * b * d * d
    weights = [A(d, d)] * n
    assert total(jax.value_and_grad(chain), weights, A(b, d)).matmul_flops == (n + 2 * n - 1) * one
    assert total(jax.value_and_grad(chain, (0, 1)), weights, A(b, d)).matmul_flops == 3 * n * one


@given(b=SIZES, d=SIZES)
def test_remat_adds_what_it_recomputes(b: int, d: int) -> None:
    def net(w1, w2, x):
        return jnp.tanh(x @ w1) @ w2

    def loss(f):
        return jax.value_and_grad(lambda w1, w2, x: jnp.sum(f(w1, w2, x) ** 2), (0, 1))

    args = (A(d, d), A(d, d), A(b, d))
    plain, again = costtrace.profile(loss(net), *args), costtrace.profile(loss(jax.checkpoint(net)), *args)
    assert again.total.matmul_flops - plain.total.matmul_flops == 2 * b * d * d  # x @ w1; the second product is dead
    recomputed = {r.key: r.cost.matmul_flops for r in again.rows(by="phase")}
    assert recomputed["recompute"] == 2 * b * d * d
    assert total(jax.checkpoint(net), *args) == total(net, *args)


@given(n=st.integers(1, 4), scoped=st.booleans())
def test_a_gradient_through_a_scan_is_that_of_the_unrolled_chain(n: int, scoped: bool) -> None:
    def step(h, w):
        if scoped:
            with jax.named_scope("step"):
                return jnp.tanh(h @ w)
        return jnp.tanh(h @ w)

    def looped(ws, x):
        return jnp.sum(lax.scan(lambda h, w: (step(h, w), None), x, ws)[0])

    def unrolled(ws, x):
        for i in range(n):
            x = step(x, ws[i])
        return jnp.sum(x)

    a, b = (costtrace.profile(jax.grad(f, (0, 1)), A(n, 3, 3), A(2, 3)) for f in (looped, unrolled))
    assert (a.total.matmul_flops, a.total.transcendentals) == (b.total.matmul_flops, b.total.transcendentals)
    assert a.total.matmul_flops == 3 * n * 2 * 2 * 3 * 3
    if scoped:
        assert a.scopes()["step"].matmul_flops == a.total.matmul_flops


@given(n=st.integers(2, 4), heads=SIZES)
def test_scanned_and_unrolled_blocks_have_the_same_rows(n: int, heads: int) -> None:
    def block(h, w):
        with jax.named_scope("norm"):
            y = h - jnp.mean(h, -1, keepdims=True)
        with jax.named_scope("mlp"):
            return h + jax.nn.silu(y @ w["up"]) @ w["down"]

    def looped(ws, x):
        return lax.scan(lambda h, w: (block(h, w), None), x, ws)[0]

    def unrolled(ws, x):
        for i in range(n):
            x = block(x, {k: w[i] for k, w in ws.items()})
        return x

    weights = {"up": A(n, 4, 3 * heads), "down": A(n, 3 * heads, 4)}
    a, b = (costtrace.profile(f, weights, A(heads, 4)) for f in (looped, unrolled))
    for path in ("", "norm", "mlp"):
        for count in COUNTS:
            assert getattr(a.by_scope[path], count) == getattr(b.by_scope[path], count), (path, count)
    assert a.peak.nbytes >= b.peak.nbytes  # a loop's carry is a buffer; unrolled, the first block reads the argument


def test_jit_and_nesting_are_transparent() -> None:
    plain = costtrace.profile(layer, A(2, 3), A(3, 3))
    nested = costtrace.profile(jax.jit(lambda h, w: jax.jit(layer)(h, w)), A(2, 3), A(3, 3))
    assert nested.total == plain.total
    assert nested.peak.nbytes == plain.peak.nbytes


def test_asking_again_gives_the_same() -> None:
    g = jax.jit(layer)
    assert len({str(total(g, A(2, 3), A(3, 3)).to_dict()) for _ in range(3)}) == 1


def test_a_profile_of_numpy_padding_is_saved() -> None:
    """jnp.pad hands numpy's integers on; a count is a Python int all the same."""
    found = costtrace.profile(lambda x: jnp.exp(jnp.pad(x, (2, 2))[:4]), A(10))
    assert type(found.total.bytes_fused) is int
    assert costtrace.Profile.from_json(found.to_json()) == found


def test_an_operand_that_nobody_reads_is_dead() -> None:
    """A jitted function that ignores an argument leaves what made it without a reader."""

    def fn(x):
        unused = jnp.exp(x)
        return jax.jit(lambda unused: lax.neg(x))(unused)

    assert work(total(fn, A(3))) == work(total(lax.neg, A(3)))


def test_what_only_a_loop_of_no_trips_reads_is_dead() -> None:
    def fn(x, w):
        return lax.fori_loop(0, 0, lambda i, c: c + x @ w, jnp.exp(x))

    assert work(total(fn, A(3, 3), A(3, 3))) == work(total(jnp.exp, A(3, 3)))

    def read_outside(x):
        y = lax.sin(x)
        return lax.scan(lambda c, row: (c * y + row, row), x, jnp.zeros((0, 3)))

    assert work(total(read_outside, A(3))) == dict.fromkeys(WORK, 0)


def test_int4_counting_is_traced() -> None:
    assert total(lambda: lax.iota("int4", 4) * 2 + 1).integer_ops == 2 * 4
