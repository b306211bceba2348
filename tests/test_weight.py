"""Weights by use: what a forward function declares, and stacks scanned and unrolled."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import costtrace
from costtrace import model
from costtrace.errors import ShapeError, TraceError, UsageError
from costtrace.model import Stage, bind, param, scope, stack

X = jax.ShapeDtypeStruct((2, 3), "float32")


def bound(forward, *args, unroll=False, **kwargs):
    return bind(Stage("stage", forward, args or (X,), dtype="float32", **kwargs), unroll)


def filled(params, seed=0):
    """Numbers for every leaf of `params`."""
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), leaf.dtype), params)


def written(params):
    """{path: "dtype[shape]"} of every leaf."""
    leaves = jax.tree.leaves_with_path(params)
    return {"/".join(k.key for k in path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}


# Weights by use


def test_a_weight_is_declared_by_use() -> None:
    def forward(x):
        x = x @ param("mlp/up", (3, 5))
        return x * param("scale", (5,), "bfloat16")

    fn, (params, x) = bound(forward)
    assert written(params) == {"mlp/up": "float32[3, 5]", "scale": "bfloat16[5]"}
    assert model.parameters(Stage("stage", forward, (X,))) == 3 * 5 + 5
    assert jax.eval_shape(fn, params, x).shape == (2, 5)
    values = filled(params)
    ones = jnp.ones((2, 3))
    assert np.allclose(fn(values, ones), ones @ values["mlp"]["up"] * values["scale"])


def test_the_stage_gives_the_dtype_and_the_function_its_names() -> None:
    fn, (params, _) = bind(Stage("half", lambda x: x @ param("w", (3, 3)), (X,), dtype="bfloat16"))
    assert written(params) == {"w": "bfloat16[3, 3]"}
    assert fn.__name__ == "half"
    profile = costtrace.profile(fn, params, X, weights=0)
    assert profile.name == "half"
    assert set(profile.weights()) == {"w"}


def test_one_name_is_one_weight() -> None:
    _, (params, _) = bound(lambda x: x @ param("w", (3, 3)) @ param("w", (3, 3)))
    assert written(params) == {"w": "float32[3, 3]"}


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (
            lambda x: x @ param("w", (3, 3)) @ param("w", (3, 4)),
            r"param 'w' is declared as float32\[3,3\] and as float32\[3,4\]: give one of the two another name",
        ),
        (
            lambda x: x @ param("w", (3, 3)) @ param("w", (3, 3), "bfloat16"),
            r"param 'w' is declared as float32\[3,3\] and as bfloat16\[3,3\]",
        ),
        (
            lambda x: x @ param("w", (3, 3)) @ param("w/up", (3, 3)),
            "param 'w/up': 'w' is a weight already: give one of the two another name",
        ),
        (
            lambda x: x @ param("w/up", (3, 3)) @ param("w", (3, 3)),
            r"param 'w' is declared as a group of weights and as float32\[3,3\]",
        ),
        (
            lambda x: stack(2, lambda x: x @ param("w", (3, 4)), x, name="block"),
            r"stack 'block': the block takes float32\[2,3\] and returns float32\[2,4\]: it must return what it takes",
        ),
        (
            lambda x: stack(3, lambda x: x @ param("w", (3, 3)), stack(2, lambda x: x @ param("w", (3, 3)), x)),
            r"param 'layers/w' is declared as float32\[2,3,3\] and as float32\[3,3,3\]",
        ),
    ],
)
def test_what_a_forward_function_may_not_declare(forward, message) -> None:
    with pytest.raises(ShapeError, match=message):
        bound(forward)


def test_a_stack_needs_a_block() -> None:
    with pytest.raises(UsageError, match="stack 'layers' of 0 blocks: it needs at least 1"):
        bound(lambda x: stack(0, lambda x: x, x))


def test_outside_a_stage() -> None:
    with pytest.raises(UsageError, match=r"param\('w'\) outside a stage: call it from a forward function that bind"):
        param("w", (3, 3))
    with pytest.raises(UsageError, match=r"stack\('layers'\) outside a stage"):
        stack(2, lambda x: x, 0)


def test_other_weights_than_declared() -> None:
    fn, _ = bound(lambda x: x @ param("w", (3, 3)))
    with pytest.raises(ShapeError, match=r"param 'w' is float32\[3,4\], not the float32\[3,3\] that the forward"):
        jax.eval_shape(fn, {"w": jax.ShapeDtypeStruct((3, 4), "float32")}, X)
    with pytest.raises(UsageError, match="param 'w' was not declared: bind"):
        jax.eval_shape(fn, {}, X)


def test_a_forward_function_that_fails_says_where() -> None:
    with pytest.raises(TraceError, match=rf"^stage failed while jax traced it.*{Path(__file__).name}:\d+"):
        bound(lambda x: x @ param("w", (4, 4)))


# Stacks


def residual(x):
    with scope("mlp"):
        return x + jnp.tanh(x @ param("up", (3, 4))) @ param("down", (4, 3))


def test_a_stack_is_scanned_or_unrolled_with_the_same_numbers() -> None:
    def forward(x):
        return stack(3, residual, x, name="block")

    scanned, (params, x) = bound(forward)
    assert written(params) == {"block/up": "float32[3, 3, 4]", "block/down": "float32[3, 4, 3]"}
    unrolled, (apart, _) = bound(forward, unroll=True)
    assert written(apart) == {
        f"block/{i}/{name}": shape
        for i in range(3)
        for name, shape in (("up", "float32[3, 4]"), ("down", "float32[4, 3]"))
    }
    values = filled(params)
    split = {"block": {str(i): jax.tree.map(lambda a, i=i: a[i], values["block"]) for i in range(3)}}
    start = jnp.asarray(np.random.default_rng(1).normal(size=(2, 3)), "float32")
    assert np.allclose(scanned(values, start), unrolled(split, start), atol=1e-6)
    one, other = costtrace.profile(scanned, params, x, weights=0), costtrace.profile(unrolled, apart, x, weights=0)
    assert one.total == other.total
    assert one.total.matmul_flops == 3 * (2 * 2 * 3 * 4 + 2 * 2 * 4 * 3)
    assert list(one.scopes()) == list(other.scopes()) == ["block", "block/mlp"]
    assert one.scopes() == other.scopes()


def test_stacks_may_share_a_name() -> None:
    def forward(x):
        for i in (0, 2):
            x = stack(2, residual, x, name="layers", first=i)
        return x

    _, (params, _) = bound(forward)
    assert set(written(params)) == {f"layers/{part}/{name}" for part in ("0:2", "2:4") for name in ("up", "down")}
    _, (apart, _) = bound(forward, unroll=True)
    assert set(written(apart)) == {f"layers/{i}/{name}" for i in range(4) for name in ("up", "down")}


@pytest.mark.parametrize("unroll", [False, True])
def test_a_stack_takes_and_gives_a_row_per_block(unroll) -> None:
    def block(x, row):
        x = x @ param("w", (3, 3)) + row
        return x, x.sum()

    def forward(x, rows):
        return stack(4, block, x, rows, name="block")

    fn, (params, *args) = bound(forward, X, jax.ShapeDtypeStruct((4, 3), "float32"), unroll=unroll)
    carry, sums = jax.eval_shape(fn, params, *args)
    assert (carry.shape, sums.shape) == ((2, 3), (4,))
    values = jax.tree.map(lambda a: a * 0, filled(params))
    _, sums = fn(values, jnp.zeros((2, 3)), jnp.arange(12.0).reshape(4, 3))
    assert list(sums) == [2 * (0 + 1 + 2), 2 * (3 + 4 + 5), 2 * (6 + 7 + 8), 2 * (9 + 10 + 11)]


def test_a_stack_in_a_stack_and_a_pytree_as_carry() -> None:
    def inner(pair):
        return {"a": pair["a"] @ param("w", (3, 3)), "b": pair["b"] + param("bias", (3,))}

    def forward(x):
        return stack(2, lambda pair: stack(3, inner, pair, name="inner"), {"a": x, "b": x}, name="outer")

    _, (params, _) = bound(forward)
    assert written(params) == {"outer/inner/w": "float32[2, 3, 3, 3]", "outer/inner/bias": "float32[2, 3, 3]"}
    fn, (apart, x) = bound(forward, unroll=True)
    assert len(written(apart)) == 2 * 3 * 2
    assert costtrace.profile(fn, apart, x, weights=0).total.matmul_flops == 2 * 3 * (2 * 2 * 3 * 3)


def test_a_stack_without_weights() -> None:
    fn, (params, x) = bound(lambda x: stack(5, lambda x: x * 2, x))
    assert params == {}
    assert costtrace.profile(fn, params, x, weights=0).total.vector_flops == 5 * 2 * 3


rematted, jitted = jax.checkpoint(residual), jax.jit(residual)


@pytest.mark.parametrize("block", [rematted, jitted, jax.jit(rematted)], ids=["remat", "jit", "both"])
@pytest.mark.parametrize("unroll", [False, True], ids=["scanned", "unrolled"])
def test_weights_asked_for_under_jit_and_remat(block, unroll) -> None:
    """jax remembers what it traced under jit: no block may be given another block's weights, or none."""
    for _ in range(2):
        fn, (params, x) = bound(lambda x: stack(3, block, x, name="block"), unroll=unroll)
        plain, (wanted, _) = bound(lambda x: stack(3, residual, x, name="block"), unroll=unroll)
        assert written(params) == written(wanted)
        for _ in range(2):
            profile = costtrace.profile(fn, params, x, weights=0)
            assert profile.total == costtrace.profile(plain, wanted, x, weights=0).total
            assert profile.total.weight_bytes == 3 * 2 * 3 * 4 * 4
        values, start = filled(params), jnp.ones((2, 3))
        assert np.allclose(fn(values, start), plain(values, start), atol=1e-6)


def test_a_backward_pass_through_a_stack() -> None:
    fn, (params, x) = bound(lambda x: stack(3, rematted, x).sum())
    profile = costtrace.profile(jax.grad(fn), params, x, weights=0)
    up = 2 * 2 * 3 * 4
    # Forward up and down; backward both products twice, but the first block's input needs no gradient in a loop of
    # equal trips all the same; recompute `up` (the product `down` is not needed again).
    assert profile.total.matmul_flops == 3 * (2 * up + 4 * up + up)
