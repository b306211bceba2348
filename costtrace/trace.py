"""Function -> Trace. The one place that knows jaxprs, control flow and name stacks.

It runs jax.make_jaxpr on abstract values (no array, no device), drops dead code as XLA does, and flattens every loop,
branch and call once: an Op carries its Frame, whose `repeat` is the product of the loops around it. A loop's edges are
written on the Values (core.Edge) and move nothing.
"""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from costtrace import arguments, dce, fold
from costtrace.core import BACKWARD, EXACT, FORWARD, MODELLED, RECOMPUTE, UNKNOWN
from costtrace.core import Carry, Edge, Frame, Note, Op, Trace, Value
from costtrace.doors import cudnn_traceable
from costtrace.errors import CosttraceError, TraceError, UsageError
from costtrace.kernel import priced_kernel
from costtrace.rules import RULES, UNPRICED

HOST = ("pure_callback", "io_callback", "debug_callback", "debug_print", "infeed", "outfeed")
SHARDED = ("sharding_constraint", "reshard")
SILENT = re.compile(r"^[\w. ]*(,[\w. ]*)*->[\w. ]*$|^checkpoint$")
"""Scopes that JAX opens itself: einsum's patterns, remat's name."""


def jaxpr_of(fn: Callable[..., Any], args: tuple[Any, ...], jit: Mapping[str, Any] | None = None) -> Any:
    """The closed jaxpr of `fn` on abstract arguments. Raises TraceError where the function fails, with its own line."""
    import jax

    if jit:
        fn = jax.jit(fn, **jit)
    try:
        with cudnn_traceable():
            return jax.make_jaxpr(fn)(*args)
    except CosttraceError:
        raise
    except Exception as e:  # the user's function may raise anything
        raise TraceError(f"{arguments.name_of(fn)} failed while jax traced it: {type(e).__name__}: "
                         f"{_first_line(e)}{_blame(e)}") from e


def _first_line(e: Exception) -> str:
    return next((line.strip() for line in str(e).splitlines() if line.strip()), "no message").rstrip(".")


def _blame(e: Exception) -> str:
    ours = [f for f in traceback.extract_tb(e.__traceback__)
            if "site-packages" not in f.filename and not f.filename.endswith(("costtrace/trace.py", "contextlib.py"))]
    return f" (at {ours[-1].filename}:{ours[-1].lineno})" if ours else " (check the arguments' shapes)"


def trace(fn: Callable[..., Any], *args: Any, jit: Mapping[str, Any] | None = None,
          dims: Mapping[str, int] | None = None, trips: Mapping[str, int] | None = None,
          weights: int | str | None = None) -> Trace:
    """The flat program of one call of `fn` on `args` (pytrees of jax.ShapeDtypeStruct).

    jit: keyword arguments as for jax.jit. dims: values of symbolic dimensions. trips: {scope: trip count} for loops
    whose count depends on data. weights: the argument that holds the parameters (position or name; by default the
    first one if it is a container of arrays). Raises TraceError, ShapeError, UsageError.
    """
    args = arguments.filled(args, dims)
    where = arguments.weight_argument(fn, args, weights)
    closed = jaxpr_of(fn, args, jit)
    names = arguments.named_leaves(fn, args, where)
    return flatten(closed, names, arguments.name_of(fn), trips)


def flatten(closed: Any, names: list[tuple[str, str | None]], name: str,
            trips: Mapping[str, int] | None = None) -> Trace:
    """The flat program of a closed jaxpr whose inputs are called `names`: (name, parameter path or None)."""
    walk = _Walk(name, dict(trips or {}))
    jaxpr = closed.jaxpr
    if len(names) != len(jaxpr.invars):
        names = [(f"arg{i}", None) for i in range(len(jaxpr.invars))]
    donated = _donated(jaxpr)
    for var, (label, weight), given in zip(jaxpr.invars, names, donated, strict=True):
        walk.out.inputs.append(walk.value(var.aval, "input", name=label, weight=weight, donated=given))
    outputs = walk.body(closed, walk.out.inputs, (True,) * len(jaxpr.outvars), walk.out.root, FORWARD)
    walk.out.outputs.extend(outputs)
    unused = sorted(set(walk.trips) - walk.trips_used)
    if unused:
        open_loops = sorted({n.scope or "." for n in walk.out.notes if n.kind == "unknown-trip"})
        raise UsageError(f"trips names the scope {unused[0]!r}, where no loop's count is unknown: "
                         f"such loops are in {', '.join(open_loops) or 'no scope of this program'}")
    walk.out.notes = list(dict.fromkeys(walk.out.notes))
    for i, op in enumerate(walk.out.ops):
        op.index = i
    return walk.out


