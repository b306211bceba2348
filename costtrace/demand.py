"""Trace -> what emulating its float64 work asks for, by scope: products with their sizes, bytes, conversions. No jax.

Each scope's own ops are one kernel (the `scoped` cut): float64 values stand between kernels, residues inside. So a
float64 number is converted where it enters a kernel, and where it comes from an operation that residues cannot do
(a division, a root); a result is put together where it leaves, or meets such an operation. Integers are not converted.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from dataclasses import dataclass

from costtrace.core import Cost, Frame, Op, Trace, Value
from costtrace.fusion import boundaries_of
from costtrace.profiler import Prices
from costtrace.rules import RULES
from costtrace.scheme import Scheme, Tile, padding
from costtrace.storage import Storage

WIDE = ("float64", "complex128")
WORD = 8
"""Bytes of a float64; a complex128 is two."""

RING = frozenset(("add", "add_any", "sub", "mul", "neg", "square", "integer_pow", "dot_general", "reduce_sum", "cumsum",
                  "conv_general_dilated", "scatter-add", "scatter-sub", "reduce_window_sum", "fft", "one_minus_square",
                  "conj"))  # fmt: skip
"""What residues can do: sums and products."""
CASTS = ("convert_element_type", "bitcast_convert_type", "reduce_precision")
RADIX = 32
"""An FFT is executed as products with DFT matrices of this size, 8 x 32 FLOPs a complex point and pass; between passes
values are put together and taken apart again. Source: arXiv:2606.06510, part 2 (an inner k of about 32)."""


@dataclass(frozen=True, slots=True)
class Product:
    """`flops` in matrix products of m x n x k, a number of them."""

    m: int
    n: int
    k: int
    flops: int
    results: int
    """float64 numbers that they give."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One kernel, or the sum of several. `cost` has all its work; bytes are `nbytes`."""

    name: str
    cost: Cost
    nbytes: int
    flops: int = 0
    """W: float64 FLOPs of the program as written that residues can do."""
    products: tuple[Product, ...] = ()
    vector_flops: int = 0
    """Of W: sums and products outside matrix products: for one right-hand side, so one column of a tile."""
    dense_flops: int = 0
    """Of W: factorizations and convolutions, taken to fill their tiles."""
    n_in: int = 0
    n_out: int = 0

    @property
    def intensity(self) -> float | None:
        """W per byte."""
        return self.flops / self.nbytes if self.nbytes else None

    @property
    def phi(self) -> float | None:
        """Converted float64 numbers per 8 bytes streamed."""
        return WORD * self.n_in / self.nbytes if self.nbytes else None

    @property
    def rest(self) -> Cost:
        """All work but W: other dtypes, float64 divisions and roots, integers."""
        matrix = sum(n for d, n in self.cost.by_dtype.items() if d in WIDE)
        left = sum(n for d, n in self.cost.vector_by_dtype.items() if d in WIDE) - (self.flops - matrix)
        vector = {d: n for d, n in self.cost.vector_by_dtype.items() if d not in WIDE} | (
            {"float64": left} if left else {}
        )
        return self.cost.replace(
            by_dtype={d: n for d, n in self.cost.by_dtype.items() if d not in WIDE}, vector_by_dtype=vector
        )

    def named(self, name: str) -> Demand:
        return dataclasses.replace(self, name=name)

    def executed(self, scheme: Scheme) -> float:
        """W_mma: FLOPs in whole tiles."""
        products = sum(p.flops * scheme.executed(p.m, p.n, p.k) for p in self.products)
        return products + self.vector_flops * min(scheme.tile[:2]) + self.dense_flops

    def native_products(self, tile: Tile) -> float:
        """FLOPs of the float64 matrix products in whole tiles of the native unit."""
        return sum(p.flops * padding(tile, p.m, p.n, p.k) for p in self.products)

    def parts(self, scheme: Scheme) -> int:
        """Results put together, each product whose k is too long for the accumulator once for each part of it."""
        more = sum(p.results * (-(-p.k // scheme.longest_k) - 1) for p in self.products)
        return self.n_out + more

    def __add__(self, other: Demand) -> Demand:
        return Demand(
            self.name,
            self.cost + other.cost,
            self.nbytes + other.nbytes,
            self.flops + other.flops,
            self.products + other.products,
            self.vector_flops + other.vector_flops,
            self.dense_flops + other.dense_flops,
            self.n_in + other.n_in,
            self.n_out + other.n_out,
        )


def product(m: int, n: int, k: int, name: str = "") -> Demand:
    """What one float64 product (m, k) x (k, n) asks for as one kernel."""
    flops = 2 * m * n * k
    cost = Cost(matmul_flops=flops, by_dtype={"float64": flops})
    return Demand(
        name,
        cost,
        WORD * (m * k + k * n + m * n),
        flops,
        (Product(m, n, k, flops, m * n),),
        n_in=m * k + k * n,
        n_out=m * n,
    )


def demands(trace: Trace) -> list[Demand]:
    """One Demand a scope (a scope's own ops outside its child scopes are `path/.`), in program order."""
    storage = Storage(trace)
    edges = boundaries_of(trace, storage, wide)
    paths = {f.scope_path for f in edges}
    prices = Prices()
    parts: dict[str, _Kernel] = defaultdict(_Kernel)
    turned = _Conversions(storage)
    for op in trace.ops:
        kernel = parts[op.scope]
        price = prices(op).cost * op.repeat
        kernel.cost = kernel.cost + price
        inside = turned.of(op)
        kernel.n_in, kernel.n_out = kernel.n_in + inside[0], kernel.n_out + inside[1]
        if ring(op):
            kernel.take(op, price)
    for frame, edge in edges.items():
        kernel = parts[frame.scope_path]
        kernel.nbytes += edge.nbytes
        if kernel.rings:
            kernel.n_in, kernel.n_out = kernel.n_in + edge.read // WORD, kernel.n_out + edge.written // WORD
    children = {path.rpartition("/")[0] for path in paths | set(parts) if path}
    return [kernel.demand(_named(path, path in children)) for path, kernel in parts.items()]


def whole(parts: list[Demand], name: str) -> Demand:
    """The sum of kernels under one name."""
    return sum(parts, Demand(name, Cost(), 0))


def _named(path: str, has_children: bool) -> str:
    return f"{path}/." if path and has_children else path or "."


def wide(v: Value) -> bool:
    return v.dtype in WIDE


def ring(op: Op) -> bool:
    """True where `op` is float64 work that residues can do."""
    if not any(map(wide, op.outputs)) or not any(map(wide, op.inputs)):
        return False
    if op.primitive == "integer_pow":
        return bool(op.params["y"] >= 0)
    return op.primitive in RING or _dense(op)


def _dense(op: Op) -> bool:
    return op.primitive in RULES and RULES[op.primitive].owner.endswith(".factorization")


class _Kernel:
    """One scope's own ops while they are being added up."""

    def __init__(self) -> None:
        self.cost = Cost()
        self.products: list[Product] = []
        self.flops = self.vector = self.dense = self.nbytes = self.n_in = self.n_out = self.rings = 0

    def take(self, op: Op, price: Cost) -> None:
        self.rings += 1
        self.flops += price.flops
        if op.primitive == "dot_general":
            (lhs, rhs), out = op.inputs[:2], op.outputs[0]
            (left, _), (batch, _) = op.params["dimension_numbers"]
            k, b = math.prod(lhs.shape[d] for d in left), math.prod(lhs.shape[d] for d in batch)
            size = out.size * op.repeat * (out.bits // 64)
            self.products.append(
                Product(lhs.size // max(1, k * b), rhs.size // max(1, k * b), k, price.matmul_flops, size)
            )
        elif op.primitive == "fft":
            self.fourier(op)
        elif _dense(op) or op.primitive == "conv_general_dilated":
            self.dense += price.flops
        else:
            self.vector += price.flops

    def fourier(self, op: Op) -> None:
        """Each transformed axis in passes of DFT matrices; a real transform is half of a complex one."""
        real = not all(v.dtype == "complex128" for v in (*op.inputs[:1], *op.outputs))
        points = max(v.size for v in (*op.inputs[:1], *op.outputs)) * op.repeat // (2 if real else 1)
        passes = 0
        for length in op.params["fft_lengths"]:
            side, count = min(RADIX, length), _passes(length)
            self.products.append(Product(points // side, side, side, 8 * side * points * count, 2 * points * count))
            passes += count
        self.n_in += 2 * points * (passes - 1)
        self.n_out += 2 * points * (passes - 1)

    def demand(self, name: str) -> Demand:
        return Demand(
            name,
            self.cost,
            self.nbytes,
            self.flops,
            tuple(self.products),
            self.vector,
            self.dense,
            self.n_in,
            self.n_out,
        )


def _passes(length: int) -> int:
    """Passes of RADIX that a transform of `length` takes."""
    passes, reach = 1, RADIX
    while reach < length:
        passes, reach = passes + 1, reach * RADIX
    return passes


class _Conversions:
    """Inside a kernel: float64 values that go between operations that residues can do and others."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.origin: dict[Value, Value] = {}
        self.state: dict[Value, tuple[bool, Frame, int]] = {}
        self.done: set[tuple[Value, bool]] = set()

    def of(self, op: Op) -> tuple[int, int]:
        """(numbers taken apart, numbers put together) for this op, all its executions."""
        rings = ring(op)
        if not rings and self.moves(op):
            sources = [v for v in op.inputs if wide(v)]
            if len(sources) == 1:
                for out in op.outputs:
                    self.origin[out] = self.root(sources[0])
            else:  # a concatenation or a choice: in residues where all it is made of is
                known = [self.state.get(self.root(v)) for v in sources]
                if known and all(known):
                    for out in op.outputs:
                        self.state[out] = (all(k[0] for k in known if k), op.frame.scope, op.repeat)
            return 0, 0
        n_in = n_out = 0
        for v in op.inputs:
            root = self.root(v)
            if not wide(root) or root not in self.state or (root, rings) in self.done:
                continue
            residue, where, repeat = self.state[root]
            if residue != rings and where is op.frame.scope:
                self.done.add((root, rings))
                count = root.size * (root.bits // 64) * repeat
                n_in, n_out = (n_in + count, n_out) if rings else (n_in, n_out + count)
        for v in op.outputs:
            if wide(v):
                self.state[v] = (rings, op.frame.scope, op.repeat)
        return n_in, n_out

    def root(self, v: Value) -> Value:
        v = v.behind()
        return self.origin.get(v, v)

    def moves(self, op: Op) -> bool:
        if op.primitive in CASTS:
            return False
        owner = RULES[op.primitive].owner if op.primitive in RULES else ""
        return self.storage.is_view(op) or op.primitive == "select_n" or owner.endswith(".movement")
