"""ROWS of what runs between chips and inside Pallas kernels. See rule_rows.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P
from rule_rows import FREE, Row, flops, ints, matmul, ops, row, traced

from costtrace.core import Cost, Op

SIZES = {"r": 2, "d": 4}


def sent(nbytes: int, axis: str = "d") -> Cost:
    return Cost(collective_bytes=nbytes, collective_bytes_by_axis={axis: nbytes})


def over(primitive: str, inputs: str, outputs: str, cost: Cost, what: str = "", **params: Any) -> Row:
    """A collective, with the sizes of the mesh that trace.py hands to it."""
    return row(primitive, inputs, outputs, cost, what, axis_sizes=SIZES, **params)


def mapped(primitive: str, fn: Callable[..., Any], args: str, cost: Cost, what: str = "", vma: bool = True) -> Row:
    """A collective as jax writes it inside shard_map over a mesh r=2, d=4; args are local."""

    def find() -> Op:
        mesh = AbstractMesh(tuple(SIZES.values()), tuple(SIZES), axis_types=(AxisType.Auto,) * 2)
        spread = [f"{dtype}[{8 * int(n.rstrip(']'))}]" for dtype, n in (a.split("[") for a in args.split())]
        whole = jax.shard_map(fn, mesh=mesh, in_specs=P(("r", "d")), out_specs=P(("r", "d")), check_vma=vma)
        found = next(o for o in ops(whole, *spread) if o.primitive == primitive)
        return Op(primitive, found.inputs, found.outputs, {**found.params, "axis_sizes": SIZES}, found.frame)

    return Row(primitive, find, cost, what)


def varying(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """fn, its result made to differ from device to device again, as shard_map's out_specs ask."""
    return lambda x: lax.pcast(fn(x), ("d",), to="varying")


# ---- collectives: 12 float32 (48 bytes) or 6 bfloat16 on each of 4 devices along d

