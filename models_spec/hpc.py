"""Kernels of scientific computing in float64: sparse and dense products, a stencil, FFT, CG step, n-body.

Each stage is one kernel; sizes are options. Written so that what is streamed is what the kernel needs: a CSR matrix is
8 bytes of value and 4 of column index a nonzero, the stencil reads each point once. No weights. Letters: n rows, points
or bodies, k nonzeros a row.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from costtrace.model import Model, Stage, choice, option, scope


@dataclass(frozen=True)
class Config:
    rows: int = option(1 << 20, help="rows of the sparse matrix (SpMV, CG)")
    nonzeros: int = option(512, help="nonzeros of each of its rows")
    grid: int = option(512, help="points a side of the stencil's cube, boundary included")
    gemv: int = option(16384, help="side of the matrix of GEMV and batched GEMV")
    few: int = option(2, help="right-hand sides of the narrow batched GEMV")
    many: int = option(8, help="right-hand sides of the wide batched GEMV")
    gemm: int = option(8192, help="side of the dense GEMM's matrices")
    fft: int = option(1024, help="points of an FFT")
    signals: int = option(65536, help="FFTs at once")
    bodies: int = option(4096, help="bodies of the n-body step")
    dtype: str = option("float64", help="of values", parse=choice("float64", "float32", f64="float64", f32="float32"))


def gathered(x, columns):
    """x[columns], columns known to be in range."""
    return x.at[columns].get(mode="promise_in_bounds", wrap_negative_indices=False)


def spmv_csr(values, columns, row_of, x):
    """y = A x; values and columns (nonzeros,), row_of: the row of each nonzero, known from the row pointers."""
    product = values * gathered(x, columns)
    y = jnp.zeros(x.shape, x.dtype)
    return y.at[row_of].add(product, mode="promise_in_bounds", indices_are_sorted=True, wrap_negative_indices=False)


def csr(values, columns, starts, x):
    """y = A x with row pointers, starts (n + 1,): the row of a nonzero is how many rows began before it, less 1."""
    marks = jnp.zeros(values.shape, starts.dtype).at[starts[1:-1]].add(1, mode="drop", wrap_negative_indices=False)
    return spmv_csr(values, columns, lax.cumsum(marks), x)


def ell(values, columns, x):
    """y = A x; values and columns (n, k), rows padded to the same length."""
    return jnp.sum(values * gathered(x, columns), 1)


def stencil(u, centre, side):
    """7 points of a cube: centre u + side (sum of the six neighbours), 8 FLOPs a point; the boundary is not written."""
    mid = slice(1, -1)
    low, high = slice(None, -2), slice(2, None)
    around = u[low, mid, mid] + u[high, mid, mid] + u[mid, low, mid] + u[mid, high, mid] + u[mid, mid, low]
    return centre * u[mid, mid, mid] + side * (around + u[mid, mid, high])


def product(a, b):
    """A B, or A b."""
    return lax.dot_general(a, b, (((1,), (0,)), ((), ())))


def cg_step(values, columns, starts, x, r, p, rr):
    """One step of conjugate gradients; rr is r r of the step before."""
    with scope("matvec"):
        q = csr(values, columns, starts, p)
    with scope("dot"):
        alpha = rr / jnp.dot(p, q)
    with scope("update"):
        x, r = x + alpha * p, r - alpha * q
    with scope("norm"):
        new = jnp.dot(r, r)
    with scope("direction"):
        return x, r, r + (new / rr) * p, new


def nbody(position, mass):
    """Accelerations of n bodies at (n, 3) under each other's gravity, softened."""
    apart = position[None, :, :] - position[:, None, :]
    square = jnp.sum(apart * apart, 2) + 1e-9
    pull = mass / (square * lax.sqrt(square))
    return jnp.sum(pull[:, :, None] * apart, 1)


def stages(config):
    array = functools.partial(jax.ShapeDtypeStruct, dtype=config.dtype)
    index = functools.partial(jax.ShapeDtypeStruct, dtype="int32")
    n, k, side = config.rows, config.nonzeros, config.gemv
    vector = array((n,))
    sparse = (array((n * k,)), index((n * k,)), index((n + 1,)))
    cube = array((config.grid,) * 3)
    signals = (config.signals, config.fft)
    paired = "complex128" if config.dtype == "float64" else "complex64"

    def made(name, forward, *args):
        return Stage(name, forward, args, dtype=config.dtype)

    return [
        made("spmv_csr", csr, *sparse, vector),
        made("spmv_ell", ell, array((n, k)), index((n, k)), vector),
        made("stencil", stencil, cube, array(()), array(())),
        made("gemv", product, array((side, side)), array((side,))),
        made(f"gemv_b{config.few}", product, array((side, side)), array((side, config.few))),
        made(f"gemv_b{config.many}", product, array((side, side)), array((side, config.many))),
        made("gemm", product, array((config.gemm,) * 2), array((config.gemm,) * 2)),
        made("fft", jnp.fft.fft, jax.ShapeDtypeStruct(signals, paired)),
        made("cg_step", cg_step, *sparse, vector, vector, vector, array(())),
        made("nbody", nbody, array((config.bodies, 3)), array((config.bodies,))),
    ]


MODEL = Model("hpc", Config, stages)
