"""Updates in place, chains of them, and carries handed round: bytes by hand, in rows of 64 float32 (256 bytes)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import costtrace

S = jax.ShapeDtypeStruct
ROW = 4 * 64


def rows(n: int) -> Any:
    return S((n, 64), "float32")


X, HALF, FEW = rows(1000), rows(500), rows(16)


def two_halves(x: Any) -> Any:
    for _ in range(10):
        x = x.at[:500].add(1.0)
        x = x.at[500:].multiply(2.0)
    return x


def one_half_four_times(x: Any, a: Any) -> Any:
    for _ in range(4):
        x = x.at[:500].add(a)
    return x


def ten_blocks(x: Any) -> Any:
    out = jnp.zeros((1000, 64))
    for i in range(10):
        out = out.at[100 * i : 100 * (i + 1)].set(x[100 * i : 100 * (i + 1)] * 2)
    return out


def beside_the_update(x: Any, a: Any) -> Any:
    return (x * 2).at[:500].set(a)[600:601] * 2


def loop_of_rows(x: Any, few: Any) -> Any:
    return lax.fori_loop(0, 16, lambda i, c: c.at[i].set(few[i]), x)


def loop_from_zeros(few: Any) -> Any:
    return lax.fori_loop(0, 16, lambda i, c: c.at[i].set(few[i]), jnp.zeros((1000, 64)))


def stencil(x: Any) -> Any:
    return lax.fori_loop(0, 10, lambda i, u: u.at[1:-1].set((u[2:] + u[:-2]) * 0.5), x)


FUSED: list[tuple[Callable[..., Any], tuple[Any, ...], bool, int]] = [
    (two_halves, (X,), False, 1000 + 1000),  # read once, written once
    (one_half_four_times, (X, HALF), True, 500 + 500 + 500),  # half of x, a, half of x again
    (ten_blocks, (X,), False, 1000 + 1000),
    (beside_the_update, (X, HALF), False, 1 + 1),
    (loop_of_rows, (X, FEW), False, (1000 - 16) + 16 + 1000),  # the copy keeps the other rows
    (loop_of_rows, (X, FEW), True, 16 + 16),
    (loop_from_zeros, (FEW,), False, 16 + 1000),
    (stencil, (X,), False, 1000 + 1000),
]


@pytest.mark.parametrize(("fn", "args", "donated", "moved"), FUSED, ids=lambda v: getattr(v, "__name__", ""))
def test_fused_bytes(fn: Callable[..., Any], args: tuple[Any, ...], donated: bool, moved: int) -> None:
    cost = costtrace.profile(fn, *args, jit={"donate_argnums": 0} if donated else None).total
    assert cost.bytes_fused == moved * ROW
    assert cost.bytes_fused <= cost.bytes_scoped <= cost.bytes_unfused


def test_each_scope_reads_and_writes_what_it_changes() -> None:
    def fn(x: Any, a: Any) -> Any:
        for i in range(3):
            with jax.named_scope(f"w{i}"):
                x = x.at[:500].add(a)
        with jax.named_scope("read"):
            return x, x.sum()

    scopes = costtrace.profile(fn, X, HALF, jit={"donate_argnums": 0}).scopes()
    assert [scopes[f"w{i}"].bytes_fused for i in range(3)] == [(500 + 500 + 500) * ROW] * 3
    assert scopes["read"].bytes_fused == 1000 * ROW + 4


def test_a_long_chain_of_updates_is_read_where_it_was_written() -> None:
    def fn(x: Any, u: Any) -> Any:
        out = []
        for i in range(200):
            x = lax.dynamic_update_slice(x, u, (i,))
            out.append(x[i] * 2)
        return out

    cost = costtrace.profile(fn, S((4000,), "float32"), S((1,), "float32")).total
    # the first update copies: 3999 read, 4000 written; then u read and a word written, a word read and one written
    assert cost.bytes_unfused == 4 * (3999 + 1 + 4000) + 199 * 4 * (1 + 1) + 200 * 4 * (1 + 1)


A = S((64,), "float32")
ROUND: list[tuple[str, Callable[..., Any], tuple[Any, ...], int]] = [
    ("rows that are the old carry", lambda xs: lax.scan(lambda c, x: (c + x, c), jnp.zeros(64), xs), (rows(10),),
     10 + 10 + 1),  # xs; the rows, of which the first is zeros; the last carry
    ("two numbers on", lambda a, b: lax.fori_loop(0, 5, lambda i, c: (c[1], c[0] + c[1]), (a, b)), (A, A), 2 + 2),
    ("rows that are the start and what follows", lambda c: lax.scan(
        lambda c, _: (jnp.sin(c), c), c, None, length=3), (A,), 1 + 3 + 1),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "args", "moved"), [r[1:] for r in ROUND], ids=[r[0] for r in ROUND])
def test_carries_handed_round(fn: Callable[..., Any], args: tuple[Any, ...], moved: int) -> None:
    cost = costtrace.profile(fn, *args).total
    assert cost.bytes_fused == moved * ROW
    assert cost.bytes_fused <= cost.bytes_scoped <= cost.bytes_unfused


@pytest.mark.parametrize("donated", [False, True])
def test_a_cache_in_a_loop_keeps_the_order_of_the_cuts(donated: bool) -> None:
    def generate(cache: Any, h: Any, keys: Any) -> Any:
        def body(state: Any, i: Any) -> Any:
            cache, h = state
            with jax.named_scope("update"):
                cache = lax.dynamic_update_slice(cache, (h * keys[i])[None], (i, 0))
            with jax.named_scope("attend"):
                h = jnp.tanh(cache.sum(0) + h)
            return (cache, h), h

        with jax.named_scope("generate"):
            return lax.scan(body, (cache, h), jnp.arange(10))

    jit = {"donate_argnums": 0} if donated else None
    found = costtrace.profile(generate, rows(32), A, rows(10), jit=jit)
    for cost in (found.total, *found.scopes().values()):
        assert cost.bytes_fused <= cost.bytes_scoped <= cost.bytes_unfused
    # attend, each trip: the whole cache, h twice over (in, and out as carry and row)
    assert found.scopes()["generate/attend"].bytes_fused >= 10 * (32 + 1 + 1) * ROW


def test_static_arguments_are_constants() -> None:
    def fn(x: Any, n: int) -> Any:
        return x * n if n > 2 else x

    for call in (fn, jax.jit(fn, static_argnums=1)):
        assert costtrace.profile(call, A, 3).total.flops == 64
        assert costtrace.profile(call, A, 1).total.flops == 0
    assert costtrace.profile(fn, A, 3, jit={"static_argnums": 1}).total.flops == 64


def test_saving_twice_gives_the_same_text() -> None:
    def fn(p: Any, x: Any) -> Any:
        for name in "abcdef":
            with jax.named_scope(name):
                x = x @ p[name]
        return x

    weights = {name: S((64, 64), "float32") for name in "abcdef"}
    assert len({costtrace.profile(fn, weights, rows(4)).to_json() for _ in range(3)}) == 1


def test_prefetched_indices_touch_no_more_blocks_than_steps() -> None:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu

    def kernel(index: Any, x: Any, o: Any) -> None:
        o[...] = x[...] * 2

    def fn(index: Any, x: Any) -> Any:
        spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1, grid=(4,), in_specs=[pl.BlockSpec((8, 128), lambda i, index: (index[i], 0))],
            out_specs=pl.BlockSpec((8, 128), lambda i, index: (i, 0)),
        )  # fmt: skip
        return pl.pallas_call(kernel, grid_spec=spec, out_shape=S((32, 128), "float32"))(index, x)

    cost = costtrace.profile(fn, S((4,), "int32"), S((3200, 128), "float32")).total
    assert cost.bytes_fused == cost.bytes_unfused == 4 * 4 + 2 * (4 * 4 * 8 * 128)


def test_two_updates_at_unknown_places_may_meet() -> None:
    """One row and then two of three: together they may or may not be all, so what they write over is made."""

    def fn(x: Any, w: Any, i: Any, one: Any, j: Any, two: Any) -> Any:
        return (x @ w).at[i].set(one).at[j].set(two)

    total = costtrace.profile(fn, rows(3), S((64, 64), "float32"), S((1,), "int32"), rows(1), S((2,), "int32"),
                              rows(2)).total  # fmt: skip
    assert total.bytes_fused == 3 * ROW + 64 * ROW + 4 + ROW + 2 * 4 + 2 * ROW + 3 * ROW
