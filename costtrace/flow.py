"""Control flow while flattening: scan, while, cond, linear solves, shard_map, kernels. One function per primitive.

Each takes the walk, the equation, which of its results are used, its operands, and the frame and phase it stands in; it
returns the results. A loop's edges (row, stack, carry, last) are written on the Values and move nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from costtrace import dce, fold
from costtrace.core import EXACT, FORWARD, MODELLED, UNKNOWN, Carry, Edge, Frame, Note, Op, Value
from costtrace.doors import expanded
from costtrace.kernel import priced_kernel
from costtrace.rules.table import priced

if TYPE_CHECKING:
    from costtrace.walk import Walk


def scan(walk: Walk, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str) -> list[Value]:
    p, closed = eqn.params, eqn.params["jaxpr"]
    (consts, carry), length = dce.scan_counts(p), p["length"]
    start, rows = operands[consts : consts + carry], operands[consts + carry :]
    if length == 0:
        return start + [walk.value(v.aval, frame=at) for v in eqn.outvars[carry:]]
    loop = walk.child(at, "loop", trips=length, phase=phase)
    inner = dce.opened(closed)
    xs = [
        walk.value(v.aval, edge=Edge("row", x, loop), frame=loop)
        for v, x in zip(inner.invars[consts + carry :], rows, strict=True)
    ]
    state = _carried(walk, inner.invars[consts : consts + carry], inner.outvars[:carry], start, loop)
    wanted, _ = dce.scan_masks(eqn, mask, walk.live)
    ends = walk.body(closed, operands[:consts] + state + xs, wanted, loop, phase)
    return _finals(walk, loop, start, state, ends[:carry], wanted, eqn.outvars[:carry]) + [
        _across(walk, v.aval, "stack", y, loop) for v, y in zip(eqn.outvars[carry:], ends[carry:], strict=True)
    ]


def _carried(walk: Walk, invars: Any, outvars: Any, start: list[Value], loop: Frame) -> list[Value]:
    """What the body sees of each carry: a carry handed on unchanged is its start value, invariant."""
    return [
        s if v is o else walk.value(v.aval, "carry", frame=loop) for v, o, s in zip(invars, outvars, start, strict=True)
    ]


def _finals(
    walk: Walk,
    loop: Frame,
    start: list[Value],
    state: list[Value],
    ends: list[Value],
    used: tuple[bool, ...],
    outvars: Any,
) -> list[Value]:
    out = []
    for s, c, e, u, v in zip(start, state, ends, used[: len(start)], outvars, strict=True):
        if c is not s and u:
            walk.out.carries.append(Carry(loop, s, c, e))
        out.append(s if c is s else _across(walk, v.aval, "last", e, loop))
    return out


def _across(walk: Walk, aval: Any, kind: str, source: Value, loop: Frame) -> Value:
    """What a loop makes, seen from outside; one device's part of it where the body ran under shard_map."""
    out = walk.value(aval, edge=Edge(kind, source, loop), frame=loop.parent)
    if kind == "last" and source.size != out.size:
        return Value(source.shape, source.dtype, source.bits, edge=out.edge, frame=loop.parent)
    return out


def while_(walk: Walk, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str) -> list[Value]:
    p = eqn.params
    nc, nb = p["cond_nconsts"], p["body_nconsts"]
    start = operands[nc + nb :]
    trips, status = _trip_count(walk, p, operands, at)
    test = walk.child(at, "loop", trips=trips + 1, phase=phase)
    loop = walk.child(at, "loop", trips=trips, phase=phase)
    test.status = loop.status = status
    kept, _ = dce.while_masks(eqn, mask, walk.live)
    body = dce.opened(p["body_jaxpr"])
    state = _carried(walk, body.invars[nb:], body.outvars, start, loop)
    walk.body(p["cond_jaxpr"], operands[:nc] + (state if trips else start), (True,), test, phase)
    if trips == 0:
        return start
    ends = walk.body(p["body_jaxpr"], operands[nc : nc + nb] + state, kept, loop, phase)
    return _finals(walk, loop, start, state, ends, kept, eqn.outvars)


def _trip_count(walk: Walk, params: Mapping[str, Any], operands: list[Value], at: Frame) -> tuple[int, str]:
    """(trips, how well they are known) of a while loop."""
    known = fold.trips(params, [v.literal for v in operands])
    if known is not None:
        return known, EXACT
    scope = at.scope_path
    for key in (scope, scope or "."):
        if key in walk.trips:
            walk.trips_used.add(key)
            walk.note("assumed-trip", at, f"a loop's trip count was given: {walk.trips[key]}", MODELLED)
            return walk.trips[key], MODELLED
    walk.note(
        "unknown-trip",
        at,
        "a loop's trip count depends on data: one trip is counted; "
        f"give it with trips={{{scope or '.'!r}: n}} (--trips {scope or '.'}=n)",
        UNKNOWN,
    )
    return 1, UNKNOWN


