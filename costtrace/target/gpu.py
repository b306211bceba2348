"""How to ask XLA for NVIDIA GPUs, and how to read its answer. A target is made from the chip's file. No jax here.

XLA writes several estimates beside a kernel, by models that are right for different kinds; `seconds` takes the one for
the kind. Sources: XLA's proto GpuTargetConfigProto and its files target_config/specs, commit 0774019.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from costtrace import units
from costtrace.chip import Chip
from costtrace.errors import UsageError
from costtrace.target.hlo import Instruction
from costtrace.target.work import GEMM


@dataclass(frozen=True, slots=True)
class Capability:
    """CUDA's compute capability: what the compiler may use. `shared_optin`: bytes one block may ask for (CUDA C++
    Programming Guide, technical specifications per compute capability); `key`: XLA's name in its tables."""

    major: int
    minor: int
    shared_per_core: int
    shared_optin: int
    accelerated: bool = False

    @property
    def key(self) -> str:
        return f"sm_{self.major}{self.minor}"


CAPABILITIES = {
    "a100": Capability(8, 0, 167936, 166912), "l4": Capability(8, 9, 102400, 101376),
    "h100": Capability(9, 0, 233472, 232448, True), "h200": Capability(9, 0, 233472, 232448, True),
    "b200": Capability(10, 0, 233472, 232448, True), "b300": Capability(10, 3, 233472, 232448, True),
}  # fmt: skip

# XLA's PrimitiveType numbers.
TYPES = {"int8": 2, "int32": 4, "float16": 10, "float32": 11, "float64": 12, "bfloat16": 16, "float8_e5m2": 19,
         "float8_e4m3fn": 20, "float4_e2m1fn": 32}  # fmt: skip
TENSOR_UNITS = 4
"""Tensor cores of a multiprocessor, Volta to Blackwell."""
OPTIONS = {"xla_gpu_collect_cost_model_stats": True, "xla_gpu_enable_triton_gemm": False}
"""Estimates are written; products stay library calls, whose tiles no compiler guesses without a device."""
NO_GEMM_TABLE = {"xla_disable_hlo_passes": "sol-gpu-cost-model-stats-collection"}
"""Elsewhere than on sm_90 and B200 XLA has no measured product rates, and fails where it looks for them."""
MEASURED_BY_XLA = ("h100", "h200", "b200")


def capability(chip: Chip) -> Capability:
    """Raises UsageError for a chip that has no target here."""
    if chip.name not in CAPABILITIES:
        raise UsageError(f"no GPU target for {chip.name}: there is one for {', '.join(CAPABILITIES)}")
    return CAPABILITIES[chip.name]


def topology(shape: str | None = None) -> str:
    """XLA's partitions x hosts x devices of a host; '8' is eight in one host, '2x8' two hosts of eight."""
    dims = (shape or "1").split("x")
    if not all(d.isdigit() and int(d) for d in dims) or len(dims) > 2:
        raise UsageError(f"no topology {shape!r} of GPUs: write 8 (in one host) or 2x8 (two hosts of eight)")
    return "x".join(["1", *(["1"] if len(dims) == 1 else []), *dims])


