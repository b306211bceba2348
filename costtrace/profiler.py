"""Trace -> Profile: the one fold. A Profile holds no jax and no arrays; it saves to JSON and loads without jax."""

from __future__ import annotations

import contextlib
import gc
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from costtrace.core import EXACT, MODELLED, UNKNOWN, Cost, Note, Op, Priced, Trace
from costtrace.errors import FormatError, UnknownCostError
from costtrace.fusion import bytes_of
from costtrace.memory import Peak, peak_of
from costtrace.rules import RULES
from costtrace.rules.table import priced
from costtrace.storage import Storage

SCHEMA = "costtrace.profile/1"
BY = ("scope", "primitive", "dtype", "phase", "weight", "line", "layer")
ORDER = (EXACT, MODELLED, UNKNOWN)
_FREE = Cost()


def worst(statuses: Iterable[str]) -> str:
    """The least certain of some statuses."""
    return max(statuses, key=ORDER.index, default=EXACT)


@dataclass(frozen=True, slots=True)
class Record:
    """All ops of one scope, phase, primitive and operand dtype, added up over their executions."""

    scope: str
    phase: str
    primitive: str
    dtype: str
    status: str
    ops: int
    cost: Cost

    @classmethod
    def of(cls, *fields: Any) -> Record:
        """The record with these fields, in their order above."""
        return cls(*fields)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a view. For `by` other than scope, layer and weight, fused and scoped bytes are not defined."""

    key: str
    cost: Cost
    status: str = EXACT
    instances: int = 1
    useful_flops: int = 0
    whole: bool = True
    """False where bytes_fused and bytes_scoped are not defined (the row is no kernel)."""


@dataclass
class Profile:
    """What one call of a function costs, per device. `total`, `status`, `notes`, `peak`, `rows()`, `scopes()`."""

    name: str
    total: Cost
    status: str
    notes: list[Note]
    parameters: int
    peak: Peak
    records: list[Record]
    by_scope: dict[str, Cost]
    """Every scope path ("" is the program), its subtree; fused: its instances as one kernel each, summed."""
    instances: dict[str, int]
    by_weight: dict[str, Cost] = field(default_factory=dict)
    useful_flops: int = 0
    line_costs: Callable[[], dict[str, Cost]] | dict[str, Cost] = field(default_factory=dict, compare=False)
    """{source line: Cost}, or the function that finds it when it is first asked for (it costs as much as the rest)."""

    @property
    def exact(self) -> bool:
        return self.status == EXACT

    def scopes(self) -> dict[str, Cost]:
        """{scope path: Cost of that scope and all under it}; siblings are never merged."""
        return {path: cost for path, cost in self.by_scope.items() if path}

    def weights(self) -> dict[str, Cost]:
        """{parameter path and each prefix: Cost of the ops that read a parameter under it}. An op that reads two
        parameters is in both, so the values do not add up."""
        return dict(self.by_weight)

    def lines(self) -> dict[str, Cost]:
        """{the user's source line, 'model.py:31 (forward)': Cost of the ops it made}; fused bytes are not defined."""
        if not isinstance(self.line_costs, dict):
            self.line_costs = self.line_costs()
        return self.line_costs

    def rows(self, by: str = "scope", depth: int | None = None, merge: bool = True) -> list[Row]:
        """The program cut into rows by scope, primitive, dtype, phase, weight, line or layer (scope, unmerged).

        depth: scopes deeper than this are folded into their ancestor. Raises UsageError for another `by`.
        """
        from costtrace import grouping

        return grouping.rows(self, by, depth, merge)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA, "name": self.name, "status": self.status, "parameters": self.parameters,
            "useful_flops": self.useful_flops, "total": self.total.to_dict(),
            "notes": [[n.kind, n.scope, n.text] for n in self.notes],
            "peak": [self.peak.nbytes, self.peak.scope, self.peak.primitive, [list(a) for a in self.peak.alive]],
            "records": [[r.scope, r.phase, r.primitive, r.dtype, r.status, r.ops, r.cost.to_dict()]
                        for r in self.records],
            "lines": {k: c.to_dict() for k, c in self.lines().items()},
            "scopes": {k: c.to_dict() for k, c in self.by_scope.items()}, "instances": self.instances,
            "weights": {k: c.to_dict() for k, c in self.by_weight.items()},
        }  # fmt: skip

    def to_json(self) -> str:
        """All of the profile as text; `from_json` gives an equal profile back, without jax."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Profile:
        """The profile that `to_json` wrote. Raises FormatError for other text or another schema."""
        try:
            data = json.loads(text)
            found = data.get("schema") if isinstance(data, dict) else None
        except ValueError as e:
            raise FormatError(f"not a saved profile: {e}") from None
        if found != SCHEMA:
            raise FormatError(
                f"this profile has schema {found!r}, this costtrace reads {SCHEMA!r}: save it again with this version"
            )
        peak = data["peak"]
        return cls(
            data["name"], Cost.from_dict(data["total"]), data["status"], [Note(*n) for n in data["notes"]],
            data["parameters"], Peak(peak[0], peak[1], peak[2], [(a, b) for a, b in peak[3]]),
            [Record.of(*r[:-1], Cost.from_dict(r[-1])) for r in data["records"]],
            {k: Cost.from_dict(c) for k, c in data["scopes"].items()}, dict(data["instances"]),
            {k: Cost.from_dict(c) for k, c in data["weights"].items()}, data["useful_flops"],
            {k: Cost.from_dict(c) for k, c in data["lines"].items()},
        )  # fmt: skip

    def _repr_html_(self) -> str:
        from costtrace.report.notebook import html

        return html(self)


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

    jit, dims, trips, weights: see costtrace.trace.trace. strict: raise UnknownCostError where something is not priced.
    """
    from costtrace.trace import trace

    with _no_collection():
        found = folded(trace(fn, *args, jit=jit, dims=dims, trips=trips, weights=weights))
    if strict and found.status == UNKNOWN:
        note = next(n for n in found.notes if n.kind.startswith("unknown"))
        raise UnknownCostError(f"{found.name}: at scope {note.scope or '.'}: {note.text}")
    return found


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
            cost = _FREE
            for each, repeat, n, _ in parts.values():
                cost = cost + each * (repeat * n)
            yield key, sum(p[2] for p in parts.values()), cost.replace(bytes_unfused=sum(p[3] for p in parts.values()))


