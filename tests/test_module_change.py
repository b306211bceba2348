"""Modules that a call changes in place, and modules that a transform makes other objects of."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

import costtrace
from costtrace.errors import TraceError
from costtrace.module.naming import Mark
from costtrace.module.parts import loaded

S = jax.ShapeDtypeStruct
B, D, H = 4, 8, 32  # batch, width, inner width
X = S((B, D), "float32")
ONE = 2 * B * D * D  # a square product on the batch


class Mlp(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.up, self.down = nnx.Linear(D, H, rngs=rngs), nnx.Linear(H, D, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.down(nnx.relu(self.up(x)))


def train_step(model: Mlp, optimizer: Any, x: Any, y: Any) -> Any:
    """As flax documents it: the model and the optimizer are changed in place."""

    def loss_of(model: Mlp) -> Any:
        return ((model(x) - y) ** 2).mean()

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return loss


def silent_step(model: Mlp, optimizer: Any, x: Any, y: Any) -> None:
    train_step(model, optimizer, x, y)


@pytest.mark.parametrize("step", [train_step, nnx.jit(train_step), silent_step], ids=["plain", "jit", "no result"])
def test_a_step_that_changes_its_model_is_counted_whole(step) -> None:
    model = Mlp(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
    found = costtrace.profile(step, model, optimizer, X, X)
    up, down = 2 * B * D * H, 2 * B * H * D
    # forward; gradients of both matrices; of what enters the second only: nothing asks for that of x
    assert found.total.matmul_flops == (up + down) + (up + down) + down
    assert found.status == "exact"
    assert isinstance(model.up.kernel[...], jax.Array)  # the user's own is as it was


def test_a_metric_and_a_parameter_changed_by_a_function() -> None:
    def decay(model: Mlp, metric: Any, x: Any) -> None:
        model.up.kernel[...] = model.up.kernel[...] @ jnp.ones((H, H))
        metric.update(values=x @ x.T)

    found = costtrace.profile(decay, Mlp(nnx.Rngs(0)), nnx.metrics.Average(), X)
    assert found.total.matmul_flops == 2 * D * H * H + 2 * B * B * D


def test_what_is_not_changed_is_no_result() -> None:
    model = Mlp(nnx.Rngs(0))
    plain = costtrace.profile(lambda m, x: m(x), model, X)
    assert costtrace.profile(nnx.jit(lambda m, x: m(x)), model, X).total == plain.total


class NnxSiblings(nnx.Module):
    """Two modules of one class, each met inside a transform."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.q, self.k = nnx.Linear(D, D, rngs=rngs), nnx.Linear(D, D, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        @nnx.jit
        def shared(m: Any, x: Any) -> Any:
            return m(x)

        return nnx.remat(lambda m, x: m(x))(self.q, x) + shared(self.k, shared(self.q, x))


class EqxSiblings(eqx.Module):
    q: eqx.nn.Linear
    k: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        self.q, self.k = eqx.nn.Linear(D, D, key=key), eqx.nn.Linear(D, D, key=key)

    def __call__(self, x: Any) -> Any:
        @eqx.filter_jit
        def shared(m: Any, x: Any) -> Any:
            return jax.vmap(m)(x)

        return jax.vmap(eqx.filter_checkpoint(self.q))(x) + shared(self.k, shared(self.q, x))


@pytest.mark.parametrize("made", [NnxSiblings, EqxSiblings])
def test_siblings_inside_transforms_keep_their_names(made) -> None:
    rows = {row.key: row.cost.matmul_flops for row in costtrace.profile(made, X).rows(depth=1)}
    assert {key: n for key, n in rows.items() if n} == {"q": 2 * ONE, "k": ONE}


