"""Random programs (strategies.py, statements.py) against slow accounts of bytes and memory, and what holds for all.

What XLA counts of them is in test_xla.py.
"""

from __future__ import annotations

from typing import Any

import jax
import pytest
from brute import accounts
from hypothesis import HealthCheck, assume, given, settings
from liveness import peak
from statements import KINDS, programs
from strategies import Program

import costtrace

NETS = tuple(k for k in KINDS if k not in ("convolution", "gradient", "network"))
"""What the slow accounts know."""
PLACED = tuple(k for k in NETS if k not in ("indexed", "update"))
"""What touches elements at places known beforehand; of the rest costtrace counts elements, not places."""
NESTED = (*PLACED, "dot", "scan", "scan", "scope", "scope", "scope", "function")

# filter_too_much: a program where the definition leaves a choice is passed over.
settings.register_profile(
    "programs",
    settings.get_profile("costtrace"),
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)


def few(n: int) -> Any:
    return settings(settings.get_profile("programs"), max_examples=n)


@few(80)
@given(programs())
def test_scanned_and_unrolled_programs_do_the_same_work(p: Program) -> None:
    assume("looped gradient" not in p.remarks)
    looped, flat = (costtrace.profile(p.fn(unrolled), *p.args) for unrolled in (False, True))
    for count in ("matmul_flops", "conv_flops", "vector_flops", "transcendentals"):
        assert getattr(looped.total, count) == getattr(flat.total, count), count
    assert looped.total.by_dtype == flat.total.by_dtype


@few(60)
@given(programs(NESTED, size=6))
def test_scanned_and_unrolled_scopes_move_the_same_bytes(p: Program) -> None:
    assume(not p.remarks & {"empty", "carried row"} and "branch(" not in p.source)
    looped, flat = (costtrace.profile(p.fn(unrolled), *p.args) for unrolled in (False, True))
    assert looped.total.bytes_fused == flat.total.bytes_fused
    assert {k: c.bytes_fused for k, c in looped.scopes().items()} == {
        k: c.bytes_fused for k, c in flat.scopes().items()
    }


@few(80)
@given(programs())
def test_sums_and_order_of_cuts(p: Program) -> None:
    found = costtrace.profile(p.fn(), *p.args)
    for path, cost in found.by_scope.items():
        assert cost.bytes_fused <= cost.bytes_scoped <= cost.bytes_unfused, path
    for by in ("primitive", "scope", "dtype", "phase"):
        rows = found.rows(by=by)
        assert sum(r.cost.flops for r in rows) == found.total.flops, by
        assert sum(r.cost.bytes_unfused for r in rows) == found.total.bytes_unfused, by


@few(40)
@given(programs())
def test_asked_again_saved_and_jitted_it_is_the_same(p: Program) -> None:
    found = costtrace.profile(p.fn(), *p.args)
    assert costtrace.profile(p.fn(), *p.args) == found
    assert costtrace.Profile.from_json(found.to_json()) == found
    jitted = costtrace.profile(jax.jit(p.fn()), *p.args)
    assert (jitted.total, jitted.peak.nbytes, jitted.scopes()) == (found.total, found.peak.nbytes, found.scopes())


@few(100)
@given(programs(NESTED, size=6))
def test_bytes_are_those_of_the_slow_account(p: Program) -> None:
    book = accounts(p.fn(), p.args)
    assume(not book.doubts and "empty" not in p.remarks)
    found = costtrace.profile(p.fn(), *p.args)
    for path, row in book.rows.items():
        cost = found.by_scope[path]
        assert (cost.bytes_fused, cost.bytes_scoped, cost.bytes_unfused) == (row.fused, row.scoped, row.unfused), path


@few(60)
@given(programs((*NETS, "indexed", "update", "scope"), size=5, depth=1))
def test_no_count_is_below_the_slow_account(p: Program) -> None:
    book = accounts(p.fn(), p.args)
    assume(not book.doubts)
    assert costtrace.profile(p.fn(), *p.args).total.bytes_fused >= book.rows[""].fused


@few(80)
@given(programs(NESTED, size=6))
def test_peak_is_that_of_the_slow_account(p: Program) -> None:
    assume("repeat(" not in p.source and "empty" not in p.remarks)
    want = peak(p.fn(), p.args)
    assume(want is not None)
    found = costtrace.profile(p.fn(), *p.args).peak
    assert found.nbytes == want, found.alive


@pytest.mark.parametrize("unrolled", [False, True])
def test_a_program_is_its_source(unrolled: bool) -> None:
    p = Program("def program(x):\n    return fori(3, lambda c: c * 2, x)", (("float32", (4,)),))
    assert costtrace.profile(p.fn(unrolled), *p.args).total.vector_flops == 3 * 4
    assert repr(p) == f"\n# float32[4]\n{p.source}"
