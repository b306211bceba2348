"""Depth in parts: each chip has some of the layers that a program's loops step through. No jax here.

A layer is one trip of a loop over stacked parameters. Chips hold equal runs of layers, in order; what is outside the
loops is the first chip's. The batch goes through in microbatches: with M of them over N chips the chips work M of
M + N - 1 turns (Huang et al., "GPipe", arXiv:1811.06965, section 2.3). One image over 8 chips idles 7/8 of the time.
"""

from __future__ import annotations

from dataclasses import dataclass

from costtrace.core import Cost, Frame, Trace, Value, total
from costtrace.mesh import PERMUTE, Collective
from costtrace.profiler import Prices


@dataclass(frozen=True, slots=True)
class Layers:
    """A loop over layers: its trips, the cost and the parameter bytes of one, and the bytes of its carry. `passes`: 2
    where another loop goes back through them, a training step's."""

    trips: int
    cost: Cost
    weight_bytes: int
    carry_bytes: int
    passes: int = 1


@dataclass(frozen=True, slots=True)
class Depth:
    """One chip's part, the busiest one's. `hand_over`: bytes of the activation between two chips, all microbatches;
    `passes` times: in a training step its gradient comes back."""

    share: float
    layers: int
    weight_bytes: int
    hand_over: int
    passes: int


def loops(trace: Trace) -> list[Layers]:
    """The outermost loops that step through parameters, in order; those that step through the same ones as one."""
    prices = Prices()
    found: dict[Frame, list[Value]] = {}
    costs: dict[Frame, list[Cost]] = {}
    for op in trace.ops:
        outer = [f for f in op.frame.up() if f.kind == "loop"]
        if not outer:
            continue
        loop = outer[-1]
        costs.setdefault(loop, []).append(prices(op).cost * (op.repeat // loop.trips))
        for v in op.inputs:
            edge = v.edge
            if edge is not None and edge.kind == "row" and edge.loop is loop and edge.source.weight:
                rows = found.setdefault(loop, [])
                if v not in rows:
                    rows.append(v)
    out: dict[frozenset[Value], Layers] = {}
    for loop, rows in found.items():
        carry = sum(c.inner.nbytes for c in trace.carries if c.loop is loop)
        sources = frozenset(v.edge.source for v in rows if v.edge is not None)
        own = next((key for key in out if key & sources and out[key].trips == loop.trips), sources)
        each = Layers(loop.trips, total(costs[loop]), sum(v.nbytes for v in rows), carry)
        first = out.get(own)
        if first is not None:
            held = max(first.weight_bytes, each.weight_bytes)
            each = Layers(loop.trips, first.cost + each.cost, held, first.carry_bytes, passes=2)
        out[own] = each
    return list(out.values())


def deep(trace: Trace, whole: Cost, held: int, n: int) -> Depth | None:
    """The busiest of `n` chips (`held`: bytes of all parameters); None where the program has no loop over layers."""
    found = loops(trace)
    if not found:
        return None
    layers = [each for each in found for _ in range(each.trips)]
    run = -(-len(layers) // n)
    chunks = [layers[i : i + run] for i in range(0, len(layers), run)]
    flops = [sum(x.cost.flops for x in chunk) for chunk in chunks]
    outside = whole.flops - sum(flops)
    flops[0] += outside
    busiest = max(range(len(chunks)), key=flops.__getitem__)
    layered = sum(x.weight_bytes for x in layers)
    mine = sum(x.weight_bytes for x in chunks[busiest]) + (0 if busiest else held - layered)
    share = flops[busiest] / max(1, whole.flops)
    passes = max(x.passes for x in layers)
    return Depth(share, len(chunks[busiest]), mine, max(x.carry_bytes for x in layers), passes)


def bubble(n: int, microbatches: int) -> float:
    """Turns over the turns in which a chip works: (M + N - 1) / M."""
    return (microbatches + n - 1) / microbatches


def handed(depth: Depth, axis: str, calls: int, microbatches: int) -> Collective:
    """The boundary activation, to the next chip, and its gradient back."""
    nbytes = -(-depth.hand_over // microbatches)
    return Collective(PERMUTE, axis, "", calls * microbatches * depth.passes, nbytes, nbytes)


def parted(cost: Cost, depth: Depth, weights: int) -> Cost:
    """One chip's cost: its share of the work, its own layers' parameters."""

    def scaled(n: int) -> int:
        return round(n * depth.share)

    tables = {k: {d: scaled(v) for d, v in getattr(cost, k).items()} for k in ("by_dtype", "vector_by_dtype")}
    counts = {k: scaled(getattr(cost, k)) for k in ("matmul_flops", "conv_flops", "vector_flops", "transcendentals",
                                                    "integer_ops", "linalg_flops", "fft_flops")}  # fmt: skip
    mine = round(weights * depth.share) if weights else 0
    moved = {k: scaled(getattr(cost, k)) for k in ("bytes_fused", "bytes_scoped", "bytes_unfused")}
    return cost.replace(**counts, **tables, **moved, weight_bytes=mine)
