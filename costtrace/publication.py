"""What the fourth-term note prints, as data, and what a trace of its kernels finds in it. No jax here.

Source: The Missing Fourth Term for the Emulation TME Model (research note), sections 3 to 7 and table 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from costtrace import emulation, units
from costtrace.chip import Chip
from costtrace.demand import Demand
from costtrace.emulation import FP64, HBM, INT
from costtrace.errors import UsageError
from costtrace.scheme import NOTE, SCHEMES, Scheme, changed

NUMBERS: dict[str, dict[str, str]] = {
    "b300": {**dict.fromkeys(FP64, "1.4 TFLOP/s"), HBM: "8 TB/s", INT: "75 TOP/s",
             "matrix.float8_e4m3fn": "5 PFLOP/s"},
    "b200": {**dict.fromkeys(FP64, "40 TFLOP/s"), HBM: "8 TB/s", INT: "75 TOP/s",
             "matrix.float8_e4m3fn": "5 PFLOP/s"},
}  # fmt: skip
"""The note's numbers for a chip. Its 5 PFLOP/s follow from its 15 % of FP8 peak; for the B200 it names P_fp64 alone,
and its bound of 0.25 follows from the same P_int."""


def scheme() -> Scheme:
    """Three FP8 products a modulus, c_q = 16, r = 15 (section 4)."""
    return changed(SCHEMES["ozaki2-fp8"], count=15, convert=16)


def chip(of: Chip) -> Chip:
    """The chip with the note's numbers. Raises UsageError for a chip that it does not speak of."""
    if of.name not in NUMBERS:
        raise UsageError(f"--note: the note has no numbers for {of.name}: it speaks of {', '.join(NUMBERS)}")
    return emulation.with_numbers(of, NUMBERS[of.name], NOTE)


@dataclass(frozen=True, slots=True)
class Printed:
    """One row of table 1: `kernel` as the hpc model calls it; None where the note prints nothing."""

    kernel: str
    title: str
    intensity: float
    phi: float
    claim: float | None
    cap: float | None
    verdict: str


TABLE = (
    Printed("spmv_csr", "SpMV (CSR/ELL)", 0.17, 1.0, 1.2, 0.30, "regression"),
    Printed("spmv_ell", "SpMV (CSR/ELL)", 0.17, 1.0, 1.2, 0.30, "regression"),
    Printed("stencil", "7-pt stencil", 0.5, 0.5, 3.1, 1.8, "claim unreachable"),
    Printed("gemv", "GEMV (B=1)", 0.25, 1.0, None, 0.45, "regression"),
    Printed("gemv_b2", "batched GEMV, B=2", 0.5, 1.0, 9.2, 0.89, "regression"),
    Printed("gemv_b8", "batched GEMV, B=8", 2.0, 1.0, 24.0, 3.6, "6.7x below claim"),
    Printed("gemm", "dense GEMM", 50.0, 0.0, 104.0, None, "unaffected (reuse)"),
)


@dataclass(frozen=True, slots=True)
class Audited:
    """A printed row beside the traced kernel, at the note's own numbers.

    by_equation: the printed phi in its equation 2. traced: the traced phi in it. corrected: with native
    max(W / P_fp64, Q / B). here: on the chip file's numbers.
    """

    printed: Printed
    intensity: float | None
    phi: float | None
    by_equation: float | None
    traced: float | None
    corrected: float | None
    here: float | None


def audited(demands: Sequence[Demand], of: Chip) -> list[Audited]:
    """The rows of table 1 whose kernels were traced. What it prints of speeds is of the B300 alone."""
    theirs, by = chip(of), scheme()
    star = emulation.threshold(theirs, by)
    assert star is not None  # NUMBERS has what it needs
    found = {d.name: d for d in demands}
    out = []
    for printed in TABLE:
        row = printed if of.name == "b300" else dataclasses.replace(printed, claim=None, cap=None)
        d = found.get(row.kernel)
        if d is None or d.intensity is None:
            continue
        run, here = emulation.emulated(d, theirs, by), emulation.emulated(d, of, by)
        by_equation = d.intensity / (row.phi * star) if row.phi else None
        out.append(Audited(row, d.intensity, d.phi, by_equation, run.cap_compute, run.cap, here.cap))
    return out


def findings(demands: Sequence[Demand], of: Chip) -> list[str]:
    """Where the trace and the note differ, one line each, with both numbers."""
    theirs, by = chip(of), scheme()
    out = []
    for row in audited(demands, of):
        said, phi = row.printed, row.phi or 0.0
        if said.cap and round(phi, 1) != round(said.phi, 1):
            out.append(
                f"{said.kernel}: the note converts {said.phi:g} of what is streamed, by dtype it is {phi:.3g} (index "
                f"arrays are integers): its cap of {said.cap:.2f} is {row.traced:.2f} by its own equation 2"
            )
        if said.phi and row.corrected and row.traced and row.corrected > row.traced * 1.001:
            out.append(
                f"{said.kernel}: HBM binds the native kernel on {of.name} at the note's numbers, and equation 2 "
                f"compares with W / P_fp64 alone: the cap is {row.corrected:.2f}, not {row.traced:.2f}"
            )
    gemv = next((d for d in demands if d.name == "gemv"), None)
    if gemv is not None:
        run = emulation.emulated(gemv, theirs, by)
        need = emulation.parity(run, theirs, by)
        if need.convert and need.convert_compute and need.convert > need.convert_compute * 1.001:
            out.append(
                f"gemv: the note asks for c_q < {need.convert_compute:.2g} on {of.name}, where native float64 is "
                f"bound by HBM; against max(W / P_fp64, Q / B) it is c_q < {need.convert:.2g}"
            )
        out.append(
            f"gemv: at B = 1 the products take {share(gemv, theirs, by):.1%} of the note's FP8 peak and "
            f"{share(gemv, emulation.with_numbers(theirs, _own(of), of.name), by):.1%} of the chip file's"
        )
    pipe = of.number(INT)
    if pipe is not None:
        out.append(f"P_int: c_q counts instructions, the note's {NUMBERS[of.name][INT]} count a multiply-add as two; "
                   f"the chip file has {units.text(pipe.value, 'OP/s')} instructions: OI* is "
                   f"{emulation.threshold(of, by):.2g} FLOP/B on its numbers, {emulation.threshold(theirs, by):.2g} on "
                   "the note's")  # fmt: skip
    return out


def _own(of: Chip) -> dict[str, str]:
    number = of.number("matrix.float8_e4m3fn")
    return {} if number is None else {number.key: number.text}


def share(d: Demand, of: Chip, by: Scheme) -> float:
    """Of the matrix unit's peak, what the products need to keep up with the memory stream at full bandwidth."""
    low, hbm = of.value(f"matrix.{by.dtype}"), of.value(HBM)
    assert low is not None
    assert hbm is not None
    return by.products * d.executed(by) / low / (d.nbytes / hbm)
