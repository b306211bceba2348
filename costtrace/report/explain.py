"""One row's time, as formulas with their values that can be followed by hand, and the source of every number."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from costtrace import roofline, units
from costtrace.chip import Chip
from costtrace.core import COUNTS
from costtrace.errors import UsageError
from costtrace.report.document import Grouping, Stages, rows_of
from costtrace.report.views import label

if TYPE_CHECKING:
    from costtrace.profiler import Row


def explain(name: str, stages: Stages, chip: Chip, grouping: Grouping) -> str:
    """The rows called `name` ("single/attention", or "dit:single/attention" for one stage's). Raises UsageError where
    there is none."""
    known = [(stage, row) for stage, _, profile in stages for row in rows_of(stage, profile, grouping)]
    wanted_stage, _, wanted = name.rpartition(":")
    found = [
        (stage, row)
        for stage, row in known
        if name in (row.key, label(row.key)) or (stage == wanted_stage and wanted in (row.key, label(row.key)))
    ]
    if not found:
        near = difflib.get_close_matches(name, [label(row.key) for _, row in known], 3, 0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "the table's first column names them"
        raise UsageError(f"--explain {name}: no such row: {hint}")
    return "\n\n".join("\n".join(_explained(stage, row, chip, grouping)) for stage, row in found)


def _explained(stage: str, row: Row, chip: Chip, grouping: Grouping) -> Iterator[str]:
    cost = row.cost
    yield f"{stage}: {label(row.key)} on {chip.title}, one call ({row.instances} instances, {row.status})"
    counted = {"flops": cost.flops} | {key: getattr(cost, key) for key in COUNTS if "bytes" not in key}
    yield "counts: " + ", ".join(f"{key} {n:,}" for key, n in counted.items() if n)
    cuts = {"fused": cost.bytes_fused, "scoped": cost.bytes_scoped, "unfused": cost.bytes_unfused}
    if not row.whole:
        cuts = {"unfused": cost.bytes_unfused}
    yield "bytes: " + ", ".join(f"{cut} {n:,}" for cut, n in cuts.items()) + f"; weights {cost.weight_bytes:,}"
    first = next(iter(cuts))
    yield f"with {first} bytes" + (", the floor:" if first == "fused" else ":")
    yield from (f"  {line}" for line in roofline.explain(cost, chip, cuts[first], grouping.efficiency))
    for cut in list(cuts)[1:]:
        times = roofline.times(cost, chip, cuts[cut], grouping.efficiency)
        memory = units.text(times.terms.get("memory", 0.0), "s")
        yield f"with {cut} bytes: memory = {memory}; time = {units.text(times.seconds, 's')}: {times.bound} binds"