def _donated(jaxpr: Any) -> list[bool]:
    eqn = jaxpr.eqns[0] if len(jaxpr.eqns) == 1 else None
    given = eqn.params.get("donated_invars") if eqn is not None else None
    if not given:
        return [False] * len(jaxpr.invars)
    mine = dict(zip((id(v) for v in eqn.invars), given, strict=True))
    return [mine.get(id(v), False) for v in jaxpr.invars]


_WIDTH = re.compile(r"^(?:b?float|u?int|complex)(\d+)")


def _width(dtype: Any) -> tuple[str, int]:
    """(name, true bits of an element): int4 is 4, bool is 8, a typed key what its words are."""
    name = str(dtype)
    found = _WIDTH.match(name)
    if name == "float0":
        return name, 0
    return name, int(found.group(1)) if found else 8 * getattr(dtype, "itemsize", 1)


class _Walk:
    """The state of one flattening: the Trace under construction and the memos that keep it linear."""

    def __init__(self, name: str, trips: dict[str, int]) -> None:
        self.out = Trace(name, [], [], [], Frame(None, "root"))
        self.trips, self.trips_used = trips, set[str]()
        self.live: dce.Memo = {}
        self.frames: dict[tuple[int, int, str], Frame] = {}
        self.stacks: dict[tuple[int, int, str], tuple[Frame, str]] = {}
        self.marks: dict[int, int] = {}  # frame -> the Scope object that opened it
        self.widths: dict[Any, tuple[str, int]] = {}
        self.axis_sizes: dict[str, int] = {}
        self.keep: list[Any] = []  # what ids in the memos point to

    # -- values

    def value(self, aval: Any, kind: str = "result", **more: Any) -> Value:
        inner = getattr(aval, "inner_aval", aval)  # a Ref's array
        dtype = getattr(inner, "dtype", None)
        if dtype is None:  # a token
            return Value((0,), "token", 0, kind, **more)
        if dtype not in self.widths:
            self.widths[dtype] = _width(dtype)
        return Value(tuple(inner.shape), *self.widths[dtype], kind, **more)

    def read(self, env: dict[Any, Value], var: Any) -> Value:
        if not hasattr(var, "val"):
            return env[var]
        return self.value(var.aval, "literal", literal=var.val)

    # -- frames

    def child(self, parent: Frame, kind: str, name: str = "", trips: int = 1, phase: str = FORWARD) -> Frame:
        frame = Frame(parent, kind, name, trips, phase, len(self.frames))
        self.keep.append(frame)
        return frame

    def place(self, at: Frame, phase: str, stack: Any) -> tuple[Frame, str]:
        """The frame and phase of an equation whose name stack, relative to `at`, is `stack`."""
        if not stack:
            return at, phase
        key = (id(at), id(stack), phase)
        if key not in self.stacks:
            self.keep.append(stack)
            self.stacks[key] = self._place(at, phase, stack)
        return self.stacks[key]

    def _place(self, at: Frame, phase: str, stack: Any) -> tuple[Frame, str]:
        names = [s.name for s in stack]
        if "rematted_computation" in names:
            phase = RECOMPUTE
        elif phase == FORWARD and any(type(s).__name__ == "Transform" and s.name == "transpose" for s in stack):
            phase = BACKWARD
        for s in stack:
            if type(s).__name__ == "Transform" or s.name == "rematted_computation" or SILENT.match(s.name):
                continue
            if any(self.marks.get(id(f)) == id(s) for f in at.up()):
                continue  # around a transposed remat a scope stands twice
            key = (id(at), id(s), phase)
            if key not in self.frames:
                self.keep.append(s)
                self.frames[key] = self.child(at, "scope", s.name, phase=phase)
                self.marks[id(self.frames[key])] = id(s)
            at = self.frames[key]
        return at, phase

    def note(self, kind: str, frame: Frame, text: str, status: str = EXACT) -> None:
        self.out.notes.append(Note(kind, frame.scope_path, text))
        order = (EXACT, MODELLED, UNKNOWN)
        self.out.status = max(self.out.status, status, key=order.index)

    # -- programs

    def body(self, jaxpr: Any, inputs: list[Value], used: tuple[bool, ...], at: Frame, phase: str) -> list[Value]:
        """Flattens a (closed) jaxpr on `inputs` into `at`; returns its results (unused ones may be placeholders)."""
        consts, jaxpr = getattr(jaxpr, "consts", ()), dce.opened(jaxpr)
        env: dict[Any, Value] = dict(zip(jaxpr.invars, inputs, strict=True))
        for var, const in zip(jaxpr.constvars, consts, strict=False):
            known = const if getattr(const, "shape", None) == () and not hasattr(const, "aval") else None
            env[var] = self.value(var.aval, "const", literal=known)
        for eqn, mask in dce.live(jaxpr, used, self.live).eqns:
            results = self.equation(eqn, mask, [self.read(env, v) for v in eqn.invars], at, phase)
            env.update(zip(eqn.outvars, results, strict=True))
        return [self.read(env, v) if u else self.value(v.aval) for v, u in zip(jaxpr.outvars, used, strict=True)]

    def equation(self, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str) -> list[Value]:
        frame, phase = self.place(at, phase, eqn.source_info.name_stack.stack)
        name = eqn.primitive.name
        if name == "jit" and at is self.out.root:
            self.sharded(eqn, frame)
        if name in FLOW:
            return FLOW[name](self, eqn, mask, operands, frame, phase)
        if name in dce.CALLS:
            inner = dce.inner(eqn)
            if inner is not None:
                return self.body(inner, operands, mask, self.child(frame, "call", phase=phase), phase)
        return self.op(eqn, operands, frame, phase)

    def op(self, eqn: Any, operands: list[Value], frame: Frame, phase: str) -> list[Value]:
        name, params = eqn.primitive.name, eqn.params
        results = [self.value(v.aval, frame=frame) for v in eqn.outvars]
        if self.axis_sizes:
            params = {**params, "axis_sizes": dict(self.axis_sizes)}
        self.out.ops.append(Op(name, tuple(operands), tuple(results), params, frame, phase, eqn.source_info))
        if name in SHARDED and getattr(params.get("sharding", params.get("dst_sharding")), "num_devices", 1) > 1:
            self.note("sharding", frame, f"{name}: shardings outside shard_map are not followed; counts are of all "
                      "devices together", UNKNOWN)
        if name in HOST:
            self.note("host", frame, f"{name} runs on the host: its time is not modelled")
        elif name not in RULES and name not in FLOW:
            why = UNPRICED.get(name, "add a rule with @costtrace.rule")
            self.note("unknown-primitive", frame, f"no rule for {name!r}: its bytes are counted, its FLOPs are not; {why}",
                      UNKNOWN)
        elif name in RULES and RULES[name].status == MODELLED:
            self.note("modelled", frame, f"{name}: FLOPs by the model in its rule", MODELLED)
        if len(results) == 1 and results[0].shape == () and all(v.literal is not None for v in operands):
            results[0].literal = fold.evaluated(eqn, [v.literal for v in operands])
        return results

    def sharded(self, eqn: Any, frame: Frame) -> None:
        """Says so where jit was given shardings over several devices."""
        given = (*eqn.params.get("in_shardings", ()), *eqn.params.get("out_shardings", ()))
        if any(getattr(s, "num_devices", 1) > 1 for s in given):
            self.note("sharding", frame, "jit's shardings are not followed: counts are of all devices together",
                      UNKNOWN)

    # -- control flow

    def scan(self, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str) -> list[Value]:
        p, closed = eqn.params, eqn.params["jaxpr"]
        (consts, carry), length = dce.scan_counts(p), p["length"]
        start, rows = operands[consts:consts + carry], operands[consts + carry:]
        if length == 0:
            return start + [self.value(v.aval, frame=at) for v in eqn.outvars[carry:]]
        loop = self.child(at, "loop", trips=length, phase=phase)
        inner = dce.opened(closed)
        xs = [self.value(v.aval, edge=Edge("row", x, loop), frame=loop)
              for v, x in zip(inner.invars[consts + carry:], rows, strict=True)]
        state = self.carried(inner.invars[consts:consts + carry], inner.outvars[:carry], start, loop)
        wanted, _ = dce.scan_masks(eqn, mask, self.live)
        ends = self.body(closed, operands[:consts] + state + xs, wanted, loop, phase)
        return (self.finals(loop, start, state, ends[:carry], wanted, eqn.outvars[:carry])
                + [self.value(v.aval, edge=Edge("stack", y, loop), frame=at)
                   for v, y in zip(eqn.outvars[carry:], ends[carry:], strict=True)])

    def carried(self, invars: Any, outvars: Any, start: list[Value], loop: Frame) -> list[Value]:
        """What the body sees of each carry: a carry handed on unchanged is its start value, invariant."""
        return [s if v is o else self.value(v.aval, "carry", frame=loop)
                for v, o, s in zip(invars, outvars, start, strict=True)]

    def finals(self, loop: Frame, start: list[Value], state: list[Value], ends: list[Value], used: tuple[bool, ...],
               outvars: Any) -> list[Value]:
        out = []
        for s, c, e, u, v in zip(start, state, ends, used[:len(start)], outvars, strict=True):
            if c is not s and u:
                self.out.carries.append(Carry(loop, s, c, e))
            out.append(s if c is s else self.value(v.aval, edge=Edge("last", e, loop), frame=loop.parent))
        return out

    def while_(self, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str) -> list[Value]:
        p = eqn.params
        nc, nb = p["cond_nconsts"], p["body_nconsts"]
        start = operands[nc + nb:]
        trips = self.trip_count(p, operands, at)
        test = self.child(at, "loop", trips=trips + 1, phase=phase)
        loop = self.child(at, "loop", trips=trips, phase=phase)
        kept, _ = dce.while_masks(eqn, mask, self.live)
        body = dce.opened(p["body_jaxpr"])
        state = self.carried(body.invars[nb:], body.outvars, start, loop)
        self.body(p["cond_jaxpr"], operands[:nc] + (state if trips else start), (True,), test, phase)
        if trips == 0:
            return start
        ends = self.body(p["body_jaxpr"], operands[nc:nc + nb] + state, kept, loop, phase)
        return self.finals(loop, start, state, ends, kept, eqn.outvars)

    def trip_count(self, params: Mapping[str, Any], operands: list[Value], at: Frame) -> int:
        known = fold.trips(params, [v.literal for v in operands])
        if known is not None:
            return known
        scope = at.scope_path
        for key in (scope, scope or "."):
            if key in self.trips:
                self.trips_used.add(key)
                self.note("assumed-trip", at, f"a loop's trip count was given: {self.trips[key]}", MODELLED)
                return self.trips[key]
        self.note("unknown-trip", at, "a loop's trip count depends on data: one trip is counted; "
                  f"give it with trips={{{scope or '.'!r}: n}}", UNKNOWN)
        return 1

    def cond(self, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str) -> list[Value]:
        arms, which, rest = eqn.params["branches"], operands[0].literal, operands[1:]
        if len(arms) == 1 or which is not None:
            arm = arms[0] if len(arms) == 1 else arms[min(max(int(which), 0), len(arms) - 1)]
            return self.body(arm, rest, mask, self.child(at, "call", phase=phase), phase)
        marks = (len(self.out.ops), len(self.out.carries))
        best: tuple[Any, ...] | None = None
        prices = set()
        for i, arm in enumerate(arms):
            results = self.body(arm, rest, mask, self.child(at, "call", phase=phase), phase)
            ops, carries = self.out.ops[marks[0]:], self.out.carries[marks[1]:]
            del self.out.ops[marks[0]:], self.out.carries[marks[1]:]
            price = _price(ops)
            prices.add(price)
            if best is None or price > best[0]:
                best = (price, i, ops, carries, results)
        assert best is not None
        self.out.ops.extend(best[2])
        self.out.carries.extend(best[3])
        if len(prices) > 1:
            self.note("branch", at, f"a branch depends on data: its dearest of {len(arms)} arms (number {best[1]}) is "
                      "counted", MODELLED)
        read = Op("cond", (operands[0],), (), {}, at, phase, eqn.source_info)
        self.out.ops.append(read)
        return best[4]

    def solve(self, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str) -> list[Value]:
        """custom_linear_solve: the forward solve runs; the other three programs are for its derivatives."""
        lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
        sizes = [getattr(lengths, f) for f in lengths._fields]
        first = sum(sizes[:lengths._fields.index("solve")])
        consts, b = operands[first:first + lengths.solve], operands[sum(sizes):]
        return self.body(jaxprs.solve, consts + b, (True,) * len(eqn.outvars), self.child(at, "call", phase=phase), phase)

    def shard_map(self, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str) -> list[Value]:
        """One device's part: the inner values have local shapes and are parts of the outer ones."""
        frame, inner = self.child(at, "call", phase=phase), dce.opened(eqn.params["jaxpr"])
        outer, self.axis_sizes = self.axis_sizes, {**self.axis_sizes, **dict(eqn.params["mesh"].shape)}
        parts = [self.value(v.aval, edge=Edge("part", x), frame=frame)
                 for v, x in zip(inner.invars, operands, strict=True)]
        results = self.body(eqn.params["jaxpr"], parts, mask, frame, phase)
        self.axis_sizes = outer
        return results

    def pallas(self, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str) -> list[Value]:
        results = self.op(eqn, operands, at, phase)
        self.out.ops[-1].priced, notes = priced_kernel(eqn, kernel_ops)
        for kind, text, status in notes:
            self.note(kind, at, text, status)
        return results