def cond(walk: Walk, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str) -> list[Value]:
    arms, which, rest = eqn.params["branches"], operands[0].literal, operands[1:]
    if len(arms) == 1 or which is not None:
        arm = arms[0] if len(arms) == 1 else arms[min(max(int(which), 0), len(arms) - 1)]
        return walk.body(arm, rest, mask, walk.child(at, "call", phase=phase), phase)
    walk.out.ops.append(Op("cond", (operands[0],), (), {}, at, phase, eqn.source_info))  # the predicate is read
    marks = (len(walk.out.ops), len(walk.out.carries))
    best: tuple[Any, ...] | None = None
    prices = set()
    for i, arm in enumerate(arms):
        frame = walk.child(at, "call", phase=phase)
        results = walk.body(arm, rest, mask, frame, phase)
        ops, carries = walk.out.ops[marks[0] :], walk.out.carries[marks[1] :]
        del walk.out.ops[marks[0] :], walk.out.carries[marks[1] :]
        price = _price(ops)
        prices.add(price)
        if best is None or price > best[0]:
            best = (price, i, ops, carries, results, frame)
    assert best is not None
    walk.out.ops.extend(best[2])
    walk.out.carries.extend(best[3])
    if len(prices) > 1:
        walk.note(
            "branch",
            at,
            f"a branch depends on data: its dearest of {len(arms)} arms (number {best[1]}) is counted",
            MODELLED,
        )
        best[5].status = MODELLED
    return best[4]


def solve(walk: Walk, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str) -> list[Value]:
    """custom_linear_solve: the forward solve runs; the other three programs are for its derivatives."""
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    sizes = [getattr(lengths, f) for f in lengths._fields]
    first = sum(sizes[: lengths._fields.index("solve")])
    consts, b = operands[first : first + lengths.solve], operands[sum(sizes) :]
    return walk.body(jaxprs.solve, consts + b, (True,) * len(eqn.outvars), walk.child(at, "call", phase=phase), phase)


def shard_map(
    walk: Walk, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str
) -> list[Value]:
    """One device's part: the inner values have local shapes and are parts of the outer ones."""
    frame, inner = walk.child(at, "call", phase=phase), dce.opened(eqn.params["jaxpr"])
    outer, walk.axis_sizes = walk.axis_sizes, {**walk.axis_sizes, **dict(eqn.params["mesh"].shape)}
    parts = [walk.value(v.aval, edge=Edge("part", x), frame=frame) for v, x in zip(inner.invars, operands, strict=True)]
    results = walk.body(eqn.params["jaxpr"], parts, mask, frame, phase)
    walk.axis_sizes = outer
    return results


def run_scoped(
    walk: Walk, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str
) -> list[Value]:
    """A kernel's body with scratch memory: the operands are its constants, its inputs the scratch."""
    body = dce.opened(eqn.params["jaxpr"])
    env = dict(zip(body.constvars, operands, strict=True))
    env.update((v, walk.value(v.aval, "const")) for v in body.invars)
    return walk.equations(body, env, (True,) * len(body.outvars), walk.child(at, "call", phase=phase), phase)


def high_level(
    walk: Walk, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str
) -> list[Value]:
    """A primitive that says itself what it is in terms of lower ones."""
    body = expanded(eqn)
    if body is None or len(dce.opened(body).invars) != len(operands):
        return walk.op(eqn, operands, at, phase)
    return walk.body(body, operands, (True,) * len(eqn.outvars), walk.child(at, "call", phase=phase), phase)


def pallas(walk: Walk, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str) -> list[Value]:
    results = walk.op(eqn, operands, at, phase)
    walk.out.ops[-1].priced, notes = priced_kernel(eqn, lambda body: _kernel_ops(walk, body))
    for kind, text, status in notes:
        walk.note(kind, at, text, status)
    return results


FLOW: dict[str, Callable[..., list[Value]]] = {
    "scan": scan, "while": while_, "cond": cond, "custom_linear_solve": solve,
    "shard_map": shard_map, "pallas_call": pallas, "run_scoped": run_scoped, "call_hi_primitive": high_level,
}  # fmt: skip
"""Primitives with control flow of their own; plain calls are in dce.CALLS."""


def _kernel_ops(walk: Walk, jaxpr: Any) -> tuple[list[Op], list[Note]]:
    """The flat ops of a kernel's body (one grid step) with what must be said of it."""
    kernel = type(walk)("kernel", {})
    kernel.axis_sizes = walk.axis_sizes
    inputs = [kernel.value(v.aval, "input") for v in jaxpr.invars]
    kernel.body(jaxpr, inputs, (True,) * len(jaxpr.outvars), kernel.out.root, FORWARD)
    return kernel.out.ops, kernel.out.notes


def _price(ops: list[Op]) -> tuple[int, int]:
    """(FLOPs, unfused bytes) of an arm; the dearest of a branch is chosen by them, in this order."""
    flops = nbytes = 0
    for op in ops:
        flops += priced(op).cost.flops * op.repeat
        nbytes += op.repeat * (
            sum(v.nbytes for v in op.inputs if v.kind != "literal") + sum(v.nbytes for v in op.outputs)
        )
    return flops, nbytes
