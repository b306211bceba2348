"""What stands in a Pallas kernel's body besides ordinary primitives: TPU and GPU instructions."""

from __future__ import annotations

import math
from typing import Any

from costtrace.core import MODELLED, Cost, Op, Value
from costtrace.rules.collective import sent
from costtrace.rules.contraction import product
from costtrace.rules.convolution import conv_general_dilated
from costtrace.rules.reduction import lines
from costtrace.rules.table import rule, vector


def viewed(ref: Value, transforms: Any) -> tuple[int, ...]:
    """The shape of a reference as its indexers show it; other transforms (transposes, tilings) keep its size."""
    shape = ref.shape
    for transform in transforms:
        indexed = getattr(transform, "get_indexer_shape", None)
        shape = tuple(indexed()) if indexed else shape
    return shape


def accumulated(op: Op, start: int) -> Cost:
    """2 m n k of acc (m, n) += a (m, k) b (k, n) on references: a's elements times acc's columns. The leaves of the
    references' transforms begin at operand `start`."""
    acc, a, b = op.inputs[:3]
    shapes = []
    for ref, name in ((acc, "acc_transforms_tree"), (a, "a_transforms_tree")):
        tree = op.params.get(name)
        count = tree.num_leaves if tree else 0
        shapes.append(viewed(ref, tree.unflatten(op.inputs[start : start + count]) if tree else ()))
        start += count
    return product(math.prod(shapes[1]) * shapes[0][-1], a, b)


@rule("program_id", "num_programs", "multiple_of", "max_contiguous", "delay", "barrier", "debug_barrier",
      "debug_barrier_p", "semaphore_read", "semaphore_signal", "semaphore_wait", "semaphore_signal_multicast",
      "semaphore_signal_parallel", "get_barrier_semaphore", "barrier_arrive", "barrier_arrive_and_wait",
      "barrier_test", "barrier_wait", "commit_group", "commit_smem", "commit_tmem", "wgmma_wait", "wait_load_tmem",
      "wait_smem_to_gmem", "wait_gmem_to_smem", "tcgen05_commit_arrive", "griddepcontrol_wait",
      "griddepcontrol_launch_dependents", "set_max_registers", "set_max_registers_p", "try_cluster_cancel",
      "query_cluster_cancel", "print_layout", "trace_value", "prng_seed", "prng_split", "prng_join")  # fmt: skip
def control(op: Op) -> Cost:
    """Free: indices, hints, waiting, set-up."""
    return Cost()


@rule("dma_wait", "copy_gmem_to_smem", "copy_smem_to_gmem", "async_prefetch", "async_load", "async_store_smem",
      "async_store_tmem", "async_copy_smem_to_tmem", "async_copy_scales_to_tmem", "mgpu_atomic_store",
      "async_copy_sparse_metadata_to_tmem", "wgmma_accumulator_deref", "wgmma_accumulator_deref_p",
      "wgmma_accumulator_store", "wgmma_accumulator_store_p", "matmul_push_rhs", "matmul_pop",
      "matmul_pop_fifo")  # fmt: skip
def copy(op: Op) -> Cost:
    """Free: moves data inside the chip. (A DMA's own addition is the memory's work.)"""
    return Cost()


@rule("roll", "bitcast", "pack", "unpack", "pack_elementwise", "unpack_elementwise", "pack_dtype", "unpack_dtype",
      "einshape_lo", "layout_cast", "stochastic_round")  # fmt: skip
def rearrangement(op: Op) -> Cost:
    """Free: elements change place or format, as in reshape and casts."""
    return Cost()


@rule("dma_start")
def dma_start(op: Op) -> Cost:
    """Free within a chip; to another device (`device_id`) the source's bytes leave, over the axis "remote"."""
    source, _, _, _, device = op.params["tree"].unflatten(op.inputs)
    if device is None:
        return Cost()
    ref = getattr(source, "ref", source)
    nbytes = -(-math.prod(viewed(ref, getattr(source, "transforms", ()))) * ref.bits // 8)
    return sent(op, nbytes, "remote")


@rule("wgmma_ref", "wgmma")
def wgmma(op: Op) -> Cost:
    """2 m n k: acc (m, n) += a (m, k) b (k, n). Operands: acc, a, b, then what their transforms hold."""
    return accumulated(op, 3)


@rule("tcgen05_mma")
def tcgen05_mma(op: Op) -> Cost:
    """2 m n k: acc (m, n) += a (m, k) b (k, n); a 2:4 sparse a holds k/2 and is counted so. The scales of a block
    scaled product are the matrix unit's own. Operands: acc, a, b, accumulate, perhaps a barrier, two scales, the
    sparse places; then what the transforms hold."""
    p = op.params
    return accumulated(op, 4 + bool(p["arrive"]) + 2 * bool(p["scaled"]) + bool(p["sparse"]))


@rule("mma")
def mma(op: Op) -> Cost:
    """2 m n k: acc (m, n) + a (m, k) b (k, n)."""
    acc, a, b = op.inputs[:3]
    return product(acc.size * a.shape[-1], a, b)


@rule("matmul_acc_lhs", "matmul_lhs_fifo")
def matmul_acc_lhs(op: Op) -> Cost:
    """2 m k n: lhs (m, k) meets the weights that the square matrix unit holds, so n = k (k/2 below a byte, where two
    values share a lane). Source: jax's docstrings of both, k is the unit's column size."""
    lhs = op.inputs[0]
    return product(lhs.size * (lhs.shape[-1] // (2 if lhs.bits < 8 else 1)), lhs, lhs)


@rule("conv")
def conv(op: Op) -> Cost:
    """As conv_general_dilated, and 1 addition per element of an accumulator that is given."""
    cost = conv_general_dilated(op)
    return cost + (vector(op.inputs[2].size, op.inputs[2].dtype) if len(op.inputs) > 2 else Cost())


@rule("masked_cumsum", "masked_cummax", "masked_cummin")
def masked_cumulative(op: Op) -> Cost:
    """(n - 1) per line of n, masked or not."""
    of = op.inputs[0]
    count, n = lines(of, len(of.shape) - 1)
    return vector(count * (n - 1), of.dtype)


@rule("masked_sort", "unique", "scan_count", status=MODELLED)
def masked_sort(op: Op) -> Cost:
    """n ceil(log2 n) comparisons per vector of n lanes; counting equal lanes compares as a sort does."""
    of = op.inputs[0]
    count, n = lines(of, len(of.shape) - 1)
    return Cost(integer_ops=count * n * max(0, n - 1).bit_length())


@rule("all_reduce_population_count", "all_reduce_ffs", "prng_random_bits", "sc_fetch_and_add", "atomic_cas")
def lane(op: Op) -> Cost:
    """1 integer operation per element: of a mask that is counted or searched, of random bits, of an atomic."""
    of = op.inputs[0] if op.primitive.startswith("all_reduce") else op.outputs[0]
    return Cost(integer_ops=of.size)


@rule("atomic_rmw")
def atomic_rmw(op: Op) -> Cost:
    """1 operation per element of the value."""
    out = op.outputs[0]
    return vector(out.size, out.dtype)
