"""Control flow, transforms and names: each program of the table against a count written out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import costtrace

S = jax.ShapeDtypeStruct
X = S((4, 4), "float32")
N = S((), "int32")
P = 2 * 4 * 4 * 4  # FLOPs of one 4x4 product


def square(h: Any) -> Any:
    return h @ h


def counted(start: Any, test: Callable[[Any], Any], step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A while loop around one product, driven by a counter."""

    def fn(x: Any) -> Any:
        return lax.while_loop(lambda c: test(c[0]), lambda c: (step(c[0]), square(c[1])), (start, x))[1]

    return fn


u8, i16 = np.uint8, np.int16
LOOPS = [
    ("scan", lambda x: lax.scan(lambda h, _: (square(h), None), x, None, length=7)[0], 7),
    ("scan reversed", lambda x: lax.scan(lambda h, _: (square(h), None), x, None, length=7, reverse=True)[0], 7),
    ("scan unroll remainder", lambda x: lax.scan(lambda h, _: (square(h), None), x, None, length=7, unroll=3)[0], 7),
    ("scan of nothing", lambda x: lax.scan(lambda h, _: (square(h), None), x, None, length=0)[0], 0),
    ("nested", lambda x: lax.fori_loop(0, 3, lambda i, h: lax.fori_loop(0, 5, lambda j, g: square(g), h), x), 3 * 5),
    ("fori", lambda x: lax.fori_loop(2, 9, lambda i, h: square(h), x), 9 - 2),
    ("fori backwards is empty", lambda x: lax.fori_loop(9, 2, lambda i, h: square(h), x), 0),
    ("huge", lambda x: lax.fori_loop(0, 10**9, lambda i, h: square(h), x), 10**9),
    ("while <", counted(0, lambda i: i < 10, lambda i: i + 3), 4),  # 0 3 6 9
    ("while <=", counted(0, lambda i: i <= 9, lambda i: i + 3), 4),  # 0 3 6 9
    ("while > down", counted(10, lambda i: i > 0, lambda i: i - 4), 3),  # 10 6 2
    ("while >= down", counted(10, lambda i: i >= 2, lambda i: i - 4), 3),
    ("while !=", counted(20, lambda i: i != 10, lambda i: i - 2), 5),
    ("bound on the left", counted(0, lambda i: 10 > i, lambda i: 3 + i), 4),
    ("uint8", counted(u8(3), lambda i: i < u8(200), lambda i: i + u8(7)), 29),  # 3 + 28*7 = 199 < 200
    ("int16", counted(i16(-5), lambda i: i < i16(5), lambda i: i + i16(2)), 5),  # -5 -3 -1 1 3
    ("doubling", counted(1, lambda i: i < 100, lambda i: i * 2), 7),  # 1 .. 64
    ("float halving", counted(1.0, lambda v: v > 1e-3, lambda v: v * 0.5), 10),  # 2**-9 > 1e-3 > 2**-10
    ("two counters", counted((0, 10), lambda c: c[0] < c[1], lambda c: (c[0] + 1, c[1] - 1)), 5),
    ("never", counted(5, lambda i: i < 5, lambda i: i + 1), 0),
]


@pytest.mark.parametrize(("fn", "trips"), [row[1:] for row in LOOPS], ids=[row[0] for row in LOOPS])
def test_trip_counts(fn: Callable[[Any], Any], trips: int) -> None:
    found = costtrace.profile(fn, X)
    assert found.total.matmul_flops == trips * P
    assert found.exact


UNKNOWN = [
    ("bound is an argument", lambda x, n: lax.fori_loop(0, n, lambda i, h: square(h), x)),
    ("tested on data", lambda x, n: lax.while_loop(lambda h: h.sum() < 5, square, x)),
    ("counter would wrap for ever", lambda x, n: counted(u8(0), lambda i: i < u8(255), lambda i: i + u8(2))(x)),
    ("vmapped, one bound a lane", lambda x, n: jax.vmap(
        lambda k: lax.fori_loop(0, k, lambda i, h: square(h), x))(jnp.stack([n, n]))),
]  # fmt: skip


@pytest.mark.parametrize("fn", [row[1] for row in UNKNOWN], ids=[row[0] for row in UNKNOWN])
def test_unknown_trips_are_one_trip_and_say_so(fn: Callable[..., Any]) -> None:
    found = costtrace.profile(fn, X, N)
    assert found.status == "unknown"
    assert "unknown-trip" in {n.kind for n in found.notes}
    assert found.total.matmul_flops in (P, 2 * P)  # two lanes in the vmapped one


