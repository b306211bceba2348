"""Profiles -> flame graphs that others draw: speedscope's JSON and collapsed stacks. Weights are of all calls.

Time is by innermost scope, each as one kernel, none overlapped; FLOPs and unfused bytes go down to the primitive.
Formats: speedscope's file-format-spec.ts; lines of FlameGraph's stackcollapse tools, `a;b;c 123`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from costtrace.chip import Chip
from costtrace.core import Cost
from costtrace.report.document import Stages
from costtrace.timeline import OWN, leaves, stacks
from costtrace.units import PREFIXES
from costtrace.version import __version__

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
Stack = tuple[str, ...]
Stacks = list[tuple[Stack, float]]


def by_time(stages: Stages, chip: Chip) -> Iterator[tuple[Stack, float]]:
    """Pessimistic seconds of each innermost scope."""
    for name, calls, profile in stages:
        for leaf in leaves(profile, chip):
            path = (*leaf.path[:-1], "(own)") if leaf.path[-1:] == (OWN,) else leaf.path
            yield (name, *path), calls * leaf.times.seconds


def by_count(count: Callable[[Cost], int]) -> Callable[[Stages, Chip], Iterator[tuple[Stack, float]]]:
    """Each primitive of each scope by a count of its cost."""

    def counted(stages: Stages, chip: Chip) -> Iterator[tuple[Stack, float]]:
        for name, calls, profile in stages:
            for path, cost in stacks(profile):
                yield (name, *path), calls * count(cost)

    return counted


WEIGHTS: dict[str, tuple[str, str, Callable[[Stages, Chip], Iterator[tuple[Stack, float]]]]] = {
    "time": ("seconds", "serial time, scopes one after the other", by_time),
    "flops": ("none", "FLOPs", by_count(lambda cost: cost.flops)),
    "bytes": ("bytes", "bytes, a kernel a primitive", by_count(lambda cost: cost.bytes_unfused)),
}
"""What stacks can be weighed by -> (speedscope's unit, words, the stacks)."""


def speedscope(name: str, stages: Stages, chip: Chip) -> str:
    """One file with a profile for each of WEIGHTS; open it on speedscope.app."""
    frames: dict[str, int] = {}
    profiles = []
    for unit, words, some in WEIGHTS.values():
        found = [(stack, weight) for stack, weight in some(stages, chip) if weight]
        profiles.append(
            {
                "type": "sampled",
                "name": f"{name} on {chip.name}: {words}",
                "unit": unit,
                "startValue": 0,
                "endValue": sum(weight for _, weight in found),
                "samples": [[frames.setdefault(part, len(frames)) for part in stack] for stack, _ in found],
                "weights": [weight for _, weight in found],
            }
        )
    return json.dumps(
        {
            "$schema": SCHEMA,
            "exporter": f"costtrace {__version__}",
            "name": f"{name} on {chip.name} (modelled)",
            "activeProfileIndex": 0,
            "shared": {"frames": [{"name": part} for part in frames]},
            "profiles": profiles,
        }
    )


def collapsed(name: str, stages: Stages, chip: Chip, weight: str) -> str:
    """One stack a line with a whole number: picoseconds, FLOPs or bytes. Equal stacks are one line; what rounding takes
    from one the next has, so that the lines add up to the whole."""
    sums: dict[Stack, float] = {}
    for stack, n in WEIGHTS[weight][2](stages, chip):
        sums[stack] = sums.get(stack, 0) + n
    scale = 10 ** (PREFIXES["k"] - PREFIXES["n"]) if weight == "time" else 1
    lines: list[str] = []
    until: float = 0
    told = 0
    for stack, n in sums.items():
        until += n * scale
        whole = round(until) - told
        told += whole
        lines += [f"{';'.join(map(_frame, (name, *stack)))} {whole}"] if whole else []
    return "".join(f"{line}\n" for line in lines)


def _frame(name: str) -> str:
    """A name without what separates frames and lines."""
    return re.sub(r"\s+", " ", name.replace(";", ":"))
