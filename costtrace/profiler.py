"""Trace -> Profile: the one fold. Every op priced once, its bytes beside it, added up by scope, parameter and line."""

from __future__ import annotations

import contextlib
import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from costtrace import units
from costtrace.core import UNKNOWN, Cost, Frame, Note, Op, Priced, Trace, Value, total
from costtrace.coverage import Counted
from costtrace.errors import UnknownCostError
from costtrace.fusion import Bytes, bytes_of
from costtrace.memory import Peak, peak_of
from costtrace.offload import PLACES, crosses
from costtrace.rules import RULES
from costtrace.rules.table import priced
from costtrace.storage import Storage
from costtrace.summary import Array, Profile, Record, Row, worst
from costtrace.useful import useful

_FREE = Cost()


def profile(
    fn: Callable[..., Any],
    *args: Any,
    jit: Mapping[str, Any] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    weights: int | str | None = None,
    strict: bool = False,
) -> Profile:
    """What one call of `fn` on `args` (pytrees of jax.ShapeDtypeStruct) costs. Nothing is computed or allocated.

    fn: a function; or a module of flax (linen, nnx), equinox or haiku, its constructor or one of its methods, which
    costtrace.module.call.opened makes a function of its weights and `args`.
    jit, dims, trips, weights: see costtrace.trace.trace. strict: raise UnknownCostError where something is not priced.
    With shardings over several devices XLA partitions the program first, and the counts are of one device.
    """
    from costtrace.arguments import filled
    from costtrace.module.call import opened
    from costtrace.trace import trace

    fn, args = opened(fn, filled(args, dims) if dims else args)
    with _no_collection():
        made = trace(fn, *args, jit=jit, trips=trips, weights=weights)
        if any(note.kind == "sharding" for note in made.notes):
            from costtrace import partition

            found = partition.profile(fn, args, jit, weights)
        else:
            found = folded(made)
    if strict:
        refused(found.name, found.status, found.notes)
    return found


def refused(name: str, status: str, notes: Iterable[Note]) -> None:
    """Raises UnknownCostError where a part of the program has no price: what `strict` means."""
    if status == UNKNOWN:
        note = next(n for n in notes if n.kind.startswith("unknown"))
        raise UnknownCostError(f"{name}: at scope {note.scope or '.'}: {note.text}")


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Python's cycle collector off: it would walk the growing program again and again, for nothing."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Prices:
    """What each op costs once, remembered: equal primitives on equal shapes with equal parameters are priced once."""

    def __init__(self) -> None:
        self.memo: dict[Any, Priced] = {}
        self.notes: list[Note] = []

    def __call__(self, op: Op) -> Priced:
        """One execution's cost and status; a rule that cannot know leaves a note."""
        if op.priced is not None:
            return op.priced
        key: Any = (
            op.primitive,
            tuple((v.shape, v.dtype) for v in op.inputs),
            tuple((v.shape, v.dtype) for v in op.outputs),
            op.primitive in PLACES and crosses(op),
            *op.params.items(),
        )
        try:
            found = self.memo.get(key)
        except TypeError:  # a parameter that has no hash
            key = (op.primitive, id(op.params))
            found = self.memo.get(key)
        if found is None:
            found = Priced(_FREE) if op.primitive in QUIET else priced(op)
            self.memo[key] = found
            if found.status == UNKNOWN and op.primitive in RULES:
                self.notes.append(Note("unknown-primitive", op.scope, found.why))
        return found


CLOSED_OVER = 4096
"""Bytes of constants from which a note says so: small tables are no weights that somebody forgot."""
QUIET = ("cond",)
"""What trace.py leaves behind to say that a branch's predicate is read."""


class Sums:
    """Costs added up by key, each distinct (cost, repeat) once."""

    def __init__(self) -> None:
        self.parts: dict[Any, dict[tuple[int, int], list[Any]]] = {}

    def add(self, key: Any, cost: Cost, repeat: int, nbytes: int) -> None:
        into = self.parts.get(key)
        if into is None:
            into = self.parts[key] = {}
        part = into.get((id(cost), repeat))
        if part is None:
            into[id(cost), repeat] = [cost, repeat, 1, nbytes]
        else:
            part[2] += 1
            part[3] += nbytes

    def items(self) -> Iterable[tuple[Any, int, Cost]]:
        """(key, number of ops, their Cost with bytes_unfused)."""
        for key, parts in self.parts.items():
            cost = total(each * (repeat * n) for each, repeat, n, _ in parts.values())
            yield key, sum(p[2] for p in parts.values()), cost.replace(bytes_unfused=sum(p[3] for p in parts.values()))


def keyed(trace: Trace, prices: Prices) -> Iterator[tuple[Op, Priced, tuple[Any, ...]]]:
    """Every op with its price and the key of its Record: (frame of its scope, phase, primitive, dtype, status). An op
    is known as well as its price and the loops around it."""
    around: dict[Frame, str] = {}
    for op in trace.ops:
        price = prices(op)
        if op.frame not in around:
            around[op.frame] = worst(f.status for f in op.frame.up())
        first = op.inputs or op.outputs
        dtype = first[0].dtype if first else ""
        yield op, price, (op.frame.scope, op.phase, op.primitive, dtype, worst((price.status, around[op.frame])))


def counted(trace: Trace) -> Counted:
    """How well a program is known, as its profile has it, without the profile."""
    sums, prices = Sums(), Prices()
    for op, price, key in keyed(trace, prices):
        sums.add(key, price.cost, op.frame.repeat, 0)
    groups = [(key[-1], n, cost) for key, n, cost in sums.items()]
    return Counted(known(trace, prices), groups, trace.notes + prices.notes)


def known(trace: Trace, prices: Prices) -> str:
    """The status of a whole program whose ops were priced."""
    return worst((trace.status, *(UNKNOWN for _ in prices.notes)))


def folded(trace: Trace) -> Profile:
    """The profile of a flat program."""
    storage = Storage(trace)
    moved = bytes_of(trace, storage)
    prices, sums = Prices(), Sums()
    kept, masks = useful(trace)
    masked: dict[Any, int] = defaultdict(int)
    largest: dict[str, Value] = {}
    for op, price, key in keyed(trace, prices):
        if not storage.is_view(op):
            for v in op.outputs:
                have = largest.get(op.scope)
                if have is None or v.nbytes > have.nbytes:
                    largest[op.scope] = v
        sums.add(key, price.cost, op.frame.repeat, moved.unfused[op.index])
        if op.index in kept:
            masked[key] += (price.cost.matmul_flops - kept[op.index]) * op.repeat
    records = [Record.of(key[0].scope_path, *key[1:], n, masked[key], cost) for key, n, cost in sums.items()]
    by_scope, instances = _scopes(trace, moved, records)
    notes = trace.notes + prices.notes + masks
    closed = sum(v.nbytes for v in trace.constants)
    if closed >= CLOSED_OVER:
        notes.append(
            Note(
                "constants",
                "",
                f"{units.text(closed, 'B')} of arrays that the function closes over are its constants: read, but "
                "neither weights nor parameters: give them as an argument",
            )
        )
    if len(by_scope) == 1:
        notes.append(
            Note(
                "no-scopes",
                "",
                "no jax.named_scope in this program: scoped bytes equal fused bytes, "
                "so pessimistic times use unfused bytes",
            )
        )
    return Profile(
        trace.name,
        by_scope[""],
        known(trace, prices),
        notes,
        sum(v.size for v in trace.inputs if v.weight is not None),
        peak_of(trace, storage),
        records,
        by_scope,
        instances,
        _weights(trace, storage, prices, moved),
        by_scope[""].flops - sum(masked.values()),
        {scope: Array(v.shape, v.dtype, v.nbytes) for scope, v in largest.items()},
        moved.traffic,
        lambda: _lines(trace, prices, moved.unfused),
    )


def _lines(trace: Trace, prices: Prices, unfused: list[int]) -> dict[str, Cost]:
    from costtrace.lines import line_of

    sums = Sums()
    for op in trace.ops:
        sums.add(line_of(op.source), prices(op).cost, op.repeat, unfused[op.index])
    return {key: cost for key, _, cost in sums.items()}


def _prefixes(path: str) -> list[str]:
    names = path.split("/") if path else []
    return ["", *("/".join(names[: i + 1]) for i in range(len(names)))]


def _scopes(trace: Trace, moved: Any, records: list[Record]) -> tuple[dict[str, Cost], dict[str, int]]:
    own: dict[str, list[Cost]] = defaultdict(list)
    for r in records:
        own[r.scope].append(r.cost)
    under: dict[str, list[Cost]] = {"": []}
    for scope, costs in own.items():
        cost = total(costs)
        for path in _prefixes(scope):
            under.setdefault(path, []).append(cost)
    counts = {path: total(costs) for path, costs in under.items()}
    fused: dict[str, int] = defaultdict(int)
    scoped: dict[str, int] = defaultdict(int)
    instances: dict[str, int] = defaultdict(int)
    for frame, n in moved.fused.items():
        fused[frame.scope_path] += n
    frames = dict.fromkeys(op.frame for op in trace.ops)
    seen = dict.fromkeys(f for frame in frames for f in frame.up() if f.scope is f)
    for f in seen:
        instances[f.scope_path] += f.repeat
    for frame, n in moved.own.items():
        for path in _prefixes(frame.scope_path):
            scoped[path] += n
    return (
        {
            path: c.replace(bytes_fused=fused[path], bytes_scoped=scoped[path], weight_bytes=moved.weights.get(path, 0))
            for path, c in counts.items()
        },
        dict(instances),
    )


CASTS = ("convert_element_type", "reduce_precision", "copy")


def _weights(trace: Trace, storage: Storage, prices: Prices, moved: Bytes) -> dict[str, Cost]:
    """Ops that read a parameter directly or through views, casts and scan slices, by the parameter's path."""
    if not any(v.weight for v in trace.inputs):
        return {}
    carries: dict[Any, frozenset[str]] = {v: frozenset([v.weight]) for v in trace.inputs if v.weight}
    sums, nothing = Sums(), frozenset[str]()

    def origin(v: Any) -> frozenset[str]:
        return carries.get(v.behind("row", "part"), nothing)

    for op in trace.ops:
        read = nothing
        for v in op.inputs:
            found = origin(v)
            if found:
                read = read | found
        if not read:
            continue
        if storage.is_view(op) or op.primitive in CASTS or op.primitive == "transpose":
            for v in op.outputs:
                carries[v] = read
        sums.add(read, prices(op).cost, op.repeat, moved.unfused[op.index])
    parts: dict[str, list[Cost]] = defaultdict(list)
    for read, _, cost in sums.items():
        for path in sorted({p for leaf in read for p in _ancestors(leaf)}):
            parts[path].append(cost)
    for leaf, nbytes in moved.parameters.items():
        for path in _ancestors(leaf):
            parts[path].append(Cost(weight_bytes=nbytes))
    return {path: total(costs) for path, costs in parts.items()}


def _ancestors(leaf: str) -> list[str]:
    """'layers[0]/kernel' -> itself, 'layers[0]', 'layers'."""
    out = [leaf]
    for i in range(len(leaf) - 1, 0, -1):
        if leaf[i] in "/[":
            out.append(leaf[:i])
    return out


__all__ = ["Peak", "Profile", "Row", "folded", "profile"]
