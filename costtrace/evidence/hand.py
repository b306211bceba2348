"""The hand count as a witness: claims under one configuration, as figures of rows, stages and the whole pipeline.

Knows no program. What it says is what the claims' author says, slips included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from costtrace import formula
from costtrace.claim import Claim, Claims
from costtrace.errors import UsageError

ALL = "*"
FIGURES = {
    "flops": "flops",
    "products": "product_flops",
    "vector": "vector_flops",
    "weights": "weight_bytes",
    "fused": "bytes_fused",
    "unfused": "bytes_scoped",
}
"""The functions of a quote's formula -> the quantity they give."""
PARTS = ("product_flops", "vector_flops")

Rows = dict[str, dict[str, dict[str, Any]]]
"""{stage: {row: {quantity: value}}}"""


class Hand:
    """The rows that `claims` give under `config`. A stage's figure is the sum of its rows, as in a report's table; a
    row without a claim of a quantity adds nothing, and neither does a claim about a whole stage beside rows."""

    def __init__(self, claims: Claims, config: Any, calls: Mapping[str, int]) -> None:
        self.claims, self.calls = claims, dict(calls)
        self.names = names(claims, config)
        self.rows: Rows = {stage: {} for stage in calls}
        for claim in claims.claims:
            if claim.stage not in self.rows:
                raise UsageError(f"claim {claim.label!r} is about stage {claim.stage!r}: there are {', '.join(calls)}")
            self.rows[claim.stage].setdefault(claim.label, {})[claim.measures] = self.value(claim)
        for rows in self.rows.values():
            for found in rows.values():
                if PARTS[0] in found and "flops" not in found:
                    found["flops"] = found[PARTS[0]] + found.get(PARTS[1], 0)

    def value(self, claim: Claim) -> Any:
        """What the claim's formula gives."""
        return formula.value(claim.formula, self.names, f"claim {claim.label!r} of {claim.stage}")

    def figure(self, quantity: str, key: str) -> Any:
        """`quantity` of a row ("single: linear1", "text:attention"), a stage, or all calls of all stages ("*").

        Raises UsageError where there is no such row.
        """
        if key == ALL:
            return sum(calls * self.figure(quantity, stage) for stage, calls in self.calls.items())
        if key in self.rows:
            whole = {claim.label for claim in self.claims.claims if claim.stage == key and not claim.paths}
            some = [row for label, row in self.rows[key].items() if label not in whole] or self.rows[key].values()
            return sum(row.get(quantity, 0) for row in some)
        stage, row = row_of(key, self.rows)
        return self.rows[stage][row].get(quantity, 0)

    def parameters(self, stage: str) -> Any:
        """Elements of all weights that the rows hold, two bytes each."""
        return formula.value("n / 2", {"n": self.figure("weight_bytes", stage)})


def names(claims: Claims, config: Any) -> dict[str, Any]:
    """The config's fields and the claims' own names, as values. Raises UsageError for one that is no formula."""
    found = {"config": config} | {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    for name, text in claims.names.items():
        found[name] = formula.value(text, found, f"name {name!r}")
    return found


def row_of(key: str, rows: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """(stage, row) of "row" or "stage:row". Raises UsageError where there is none, or more than one."""
    found = [(stage, label) for stage, some in rows.items() for label in some if key in (label, f"{stage}:{label}")]
    if len(found) != 1:
        known = ", ".join(label for some in rows.values() for label in some)
        fix = "name the stage, as stage:row" if found else f"there are {known}"
        raise UsageError(f"the claims have {'several rows' if found else 'no row'} {key!r}: {fix}")
    return found[0]
