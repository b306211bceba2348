"""Useful matmul FLOPs of masked programs: by hand, and by an oracle that runs each program and disturbs its products.

Letters: b batch, t queries, s keys, h heads, d head width; a product over scores executes 2 b h t s d FLOPs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import costtrace.useful
from costtrace import model
from costtrace.core import Note
from costtrace.rules import RULES
from costtrace.trace import trace
from costtrace.useful import Masks, useful

Q = jax.ShapeDtypeStruct((2, 32, 4, 16), jnp.float32)  # b 2, t 32, h 4, d 16
KV = jax.ShapeDtypeStruct((2, 32, 2, 16), jnp.float32)
ONE = 2 * 2 * 4 * 16  # FLOPs per score of one product: 2 b h d
CAUSAL = 32 * 33 // 2
WINDOW = sum(min(8, i + 1) for i in range(32))  # keys i - 7 .. i
X = jax.ShapeDtypeStruct((8, 16), jnp.float32)
W = jax.ShapeDtypeStruct((16, 16), jnp.float32)


def tril(n: int = 32) -> jax.Array:
    return jnp.tril(jnp.ones((n, n), bool))


def distance() -> jax.Array:
    return jnp.arange(32)[:, None] - jnp.arange(32)[None, :]


def attend(q: Any, k: Any, v: Any, mask: Any = None, hidden: float = -jnp.inf) -> Any:
    scores = jnp.einsum("bthd,bshd->bhts", q, k) * (q.shape[-1] ** -0.5)
    scores = jnp.where(tril(q.shape[1]) if mask is None else mask, scores, hidden)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores, -1), v)


def biased(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bthd,bshd->bhts", q, k) + (1 - tril().astype(q.dtype)) * -1e9
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores, -1), v)


def library(**options: Any) -> Callable[..., Any]:
    return lambda q, k, v: jax.nn.dot_product_attention(q, k, v, implementation="xla", **options)


def squared(fn: Callable[..., Any]) -> Callable[..., Any]:
    return jax.grad(lambda q, k, v: jnp.sum(fn(q, k, v) ** 2), (0, 1, 2))


def layers(q: Any, k: Any, v: Any) -> Any:
    """Three layers in a scan; each makes its mask anew."""
    return lax.scan(lambda x, w: (x + attend(x @ w, k, v), None), q, jnp.ones((3, 16, 16)))[0]


def reduced(fn: Callable[..., Any], *args: Any) -> tuple[list[int], list[Note]]:
    """(useful FLOPs of each op in which they differ from the executed), notes."""
    found, notes = useful(trace(fn, *args))
    return list(found.values()), notes


@pytest.mark.parametrize(
    ("fn", "kv", "scores", "products"),
    [
        pytest.param(library(is_causal=True), Q, CAUSAL, 2, id="jax.nn causal"),
        pytest.param(library(is_causal=True), KV, CAUSAL, 2, id="jax.nn causal, grouped heads"),
        pytest.param(library(is_causal=True, local_window_size=(7, 0)), Q, WINDOW, 2, id="jax.nn window"),
        pytest.param(squared(library(is_causal=True)), KV, CAUSAL, 6, id="jax.nn causal, gradient"),
        pytest.param(attend, Q, CAUSAL, 2, id="where tril"),
        pytest.param(lambda *a: attend(*a, hidden=-1e30), Q, CAUSAL, 2, id="a large number"),
        pytest.param(squared(attend), Q, CAUSAL, 6, id="gradient"),
        pytest.param(squared(jax.checkpoint(attend)), Q, CAUSAL, 7, id="gradient, recomputed"),
        pytest.param(layers, Q, CAUSAL, 2, id="scan"),
        pytest.param(squared(layers), Q, CAUSAL, 6, id="scan, gradient"),
        pytest.param(biased, Q, CAUSAL, 2, id="bias"),
        pytest.param(squared(biased), Q, CAUSAL, 6, id="bias, gradient"),
        pytest.param(lambda *a: attend(*a, mask=jnp.tril(jnp.triu(tril(), -7))), Q, WINDOW, 2, id="triu, tril"),
        pytest.param(lambda *a: attend(*a, mask=(distance() >= 0) & (distance() < 8)), Q, WINDOW, 2, id="distance"),
        pytest.param(lambda *a: attend(*a, mask=jnp.abs(distance()) < 2), Q, 3 * 32 - 2, 2, id="band"),
        pytest.param(lambda *a: attend(*a, mask=~(distance() < 0) | (distance() > 40)), Q, CAUSAL, 2, id="or, not"),
        pytest.param(lambda *a: attend(*a, mask=(distance() >= 0) | (jnp.arange(32) < 8)), Q,
                     CAUSAL + 7 * 8 // 2, 2, id="prefix of 8"),
        pytest.param(lambda *a: attend(*a, mask=jnp.arange(32)[:, None] // 8 == jnp.arange(32) // 8), Q, 4 * 8 * 8, 2,
                     id="blocks"),
        pytest.param(lambda *a: attend(*a, mask=np.tril(np.ones((32, 32), bool))), Q, CAUSAL, 2, id="a numpy mask"),
        pytest.param(jax.vmap(lambda *a: attend(*(x[None] for x in a))[0]), Q, CAUSAL, 2, id="vmap"),
    ],
)  # fmt: skip
def test_a_masked_product_keeps_its_live_scores(fn: Any, kv: Any, scores: int, products: int) -> None:
    found, notes = reduced(fn, Q, kv, kv)
    assert found == [ONE * scores] * products
    assert [n.kind for n in notes] == ["mask"]


def test_a_long_mask_costs_no_more_than_its_rows() -> None:
    n = 1 << 20  # n x n would be 1 TiB of booleans
    x = jax.ShapeDtypeStruct((1, n, 1, 1), jnp.float32)
    assert reduced(library(is_causal=True), x, x, x)[0] == [2 * (n * (n + 1) // 2)] * 2


def test_a_mask_of_no_intervals_that_is_too_large_says_so() -> None:
    n = 1 << 13
    x = jax.ShapeDtypeStruct((1, n, 1, 1), jnp.float32)
    i = jnp.arange(n)
    found, notes = reduced(lambda *a: attend(*a, mask=abs(i[:, None] - jnp.arange(n)[None]) % 7 == 0), x, x, x)
    assert not found and "too large" in notes[0].text


def test_padding_counts_as_live() -> None:
    """klein's text encoder: causal and key padding, 27 layers in three scans, (t + 1) / 2t of t^2 in each."""
    t = 64
    klein = model.find("klein")
    text = klein.stages(klein.config(text_tokens=t))[0]
    fn, args = model.bind(text)
    found, notes = reduced(fn, *args)
    assert found == [2 * 32 * 128 * t * (t + 1) // 2] * 2 * 3  # 2 h d per score, two products, three scans
    assert [n.text.split()[0] for n in notes] == ["static", "a"] and "padding" in notes[1].text


@pytest.mark.parametrize("gradient", [False, True])
def test_flax_masks(gradient: bool) -> None:
    attention = nn.MultiHeadDotProductAttention(num_heads=2)  # d 8
    x, ids = jax.ShapeDtypeStruct((2, 8, 16), jnp.float32), jax.ShapeDtypeStruct((2, 8), jnp.int32)
    params = jax.eval_shape(lambda: attention.init(jax.random.key(0), jnp.zeros((2, 8, 16))))

    def fn(params: Any, x: Any, ids: Any) -> Any:
        padding = nn.make_attention_mask(ids > 0, ids > 0)
        return jnp.sum(attention.apply(params, x, mask=nn.combine_masks(nn.make_causal_mask(ids), padding)))

    found, notes = reduced(jax.grad(fn) if gradient else fn, params, x, ids)
    assert found == [2 * 2 * 2 * 8 * (8 * 9 // 2)] * (6 if gradient else 2)
    assert len(notes) == 2


def test_equinox_masks() -> None:
    attention = eqx.nn.MultiheadAttention(2, 16, key=jax.random.key(0))  # d 8
    assert reduced(lambda x: attention(x, x, x, mask=tril(8)), X)[0] == [2 * 2 * 8 * (8 * 9 // 2)] * 2


def test_cudnn_masks() -> None:
    x = jax.ShapeDtypeStruct((2, 32, 4, 64), jnp.bfloat16)

    def fn(q: Any, k: Any, v: Any, window: Any = None) -> Any:
        return jax.nn.dot_product_attention(q, k, v, is_causal=True, local_window_size=window, implementation="cudnn")

    assert reduced(fn, x, x, x)[0] == [2 * 2 * 2 * 4 * 64 * CAUSAL]
    assert reduced(lambda *a: fn(*a, window=(7, 0)), x, x, x)[0] == [2 * 2 * 2 * 4 * 64 * WINDOW]


def rolled(x: Any, w: Any, key: Any) -> Any:
    return jnp.where(jax.random.bernoulli(jax.random.wrap_key_data(key), 0.5, x.shape), x @ w, 0) @ w


@pytest.mark.parametrize(
    "fn",
    [
        pytest.param(lambda x, w, _: jax.nn.relu(x @ w) @ w, id="relu"),
        pytest.param(lambda x, w, _: jnp.where(x > 0, x, 0) @ w, id="where on data"),
        pytest.param(lambda x, w, _: jnp.where(x @ w > 0, x @ w, -jnp.inf), id="hidden by data"),
        pytest.param(lambda x, w, _: jax.nn.gelu(x @ w) @ w, id="gelu"),
        pytest.param(rolled, id="dropout"),
        pytest.param(lambda x, w, _: jnp.where(jnp.arange(16) < 3, x @ w, x @ w @ w), id="two branches"),
        pytest.param(lambda x, w, _: (x * jnp.arange(16.0)) @ w, id="positions"),
        pytest.param(lambda x, w, _: tril(8).astype(float) @ x, id="a sum as a product"),
        pytest.param(lambda x, w, _: jnp.eye(8) @ x @ w, id="identity"),
        pytest.param(lambda x, w, _: (x @ w) * 0.0, id="nothing left"),
        pytest.param(lambda x, w, _: jnp.where(jnp.arange(16) < 3, x @ w, -5.0), id="a small number"),
        pytest.param(lambda x, w, key: jnp.where(tril(8) | (key[0] > 0), x @ x.T, -jnp.inf), id="or data"),
        pytest.param(lambda x, w, _: (jnp.where(tril(8), s := x @ x.T, -jnp.inf), s), id="scores are a result"),
    ],
)  # fmt: skip
def test_nothing_else_is_reduced(fn: Any) -> None:
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    assert reduced(fn, X, W, key) == ([], [])
    assert reduced(jax.grad(lambda *a: jnp.sum(jax.tree.leaves(fn(*a))[0]), (0, 1)), X, W, key)[0] == []


def test_masks_that_add_up_hide_nothing() -> None:
    def fn(x: Any) -> Any:
        p = jnp.where(tril(8), jnp.exp(x[:, :8]), 0)
        return p @ x, p.T @ x, (p + p.T) @ x, (p * p.T) @ x

    full, part, diagonal = 2 * 8 * 8 * 16, 2 * 16 * (8 * 9 // 2), 2 * 16 * 8
    found = trace(fn, X)
    kept = useful(found)[0]
    assert [kept.get(op.index, full) for op in found.ops if op.primitive == "dot_general"] == [
        part,
        part,
        full,
        diagonal,
    ]


# -- an oracle: run the program, change one element of one product's result, see whether the results change


def products(jaxpr: Any, consts: Any, args: Any, change: tuple[int, int] | None) -> tuple[list[Any], list[Any]]:
    """(results, [(equation, operands, size of its result)] of each product), one element of one of them changed."""
    seen: list[Any] = []

    def run(jaxpr: Any, consts: Any, args: Any) -> list[Any]:
        env = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
        read = lambda v: v.val if hasattr(v, "val") else env[v]  # noqa: E731
        for eqn in jaxpr.eqns:
            ins = [read(v) for v in eqn.invars]
            inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
            if inner is not None:
                outs = run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), ins)
            else:
                found = eqn.primitive.bind(*ins, **eqn.params)
                outs = found if eqn.primitive.multiple_results else [found]
            if eqn.primitive.name == "dot_general":
                if change is not None and change[0] == len(seen):
                    flat = np.array(outs[0])
                    flat.flat[change[1]] += 1.0
                    outs = [jnp.asarray(flat)]
                seen.append((eqn, ins, outs[0].size))
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    return run(jaxpr, consts, args), seen


def disturbed(fn: Callable[..., Any], args: Any) -> int:
    """Useful FLOPs: multiply-adds of two numbers other than 0 into an element whose change changes the results."""
    closed = jax.make_jaxpr(fn)(*args)
    results, seen = products(closed.jaxpr, closed.consts, args, None)
    total = 0
    for i, (eqn, ins, size) in enumerate(seen):
        terms = lax.dot_general(*((x != 0).astype(jnp.float32) for x in ins), eqn.params["dimension_numbers"])
        for at, n in zip(range(size), np.asarray(terms).ravel(), strict=True):
            other, _ = products(closed.jaxpr, closed.consts, args, (i, at))
            asked = any((np.asarray(a) != np.asarray(b)).any() for a, b in zip(results, other, strict=True))
            total += 2 * int(n) * asked
    return total


def forms(mask: Callable[[Any, Any], Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Ways to apply a mask(query, key) whose every row has two live keys or more (one alone has weight 1, always)."""

    def scores(q: Any, k: Any) -> tuple[Any, Any]:
        return q @ k.T, mask(jnp.arange(len(q))[:, None], jnp.arange(len(k))[None, :])

    def chosen(q: Any, k: Any, v: Any) -> Any:
        s, m = scores(q, k)
        return jax.nn.softmax(jnp.where(m, s, -jnp.inf)) @ v

    def inside(q: Any, k: Any, v: Any) -> Any:
        s, m = scores(q, k)
        return jax.nn.softmax(s, where=m) @ v

    def added(q: Any, k: Any, v: Any) -> Any:
        s, m = scores(q, k)
        return v.T @ jax.nn.softmax(s + jnp.where(m, 0, -jnp.inf)).T

    def logarithm(q: Any, k: Any, v: Any) -> Any:
        s, m = scores(q, k)
        return jax.nn.softmax(s + jnp.log(m.astype(s.dtype))) @ v

    def multiplied(q: Any, k: Any, v: Any) -> Any:
        s, m = scores(q, k)
        return (s * m.astype(s.dtype)) @ v

    def gated(q: Any, k: Any, v: Any) -> Any:
        s, m = scores(q, k)
        return jax.nn.sigmoid(jnp.where(m, s, -jnp.inf)) @ v

    def sink(q: Any, k: Any, v: Any) -> Any:
        s, m = scores(q, k)
        wide = jnp.concatenate([jnp.where(m, s, -jnp.inf), q[:, :1]], 1)
        return jax.nn.softmax(wide)[:, :-1] @ v

    for fn in (chosen, inside, added, logarithm, multiplied, gated, sink):
        yield fn.__name__, fn


MASKS: dict[str, Callable[[Any, Any], Any]] = {
    "causal": lambda i, j: j <= i + 1,
    "remainder": lambda i, j: (i * 3 + j) % 4 < 2,
    "window": lambda i, j: (j <= i + 1) & (i - j < 2),
    "prefix": lambda i, j: (j < 2) | (j <= i),
}
FORMS = [name for name, _ in forms(MASKS["causal"])]


@pytest.mark.parametrize(("mask", "form"), [(m, f) for m in MASKS for f in FORMS if f == "chosen" or m[0] in "cr"])
def test_useful_is_what_changes_the_results(mask: str, form: str) -> None:
    fn = dict(forms(MASKS[mask]))[form]
    gradient = jax.grad(lambda *a: jnp.sum(fn(*a) ** 2), (0, 1, 2))
    draw = np.random.default_rng(0)
    args = tuple(jnp.asarray(draw.uniform(0.5, 1.5, (4, 2)), jnp.float32) for _ in "qkv")
    found = trace(gradient, *args)
    kept = useful(found)[0]
    executed = {op.index: RULES[op.primitive].formula(op).matmul_flops for op in found.ops}
    assert len(kept) == 6 and sum({**executed, **kept}.values()) == disturbed(gradient, args)


# -- what is known of arrays, against the arrays

i, j = "jnp.arange(6)[:, None]", "jnp.arange(9)[None, :]"
ARRAYS = [
    f"{i} >= {j}", f"{i} < {j}", f"{i} == {j}", f"{i} != {j}", f"{j} // 3 == {i} // 3", f"-{j} > -{i}", f"{j} > 4",
    f"({i} - {j}) < 2", f"({i} + {j}) > 7", f"3 <= ({j} - {i})", f"abs({i} - {j}) <= 2", f"({i} * 3 + {j}) % 4 < 2",
    f"({i} >= {j}) & ({i} < {j} + 3)", f"~({i} >= {j}) | ({i} < 3)", f"({i} >= {j}) ^ ({i} < {j} + 3)",
    "jnp.tril(jnp.ones((6, 9), bool))", "jnp.triu(jnp.tril(jnp.ones((6, 9))), -2)", f"jnp.where({i} >= {j}, 0.0, -1e9)",
    f"(1.0 - ({i} >= {j})) * -1e9", f"({i} >= {j})[None, :, None].transpose(3, 0, 1, 2)", f"({i} >= {j}).T[2:8, 1:]",
    f"({i} >= {j})[::2, ::3]", f"({i} >= {j}).reshape(2, 3, 9)", f"({i} >= {j}).reshape(6, 3, 3)",
    f"jnp.broadcast_to({i} >= {j}, (2, 6, 9)).reshape(12, 9)", f"({i} - {j}).reshape(54)",
    f"jnp.concatenate([{i} >= {j}, jnp.ones((6, 2), bool)], 1)", f"jnp.concatenate([{i} >= {j}] * 2)",
    f"({i} >= {j}).astype(jnp.int8) * 3", f"jnp.arange(6, dtype=jnp.uint8)[:, None] + 50 >= {j}",
    f"jnp.log(({i} >= {j}).astype(float))", "jax.nn.one_hot(jnp.arange(4), 5)", "jnp.eye(5, k=1) + 1",
]  # fmt: skip


@pytest.mark.parametrize("text", ARRAYS)
def test_what_is_known_of_an_array_is_true(text: str) -> None:
    def fn() -> Any:
        return eval(text)  # the text is the test's name

    found = trace(fn)
    masks = Masks(found)
    masks.forward()
    known = masks.at(found.outputs[0])
    assert known is not None
    written = known.written()
    assert written is not None and not np.isnan(written).any()
    real = np.asarray(fn(), np.float64)
    np.testing.assert_array_equal(np.broadcast_to(written, real.shape), real)
    share = masks.statics.apply("maybe 1", known)
    assert share is not None and share.fraction() == Fraction(np.count_nonzero(real), real.size)


def test_it_needs_no_jax() -> None:
    assert not [n for n in vars(costtrace.useful) if n.startswith("jax")]
