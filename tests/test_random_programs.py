"""A few random programs under every law of program_laws.py; random_programs.py tries thousands.

`pytest --programs 500` tries that many under each law.
"""

from __future__ import annotations

import jax
import pytest
from program_laws import LAWS, Passed
from strategies import Program, Random

import costtrace


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xla if law.marks else ()) for name, law in LAWS.items()]
)
def test_law(name: str, request: pytest.FixtureRequest) -> None:
    """The same programs in every run. Of one that fails random_programs.py --smallest looks for a smaller one."""
    law = LAWS[name]
    for n in range(request.config.getoption("--programs")):
        p = law.program(Random(f"{name} test {n}"))
        try:
            law.holds(p)
        except Passed:
            continue
        except Exception as e:
            e.add_note(repr(p))
            raise
    jax.clear_caches()


@pytest.mark.parametrize("unrolled", [False, True])
def test_a_program_is_its_source(unrolled: bool) -> None:
    p = Program("def program(x):\n    return fori(3, lambda c: c * 2, x)", (("float32", (4,)),))
    assert costtrace.profile(p.fn(unrolled), *p.args).total.vector_flops == 3 * 4
    assert repr(p) == f"\n# float32[4]\n{p.source}"
