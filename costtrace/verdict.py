"""One line per row of a hand count and quantity: what the claim, the program and XLA say of it, and a verdict.

The matrix products must agree exactly (or as closely as the claim's own tolerance says); how elementwise work is
counted is a convention, and so are the bytes of a part that multiplies nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from costtrace.claim import Claim
from costtrace.core import Cost
from costtrace.evidence.by_scope import Cell, Lowered
from costtrace.evidence.hand import PARTS, Hand
from costtrace.evidence.traced import OWN, Traced

EQUAL, CONVENTION, DIFFERS = "equal", "convention", "differs"
NOT_CLAIMED, NOT_THERE = "missing in the hand count", "missing in the program"
VERDICTS = (EQUAL, CONVENTION, DIFFERS, NOT_CLAIMED, NOT_THERE)
FLOPS = (*PARTS, "flops")
BYTES = ("bytes_fused", "bytes_scoped", "bytes_unfused")


@dataclass(slots=True)
class Line:
    """A quantity of one part. `difference` is hand - traced, `parts` what it is made of: {"products", "convention"} of
    FLOPs, {"weights", "activations"} of bytes. xla: FLOPs of the part's products. None: the witness is silent."""

    stage: str
    calls: int
    row: str
    scopes: tuple[str, ...]
    quantity: str
    hand: Any
    traced: Any
    verdict: str
    xla: float | None = None
    xla_equal: bool | None = None
    notes: list[str] = field(default_factory=list)
    parts: dict[str, Any] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    wanted: tuple[str, ...] = ()

    @property
    def difference(self) -> Any:
        return (self.hand or 0) - (self.traced or 0)

    @property
    def scope(self) -> str:
        return " + ".join(self.scopes or self.wanted) or "."


def figures(cost: Cost) -> dict[str, int]:
    """The quantities of a claim that a Cost holds."""
    products = cost.matmul_flops + cost.conv_flops
    return {"product_flops": products, "vector_flops": cost.flops - products, "flops": cost.flops,
            "transcendentals": cost.transcendentals, "weight_bytes": cost.weight_bytes,
            "bytes_fused": cost.bytes_fused, "bytes_scoped": cost.bytes_scoped,
            "bytes_unfused": cost.bytes_unfused}  # fmt: skip


def lines(hand: Hand, stage: Traced, lowered: Lowered) -> list[Line]:
    """Every claim about the stage, then every part that no claim covers."""
    claims: dict[str, list[Claim]] = {}
    for claim in hand.claims.claims:
        if claim.stage == stage.name:
            claims.setdefault(claim.label, []).append(claim)
    found = [line for label, some in claims.items() for line in _claimed(label, some, hand, stage, lowered)]
    return found + list(_unclaimed([c for some in claims.values() for c in some], stage, lowered))


def _claimed(label: str, claims: list[Claim], hand: Hand, stage: Traced, lowered: Lowered) -> Iterator[Line]:
    values = hand.rows[stage.name][label]
    by_quantity = {claim.measures: claim for claim in claims}
    claim = claims[0]
    paths = () if claim.measures == "parameters" else stage.paths(claim.paths)
    there = bool(paths) or claim.measures == "parameters"
    traced: dict[str, Any] = figures(stage.cost(paths)) if there else {}
    cell = lowered.cell(paths) if there else Cell(None, False)
    for quantity, value in values.items():
        own = by_quantity.get(quantity, claim)
        if quantity == "parameters":
            traced[quantity] = stage.parameters(own.paths)
        line = Line(stage.name, stage.calls, label, tuple(paths) if paths != [""] else (), quantity, value,
                    traced.get(quantity), EQUAL, claims=_behind(quantity, by_quantity), wanted=own.paths)  # fmt: skip
        if not there or (quantity == "parameters" and not traced[quantity] and value):
            line.verdict = NOT_THERE
        else:
            line.parts = _parts(quantity, values, traced)
            line.verdict = _verdict(line, own, values, traced)
        if quantity in ("product_flops", "flops") and there:
            line.xla, line.xla_equal, line.notes = cell.flops, cell.equal, cell.notes
        yield line


def _behind(quantity: str, claims: dict[str, Claim]) -> tuple[Claim, ...]:
    wanted = PARTS if quantity == "flops" and quantity not in claims else (quantity,)
    return tuple(claims[q] for q in wanted if q in claims)


def _parts(quantity: str, hand: dict[str, Any], traced: dict[str, Any]) -> dict[str, Any]:
    total = hand[quantity] - traced[quantity]
    if quantity in FLOPS:
        if quantity == "flops" and "product_flops" not in hand:
            return {}
        products = 0 if quantity == "vector_flops" else hand["product_flops"] - traced["product_flops"]
        return {"products": products, "convention": total - products}
    if quantity in BYTES and "weight_bytes" in hand:
        weights = hand["weight_bytes"] - traced["weight_bytes"]
        return {"weights": weights, "activations": total - weights}
    return {}


def _verdict(line: Line, claim: Claim, hand: dict[str, Any], traced: dict[str, Any]) -> str:
    if _close(line.hand, line.traced, claim.tolerance):
        return EQUAL
    if line.quantity in ("vector_flops", "transcendentals"):
        return CONVENTION
    if line.quantity == "flops":
        products = hand.get("product_flops", line.hand)
        return CONVENTION if _close(products, traced["product_flops"], claim.tolerance) else DIFFERS
    if line.quantity in BYTES:
        multiplies = hand.get("product_flops") or traced["product_flops"]
        same_weights = hand.get("weight_bytes", traced["weight_bytes"]) == traced["weight_bytes"]
        return CONVENTION if same_weights and not multiplies else DIFFERS
    return DIFFERS


def _close(hand: Any, traced: Any, tolerance: float) -> bool:
    return hand == traced or abs(hand - traced) <= tolerance * abs(hand)


def _unclaimed(claims: list[Claim], stage: Traced, lowered: Lowered) -> Iterator[Line]:
    """A stage of which nothing is claimed is one line; where whole stages alone are claimed nothing is left over."""
    if not claims:
        yield from _missing(stage, ".", (""), stage.profile.total, FLOPS, lowered.cell([""]))
        return
    families: dict[frozenset[str], list[str]] = {}
    for quantities in (FLOPS, ("weight_bytes",), *((b,) for b in BYTES)):
        some = [c for c in claims if c.measures in quantities]
        covered = frozenset(path for c in some if c.paths for path in stage.paths(c.paths))
        if covered:
            families.setdefault(covered, []).extend(quantities)
    for covered, wanted in families.items():
        for scope, cost in stage.uncovered(covered):
            path = scope.removesuffix(OWN)
            cell = lowered.cell([path.removesuffix(".")], own=scope.endswith("."))
            yield from _missing(stage, scope, path, cost, tuple(wanted), cell)


def _missing(stage: Traced, scope: str, path: str, cost: Cost, wanted: tuple[str, ...], cell: Cell) -> Iterator[Line]:
    found = figures(cost)
    for quantity in wanted:
        if found[quantity]:
            line = Line(stage.name, stage.calls, scope, (path,) if path else (), quantity, 0, found[quantity],
                        NOT_CLAIMED, parts=_parts(quantity, dict.fromkeys(found, 0), found))  # fmt: skip
            if quantity in ("product_flops", "flops"):
                line.xla, line.xla_equal, line.notes = cell.flops, cell.equal, cell.notes
            yield line
