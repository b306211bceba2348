"""docs/numbers.md holds what the code says: quantities, terms, marks, tags, and the line of what is not modelled."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from costtrace.core import EXACT, MODELLED, UNKNOWN
from costtrace.figure import QUANTITIES
from costtrace.report.text import MARKED, NOT_MODELLED, TAGS
from costtrace.report.views import INITIALS, MARKS
from costtrace.roofline import TERMS
from costtrace.units import UNITS

PAGE = Path(__file__).parent.parent / "docs" / "numbers.md"
WORDS = {
    "compute": "matrix products, by dtype: their times add up",
    "memory": "bytes to and from HBM",
    "vector": "elementwise floating work and reductions",
    "transcendental": "exp, log, tanh and the like",
    "integer": "integer and bit work, comparisons",
    "link": "bytes between chips",
    "host": "bytes between a chip and the memory of its host",
}


def quantities() -> list[str]:
    rows = [f"| `{name}` | {q.unit} | {q.words} |" for name, q in QUANTITIES.items()]
    return ["| name | unit | is |", "|---|---|---|", *rows]


def terms() -> list[str]:
    return ["| term | initial | is |", "|---|---|---|", *(f"| {t} | {INITIALS[t]} | {WORDS[t]} |" for t in TERMS)]


def marks() -> list[str]:
    statuses = {EXACT: "every number follows from the program", MODELLED: MARKED[MODELLED], UNKNOWN: MARKED[UNKNOWN]}
    rows = [f"| `{MARKS.get(s, '').strip() or ' '}` | {s} | {words} |" for s, words in statuses.items()]
    rows += [f"| `[{tag}]` | tag | {words} |" for tag, words in TAGS.items()]
    rows += ["| `?` | in a cell | not known |", "| `-` | in a cell | has no meaning there |"]
    return ["| sign | status | means |", "|---|---|---|", *rows]


def left_out() -> list[str]:
    return ["```text", NOT_MODELLED, "```"]


PARTS: dict[str, Callable[[], list[str]]] = {
    "quantities": quantities, "terms": terms, "marks": marks, "left out": left_out,
}  # fmt: skip


def current(page: str) -> str:
    """The page with every part as the code has it: from its comment to the next paragraph."""
    for name, lines in PARTS.items():
        text = "\n".join(lines())
        page, n = re.subn(rf"(<!-- {name} -->\n)(?:\n(?:\||```)[\s\S]*?\n(?=\n))?",
                          lambda found, text=text: f"{found[1]}\n{text}\n", page)  # fmt: skip
        assert n == 1, f"docs/numbers.md has no part <!-- {name} -->"
    return page


def test_the_page_is_current(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(current(PAGE.read_text()))
    assert PAGE.read_text() == current(PAGE.read_text()), "pytest --update-golden, then read the diff"


def test_every_unit_and_term_is_known() -> None:
    assert set(WORDS) == set(TERMS) == set(INITIALS) and {q.unit for q in QUANTITIES.values()} <= set(UNITS)
