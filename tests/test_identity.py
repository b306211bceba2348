"""What a remembered compile is found by: never equal for two programs that are lowered differently."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax
from program_laws import COMMON
from statements import programs
from strategies import Program

import costtrace
from costtrace import chip
from costtrace.rules import RULES
from costtrace.target import cache, compiler, program, setup, worker
from costtrace.target.identity import identity

S = jax.ShapeDtypeStruct
X, W = S((4, 4), "float32"), S((4, 4), "float32")
ONES = np.ones((4, 4), "float32")


def found(fn: Callable[..., Any], *args: Any, **jit: Any) -> program.Program:
    return program.lowered(fn, args or (X,), "tpu", jit)


def scoped(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        with jax.named_scope(name):
            return fn(x)

    return run


def named(name: str) -> Callable[..., Any]:
    def fn(x: Any) -> Any:
        return x + 1

    fn.__name__ = name
    return fn


def looped(length: int, unroll: int = 1) -> Callable[..., Any]:
    return lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=length, unroll=unroll)[0]


def product(precision: str | None) -> Callable[..., Any]:
    return lambda x: jnp.dot(x, x, precision=precision)


UNLIKE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "a literal": (lambda x: x * 2.0, lambda x: x * 2.5),
    "a constant's element": (lambda x: x @ ONES, lambda x: x @ (ONES + np.eye(4, k=3, dtype="float32"))),
    "a constant in a loop": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: c @ ONES, x),
        lambda x: lax.fori_loop(0, 3, lambda i, c: c @ (2 * ONES), x),
    ),
    "a scope": (scoped("one", jnp.sin), scoped("two", jnp.sin)),
    "a scope in a loop": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: scoped("one", jnp.sin)(c), x),
        lambda x: lax.fori_loop(0, 3, lambda i, c: scoped("two", jnp.sin)(c), x),
    ),
    "a function's name": (named("one"), named("two")),
    "an inner function's name": (lambda x: jax.jit(named("one"))(x), lambda x: jax.jit(named("two"))(x)),
    "an argument's name": (lambda x: x + 1, lambda y: y + 1),
    "the order of operands": (lambda x: x - jnp.sin(x), lambda x: jnp.sin(x) - x),
    "which value is read": (
        lambda x: (lambda a, b: jnp.tanh(a) + b)(jnp.sin(x), jnp.cos(x)),
        lambda x: (lambda a, b: jnp.tanh(b) + a)(jnp.sin(x), jnp.cos(x)),
    ),
    "which results": (lambda x: (x + 1, x + 2), lambda x: (x + 2, x + 1)),
    "their tree": (lambda x: (x + 1, x + 2), lambda x: {"a": x + 1, "b": x + 2}),
    "a trip count": (looped(3), looped(4)),
    "unrolling": (looped(4), looped(4, 2)),
    "precision": (product(None), product("highest")),
    "an axis": (lambda x: x.sum(0), lambda x: x.sum(1)),
    "a branch": (
        lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
        lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.tan, x),
    ),
    "a custom derivative's function": (jax.nn.relu, jax.nn.relu6),
    "a random key": (
        lambda x: x + jax.random.normal(jax.random.key(0), (4, 4)),
        lambda x: x + jax.random.normal(jax.random.key(1), (4, 4)),
    ),
}


@pytest.mark.parametrize(("one", "other"), UNLIKE.values(), ids=UNLIKE)
def test_programs_that_differ_in_one_thing(one: Callable[..., Any], other: Callable[..., Any]) -> None:
    a, b = found(one), found(other)
    assert a.known_as and b.known_as
    assert a.export() != b.export()  # it does differ
    assert a.digest != b.digest


def test_arguments_and_jits_options() -> None:
    def fn(tree: dict[str, Any]) -> Any:
        return tree["a"] @ next(reversed(tree.values()))

    trees = [
        {"a": X, "b": W},
        {"a": X, "c": W},
        {"a": S((4, 4), "bfloat16"), "b": W},
        {"a": S((8, 4), "float32"), "b": W},
    ]
    all_of = [found(fn, tree) for tree in trees]
    all_of += [found(fn, trees[0], donate_argnums=0), found(fn, trees[0], keep_unused=True)]
    all_of += [program.lowered(fn, (trees[0],), "cuda")]
    assert all(p.known_as for p in all_of)
    assert len({p.digest for p in all_of}) == len(all_of)


def test_jaxs_settings() -> None:
    def digest() -> str:
        return found(lambda x: jnp.sin(x)).digest

    before = digest()
    assert digest() == before
    with jax.numpy_rank_promotion("raise"):
        assert digest() != before


MOVED = "{lines}import jax.numpy as jnp\n\ndef fn(x):\n{lines}    return jnp.tanh(x @ x).sum()\n"


def test_a_program_that_was_moved_is_the_same() -> None:
    digests = set()
    for lines in ("", "    # a comment\n" * 7):
        space: dict[str, Any] = {}
        exec(MOVED.format(lines=lines.lstrip()), space)
        digests.add(found(space["fn"]).digest)
    assert len(digests) == 1


@pytest.mark.slow
def test_every_process_tells_it_alike() -> None:
    code = (
        "import jax\nfrom costtrace import model\nfrom costtrace.target.program import lowered\n"
        "stage = model.find('klein').stages(model.find('klein').configure(res='64x64'))[1]\n"
        "p = lowered(*model.bind(stage), 'tpu')\nprint(bool(p.known_as), p.digest)"
    )
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**env, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1 and said.pop().startswith("True ")


def called_back(x: Any) -> Any:
    return jax.pure_callback(np.sin, X, x)


def kernel(x: Any) -> Any:
    from jax.experimental import pallas as pl

    def run(a: Any, out: Any) -> None:
        out[...] = a[...] + 1

    return pl.pallas_call(run, X)(x)


def test_what_is_not_surely_known_is_lowered() -> None:
    mesh = jax.sharding.AbstractMesh((2,), ("i",))
    split = S((4, 4), "float32", sharding=jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i")))
    assert identity(jax.jit(called_back), (X,)) is None
    assert identity(jax.jit(kernel), (X,)) is None
    assert identity(jax.jit(lambda x, n: x * n, static_argnums=1), (X, 3)) is None
    sharded = found(jnp.sin, split)
    assert sharded.known_as is None and sharded.mesh == {"i": 2} and sharded.artifact
    assert found(jax.checkpoint(jnp.sin)).known_as  # a policy does not reach the lowered program


def test_a_users_own_primitive_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(RULES, "sin")  # its name may stand for anything
    costtrace.rule("sin")(lambda op: costtrace.Cost(vector_flops=op.outputs[0].size))
    try:
        assert identity(jax.jit(jnp.sin), (X,)) is None
        assert identity(jax.jit(jnp.cos), (X,)) is not None
    finally:
        del RULES["sin"]


def test_what_was_compiled_before_is_not_lowered_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(requests: list[worker.Request], finished: Any, **rest: Any) -> None:
        for n, request in enumerate(requests):
            assert request.artifact
            finished(n, {"text": "", "compile_s": 1.0, "memory": {}, "versions": {}, "device": ""})

    def forbidden() -> bytes:
        raise AssertionError("lowered")

    monkeypatch.setattr(worker, "run", run)
    monkeypatch.setattr(setup, "python", lambda kind: sys.executable)
    answers, v6e = cache.Answers(tmp_path / "answers"), chip.load("v6e")
    (first,) = compiler.ask([compiler.Question(found(jnp.tanh), v6e)], answers)
    again = found(jnp.tanh)
    again.export = forbidden
    (second,) = compiler.ask([compiler.Question(again, v6e)], answers)
    assert (first.cached, second.cached) == (False, True)


@jax.tree_util.register_pytree_node_class
class State(NamedTuple):
    count: Any

    def tree_flatten(self) -> Any:
        return (self.count,), None

    @classmethod
    def tree_unflatten(cls, aux: Any, leaves: Any) -> State:
        return cls(*leaves)


def test_a_tree_that_jax_cannot_write_down_travels_as_leaves() -> None:
    def step(state: State, x: Any) -> tuple[State, Any]:
        return State(state.count + 1), x * 2

    sent = program.lowered(step, (State(X), W), "tpu", {"donate_argnums": 0})
    exported = jax.export.deserialize(bytearray(sent.artifact))
    assert len(exported.in_avals) == len(exported.out_avals) == 2 and exported.fun_name == "step"
    assert sent.donated == (0,)


OTHERWISE = {"+": "*", "*": "-", "-": "+", "sin": "tanh", "tanh": "exp", "exp": "sin", "abs": "negative"}
PLACE = re.compile(r"(?<![\w.])\d(?![\w.])|[+*-]|\b(?:sin|tanh|exp|abs)\b")


def changed(p: Program, random: Any) -> Iterator[tuple[program.Program, bytes]]:
    """`p` with one digit or one operator of its text changed, lowered; what is no program then is left out."""
    places = list(PLACE.finditer(p.source))
    for where in random.sample(places, len(places)):
        new = OTHERWISE.get(where[0]) or str((int(where[0]) + 1) % 10)
        source = p.source[: where.start()] + new + p.source[where.end() :]
        with contextlib.suppress(Exception):
            made = found(Program(source, p.types).fn(), *p.args)
            yield made, made.export()


@settings(settings.get_profile("costtrace"), max_examples=12, suppress_health_check=list(HealthCheck))
@given(programs(COMMON, 6, 2), st.randoms(use_true_random=False))
def test_a_changed_program_is_never_taken_for_the_first(p: Program, random: Any) -> None:
    one = found(p.fn(), *p.args)
    artifact = one.export()
    assert found(p.fn(), *p.args).digest == one.digest
    for other, its in itertools.islice(changed(p, random), 4):
        assert its == artifact or other.digest != one.digest
