"""FLOW_ROWS: one function per primitive that holds a program, with the FLOPs of that program written out.

Where a primitive only lives inside kernels or old exports, UNTRIED says so. See test_primitives.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

X = jax.ShapeDtypeStruct((3, 5), "float32")
N = 3 * 5


def sin2(x: Any) -> Any:
    return x * x + x


def remat(x: Any) -> Any:
    return jax.checkpoint(sin2)(x)


def with_jvp(x: Any) -> Any:
    fn = jax.custom_jvp(sin2)
    fn.defjvp(lambda xs, ts: (sin2(*xs), ts[0]))
    return fn(x)


def with_vjp(x: Any) -> Any:
    fn = jax.custom_vjp(sin2)
    fn.defvjp(lambda x: (sin2(x), None), lambda _, g: (g,))
    return fn(x)


def with_vmap(x: Any) -> Any:
    fn = jax.custom_batching.custom_vmap(sin2)
    fn.def_vmap(lambda size, batched, x: (sin2(x), True))
    return fn(x)


def partitioned(x: Any) -> Any:
    fn = custom_partitioning(sin2)
    fn.def_partition(partition=None, infer_sharding_from_operands=None, sharding_rule="i j -> i j")
    return fn(x)


def composed(x: Any) -> Any:
    return lax.composite(sin2, name="costtrace.test")(x)


def kernel(x: Any) -> Any:
    def body(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = sin2(x_ref[...])

    spec = pl.BlockSpec((1, 5), lambda i: (i, 0))
    return pl.pallas_call(body, jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(3,), in_specs=[spec], out_specs=spec)(x)


def mapped(x: Any) -> Any:
    mesh = AbstractMesh((3,), ("d",), axis_types=(AxisType.Auto,))
    return jax.shard_map(sin2, mesh=mesh, in_specs=P("d"), out_specs=P("d"))(x)


def solved(x: Any) -> Any:
    return lax.custom_linear_solve(lambda v: v * 2.0, x, solve=lambda matvec, b: sin2(b), symmetric=True)


def linear(x: Any) -> Any:
    return jax.custom_derivatives.linear_call(lambda r, v: sin2(v), lambda r, v: v, (), x)


def stateful(x: Any) -> Any:
    def body(ref: Any) -> None:
        ref[...] = sin2(ref[...])

    return pl.run_state(body)(x)


FLOW_ROWS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "jit": (lambda x: jax.jit(sin2)(x), 2 * N),
    "remat2": (remat, 2 * N),
    "custom_jvp_call": (with_jvp, 2 * N),
    "custom_vjp_call": (with_vjp, 2 * N),
    "custom_vmap_call": (with_vmap, 2 * N),
    "custom_partitioning": (partitioned, 2 * N),
    "custom_linear_solve": (solved, 2 * N),
    "linear_call": (linear, 2 * N),
    "composite": (composed, 2 * N),
    "scan": (lambda x: lax.scan(lambda c, _: (sin2(c), None), x, None, length=7)[0], 7 * 2 * N),
    "while": (lambda x: lax.while_loop(lambda c: c[0] < 7, lambda c: (c[0] + 1, sin2(c[1])), (0, x))[1], 7 * 2 * N),
    "cond": (lambda x: lax.cond(x[0, 0] > 0, sin2, lambda x: x, x), 2 * N),
    "shard_map": (mapped, 2 * N // 3),
    "pallas_call": (kernel, 2 * N),
    "run_state": (stateful, 2 * N),
}

UNTRIED = {
    "call": "only in programs of old transformations", "closed_call": "only in programs of old transformations",
    "custom_jvp_call_jaxpr": "only in old exports", "eval_jaxpr": "only while jax lowers a kernel",
    "remat_opt": "only where custom_vjp's optimize_remat is on, and differentiated",
    "jaxpr_call": "inside kernels", "custom_fusion": "inside kernels", "fusible": "inside kernels",
    "run_scoped": "inside kernels: test_trace.py", "core_map": "inside kernels", "mpmd_map": "inside kernels",
    "emit_pipeline": "inside kernels", "pipeline_body": "inside kernels", "parallel_loop": "inside kernels",
    "cudnn_fusion": "needs a GPU to be traced", "fused_call": "of jax.experimental.fused, on TPUs",
    "compute_on": "a scope in jax 0.10, with a call of its own in 0.12",
    "xla_metadata_call": "an option of a compiler, opened as a call",
}  # fmt: skip
"""Programs inside programs without a row, and why."""
