"""Fourier transforms: 5 N log2 N FLOPs for a complex transform of N points, half of that for a real one."""

from __future__ import annotations

import math

from costtrace.core import MODELLED, Cost, Op
from costtrace.rules.table import rule


@rule("fft", status=MODELLED)
def fft(op: Op) -> Cost:
    """5 N log2 N per transform of N = prod of all transformed axes: the sum over the axes of their lines.

    rfft and irfft, whose N is that of the real side, take half. Source: the radix-2 count that FFTW's benchmark
    uses for every N (fftw.org/speed, "mflops" = 5 N log2 N / microseconds, 2.5 N log2 N for real transforms).
    """
    of, lengths, kind = op.inputs[0], op.params["fft_lengths"], op.params["fft_type"]
    points = math.prod(lengths)
    batch = math.prod(of.shape[: len(of.shape) - len(lengths)])
    if points <= 1 or batch == 0:
        return Cost()
    real = "RFFT" in getattr(kind, "name", str(kind)).upper()
    flops = batch * round((2.5 if real else 5.0) * points * math.log2(points))
    return Cost(fft_flops=flops, vector_by_dtype={of.dtype: flops})