def folded(trace: Trace) -> Profile:
    """The profile of a flat program."""
    storage = Storage(trace)
    moved = bytes_of(trace, storage)
    prices, sums = Prices(), Sums()
    for op in trace.ops:
        price = prices(op)
        first = op.inputs or op.outputs
        key = (op.frame.scope, op.phase, op.primitive, first[0].dtype if first else "", price.status)
        sums.add(key, price.cost, op.frame.repeat, moved.unfused[op.index])
    records = [Record.of(key[0].scope_path, *key[1:], count, cost) for key, count, cost in sums.items()]
    by_scope, instances = _scopes(trace, moved, records)
    notes = trace.notes + prices.notes
    status = worst((trace.status, *(UNKNOWN for _ in prices.notes)))
    if len(by_scope) == 1:
        notes.append(
            Note(
                "no-scopes",
                "",
                "no jax.named_scope in this program: scoped bytes equal fused bytes, "
                "so pessimistic times use unfused bytes",
            )
        )
    total = by_scope[""]
    return Profile(
        trace.name,
        total,
        status,
        notes,
        sum(v.size for v in trace.inputs if v.weight is not None),
        peak_of(trace, storage),
        records,
        by_scope,
        instances,
        _weights(trace, storage, prices, moved.unfused),
        total.flops,
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
    counts: dict[str, Cost] = defaultdict(Cost)
    for r in records:
        for path in _prefixes(r.scope):
            counts[path] = counts[path] + r.cost
    counts[""] = counts[""]
    fused: dict[str, int] = defaultdict(int)
    scoped: dict[str, int] = defaultdict(int)
    instances: dict[str, int] = defaultdict(int)
    for frame, n in moved.fused.items():
        fused[frame.scope_path] += n
    seen = {f for frame in {op.frame for op in trace.ops} for f in frame.up() if f.scope is f}
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


def _weights(trace: Trace, storage: Storage, prices: Prices, unfused: list[int]) -> dict[str, Cost]:
    """Ops that read a parameter directly or through views, casts and scan slices, by the parameter's path."""
    if not any(v.weight for v in trace.inputs):
        return {}
    carries: dict[Any, frozenset[str]] = {v: frozenset([v.weight]) for v in trace.inputs if v.weight}
    sums, nothing = Sums(), frozenset[str]()

    def origin(v: Any) -> frozenset[str]:
        while v.edge is not None and v.edge.kind in ("row", "part"):
            v = v.edge.source
        return carries.get(v, nothing)

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
        sums.add(read, prices(op).cost, op.repeat, unfused[op.index])
    out: dict[str, Cost] = defaultdict(Cost)
    for read, _, cost in sums.items():
        for path in {p for leaf in read for p in _ancestors(leaf)}:
            out[path] = out[path] + cost
    return dict(out)


def _ancestors(leaf: str) -> list[str]:
    """'layers[0]/kernel' -> itself, 'layers[0]', 'layers'."""
    out = [leaf]
    for i in range(len(leaf) - 1, 0, -1):
        if leaf[i] in "/[":
            out.append(leaf[:i])
    return out


__all__ = ["BY", "Peak", "Profile", "Record", "Row", "folded", "profile", "worst"]
