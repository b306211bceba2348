"""Does it fit: score matrices and matmul tiles in on-chip memory, a program's peak in HBM, arrays in padded layouts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from costtrace import units
from costtrace.chip import Chip
from costtrace.chipfile import Number

SCRATCHPADS = ("memory.vmem_per_core", "memory.shared_per_sm", "memory.l1_per_sm")
CACHES = ("memory.cmem", "memory.l2")


@dataclass(frozen=True, slots=True)
class Fit:
    """`nbytes` beside the capacity of one memory of a chip."""

    nbytes: int
    memory: str
    capacity: Number

    @property
    def fits(self) -> bool:
        return self.nbytes <= self.capacity.value

    def __str__(self) -> str:
        verb = "fits" if self.fits else "does not fit"
        return f"{units.text(self.nbytes, 'B')} {verb} {self.memory} ({self.capacity.text})"


def score_nbytes(heads: int, queries: int, keys: int, bits: int = 32) -> int:
    """Bytes of an attention's score matrices, heads x queries x keys, where they are written out."""
    return -(-heads * queries * keys * bits // 8)


def tile_nbytes(m: int, n: int, k: int, bits: int, accumulator_bits: int = 32, buffers: int = 2) -> int:
    """Bytes of an m x k by k x n matmul tile: the operands `buffers` times (2: the next ones load), the result once."""
    return -(-(buffers * (m * k + k * n) * bits + m * n * accumulator_bits) // 8)


def on_chip(nbytes: int, chip: Chip) -> list[Fit]:
    """`nbytes` beside the chip's scratchpad (VMEM of a core, shared memory of a SM), then its larger on-chip memories.

    Empty where the chip file names none.
    """
    first = next((k for k in SCRATCHPADS if chip.number(k)), None)
    keys = ([first] if first else []) + [k for k in CACHES if chip.number(k)]
    return [Fit(nbytes, k.removeprefix("memory.").replace("_", " "), chip.numbers[k]) for k in keys]


def hbm(peak_nbytes: int, chip: Chip) -> Fit | None:
    """A program's peak beside the chip's HBM (all of the chip's devices together). None if its size is unknown."""
    capacity = chip.hbm_bytes
    return None if capacity is None else Fit(peak_nbytes, "hbm", capacity)


def tiled_peak(shapes: Sequence[tuple[Sequence[int], int, int]], chip: Chip) -> int:
    """Bytes of the buffers alive at a peak, (shape, bits, how many) each, in the chip's layouts."""
    return sum(n * tiled_nbytes(shape, bits, chip) for shape, bits, n in shapes)


TILES = {"tpu": (512, 512, 512), "gpu": (128, 128, 64)}
"""m, n, k of a matmul tile as kernels for such chips commonly have it, two of the operands in flight."""


def tiled_nbytes(shape: Sequence[int], bits: int, chip: Chip) -> int:
    """Bytes of an array in HBM: on a TPU its last two dimensions are padded to a tile (8 x 128 at 32 bits), else dense.

    An upper bound: XLA may choose a smaller tile where the last dimension but one is under 8, and which dimensions are
    the last two is its choice.
    """
    dense = -(-math.prod(shape) * bits // 8)
    lanes, rows = chip.value("tile.lanes"), chip.value(f"tile.rows_{max(4, bits)}bit") or chip.value("tile.rows_32bit")
    if not shape or lanes is None or rows is None:
        return dense
    real = [n for n in shape if n != 1]
    *outer, last = real if len(real) > 1 else shape
    padded = [*outer, _up(last, int(lanes))]
    if outer:
        padded[-2] = _up(outer[-1], int(rows))
    return -(-math.prod(padded) * bits // 8)


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple
