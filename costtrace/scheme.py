"""SCHEMES: how float64 products are made of low-precision ones, as data, each constant with its source. No jax here.

A scheme writes a float64 number as r small integers (residues modulo r primes, or r slices), multiplies those on the
matrix unit and puts the results together again. What each step takes is counted here; what it costs is emulation.py's.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from costtrace.errors import UsageError

Tile = tuple[int, int, int]
"""m, n, k of one instruction of the matrix unit: a product executes whole tiles."""

NATIVE_TILE: Tile = (8, 8, 4)
"""float64 tensor cores: mma.m8n8k4.f64 (the fourth-term note, section 3)."""

PAPER = "arXiv:2606.06510, FP8 is All You Need, part 1 (TME); figures through survey notes"
SECOND = "arXiv:2606.06510, part 2: FFT needs 8.25 int32 operations a byte at r = 12"
NOTE = "The Missing Fourth Term for the Emulation TME Model (research note)"
KARATSUBA = "arXiv:2603.10634, FP8 Ozaki-II"
OZAKI2 = "arXiv:2504.08009, Ozaki-II; r = ceil((106 + log2 k) / 7.97), 15 to 16"
PTX = "NVIDIA, PTX ISA, shapes of mma"


@dataclass(frozen=True, slots=True)
class Scheme:
    """One scheme. Instruction counts take a multiply-add as 1, as `integer.int32` of the chip files does.

    `count` is r (s for slices). `convert` is c_q: integer instructions to make one residue of one number, None where
    nobody published it. `alpha` and `gamma`, where given, replace the formulas of `products` and `reconstruct`.
    """

    name: str
    title: str
    dtype: str
    """The matrix unit's mode that multiplies."""
    form: str
    """moduli: r products; karatsuba: 3 r + 1; slices: s (s + 1) / 2."""
    count: int
    convert: float | None
    tile: Tile
    longest_k: int
    """The largest k whose sum is exact in the accumulator; a longer one is split, and each part reconstructed."""
    residue_bits: int
    planes: int
    """Stored numbers of the matrix unit's dtype (a byte each) that one residue takes."""
    modulus_bits: float | None = None
    alpha: float | None = None
    gamma: float | None = None
    sources: tuple[tuple[str, str], ...] = ()
    """(constant, where it is from)."""

    @property
    def products(self) -> float:
        """alpha: low-precision products for one float64 product."""
        if self.alpha is not None:
            return self.alpha
        r = self.count
        return {"moduli": r, "karatsuba": 3 * r + 1, "slices": r * (r + 1) / 2}[self.form]

    @property
    def deconstruct(self) -> float | None:
        """c_q r: integer instructions for one float64 number that is converted."""
        return None if self.convert is None else self.convert * self.count

    @property
    def reconstruct(self) -> float | None:
        """gamma: integer instructions for one float64 result. Garner's algorithm takes r (r - 1) / 2 multiply-adds: at
        r = 12 that is 2 x 66 operations for 16 bytes, part 2's 8.25 a byte. None for slices."""
        if self.gamma is not None:
            return self.gamma
        return None if self.form == "slices" else self.count * (self.count - 1) / 2

    @property
    def packed_beta(self) -> float:
        """Bytes of stored residues, bit by bit, over the 8 of float64: 9 r / 64 for nine-bit residues."""
        return self.residue_bits * self.count / 64

    @property
    def planes_beta(self) -> float:
        """The same ready for the matrix unit: 3 r / 8 for three planes of one byte."""
        return self.planes * self.count / 8

    def moduli_for(self, k: int) -> int:
        """The least r that carries 2 x 53 bits and the sum of k products. Raises UsageError where it is not known."""
        if self.modulus_bits is None:
            raise UsageError(f"--moduli auto: no published rule for {self.name}: give a number")
        return math.ceil((106 + math.log2(k)) / self.modulus_bits)

    def executed(self, m: int, n: int, k: int) -> float:
        """How much more than m n k the tiles of a product hold: 8 / B for B < 8 columns."""
        return padding(self.tile, m, n, k)


def padding(tile: Tile, m: int, n: int, k: int) -> float:
    """Executed over useful work of an m x n x k product in whole tiles, the cheaper of it and its transpose."""
    if not m * n * k:
        return 1.0
    tm, tn, tk = tile
    least = min(_whole(m, tm) * _whole(n, tn), _whole(n, tm) * _whole(m, tn))
    return least * _whole(k, tk) / (m * n * k)