SUM = sent(2 * 48 * 3 // 4) + flops(12 * 3 // 4)
ROWS = [over(p, "f32[12]", "f32[12]", SUM, axes=("d",)) for p in (
    "psum", "psum_invariant", "unreduced_psum", "pmax", "pmin", "unreduced_pmax", "unreduced_pmin", "psum_start",
    "psum_invariant_start", "unreduced_psum_start")]  # fmt: skip
ROWS += [over(p, "f32[12]", "f32[3]", sent(48 * 3 // 4) + flops(12 * 3 // 4), axis_name=("d",)) for p in (
    "reduce_scatter", "unreduced_reduce_scatter", "reduce_scatter_start",
    "unreduced_reduce_scatter_start")]  # fmt: skip
ROWS += [over(p, "f32[12]", "f32[48]", sent(3 * 48), axis_name=("d",)) for p in (
    "all_gather", "all_gather_invariant", "all_gather_reduced", "all_gather_start",
    "all_gather_reduced_start")]  # fmt: skip
ROWS += [over(p, "f32[12]", "f32[12]", sent(48 * 3 // 4), axis_name=("d",)) for p in ("all_to_all", "all_to_all_start")]
RING = ((0, 1), (1, 2), (2, 3), (3, 0))
ROWS += [over(p, "f32[12]", "f32[12]", sent(48), axis_name=("d",), perm=RING) for p in (
    "ppermute", "ppermute_start", "psend")]  # fmt: skip
ROWS += [over(p, "f32[12]", "f32[12]", sent(48), axis_name=("d",)) for p in (
    "pbroadcast", "pbroadcast_dynamic", "pbroadcast_start")]  # fmt: skip
ROWS += [over(p, "f32[12]", "f32[12]", FREE, axis_name=("d",)) for p in (
    "psum_done", "all_gather_done", "reduce_scatter_done", "all_to_all_done", "ppermute_done", "pbroadcast_done",
    "precv", "axis_index", "pvary", "preduced", "reduced_vary_cast", "reduced_vary_cast_p", "vary_unreduced_cast",
    "vary_unreduced_cast_p")]  # fmt: skip
ROWS += [
    over("ragged_all_to_all", "f32[12] f32[20] i32[4] i32[4] i32[4] i32[4]", "f32[20]", sent(48 * 3 // 4),
         axis_name=("d",)),
    over("psum", "bf16[6] f32[12]", "bf16[6] f32[12]",
         sent(2 * (12 + 48) * 3 // 4) + flops(5, "bfloat16") + flops(9), "of two arrays", axes=("d",)),
    over("psum", "f32[16]", "f32[16]", sent(2 * 64 * 7 // 8, "r,d") + flops(14), "two axes are one group",
         axes=("r", "d")),
    over("psum", "i32[12]", "i32[12]", sent(72) + ints(9), "of integers", axes=("d",)),
    over("psum", "f32[12]", "f32[12]", sent(2 * 48 // 2) + flops(6), "in groups of two", axes=("d",),
         axis_index_groups=((0, 1), (2, 3))),
    over("psum", "f32[5,12]", "f32[12]", flops(4 * 12), "of a vmapped axis alone", axes=(0,)),
    over("psum", "f32[5,12]", "f32[12]", flops(4 * 12) + SUM, "of a vmapped axis and a mesh axis", axes=(0, "d")),
    row("psum", "f32[12]", "f32[12]", FREE, "of one device", axes=("d",), axis_sizes={"d": 1}),
    row("all_gather", "f32[12]", "f32[48]", sent(3 * 48), "that knows its own size", axis_name="d", axis_size=4),
    over("ppermute", "f32[12]", "f32[12]", FREE, "of nothing", axis_name="d", perm=()),
    over("ppermute", "f32[12]", "f32[12]", FREE, "to itself", axis_name="d", perm=((0, 0), (1, 1))),
    mapped("psum_invariant", varying(lambda x: lax.psum(x, "d")), "f32[12]", SUM, "as jax writes it"),
    mapped("psum", lambda x: lax.psum(x, "d"), "f32[12]", SUM, "as jax writes it, unchecked", vma=False),
    mapped("all_gather", lambda x: lax.all_gather(x, "d"), "f32[12]", sent(3 * 48), "as jax writes it"),
    mapped("reduce_scatter", lambda x: lax.psum_scatter(x, "d", tiled=True), "f32[12]",
           sent(48 * 3 // 4) + flops(9), "as jax writes it"),
    mapped("all_to_all", lambda x: lax.all_to_all(x, "d", 0, 0, tiled=True), "f32[12]", sent(36), "as jax writes it"),
    mapped("ppermute", lambda x: lax.ppermute(x, "d", RING), "f32[12]", sent(48), "as jax writes it"),
    mapped("pmax", varying(lambda x: lax.pmax(x, "d")), "f32[12]", SUM, "as jax writes it", vma=False),
]  # fmt: skip

# ---- inside kernels

ROWS += [row(p, "i32[]", "i32[]", FREE) for p in (
    "program_id", "num_programs", "multiple_of", "max_contiguous", "delay", "barrier", "debug_barrier",
    "debug_barrier_p", "semaphore_read", "semaphore_signal", "semaphore_wait", "semaphore_signal_multicast",
    "semaphore_signal_parallel", "get_barrier_semaphore", "barrier_arrive", "barrier_arrive_and_wait", "barrier_test",
    "barrier_wait", "commit_group", "commit_smem", "commit_tmem", "wgmma_wait", "wait_load_tmem", "wait_smem_to_gmem",
    "wait_gmem_to_smem", "tcgen05_commit_arrive", "griddepcontrol_wait", "griddepcontrol_launch_dependents",
    "set_max_registers", "set_max_registers_p", "try_cluster_cancel", "query_cluster_cancel", "print_layout",
    "trace_value", "prng_seed", "prng_split", "prng_join")]  # fmt: skip
ROWS += [row(p, "f32[3,5]", "f32[3,5]", FREE) for p in (
    "dma_wait", "copy_gmem_to_smem", "copy_smem_to_gmem", "async_prefetch", "async_load", "async_store_smem",
    "async_store_tmem", "async_copy_smem_to_tmem", "async_copy_scales_to_tmem", "async_copy_sparse_metadata_to_tmem",
    "mgpu_atomic_store", "wgmma_accumulator_deref", "wgmma_accumulator_deref_p", "wgmma_accumulator_store",
    "wgmma_accumulator_store_p", "matmul_push_rhs", "matmul_pop", "matmul_pop_fifo", "roll", "bitcast", "pack",
    "unpack", "pack_elementwise", "unpack_elementwise", "pack_dtype", "unpack_dtype", "einshape_lo", "layout_cast",
    "stochastic_round")]  # fmt: skip


def copies(remote: bool) -> Callable[[Any], Any]:
    """A kernel that copies 2 of its 6 rows: into its own memory, or into the memory of device 1."""

    def kernel(x_ref: Any, o_ref: Any, sem: Any, other: Any) -> None:
        row = pl.ds(pl.program_id(0) * 2, 2)
        if remote:
            copy = pltpu.make_async_remote_copy(x_ref.at[row], o_ref.at[row], sem, other, device_id=(1,))
        else:
            copy = pltpu.make_async_copy(x_ref.at[row], o_ref.at[row], sem)
        copy.start()
        copy.wait()

    scratch = [pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA]
    memory = pl.BlockSpec(memory_space=pl.ANY)
    return lambda x: pl.pallas_call(kernel, grid=(3,), in_specs=[memory], out_specs=memory, out_shape=x,
                                    scratch_shapes=scratch)(x)  # fmt: skip


def hopper(a: Any, b: Any) -> Any:
    """acc (64, 128) += a[slot] (64, 32) @ b (32, 128) on the tensor core."""

    def kernel(a_ref: Any, b_ref: Any, o_ref: Any, a_smem: Any, b_smem: Any) -> None:
        def scope(acc: Any) -> Any:
            plgpu.wgmma(acc, a_smem.at[lax.axis_index("i")], b_smem)
            return acc[...]

        o_ref[...] = pl.run_scoped(scope, plgpu.ACC((64, 128), jnp.float32)).astype(jnp.float16)

    scratch = [plgpu.SMEM((2, 64, 32), jnp.float16), plgpu.SMEM((32, 128), jnp.float16)]
    out = jax.ShapeDtypeStruct((64, 128), jnp.float16)
    return plgpu.kernel(kernel, out_type=out, grid=(2,), grid_names=("i",), scratch_types=scratch)(a, b)


def blackwell(a: Any, b: Any) -> Any:
    """Half of acc, (128, 64), += a[slot] (128, 32) @ b[slot] (32, 64) on the tensor core."""

    def kernel(a_ref: Any, b_ref: Any, o_ref: Any, a_smem: Any, b_smem: Any, acc: Any, bar: Any) -> None:
        slot = lax.axis_index("i")
        plgpu.tcgen05_mma(acc.at[:, pl.ds(64, 64)], a_smem.at[slot], b_smem.at[slot], bar, accumulate=False)

    scratch = [plgpu.SMEM((2, 128, 32), jnp.float16), plgpu.SMEM((2, 32, 64), jnp.float16),
               plgpu.TMEM((128, 128), jnp.float32), plgpu.Barrier(orders_tensor_core=True)]  # fmt: skip
    out = jax.ShapeDtypeStruct((128, 64), jnp.float16)
    return plgpu.kernel(kernel, out_type=out, grid=(2,), grid_names=("i",), scratch_types=scratch)(a, b)


NO_TREES = {"acc_transforms_tree": None, "a_transforms_tree": None}
ROWS += [
    traced("dma_start", copies(remote=False), "f32[6,5]", FREE, "within a chip"),
    traced("dma_start", copies(remote=True), "f32[6,5]", sent(2 * 5 * 4, "remote"), "to another chip: two rows"),
    traced("wgmma_ref", hopper, "f16[64,32] f16[32,128]", matmul(2 * 64 * 128 * 32, "float16")),
    row("wgmma", "f32[64,128] bf16[64,32] bf16[32,128]", "f32[64,128]", matmul(2 * 64 * 128 * 32, "bfloat16")),
    row("tcgen05_mma", "f32[128,64] bf16[128,32] bf16[32,64] bool[] i32[1]", "", matmul(2 * 128 * 64 * 32, "bfloat16"),
        arrive=True, scaled=False, sparse=False, **NO_TREES),
    traced("tcgen05_mma", blackwell, "f16[128,32] f16[32,64]", matmul(2 * 128 * 64 * 32, "float16"), "of views"),
    row("mma", "f32[16,8] f16[16,32] f16[32,8]", "f32[16,8]", matmul(2 * 16 * 8 * 32, "float16")),
    *(row(p, "bf16[24,256]", "", matmul(2 * 24 * 256 * 256, "bfloat16"))
      for p in ("matmul_acc_lhs", "matmul_lhs_fifo")),
    row("matmul_lhs_fifo", "i4[24,512]", "", matmul(2 * 24 * 512 * 256, "int4"), "two values in a lane"),
    row("all_reduce_population_count", "bool[16]", "i32[]", ints(16)),
    row("all_reduce_ffs", "bool[16]", "i32[]", ints(16)),
    row("prng_random_bits", "", "i32[8,128]", ints(8 * 128)),
    row("sc_fetch_and_add", "i32[16] i32[] i32[]", "i32[]", ints(1)),
    row("atomic_cas", "i32[] i32[] i32[]", "i32[]", ints(1)),
    row("atomic_rmw", "f32[64] f32[32]", "f32[32]", flops(32)),
]  # fmt: skip
