"""The hpc kernels: work, bytes, conversions by hand, and that 64-bit types are on only while they are traced."""

from __future__ import annotations

import importlib
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costtrace import model
from costtrace.demand import Demand, demands, product, whole
from costtrace.trace import trace

hpc = importlib.import_module("costtrace.models_spec.hpc")
SIZES = {"rows": 64, "nonzeros": 5, "grid": 10, "gemv": 96, "few": 2, "many": 8, "gemm": 32, "fft": 1024, "signals": 3,
         "bodies": 7}  # fmt: skip


def kernels(**sizes: int) -> dict[str, Demand]:
    found = model.find("hpc")
    out = {}
    for stage in found.stages(found.configure(**SIZES | sizes)):
        fn, args = model.bind(stage)
        out[stage.name] = whole(demands(trace(fn, *args, weights=0)), stage.name)
    return out


SMALL = kernels()
N, K, G, M = 64, 5, 10, 96
INNER = (G - 2) ** 3

# kernel: (W, bytes, numbers converted, numbers put together)
BY_HAND = {
    # a product and a sum a nonzero; values, columns, row pointers, x and y; values and x are converted, indices not
    "spmv_csr": (2 * N * K, 8 * N * K + 4 * N * K + 4 * (N - 1) + 8 * N + 8 * N, N * K + N, N),
    "spmv_ell": (N * K + N * (K - 1), 8 * N * K + 4 * N * K + 8 * N + 8 * N, N * K + N, N),
    # 2 products, 5 + 1 sums a point; the cube is read but for its edges and corners, and two coefficients
    "stencil": (8 * INNER, 8 * (INNER + 6 * (G - 2) ** 2 + 2 + INNER), INNER + 6 * (G - 2) ** 2 + 2, INNER),
    "gemv": (2 * M * M, 8 * (M * M + M + M), M * M + M, M),
    "gemv_b2": (2 * M * M * 2, 8 * (M * M + 2 * M + 2 * M), M * M + 2 * M, 2 * M),
    "gemv_b8": (2 * M * M * 8, 8 * (M * M + 8 * M + 8 * M), M * M + 8 * M, 8 * M),
    "gemm": (2 * 32**3, 8 * 3 * 32**2, 2 * 32**2, 32**2),
    # 5 N log2 N; complex in and out; two passes of radix 32: once in, once out, and once each between
    "fft": (3 * 5 * 1024 * 10, 3 * 1024 * 32, 3 * 1024 * 2 * 2, 3 * 1024 * 2 * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_kernels_by_hand(name: str) -> None:
    d = SMALL[name]
    assert (d.flops, d.nbytes, d.n_in, d.n_out) == BY_HAND[name]


def test_bodies_meet_a_root_and_a_division_between_products() -> None:
    d = SMALL["nbody"]
    # taken apart: positions and masses, 1e-9 aside; the root and the quotient of each pair. Put together: the square
    # and its product with the root of each pair, and the accelerations.
    assert d.n_in == 7 * 3 + 7 + 2 * 49
    assert d.n_out == 2 * 49 + 7 * 3
    assert d.rest.vector_by_dtype == {"float64": 49}  # the division
    assert d.rest.transcendentals == 49  # the root
    assert d.nbytes == 8 * (7 * 3 + 7 + 7 * 3)


def test_a_step_of_conjugate_gradients_is_its_scopes() -> None:
    found = model.find("hpc")
    stage = next(s for s in found.stages(found.configure(**SIZES)) if s.name == "cg_step")
    fn, args = model.bind(stage)
    parts = {d.name: d for d in demands(trace(fn, *args, weights=0))}
    assert list(parts) == ["matvec", "dot", "update", "norm", "direction"]
    assert parts["matvec"].flops == SMALL["spmv_csr"].flops
    assert parts["matvec"].nbytes == SMALL["spmv_csr"].nbytes
    assert parts["update"].flops == 4 * N
    assert whole(list(parts.values()), "cg").nbytes == SMALL["cg_step"].nbytes


# What the fourth-term note's table 1 and part 2 print, from the default sizes: OI, and phi where it is a size's limit.
@pytest.mark.parametrize(("name", "intensity", "phi"), [
    ("spmv_csr", "0.17", 2 / 3), ("spmv_ell", "0.17", 2 / 3), ("stencil", "0.50", 1 / 2), ("gemv", "0.25", 1),
    ("gemv_b2", "0.50", 1), ("gemv_b8", "2.00", 1), ("fft", "1.56", 1),
])  # fmt: skip
def test_default_sizes_give_the_sources_intensities(name: str, intensity: str, phi: float) -> None:
    d = DEFAULT[name]
    assert f"{d.intensity:.2f}" == intensity
    assert d.phi == pytest.approx(phi, abs=6e-3)


DEFAULT = kernels(**{f: getattr(hpc.Config(), f) for f in SIZES})


def test_fft_needs_1_56_flop_a_byte() -> None:
    assert DEFAULT["fft"].intensity == 5 * math.log2(1024) / 32 == 1.5625  # part 2: 1.56 x bandwidth of native float64
    assert DEFAULT["gemm"].intensity > 50


@pytest.mark.parametrize(("name", "sizes"), [("gemm", (32, 32, 32)), ("gemv", (96, 1, 96)), ("gemv_b8", (96, 8, 96))])
def test_a_product_on_paper_is_the_traced_one(name: str, sizes: tuple[int, int, int]) -> None:
    paper, traced = product(*sizes, name=name), SMALL[name]
    assert (paper.flops, paper.nbytes, paper.products, paper.n_in, paper.n_out) == (
        traced.flops, traced.nbytes, traced.products, traced.n_in, traced.n_out)  # fmt: skip


def test_sparse_kernels_compute_a_product() -> None:
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((6, 6)) < 0.5, rng.standard_normal((6, 6)), 0).astype("float32")
    dense[2] = 0  # an empty row
    row_of, columns = np.nonzero(dense)
    starts = np.searchsorted(row_of, np.arange(7)).astype("int32")
    x = rng.standard_normal(6).astype("float32")
    got = hpc.csr(jnp.array(dense[row_of, columns]), jnp.array(columns, "int32"), jnp.array(starts), jnp.array(x))
    np.testing.assert_allclose(got, dense @ x, rtol=1e-5, atol=1e-6)
    full = np.tile(np.arange(6, dtype="int32"), (6, 1))
    np.testing.assert_allclose(
        hpc.ell(jnp.array(dense), jnp.array(full), jnp.array(x)), dense @ x, rtol=1e-5, atol=1e-6
    )


def test_a_step_of_conjugate_gradients_solves() -> None:
    a = np.array([[4, 1], [1, 3]], "float32")
    b = np.array([1, 2], "float32")
    sparse = (jnp.array(a.ravel()), jnp.array([0, 1, 0, 1], "int32"), jnp.array([0, 2, 4], "int32"))
    state = (jnp.zeros(2), jnp.array(b), jnp.array(b), jnp.dot(b, b))
    for _ in range(2):  # n steps solve n equations
        state = hpc.cg_step(*sparse, *state)
    np.testing.assert_allclose(a @ state[0], b, rtol=1e-4)


def test_the_stencil_and_bodies_compute_what_they_say() -> None:
    u = jnp.arange(27.0).reshape(3, 3, 3)
    assert hpc.stencil(u, 2.0, 1.0) == 2 * 13 + (4 + 22 + 10 + 16 + 12 + 14)
    pair = jnp.array([[0.0, 0, 0], [2.0, 0, 0]])
    np.testing.assert_allclose(hpc.nbody(pair, jnp.array([1.0, 3.0])), [[3 / 4, 0, 0], [-1 / 4, 0, 0]], atol=1e-6)


def test_64_bit_types_are_on_only_while_a_program_is_traced() -> None:
    before = jax.config.jax_enable_x64
    seen = []
    trace(lambda x: seen.append(jnp.ones(2).dtype) or x, jax.ShapeDtypeStruct((2,), "float64"))
    trace(lambda x: seen.append(jnp.ones(2).dtype) or x, jax.ShapeDtypeStruct((2,), "float32"))
    assert seen == ["float64", "float32"]
    assert jax.config.jax_enable_x64 == before
