"""Arithmetic written as text: its value under given names, and the same text with the values in place of the names.

Exact where it can be: a quotient of whole numbers stays a fraction until the end. No Python beyond arithmetic,
comparisons, names, their public attributes (res.width) and calls of the functions among the names.
"""

from __future__ import annotations

import ast
import copy
import difflib
import functools
import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from costtrace.errors import UsageError

SHOWN = 200
BITS = 4096
"""Of the largest power: 2 ** 4096 is far beyond any count, and 9 ** 9 ** 9 takes longer than anyone waits."""


def _power(a: Any, b: Any) -> Any:
    whole = not isinstance(a, float) and not isinstance(b, float)
    if whole and abs(b) * max(abs(a.numerator).bit_length(), a.denominator.bit_length()) > BITS:
        raise ValueError(f"{a} ** {b} has more than {BITS} bits")
    return a**b


def _quotient(a: Any, b: Any) -> Any:
    whole = isinstance(a, int | Fraction) and isinstance(b, int | Fraction)
    return Fraction(a, b) if whole else a / b


OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _quotient,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {"ceil": math.ceil, "floor": math.floor, "max": max, "min": min}
"""What every formula may call."""


def value(text: str, names: Mapping[str, Any], place: str = "formula") -> Any:
    """The number (or truth) that `text` is; a whole number is an int. Raises UsageError with `place` if it is none."""
    try:
        found = _value(_tree(text), {**FUNCTIONS, **names})
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as e:
        said = e.msg if isinstance(e, SyntaxError) else e or "it nests too deep"
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
        raise UsageError(
            f"{place}: {shown!r} is no formula: {said}: write arithmetic, like 2 * tokens * width"
        ) from None
    except KeyError as e:
        name = str(e.args[0])
        near = difflib.get_close_matches(name, names, 1)
        known = f"did you mean {near[0]}?" if near else f"it may use {', '.join(sorted(names))}"
        raise UsageError(f"{place}: {text!r} uses {name!r}, which is not known: {known}") from None
    return found


def with_values(text: str, names: Mapping[str, Any]) -> str:
    """`text` with its numbers in place of the names: "2 * S * H" as "2 * 1536 * 3072". Calls stay as they are."""
    tree = copy.deepcopy(_tree(text))  # which is remembered, and a transformer writes into what it visits
    return ast.unparse(_Values({**names}).visit(tree))


def sides(text: str, names: Mapping[str, Any]) -> str:
    """A comparison with the value of each side: "0.3179 > 0.3595"; of several, the first that does not hold."""
    node: ast.expr = _tree(text)
    while isinstance(node, ast.BoolOp):
        known = {**FUNCTIONS, **names}
        node = next((part for part in node.values if not _value(part, known)), node.values[0])
    if not isinstance(node, ast.Compare):
        return ast.unparse(node)
    ends = [_value(part, {**FUNCTIONS, **names}) for part in (node.left, *node.comparators)]
    signs = [ast.unparse(ast.Compare(ast.Constant(0), [op], [ast.Constant(0)]))[1:-1].strip() for op in node.ops]
    shown = [f"{float(end):.4g}" for end in ends]
    return " ".join(word for pair in zip(shown, [*signs, ""], strict=True) for word in pair).strip()


def names_in(text: str) -> set[str]:
    """The names that `text` uses, functions left out."""
    called = {node.func for node in ast.walk(_tree(text)) if isinstance(node, ast.Call)}
    return {node.id for node in ast.walk(_tree(text)) if isinstance(node, ast.Name) and node not in called}


@functools.cache
def _tree(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def _value(node: ast.AST, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        found: Any = node.value
    elif isinstance(node, ast.Name):
        found = names[node.id]
    elif isinstance(node, ast.Attribute) and not node.attr.startswith("_"):
        found = getattr(_value(node.value, names), node.attr, None)
        if found is None:
            raise ValueError(f"{ast.unparse(node)} is not there")
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        ends = [_value(node.left, names), _value(node.right, names)]
        if not all(isinstance(end, int | float | Fraction) for end in ends):
            raise ValueError(f"{ast.unparse(node)} is not of numbers")
        found = OPERATORS[type(node.op)](*ends)
    elif isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        found = OPERATORS[type(node.op)](_value(node.operand, names))
    elif isinstance(node, ast.Compare):
        ends = [_value(part, names) for part in (node.left, *node.comparators)]
        found = all(OPERATORS[type(op)](a, b) for op, a, b in zip(node.ops, ends, ends[1:], strict=False))
    elif isinstance(node, ast.BoolOp):
        parts = [_value(part, names) for part in node.values]
        found = all(parts) if isinstance(node.op, ast.And) else any(parts)
    elif isinstance(node, ast.IfExp):
        found = _value(node.body if _value(node.test, names) else node.orelse, names)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        found = names[node.func.id](*(_value(arg, names) for arg in node.args))
    else:
        raise ValueError(f"{ast.unparse(node)} is not arithmetic")
    return int(found) if isinstance(found, Fraction) and found.denominator == 1 else found


class _Values(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        found = self.names.get(node.id)
        if isinstance(found, Fraction):
            found = float(found)
        return ast.Constant(found) if isinstance(found, int | float) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.Constant(_value(node, self.names))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = [self.visit(arg) for arg in node.args]
        return node
