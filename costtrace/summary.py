"""A Profile: what a program costs, as plain data. Needs neither jax nor the program; saves to JSON and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from costtrace import units
from costtrace.core import EXACT, MODELLED, UNKNOWN, Cost, Note
from costtrace.coverage import Group
from costtrace.errors import FormatError
from costtrace.memory import Peak

if TYPE_CHECKING:
    import networkx

SCHEMA = "costtrace.profile/1"
BY = ("scope", "primitive", "dtype", "phase", "weight", "line", "layer")
ORDER = (EXACT, MODELLED, UNKNOWN)


def worst(statuses: Iterable[str]) -> str:
    """The least certain of some statuses."""
    return max(statuses, key=ORDER.index, default=EXACT)


@dataclass(frozen=True, slots=True)
class Array:
    """One array of the program by its shape."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Record:
    """All ops of one scope, phase, primitive and operand dtype, added up over their executions."""

    scope: str
    phase: str
    primitive: str
    dtype: str
    status: str
    ops: int
    masked_flops: int
    """Matmul FLOPs in `cost` that a static mask makes needless (useful.py)."""
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
    largest: Array | None = None
    """The largest array that an op in the row makes; None where rows are no scopes."""


Status = Literal["exact", "modelled", "unknown"]


class _Saved(msgspec.Struct):
    """A profile in JSON; tuples are in the order of the dataclasses' fields."""

    name: str
    status: Status
    parameters: int
    useful_flops: int
    total: Cost
    notes: list[tuple[str, str, str]]
    peak: tuple[
        int, str, str, list[tuple[str, int]], list[tuple[tuple[int, ...], int, int]], list[tuple[str, int]],
        list[tuple[str, int]],
    ]  # fmt: skip
    largest: dict[str, tuple[tuple[int, ...], str, int]]
    records: list[tuple[str, str, str, str, Status, int, int, Cost]]
    traffic: list[tuple[str, str, int]]
    lines: dict[str, Cost]
    scopes: dict[str, Cost]
    instances: dict[str, int]
    weights: dict[str, Cost]


@dataclass(repr=False)
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
    largest: dict[str, Array] = field(default_factory=dict)
    """{scope: the largest array that an op of its own makes}: a score matrix, where attention writes it out."""
    traffic: dict[tuple[str, str], int] = field(default_factory=dict)
    """{(scope that made it, scope that reads it): bytes}, a scope's own ops as one kernel; arguments: "(inputs)"."""
    line_costs: Callable[[], dict[str, Cost]] | dict[str, Cost] = field(default_factory=dict, compare=False)
    """{source line: Cost}, or the function that finds it when it is first asked for (it costs as much as the rest)."""

    def __repr__(self) -> str:
        """One line; the rows are `rows()`, all of it `to_dict()`."""
        figures = [units.text(self.total.flops, "FLOP"), f"fused {units.text(self.total.bytes_fused, 'B')}",
                   f"peak {units.text(self.peak.nbytes, 'B')}", f"{len(self.scopes())} scopes"]  # fmt: skip
        return f"Profile({self.name!r}, {self.status}: {', '.join(figures)})"

    @property
    def exact(self) -> bool:
        return self.status == EXACT

    def groups(self) -> Iterator[Group]:
        """Its operations by how well they are known, for coverage.py."""
        return ((r.status, r.ops, r.cost) for r in self.records)

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

    def graph(self) -> networkx.DiGraph:
        """Who reads what from whom: scopes as nodes (`cost` on each), `nbytes` on each edge, as in `traffic`."""
        import networkx

        graph = networkx.DiGraph()
        for r in self.records:
            graph.add_node(r.scope, cost=graph.nodes.get(r.scope, {}).get("cost", Cost()) + r.cost)
        graph.add_weighted_edges_from(((a, b, n) for (a, b), n in self.traffic.items()), weight="nbytes")
        return graph

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA, "name": self.name, "status": self.status, "parameters": self.parameters,
            "useful_flops": self.useful_flops, "total": self.total.to_dict(),
            "notes": [[n.kind, n.scope, n.text] for n in self.notes],
            "peak": [self.peak.nbytes, self.peak.scope, self.peak.primitive, [list(a) for a in self.peak.alive],
                     [list(s) for s in self.peak.shapes], [list(c) for c in self.peak.curve],
                     [list(m) for m in self.peak.made]],
            "largest": {k: [list(a.shape), a.dtype, a.nbytes] for k, a in self.largest.items()},
            "records": [[r.scope, r.phase, r.primitive, r.dtype, r.status, r.ops, r.masked_flops, r.cost.to_dict()]
                        for r in self.records],
            "traffic": [[a, b, n] for (a, b), n in self.traffic.items()],
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
        except (ValueError, RecursionError) as e:
            raise FormatError(f"not a saved profile: {e}") from None
        if found != SCHEMA:
            raise FormatError(
                f"this profile has schema {found!r}, this costtrace reads {SCHEMA!r}: save it again with this version"
            )
        try:
            saved = msgspec.convert(data, _Saved)
        except msgspec.ValidationError as e:
            raise FormatError(f"no whole profile: {e}: save it again with to_json") from None
        for scope in ("", *(record[0] for record in saved.records)):
            if scope not in saved.scopes or (scope and scope.rpartition("/")[0] not in saved.scopes):
                raise FormatError(f"no whole profile: no cost of scope {scope!r}: save it again with to_json")
        return cls(
            saved.name, saved.total, saved.status, [Note(*n) for n in saved.notes], saved.parameters,
            Peak(*saved.peak), [Record.of(*r) for r in saved.records], saved.scopes, saved.instances, saved.weights,
            saved.useful_flops, {k: Array(*a) for k, a in saved.largest.items()},
            {(a, b): n for a, b, n in saved.traffic}, saved.lines,
        )  # fmt: skip

    def _repr_html_(self) -> str:
        from costtrace.report.notebook import html

        return html(self)
