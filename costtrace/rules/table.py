"""RULES: primitive name -> Rule. Filled once, by `@rule`; a duplicate is refused; there is no default.

A rule is a formula: it takes an Op and returns the Cost of ONE execution, without bytes (fusion.py owns bytes) and
without repeat (the fold in profile.py owns that). It never sees loops, scopes or chips.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from costtrace.core import EXACT, UNKNOWN, Cost, Op, Priced
from costtrace.errors import UnknownCostError, UsageError

Formula = Callable[[Op], Cost]


@dataclass(frozen=True, slots=True)
class Rule:
    primitive: str
    formula: Formula
    status: str = EXACT
    """exact, or modelled where the formula is a model of a library's algorithm (LAPACK, sort)."""
    owner: str = ""
    """The module that registered it."""


RULES: dict[str, Rule] = {}


def rule(*primitives: str, status: str = EXACT) -> Callable[[Formula], Formula]:
    """Registers a formula for one or more primitives, by the name that the jaxpr prints.

    >>> @costtrace.rule("my_kernel")
    ... def my_kernel(op):
    ...     "2 m k: one multiply-add per weight."
    ...     return costtrace.Cost(vector_flops=2 * op.inputs[0].size)

    Raises UsageError where the primitive has a rule already, or no name is given.
    """
    if not primitives or not all(isinstance(p, str) for p in primitives):
        raise UsageError("@rule takes the primitives' names: write @costtrace.rule('my_primitive')")

    def register(formula: Formula) -> Formula:
        for primitive in primitives:
            if primitive in RULES:
                raise UsageError(f"primitive {primitive!r} has a rule already, in {RULES[primitive].owner}: "
                                 "remove one of the two")
            RULES[primitive] = Rule(primitive, formula, status, formula.__module__)
        return formula

    return register


def priced(op: Op) -> Priced:
    """What one execution of `op` costs, with its status: by the price it brought along, else by its rule. Without
    either, or where the rule cannot know, the cost is empty and the status unknown, with the reason in `why`."""
    if op.priced is not None:
        return op.priced
    found = RULES.get(op.primitive)
    if found is None:
        return Priced(Cost(), UNKNOWN, why=f"no rule for {op.primitive!r}")
    try:
        return Priced(found.formula(op), found.status)
    except UnknownCostError as e:
        return Priced(Cost(), UNKNOWN, why=str(e))


def is_float(dtype: str) -> bool:
    """True for float and complex dtypes of any width ('bfloat16', 'float8_e4m3fn', 'complex64')."""
    return dtype.startswith(("float", "bfloat", "complex"))


def is_complex(dtype: str) -> bool:
    return dtype.startswith("complex")


def vector(n: int, dtype: str) -> Cost:
    """n elementwise operations on `dtype`: FLOPs where it is floating, integer_ops where it is not."""
    if n <= 0:
        return Cost()
    if is_float(dtype):
        return Cost(vector_flops=n, vector_by_dtype={dtype: n})
    return Cost(integer_ops=n)
