"""A few random programs under every law of program_laws.py; random_programs.py tries thousands.

`pytest --programs 500` tries that many under each law.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from program_laws import LAWS, Passed
from strategies import Program

import costtrace

# filter_too_much: a program of which a law says nothing is passed over.
settings.register_profile(
    "programs",
    settings.get_profile("costtrace"),
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xla if law.marks else ()) for name, law in LAWS.items()]
)
def test_law(name: str, request: pytest.FixtureRequest) -> None:
    law = LAWS[name]
    count: Any = request.config.getoption("--programs")

    @settings(settings.get_profile("programs"), max_examples=count)
    @given(law.programs)
    def holds(p: Program) -> None:
        try:
            law.holds(p)
        except Passed:
            assume(False)

    holds()


@pytest.mark.parametrize("unrolled", [False, True])
def test_a_program_is_its_source(unrolled: bool) -> None:
    p = Program("def program(x):\n    return fori(3, lambda c: c * 2, x)", (("float32", (4,)),))
    assert costtrace.profile(p.fn(unrolled), *p.args).total.vector_flops == 3 * 4
    assert repr(p) == f"\n# float32[4]\n{p.source}"
