"""The data that everything else folds: Value, Frame, Op, Trace, Cost, Note. No jax here.

Conventions, once: a multiply-add is 2 FLOPs (8 if complex); a sum of n values is n - 1; transcendentals
are counted apart and are not FLOPs; integer, comparison and bit work is never called FLOPs; masked
attention is counted in full; GB is 1e9 bytes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

FORWARD, BACKWARD, RECOMPUTE = "forward", "backward", "recompute"
EXACT, MODELLED, UNKNOWN = "exact", "modelled", "unknown"
INPUTS = "(inputs)"
"""Where what nobody in the program made comes from, in the bytes between scopes: its arguments."""


class Value:
    """One array of the program: an op's result, an input, a constant, a literal or a loop's carry.

    `bits` is the true width of an element (int4 is 4). `literal` is the scalar where it is written in the program,
    `index` the numbers of a small array put together from such scalars. `edge` is set where the value is another value
    seen through a loop's edge, which moves nothing. `weight` is the parameter's path where the value is a parameter.
    `host`: it lies in the host's memory, not the chip's. Identity is by object.
    """

    __slots__ = ("shape", "dtype", "bits", "size", "kind", "literal", "edge", "weight", "name", "frame", "donated",
                 "host", "index")  # fmt: skip

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        bits: int,
        kind: str = "result",
        *,
        literal: Any = None,
        edge: Edge | None = None,
        weight: str | None = None,
        name: str = "",
        frame: Frame | None = None,
        donated: bool = False,
        host: bool = False,
    ) -> None:
        self.shape, self.dtype, self.bits, self.kind = shape, dtype, bits, kind
        self.size = math.prod(shape)
        self.literal, self.edge, self.weight, self.name = literal, edge, weight, name
        self.frame, self.donated, self.host = frame, donated, host
        self.index: Any = None

    @property
    def nbytes(self) -> int:
        return -(-self.size * self.bits // 8)

    def behind(self, *kinds: str) -> Value:
        """The value that this one is seen through edges of these kinds, of any kind where none is named; itself where
        there is no such edge."""
        v = self
        while v.edge is not None and (not kinds or v.edge.kind in kinds):
            v = v.edge.source
        return v

    def __repr__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(slots=True)
class Edge:
    """How a value is another value across the edge of `loop`.

    kind: "row" (row i of a scanned input in trip i), "stack" (the rows of all trips as one result), "last" (the carry
    after the last trip), "part" (one device's part of an operand of shard_map; no loop).
    """

    kind: str
    source: Value
    loop: Frame | None = None


class Frame:
    """One node of the instance tree: the root, one `with named_scope`, one loop or one call site.

    `trips` is a loop's trip count (1 elsewhere); `repeat` the product of the loops at and above this frame: how often
    what lies in it runs. `scope` is the innermost scope (or root) frame at or above it; `path` its scope path.
    `status`: how well this frame's own trips, or the choice of this arm, are known.
    """

    __slots__ = ("parent", "kind", "name", "trips", "repeat", "depth", "path", "phase", "scope", "index", "status")

    def __init__(
        self, parent: Frame | None, kind: str, name: str = "", trips: int = 1, phase: str = FORWARD, index: int = 0
    ) -> None:
        self.parent, self.kind, self.name, self.trips, self.phase = parent, kind, name, trips, phase
        self.index = index  # order of creation: tells instances of one path apart
        self.status = EXACT
        if parent is None:
            self.depth, self.repeat = 0, trips
            self.path: tuple[str, ...] = ()
        else:
            self.depth, self.repeat = parent.depth + 1, parent.repeat * trips
            self.path = (*parent.path, name) if kind == "scope" else parent.path
        self.scope: Frame = self if parent is None or kind == "scope" else parent.scope

    def up(self) -> Iterator[Frame]:
        """This frame and all above it, innermost first."""
        at: Frame | None = self
        while at is not None:
            yield at
            at = at.parent

    @property
    def loop(self) -> Frame | None:
        """The innermost loop at or above it; None outside of every loop."""
        return next((f for f in self.up() if f.kind == "loop"), None)

    @property
    def scope_path(self) -> str:
        return "/".join(self.path)

    def __repr__(self) -> str:
        return f"Frame({self.kind} {self.scope_path!r} x{self.repeat})"


class Op:
    """One equation of the flat program; it runs `repeat` times in one call of the function.

    A rule sees `inputs`, `outputs` (Values: shape, dtype, bits, size) and `params` (the equation's parameters).
    """

    __slots__ = ("primitive", "inputs", "outputs", "params", "frame", "phase", "source", "index", "priced")

    def __init__(
        self,
        primitive: str,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        params: Mapping[str, Any],
        frame: Frame,
        phase: str = FORWARD,
        source: Any = None,
    ) -> None:
        self.primitive, self.inputs, self.outputs, self.params = primitive, inputs, outputs, params
        self.frame, self.phase, self.source = frame, phase, source
        self.index = -1
        self.priced: Priced | None = None  # set by trace.py for a kernel that brings its own price

    @property
    def repeat(self) -> int:
        return self.frame.repeat

    @property
    def scope(self) -> str:
        return self.frame.scope_path

    def __repr__(self) -> str:
        return f"{self.primitive}({', '.join(map(repr, self.inputs))}) -> {', '.join(map(repr, self.outputs))}"


@dataclass(frozen=True, slots=True)
class Note:
    """Something the reader of a number must know. Kinds are listed in docs/conventions.md."""

    kind: str
    scope: str
    text: str


@dataclass(frozen=True, slots=True)
class Carry:
    """A loop-carried value: `start` outside, `inner` in the body, `end` what the body hands to the next trip."""

    loop: Frame
    start: Value
    inner: Value
    end: Value


@dataclass(slots=True)
class Trace:
    """A program as a flat list of Ops, in the order of execution; loops are frames, their edges are on the Values."""

    name: str
    ops: list[Op]
    inputs: list[Value]
    outputs: list[Value]
    root: Frame
    carries: list[Carry] = field(default_factory=list)
    constants: dict[Value, Any] = field(default_factory=dict)  # the arrays that the program closes over
    notes: list[Note] = field(default_factory=list)
    status: str = EXACT


COUNTS = (
    "matmul_flops",
    "conv_flops",
    "vector_flops",
    "transcendentals",
    "integer_ops",
    "linalg_flops",
    "fft_flops",
    "bytes_fused",
    "bytes_scoped",
    "bytes_unfused",
    "weight_bytes",
    "collective_bytes",
    "host_bytes",
)
TABLES = ("by_dtype", "vector_by_dtype", "collective_bytes_by_axis")


def _added(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    if not b:
        return a
    out = dict(a)
    for key, n in b.items():
        out[key] = out.get(key, 0) + n
    return out


@dataclass(frozen=True, slots=True)
class Cost:
    """What a piece of program costs. Python ints; adds and scales; never used for what is not known.

    by_dtype: {dtype of the operands: matmul + conv FLOPs}. vector_by_dtype: {dtype: vector + linalg + fft FLOPs}.
    Bytes are filled by fusion.py, never by a rule.
    """

    matmul_flops: int = 0
    conv_flops: int = 0
    vector_flops: int = 0
    transcendentals: int = 0
    integer_ops: int = 0
    linalg_flops: int = 0
    fft_flops: int = 0
    bytes_fused: int = 0
    bytes_scoped: int = 0
    bytes_unfused: int = 0
    weight_bytes: int = 0
    collective_bytes: int = 0
    host_bytes: int = 0
    by_dtype: dict[str, int] = field(default_factory=dict)
    vector_by_dtype: dict[str, int] = field(default_factory=dict)
    collective_bytes_by_axis: dict[str, int] = field(default_factory=dict)

    @property
    def flops(self) -> int:
        """All floating-point work but transcendentals."""
        return self.matmul_flops + self.conv_flops + self.vector_flops + self.linalg_flops + self.fft_flops

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            *(getattr(self, k) + getattr(other, k) for k in COUNTS),
            *(_added(getattr(self, k), getattr(other, k)) for k in TABLES),
        )

    def __mul__(self, n: int) -> Cost:
        if n == 1:
            return self
        return Cost(
            *(getattr(self, k) * n for k in COUNTS), *({d: v * n for d, v in getattr(self, k).items()} for k in TABLES)
        )

    __rmul__ = __mul__

    def replace(self, **changes: Any) -> Cost:
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of DESIGN's contract: `flops` first, then every field."""
        return {"flops": self.flops, **{k: getattr(self, k) for k in (*COUNTS, *TABLES)}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Cost:
        return cls(**{k: data[k] for k in (*COUNTS, *TABLES) if k in data})


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of many costs, without the costs in between."""
    parts = list(costs)
    if len(parts) == 1:
        return parts[0]
    tables = []
    for name in TABLES:
        table: dict[str, int] = {}
        for part in parts:
            for key, n in getattr(part, name).items():
                table[key] = table.get(key, 0) + n
        tables.append(table)
    return Cost(*(sum([getattr(p, name) for p in parts]) for name in COUNTS), *tables)


@dataclass(frozen=True, slots=True)
class Priced:
    """A kernel's price beside its op: what trace.py found in its body or in the author's own estimate."""

    cost: Cost
    status: str = EXACT
    bytes_unfused: int | None = None  # streamed blocks of one run, where they are known
    why: str = ""  # the reason where the status is unknown
    touched: tuple[int | None, ...] = ()  # elements of each operand that a kernel touches, None for all of them
