"""How to ask libtpu, and how to read its answer: cycles of each kernel, seconds by the chip's clock. No jax here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from costtrace.chip import Chip
from costtrace.errors import UsageError
from costtrace.target.hlo import Instruction


@dataclass(frozen=True, slots=True)
class Generation:
    """What libtpu calls a chip: the accelerator type's stem with the units it counts in, the topology's stem and shape
    of one host."""

    accelerator: str
    per_chip: int
    topology: str
    host: str


GENERATIONS = {
    "v4": Generation("v4", 2, "v4", "2x2x1"), "v5e": Generation("v5litepod", 1, "v5e", "2x2"),
    "v5p": Generation("v5p", 2, "v5p", "2x2x1"), "v6e": Generation("v6e", 1, "v6e", "2x2"),
    "v7x": Generation("tpu7x", 2, "tpu7x", "2x2x1"),
}  # fmt: skip


def generation(chip: Chip) -> Generation:
    """Raises UsageError for a chip that libtpu has no compiler for."""
    if chip.name not in GENERATIONS:
        raise UsageError(f"no TPU compiler for {chip.name}: there is one for {', '.join(GENERATIONS)}")
    return GENERATIONS[chip.name]


def topology(chip: Chip, shape: str | None = None) -> str:
    """'v6e:2x4': libtpu's name of some chips in a grid (by default one host's). Raises UsageError for no such shape."""
    g = generation(chip)
    dims = (shape or g.host).split("x")
    if not all(d.isdigit() and int(d) for d in dims) or len(dims) != len(g.host.split("x")):
        raise UsageError(f"no topology {shape!r} of {chip.name}: write it like {g.host} (chips along each axis)")
    return f"{g.topology}:{'x'.join(dims)}"


def environment(chip: Chip, shape: str | None = None) -> dict[str, str]:
    """What libtpu reads before jax is imported; without it it looks for a TPU machine around it, and leaves files."""
    g = generation(chip)
    chips = math.prod(int(d) for d in topology(chip, shape).partition(":")[2].split("x"))
    return {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": f"{g.accelerator}-{chips * g.per_chip}",
            "TPU_WORKER_HOSTNAMES": "localhost", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_LOG_DIR": "disabled",
            "TPU_STDERR_LOG_LEVEL": "3", "TPU_MIN_LOG_LEVEL": "3"}  # fmt: skip


def fields(chip: Chip, shape: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """What child.py needs to know."""
    return {"platform": "tpu", "topology": topology(chip, shape), "options": options}


def cycles(i: Instruction) -> int | None:
    """The backend's own estimate of one execution; None where it gives none."""
    window = i.backend_config.get("window_config")
    found = window.get("estimated_cycles") if isinstance(window, dict) else None
    return int(found) if found is not None else None


def seconds(i: Instruction, chip: Chip) -> float | None:
    """`cycles` by the chip's clock; None without an estimate. Raises UsageError where the chip file has no clock."""
    n, clock = cycles(i), chip.value("cores.clock")
    if clock is None:
        raise UsageError(f"chip {chip.name} has no cores.clock, which turns the compiler's cycles into seconds: add it")
    return None if n is None else n / clock
