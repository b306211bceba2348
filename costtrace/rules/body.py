"""The price of a small jaxpr carried by a primitive, such as the combiner of a reduction. Imports no jax."""

from __future__ import annotations

from typing import Any

from costtrace.core import Cost, Frame, Op, Value
from costtrace.errors import UnknownCostError
from costtrace.rules.table import RULES


def body(jaxpr: Any) -> Cost:
    """The cost of one run of a jaxpr, open or closed, by RULES; calls inside are walked.

    Raises UnknownCostError where an equation has no rule, or hides a loop or branch that only trace.py understands.
    """
    cost, frame = Cost(), Frame(None, "root")
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        name = eqn.primitive.name
        if name in RULES:
            op = Op(name, _values(eqn.invars), _values(eqn.outvars), eqn.params, frame)
            cost += RULES[name].formula(op)
        elif name in ("jit", "pjit", "closed_call", "custom_jvp_call"):
            cost += body(eqn.params.get("jaxpr") or eqn.params["call_jaxpr"])
        else:
            raise UnknownCostError(f"no rule for {name!r} in a combiner: add one with @costtrace.rule({name!r})")
    return cost


def _values(variables: Any) -> tuple[Value, ...]:
    return tuple(Value(v.aval.shape, str(v.aval.dtype), 8 * v.aval.dtype.itemsize) for v in variables)