FLOW: dict[str, Callable[..., list[Value]]] = {
    "scan": _Walk.scan, "while": _Walk.while_, "cond": _Walk.cond, "custom_linear_solve": _Walk.solve,
    "shard_map": _Walk.shard_map, "pallas_call": _Walk.pallas,
}  # fmt: skip
"""Primitives with control flow of their own; plain calls are in dce.CALLS."""


def kernel_ops(jaxpr: Any) -> tuple[list[Op], list[Note]]:
    """The flat ops of a kernel's body (one grid step) with what must be said of it."""
    walk = _Walk("kernel", {})
    inputs = [walk.value(v.aval, "input") for v in jaxpr.invars]
    walk.body(jaxpr, inputs, (True,) * len(jaxpr.outvars), walk.out.root, FORWARD)
    return walk.out.ops, walk.out.notes


def _price(ops: list[Op]) -> tuple[int, int]:
    """(FLOPs, unfused bytes) of an arm; the dearest of a branch is chosen by them, in this order."""
    flops = nbytes = 0
    for op in ops:
        rule = RULES.get(op.primitive)
        cost = op.priced.cost if op.priced else rule.formula(op) if rule else None
        flops += cost.flops * op.repeat if cost else 0
        nbytes += op.repeat * (sum(v.nbytes for v in op.inputs if v.kind != "literal") + sum(v.nbytes for v in op.outputs))
    return flops, nbytes


def source_line(op: Op) -> str:
    """'model.py:31 (forward)': the user's line that made an op."""
    from jax.extend import source_info_util

    with contextlib.suppress(AttributeError):
        return source_info_util.summarize(op.source)
    return "?"
