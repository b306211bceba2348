"""Scalars that are known when the program is traced, and the trip counts that follow from them. No jax here.

A while loop's condition depends on some of its carries. Where these start at known values and change by known
arithmetic, the trip count is known: by a formula for a counter with a constant step, else by running that arithmetic.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from costtrace.dce import inner, opened

LIMIT = 100_000
"""Trips that are run through before a loop counts as unknown."""


def _divided(a: Any, b: Any) -> Any:
    return np.trunc(a / b).astype(np.asarray(a).dtype) if np.asarray(a).dtype.kind in "iu" else a / b


FOLD: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": _divided, "neg": operator.neg,
    "rem": np.fmod, "max": np.maximum, "min": np.minimum, "abs": np.abs, "sign": np.sign, "square": np.square,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "floor": np.floor,
    "ceil": np.ceil, "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "shift_left": np.left_shift,
    "shift_right_logical": np.right_shift, "shift_right_arithmetic": np.right_shift, "add_any": operator.add,
    "stop_gradient": lambda a: a, "copy": lambda a: a, "clamp": lambda lo, x, hi: np.minimum(np.maximum(x, lo), hi),
    "select_n": lambda which, *cases: cases[int(which)],
}  # fmt: skip
"""Scalar primitives that this file can evaluate."""


def evaluated(eqn: Any, operands: list[Any]) -> Any:
    """The scalar result of one equation on known scalars (numpy, so that integers wrap as in XLA), else None."""
    name = eqn.primitive.name
    out = eqn.outvars[0].aval
    if getattr(out, "shape", None) != ():
        return None
    with np.errstate(all="ignore"):
        if name == "convert_element_type":
            return _cast(operands[0], out)
        if name == "integer_pow":
            return _cast(operands[0] ** eqn.params["y"], out)
        if name in ("reshape", "squeeze", "broadcast_in_dim"):
            return np.reshape(operands[0], ())[()]
        return _cast(FOLD[name](*operands), out) if name in FOLD else None


VECTOR = 1024
"""Elements up to which an index vector that is written in the program is kept."""


def vector(eqn: Any, operands: list[Any]) -> Any:
    """The known value of a small array that is put together from known ones (an index), else None."""
    out, name = eqn.outvars[0].aval, eqn.primitive.name
    if math.prod(out.shape) > VECTOR:
        return None
    if name == "iota":
        return np.arange(out.shape[0]).astype(out.dtype) if len(out.shape) == 1 else None
    if name == "slice":
        p = eqn.params
        cuts = zip(p["start_indices"], p["limit_indices"], p["strides"] or [1] * len(out.shape), strict=True)
        return np.asarray(operands[0])[tuple(slice(*cut) for cut in cuts)]
    if name == "concatenate":
        return np.concatenate([np.asarray(o) for o in operands], eqn.params["dimension"])
    if name == "broadcast_in_dim" and np.size(operands[0]) == 1:
        return np.broadcast_to(np.ravel(operands[0])[0], out.shape)
    if name in ("reshape", "squeeze", "expand_dims"):
        return np.reshape(operands[0], out.shape)
    return _cast(operands[0], out) if name == "convert_element_type" else None


def _cast(x: Any, aval: Any) -> Any:
    try:
        return np.asarray(x).astype(aval.dtype)[()]
    except TypeError:  # an extended dtype: a key, a token
        return None


def run(jaxpr: Any, known: Mapping[Any, Any], wanted: set[Any]) -> dict[Any, Any] | None:
    """Values of `wanted` variables from `known` ones, running only what they need; None where something is unknown."""
    values = dict(known)
    needed, plan = {v for v in wanted if v not in values}, []
    for eqn in reversed(opened(jaxpr).eqns):
        if any(v in needed for v in eqn.outvars):
            plan.append(eqn)
            needed.update(v for v in eqn.invars if not hasattr(v, "val") and v not in values)
    for eqn in reversed(plan):
        operands = [v.val if hasattr(v, "val") else values.get(v) for v in eqn.invars]
        if any(o is None for o in operands):
            return None
        body = inner(eqn)
        if body is not None:
            found = run(body, _bound(body, operands), {v for v in opened(body).outvars if not hasattr(v, "val")})
            if found is None:
                return None
            results = [v.val if hasattr(v, "val") else found[v] for v in opened(body).outvars]
        else:
            results = [evaluated(eqn, operands)] if len(eqn.outvars) == 1 else [None]
        if any(r is None for r in results):
            return None
        values.update(zip(eqn.outvars, results, strict=True))
    return {v: values[v] for v in wanted} if all(v in values for v in wanted) else None


def _bound(closed: Any, operands: list[Any]) -> dict[Any, Any]:
    known = dict(zip(opened(closed).invars, operands, strict=True))
    for var, value in zip(opened(closed).constvars, getattr(closed, "consts", ()), strict=False):
        if np.ndim(value) == 0:
            known[var] = np.asarray(value)[()]
    return known


def trips(params: Mapping[str, Any], operands: list[Any]) -> int | None:
    """Trip count of a `while` equation from its parameters and its operands' known values (None: unknown)."""
    cond, body = params["cond_jaxpr"], params["body_jaxpr"]
    nc, nb = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts, start = operands[:nc], operands[nc : nc + nb], operands[nc + nb :]
    base_c = _known(cond, cond_consts)
    base_b = _known(body, body_consts)
    carry_c, carry_b = opened(cond).invars[nc:], opened(body).invars[nb:]
    outs = opened(body).outvars
    wanted = _closure(cond, body, carry_c, carry_b)
    if any(start[k] is None for k in wanted):
        return None
    if len(wanted) == 1:
        k = wanted[0]
        quick = _counted(_step(body, base_b, carry_b[k], outs[k]), _bound_of(cond, base_c, carry_c[k]), start[k])
        if quick is not None:
            return quick
    state = {k: start[k] for k in wanted}
    answer = opened(cond).outvars[0]
    for n in range(LIMIT):
        at = base_c | {carry_c[k]: v for k, v in state.items()}
        more = answer.val if hasattr(answer, "val") else (run(cond, at, {answer}) or {}).get(answer)
        if more is None:
            return None
        if not more:
            return n
        at = base_b | {carry_b[k]: v for k, v in state.items()}
        found = run(body, at, {outs[k] for k in wanted if not hasattr(outs[k], "val")})
        if found is None:
            return None
        state = {k: outs[k].val if hasattr(outs[k], "val") else found[outs[k]] for k in wanted}
    return None


