"""jax.experimental.sparse: work by stored elements (nse), whether they are zero or not.

A sparse contraction gathers, multiplies and adds: vector work, not the matrix unit's. So it is vector_flops, 2 per
multiply-add. Batch dimensions of size 1 that stand for a whole batch are counted in full.
"""

from __future__ import annotations

import math

from costtrace.core import MODELLED, Cost, Op
from costtrace.rules.contraction import extent
from costtrace.rules.table import rule, vector


@rule("coo_matvec", "csr_matvec", "coo_matmat", "csr_matmat", "coo_spmv", "csr_spmv", "coo_spmm", "csr_spmm")
def sparse_product(op: Op) -> Cost:
    """2 nse n: each stored element meets a row of n (1 for a vector). Operands: data, two index arrays, dense."""
    data, dense = op.inputs[0], op.inputs[3]
    return vector(2 * data.size * math.prod(dense.shape[1:]), op.outputs[0].dtype)


@rule("bcoo_dot_general", "bcsr_dot_general")
def sparse_dot_general(op: Op) -> Cost:
    """2 per stored element and element of the right operand's free dimensions."""
    data, dense = op.inputs[0], op.inputs[-1]
    (_, contracted), (_, batched) = op.params["dimension_numbers"]
    free = (d for d in range(len(dense.shape)) if d not in (*contracted, *batched))
    batches = len(op.inputs[1].shape) - (2 if op.primitive == "bcoo_dot_general" else 1)
    stored = math.prod(op.params["lhs_spinfo"].shape[:batches]) * math.prod(data.shape[batches:])
    return vector(2 * stored * extent(dense, free), op.outputs[0].dtype)


@rule("bcoo_dot_general_sampled")
def sampled_dot_general(op: Op) -> Cost:
    """2 k per sample: a dot product of k at each place of the result that is asked for."""
    (contracted, _), _ = op.params["dimension_numbers"]
    return vector(2 * op.outputs[0].size * extent(op.inputs[0], contracted), op.outputs[0].dtype)


@rule("bcoo_spdot_general", status=MODELLED)
def sparse_sparse_dot_general(op: Op) -> Cost:
    """Every pair of stored elements is compared and multiplied, as jax does; equal places are then added."""
    left, right = op.inputs[0], op.inputs[2]
    _, (batched, _) = op.params["dimension_numbers"]
    pairs = left.size * right.size // max(1, math.prod(op.params["lhs_spinfo"].shape[d] for d in batched))
    return vector(2 * pairs, op.outputs[0].dtype) + Cost(integer_ops=pairs * op.inputs[1].shape[-1])


@rule("bcoo_todense", "bcsr_todense", "coo_todense", "csr_todense", "todense")
def todense(op: Op) -> Cost:
    """1 addition per stored element: equal places add up. Free where the array is dense already."""
    data = op.inputs[0]
    return vector(data.size, data.dtype) if len(op.inputs) > 1 else Cost()


@rule("bcoo_fromdense", "bcsr_fromdense", "coo_fromdense", "csr_fromdense")
def fromdense(op: Op) -> Cost:
    """1 comparison with zero per element."""
    return Cost(integer_ops=op.inputs[0].size)


@rule("bcoo_extract", "bcsr_extract", "bcoo_transpose")
def sparse_movement(op: Op) -> Cost:
    """Free: stored elements are picked or renamed."""
    return Cost()


def _index_sort(op: Op) -> int:
    """n ceil(log2 n) comparisons of index rows, for the n stored elements of each batch."""
    indices = op.inputs[1]
    *batch, n, columns = indices.shape
    return math.prod(batch) * n * max(0, n - 1).bit_length() * columns


@rule("bcoo_sort_indices", status=MODELLED)
def sort_indices(op: Op) -> Cost:
    """A merge sort of the index rows."""
    return Cost(integer_ops=_index_sort(op))


@rule("bcoo_sum_duplicates", status=MODELLED)
def sum_duplicates(op: Op) -> Cost:
    """A merge sort of the index rows, and 1 addition per stored element."""
    data = op.inputs[0]
    return vector(data.size, data.dtype) + Cost(integer_ops=_index_sort(op))