def test_a_given_trip_count_is_modelled_and_is_checked() -> None:
    def fn(x: Any, n: Any) -> Any:
        with jax.named_scope("solve"):
            return lax.fori_loop(0, n, lambda i, h: square(h), x)

    found = costtrace.profile(fn, X, N, trips={"solve": 12})
    assert (found.total.matmul_flops, found.status) == (12 * P, "modelled")
    with pytest.raises(costtrace.UsageError, match=r"trips names the scope 'sovle'.*such loops are in solve"):
        costtrace.profile(fn, X, N, trips={"sovle": 12})


BRANCHES = [
    ("dearest arm", lambda x, p: lax.cond(p, lambda h: square(square(h)), lambda h: h * 2, x), 2, "modelled"),
    ("switch", lambda x, p: lax.switch(p.astype(int), [lambda h: h, square, lambda h: h], x), 1, "modelled"),
    ("literal takes its arm", lambda x, p: lax.cond(False, square, lambda h: h + 1, x), 0, "exact"),
    ("equal arms are no choice", lambda x, p: lax.cond(p, square, lambda h: square(h), x), 1, "exact"),
    ("under vmap both arms run", lambda x, p: jax.vmap(
        lambda q: lax.cond(q, square, lambda h: square(square(h)), x))(jnp.stack([p, p])), 2 * 3, "exact"),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "products", "status"), [r[1:] for r in BRANCHES], ids=[r[0] for r in BRANCHES])
def test_branches(fn: Callable[..., Any], products: int, status: str) -> None:
    found = costtrace.profile(fn, X, S((), "bool"))
    assert (found.total.matmul_flops, found.status) == (products * P, status)


