"""ROWS of the products, convolutions, factorizations, transforms, attention and sparse algebra. See rule_rows.py."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import sparse
from rule_rows import E4M3, FREE, conv, flops, ints, matmul, row, traced

from costtrace.core import Cost
from costtrace.doors import cudnn_traceable
from costtrace.rules.factorization import geqrf_flops, orgqr_flops

# ---- products

DOT_RAGGED_K = lax.RaggedDotDimensionNumbers((((1,), (0,)), ((), ())), lhs_ragged_dimensions=[1],
                                             rhs_group_dimensions=[])  # fmt: skip
DOT_RAGGED_B = lax.RaggedDotDimensionNumbers((((2,), (1,)), ((0,), (0,))), lhs_ragged_dimensions=[0],
                                             rhs_group_dimensions=[])  # fmt: skip


def einsum(text: str, **more: Any) -> Any:
    return partial(jnp.einsum, text, **more)


def scaled(a: jax.Array, b: jax.Array) -> jax.Array:
    return lax.scaled_dot(a, b, preferred_element_type=jnp.float32)


ROWS = [
    traced("dot_general", einsum("mk,kn->mn"), "f32[3,5] f32[5,7]", matmul(2 * 3 * 7 * 5)),
    traced("dot_general", einsum("bmxk,bxkn->bmn"), "f32[2,3,5,11] f32[2,5,11,7]", matmul(2 * 2 * 3 * 7 * (5 * 11)),
           "a batch, two contracted dimensions"),
    traced("dot_general", einsum("bi,bj->bij"), "f32[2,3] f32[2,5]", matmul(2 * 2 * 3 * 5), "k = 1 is doubled too"),
    traced("dot_general", einsum("k,k->"), "f32[5] f32[5]", matmul(2 * 5), "a dot product"),
    traced("dot_general", einsum("mk,kn->mn"), "c64[3,5] c64[5,7]", matmul(8 * 3 * 7 * 5, "complex64")),
    traced("dot_general", partial(lax.dot, preferred_element_type=jnp.int32), "i8[3,5] i8[5,7]",
           matmul(2 * 3 * 7 * 5, "int8"), "integers are told by dtype"),
    traced("dot_general", lambda a, b: lax.dot_general(a, b, (((1,), (0,)), ((), ()))), "bf16[3,5] f32[5,7]",
           matmul(2 * 3 * 7 * 5), "named by the wider operand"),
    row("dot_general", f"i8[3,5] {E4M3}[5,7]", "f32[3,7]", matmul(2 * 3 * 7 * 5, E4M3), "floating before integer",
        dimension_numbers=(((1,), (0,)), ((), ()))),
    traced("dot_general", einsum("mk,kn->mn"), "f32[0,5] f32[5,7]", FREE, "of nothing"),
    traced("dot_general", einsum("mk,kn->mn"), "f32[3,0] f32[0,7]", FREE, "over nothing"),
    traced("ragged_dot_general", lax.ragged_dot, "f32[11,5] f32[3,5,7] i32[3]", matmul(2 * 11 * 7 * 5)),
    traced("ragged_dot_general", partial(lax.ragged_dot_general, ragged_dot_dimension_numbers=DOT_RAGGED_K),
           "f32[5,11] f32[11,7] i32[3]", matmul(2 * 5 * 7 * 11), "ragged k: (3, 5, 7) results share one sum"),
    traced("ragged_dot_general", partial(lax.ragged_dot_general, ragged_dot_dimension_numbers=DOT_RAGGED_B),
           "f32[2,5,11] f32[2,11,7] i32[3]", matmul(2 * 2 * 5 * 7 * 11), "ragged batch"),
    traced("scaled_dot", scaled, f"{E4M3}[2,3,64] {E4M3}[2,64,7]",
           matmul(2 * 2 * 3 * 7 * 64, E4M3) + flops(2 * 64 * (3 + 7), "bfloat16")),
    *(row(p, f"{E4M3}[2,3,64] {E4M3}[2,7,64] u8[2,3,2] u8[2,7,2]", "f32[2,3,7]",
          matmul(2 * 2 * 3 * 7 * 64, E4M3) + flops(2 * 64 * (3 + 7)))
      for p in ("scaled_matmul", "scaled_matmul_wrapper")),
]  # fmt: skip

# ---- convolutions; brute force and XLA in test_rules.py

NHWC = ("NHWC", "HWIO", "NHWC")


def conv2d(padding: Any, **more: Any) -> Any:
    return partial(lax.conv_general_dilated, window_strides=(1, 1), padding=padding, dimension_numbers=NHWC, **more)


ROWS += [
    traced("conv_general_dilated", conv2d("VALID"), "f32[2,9,7,5] f32[3,3,5,4]",
           conv(2 * 2 * 4 * 5 * (7 * 3) * (5 * 3))),
    traced("conv_general_dilated", conv2d("SAME"), "f32[2,9,7,5] f32[3,3,5,4]",
           conv(2 * 2 * 4 * 5 * (3 * 9 - 2) * (3 * 7 - 2)), "padding is not multiplied"),
    traced("conv_general_dilated", conv2d("VALID", feature_group_count=6), "f32[1,9,7,6] f32[3,3,1,12]",
           conv(2 * 12 * 1 * (7 * 3) * (5 * 3)), "depthwise"),
    traced("conv_general_dilated", conv2d("VALID", batch_group_count=2), "f32[4,9,7,5] f32[3,3,5,6]",
           conv(2 * (4 // 2) * 6 * 5 * (7 * 3) * (5 * 3)), "two batch groups"),
    traced("conv_general_dilated", conv2d(((1, 1), (1, 1)), lhs_dilation=(2, 2)), "f32[1,6,5,3] f32[2,2,3,7]",
           conv(2 * 7 * 3 * (6 * 2) * (5 * 2)), "transposed: each input meets each tap"),
    traced("conv_general_dilated", conv2d("VALID"), "c64[1,9,7,5] c64[3,3,5,4]",
           conv(8 * 4 * 5 * (7 * 3) * (5 * 3), "complex64")),
    row("conv", "bf16[1,2,9] bf16[4,2,3] bf16[1,4,7]", "bf16[1,4,7]",
        conv(2 * 4 * 2 * (7 * 3), "bfloat16") + flops(4 * 7, "bfloat16"), "in a kernel, with an accumulator",
        dimension_numbers=((0, 1, 2), (0, 1, 2), (0, 1, 2)), padding=((0, 0),), window_strides=(1,),
        lhs_dilation=(1,), rhs_dilation=(1,)),
]  # fmt: skip

# ---- Fourier

FFT = jnp.fft
ROWS += [
    traced("fft", FFT.fft, "c64[3,64]", Cost(fft_flops=3 * 5 * 64 * 6, vector_by_dtype={"complex64": 3 * 5 * 64 * 6})),
    traced("fft", FFT.fft2, "c64[3,8,32]", Cost(fft_flops=3 * 5 * (8 * 32) * (3 + 5),
                                                vector_by_dtype={"complex64": 3 * 5 * (8 * 32) * (3 + 5)}), "2-d"),
    traced("fft", FFT.rfft, "f32[3,64]", Cost(fft_flops=3 * 5 * 64 * 6 // 2,
                                              vector_by_dtype={"float32": 3 * 5 * 64 * 6 // 2}), "real"),
    traced("fft", FFT.irfft, "c64[3,33]", Cost(fft_flops=3 * 5 * 64 * 6 // 2,
                                               vector_by_dtype={"complex64": 3 * 5 * 64 * 6 // 2}), "back to real"),
    traced("fft", FFT.fft, "c64[3,1]", FREE, "of one point"),
]  # fmt: skip

# ---- linear algebra


def linalg(n: int | Fraction, dtype: str = "float32") -> Cost:
    return Cost(linalg_flops=int(n), vector_by_dtype={dtype: int(n)})


LA = lax.linalg
ROWS += [
    traced("cholesky", LA.cholesky, "f32[2,6,6]", linalg(2 * (6**3 // 3 + 6**2 // 2 + 6 // 6))),
    traced("cholesky", LA.cholesky, "c64[6,6]", linalg(4 * (6**3 // 3 + 6**2 // 2 + 6 // 6), "complex64"), "complex"),
    traced("cholesky_update", LA.cholesky_update, "f32[6,6] f32[6]", linalg(3 * 6**2)),
    traced("lu", LA.lu, "f32[2,9,6]", linalg(2 * (9 * 6**2 - 6**3 // 3 - 6**2 // 2 + 5 * 6 // 6))),
    traced("lu", LA.lu, "f32[6,9]", linalg(9 * 6**2 - 6**3 // 3 - 6**2 // 2 + 5 * 6 // 6), "wide"),
    traced("lu_pivots_to_permutation", lambda p: LA.lu_pivots_to_permutation(p, 9), "i32[2,6]", ints(2 * 6)),
    traced("triangular_solve", partial(LA.triangular_solve, left_side=True), "f32[2,6,6] f32[2,6,5]",
           linalg(2 * 6**2 * 5)),
    traced("triangular_solve", partial(LA.triangular_solve, left_side=False), "f32[6,6] f32[5,6]", linalg(6**2 * 5),
           "from the right"),
    row("geqrf", "f32[9,6]", "f32[9,6] f32[6]", linalg(2 * 9 * 36 - 2 * 72 + 9 * 6 + 36 + 14 * 2)),
    row("geqrf", "f32[6,9]", "f32[6,9] f32[6]", linalg(2 * 9 * 36 - 2 * 72 + 3 * 9 * 6 - 36 + 14 * 2), "wide"),
    row("geqp3", "f32[9,6] i32[6]", "f32[9,6] i32[6] f32[6]",
        linalg(geqrf_flops(9, 6) + 2 * 9 * 6 + 3 * (5 + 4 + 3 + 2 + 1))),
    traced("householder_product", LA.householder_product, "f32[9,6] f32[3]",
           linalg(4 * 9 * 6 * 3 - 2 * (9 + 6) * 9 + 4 * 27 // 3 + 3 * 6 * 3 - 9 * 3 - 9 - 4 * 3 // 3)),
    row("ormqr", "f32[9,3] f32[3] f32[9,6]", "f32[9,6]", linalg(4 * 9 * 6 * 3 - 2 * 6 * 9 + 3 * 6 * 3), left=True),
    row("ormqr", "f32[9,3] f32[3] f32[6,9]", "f32[6,9]",
        linalg(4 * 6 * 9 * 3 - 2 * 6 * 9 + 2 * 6 * 3 + 9 * 3 - (9 - 3) // 2),
        "from the right", left=False),
    traced("qr", partial(LA.qr, full_matrices=False), "f32[9,6]", linalg(geqrf_flops(9, 6) + orgqr_flops(9, 6, 6))),
    traced("qr", partial(LA.qr, full_matrices=True), "f32[9,6]", linalg(geqrf_flops(9, 6) + orgqr_flops(9, 9, 6)),
           "full"),
    traced("eigh", LA.eigh, "f32[2,6,6]", linalg(2 * 9 * 6**3)),
    traced("eig", partial(LA.eig, compute_left_eigenvectors=False, compute_right_eigenvectors=False), "f32[6,6]",
           linalg(10 * 6**3), "values"),
    traced("eig", partial(LA.eig, compute_left_eigenvectors=False), "f32[6,6]", linalg(79 * 6**3 // 3), "vectors"),
    traced("eig", LA.eig, "f32[6,6]", linalg(79 * 6**3 // 3 + 4 * 6**3 // 3), "vectors of both sides"),
    traced("schur", LA.schur, "f32[6,6]", linalg(25 * 6**3)),
    traced("schur", partial(LA.schur, compute_schur_vectors=False), "f32[6,6]", linalg(10 * 6**3), "values"),
    traced("svd", partial(LA.svd, compute_uv=False), "f32[9,6]", linalg(4 * 9 * 36 - 4 * 216 // 3), "values"),
    traced("svd", partial(LA.svd, compute_uv=False), "f32[90,6]", linalg(2 * 90 * 36 + 2 * 216), "values, tall"),
    traced("svd", partial(LA.svd, full_matrices=False), "f32[2,6,9]", linalg(2 * (14 * 9 * 36 + 8 * 216)), "thin"),
    traced("svd", partial(LA.svd, full_matrices=False), "f32[90,6]", linalg(6 * 90 * 36 + 20 * 216), "thin, tall"),
    traced("svd", LA.svd, "f32[9,6]", linalg(4 * 81 * 6 + 8 * 9 * 36 + 9 * 216), "full"),
    traced("hessenberg", LA.hessenberg, "f32[6,6]", linalg(10 * 216 // 3 - 18 - 11)),
    traced("tridiagonal", LA.tridiagonal, "f32[6,6]", linalg(4 * 216 // 3 + 7 * 18 - 17)),
    traced("tridiagonal_solve", LA.tridiagonal_solve, "f32[6] f32[6] f32[6] f32[6,5]", linalg(6 * (3 + 5 * 5))),
    traced("symmetric_product", LA.symmetric_product, "f32[6,5] f32[6,6]", linalg((5 + 1) * 6 * 7)),
]  # fmt: skip

# ---- attention (2 sequences, 3 heads, 5 queries, 7 keys, sizes 8 and 16) and LSTMs

SCORES, LINES = 2 * 3 * 5 * 7, 2 * 3 * 5
FORWARD = matmul(2 * SCORES * (8 + 16), "bfloat16") + flops(5 * SCORES - 2 * LINES, transcendentals=SCORES)
BACKWARD = (matmul(2 * SCORES * (3 * 8 + 2 * 16), "bfloat16")
            + flops(5 * SCORES + LINES * (2 * 16 - 1), transcendentals=SCORES))  # fmt: skip
BTNH = "bf16[2,5,3,8] bf16[2,7,3,8] bf16[2,7,3,16] bf16[0]" + " i32[0]" * 6
BNTH = "bf16[2,3,5,8] bf16[2,1,7,8] bf16[2,1,7,16] bf16[0]" + " i32[0]" * 6
PAGED = "bf16[2,5,3,8] bf16[99,7,3,8] bf16[99,7,3,16] bf16[0]" + " i32[2]" * 4 + " i32[2,1,4,1] i32[2,1,4,1]"
NO_BIAS, BIAS = (False, False), (True, False)
FP8 = f"{E4M3}[2,5,3,8] {E4M3}[2,7,3,8] {E4M3}[2,7,3,16]" + " f32[1]" * 6
EIGHT_BIT = {"matmul_flops": FORWARD.matmul_flops, "by_dtype": {E4M3: FORWARD.matmul_flops}}
EIGHT_BIT_BACK = {"matmul_flops": BACKWARD.matmul_flops, "by_dtype": {E4M3: BACKWARD.matmul_flops}}
STEPS = 2 * 5 * 6  # batch x time x hidden
LAYERS = 2 * STEPS * 4 * ((8 + 6) + (2 * 6 + 6))  # both directions of two layers: multiply-adds
LSTM = {"input_size": 8, "hidden_size": 6, "num_layers": 2, "bidirectional": True}


def cudnn(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    with cudnn_traceable():
        return jax.nn.dot_product_attention(q, k, v, implementation="cudnn")


for way in ("", "_wrapper"):
    f, b = f"dot_product_attention_fwd{way}", f"dot_product_attention_bwd{way}"
    ROWS += [
        row(f, BTNH, "bf16[2,5,3,16]", FORWARD, layout=0, variadic_args=NO_BIAS),
        row(f, BNTH, "bf16[2,3,5,16]", FORWARD, "heads first, one key head", layout=1, variadic_args=NO_BIAS),
        row(f, BTNH, "bf16[2,5,3,16]", FORWARD + flops(SCORES), "biased", layout=0, variadic_args=BIAS),
        row(b, BTNH, "bf16[2,5,3,8]", BACKWARD, layout=0, variadic_args=NO_BIAS),
        row(f"dot_product_attention_fp8_fwd{way}", FP8, f"{E4M3}[2,5,3,16]", FORWARD.replace(**EIGHT_BIT), layout=0),
        row(f"dot_product_attention_fp8_bwd{way}", FP8, f"{E4M3}[2,5,3,8]", BACKWARD.replace(**EIGHT_BIT_BACK),
            layout=0),
    ]  # fmt: skip
ROWS += [
    traced("dot_product_attention_fwd_wrapper", cudnn, "bf16[2,64,4,64] bf16[2,64,4,64] bf16[2,64,4,64]",
           matmul(4 * 2 * 4 * 64 * 64 * 64, "bfloat16")
           + flops(5 * 2 * 4 * 64 * 64 - 2 * 2 * 4 * 64, transcendentals=2 * 4 * 64 * 64), "as jax calls it"),
    row("dot_product_attention_fwd", PAGED, "bf16[2,5,3,16]",
        matmul(2 * 4 * SCORES * (8 + 16), "bfloat16")
        + flops(5 * 4 * SCORES - 2 * LINES, transcendentals=4 * SCORES),
        "four pages of keys", layout=0, variadic_args=NO_BIAS),
    row("rnn_fwd", "f32[2,5,8] f32[4,2,6] f32[4,2,6] f32[999] i32[2]", "f32[2,5,12]",
        matmul(2 * LAYERS) + flops(16 * 4 * STEPS, transcendentals=5 * 4 * STEPS), **LSTM),
    row("rnn_bwd", "f32[2,5,12] f32[4,2,6] f32[4,2,6] f32[2,5,8]", "f32[2,5,8]",
        matmul(2 * 2 * LAYERS) + flops(32 * 4 * STEPS), **LSTM),
]  # fmt: skip

# ---- sparse: 11 stored elements of a (6, 5) matrix

COO, BCOO = "f32[11] i32[11] i32[11]", "f32[11] i32[11,2]"
ROWS += [row(p, f"{COO} f32[5]", "f32[6]", flops(2 * 11)) for p in ("coo_matvec", "coo_spmv")]
ROWS += [row(p, f"{COO} f32[5,7]", "f32[6,7]", flops(2 * 11 * 7)) for p in ("coo_matmat", "coo_spmm")]
ROWS += [row(p, "f32[11] i32[11] i32[7] f32[5]", "f32[6]", flops(2 * 11)) for p in ("csr_matvec", "csr_spmv")]
ROWS += [row(p, "f32[11] i32[11] i32[7] f32[5,7]", "f32[6,7]", flops(2 * 11 * 7)) for p in ("csr_matmat", "csr_spmm")]
ROWS += [row(p, COO, "f32[6,5]", flops(11)) for p in ("bcoo_todense", "coo_todense", "csr_todense", "bcsr_todense")]
ROWS += [row(p, "f32[6,5]", COO, ints(6 * 5)) for p in (
    "bcoo_fromdense", "bcsr_fromdense", "coo_fromdense", "csr_fromdense")]  # fmt: skip
ROWS += [row(p, BCOO, "f32[11]", FREE) for p in ("bcoo_extract", "bcsr_extract", "bcoo_transpose")]


def bcoo(shape: tuple[int, ...], data: jax.Array, indices: jax.Array) -> sparse.BCOO:
    return sparse.BCOO((data, indices), shape=shape)


def bcoo_product(data: jax.Array, indices: jax.Array, dense: jax.Array) -> jax.Array:
    return bcoo((6, 5), data, indices) @ dense


def batched_product(data: jax.Array, indices: jax.Array, dense: jax.Array) -> jax.Array:
    left = bcoo((3, 6, 5), data, indices)
    return sparse.bcoo_dot_general(left, dense, dimension_numbers=(((2,), (1,)), ((0,), (0,))))


def bcsr_product(data: jax.Array, indices: jax.Array, starts: jax.Array, dense: jax.Array) -> jax.Array:
    return sparse.bcsr_dot_general(sparse.BCSR((data, indices, starts), shape=(6, 5)), dense,
                                   dimension_numbers=(((1,), (0,)), ((), ())))  # fmt: skip


def sampled(a: jax.Array, b: jax.Array, indices: jax.Array) -> jax.Array:
    return sparse.bcoo_dot_general_sampled(a, b, indices, dimension_numbers=(((1,), (0,)), ((), ())))


def pair(data: jax.Array, indices: jax.Array, other: jax.Array, others: jax.Array) -> jax.Array:
    return (bcoo((6, 5), data, indices) @ bcoo((5, 7), other, others)).data


ROWS += [
    row("todense", "f32[6,5]", "f32[6,5]", FREE, "of a dense array"),
    row("todense", BCOO, "f32[6,5]", flops(11)),
    traced("bcoo_dot_general", bcoo_product, f"{BCOO} f32[5,7]", flops(2 * 11 * 7)),
    traced("bcoo_dot_general", batched_product, "f32[3,11] i32[3,11,2] f32[3,5,7]", flops(2 * 3 * 11 * 7), "a batch"),
    traced("bcoo_dot_general", batched_product, "f32[1,11] i32[1,11,2] f32[3,5,7]", flops(2 * 3 * 11 * 7),
           "one matrix for a batch"),
    traced("bcsr_dot_general", bcsr_product, "f32[11] i32[11] i32[7] f32[5,7]", flops(2 * 11 * 7)),
    traced("bcoo_dot_general_sampled", sampled, "f32[6,9] f32[9,5] i32[11,2]", flops(2 * 11 * 9)),
    traced("bcoo_spdot_general", pair, "f32[11] i32[11,2] f32[13] i32[13,2]",
           flops(2 * 11 * 13) + ints(11 * 13 * 2)),
    row("bcoo_sort_indices", BCOO, BCOO, ints(11 * 4 * 2)),
    row("bcoo_sum_duplicates", BCOO, BCOO, flops(11, integer_ops=11 * 4 * 2)),
]  # fmt: skip
