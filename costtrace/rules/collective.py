"""Collectives: bytes that one device sends by a bandwidth-optimal algorithm, and the operations it adds for them.

n is the number of devices of the group: the product of the axes' sizes, or the size of one axis_index_group. A group
of one moves nothing. Two axes together are one group, keyed "r,d". FLOPs are those of a ring: each device reduces
(n - 1)/n of what it holds, once. Sources: Chan et al., "Collective communication: theory, practice, and experience"
(2007), bandwidth lower bounds; the same factors in the NCCL tests' PERFORMANCE.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from costtrace.core import MODELLED, Cost, Op, Value
from costtrace.errors import UnknownCostError
from costtrace.rules.table import rule, vector


def axes(op: Op) -> tuple[str | int, ...]:
    """The axes of a collective: a name is a mesh axis, a number a dimension of the operand (once a vmapped axis)."""
    named = op.params.get("axes", op.params.get("axis_name", ()))
    return tuple(named) if isinstance(named, (tuple, list)) else (named,)


def axis_names(op: Op) -> tuple[str, ...]:
    """The names of the mesh axes of a collective."""
    return tuple(str(a) for a in axes(op) if not isinstance(a, int))


def group(op: Op) -> int:
    """The number of devices that take part. `axis_sizes` is what trace.py knows of the mesh.

    Raises UnknownCostError where the size of an axis is not known.
    """
    groups = op.params.get("axis_index_groups")
    if groups:
        return max(len(group) for group in groups)  # the busiest device's
    sizes = op.params.get("axis_sizes") or {}
    missing = [a for a in axis_names(op) if a not in sizes]
    if not missing:
        return math.prod(sizes[a] for a in axis_names(op))
    if op.params.get("axis_size"):
        return int(op.params["axis_size"])
    raise UnknownCostError(f"{op.primitive} over axis {missing[0]!r} of unknown size: trace it inside its shard_map")


def sent(op: Op, nbytes: int, axis: str | None = None) -> Cost:
    """So many bytes leave the device, over the axes of the op."""
    if nbytes <= 0:
        return Cost()
    return Cost(collective_bytes=nbytes, collective_bytes_by_axis={axis or ",".join(axis_names(op)): nbytes})


def held(values: Iterable[Value]) -> int:
    return sum(v.nbytes for v in values)


def share(n: int, amount: int) -> int:
    """(n - 1)/n of an amount, rounded up."""
    return -(-amount * (n - 1) // n)


def folded(values: Iterable[Value], n: int) -> Cost:
    """The (n - 1)/n operations per local element of a ring's reduction."""
    cost = Cost()
    for v in values:
        cost += vector(share(n, v.size), v.dtype)
    return cost


@rule("psum", "psum_invariant", "unreduced_psum", "pmax", "pmin", "unreduced_pmax", "unreduced_pmin", "psum_start",
      "psum_invariant_start", "unreduced_psum_start")  # fmt: skip
def all_reduce(op: Op) -> Cost:
    """2 (n - 1)/n of the local bytes: a reduce-scatter, then an all-gather; (n - 1)/n additions per element.
    Dimensions of the operand among the axes are summed on the device first, (d - 1) per result."""
    n, local, cost = group(op), op.inputs, Cost()
    if any(isinstance(a, int) for a in axes(op)):
        local = op.outputs
        for before, after in zip(op.inputs, local, strict=True):
            cost += vector(before.size - after.size, before.dtype)
    return cost + sent(op, share(n, 2 * held(local))) + folded(local, n)


@rule("reduce_scatter", "unreduced_reduce_scatter", "reduce_scatter_start", "unreduced_reduce_scatter_start")
def reduce_scatter(op: Op) -> Cost:
    """(n - 1)/n of the local bytes, and as many additions per element."""
    n = group(op)
    return sent(op, share(n, held(op.inputs))) + folded(op.inputs, n)


@rule("all_gather", "all_gather_invariant", "all_gather_reduced", "all_gather_start", "all_gather_reduced_start")
def all_gather(op: Op) -> Cost:
    """(n - 1) shards: a ring passes each device every shard but its own."""
    return sent(op, (group(op) - 1) * held(op.inputs))


@rule("all_to_all", "all_to_all_start")
def all_to_all(op: Op) -> Cost:
    """(n - 1)/n of the local bytes: all but the part that stays."""
    return sent(op, share(group(op), held(op.inputs)))


@rule("ragged_all_to_all", status=MODELLED)
def ragged_all_to_all(op: Op) -> Cost:
    """(n - 1)/n of the operand's bytes: the send sizes are data, taken as even and full."""
    return sent(op, share(group(op), held(op.inputs[:1])))


@rule("ppermute", "ppermute_start", "psend")
def permute(op: Op) -> Cost:
    """The local bytes, once; nothing where the permutation is empty or moves no device's data elsewhere."""
    moved = any(source != target for source, target in op.params["perm"])
    return sent(op, held(op.inputs[:1])) if moved and group(op) > 1 else Cost()


@rule("pbroadcast", "pbroadcast_dynamic", "pbroadcast_start")
def broadcast(op: Op) -> Cost:
    """The local bytes, once: a pipelined chain in which each device hands on what it receives."""
    return sent(op, held(op.inputs[:1])) if group(op) > 1 else Cost()


@rule("psum_done", "all_gather_done", "reduce_scatter_done", "all_to_all_done", "ppermute_done", "pbroadcast_done",
      "precv")  # fmt: skip
def received(op: Op) -> Cost:
    """Free: its start, or its sender, has been charged."""
    return Cost()


@rule("axis_index", "pvary", "preduced", "reduced_vary_cast", "reduced_vary_cast_p", "vary_unreduced_cast",
      "vary_unreduced_cast_p")  # fmt: skip
def placement(op: Op) -> Cost:
    """Free: says or changes how a value lies over the mesh, moves nothing."""
    return Cost()
