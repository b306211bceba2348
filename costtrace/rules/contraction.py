"""Matrix products: 2 FLOPs per multiply-add, 8 if complex. Integer products count alike and are told by dtype.

b, m, n, k are the batch, left, right and contracted sizes. Every contraction is doubled, the outer product (k = 1)
too, as XLA does. A `precision` that takes several passes over the matrix unit is still one product.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from costtrace.core import Cost, Op, Value
from costtrace.rules.table import is_complex, is_float, rule, vector


def operand_dtype(lhs: Value, rhs: Value) -> str:
    """The dtype that names a product: the left operand's; where they differ the wider, floating before integer."""
    return max(lhs, rhs, key=lambda v: (v.bits, is_float(v.dtype))).dtype


def product(multiply_adds: int, lhs: Value, rhs: Value) -> Cost:
    """The cost of so many multiply-adds between elements of lhs and rhs."""
    flops = multiply_adds * (8 if is_complex(lhs.dtype) or is_complex(rhs.dtype) else 2)
    return Cost(matmul_flops=flops, by_dtype={operand_dtype(lhs, rhs): flops}) if flops else Cost()


def extent(value: Value, dims: Iterable[int]) -> int:
    """The number of elements along `dims` of a value."""
    return math.prod(value.shape[d] for d in dims)


@rule("dot_general")
def dot_general(op: Op) -> Cost:
    """2 b m n k: each of the b m n results is a sum of k products."""
    lhs, rhs = op.inputs[:2]
    (contracting, _), _ = op.params["dimension_numbers"]
    return product(op.outputs[0].size * extent(lhs, contracting), lhs, rhs)


@rule("ragged_dot_general")
def ragged_dot_general(op: Op) -> Cost:
    """2 b m n k, independent of the number of groups g: each row meets one group's matrix.

    A ragged m, (b, m, k) x (g, b, k, n) -> (b, m, n), and a ragged b are the plain product. A ragged k,
    (b, m, k) x (b, k, n) -> (g, b, m, n), splits one sum of k over g results. The groups are taken to hold every row.
    """
    lhs, rhs, group_sizes = op.inputs[:3]
    numbers = op.params["ragged_dot_dimension_numbers"]
    (contracting, _), _ = numbers.dot_dimension_numbers
    results = op.outputs[0].size
    if set(numbers.lhs_ragged_dimensions) & set(contracting):
        results //= max(1, group_sizes.shape[-1])
    return product(results * extent(lhs, contracting), lhs, rhs)


@rule("scaled_dot")
def scaled_dot(op: Op) -> Cost:
    """2 b m n k, and 1 bfloat16 multiplication per element of each operand for its block's scale, as jax defines it."""
    lhs, rhs = op.inputs[:2]
    (contracting, _), _ = op.params["dimension_numbers"]
    return product(op.outputs[0].size * extent(lhs, contracting), lhs, rhs) + vector(lhs.size + rhs.size, "bfloat16")


@rule("scaled_matmul", "scaled_matmul_wrapper")
def scaled_matmul(op: Op) -> Cost:
    """2 b m n k on (b, m, k) x (b, n, k), the matrix unit applying the block scales: 1 multiplication per operand
    element, in float32."""
    lhs, rhs = op.inputs[:2]
    return product(op.outputs[0].size * lhs.shape[-1], lhs, rhs) + vector(lhs.size + rhs.size, "float32")
