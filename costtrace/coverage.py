"""How much of a program is counted exactly, modelled or not at all: its operations, and their share of the FLOPs.

The document of one chip makes it of a profile's records, that of several chips of the undivided traces: one place says
what both print. Knows nothing of jax.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from costtrace.core import COUNTS, EXACT, MODELLED, UNKNOWN, Cost, Note

STATUS = (EXACT, MODELLED, UNKNOWN)
WORDS = {EXACT: "exactly", MODELLED: "modelled", UNKNOWN: "partly unknown"}
WORK = ("flops", *(name for name in COUNTS if "bytes" not in name))
"""The counts of a cost that are work, not bytes."""
Group = tuple[str, int, Cost]
"""(status, how many operations, what they cost together)"""


def unpriced(status: str, cost: Cost) -> bool:
    """Nothing of it was counted, because nobody knows its price: its work is unknown, not 0."""
    return status == UNKNOWN and not any(getattr(cost, name) for name in WORK)


@dataclass(frozen=True, slots=True)
class Counted:
    """How well one call of a program is known, without what it costs by scope."""

    status: str
    groups: list[Group]
    notes: list[Note]


@dataclass(frozen=True, slots=True)
class Coverage:
    """ops: how many operations have each status, each stage once. shares: of all calls' FLOPs; of the stages, where
    there are no FLOPs; None where some work has no price, for nobody knows how much of the whole it is."""

    ops: dict[str, int]
    shares: dict[str, float | None]
    flops: bool = True
    """False where there are none: then there are no shares of them to tell."""

    def __str__(self) -> str:
        if not self.ops[MODELLED] and not self.ops[UNKNOWN]:
            return f"counted: all {self.ops[EXACT]:,} ops exactly"
        parts = [
            f"{n:,} {WORDS[status]}" + (f" ({100 * share:.1f} % of FLOPs)" if share is not None and self.flops else "")
            for status, n in self.ops.items()
            if n
            for share in (self.shares[status],)
        ]
        return f"counted: {', '.join(parts)} of {sum(self.ops.values()):,} ops"

    def to_dict(self) -> dict[str, Any]:
        """As documents have it."""
        return {"coverage": self.shares, "ops": self.ops}


def coverage(stages: Iterable[tuple[int, str, Iterable[Group]]]) -> Coverage:
    """Of stages given as (calls, status, groups of operations)."""
    ops, flops, whole = (dict.fromkeys(STATUS, 0) for _ in range(3))
    blind = False
    for calls, stage, groups in stages:
        whole[stage] += 1
        for status, n, cost in groups:
            ops[status] += n
            flops[status] += calls * cost.flops
            blind |= unpriced(status, cost)
    of = flops if any(flops.values()) else whole
    total = sum(of.values())
    return Coverage(ops, {status: None if blind or not total else n / total for status, n in of.items()})


def said(doc: Mapping[str, Any]) -> str:
    """The line of a document that has `ops` and `coverage`, and mostly `total`."""
    return str(Coverage(doc["ops"], doc["coverage"], doc.get("total", {}).get("flops") != 0))
