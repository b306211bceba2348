"""Dense linear algebra: FLOP models of the library routine behind each primitive, 4 times that if complex.

Sources. LAWN 41: Anderson and Dongarra, "Installation guide for LAPACK" (LAPACK Working Note 41), its chapter of
operation counts. GVL: Golub and Van Loan, "Matrix computations", 4th edition. LUG: "LAPACK Users' Guide", 3rd
edition, table 3.13. Matrices are (..., m, n) or (..., n, n); every count is multiplied by the batch.
"""

from __future__ import annotations

import math
from fractions import Fraction

from costtrace.core import MODELLED, Cost, Op, Value
from costtrace.rules.table import is_complex, rule

Number = int | Fraction
THIRD = Fraction(1, 3)


def modelled(of: Value, flops: Number, matrices: int = 1) -> Cost:
    """`flops` of real arithmetic for each matrix in the batch of a value, rounded; a complex one is 4 real ones."""
    total = math.prod(of.shape[:-2]) * matrices * max(0, round(flops)) * (4 if is_complex(of.dtype) else 1)
    return Cost(linalg_flops=total, vector_by_dtype={of.dtype: total}) if total else Cost()


def square(of: Value) -> int:
    return of.shape[-1]


def tall(of: Value) -> tuple[int, int]:
    """(longer, shorter) side of a matrix."""
    m, n = of.shape[-2:]
    return max(m, n), min(m, n)


@rule("cholesky", status=MODELLED)
def cholesky(op: Op) -> Cost:
    """n^3/3 + n^2/2 + n/6. Source: LAWN 41, POTRF."""
    n = square(op.inputs[0])
    return modelled(op.inputs[0], Fraction(2 * n**3 + 3 * n**2 + n, 6))


@rule("cholesky_update", status=MODELLED)
def cholesky_update(op: Op) -> Cost:
    """3 n^2: n Givens rotations, 6 FLOPs on each pair of the rows' remaining entries. Source: GVL 6.5.4."""
    return modelled(op.inputs[0], 3 * square(op.inputs[0]) ** 2)


@rule("lu", status=MODELLED)
def lu(op: Op) -> Cost:
    """m n^2 - n^3/3 - n^2/2 + 5n/6 with m >= n. Source: LAWN 41, GETRF."""
    m, n = tall(op.inputs[0])
    return modelled(op.inputs[0], m * n**2 - n**3 * THIRD - Fraction(n**2, 2) + Fraction(5 * n, 6))


@rule("lu_pivots_to_permutation")
def lu_pivots_to_permutation(op: Op) -> Cost:
    """One swap per pivot: an integer operation."""
    return Cost(integer_ops=op.inputs[0].size)


@rule("triangular_solve", status=MODELLED)
def triangular_solve(op: Op) -> Cost:
    """n^2 for each of the right-hand sides. Source: LAWN 41, TRSM."""
    a, b = op.inputs[:2]
    n = square(a)
    sides = b.size // max(1, math.prod(b.shape[:-2]) * n)
    return modelled(b, n**2 * sides)


def geqrf_flops(m: int, n: int) -> Number:
    """2mn^2 - 2n^3/3 + mn + n^2 + 14n/3 (m >= n), else 2nm^2 - 2m^3/3 + 3mn - m^2 + 14m/3. Source: LAWN 41, GEQRF."""
    if m >= n:
        return 2 * m * n**2 - 2 * n**3 * THIRD + m * n + n**2 + 14 * n * THIRD
    return 2 * n * m**2 - 2 * m**3 * THIRD + 3 * m * n - m**2 + 14 * m * THIRD


def orgqr_flops(m: int, n: int, k: int) -> Number:
    """4mnk - 2(m + n)k^2 + 4k^3/3 + 3nk - mk - k^2 - 4k/3. Source: LAWN 41, ORGQR."""
    return 4 * m * n * k - 2 * (m + n) * k**2 + 4 * k**3 * THIRD + 3 * n * k - m * k - k**2 - 4 * k * THIRD


@rule("geqrf", status=MODELLED)
def geqrf(op: Op) -> Cost:
    """The Householder factor of an (m, n) matrix: see geqrf_flops."""
    return modelled(op.inputs[0], geqrf_flops(*op.inputs[0].shape[-2:]))


@rule("geqp3", status=MODELLED)
def geqp3(op: Op) -> Cost:
    """geqrf with column pivoting: 2mn more for the columns' norms, 3 FLOPs per remaining norm and step to downdate."""
    m, n = op.inputs[0].shape[-2:]
    k = min(m, n)
    return modelled(op.inputs[0], geqrf_flops(m, n) + 2 * m * n + 3 * sum(n - j - 1 for j in range(k)))


@rule("householder_product", status=MODELLED)
def householder_product(op: Op) -> Cost:
    """Q of k reflectors, (m, n): see orgqr_flops."""
    a, taus = op.inputs[:2]
    m, n = a.shape[-2:]
    return modelled(a, orgqr_flops(m, n, taus.shape[-1]))


