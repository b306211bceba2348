"""Bytes across an edge: one definition, cut at three depths (primitive, leaf scope, any scope or the whole program).

Of a set of ops, what enters from outside is read once and what leaves is written once; views move nothing. Every read
of a root by an op is an event between two places of the frame tree, the reader's and the root's: the scopes on the
reader's side of their meeting point read it, those on the root's side write it. Linear in equations times scope depth.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from costtrace.access import PARTS, TOUCHES, UPDATES, VIEWS, touched, updated
from costtrace.core import INPUTS, Frame, Op, Trace, Value
from costtrace.region import FULL, Region, Some, of_axes, volume
from costtrace.rules import RULES
from costtrace.storage import Piece, Storage

Key = tuple[Value, tuple[Frame, ...]]
Touches = dict[Key, list[Region] | None]
Side = dict[Frame, Touches]


@dataclass(slots=True)
class Bytes:
    """Bytes of one call. fused: of each scope frame and the root, summed over its instances. own: each scope's ops
    outside its child scopes as one kernel (what `scoped` adds up). unfused: of each op, all its executions."""

    fused: dict[Frame, int]
    own: dict[Frame, int]
    unfused: list[int]
    weights: dict[str, int]
    """Parameter bytes read under each scope path and its prefixes ("" is the program), each byte once."""
    parameters: dict[str, int]
    """Bytes read of each parameter, by its path."""
    traffic: dict[tuple[str, str], int]
    """{(from, to): bytes that the scope `to` reads of what the scope `from` made}; from is INPUTS for arguments."""


def bytes_of(trace: Trace, storage: Storage) -> Bytes:
    """Every byte count of `trace`."""
    return _Fold(trace, storage).result()


@dataclass(frozen=True, slots=True)
class Boundary:
    """Bytes across the edge of one scope's ops outside its child scopes as one kernel, all instances: all of them, and
    those of some arrays, read and written."""

    nbytes: int
    read: int
    written: int


def boundaries_of(trace: Trace, storage: Storage, wanted: Callable[[Value], bool]) -> dict[Frame, Boundary]:
    """The edge of each scope frame that has ops of its own; `wanted` says which arrays' bytes are told apart."""
    fold = _Fold(trace, storage)
    own = fold.result().own
    reads, writes = ({f: {key: regions for key, regions in touches.items() if wanted(key[0])}
                      for f, touches in side.items()} for side in (fold.own_reads, fold.own_writes))  # fmt: skip
    return {f: Boundary(n, _inside(f, reads), _outside(writes.get(f, {}))) for f, n in own.items()}


