"""Seconds of a kernel: the compiler's own estimate where it gives one that can be, else our roofline of that kernel.

`by` says which. Nothing is fitted to a measurement: rates are the chip file's (its measured ones where it has them).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from costtrace import roofline, units
from costtrace.chip import Chip
from costtrace.core import Cost, Note
from costtrace.target import gpu, opname, tpu
from costtrace.target.kernel import Kernel, Kernels
from costtrace.target.work import Work

COMPILER, ROOFLINE, REPLACED, BESIDE = "compiler", "roofline", "replaced", "beside"
"""Whose seconds: the chip's compiler; our roofline, where it gives none, or where its own cannot be; of a copy beside
the kernels nobody's."""
ABSURD = 10
"""An estimate this many times the kernel's own roofline, of a GPU kernel that is not small, is replaced by it."""
SMALL_S = units.parse("20 us", "s")
PLACEHOLDER_S = units.parse("5 ms", "s")
"""What XLA writes for a collective that is in none of its tables."""

DTYPES = {
    "pred": "int8", "s4": "int4", "u4": "int4", "s8": "int8", "u8": "int8", "bf16": "bfloat16", "f16": "float16",
    "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128", "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2", "f4e2m1fn": "float4_e2m1fn", "f8e4m3b11fnuz": "float8_e4m3b11fnuz",
}  # fmt: skip
"""HLO's name of a type -> numpy's."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A kernel with its scope and the seconds of one execution. `hidden_s`: of a collective, what others cover."""

    kernel: Kernel
    scope: str
    seconds: float
    by: str
    model: str = ""
    roofline_s: float = 0.0
    bound: str = "memory"
    hidden_s: float = 0.0

    @property
    def all_s(self) -> float:
        """What it adds to the program: its executions, less what is hidden behind others."""
        return self.kernel.repeat * (self.seconds - self.hidden_s)


def cost_of(work: Work, collective_bytes: int = 0) -> Cost:
    """A kernel's work as a Cost, so that the one roofline prices it."""
    by_dtype: dict[str, int] = {}
    for dtype, flops in work.dtypes:
        name = DTYPES.get(dtype, dtype)
        by_dtype[name] = by_dtype.get(name, 0) + flops
    vector = {"float32": work.vector_flops} if work.vector_flops else {}
    return Cost(matmul_flops=work.matmul_flops, vector_flops=work.vector_flops, transcendentals=work.transcendentals,
                by_dtype=by_dtype, vector_by_dtype=vector, collective_bytes=collective_bytes)  # fmt: skip


def timed(kernels: Kernels, chip: Chip, known: frozenset[str] | None, devices: int) -> Iterator[Timed]:
    """Every kernel with its seconds; notes are added to `kernels`. `known`: the program's scopes, as traced."""
    share = chip.devices if chip.kind == "tpu" else 1
    for kernel in kernels.all:
        scope = opname.scope_of(kernel.op_name, known) or ("." if kernel.op_name else opname.COMPILER)
        sent = wire_bytes(kernel, devices)
        times = roofline.times(cost_of(kernel.work, sent), chip, kernel.traffic.hbm, efficiency=chip.kind == "gpu")
        own_s = times.seconds * share  # the chip's rates are those of all its devices
        seconds, by, model = _priced(kernel, chip, own_s)
        if by == REPLACED:
            kernels.notes.append(Note("replaced-estimate", "" if scope in (".", opname.COMPILER) else scope,
                                      f"the compiler's {units.text(seconds, 's')} for {kernel.name} is over {ABSURD} "
                                      f"times its roofline, {units.text(own_s, 's')}, which is used"))  # fmt: skip
            seconds = own_s
        if kernel.work.unknown:
            kernels.notes.append(Note("unknown-kernel", "" if scope in (".", opname.COMPILER) else scope,
                                      f"{kernel.work.unknown[0]}: a kernel whose arithmetic is not in the module: "
                                      "priced by its bytes"))  # fmt: skip
        yield Timed(kernel, scope, seconds, by, model, own_s, times.bound)


def _priced(kernel: Kernel, chip: Chip, own_s: float) -> tuple[float, str, str]:
    if kernel.transfer:
        return 0.0, BESIDE, ""
    if chip.kind == "tpu":
        found = tpu.seconds(kernel.instruction, chip)
        return (own_s, ROOFLINE, "") if found is None else (found, COMPILER, "cycles")
    estimate, model = gpu.seconds(kernel.instruction)
    if estimate is None:
        return own_s, ROOFLINE, ""
    if kernel.collective:  # a latency is no absurdity; XLA's stand-in for an unknown one is
        return (own_s, ROOFLINE, "") if estimate >= PLACEHOLDER_S else (estimate, COMPILER, model)
    if estimate > SMALL_S and own_s and estimate > ABSURD * own_s:
        return estimate, REPLACED, model
    return estimate, COMPILER, model


_AXES = re.compile(r"replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}")
_RANGE = re.compile(r"replica_groups=\[\d+,(\d+)\]<=")
_LISTS = re.compile(r"replica_groups=\{\{([\d,]*)\}")


def group_size(kernel: Kernel, devices: int) -> int:
    """How many devices take part in one group of a collective; all where the text does not say.

    Written as {{0,1},{2,3}}, as [2,4]<=[8] (two groups of four) or as mesh['x'=2,'y'=4] {'y'} (along an axis).
    """
    text = kernel.instruction.attributes
    if found := _AXES.search(text):
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", found[1]))
        return math.prod(
            int(part or sizes[name]) for name, part in re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", found[2])
        )
    if found := _RANGE.search(text):
        return int(found[1])
    return len(found[1].split(",")) if (found := _LISTS.search(text)) else devices


def wire_bytes(kernel: Kernel, devices: int) -> int:
    """Bytes that one device sends in one execution of a collective, by a ring; 0 for another kernel.

    All-gather and reduce-scatter (n-1)/n of the whole, all-reduce twice that, all-to-all (n-1)/n of its own part, a
    permute its operand. Source: the usual ring counts, as in How to Scale Your Model, part 3.
    """
    kind = kernel.collective
    if not kind:
        return 0
    arrays = [s for s in kernel.instruction.results if s.dtype not in ("token", "opaque")]
    inputs = [s for shapes in kernel.computation.shapes_of(kernel.instruction) for s in shapes]
    n = group_size(kernel, devices)
    given = sum(s.nbytes for s in inputs)
    if kernel.instruction.opcode.endswith("-start") and len(arrays) > len(inputs):
        arrays = arrays[len(inputs) :]
    out = sum(s.nbytes for s in arrays if s.dims or s.dtype not in ("u32", "s32"))
    part = max(n - 1, 0)
    return {
        "all-gather": out * part // max(n, 1), "reduce-scatter": given * part // max(n, 1),
        "all-reduce": 2 * given * part // max(n, 1), "all-to-all": given * part // max(n, 1),
        "ragged-all-to-all": given * part // max(n, 1),
    }.get(kind, given)  # fmt: skip
