"""Every rule against a row of arithmetic; convolutions against loops; products and convolutions against XLA."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rule_rows
import rule_rows_algebra
import rule_rows_machine
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from rule_rows import Row, op, ops

from costtrace import chip, roofline
from costtrace.core import MODELLED, Cost, Op
from costtrace.errors import UnknownCostError, UsageError
from costtrace.rules import RULES, table
from costtrace.rules.convolution import taps
from costtrace.rules.table import rule

ROWS = [*rule_rows.ROWS, *rule_rows_algebra.ROWS, *rule_rows_machine.ROWS]
OURS = {name for name, known in RULES.items() if known.owner.startswith("costtrace.")}


@pytest.fixture
def empty_slot() -> Iterator[None]:
    """RULES as it was before the test."""
    before = dict(RULES)
    yield
    RULES.clear()
    RULES.update(before)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule(row: Row) -> None:
    assert RULES[row.primitive].formula(row.op()) == row.cost


def test_every_rule_has_a_row() -> None:
    assert not OURS - {row.primitive for row in ROWS}


def test_every_rule_says_its_formula() -> None:
    assert [name for name in OURS if not RULES[name].formula.__doc__] == []


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_tables_by_dtype_add_up(row: Row) -> None:
    cost = row.cost
    assert sum(cost.by_dtype.values()) == cost.matmul_flops + cost.conv_flops
    assert sum(cost.vector_by_dtype.values()) == cost.vector_flops + cost.linalg_flops + cost.fft_flops
    assert sum(cost.collective_bytes_by_axis.values()) == cost.collective_bytes


@pytest.mark.parametrize("name", ["cholesky", "svd", "eigh", "fft", "sort", "top_k", "random_gamma",
                                  "dot_product_attention_fwd"])  # fmt: skip
def test_a_model_says_that_it_is_one(name: str) -> None:
    assert RULES[name].status == MODELLED


def test_rules_do_not_import_jax() -> None:
    code = "import sys, costtrace.rules; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- wrong use


@pytest.mark.usefixtures("empty_slot")
def test_a_duplicate_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'tanh' has a rule already, in costtrace\.rules\.pointwise: remove one"):
        rule("tanh")(lambda op: Cost())


@pytest.mark.parametrize("names", [(), (lambda op: Cost(),), ("a", 3)])
def test_a_rule_without_names_is_refused(names: tuple[Any, ...]) -> None:
    with pytest.raises(UsageError, match=r"takes the primitives' names: write @costtrace\.rule\('my_primitive'\)"):
        rule(*names)


@pytest.mark.usefixtures("empty_slot")
def test_a_rule_of_ones_own() -> None:
    @rule("first_of_two", "second_of_two", status=MODELLED)
    def two(op: Op) -> Cost:
        """2 m k."""
        return Cost(vector_flops=2 * op.inputs[0].size)

    assert RULES["first_of_two"].formula is RULES["second_of_two"].formula is two
    assert RULES["first_of_two"].formula(op("first_of_two", "f32[3,5]", "")) == Cost(vector_flops=2 * 3 * 5)
    assert RULES["second_of_two"].status == MODELLED


@pytest.mark.usefixtures("empty_slot")
@pytest.mark.parametrize(
    ("ins", "cost", "dtypes"),
    [
        ("bf16[3,5] f32[]", Cost(vector_flops=7), {"bfloat16": 7}),
        ("i8[3,5] bf16[5]", Cost(matmul_flops=7), {"bfloat16": 7}),
        ("i8[3,5] i4[5]", Cost(matmul_flops=7), {"int8": 7}),
        ("i8[3,5] bf16[5]", Cost(matmul_flops=7, by_dtype={"int8": 7}), {"int8": 7}),
        (
            "bf16[3] f32[3]",
            Cost(linalg_flops=7, fft_flops=2, vector_by_dtype={"bfloat16": 4}),
            {"bfloat16": 4, "float32": 5},
        ),
    ],
)
def test_flops_of_ones_own_rule_have_a_dtype(ins: str, cost: Cost, dtypes: dict[str, int]) -> None:
    rule("first_of_two")(lambda _: cost)
    found = table.priced(op("first_of_two", ins, "f32[3]")).cost
    assert {**found.by_dtype, **found.vector_by_dtype} == dtypes
    assert roofline.times(found, chip.load("v6e"), 0).seconds > 0


@pytest.mark.usefixtures("empty_slot")
def test_a_table_of_more_than_its_flops_is_refused() -> None:
    rule("first_of_two")(lambda _: Cost(matmul_flops=7, by_dtype={"int8": 8}))
    with pytest.raises(UsageError, match=r"gives by_dtype = \{'int8': 8\}, more than the 7 FLOPs"):
        table.priced(op("first_of_two", "f32[3]", "f32[3]"))


def test_a_collective_over_an_unknown_axis_has_no_price() -> None:
    with pytest.raises(UnknownCostError, match="psum over axis 'd' of unknown size: trace it inside its shard_map"):
        RULES["psum"].formula(op("psum", "f32[12]", "f32[12]", axes=("d",)))


def test_a_combiner_with_a_loop_has_no_price() -> None:
    def slow(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.while_loop(lambda x: x < b, lambda x: x * 2, a)

    reduce = next(o for o in ops(lambda x: lax.reduce(x, 1.0, slow, (0,)), "f32[3,5]") if o.primitive == "reduce")
    with pytest.raises(UnknownCostError, match="no rule for 'while' in a combiner: add one with @costtrace"):
        RULES["reduce"].formula(reduce)


# ---- convolutions, brute force


def counted(n: int, k: int, outputs: int, stride: int, low: int, lhs_dilation: int, rhs_dilation: int) -> int:
    """Pairs of an output and a tap that meet a real element, by trying all."""
    real = {low + i * lhs_dilation for i in range(n)}
    return sum(o * stride + t * rhs_dilation in real for o in range(outputs) for t in range(k))


SMALL = st.integers(1, 4)


@given(st.tuples(st.integers(0, 7), st.integers(0, 6), st.integers(0, 8), SMALL, st.integers(-5, 6), SMALL, SMALL))
def test_taps_are_those_of_a_loop(sizes: tuple[int, ...]) -> None:
    assert taps(*sizes) == counted(*sizes)


def test_taps_of_a_long_line_take_no_long_loop() -> None:
    n, k = 10_000_000, 7
    assert taps(n, k, n, 1, 3, 1, 1) == taps(n, n, k, 1, 3, 1, 1) == k * n - 2 * (1 + 2 + 3)


SPATIAL = "xyz"
Convolution = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]


def hard_convolutions(count: int) -> list[Convolution]:
    """Convolutions of 1 to 3 dimensions with everything at once, small enough to loop over."""
    draw, found = random.Random(7), list[Convolution]()
    while len(found) < count:
        dims = draw.choice((1, 1, 2, 2, 3))
        groups, batch_groups = draw.choice(((1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 3)))
        spatial = SPATIAL[:dims]
        sizes = {"N": batch_groups * draw.randint(1, 2), "C": groups * draw.randint(1, 3)}
        features = {"O": groups * batch_groups * draw.randint(1, 2), "I": sizes["C"] // groups}
        sizes |= {s: draw.randint(1, 6) for s in spatial}
        features |= {s: draw.randint(1, 4) for s in spatial}
        lhs, rhs, out = ("".join(draw.sample(d + spatial, dims + 2)) for d in ("NC", "OI", "NC"))
        params = {
            "window_strides": [draw.randint(1, 3) for _ in spatial],
            "padding": [(draw.randint(-3, 4), draw.randint(-3, 4)) for _ in spatial],
            "lhs_dilation": [draw.randint(1, 3) for _ in spatial],
            "rhs_dilation": [draw.randint(1, 3) for _ in spatial],
            "dimension_numbers": (lhs, rhs, out),
            "feature_group_count": groups,
            "batch_group_count": batch_groups,
        }
        shapes = tuple(sizes[d] for d in lhs), tuple(features[d] for d in rhs)
        shaped = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
        try:
            out_shape = jax.eval_shape(lambda a, b, p=params: lax.conv_general_dilated(a, b, **p), *shaped).shape
        except (TypeError, ValueError):  # the padding cuts the input away
            continue
        if 0 not in out_shape:
            found.append((*shapes, params))
    return found


def written(convolution: Convolution) -> str:
    lhs, rhs, params = convolution
    return f"{lhs} {rhs} {' '.join(map(str, params.values()))}".replace(", ", ",")


def looped(lhs: tuple[int, ...], rhs: tuple[int, ...], out: tuple[int, ...], p: dict[str, Any]) -> int:
    """Multiply-adds of a convolution, by walking every result, input channel and tap."""
    lhs_spec, rhs_spec, out_spec = p["dimension_numbers"]
    spatial = [d for d in rhs_spec if d in SPATIAL]  # jax takes windows in the order of the kernel's dimensions
    windows = list(zip(p["window_strides"], p["padding"], p["lhs_dilation"], p["rhs_dilation"], strict=True))
    total = 0
    for place in itertools.product(*map(range, out)):
        at = dict(zip(out_spec, place, strict=True))
        for weight in itertools.product(*map(range, rhs)):
            tap = dict(zip(rhs_spec, weight, strict=True))
            met = tap["O"] == at["C"]
            for d, (stride, (low, _), hole, spread) in zip(spatial, windows, strict=True):
                position = at[d] * stride + tap[d] * spread - low
                met = met and position % hole == 0 and 0 <= position // hole < lhs[lhs_spec.index(d)]
            total += met
    return total


@pytest.mark.parametrize("convolution", hard_convolutions(24), ids=written)
def test_convolution_multiplies_what_a_loop_does(convolution: Convolution) -> None:
    lhs, rhs, params = convolution
    (traced,) = ops(lambda a, b: lax.conv_general_dilated(a, b, **params), f"f32{list(lhs)}", f"f32{list(rhs)}")
    assert RULES["conv_general_dilated"].formula(traced).conv_flops == 2 * looped(
        lhs, rhs, traced.outputs[0].shape, params
    )


# ---- XLA's cost analysis of the lowered program


def xla_flops(fn: Any, *shapes: tuple[int, ...]) -> float:
    lowered = jax.jit(fn).lower(*(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes))
    return (lowered.cost_analysis() or {}).get("flops", 0.0)


@pytest.mark.xla
@pytest.mark.parametrize("convolution", hard_convolutions(60), ids=written)
def test_convolution_costs_what_xla_says(convolution: Convolution) -> None:
    lhs, rhs, params = convolution
    (traced,) = ops(lambda a, b: lax.conv_general_dilated(a, b, **params), f"f32{list(lhs)}", f"f32{list(rhs)}")
    counted = RULES["conv_general_dilated"].formula(traced).conv_flops
    assert xla_flops(lambda a, b: lax.conv_general_dilated(a, b, **params), lhs, rhs) == np.float32(counted)


PRODUCTS = [
    ("mk,kn->mn", (3, 5), (5, 7)),
    ("mk,nk->mn", (3, 5), (7, 5)),
    ("km,kn->nm", (5, 3), (5, 7)),
    ("bmk,bkn->bmn", (2, 3, 5), (2, 5, 7)),
    ("mbk,knb->bmn", (3, 2, 5), (5, 7, 2)),
    ("bhtd,bhsd->bhts", (2, 3, 5, 8), (2, 3, 7, 8)),
    ("bmxy,yxbn->bmn", (2, 3, 5, 4), (4, 5, 2, 7)),
    ("k,k->", (5,), (5,)),
    ("i,j->ij", (3,), (5,)),
    ("bi,bj->bij", (2, 3), (2, 5)),
    ("mk,k->m", (3, 5), (5,)),
    ("mk,->mk", (3, 5), ()),
    ("mk,kn->mn", (1, 1), (1, 1)),
    ("mk,kn->mn", (1000, 3), (3, 1000)),
]


@pytest.mark.xla
@pytest.mark.parametrize(("text", "lhs", "rhs"), PRODUCTS, ids=str)
def test_product_costs_what_xla_says(text: str, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> None:
    found = ops(lambda a, b: jnp.einsum(text, a, b), f"f32{list(lhs)}", f"f32{list(rhs)}")
    counted = sum(RULES[o.primitive].formula(o).flops for o in found if o.primitive in RULES)
    assert xla_flops(lambda a, b: jnp.einsum(text, a, b), lhs, rhs) == np.float32(counted)