@rule("ormqr", status=MODELLED)
def ormqr(op: Op) -> Cost:
    """k reflectors applied to (m, n): 4mnk - 2nk^2 + 3nk from the left, 4mnk - 2mk^2 + 2mk + nk - k^2/2 + k/2 from the
    right. Source: LAWN 41, ORMQR."""
    _, taus, c = op.inputs[:3]
    m, n = c.shape[-2:]
    k = taus.shape[-1]
    if op.params["left"]:
        return modelled(c, 4 * m * n * k - 2 * n * k**2 + 3 * n * k)
    return modelled(c, 4 * m * n * k - 2 * m * k**2 + 2 * m * k + n * k - Fraction(k**2 - k, 2))


@rule("qr", status=MODELLED)
def qr(op: Op) -> Cost:
    """geqrf, then Q in full: m columns with full_matrices, else min(m, n)."""
    m, n = op.inputs[0].shape[-2:]
    k = min(m, n)
    columns = m if op.params["full_matrices"] else k
    return modelled(op.inputs[0], geqrf_flops(m, n) + orgqr_flops(m, columns, k))


@rule("eigh", status=MODELLED)
def eigh(op: Op) -> Cost:
    """9n^3 with all vectors: tridiagonal reduction 4n^3/3, symmetric QR and the product. Source: GVL 8.3.3."""
    return modelled(op.inputs[0], 9 * square(op.inputs[0]) ** 3)


@rule("eig", status=MODELLED)
def eig(op: Op) -> Cost:
    """10n^3 for eigenvalues, 79n^3/3 (26.33n^3) with right eigenvectors; left ones too solve and multiply again,
    4n^3/3. Source: LUG, GEEV."""
    n, p = square(op.inputs[0]), op.params
    sides = p["compute_left_eigenvectors"] + p["compute_right_eigenvectors"]
    return modelled(op.inputs[0], n**3 * (10 if not sides else 25 + sides * 4 * THIRD))


@rule("schur", status=MODELLED)
def schur(op: Op) -> Cost:
    """25n^3 with the vectors, 10n^3 without. Source: GVL 7.5.6."""
    n = square(op.inputs[0])
    return modelled(op.inputs[0], (25 if op.params["compute_schur_vectors"] else 10) * n**3)


@rule("svd", status=MODELLED)
def svd(op: Op) -> Cost:
    """The cheaper of Golub-Reinsch and R-SVD, m >= n. Source: GVL figure 8.6.1.

    Values: 4mn^2 - 4n^3/3 or 2mn^2 + 2n^3. Thin U, V: 14mn^2 + 8n^3 or 6mn^2 + 20n^3.
    Full U, V: 4m^2 n + 8mn^2 + 9n^3 or 4m^2 n + 22n^3.
    """
    m, n = tall(op.inputs[0])
    flops: Number
    if not op.params["compute_uv"]:
        flops = min(4 * m * n**2 - 4 * n**3 * THIRD, Fraction(2 * m * n**2 + 2 * n**3))
    elif op.params["full_matrices"]:
        flops = min(4 * m**2 * n + 8 * m * n**2 + 9 * n**3, 4 * m**2 * n + 22 * n**3)
    else:
        flops = min(14 * m * n**2 + 8 * n**3, 6 * m * n**2 + 20 * n**3)
    return modelled(op.inputs[0], flops)


@rule("hessenberg", status=MODELLED)
def hessenberg(op: Op) -> Cost:
    """10n^3/3 - n^2/2 - 11n/6. Source: LAWN 41, GEHRD (its constant, -21, dropped)."""
    n = square(op.inputs[0])
    return modelled(op.inputs[0], 10 * n**3 * THIRD - Fraction(n**2, 2) - Fraction(11 * n, 6))


@rule("tridiagonal", status=MODELLED)
def tridiagonal(op: Op) -> Cost:
    """4n^3/3 + 7n^2/2 - 17n/6. Source: LAWN 41, SYTRD (its constant, -19, dropped)."""
    n = square(op.inputs[0])
    return modelled(op.inputs[0], 4 * n**3 * THIRD + Fraction(7 * n**2, 2) - Fraction(17 * n, 6))


@rule("tridiagonal_solve", status=MODELLED)
def tridiagonal_solve(op: Op) -> Cost:
    """n (3 + 5m) for m right-hand sides: Thomas' elimination without pivoting. Source: GVL 4.3.6."""
    b = op.inputs[3]
    n, m = b.shape[-2:]
    return modelled(b, n * (3 + 5 * m))


@rule("symmetric_product", status=MODELLED)
def symmetric_product(op: Op) -> Cost:
    """(k + 1) n (n + 1): one triangle of alpha A A' + beta C, A (n, k). Source: LAWN 41, SYRK."""
    n, k = op.inputs[0].shape[-2:]
    return modelled(op.inputs[0], (k + 1) * n * (n + 1))
