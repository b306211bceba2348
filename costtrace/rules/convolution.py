"""Convolution: 2 FLOPs per multiply-add whose tap is a real element of the input, 8 if complex.

Neither padding nor a hole made by lhs dilation is multiplied. It is what XLA's HloCostAnalysis counts.
"""

from __future__ import annotations

import math
from functools import lru_cache

from costtrace.core import Cost, Op
from costtrace.rules.contraction import operand_dtype
from costtrace.rules.table import is_complex, rule


@lru_cache(maxsize=4096)
def taps(n: int, k: int, outputs: int, stride: int, low: int, lhs_dilation: int, rhs_dilation: int) -> int:
    """Pairs (output o, tap t) of one dimension that meet a real element i of the n inputs:
    o stride + t rhs_dilation - low = i lhs_dilation. Loops over the shorter of the outputs and the k taps."""
    if k > outputs:  # o and t enter alike
        return taps(n, outputs, k, rhs_dilation, low, lhs_dilation, stride)
    shared = math.gcd(stride, lhs_dilation)
    step = lhs_dilation // shared  # the outputs that meet no hole are this far apart
    inverse = pow(stride // shared, -1, step)
    pairs = 0
    for t in range(k):
        start = low - t * rhs_dilation  # o stride - start = i lhs_dilation
        if start % shared:
            continue
        first = max(0, -(-start // stride))
        first += (start // shared * inverse - first) % step
        last = min(outputs - 1, (start + (n - 1) * lhs_dilation) // stride)
        pairs += max(0, (last - first) // step + 1)
    return pairs


@rule("conv_general_dilated")
def conv_general_dilated(op: Op) -> Cost:
    """2 (batch out) (features out) (features in / groups) prod_d taps_d: dimensions are independent."""
    lhs, rhs = op.inputs[:2]
    out, p = op.outputs[0], op.params
    lhs_dims, rhs_dims, out_dims = p["dimension_numbers"]
    multiply_adds = out.shape[out_dims[0]] * out.shape[out_dims[1]] * rhs.shape[rhs_dims[1]]
    for d, (low, _) in enumerate(p["padding"]):
        multiply_adds *= taps(
            lhs.shape[lhs_dims[d + 2]],
            rhs.shape[rhs_dims[d + 2]],
            out.shape[out_dims[d + 2]],
            p["window_strides"][d],
            low,
            p["lhs_dilation"][d],
            p["rhs_dilation"][d],
        )
    flops = multiply_adds * (8 if is_complex(lhs.dtype) else 2)
    return Cost(conv_flops=flops, by_dtype={operand_dtype(lhs, rhs): flops}) if flops else Cost()
