"""Seconds of a kernel: the compiler's own estimate where it gives one that can be, else our roofline of that kernel.

`by` says which. Nothing is fitted to a measurement: rates are the chip file's (its measured ones where it has them).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from costtrace import roofline, units
from costtrace.chip import Chip
from costtrace.core import Cost, Note
from costtrace.mesh import Collective
from costtrace.target import collective, gpu, opname, tpu
from costtrace.target.collective import Network
from costtrace.target.hlo import Module
from costtrace.target.kernel import Kernel, Kernels
from costtrace.target.work import Work

COMPILER, ROOFLINE, REPLACED, NETWORK, BESIDE = "compiler", "roofline", "replaced", "network", "beside"
"""Whose seconds: the chip's compiler; our roofline, where it gives none, or where its own cannot be; of a collective
those of the network (mesh.PRICES); of a copy beside the kernels nobody's."""
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
    """A kernel with its scope and the seconds of one execution. `moved`: the collective that it is, or has in it, with
    `network_s`, None where nobody published the links; `hidden_s`: what other kernels cover of a collective."""

    kernel: Kernel
    scope: str
    seconds: float
    by: str
    model: str = ""
    roofline_s: float = 0.0
    bound: str = "memory"
    hidden_s: float = 0.0
    moved: Collective | None = None
    network_s: float | None = None

    @property
    def all_s(self) -> float:
        """What it adds to the program: its executions, less what is hidden behind others."""
        return self.kernel.repeat * (self.seconds - self.hidden_s)


def cost_of(work: Work) -> Cost:
    """A kernel's work as a Cost, so that the one roofline prices it."""
    by_dtype: dict[str, int] = {}
    for dtype, flops in work.dtypes:
        name = DTYPES.get(dtype, dtype)
        by_dtype[name] = by_dtype.get(name, 0) + flops
    vector = {"float32": work.vector_flops} if work.vector_flops else {}
    return Cost(matmul_flops=work.matmul_flops, vector_flops=work.vector_flops, transcendentals=work.transcendentals,
                by_dtype=by_dtype, vector_by_dtype=vector)  # fmt: skip


def timed(module: Module, kernels: Kernels, network: Network, known: frozenset[str] | None) -> Iterator[Timed]:
    """Every kernel with its seconds; notes are added to `kernels`. `known`: the program's scopes, as traced."""
    chip = network.chip
    share = chip.devices if chip.kind == "tpu" else 1
    for kernel in kernels.all:
        scope = opname.scope_of(kernel.op_name, known) or ("." if kernel.op_name else opname.COMPILER)
        place = "" if scope in (".", opname.COMPILER) else scope
        times = roofline.times(cost_of(kernel.work), chip, kernel.traffic.hbm, efficiency=chip.kind == "gpu")
        own_s, bound = times.seconds * share, times.bound  # the chip's rates are those of all its devices
        moved = collective.of(module, kernel, network.axes)
        price = network.price(moved) if moved else None
        if price and price.seconds >= own_s:
            own_s, bound = price.seconds, "link"
        elif kernel.collective and price is None:
            text = f"{kernel.collective}: who takes part, or how {chip.name} chips are linked, is not known: bytes only"
            kernels.notes.append(Note("unknown-network", place, text))
        seconds, by, model = _priced(kernel, chip, own_s, moved is not None)
        if by == REPLACED:
            kernels.notes.append(Note("replaced-estimate", place,
                                      f"the compiler's {units.text(seconds, 's')} for {kernel.name} is over {ABSURD} "
                                      f"times its roofline, {units.text(own_s, 's')}, which is used"))  # fmt: skip
            seconds = own_s
        if kernel.work.unknown:
            kernels.notes.append(Note("unknown-kernel", place,
                                      f"{kernel.work.unknown[0]}: a kernel whose arithmetic is not in the module: "
                                      "priced by its bytes"))  # fmt: skip
        network_s = price.seconds if price else None
        yield Timed(kernel, scope, seconds, by, model, own_s, bound, moved=moved, network_s=network_s)


def _priced(kernel: Kernel, chip: Chip, own_s: float, moved: bool) -> tuple[float, str, str]:
    if kernel.transfer and not moved:
        return 0.0, BESIDE, ""
    own = NETWORK if moved else ROOFLINE
    if chip.kind == "tpu":
        found = tpu.seconds(kernel.instruction, chip)
        return (own_s, own, "") if found is None or moved else (found, COMPILER, "cycles")
    estimate, model = gpu.seconds(kernel.instruction)
    if estimate is None:
        return own_s, own, ""
    if kernel.collective:  # a latency is no absurdity; XLA's stand-in for an unknown one is
        return (own_s, own, "") if estimate >= PLACEHOLDER_S else (estimate, COMPILER, model)
    if estimate > SMALL_S and own_s and estimate > ABSURD * own_s:
        return estimate, REPLACED, model
    return estimate, COMPILER, model
