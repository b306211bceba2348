"""What a Pallas kernel costs: its body times its grid, or the author's own estimate. Duck-typed; no jax here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from costtrace.core import EXACT, MODELLED, UNKNOWN, Cost, Note, Op, Priced
from costtrace.rules import RULES
from costtrace.rules.table import priced

Notes = list[tuple[str, str, str]]


def priced_kernel(eqn: Any, kernel_ops: Callable[[Any], tuple[list[Op], list[Note]]]) -> tuple[Priced, Notes]:
    """The price of one run of a `pallas_call` equation, and notes as (kind, text, status).

    An author's cost_estimate is taken as it stands (its FLOPs count as matmul); else the body is counted and multiplied
    by the grid. A grid that is not static counts once, unknown.
    """
    grid = getattr(eqn.params["grid_mapping"], "grid", ())
    static = all(isinstance(g, int) for g in grid)
    streamed, touched = _streamed(eqn, grid) if static else (None, ())
    name = eqn.params.get("name") or "pallas kernel"
    estimate = eqn.params.get("cost_estimate")
    if estimate is not None and (estimate.flops or estimate.transcendentals):
        cost = Cost(
            matmul_flops=int(estimate.flops),
            transcendentals=int(estimate.transcendentals),
            by_dtype={_dtype(eqn): int(estimate.flops)} if estimate.flops else {},
        )
        moved = int(estimate.bytes_accessed) or streamed
        return Priced(cost, MODELLED, moved, touched=touched), [
            ("kernel-estimate", f"{name}: FLOPs and bytes are its author's cost_estimate", MODELLED)
        ]
    ops, inner = kernel_ops(eqn.params["jaxpr"])
    steps = math.prod(grid) if static else 1
    cost, notes, status = Cost(), [], EXACT
    for op in ops:
        price = priced(op)
        cost = cost + price.cost * (op.repeat * steps)
        if price.status == UNKNOWN and op.primitive in RULES:
            inner = [*inner, Note("unknown-primitive", op.scope, price.why)]
        status = MODELLED if price.status == MODELLED and status == EXACT else status
    for n in inner:
        level = MODELLED if n.kind in ("branch", "assumed-trip", "modelled") else UNKNOWN
        if n.kind in ("branch", "assumed-trip", "modelled", "unknown-trip", "unknown-primitive"):
            notes.append((n.kind, f"{name}: {n.text}", level))
            status = UNKNOWN if UNKNOWN in (level, status) else MODELLED
    if not static:
        notes.append(("unknown-grid", f"{name}: its grid depends on data; one step is counted", UNKNOWN))
        status = UNKNOWN
    return Priced(cost, status, streamed, touched=touched), notes


def _dtype(eqn: Any) -> str:
    widths = [
        (v.aval.dtype.itemsize, str(v.aval.dtype))
        for v in eqn.invars
        if str(v.aval.dtype).startswith(("float", "bfloat", "int", "complex")) and v.aval.ndim
    ]
    return max(widths)[1] if widths else "float32"


def _streamed(eqn: Any, grid: tuple[int, ...]) -> tuple[int | None, tuple[int | None, ...]]:
    """(bytes that the grid streams, elements touched of each operand where that is less than all of it).

    A block is fetched again when its index map may have changed, that is once per step of the innermost grid dimension
    that its index depends on (row-major order). Where the index also depends on prefetched data, no more blocks than
    steps are touched. (None, ()) where a block's shape is not static.
    """
    mapping = eqn.params["grid_mapping"]
    ahead = getattr(mapping, "num_index_operands", 0)
    total = sum(math.prod(v.aval.shape) * v.aval.dtype.itemsize for v in eqn.invars[:ahead])
    touched: list[int | None] = [None] * ahead
    for block in mapping.block_mappings:
        array = getattr(block, "array_aval", None) or getattr(block, "array_shape_dtype", None)
        shape = [getattr(b, "block_size", b) for b in block.block_shape]
        if array is None or not all(
            isinstance(b, int) or b is None or type(b).__name__ in ("Squeezed", "Element") for b in shape
        ):
            return None, ()
        size = math.prod(b for b in shape if isinstance(b, int))
        index = block.index_map_jaxpr.jaxpr
        deepest = max((i for i, v in enumerate(index.invars[: len(grid)]) if _reaches(index, v)), default=-1)
        fetches = math.prod(grid[: deepest + 1])
        total += size * array.dtype.itemsize * fetches
        chosen = any(_reaches(index, v) for v in index.invars[len(grid) :])
        touched.append(size * fetches if chosen and size * fetches < math.prod(array.shape) else None)
    return total, tuple(touched[: len(eqn.invars)])


def _reaches(jaxpr: Any, var: Any) -> bool:
    seen = {var}
    for eqn in jaxpr.eqns:
        if any(not hasattr(v, "val") and v in seen for v in eqn.invars):
            seen.update(eqn.outvars)
    return any(not hasattr(v, "val") and v in seen for v in jaxpr.outvars)
