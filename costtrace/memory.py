"""Peak memory by liveness: how many bytes, at which op, and what is alive there.

In the order of the jaxpr, every result that is not a view is a buffer of its own from its op to its last use. Arguments
and constants live throughout, a donated argument to its last use; results live to the end. A loop is its body plus its
carry, once: the carry lives through the loop, stacked results from its start, what the body makes until its last use in
the trip. An update in place makes no buffer. What lies in the host's memory takes none of the chip's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from costtrace.access import source
from costtrace.core import Frame, Trace, Value
from costtrace.offload import crosses
from costtrace.storage import Storage

ARGUMENTS = "(arguments)"


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest sum of live buffers. `alive`: (label, bytes), largest first, at that op."""

    nbytes: int = 0
    scope: str = ""
    primitive: str = ""
    alive: list[tuple[str, int]] = field(default_factory=list)
    shapes: list[tuple[tuple[int, ...], int, int]] = field(default_factory=list)
    """(shape, bits, how many) of every buffer alive there: what a chip's padded layouts make of them."""
    curve: list[tuple[str, int]] = field(default_factory=list)
    """(scope, the most alive in it) in program order, a loop's body once: consecutive ops of one scope are one step."""
    made: list[tuple[str, int]] = field(default_factory=list)
    """(scope that made it, bytes alive at the peak); ARGUMENTS for what no scope made."""


class _Lives:
    def __init__(self, trace: Trace, storage: Storage) -> None:
        self.trace, self.storage = trace, storage
        self.end = len(trace.ops)
        self.inner = {(c.end, c.loop): c.inner for c in trace.carries}
        self.begins: dict[Frame, int] = {}
        for op in trace.ops:
            at: Frame | None = op.frame
            while at is not None and at not in self.begins:
                if at.kind == "loop":
                    self.begins[at] = op.index
                at = at.parent
        self.birth: dict[Value, int] = {}
        self.death: dict[Value, int] = {}
        self.read: set[tuple[Value, int]] = set()  # (buffer, op that reads it)
        self.run()

    def buffer(self, v: Value) -> Value:
        """The buffer that holds `v`."""
        while True:
            edge = v.edge
            if edge is not None:
                if edge.kind == "stack":
                    return v
                if edge.kind == "last":
                    assert edge.loop is not None
                    carry = self.inner.get((edge.source, edge.loop))
                    if carry is None:
                        return v
                    v = carry
                else:
                    v = edge.source
                continue
            if v in self.storage.same_as_start:
                v = self.storage.carry[v].start
                continue
            op = self.storage.maker.get(v)
            if op is None or crosses(op):
                return v
            if self.storage.through(op, v):
                v = source(op, op.outputs.index(v))
            elif op.index in self.storage.in_place:
                v = op.inputs[0]
            else:
                return v

    def use(self, v: Value, at: int, frame: Frame | None) -> None:
        """`v` is needed at op `at`, and to the end of any loop around it in which it was not made."""
        b = self.buffer(v)
        home = b.frame if b.kind != "input" else None
        homes = set(home.up()) if home is not None else set()
        for f in frame.up() if frame is not None else ():
            if f.kind == "loop" and f not in homes:
                at = max(at, self.storage.ends.get(f, at))
        self.born(b, at)
        self.death[b] = max(self.death.get(b, -1), at)

    def born(self, b: Value, at: int) -> None:
        if b in self.birth:
            return
        op = self.storage.maker.get(b)
        if op is not None:
            self.birth[b] = op.index
        elif b.edge is not None and b.edge.loop is not None:
            self.birth[b] = self.begins.get(b.edge.loop, at)
        elif b.kind == "carry" and b.frame is not None:
            self.birth[b] = self.begins.get(b.frame, at)
        else:
            self.birth[b] = 0

    def run(self) -> None:
        t = self.trace
        for v in t.inputs:
            self.birth[v] = 0
            self.death[v] = self.end if not v.donated else -1
        for op in t.ops:
            if not self.storage.is_view(op):
                for v in op.inputs:
                    if v.kind != "literal":
                        self.use(v, op.index, op.frame)
                        self.read.add((self.buffer(v), op.index))
                for v in op.outputs:
                    if op.index not in self.storage.in_place and not self.storage.through(op, v):
                        self.birth[v] = op.index
                        self.death[v] = max(self.death.get(v, -1), op.index)
            for v in op.inputs:
                edge = v.edge
                if edge is not None and edge.kind == "stack" and edge.loop is not None:
                    self.use(edge.source, self.storage.ends.get(edge.loop, op.index), None)
        for v in t.outputs:
            self.use(v, self.end, None)
            if v.edge is not None and v.edge.kind == "stack" and v.edge.loop is not None:
                self.use(v.edge.source, self.storage.ends.get(v.edge.loop, self.end), None)
        for c in t.carries:
            last = self.storage.ends.get(c.loop)
            if last is None:
                continue
            self.use(c.end, last, None)
            self.use(c.inner, last, None)
            self.use(c.start, self.begins[c.loop], c.loop.parent)
        for c in t.carries:
            start = self.buffer(c.start)
            mine = start in self.storage.maker or start.kind == "carry" or start.edge is not None
            first = self.begins.get(c.loop, -1)
            if mine and self.death.get(start) == first and (start, first) not in self.read:
                self.death[start] -= (
                    1  # an intermediate, or another loop's carry, that only starts the loop becomes its carry
                )
        held = [self.buffer(v) for v in t.outputs]
        for i, v in enumerate(self.storage.again):
            if held.count(self.buffer(v)) < 2:
                continue  # a stacked result and a last carry are two buffers already
            twin = Value(v.shape, v.dtype, v.bits, name=f"result {i} again")
            self.birth[twin], self.death[twin] = self.birth.get(self.buffer(v), 0), self.end