def _whole(size: int, part: int) -> int:
    return -(-size // part) * part


MMA: Tile = (16, 8, 32)
_TILE = ("tile", f"m16n8k32: {NOTE}, section 3; {PTX}")

SCHEMES: dict[str, Scheme] = {
    s.name: s
    for s in (
        Scheme(
            "ozaki2-fp8", "Ozaki-II on FP8, three products a modulus (Karatsuba)", "float8_e4m3fn", "karatsuba", 15,
            16, MMA, 2**24 // 16**2, residue_bits=9, planes=3,
            sources=(
                ("r", f"15: {NOTE}, section 4, for 53 bits; 12: {PAPER}"),
                ("alpha", f"3 r + 1: {KARATSUBA}"),
                ("c_q", f"13 measured in cuBLAS and 3 for the planes: {NOTE}, section 4"),
                ("gamma", f"r (r - 1) / 2, derived from {SECOND}"),
                ("longest k", "derived: k 16^2 <= 2^24, float32 sums; that the chip keeps all 24 bits is not sourced"),
                ("stored", f"9 r bits, 3 r bytes: {NOTE}, section 6"),
                _TILE,
            ),
        ),
        Scheme(
            "ozaki2-int8", "Ozaki-II on int8, one product a modulus", "int8", "moduli", 16, 13, MMA,
            (2**31 - 1) // 125**2, residue_bits=8, planes=1, modulus_bits=7.97,
            sources=(
                ("r", OZAKI2),
                ("alpha", f"r: {OZAKI2}"),
                ("c_q", f"13 measured in cuBLAS: {NOTE}, section 4"),
                ("gamma", f"r (r - 1) / 2, derived from {SECOND}"),
                ("longest k", "derived: k 125^2 < 2^31, residues of 251 between -125 and 125"),
                _TILE,
            ),
        ),
        Scheme(
            "ozaki1-int8", "Ozaki-I on int8, slices of 7 bits", "int8", "slices", 8, None, MMA,
            2**31 // (8 * 128**2), residue_bits=8, planes=1,
            sources=(
                ("s", f"8: {PAPER}"),
                ("alpha", f"s (s + 1) / 2, s^2 untruncated: {PAPER}"),
                ("c_q", "not published: give --convert"),
                ("gamma", "not published: give --gamma"),
                ("longest k", "derived: s k 128^2 <= 2^31, the limit of one library's 8-bit slices"),
                _TILE,
            ),
        ),
    )
}  # fmt: skip


def scheme(name: str) -> Scheme:
    """The scheme of that name. Raises UsageError where there is none."""
    if name not in SCHEMES:
        raise UsageError(f"no scheme {name!r}: there are {', '.join(SCHEMES)}")
    return SCHEMES[name]


DECONSTRUCTION = {
    "overlapped": "converted on the way in, entirely under the other work: the most favourable case",
    "serial": "converted on the way in, before the other work starts",
    "packed": "residues made beforehand and streamed packed: no conversion, more bytes",
    "planes": "residues made beforehand and streamed ready for the matrix unit: no conversion, still more bytes",
}
"""When an input's residues are made -> what that means."""


@dataclass(frozen=True, slots=True)
class Handling:
    """The choices that the model leaves open. `recompute`: how many matrix units convert the same number, each for
    itself (1: shared). `beta`: bytes streamed for a converted number over its 8, by default what follows."""

    deconstruction: str = "overlapped"
    recompute: float = 1.0
    beta: float | None = None

    def beta_of(self, scheme: Scheme) -> float:
        stored = {"packed": scheme.packed_beta, "planes": scheme.planes_beta}
        return stored.get(self.deconstruction, 1.0) if self.beta is None else self.beta

    @property
    def converts(self) -> bool:
        return self.deconstruction in ("overlapped", "serial")

    def said(self, scheme: Scheme) -> str:
        """The choices in words."""
        shared = (
            ""
            if not self.converts
            else "; each number converted once and shared"
            if self.recompute == 1
            else (f"; each number converted {self.recompute:g} times")
        )
        return f"{DECONSTRUCTION[self.deconstruction]}{shared}; beta {self.beta_of(scheme):.3g}"


def changed(of: Scheme, **values: object) -> Scheme:
    """The scheme with constants replaced; None leaves one as it is."""
    given = {key: value for key, value in values.items() if value is not None}
    return dataclasses.replace(of, **given) if given else of  # type: ignore[arg-type]
