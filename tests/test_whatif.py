"""What-ifs by arithmetic on small programs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import jax
import pytest
from staged import BF16_PER_S, BYTES, HBM_PER_S, INT8_PER_S, V6E, K, M, N, large, shape, staged

from costtrace import hoist, scenario, sharding, whatif
from costtrace.errors import UsageError
from costtrace.whatif import Part, Stage


@pytest.fixture(scope="module", name="large")
def two_products() -> Stage:
    return large()


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
    made = whatif.changed(["int8:up"], whole, V6E)
    up = part(large, "up", made)
    assert up.cost.by_dtype == {"int8": 3 * 2 * M * K * N}
    assert part(large, "up", whole).nbytes - up.nbytes == 3 * K * N  # one byte a weight, each of 3 calls
    saved = 3 * 2 * M * K * N * (1 / BF16_PER_S - 1 / INT8_PER_S)
    assert whole.serial_s(V6E) - made.serial_s(V6E) == pytest.approx(saved)
    assert whole.floor_s(V6E) - made.floor_s(V6E) == pytest.approx(saved)
    assert part(large, "down", made) == part(large, "down", whole)


def test_eight_bit_weights_save_bytes_alone(large: Stage) -> None:
    whole = whatif.program([large], V6E)
    made = whatif.changed(["w8a16:up,down"], whole, V6E)
    assert whole.fused[large.name] - made.fused[large.name] == 3 * 2 * K * N
    assert part(large, "up", made).cost == part(large, "up", whole).cost


def test_a_fused_scope_moves_arguments_alone(large: Stage) -> None:
    whole = whatif.program([large], V6E)
    made = whatif.changed(["fuse:act"], whole, V6E)
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
    assert [
        v.shape
        for v, same in zip(sampler.trace.inputs, hoist.steady(sampler.trace), strict=True)
        if same and not v.weight
    ] == [(TEXT, WIDTH)]
    products = [op for op in sampler.unchanging() if op.primitive == "dot_general"]
    assert [(op.scope, op.repeat) for op in products] == [("keys", LAYERS)]


def test_hoisting_does_it_in_the_first_call_only(sampler: Stage) -> None:
    whole = whatif.program([sampler], V6E)
    made = whatif.changed(["hoist"], whole, V6E)
    flops = LAYERS * 2 * TEXT * WIDTH * WIDTH
    assert part(sampler, "keys", whole).cost.matmul_flops == 4 * flops
    assert part(sampler, "keys", made).cost.matmul_flops == flops
    assert part(sampler, "keys", made).nbytes == part(sampler, "keys", whole).nbytes // 4
    assert part(sampler, "mix", made) == part(sampler, "mix", whole)
    assert made.extra_bytes == LAYERS * BYTES * TEXT * WIDTH
    weights = LAYERS * BYTES * WIDTH * WIDTH
    text = BYTES * TEXT * WIDTH  # nor is that read by a later call
    assert whole.fused["step"] - made.fused["step"] == 3 * (weights + text - made.extra_bytes)


def test_one_call_has_nothing_to_hoist(sampler: Stage) -> None:
    once = Stage("once", 1, sampler.trace, sampler.profile)
    whole = whatif.program([once], V6E)
    assert whatif.changed(["hoist"], whole, V6E) == whole


TEXT_WIDTH = 64


def mixed(w: dict[str, jax.Array], x: jax.Array, text: jax.Array) -> jax.Array:
    """Weights that are cast before their product, attention in the scope of its projections, keys beside a product."""
    with jax.named_scope("wide"):
        x = x @ w["wide"].astype("bfloat16")
    with jax.named_scope("narrow"):
        x = x @ w["narrow"].astype("bfloat16")
    with jax.named_scope("attention"):
        q = x @ w["q"]
        x = (q @ q.T) @ x
    with jax.named_scope("cross"):
        k = text @ w["k"]
        return (x @ k.T) @ k


@pytest.fixture(scope="module")
def mix() -> Stage:
    square = {"wide": "float32", "narrow": "int8", "q": "bfloat16"}
    weights = {name: shape((WIDTH, WIDTH), dtype) for name, dtype in square.items()}
    weights["k"] = shape((TEXT_WIDTH, WIDTH), "bfloat16")
    return staged(mixed, weights, shape((TOKENS, WIDTH), "bfloat16"), shape((TEXT, TEXT_WIDTH), "bfloat16"), calls=4)


@pytest.mark.parametrize(("scope", "bits"), [("wide", 32), ("narrow", 8), ("attention", 16)])
@pytest.mark.parametrize("kind", ["w8a16", "int8"])
def test_weights_become_8_bits_from_what_they_are(kind: str, scope: str, bits: int, mix: Stage) -> None:
    whole = whatif.program([mix], V6E)
    made = whatif.changed([f"{kind}:{scope}"], whole, V6E)
    saved = 4 * WIDTH * WIDTH * (bits - 8) // 8
    assert part(mix, scope, whole).nbytes - part(mix, scope, made).nbytes == saved
    assert whole.fused["mixed"] - made.fused["mixed"] == saved


def test_products_without_weights_keep_their_dtype(mix: Stage) -> None:
    made = whatif.changed(["int8:attention"], whatif.program([mix], V6E), V6E)
    with_weights, without = 2 * TOKENS * WIDTH * WIDTH, 2 * 2 * TOKENS * TOKENS * WIDTH
    assert part(mix, "attention", made).cost.by_dtype == {"int8": 4 * with_weights, "bfloat16": 4 * without}


def test_a_later_call_reads_what_the_first_kept(mix: Stage) -> None:
    """In the scope that made it too: less work, but the keys are read instead of the text and the weights."""
    whole = whatif.program([mix], V6E)
    made = whatif.changed(["hoist:cross"], whole, V6E)
    keys, text, weights = BYTES * TEXT * WIDTH, BYTES * TEXT * TEXT_WIDTH, BYTES * TEXT_WIDTH * WIDTH
    assert part(mix, "cross", whole).nbytes - part(mix, "cross", made).nbytes == 3 * (text + weights - keys)
    assert whole.fused["mixed"] - made.fused["mixed"] == 3 * (text + weights - keys)
    flops = 2 * TEXT * TEXT_WIDTH * WIDTH
    before, after = (part(mix, "cross", each).cost.matmul_flops for each in (whole, made))
    assert before - after == 3 * flops and made.extra_bytes == keys
    widened = whatif.changed(["hoist:narrow"], whole, V6E)  # its cast: 2 bytes a weight are read instead of 1
    assert part(mix, "narrow", widened).nbytes - part(mix, "narrow", whole).nbytes == 3 * WIDTH * WIDTH


CHANGES = ["int8:wide,attention", "w8a16:attention", "flash:attention", "fuse:attention", "hoist", "hoist:cross"]


def test_changes_have_no_order_and_count_once(mix: Stage) -> None:
    whole = whatif.program([mix], V6E)
    for some in itertools.combinations(CHANGES, 3):
        made = whatif.changed(some, whole, V6E)
        assert all(whatif.changed(order, whole, V6E) == made for order in itertools.permutations(some)), some
        assert whatif.changed([*some, *some], whole, V6E) == made
        assert min(p.nbytes for p in made.parts) >= 0 and min(made.fused.values()) > 0


def test_what_is_the_same_does_not_hang_on_the_number_of_chips() -> None:
    """The text has as many rows as a chip of four has of the tokens: it is no result for that."""

    def make(values: Mapping[str, str]) -> tuple[list[sharding.Part], int]:
        def step(w: dict[str, jax.Array], x: jax.Array, text: jax.Array) -> jax.Array:
            with jax.named_scope("keys"):
                k = text @ w["k"]
            with jax.named_scope("attention"):
                return jax.nn.softmax(x @ k.T, axis=-1) @ k

        args = (
            {"k": shape((WIDTH, WIDTH), "bfloat16")},
            shape((256, WIDTH), "bfloat16"),
            shape((64, WIDTH), "bfloat16"),
        )
        some = staged(step, *args, calls=4)
        return [sharding.Part("step", some.calls, some.trace)], 1

    given = scenario.Source((), make)
    flops = 3 * 2 * 64 * WIDTH * WIDTH
    for chips in (1, 4, 8):
        base = given.setting({}, V6E, chips)
        made = whatif.changed(["hoist"], base.program(), V6E)
        before, after = (sum(p.cost.matmul_flops for p in each.parts) for each in (base.program(), made))
        assert before - after == flops, (chips, base.chosen)


@pytest.mark.parametrize(
    ("scope", "pattern", "hit"),
    [
        ("double/mlp/img", "mlp", True),
        ("double/mlp/img", "double/mlp", True),
        ("double/mlp/img", "double/*", True),
        ("double/mlp/img", "*/img", False),
        ("double/mlp/img", "double/img", False),
        ("double", "double/*", False),
        ("double/mlp/img", "double/*/mlp", True),
        ("double/img/mlp", "double/*/mlp", True),
        ("double/img/0/mlp", "double/*/mlp", False),
    ],
)
def test_patterns(scope: str, pattern: str, hit: bool) -> None:
    assert whatif.matches(scope, [pattern]) is hit


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int4:up", "there are int8, fp8, w8a16, fuse, flash, hoist"),
        ("int8", "name scopes, as in int8:double/mlp"),
        ("fuse:upp", "no scope is called upp: did you mean up\\? costtrace"),
        ("fuse:zzz", "no scope is called zzz: costtrace MODEL --depth 3 lists them"),
        ("hoist:dit", "no scope is called dit"),
    ],
)
def test_a_what_if_that_is_wrong(text: str, said: str, large: Stage) -> None:
    with pytest.raises(UsageError, match=said):
        whatif.changed([text], whatif.program([large], V6E), V6E)


def attend(x: jax.Array) -> jax.Array:
    with jax.named_scope("attention"):
        with jax.named_scope("scores"):
            scores = jax.nn.softmax(x @ x.T)
        with jax.named_scope("values"):
            return scores @ x


def test_flash_attention_keeps_scores_on_the_chip() -> None:
    stage = staged(attend, shape((M, 64), "bfloat16"), weights=None)
    whole = whatif.program([stage], V6E)
    made = whatif.changed(["flash:attention"], whole, V6E)
    x, scores = BYTES * M * 64, BYTES * M * M
    assert sum(p.nbytes for p in whole.parts) == 3 * x + 2 * scores  # x, scores out; scores and x in, the result out
    assert [(p.scope, p.nbytes) for p in made.parts] == [("attention", 2 * x)]
    assert made.parts[0].cost.matmul_flops == 2 * 2 * M * M * 64
    assert made.floor_s(V6E) == whole.floor_s(V6E)
