"""Formulas: exact, closed, and refused in one line."""

from __future__ import annotations

from fractions import Fraction

import pytest

from costtrace import formula
from costtrace.errors import UsageError
from costtrace.option import Size

NAMES = {"S": 1536, "H": 3072, "res": Size(1360, 768), "f": lambda key: {"a": 7}[key]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * S * H", 2 * 1536 * 3072),
        ("res.width // 16 * (res.height // 16)", 85 * 48),
        ("S / 7 * 7", 1536),
        ("S / 7", Fraction(1536, 7)),
        ("3 + 4 / 2", 5),
        ("ceil(4080 / 128) * 128", 4096),
        ("max(1, 2.5)", 2.5),
        ("f('a') - 1", 6),
        ("1 < 2 <= 2 and S == 1536", True),
        ("1 < 2 < 2 or S != 1536", False),
        ("S if H > S else 0", 1536),
        ("-2 ** 2", -4),
    ],
)
def test_a_formula_is_exact(text, value) -> None:
    found = formula.value(text, NAMES)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2 * T", "uses 'T', which is not known"),
        ("2 * (S", "is no formula"),
        ("[S]", r"\[S\] is not arithmetic"),
        ("res.__class__", "res.__class__ is not arithmetic"),
        ("res.depth", "res.depth is not there"),
        ("S / 0", "is no formula"),
        ("S if S", "is no formula"),
        ("(lambda: 1)()", "is not arithmetic"),
    ],
)
def test_a_wrong_one_is_refused_in_one_line(text, said) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        formula.value(text, NAMES, "claim 'x'")
    assert str(caught.value).startswith("claim 'x': ") and "\n" not in str(caught.value)


def test_a_near_name_is_offered() -> None:
    with pytest.raises(UsageError, match="did you mean tokens"):
        formula.value("2 * token", {"tokens": 3})


def test_values_stand_in_place_of_names() -> None:
    assert formula.with_values("2 * S * res.height * f('a')", NAMES) == "2 * 1536 * 768 * f('a')"


def test_the_sides_of_a_comparison() -> None:
    assert formula.sides("S / 3 > H", NAMES) == "512 > 3072"
    assert formula.sides("1 < 2 and 3 < 2", NAMES) == "3 < 2"


def test_showing_a_formula_leaves_it_as_it_is() -> None:
    """Its tree is remembered: values that were put into it for one configuration would stay for the next."""
    assert formula.value("2 * rows * cols", {"rows": 3, "cols": 5}) == 30
    assert formula.with_values("2 * rows * cols", {"rows": 3, "cols": 5}) == "2 * 3 * 5"
    assert formula.value("2 * rows * cols", {"rows": 7, "cols": 11}) == 154
