"""What-ifs by arithmetic on small programs, and the advice on the two models that a report was written of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import pytest

from costtrace import advice, chip, model, whatif
from costtrace.cli import main
from costtrace.errors import UsageError
from costtrace.profiler import folded
from costtrace.report.advice import document, printed
from costtrace.report.output import FORMATS
from costtrace.trace import trace
from costtrace.whatif import Part, Stage

V6E = chip.load("v6e")
M, K, N = 4096, 2048, 8192
BYTES = 2
BF16_PER_S, INT8_PER_S, HBM_PER_S = 918e12, 1836e12, 1638e9
shape = jax.ShapeDtypeStruct


def staged(fn: Callable[..., Any], *args: Any, calls: int = 1, weights: int | None = 0) -> Stage:
    made = trace(fn, *args, weights=weights)
    return Stage(fn.__name__, calls, made, folded(made))


def mlp(w: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    with jax.named_scope("up"):
        y = x @ w["up"]
    with jax.named_scope("act"):
        y = jax.nn.relu(y)
    with jax.named_scope("down"):
        return y @ w["down"]


@pytest.fixture(scope="module")
def large() -> Stage:
    weights = {"up": shape((K, N), "bfloat16"), "down": shape((N, K), "bfloat16")}
    return staged(mlp, weights, shape((M, K), "bfloat16"), calls=3)


def part(stage: Stage, scope: str, made: whatif.Program) -> Part:
    return next(p for p in made.parts if (p.stage, p.scope) == (stage.name, scope))


def test_the_program_as_it_is(large: Stage) -> None:
    whole = whatif.program([large], V6E)
    flops, act = 3 * 2 * M * K * N, 3 * 2 * BYTES * M * N
    assert part(large, "up", whole).cost.matmul_flops == flops
    assert whole.serial_s(V6E) == pytest.approx(2 * flops / BF16_PER_S + act / HBM_PER_S)
    assert whole.floor_s(V6E) == pytest.approx(2 * flops / BF16_PER_S)


def test_int8_takes_the_other_rate_and_half_the_weights(large: Stage) -> None:
    whole = whatif.program([large], V6E)
    made = whatif.changed("int8:up", [large], whole)
    up = part(large, "up", made)
    assert up.cost.by_dtype == {"int8": 3 * 2 * M * K * N}
    assert part(large, "up", whole).nbytes - up.nbytes == 3 * K * N  # one byte a weight, each of 3 calls
    saved = 3 * 2 * M * K * N * (1 / BF16_PER_S - 1 / INT8_PER_S)
    assert whole.serial_s(V6E) - made.serial_s(V6E) == pytest.approx(saved)
    assert whole.floor_s(V6E) - made.floor_s(V6E) == pytest.approx(saved)
    assert part(large, "down", made) == part(large, "down", whole)


def test_eight_bit_weights_save_bytes_alone(large: Stage) -> None:
    whole = whatif.program([large], V6E)
    made = whatif.changed("w8:up,down", [large], whole)
    assert whole.fused[large.name] - made.fused[large.name] == 3 * 2 * K * N
    assert part(large, "up", made).cost == part(large, "up", whole).cost


def test_a_fused_scope_moves_arguments_alone(large: Stage) -> None:
    whole = whatif.program([large], V6E)
    made = whatif.changed("fuse:act", [large], whole)
    assert part(large, "act", whole).nbytes == 3 * 2 * BYTES * M * N
    assert part(large, "act", made).nbytes == 0
    assert made.serial_s(V6E) < whole.serial_s(V6E) and made.floor_s(V6E) == whole.floor_s(V6E)


LAYERS, TOKENS, TEXT, WIDTH = 3, 64, 32, 128


def step(w: dict[str, jax.Array], x: jax.Array, t: jax.Array, text: jax.Array) -> jax.Array:
    """A step of a sampler: keys from the text, the same in every step, inside a loop over layers."""

    def layer(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        with jax.named_scope("keys"):
            k = text @ w["k"]
        with jax.named_scope("mix"):
            return x + (x @ k.T) @ k, None

    with jax.named_scope("time"):
        x = x * t
    return jax.lax.scan(layer, x, w)[0]


@pytest.fixture(scope="module")
def sampler() -> Stage:
    weights = {"k": shape((LAYERS, WIDTH, WIDTH), "bfloat16")}
    args = shape((TOKENS, WIDTH), "bfloat16"), shape((), "bfloat16"), shape((TEXT, WIDTH), "bfloat16")
    return staged(step, weights, *args, calls=4)


def test_what_stays_the_same_is_found_inside_a_loop(sampler: Stage) -> None:
    assert [v.shape for v in whatif.steady(sampler) if not v.weight] == [(TEXT, WIDTH)]
    products = [op for op in whatif.unchanging(sampler) if op.primitive == "dot_general"]
    assert [(op.scope, op.repeat) for op in products] == [("keys", LAYERS)]


def test_hoisting_does_it_in_the_first_call_only(sampler: Stage) -> None:
    whole = whatif.program([sampler], V6E)
    made = whatif.changed("hoist", [sampler], whole)
    flops = LAYERS * 2 * TEXT * WIDTH * WIDTH
    assert part(sampler, "keys", whole).cost.matmul_flops == 4 * flops
    assert part(sampler, "keys", made).cost.matmul_flops == flops
    assert part(sampler, "keys", made).nbytes == part(sampler, "keys", whole).nbytes // 4
    assert part(sampler, "mix", made) == part(sampler, "mix", whole)
    assert made.extra_bytes == LAYERS * BYTES * TEXT * WIDTH
    weights = LAYERS * BYTES * WIDTH * WIDTH
    assert whole.fused["step"] - made.fused["step"] == 3 * (weights - made.extra_bytes)


def test_one_call_has_nothing_to_hoist(sampler: Stage) -> None:
    once = Stage("once", 1, sampler.trace, sampler.profile)
    whole = whatif.program([once], V6E)
    assert whatif.changed("hoist", [once], whole) == whole


@pytest.mark.parametrize(
    ("scope", "pattern", "hit"),
    [
        ("double/mlp/img", "mlp", True),
        ("double/mlp/img", "double/mlp", True),
        ("double/mlp/img", "double/*", True),
        ("double/mlp/img", "*/img", False),
        ("double/mlp/img", "double/img", False),
        ("double", "double/*", False),
    ],
)
def test_patterns(scope: str, pattern: str, hit: bool) -> None:
    assert whatif.matches(scope, [pattern]) is hit


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int4:up", "there are int8, w8, fuse, hoist"),
        ("int8", "name scopes, as in int8:double/mlp"),
        ("fuse:upp", "no scope is called upp"),
        ("hoist:dit", "no stage of that name"),
    ],
)
def test_a_what_if_that_is_wrong(text: str, said: str, large: Stage) -> None:
    with pytest.raises(UsageError, match=said):
        whatif.changed(text, [large], whatif.program([large], V6E))


def advised(name: str, **options: str) -> tuple[list[Stage], dict[str, advice.Advice]]:
    found = model.find(name)
    stages = found.stages(found.configure(**options))
    traced = []
    for stage in stages:
        fn, args = model.bind(stage)
        made = trace(fn, *args, weights=0)
        traced.append(Stage(stage.name, stage.calls, made, folded(made)))
    some = advice.advise(traced, V6E, {s.name: s.depth for s in stages}, 8)
    assert [a.share for a in some if a.holds] == sorted((a.share for a in some if a.holds), reverse=True)
    assert not any(a.holds for a in some[sum(a.holds for a in some) :])
    return traced, {f"{a.kind} {a.what}" if a.kind == "strategy" else a.kind: a for a in some}


def test_klein() -> None:
    _, found = advised("klein")
    assert {"single/linear1", "single/linear2", "double/mlp"} <= set(found["int8"].scope.split(","))
    assert {"norm", "rope"} <= set(found["fuse"].scope.split(","))
    assert not found["hoist"].holds  # rope tables and the text's projection: 25 GFLOP of 34,000
    assert any(name.startswith("strategy no fsdp") for name in found)
    assert found["int8"].saved_s > found["w8"].saved_s > 0


def test_stable_audio() -> None:
    stages, found = advised("sa3")
    dit = stages[1]
    scopes = {op.scope for op in whatif.unchanging(dit) if op.primitive == "dot_general"}
    assert scopes == {"context", "time", "block/cross_qkv/to_kv", "block/local"}
    assert found["hoist"].holds
    assert "block/mlp" in found["int8"].scope.split(",")
    assert any(name.startswith("strategy leave it on one chip") for name in found)  # the text encoder


def test_together_saves_less_than_the_sum_and_no_less_than_each(large: Stage) -> None:
    some = advice.together(["int8:up", "int8:up,down", "fuse:act"], [large], V6E)
    *alone, both = some
    assert both.kind == "all"
    assert max(a.saved_s for a in alone) <= both.saved_s <= sum(a.saved_s for a in alone) * (1 + 1e-9)


def test_a_chip_without_int8_says_so(large: Stage) -> None:
    without = dataclasses.replace(V6E, numbers={k: n for k, n in V6E.numbers.items() if k != "matrix.int8"})
    found = {a.kind: a for a in advice.advise([large], without, {}, 1)}
    assert not found["int8"].holds
    assert found["int8"].costs == "no int8 matrix rate on v6e"


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_prints_it(form: str, large: Stage) -> None:
    some = advice.advise([large], V6E, {}, 1)
    assert "int8" in printed(document("mine", {"n": 3}, V6E, 1, some), form)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "klein", "--what-if", "int8:single/linear1", "--what-if", "hoist"]) == 0
    out = capsys.readouterr().out
    assert "all of these" in out and "single/linear1: products and weights in int8" in out
    assert main(["advise", "klein", "--what-if", "int8:nothing"]) == 2
    assert "no scope is called nothing" in capsys.readouterr().err
