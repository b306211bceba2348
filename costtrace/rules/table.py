"""RULES: primitive name -> Rule. Filled once, by `@rule`; a duplicate is refused; there is no default.

A rule is a formula: it takes an Op and returns the Cost of ONE execution, without bytes (fusion.py owns bytes) and
without repeat (the fold in profile.py owns that). It never sees loops, scopes or chips.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from costtrace import authored
from costtrace.core import COUNTS, EXACT, TABLES, UNKNOWN, Cost, Op, Priced
from costtrace.errors import CosttraceError, UnknownCostError, UsageError

Formula = Callable[[Op], Cost]


@dataclass(frozen=True, slots=True)
class Rule:
    primitive: str
    formula: Formula
    status: str = EXACT
    """exact, or modelled where the formula is a model of a library's algorithm (LAPACK, sort)."""
    owner: str = ""
    """The module that registered it."""

    @property
    def own(self) -> bool:
        """Whether it is one of costtrace's."""
        return self.owner.startswith(__package__ or "")


_own = contextlib.nullcontext()
"""costtrace's own rules neither print nor exit; asking costs as much as pricing."""
RULES: dict[str, Rule] = {}


def rule(*primitives: str, status: str = EXACT) -> Callable[[Formula], Formula]:
    """Registers a formula for one or more primitives, by the name that the jaxpr prints.

    >>> @costtrace.rule("my_kernel")
    ... def my_kernel(op):
    ...     "2 m k: one multiply-add per weight."
    ...     return costtrace.Cost(vector_flops=2 * op.inputs[0].size)

    FLOPs are priced at the rate of the widest floating operand's dtype, unless `by_dtype` (of matmul and conv FLOPs) or
    `vector_by_dtype` (of the others) of the Cost says which: by_dtype={"int8": n}. Bytes are not a rule's to give.

    Raises UsageError where the primitive has a rule already, or no name is given.
    """
    if not primitives or not all(isinstance(p, str) for p in primitives):
        raise UsageError("@rule takes the primitives' names: write @costtrace.rule('my_primitive')")

    def register(formula: Formula) -> Formula:
        for primitive in primitives:
            if primitive in RULES:
                raise UsageError(
                    f"primitive {primitive!r} has a rule already, in {RULES[primitive].owner}: remove one of the two"
                )
            RULES[primitive] = Rule(primitive, formula, status, formula.__module__)
        return formula

    return register


def priced(op: Op) -> Priced:
    """What one execution of `op` costs, with its status: by the price it brought along, else by its rule. Without
    either, or where the rule cannot know, the cost is empty and the status unknown, with the reason in `why`.

    Raises UsageError where a rule fails, gives no Cost, or one whose counts are not whole numbers from 0."""
    if op.priced is not None:
        return op.priced
    found = RULES.get(op.primitive)
    if found is None:
        return Priced(Cost(), UNKNOWN, why=f"no rule for {op.primitive!r}")
    try:
        with _own if found.own else authored.running():
            cost = found.formula(op)
    except UnknownCostError as e:
        return Priced(Cost(), UNKNOWN, why=str(e))
    except CosttraceError:
        raise
    except Exception as e:
        if found.own:
            raise  # a bug of costtrace
        frames = traceback.extract_tb(e.__traceback__)[1:]
        at = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else _place(found)
        raise UsageError(f"the rule for {op.primitive!r} failed at {at}: {type(e).__name__}: {e}: mend the rule") from e
    if not isinstance(cost, Cost):
        raise UsageError(f"the rule for {op.primitive!r} ({_place(found)}) returns {cost!r}, no costtrace.Cost: return "
                         "costtrace.Cost(vector_flops=...), with what is not known left out")  # fmt: skip
    for name in COUNTS:
        _counted(getattr(cost, name), name, found)
    for name in TABLES:
        for key, n in getattr(cost, name).items():
            _counted(n, f"{name}[{key!r}]", found)
    return Priced(cost if found.own else _with_dtypes(cost, op, found), found.status)


def _with_dtypes(cost: Cost, op: Op, found: Rule) -> Cost:
    """The cost, whose FLOPs without a dtype have that of the operands: the widest floating one, else the widest."""
    arrays = [v for v in op.inputs if v.shape] or list(op.inputs) or list(op.outputs)
    widest = max(arrays, key=lambda v: (is_float(v.dtype), v.bits)).dtype if arrays else "float32"
    given = {"by_dtype": cost.matmul_flops + cost.conv_flops,
             "vector_by_dtype": cost.vector_flops + cost.linalg_flops + cost.fft_flops}  # fmt: skip
    for name, flops in given.items():
        table = dict(getattr(cost, name))
        left = flops - sum(table.values())
        if left < 0:
            raise UsageError(f"the rule for {op.primitive!r} ({_place(found)}) gives {name} = {table!r}, more than the "
                             f"{flops} FLOPs that it is the table of: count both alike")  # fmt: skip
        if left:
            cost = cost.replace(**{name: {**table, widest: table.get(widest, 0) + left}})
    return cost


def _counted(n: object, name: str, found: Rule) -> None:
    if type(n) is int and n >= 0:
        return
    raise UsageError(f"the rule for {found.primitive!r} ({_place(found)}) gives {name} = {n!r}: counts are whole "
                     "numbers, 0 or more: use // for /, and int()")  # fmt: skip


def _place(found: Rule) -> str:
    code = getattr(found.formula, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else found.owner


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