def peak_of(trace: Trace, storage: Storage, top: int = 12) -> Peak:
    """The peak of `trace` and the `top` largest buffers alive there."""
    lives = _Lives(trace, storage)
    change = [0] * (lives.end + 2)
    held = [b for b in lives.birth if b.kind != "literal" and b.nbytes and not b.host and lives.death.get(b, -1) >= 0]
    for b in held:
        change[lives.birth[b]] += b.nbytes
        change[max(lives.death[b], lives.birth[b]) + 1] -= b.nbytes
    now = best = where = 0
    curve: list[tuple[str, int]] = []
    for i in range(lives.end + 1):
        now += change[i]
        if i < lives.end:
            scope = trace.ops[i].scope
            if curve and curve[-1][0] == scope:
                curve[-1] = scope, max(now, curve[-1][1])
            else:
                curve.append((scope, now))
        if now > best:
            best, where = now, i
    alive = sorted(
        ((b.nbytes, _label(b, lives)) for b in held if lives.birth[b] <= where <= lives.death[b]), reverse=True
    )
    op = trace.ops[where] if where < len(trace.ops) else None
    there = Counter((b.shape, b.bits) for b in held if lives.birth[b] <= where <= lives.death[b])
    return Peak(
        best,
        op.scope if op else "",
        op.primitive if op else "results",
        [(n, b) for b, n in alive[:top]],
        [(shape, bits, n) for (shape, bits), n in there.items()],
        curve,
        list(_made(held, where, lives).items()),
    )


def _made(held: list[Value], where: int, lives: _Lives) -> dict[str, int]:
    out: dict[str, int] = {}
    for b in held:
        if lives.birth[b] <= where <= lives.death[b]:
            op = lives.storage.maker.get(b)
            scope = op.scope if op else b.frame.scope_path if b.frame and b.kind != "input" else ARGUMENTS
            out[scope] = out.get(scope, 0) + b.nbytes
    return out


def _label(b: Value, lives: _Lives) -> str:
    if b.kind in ("input", "const"):
        return b.name or b.kind
    if b.kind == "carry" or b.edge is not None:
        scope = b.frame.scope_path if b.frame else ""
        return f"{'carry' if b.kind == 'carry' else 'stacked result'} of a loop in {scope or '.'} {b!r}"
    op = lives.storage.maker.get(b)
    return f"{op.primitive} in {op.scope or '.'} {b!r}" if op else repr(b)