class Stacks(nnx.Module):
    """Two stacks of one class, 3 and 5 deep, scanned by one function."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        def stacked(n: int) -> Mlp:
            return nnx.split_rngs(splits=n)(nnx.vmap(Mlp, in_axes=(0,), out_axes=0))(rngs)

        self.encoder, self.decoder = stacked(3), stacked(5)

    def __call__(self, x: Any) -> Any:
        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        def run(block: Mlp, x: Any) -> Any:
            return block(x)

        return run(self.decoder, run(self.encoder, x))


def test_scanned_stacks_keep_their_names() -> None:
    one = 2 * B * D * H
    rows = {row.key: row.cost.matmul_flops for row in costtrace.profile(Stacks, X).rows(depth=2)}
    assert {key: n for key, n in rows.items() if n} == {
        "encoder/up": 3 * one, "encoder/down": 3 * one, "decoder/up": 5 * one, "decoder/down": 5 * one,
    }  # fmt: skip


class Averaged(eqx.Module):
    """Maps over two modules, and over a list of them, at once: their structures must stay equal."""

    online: eqx.nn.Linear
    target: eqx.nn.Linear
    layers: list[eqx.nn.Linear]

    def __init__(self, key: Any) -> None:
        self.online, self.target = eqx.nn.Linear(D, D, key=key), eqx.nn.Linear(D, D, key=key)
        self.layers = [eqx.nn.Linear(D, D, key=key) for _ in range(3)]

    def __call__(self, x: Any) -> Any:
        mixed = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, *(eqx.filter(m, eqx.is_array) for m in
                                                              (self.target, self.online)))  # fmt: skip
        stacked = jax.tree.map(lambda *a: jnp.stack(a), *(eqx.filter(m, eqx.is_array) for m in self.layers))
        first = eqx.filter(self.layers[0], eqx.is_array, inverse=True)
        x, _ = jax.lax.scan(lambda x, m: (jax.vmap(eqx.combine(m, first))(x), None), x, stacked)
        chosen = jax.lax.cond(x[0, 0] > 0, lambda: mixed, lambda: eqx.filter(self.online, eqx.is_array))
        return jax.vmap(eqx.combine(chosen, eqx.filter(self.online, eqx.is_array, inverse=True)))(x)


def test_marks_do_not_part_what_was_equal() -> None:
    assert costtrace.profile(Averaged, X).total.matmul_flops == 3 * ONE + ONE
    assert Mark("a/b") == Mark("c") and Mark("a/b") != "a/b" and Mark("a/b").path == ("a", "b")


def test_a_module_joined_with_what_has_no_mark() -> None:
    """The arrays of a module as an argument, the rest of it in a closure."""
    arrays, rest = eqx.partition(eqx.nn.MLP(D, D, H, 1, key=jax.random.key(0)), eqx.is_array)
    found = costtrace.profile(lambda a, x: jax.vmap(eqx.combine(a, rest))(x), arrays, X)
    assert {row.key: row.cost.matmul_flops for row in found.rows(merge=False) if row.cost.matmul_flops} == {
        "layers[0]": 2 * B * D * H, "layers[1]": 2 * B * H * D,
    }  # fmt: skip


def test_the_user_s_module_has_no_mark() -> None:
    for made in (EqxSiblings(jax.random.key(0)), NnxSiblings(nnx.Rngs(0))):
        costtrace.profile(made, X)
        assert not any(isinstance(value, Mark) for part in (made, made.q) for value in vars(part).values())
    assert loaded("equinox") is eqx


def test_arrays_that_a_function_closes_over_are_said() -> None:
    """jax.vmap(module) is a function that closes over it: its arrays are constants, no parameters."""
    model = eqx.nn.Linear(H, H, key=jax.random.key(0))
    found = costtrace.profile(jax.vmap(model), S((B, H), "float32"))
    nbytes = 4 * (H * H + H)
    (note,) = [note for note in found.notes if note.kind == "constants"]
    assert note.text.startswith(f"{nbytes / 1000:g} kB of arrays") and found.parameters == 0
    assert not [n for n in costtrace.profile(lambda x: x * jnp.arange(8.0), X).notes if n.kind == "constants"]


def test_a_function_that_fails_is_run_once() -> None:
    """Only modules have marks, and only for those is another try worth it."""
    runs = []

    def fails(x: Any, mode: str) -> Any:  # a text is fixed while tracing
        runs.append(mode)
        raise ValueError("no")

    with pytest.raises(TraceError, match="ValueError: no"):
        costtrace.profile(fails, X, "mode")
    assert len(runs) == 1
