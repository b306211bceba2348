"""A jaxpr flattened into Ops: values, frames, names, calls. Loops and branches are in flow.py."""

from __future__ import annotations

import re
from typing import Any

from costtrace import dce, flow, fold, offload
from costtrace.core import BACKWARD, EXACT, FORWARD, MODELLED, RECOMPUTE, UNKNOWN, Frame, Note, Op, Trace, Value
from costtrace.rules import FLOW as PROGRAMS
from costtrace.rules import RULES, UNPRICED

HOST = ("pure_callback", "io_callback", "buffer_callback", "debug_callback", "debug_print", "infeed", "outfeed")
SHARDED = ("sharding_constraint", "reshard")
SILENT = re.compile(r"^[\w. ]*(,[\w. ]*)*->[\w. ]*$|^checkpoint$")
"""Scopes that JAX opens itself: einsum's patterns, remat's name."""


_WIDTH = re.compile(r"^(?:b?float|u?int|complex)(\d+)")


def _width(dtype: Any) -> tuple[str, int]:
    """(name, true bits of an element): int4 is 4, bool is 8, a typed key what its words are."""
    name = str(dtype)
    found = _WIDTH.match(name)
    if name == "float0":
        return name, 0
    return name, int(found.group(1)) if found else 8 * getattr(dtype, "itemsize", 1)


def _resharded(name: str, to: Any, value: Value) -> bool:
    """False where nothing can move: a single device, a scalar, and the reshard that jax writes behind a shard_map over
    a mesh whose axes are the compiler's own (Auto), where it says nothing."""
    if getattr(to, "num_devices", 1) <= 1 or not value.shape:
        return False
    kinds = getattr(getattr(to, "mesh", None), "axis_types", None)
    return name != "reshard" or not kinds or any(getattr(k, "name", "") != "Auto" for k in kinds)


class Walk:
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
        host = "Host" in str(getattr(inner, "memory_space", ""))
        return Value(tuple(inner.shape), *self.widths[dtype], kind, host=host, **more)

    def read(self, env: dict[Any, Value], var: Any) -> Value:
        if not hasattr(var, "val"):
            return env[var] if var in env else self.value(var.aval)  # dead: a live call does not read it
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
                inner = at
                for name in filter(None, s.name.split("/")):  # "layer/mlp" is mlp in layer, as two scopes are
                    inner = self.child(inner, "scope", name, phase=phase)
                self.frames[key] = inner
                if inner is not at:
                    self.marks[id(inner)] = id(s)
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
            self.out.constants[env[var]] = const
        return self.equations(jaxpr, env, used, at, phase)

    def equations(
        self, jaxpr: Any, env: dict[Any, Value], used: tuple[bool, ...], at: Frame, phase: str
    ) -> list[Value]:
        for eqn, mask in dce.live(jaxpr, used, self.live).eqns:
            results = self.equation(eqn, mask, [self.read(env, v) for v in eqn.invars], at, phase)
            env.update(zip(eqn.outvars, results, strict=True))
        return [self.read(env, v) if u else self.value(v.aval) for v, u in zip(jaxpr.outvars, used, strict=True)]

    def equation(self, eqn: Any, mask: tuple[bool, ...], operands: list[Value], at: Frame, phase: str) -> list[Value]:
        frame, phase = self.place(at, phase, eqn.source_info.name_stack.stack)
        name = eqn.primitive.name
        if name == "jit" and at is self.out.root:
            self.sharded(eqn, frame)
        if name in flow.FLOW:
            return flow.FLOW[name](self, eqn, mask, operands, frame, phase)
        inner = dce.inner(eqn)
        if inner is not None:
            outs = self.body(inner, operands, dce.results(inner, mask), self.child(frame, "call", phase=phase), phase)
            return outs if len(outs) == len(eqn.outvars) else operands[: len(eqn.outvars)]
        return self.op(eqn, operands, frame, phase)

    def op(self, eqn: Any, operands: list[Value], frame: Frame, phase: str) -> list[Value]:
        name, params = eqn.primitive.name, eqn.params
        results = [self.value(v.aval, frame=frame) for v in eqn.outvars]
        if name in offload.PLACES and offload.fetches(params):
            self.fetched(operands[0], frame)
        if self.axis_sizes:
            params = {**params, "axis_sizes": dict(self.axis_sizes)}
        self.out.ops.append(Op(name, tuple(operands), tuple(results), params, frame, phase, eqn.source_info))
        if name in SHARDED and _resharded(name, params.get("sharding", params.get("dst_sharding")), results[0]):
            self.note(
                "sharding",
                frame,
                f"{name}: shardings outside shard_map are not followed; counts are of all devices together",
                UNKNOWN,
            )
        if name in HOST:
            self.note("host", frame, f"{name} runs on the host: its time is not modelled")
        elif name not in RULES and (name not in flow.FLOW or name in UNPRICED):
            why = UNPRICED.get(name) or PROGRAMS.get(name) or "add a rule with @costtrace.rule"
            self.note(
                "unknown-primitive",
                frame,
                f"no rule for {name!r}: its bytes are counted, its FLOPs are not; {why}",
                UNKNOWN,
            )
        elif name in RULES and RULES[name].status == MODELLED:
            self.note("modelled", frame, f"{name}: FLOPs by the model in its rule", MODELLED)
        if len(results) == 1 and (operands or name == "iota"):
            known = [v.literal if v.literal is not None else v.index for v in operands]
            if any(n is None for n in known):
                pass
            elif results[0].shape == ():
                results[0].literal = fold.evaluated(eqn, known)
            else:
                results[0].index = fold.vector(eqn, known)
        return results

    def fetched(self, v: Value, frame: Frame) -> None:
        """An argument that the program itself brings to the device lies in the host's memory."""
        whole = offload.whole(v)
        if whole.kind == "input" and not whole.host:
            whole.host = True
            told = f"{whole.name or 'an argument'} lies in the host's memory: the program brings it to the device"
            self.note("offload", frame, told)

    def sharded(self, eqn: Any, frame: Frame) -> None:
        """Says so where jit was given shardings over several devices."""
        given = (*eqn.params.get("in_shardings", ()), *eqn.params.get("out_shardings", ()))
        if any(getattr(s, "num_devices", 1) > 1 for s in given):
            self.note(
                "sharding", frame, "jit's shardings are not followed: counts are of all devices together", UNKNOWN
            )
