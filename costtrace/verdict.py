"""One line per row of a hand count and quantity: what the claim, the program and XLA say of it, and a verdict.

The matrix products must agree exactly (or as closely as the claim's own tolerance says); how elementwise work is
counted is a convention, and so are the multiplications of a convolution's padding (costtrace, like XLA, does not count
them) and the bytes of a part that multiplies nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from costtrace.claim import Claim
from costtrace.core import Cost
from costtrace.evidence.by_scope import Cell, Lowered
from costtrace.evidence.hand import PARTS, Hand
from costtrace.evidence.traced import OWN, Traced, within

EQUAL, CONVENTION, DIFFERS = "equal", "convention", "differs"
NOT_CLAIMED, NOT_THERE = "missing in the hand count", "missing in the program"
VERDICTS = (EQUAL, CONVENTION, DIFFERS, NOT_CLAIMED, NOT_THERE)
FLOPS = (*PARTS, "flops")
WHOLE = "whole_windows"
"""The products with every window of a convolution counted in full, over the padding too."""
XLA_VERDICTS: dict[bool | None, str] = {True: EQUAL, False: DIFFERS, None: CONVENTION}
"""Of a row that nobody claims anything of, from whether XLA agrees."""
Parts = Mapping[str, Any]
COMPILED = {"product_flops": "matmul_flops", "flops": "flops", "bytes_fused": "hbm_bytes", "bytes_scoped": "hbm_bytes"}
"""What of a compiled part stands beside a quantity."""
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
    absent: tuple[str, ...] = ()
    """Of the scopes that the claim names, those that the program has not."""
    compiled: float | None = None

    @property
    def difference(self) -> Any:
        return (self.hand or 0) - (self.traced or 0)

    @property
    def scope(self) -> str:
        return " + ".join(self.scopes or self.wanted) or "."


def figures(cost: Cost) -> dict[str, int]:
    """The quantities of a claim that a Cost holds."""
    products = cost.matmul_flops + cost.conv_flops
    return {
        "product_flops": products,
        "vector_flops": cost.flops - products,
        "flops": cost.flops,
        "transcendentals": cost.transcendentals,
        "weight_bytes": cost.weight_bytes,
        "bytes_fused": cost.bytes_fused,
        "bytes_scoped": cost.bytes_scoped,
        "bytes_unfused": cost.bytes_unfused,
    }


def lines(hand: Hand, stage: Traced, lowered: Lowered, compiled: Parts | None = None) -> list[Line]:
    """Every claim about the stage, then every part that no claim covers. Where nobody claims anything of any stage: the
    program's rows, held against XLA alone. compiled: {scope: what the chip's compiler made of its own ops}.
    """
    found = list(_unasked(stage, lowered)) if not hand.claims.claims else _all(hand, stage, lowered)
    for line in found if compiled is not None else ():
        if (which := COMPILED.get(line.quantity)) and line.traced is not None:
            some = line.scopes or ("",)
            inside = (part for scope, part in (compiled or {}).items() if any(within(scope, path) for path in some))
            line.compiled = sum(getattr(part, which) for part in inside)
    return found


def _all(hand: Hand, stage: Traced, lowered: Lowered) -> list[Line]:
    claims: dict[str, list[Claim]] = {}
    for claim in hand.claims.claims:
        if claim.stage == stage.name:
            claims.setdefault(claim.label, []).append(claim)
    found = [line for label, some in claims.items() for line in _claimed(label, some, hand, stage, lowered)]
    return found + list(_unclaimed([c for some in claims.values() for c in some], stage, lowered))


def _claimed(label: str, claims: list[Claim], hand: Hand, stage: Traced, lowered: Lowered) -> Iterator[Line]:
    values = hand.rows[stage.name][label]
    by_quantity = {claim.measures: claim for claim in claims}
    claim = next((c for c in claims if c.measures != "parameters"), claims[0])
    paths = [] if claim.measures == "parameters" else stage.paths(claim.paths)
    there = bool(paths) or claim.measures == "parameters"
    traced: dict[str, Any] = figures(stage.cost(paths)) | {WHOLE: stage.whole_windows(paths)} if there else {}
    absent = tuple(path for path in claim.paths if not stage.paths([path])) if paths else ()
    cell = lowered.cell(paths) if there else Cell(None, None)
    for quantity, value in values.items():
        own = by_quantity.get(quantity, claim)
        if quantity == "parameters":
            traced[quantity] = stage.parameters(own.paths)
        line = Line(
            stage.name,
            stage.calls,
            label,
            tuple(paths) if paths != [""] else (),
            quantity,
            value,
            traced.get(quantity),
            EQUAL,
            claims=_behind(quantity, by_quantity),
            wanted=own.paths,
            absent=absent,
        )
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
        if quantity == "vector_flops":
            return {"products": 0, "convention": total}
        if "product_flops" not in hand:
            return {}
        products = hand["product_flops"] - traced["product_flops"]
        if products and WHOLE in traced:
            products = hand["product_flops"] - traced[WHOLE]
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
    if line.quantity in ("product_flops", "flops"):
        products = hand.get("product_flops", line.hand)
        same = any(_close(products, traced[which], claim.tolerance) for which in ("product_flops", WHOLE))
        return CONVENTION if same else DIFFERS
    if line.quantity in BYTES:
        return DIFFERS if hand.get("product_flops") or traced["product_flops"] else CONVENTION
    return DIFFERS


def _close(hand: Any, traced: Any, tolerance: float) -> bool:
    return hand == traced or abs(hand - traced) <= tolerance * abs(hand)


def _unasked(stage: Traced, lowered: Lowered) -> Iterator[Line]:
    for row in stage.profile.rows(by="layer", depth=stage.depth):
        path = row.key.removesuffix(OWN).removesuffix(".")
        products = figures(row.cost)["product_flops"]
        cell = lowered.cell([path], own=row.key.endswith("."))
        if products or cell.flops or cell.notes:
            yield Line(
                stage.name,
                stage.calls,
                row.key,
                (path,) if path else (),
                "product_flops",
                None,
                products,
                XLA_VERDICTS[cell.equal],
                cell.flops,
                cell.equal,
                cell.notes,
            )


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
            line = Line(
                stage.name,
                stage.calls,
                scope,
                (path,) if path else (),
                quantity,
                0,
                found[quantity],
                NOT_CLAIMED,
                parts=_parts(quantity, dict.fromkeys(found, 0), found),
            )
            if quantity in ("product_flops", "flops"):
                line.xla, line.xla_equal, line.notes = cell.flops, cell.equal, cell.notes
            yield line