def _known(closed: Any, consts: list[Any]) -> dict[Any, Any]:
    known = _bound(closed, consts + [None] * (len(opened(closed).invars) - len(consts)))
    return {v: x for v, x in known.items() if x is not None}


def _closure(cond: Any, body: Any, carry_c: list[Any], carry_b: list[Any]) -> list[int]:
    """The carries that the condition depends on, directly or through the body."""
    wanted = {k for k, v in enumerate(carry_c) if v in _needs(cond, {opened(cond).outvars[0]})}
    while True:
        outs = {v for k, v in enumerate(opened(body).outvars) if k in wanted and not hasattr(v, "val")}
        needs = _needs(body, outs)
        more = wanted | {k for k, v in enumerate(carry_b) if v in needs}
        if more == wanted:
            return sorted(wanted)
        wanted = more


def _needs(closed: Any, wanted: set[Any]) -> set[Any]:
    needs = {v for v in wanted if not hasattr(v, "val")}
    for eqn in reversed(opened(closed).eqns):
        if any(v in needs for v in eqn.outvars):
            needs.update(v for v in eqn.invars if not hasattr(v, "val"))
    return needs


def _producer(closed: Any, var: Any) -> Any:
    return next((e for e in opened(closed).eqns if var in e.outvars), None)


def _value(closed: Any, known: dict[Any, Any], var: Any) -> Any:
    if hasattr(var, "val"):
        return var.val
    found = run(closed, known, {var})
    return None if found is None else found[var]


def _step(body: Any, known: dict[Any, Any], counter: Any, out: Any) -> int | None:
    """The constant that the body adds to an integer counter, else None."""
    eqn = None if hasattr(out, "val") else _producer(body, out)
    if eqn is None or eqn.primitive.name not in ("add", "sub") or counter not in eqn.invars:
        return None
    a, b = eqn.invars
    other = _value(body, known, b if a is counter else a)
    if other is None or np.asarray(other).dtype.kind not in "iu" or (eqn.primitive.name == "sub" and b is counter):
        return None
    return int(other) if eqn.primitive.name == "add" else -int(other)


_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "ne": "ne"}


def _bound_of(cond: Any, known: dict[Any, Any], counter: Any) -> tuple[str, int] | None:
    """(comparison, bound) of a condition `counter < bound`, else None."""
    out = opened(cond).outvars[0]
    eqn = None if hasattr(out, "val") else _producer(cond, out)
    if eqn is None or eqn.primitive.name not in _FLIPPED or counter not in eqn.invars:
        return None
    a, b = eqn.invars
    other = _value(cond, known, b if a is counter else a)
    if other is None or np.asarray(other).dtype.kind not in "iu":
        return None
    return (eqn.primitive.name if a is counter else _FLIPPED[eqn.primitive.name]), int(other)


def _counted(step: int | None, bound: tuple[str, int] | None, start: Any) -> int | None:
    """Trips of `while counter < bound: counter += step`, by arithmetic; None where the counter would wrap round."""
    if step is None or bound is None or not step:
        return None
    how, at = bound
    start, width = int(start), np.iinfo(np.asarray(start).dtype)
    if how == "ne":
        return (at - start) // step if (at - start) % step == 0 and (at - start) // step >= 0 else None
    if how in ("gt", "ge"):  # mirrored into the rising case
        start, step, at = -start, -step, -at
    last = at if how in ("le", "ge") else at - 1  # the last value for which the body runs
    if start > last:
        return 0
    if step < 0:
        return None
    n = (last - start) // step + 1
    end = start + n * step
    return n if width.min <= (end if how in ("lt", "le") else -end) <= width.max else None
