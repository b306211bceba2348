"""What of a program is the same in every call, and the program of a later call, in which that is an argument.

Knows no chip and no price: a Trace in, a Trace out, so that work, bytes and memory of the later call are counted as any
program's are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from costtrace.core import Carry, Edge, Frame, Op, Trace, Value
from costtrace.storage import Storage


def steady(trace: Trace) -> tuple[bool, ...]:
    """For each argument whether it is taken to be the same in every call: the weights, and all but what the stage hands
    on (an argument with a result's shape and dtype) and what counts the steps (numbers and vectors over the batch)."""
    results = {(v.shape, v.dtype) for v in trace.outputs}
    state = [v for v in trace.inputs if not v.weight and (v.shape, v.dtype) in results]
    batch = state[0].shape[0] if state and state[0].shape else 1
    return tuple(bool(v.weight) or (v not in state and v.shape not in ((), (batch,))) for v in trace.inputs)


def unchanging(trace: Trace, same: Sequence[bool]) -> list[Op]:
    """The ops whose results are the same in every call: they depend on arguments that are `same` alone."""
    varies = {v for v, kept in zip(trace.inputs, same, strict=True) if not kept}
    before = -1
    while before != len(varies):
        before = len(varies)
        for op in trace.ops:
            if any(v.behind() in varies for v in op.inputs):
                varies.update(op.outputs)
        varies |= {c.inner for c in trace.carries if c.start.behind() in varies or c.end.behind() in varies}
    return [op for op in trace.ops if op.outputs and not any(v in varies for v in op.outputs)]


def later(trace: Trace, hoisted: Collection[Op]) -> tuple[Trace, int]:
    """(the program of a later call, bytes kept from the first): what the hoisted ops made, as far as it is still read,
    is an argument, a row of it a trip in a loop. Views are not kept: they cost nothing."""
    storage = Storage(trace)
    gone = {op for op in hoisted if not storage.is_view(op)}
    made = {v: op for op in trace.ops for v in op.outputs}
    ops, carries, read = _needed(trace, gone, made)
    kept = {v: _kept(v, made[v], trace.root) for v in made if v in read and made[v] in gone}
    seen = _Seen({v: inside for v, (_, inside) in kept.items()})
    after = [_again(op, seen) for op in trace.ops if op in ops]
    for i, op in enumerate(after):
        op.index = i
    whole = [whole for whole, _ in kept.values()]
    some = [Carry(c.loop, seen(c.start), c.inner, seen(c.end)) for c in trace.carries if c in carries]
    out = replace(trace, ops=after, inputs=[*trace.inputs, *whole], outputs=[seen(v) for v in trace.outputs],
                  carries=some)  # fmt: skip
    return out, sum(v.nbytes for v in whole)


def _needed(trace: Trace, gone: Collection[Op], made: dict[Value, Op]) -> tuple[set[Op], list[Carry], set[Value]]:
    """(ops, carries and values that the results still depend on when the ops that are gone need not run)."""
    inner = {c.inner: c for c in trace.carries}
    ops = {op for op in trace.ops if not op.outputs}
    carries: list[Carry] = []
    read: set[Value] = set()
    todo = [*trace.outputs, *(v for op in ops for v in op.inputs)]
    while todo:
        v = todo.pop()
        if v in read:
            continue
        read.add(v)
        if v.edge is not None:
            todo.append(v.edge.source)
        if v in inner:
            carries.append(inner[v])
            todo += [inner[v].start, inner[v].end]
        op = made.get(v)
        if op is not None and op not in gone and op not in ops:
            ops.add(op)
            todo += op.inputs
    return ops, carries, read


def _kept(v: Value, op: Op, root: Frame) -> tuple[Value, Value]:
    """(the argument that holds all that an op makes, it as it is seen where the op was)."""
    loops = [frame for frame in op.frame.up() if frame.kind == "loop"]
    shape = (*(loop.trips for loop in reversed(loops)), *v.shape)
    whole = at = Value(shape, v.dtype, v.bits, "input", frame=root)
    for loop in reversed(loops):
        at = Value(at.shape[1:], v.dtype, v.bits, edge=Edge("row", at, loop), frame=v.frame)
    return whole, at


class _Seen:
    """Values with the kept ones put in, behind edges too."""

    def __init__(self, put: dict[Value, Value]) -> None:
        self.put = dict(put)

    def __call__(self, v: Value) -> Value:
        if v not in self.put:
            new = v
            if v.edge is not None and (source := self(v.edge.source)) is not v.edge.source:
                new = Value(v.shape, v.dtype, v.bits, v.kind, literal=v.literal, weight=v.weight, name=v.name,
                            edge=Edge(v.edge.kind, source, v.edge.loop), frame=v.frame, donated=v.donated,
                            host=v.host)  # fmt: skip
            self.put[v] = new
        return self.put[v]


def _again(op: Op, seen: _Seen) -> Op:
    out = Op(op.primitive, tuple(map(seen, op.inputs)), op.outputs, op.params, op.frame, op.phase, op.source)
    out.priced = op.priced
    return out
