"""Peak memory, slowly: each buffer with its first and last moment, then the largest sum. Shares no code with costtrace.

A moment is one equation, in the jaxpr's order; loops are gone through once. A view's buffer is its source's, but where
the view is a result and no buffer of its own is that result already. Arguments live throughout, results to the end; a
loop's carry and stacked rows live all through the loop, and so does whatever the body reads from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
from jax._src.interpreters.partial_eval import dce_jaxpr
from needs import bits, scan_counts

VIEWS = ("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "slice", "split", "unstack", "dynamic_slice",
         "bitcast_convert_type", "stop_gradient")  # fmt: skip
CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


@dataclass(eq=False)
class Buffer:
    nbytes: int
    born: int
    last: int = -1
    readers: set[str] = field(default_factory=set)
    """The primitives that read it; "result" where it is one."""
    source: Buffer | None = None
    """Of a transpose, what it is a transpose of."""


@dataclass(frozen=True, eq=False)
class Ref:
    """A value: the buffer it lies in, all of it or a part, and the moment when it was last seen through a view."""

    buffer: Buffer
    whole: bool
    seen: int


Held = Ref | None
"""None: written in the program."""


@dataclass
class _Clock:
    now: int = 0
    doubt: bool = False
    """A view is a result and is read: from its source or from the copy?"""
    buffers: list[Buffer] = field(default_factory=list)

    def make(self, aval: Any) -> Ref:
        self.buffers.append(Buffer(-(-aval.size * bits(aval.dtype) // 8), self.now, self.now))
        return Ref(self.buffers[-1], True, self.now)

    def read(self, ref: Held, by: str) -> None:
        if ref is not None:
            ref.buffer.last = max(ref.buffer.last, self.now)
            ref.buffer.readers.add(by)

    def run(self, closed: Any, args: list[Held]) -> list[Held]:
        jaxpr = getattr(closed, "jaxpr", closed)
        env = dict(zip(jaxpr.invars, args, strict=True))
        env |= {v: self.make(v.aval) for v in jaxpr.constvars}
        for eqn in jaxpr.eqns:
            ins = [None if hasattr(v, "val") else env[v] for v in eqn.invars]
            env.update(zip(eqn.outvars, self.step(eqn, ins), strict=True))
        return [None if hasattr(v, "val") else env[v] for v in jaxpr.outvars]

    def step(self, eqn: Any, ins: list[Held]) -> list[Held]:
        name, p = eqn.primitive.name, eqn.params
        if name == "scan":
            return self.scan(eqn, ins)
        if name == "cond":
            self.read(ins[0], name)
            return self.run(max(p["branches"], key=lambda b: len(b.jaxpr.eqns)), ins[1:])
        body = next((p[key] for key in CALLS if key in p), None)
        if body is not None:
            return self.run(body, ins)
        self.now += 1
        if name in VIEWS:
            for ref in ins[1:]:
                self.read(ref, name)
            return [self.seen(ins[0], eqn.invars[0].aval.size == v.aval.size) for v in eqn.outvars]
        for ref in ins:
            self.read(ref, name)
        outs = [self.make(v.aval) for v in eqn.outvars]
        if name == "transpose" and ins[0] is not None:
            outs[0].buffer.source = ins[0].buffer
        return list(outs)

    def seen(self, ref: Held, whole: bool) -> Held:
        return ref and Ref(ref.buffer, ref.whole and whole, self.now)

    def scan(self, eqn: Any, ins: list[Held]) -> list[Held]:
        p = eqn.params
        nc, nk = scan_counts(p)
        for ref in ins[nc : nc + nk]:  # the start is handed over to the carry
            self.read(ref, "carry")
        self.now += 1
        first, before = self.now, len(self.buffers)
        carry = [self.make(v.aval) for v in eqn.outvars[:nk]]
        stacks = [self.make(v.aval) for v in eqn.outvars[nk:]]
        rows = [self.seen(ref, False) for ref in ins[nc + nk :]]
        ends = self.run(p["jaxpr"], [*ins[:nc], *carry, *rows])
        for ref in [*carry, *stacks, *ends]:
            self.read(ref, "loop")
        for b in self.buffers[:before]:
            if b.last >= first:
                b.last = self.now
        return [*carry, *stacks]

    def results(self, refs: list[Held], avals: list[Any], also_read: list[bool], given: list[Ref]) -> None:
        """Makes every result live to the end, and a buffer for each view that must be written out."""
        end, taken = self.now + 1, set[int]()
        arguments = {id(g.buffer) for g in given}
        for ref, aval, read in zip(refs, avals, also_read, strict=True):
            if ref is not None and any(ref is g for g in given):
                continue
            if ref is None or not ref.whole or id(ref.buffer) in arguments | taken:
                again = ref is not None and ref.whole and id(ref.buffer) in taken
                self.now = end if ref is None else ref.buffer.born if again else ref.seen
                self.doubt |= not again and read
                self.read(ref, "copy")
                ref = self.make(aval)
            taken.add(id(ref.buffer))
            self.now = end
            self.read(ref, "result")
        for g in given:
            self.read(g, "argument")


def peak(fn: Callable[..., Any], args: tuple[Any, ...]) -> int | None:
    """Bytes alive at the worst moment of one call; None where the definition leaves a choice."""
    closed = jax.make_jaxpr(fn)(*args)
    jaxpr, used = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
    clock = _Clock()
    given = [clock.make(v.aval) for v in closed.jaxpr.invars]
    results = clock.run(jaxpr, [b for b, u in zip(given, used, strict=True) if u])
    read = {id(v) for eqn in jaxpr.eqns for v in eqn.invars}
    clock.results(results, [v.aval for v in jaxpr.outvars], [id(v) in read for v in jaxpr.outvars], given)
    if clock.doubt:
        return None
    for b in reversed(clock.buffers):  # transposes that only dots read are part of the dot
        if b.source is not None and b.readers <= {"dot_general"} and b.readers:
            b.source.last = max(b.source.last, b.last)
            b.source.readers.add("dot_general")
            b.nbytes = 0
    moments = sorted({b.born for b in clock.buffers})
    return max(sum(b.nbytes for b in clock.buffers if b.born <= t <= b.last) for t in moments) if moments else 0