def target_config(chip: Chip) -> str:
    """The chip as XLA's textproto. Raises UsageError where the chip's file lacks a number that it needs."""
    c = capability(chip)
    cores, clock = round(_needed(chip, "cores.sm")), _needed(chip, "cores.clock")
    lanes = _units(_needed(chip, "vector.float32") / (2 * cores * clock))
    bandwidth = _needed(chip, "hbm.bandwidth") * (chip.value("efficiency.hbm") or 1)  # what streams, where measured
    config = {
        "threads_per_block_limit": 1024, "threads_per_warp": 32, "shared_memory_per_block": 49152,
        "shared_memory_per_core": c.shared_per_core, "threads_per_core_limit": 1536 if c.key == "sm_89" else 2048,
        "core_count": cores, "fpus_per_core": lanes, "block_dim_limit_x": 2**31 - 1, "block_dim_limit_y": 65535,
        "block_dim_limit_z": 65535, "memory_bandwidth": round(bandwidth),
        "l2_cache_size": round(_needed(chip, "memory.l2")), "clock_rate_ghz": _ghz(clock),
        "device_memory_size": round(_needed(chip, "hbm.capacity")), "shared_memory_per_block_optin": c.shared_optin,
        "registers_per_core_limit": 65536, "registers_per_block_limit": 65536,
    }  # fmt: skip
    lines = [f"  {key}: {value}" for key, value in config.items()]
    extension = " feature_extension: ACCELERATED_FEATURES" if c.accelerated else ""
    lines.append(f"  cuda_compute_capability {{ major: {c.major} minor: {c.minor}{extension} }}")
    lines += _rates("scalar_unit_description", chip, "vector", cores, lanes, clock)
    lines += _rates("matrix_unit_description", chip, "matrix", cores, TENSOR_UNITS, clock)
    return "\n".join(
        [
            "gpu_device_info {",
            *lines,
            "}",
            'platform_name: "CUDA"',
            f'device_description_str: "NVIDIA {chip.name.upper()}"',
            "",
        ]
    )  # XLA finds its tables by this


def _rates(message: str, chip: Chip, unit: str, cores: int, each: int, clock: float) -> list[str]:
    """Rates as units x operations x clock: operations a power of two, the clock such that the product is the peak."""
    lines = [f"  {message} {{"]
    for dtype, key in TYPES.items():
        number = chip.numbers.get(f"{unit}.{dtype}")
        if number is None:
            continue
        per_unit = number.value / (2 * cores * each * clock)
        operations = max(1, 2 ** round(math.log2(per_unit)))
        count = each if per_unit >= 1 else max(1, round(each * per_unit))
        rate = number.value / (2 * cores * count * operations)
        lines.append(
            f"    rate_infos {{ key: {key} value {{ clock_rate_ghz: {_ghz(rate)} units_per_core: {count} "
            f"ops_per_clock: {operations} }} }}"
        )
    return [*lines, "  }"]


def _units(lanes: float) -> int:
    return 64 * max(1, round(lanes / 64))


def _ghz(hertz: float) -> float:
    return round(hertz / units.parse("1 GHz", "Hz"), 6)


def _needed(chip: Chip, key: str) -> float:
    value = chip.value(key)
    if value is None:
        raise UsageError(f"chip {chip.name} has no {key}, which its compiler's target needs: add it to {chip.path}")
    return value


def fields(chip: Chip, shape: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """What child.py needs to know."""
    extra = {} if chip.name in MEASURED_BY_XLA else NO_GEMM_TABLE
    return {"platform": "cuda", "topology": topology(shape), "target_config": target_config(chip),
            "options": {**OPTIONS, **extra, **options}}  # fmt: skip


def estimates(i: Instruction) -> dict[str, float]:
    """{model: seconds} that XLA wrote beside a kernel; {} where it wrote none."""
    found = i.backend_config.get("reification_cost")
    rows = found if isinstance(found, list) else [found] if isinstance(found, dict) else []
    us = units.parse("1 us", "s")
    return {str(r.get("name", "")): float(r["exec_time_us"]) * us for r in rows if r.get("exec_time_us") is not None}


def seconds(i: Instruction) -> tuple[float | None, str]:
    """(seconds, the model they are by) for one execution; None where no model is for this kind of kernel."""
    found = estimates(i)
    kind = str((i.backend_config.get("fusion_backend_config") or {}).get("kind", ""))
    target = (i.attribute("custom_call_target") or "").strip('"')
    order: tuple[str, ...] = ("sol", "")
    if GEMM.search(target) or "gemm" in kind:
        order = ("perf-table-model", "sol", "indexing-cost-model")
    elif "triton" in kind:
        order = ("indexing-cost-model",)
    elif i.opcode == "fusion":
        order = ("", "sol")
    name = next((n for n in order if found.get(n)), None)
    return (None, "") if name is None else (found[name], name or "performance-model")