def test_dead_code_and_dead_scan_outputs_are_dropped() -> None:
    def fn(x: Any, w: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            live, dead = carry
            return (live @ w, square(dead)), square(live)  # the second carry and the stacked result feed nothing

        return lax.scan(body, (x, x), None, length=5)[0][0]

    assert costtrace.profile(fn, X, X).total.matmul_flops == 5 * P


def test_phases_of_a_rematerialised_scan() -> None:
    """tanh(h @ w): forward one product a layer, recompute one, backward two."""

    def loss(ws: Any, x: Any) -> Any:
        def body(h: Any, w: Any) -> Any:
            with jax.named_scope("mlp"):
                return jnp.tanh(h @ w), None

        return lax.scan(jax.checkpoint(body), x, ws)[0].sum()

    found = costtrace.profile(jax.value_and_grad(loss), S((6, 4, 4), "float32"), X)
    by_phase = {row.key: row.cost.matmul_flops for row in found.rows(by="phase")}
    assert by_phase == {"forward": 6 * P, "recompute": 6 * P, "backward": 2 * 6 * P}
    assert found.scopes()["mlp"].matmul_flops == 4 * 6 * P  # every phase under the one name


def test_names_survive_every_transform() -> None:
    def layer(x: Any) -> Any:
        with jax.named_scope("a"), jax.named_scope("b"):
            return jnp.einsum("ij,jk->ik", x, x)  # einsum's own scope is not one of ours

    programs = {
        "plain": layer, "jit": jax.jit(layer), "vmap": lambda x: jax.vmap(layer)(x[None]), "grad": jax.grad(
            lambda x: layer(x).sum()), "remat": jax.grad(lambda x: jax.checkpoint(layer)(x).sum()),
        "scan": lambda x: lax.scan(lambda h, _: (layer(h), None), x, None, length=2)[0],
        "cond": lambda x: lax.cond(x.sum() > 0, layer, lambda h: h, x),
    }  # fmt: skip
    for name, fn in programs.items():
        assert set(costtrace.profile(fn, X).scopes()) == {"a", "a/b"}, name


def test_call_sites_of_one_cached_function_are_two_instances() -> None:
    @jax.jit
    def layer(x: Any) -> Any:
        with jax.named_scope("layer"):
            return jnp.tanh(x)

    found = costtrace.profile(lambda x: layer(layer(x)), X)
    (row,) = found.rows()
    assert (row.key, row.instances) == ("layer", 2)
    assert row.cost.bytes_fused == 2 * (64 + 64)  # each reads and writes 16 floats
    assert found.total.bytes_fused == 64 + 64


def test_a_pallas_kernel_is_its_body_times_its_grid() -> None:
    from jax.experimental import pallas as pl

    def kernel(x: Any, o: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            o[...] = jnp.zeros_like(o)

        o[...] += x[...] @ x[...].T

    def fn(x: Any, cost: Any = None) -> Any:
        return pl.pallas_call(
            kernel, grid=(2, 3), in_specs=[pl.BlockSpec((8, 8), lambda i, k: (i, k))],
            out_specs=pl.BlockSpec((8, 8), lambda i, k: (i, 0)), out_shape=S((16, 8), "float32"), cost_estimate=cost,
        )(x)  # fmt: skip

    x = S((16, 24), "float32")
    found = costtrace.profile(fn, x)
    assert (found.total.matmul_flops, found.status) == (2 * 3 * (2 * 8 * 8 * 8), "modelled")  # pl.when is a branch
    assert found.total.bytes_fused == 4 * (16 * 24 + 16 * 8)
    assert found.total.bytes_unfused == 4 * (2 * 3 * 8 * 8 + 2 * 8 * 8)  # x streams, the result stays over k
    estimate = pl.CostEstimate(flops=1000, bytes_accessed=2000, transcendentals=3)
    found = costtrace.profile(lambda x: fn(x, estimate), x)
    assert (found.total.matmul_flops, found.total.transcendentals, found.status) == (1000, 3, "modelled")
    assert "kernel-estimate" in {n.kind for n in found.notes}


def test_effects_and_callbacks_do_not_stop_the_walk() -> None:
    def fn(x: Any) -> Any:
        jax.debug.print("{}", x)
        y = jax.pure_callback(lambda v: v, X, x)
        return square(y)

    found = costtrace.profile(fn, X)
    assert (found.total.matmul_flops, found.status) == (P, "exact")
    assert {n.kind for n in found.notes} == {"host", "no-scopes"}


def test_symbolic_dimensions_need_values() -> None:
    (b,) = jax.export.symbolic_shape("b")
    x = S((2 * b + 1, 4), "float32")
    assert costtrace.profile(lambda x, w: x @ w, x, X, dims={"b": 3}).total.matmul_flops == 2 * 7 * 4 * 4
    with pytest.raises(costtrace.ShapeError, match=r"symbolic dimension '2\*b \+ 1' has no value: pass dims={'b'"):
        costtrace.profile(lambda x, w: x @ w, x, X)


def test_a_third_partys_primitive_is_unknown_until_it_has_a_rule() -> None:
    from jax.extend.core import Primitive

    from costtrace.rules import RULES

    mine = Primitive("their_kernel")
    mine.def_abstract_eval(lambda x: x)
    found = costtrace.profile(mine.bind, X)
    assert (found.status, found.total.flops, found.total.bytes_fused) == ("unknown", 0, 2 * 64)
    with pytest.raises(costtrace.UnknownCostError, match=r"no rule for 'their_kernel'.*@costtrace\.rule"):
        costtrace.profile(mine.bind, X, strict=True)
    try:

        @costtrace.rule("their_kernel")
        def their_kernel(op: costtrace.Op) -> costtrace.Cost:
            return costtrace.Cost(vector_flops=3 * op.inputs[0].size)

        found = costtrace.profile(mine.bind, X)
        assert (found.status, found.total.flops) == ("exact", 3 * 16)
    finally:
        RULES.pop("their_kernel", None)


def test_a_failing_function_is_one_line_with_its_place() -> None:
    def wrong(x: Any) -> Any:
        return x @ jnp.zeros((5, 5))

    with pytest.raises(costtrace.TraceError) as e:
        costtrace.profile(wrong, X)
    text = str(e.value)
    assert text.startswith("wrong failed while jax traced it: TypeError: dot_general requires contracting dimensions")
    assert "test_trace.py:" in text and "\n" not in text


@pytest.mark.parametrize("of", [lambda f: f, lambda f: jax.grad(lambda x: jax.checkpoint(f)(x).sum())])
def test_a_scope_whose_name_has_slashes_is_scopes_in_scopes(of: Callable[..., Any]) -> None:
    """named_scope("layer/mlp") is what named_scope("layer"), named_scope("mlp") is, in every row and cut."""

    def in_one(x: Any) -> Any:
        with jax.named_scope("layer/mlp"):
            x = jnp.sin(square(x))
        with jax.named_scope("/head/"):
            return square(x)

    def in_two(x: Any) -> Any:
        with jax.named_scope("layer"), jax.named_scope("mlp"):
            x = jnp.sin(square(x))
        with jax.named_scope("head"):
            return square(x)

    one, two = (costtrace.profile(of(fn), X) for fn in (in_one, in_two))
    assert one.scopes() == two.scopes() and one.total == two.total
    assert set(one.scopes()) == {"layer", "layer/mlp", "head"}
    assert one.scopes()["layer"].bytes_fused == one.scopes()["layer/mlp"].bytes_fused >= 2 * 4 * X.size
