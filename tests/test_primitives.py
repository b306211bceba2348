"""Programs inside programs against their rows, and the page of all primitives against the tables it is made of."""

from __future__ import annotations

import jax
import primitives
import pytest
from flow_rows import FLOW_ROWS, UNTRIED, X
from rule_rows import equations

import costtrace
from costtrace.rules import FLOW, UNPRICED, UNREACHABLE


@pytest.mark.parametrize("name", FLOW_ROWS)
def test_a_program_inside_a_program_costs_what_it_holds(name: str) -> None:
    fn, flops = FLOW_ROWS[name]
    assert name in {eqn.primitive.name for eqn in equations(jax.make_jaxpr(fn)(X).jaxpr)}
    found = costtrace.profile(fn, X)
    assert found.total.vector_flops == flops
    assert found.status == ("modelled" if name == "cond" else "exact")


def test_each_has_a_row_or_a_reason() -> None:
    assert set(FLOW_ROWS) | set(UNTRIED) == set(FLOW)
    assert not set(FLOW_ROWS) & set(UNTRIED)


def test_the_page_is_current() -> None:
    assert primitives.PAGE.read_text() == primitives.page(), "run python tests/primitives.py"


def test_every_primitive_stands_on_the_page_once() -> None:
    lines = [line for line in primitives.PAGE.read_text().splitlines() if line.startswith("| `")]
    names = [line.split("`")[1] for line in lines]
    assert len(names) == len(set(names)) == sum(map(len, (primitives.OURS, FLOW, UNPRICED, UNREACHABLE)))
