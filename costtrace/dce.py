"""Which equations of a jaxpr are live, as XLA drops dead code: `live(jaxpr, used)`. Duck-typed; no jax here.

jax does not drop dead code when it traces, XLA does before it counts. A scan's or while's unused carry and unused
stacked outputs go too, with whatever only they need; an equation with a side effect stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from costtrace.rules.unreachable import FLOW

LOOPS = ("scan", "while", "cond", "pallas_call", "custom_linear_solve", "run_scoped", "core_map", "mpmd_map",
         "emit_pipeline", "parallel_loop")  # fmt: skip
"""Programs inside programs that are not plain calls: they run on other values than the equation's own operands."""

BODIES = {"remat_opt": "fwd_jaxpr", "custom_vjp_call_jaxpr": "fun_jaxpr", "linear_call": "callee"}
"""Where a call holds several programs: the parameter with the one that runs."""


@dataclass(frozen=True, slots=True)
class Live:
    """`eqns`: the live equations in order, each with the mask of its results that are used; `used`: of the inputs."""

    eqns: tuple[tuple[Any, tuple[bool, ...]], ...]
    used: tuple[bool, ...]


Memo = dict[tuple[int, tuple[bool, ...]], Live]


def opened(jaxpr: Any) -> Any:
    """The jaxpr inside a ClosedJaxpr, or itself."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def inner(eqn: Any) -> Any:
    """The one program that a call-like equation runs on its operands, else None."""
    name = eqn.primitive.name
    if name not in FLOW or name in LOOPS:
        return None
    found = [eqn.params[BODIES[name]]] if BODIES.get(name) in eqn.params else eqn.params.values()
    for body in found:
        if hasattr(opened(body), "eqns") and len(opened(body).invars) == len(eqn.invars):
            return body
    return None


def _side_effect(eqn: Any) -> bool:
    return any(type(e).__name__ not in ("NamedAxisEffect", "ReadEffect") for e in eqn.effects)


def live(jaxpr: Any, used: tuple[bool, ...], memo: Memo) -> Live:
    """The live equations of `jaxpr` where only the results in the mask `used` are asked for."""
    jaxpr = opened(jaxpr)
    key = (id(jaxpr), used)
    if key in memo:
        return memo[key]
    wanted = {v for v, u in zip(jaxpr.outvars, used, strict=True) if u and not hasattr(v, "val")}
    kept = []
    for eqn in reversed(jaxpr.eqns):
        mask = tuple(v in wanted for v in eqn.outvars)
        if any(mask) or (eqn.effects and _side_effect(eqn)):
            kept.append((eqn, mask))
            wanted.update(
                v for v, u in zip(eqn.invars, _operands(eqn, mask, memo), strict=True) if u and not hasattr(v, "val")
            )
    kept.reverse()
    memo[key] = Live(tuple(kept), tuple(v in wanted for v in jaxpr.invars))
    return memo[key]


def _operands(eqn: Any, mask: tuple[bool, ...], memo: Memo) -> tuple[bool, ...]:
    """Which operands a live equation reads."""
    name = eqn.primitive.name
    if name == "scan":
        return scan_masks(eqn, mask, memo)[1]
    if name == "while":
        return while_masks(eqn, mask, memo)[1]
    if name == "cond":
        arms = [live(b, mask, memo).used for b in eqn.params["branches"]]
        return (True, *(any(u) for u in zip(*arms, strict=True)))
    body = inner(eqn)
    if body is not None:
        return live(body, results(body, mask), memo).used
    return (True,) * len(eqn.invars)


def results(body: Any, mask: tuple[bool, ...]) -> tuple[bool, ...]:
    """The mask of a call's results as its body's: run_state hands references out, its body nothing."""
    outs = len(opened(body).outvars)
    return mask if outs == len(mask) else (True,) * outs


def scan_counts(params: Any) -> tuple[int, int]:
    """(constants, carries) of a scan: two numbers in jax 0.10, the parts of a flat tree in 0.12."""
    if "num_carry" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(consts), len(carry)


def scan_masks(eqn: Any, mask: tuple[bool, ...], memo: Memo) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """(results of the body that are used, operands of the scan that are read): the smallest that is consistent."""
    consts, carry = scan_counts(eqn.params)
    kept = mask[:carry]
    if eqn.params["length"] == 0:  # nothing runs: what only the body reads is not needed
        return mask, (False,) * consts + kept + (False,) * (len(eqn.invars) - consts - carry)
    while True:
        wanted = kept + mask[carry:]
        used = live(eqn.params["jaxpr"], wanted, memo).used
        more = tuple(a or b for a, b in zip(kept, used[consts : consts + carry], strict=True))
        if more == kept:
            return wanted, used[:consts] + kept + used[consts + carry :]
        kept = more


def while_masks(eqn: Any, mask: tuple[bool, ...], memo: Memo) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """(carries that are used, operands of the while that are read)."""
    p = eqn.params
    asked = live(p["cond_jaxpr"], (True,), memo).used
    kept = tuple(a or b for a, b in zip(mask, asked[p["cond_nconsts"] :], strict=True))
    while True:
        used = live(p["body_jaxpr"], kept, memo).used
        more = tuple(a or b for a, b in zip(kept, used[p["body_nconsts"] :], strict=True))
        if more == kept:
            return kept, asked[: p["cond_nconsts"]] + used[: p["body_nconsts"]] + kept
        kept = more