class _Fold:
    def __init__(self, trace: Trace, storage: Storage) -> None:
        self.trace, self.storage = trace, storage
        self.reads: Side = defaultdict(dict)
        self.writes: Side = defaultdict(dict)
        self.own_reads: Side = defaultdict(dict)
        self.own_writes: Side = defaultdict(dict)
        self.weights: dict[str, Touches] = defaultdict(dict)
        self.asked: dict[Value, list[Region] | None] = {}
        self.paths: dict[tuple[Frame | None, Frame | None], tuple[list[Frame], list[Frame]]] = {}
        self.carried: set[tuple[Value, Frame | None]] = set()
        self.unfused = [0] * len(trace.ops)

    def result(self) -> Bytes:
        for v in dict.fromkeys(self.trace.outputs):
            if v.kind != "input" or v.edge is not None:
                self.read(v, FULL, None)
        for c in self.trace.carries:
            for p in self.storage.pieces(c.end):
                self.ask(p.root, FULL)
        for op in reversed(self.trace.ops):
            self.op(op)
        for v in self.storage.again:
            self.again(v)
        frames = dict.fromkeys([*self.reads, *self.writes, self.trace.root])
        own = dict.fromkeys([*self.own_reads, *self.own_writes])
        return Bytes(
            {f: _inside(f, self.reads) + _outside(self.writes.get(f, {})) for f in frames},
            {f: _inside(f, self.own_reads) + _outside(self.own_writes.get(f, {})) for f in own},
            self.unfused,
            *self.weight_bytes(),
            self.traffic(),
        )

    # -- events

    def op(self, op: Op) -> None:
        if op.outputs and not any(v.size for v in op.outputs) and op.inputs:
            return  # nothing comes out, so nothing goes in
        if self.needless(op):
            self.unfused[op.index] += op.repeat * self.kernel(op)
            return
        if (
            op.primitive not in TOUCHES
            and op.primitive not in UPDATES
            and op.priced is None
            and all(not self.asked.get(v) for v in op.outputs)
            and not self.storage.is_view(op)
        ):
            self.plain(op)
            return
        data = op.inputs
        if self.storage.is_view(op):
            data = tuple(v for v in op.inputs[1:] if v.shape == ()) if op.primitive == "dynamic_slice" else ()
            regions: list[list[Region | bool]] = [[FULL] * len(data)]
            self.unfused[op.index] = op.repeat * sum(v.nbytes for v in data if v.kind != "literal")
        else:
            regions = self.wanted(op)
            self.unfused[op.index] = op.repeat * self.kernel(op)
        for each in regions:
            for v, region in zip(data, each, strict=True):
                if region is not False:
                    self.read(v, region, op.frame)  # type: ignore[arg-type]

    def needless(self, op: Op) -> bool:
        """Nothing of what the op makes is read: an update in place overwrote it all."""
        if not op.outputs or any(v in self.asked for v in op.outputs) or self.storage.is_view(op):
            return False
        rule = RULES.get(op.primitive)
        return rule is not None and not rule.owner.endswith((".effect", ".pallas"))

    def plain(self, op: Op) -> None:
        """An op that needs all of its operands: the common case, in one pass."""
        seen: set[Value] = set()
        nbytes = sum([v.nbytes for v in op.outputs])
        for v in op.inputs:
            if v.kind == "literal" or not v.size:
                continue
            pieces = self.storage.pieces(v)
            if len(pieces) == 1 and pieces[0].region is FULL and not pieces[0].lead:
                root = pieces[0].root
                if root not in seen and root.kind != "literal":
                    seen.add(root)
                    nbytes += root.nbytes
                self.read(v, FULL, op.frame)
            else:
                nbytes = -1
                break
        if nbytes < 0:
            nbytes = self.kernel(op)
            for v in op.inputs:
                self.read(v, FULL, op.frame)
        self.unfused[op.index] = op.frame.repeat * nbytes

    def wanted(self, op: Op) -> list[list[Region | bool]]:
        """The regions of the operands, one list for each separate region asked of the result."""
        if op.index in self.storage.in_place:
            return (
                [[False, *([FULL] * (len(op.inputs) - 1))]]
                if op.primitive in ("scatter", "dynamic_update_slice")
                else [[Some(updated(op), hash((id(op), "seen"))), *([FULL] * (len(op.inputs) - 1))]]
            )
        if op.primitive in PARTS:
            return self.parts(op, [self.asked.get(v) or [FULL] for v in op.outputs])
        asked = [self.asked.get(v, []) for v in op.outputs]
        if len(asked) == 1 and asked[0]:
            regions = asked[0]
            if volume(op.outputs[0].shape, regions) < op.outputs[0].size:
                return [touched(op, [r]) for r in regions]
        return [touched(op, [FULL] * len(op.outputs))]

    def parts(self, op: Op, asked: list[list[Region]]) -> list[list[Region | bool]]:
        """The regions of the operand that a split is asked for, part by part; what nobody reads is not made."""
        view = VIEWS[op.primitive]
        return [[view(op, k, r)] for k, v in enumerate(op.outputs) if v in self.asked for r in asked[k]]

    def kernel(self, op: Op) -> int:
        """Bytes of one execution as a kernel of its own: a distinct operand once, the results in full."""
        seen: dict[Key, list[Region] | None] = {}
        in_place, made = op.index in self.storage.in_place, op.outputs
        if op.primitive in PARTS:
            every, made = self.parts(op, [[FULL] for _ in made]), tuple(v for v in made if v in self.asked)
        else:
            every = [self.wanted(op)[0] if in_place else touched(op, [FULL] * len(made))]
        for v, region in ((v, region) for regions in every for v, region in zip(op.inputs, regions, strict=True)):
            if region is not False:
                for p in self.storage.pieces(v, region):  # type: ignore[arg-type]
                    if p.root.kind != "literal" and p.root.size:
                        _add(seen, p, op.frame.repeat)
        inside = _loops(op.frame)
        read = sum(
            _nbytes(root, volume(_shape(root, lead), r, inside, op.frame.repeat)) for (root, lead), r in seen.items()
        )
        if in_place:
            return read + _nbytes(op.outputs[0], updated(op))
        least = read + sum(v.nbytes for v in made)
        return max(least, op.priced.bytes_unfused or 0) if op.priced is not None else least

    def read(self, v: Value, region: Region, reader: Frame | None) -> None:
        for p in self.storage.pieces(v, region):
            root = p.root
            if root.kind == "literal" or not root.size:
                continue
            self.record(p, reader)
            if root.kind == "carry" and reader is not None:
                self.carry(root, reader)

    def record(self, p: Piece, reader: Frame | None, above: Frame | None = None) -> None:
        """One event. `above`: only scopes that contain this loop read (the start value of its carry)."""
        root = p.root
        at = None if root.kind in ("input", "const") else root.frame
        self.ask(root, p.region if not p.lead else _without(p))
        near, far = self.path(reader, at)
        repeat = reader.repeat if reader is not None else 1
        holders = set(above.up()) if above is not None else None
        for f in near:
            if holders is None or f in holders:
                _add(self.reads[f], p, repeat)
        for f in far:
            _add(self.writes[f], p, repeat)
        mine, theirs = reader.scope if reader else None, at.scope if at else None
        if mine is not theirs:
            if mine is not None and (above is None or mine is above.scope):
                _add(self.own_reads[mine], p, repeat)
            if theirs is not None and root.kind != "carry":
                _add(self.own_writes[theirs], p, repeat)
        if root.weight is not None and reader is not None:
            _add(self.weights[reader.scope_path], p, repeat)

    def carry(self, inner: Value, reader: Frame) -> None:
        """A carry that is read: its start is read by the scopes around the loop, its end written for the next trip."""
        if (inner, reader.scope) in self.carried:
            return
        self.carried.add((inner, reader.scope))
        c = self.storage.carry.get(inner)
        if c is None:
            return
        part = Some(c.end.size, id(c.end), fixed=True) if c.end.size < c.start.size else FULL  # under shard_map
        for p in self.storage.pieces(c.start, part):
            if p.root.kind != "literal" and p.root.size:
                self.record(p, reader, above=c.loop)
                if p.root.kind == "carry":
                    self.carry(p.root, reader)
        for p in self.storage.pieces(c.end):
            if p.root.kind == "carry" and p.root is not inner:
                self.carry(p.root, reader)
            elif p.root.kind == "result" and p.root.frame is not None:
                writer = p.root.frame
                handed = _but_last(p, c.loop)
                for f in self.path(c.loop, writer)[1]:
                    _add(self.writes[f], handed, 1)
                if writer.scope is not reader.scope or writer.scope is not c.loop.scope:
                    _add(self.own_writes[writer.scope], handed, 1)

    def again(self, v: Value) -> None:
        """A result whose array is another result already: its maker writes it once more, after the loops around it."""
        p = self.storage.pieces(v)[0]
        at = p.lead[0].parent if p.lead else p.root.frame
        twin = Piece(Value(v.shape, v.dtype, v.bits, frame=at), FULL)
        for f in at.up() if at is not None else ():
            if f.scope is f:
                _add(self.writes[f], twin, 1)
        _add(self.own_writes[(at or self.trace.root).scope], twin, 1)
        maker = self.storage.maker.get(p.root)
        if maker is not None:
            self.unfused[maker.index] += v.nbytes

    def ask(self, root: Value, region: Region) -> None:
        if region is FULL:
            self.asked[root] = None
            return
        regions = self.asked.setdefault(root, [])
        if regions is not None and region not in regions:
            regions.append(region)
            if len(regions) > 64:
                self.asked[root] = None

    def path(self, reader: Frame | None, at: Frame | None) -> tuple[list[Frame], list[Frame]]:
        """The scope frames on either side of the meeting point, which itself holds both."""
        key = (reader, at)
        if key not in self.paths:
            near = list(reader.up()) if reader else []
            far = list(at.up()) if at else []
            shared = set(near) & set(far)
            self.paths[key] = (
                [f for f in near if f not in shared and f.scope is f],
                [f for f in far if f not in shared and f.scope is f],
            )
        return self.paths[key]

    def traffic(self) -> dict[tuple[str, str], int]:
        out: dict[tuple[str, str], int] = defaultdict(int)
        for frame, touches in self.own_reads.items():
            inside = _loops(frame)
            for (root, lead), regions in touches.items():
                nbytes = frame.repeat * _nbytes(root, volume(_shape(root, lead), regions, inside, frame.repeat))
                for made, share in self.storage.made(root, nbytes):
                    out[made.scope_path if made else INPUTS, frame.scope_path] += share
        return dict(out)

    def weight_bytes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Parameter bytes by scope path, and by parameter."""
        total: dict[str, Touches] = {"": {}}
        for path, touches in self.weights.items():
            names = path.split("/") if path else []
            for depth in range(len(names) + 1):
                into = total.setdefault("/".join(names[:depth]), {})
                for key, regions in touches.items():
                    _merge(into, key, regions)
        sizes = {path: {key: _nbytes(key[0], volume(_shape(*key), r)) for key, r in touches.items()}
                 for path, touches in total.items()}  # fmt: skip
        parameters: dict[str, int] = defaultdict(int)
        for (root, _), n in sizes[""].items():
            parameters[root.weight or ""] += n
        return {path: sum(each.values()) for path, each in sizes.items()}, dict(parameters)


def _but_last(p: Piece, loop: Frame) -> Piece:
    """What every trip but the last hands on."""
    if p.lead or isinstance(p.region, Some):
        return p
    return Piece(p.root, ((0, loop.trips - 1), *(p.region or (None,) * len(p.root.shape))), (loop,))


def _without(p: Piece) -> Region:
    """A piece's region in the root's own axes, its lead axes dropped."""
    if p.region is FULL or isinstance(p.region, Some):
        return p.region
    rest = p.region[len(p.lead) :]
    return of_axes(rest)


def _add(touches: Touches, p: Piece, repeat: int) -> None:
    region = p.region
    if isinstance(region, Some):
        region = Some(region.count, region.token, max(repeat, region.repeat), region.fixed)
    _merge(touches, (p.root, p.lead), None if region is FULL else [region])


def _merge(touches: Touches, key: Key, regions: list[Region] | None) -> None:
    if regions is None:
        touches[key] = None
        return
    have = touches.setdefault(key, [])
    if have is not None:
        have.extend(r for r in regions if r not in have)


def _shape(root: Value, lead: Iterable[Frame]) -> tuple[int, ...]:
    return (*(f.trips for f in lead), *root.shape)


def _nbytes(root: Value, count: int) -> int:
    return -(-count * root.bits // 8)


def _loops(frame: Frame) -> frozenset[int]:
    return frozenset(id(f) for f in frame.up() if f.kind == "loop")


def _inside(f: Frame, side: Side) -> int:
    """Bytes that all instances of `f` read."""
    touches = side.get(f)
    if not touches:
        return 0
    around = set(f.up())
    inside = _loops(f)
    total = 0
    for (root, lead), regions in touches.items():
        count = _nbytes(root, volume(_shape(root, lead), regions, inside, f.repeat))
        if root.frame is not None and root.kind == "result":  # made anew in each trip of a loop that f runs through
            count *= math.prod(
                x.trips for x in root.frame.up() if x.kind == "loop" and x not in around and x not in lead
            )
        total += count
    return f.repeat * total


def _outside(touches: Touches) -> int:
    """Bytes written for others: of each root the most that one kind of reader asks for, on all its executions."""
    most: dict[Value, int] = {}
    for (root, lead), regions in touches.items():
        frame = root.frame
        runs = (frame.repeat if frame else 1) // math.prod(loop.trips for loop in lead)
        inside = _loops(frame) if frame else frozenset()
        count = runs * _nbytes(root, volume(_shape(root, lead), regions, inside, frame.repeat if frame else 1))
        most[root] = max(most.get(root, 0), count)
    return sum(most.values())


__all__ = ["Boundary", "Bytes", "boundaries_of", "bytes_of"]
