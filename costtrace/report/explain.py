"""One row's time, as formulas with their values that can be followed by hand, and the source of every number."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from costtrace import capacity, roofline, units
from costtrace.chip import Chip
from costtrace.core import COUNTS
from costtrace.errors import UsageError
from costtrace.report.document import DEEPEST, Document, Grouping, Stages, preamble, rows_of
from costtrace.report.text import wrapped
from costtrace.report.views import label

if TYPE_CHECKING:
    from costtrace.profiler import Row


def explained(name: str, stages: Stages, chip: Chip, grouping: Grouping) -> list[Document]:
    """The rows called `name`, each as a document: its cost and the lines that `text` prints.

    A row's name may have its stage before it ("dit:single/attention", "dit/single/attention"), and may be its end
    alone ("attention"). Raises UsageError where there is none.
    """
    known: list[tuple[str, Row]] = []
    for depth in _depths(grouping):
        rows = [(stage, row) for stage, _, profile in stages for row in rows_of(stage, profile, depth)]
        known += rows
        found = [(stage, row) for stage, row in rows if name in _names(stage, row)]
        found = found or [(stage, row) for stage, row in rows if _ends(name, stage, row)]
        if found:
            break
    else:
        near = difflib.get_close_matches(name, dict.fromkeys(label(row.key) for _, row in known), 3, 0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "the table's first column names them"
        raise UsageError(f"--explain {name}: no such row: {hint}")
    return [_document(stage, row, chip, grouping) for stage, row in found]


def _depths(grouping: Grouping) -> Iterator[Grouping]:
    """The depth of the table first, then every depth: a row need not be shown to be explained."""
    yield grouping
    if grouping.by in ("scope", "layer"):
        for depth in range(1, 2 * DEEPEST):
            yield replace(grouping, depth=depth)


def _names(stage: str, row: Row) -> set[str]:
    plain = {row.key, label(row.key)}
    return plain | {f"{stage}{sign}{name}" for name in plain for sign in ":/"}


def _ends(name: str, stage: str, row: Row) -> bool:
    """True where a row's name ends in `name`, of which a stage may stand first."""
    rest = name[len(stage) + 1 :] if name.startswith((f"{stage}:", f"{stage}/")) else name
    return any(key.endswith(f"/{rest}") for key in (row.key, label(row.key)))


def text(found: Sequence[Document]) -> str:
    """Explanations as pages."""
    return "\n\n".join(
        "\n".join(each for line in row["lines"] for each in wrapped(line, f"{_indent(line)}    ")) for row in found
    )


def data(found: Sequence[Document]) -> str:
    """The same as JSON."""
    return json.dumps({**preamble(), "rows": list(found)}, indent=2)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _document(stage: str, row: Row, chip: Chip, grouping: Grouping) -> Document:
    numbers = dict.fromkeys(
        n for part in roofline.parts(row.cost, chip, row.cost.bytes_unfused, grouping.efficiency)
        for n in (*part.numbers, part.share) if n
    )  # fmt: skip
    return {
        "stage": stage,
        "scope": row.key,
        "chip": chip.name,
        "instances": row.instances,
        "status": row.status,
        "cost": row.cost.to_dict() | ({} if row.whole else {"bytes_fused": None, "bytes_scoped": None}),
        "times": {cut: _times(row, chip, n, grouping) for cut, n in _cuts(row).items()},
        "numbers": [{"key": n.key, "text": n.text, "value": n.value, "unit": n.unit, "tag": n.tag, "source": n.source,
                     "date": n.date} for n in numbers],
        "lines": list(_lines(stage, row, chip, grouping)),
    }  # fmt: skip


def _times(row: Row, chip: Chip, nbytes: int, grouping: Grouping) -> dict[str, Any]:
    """Seconds by unit, of the whole and the unit that binds; None where the chip's bandwidth is not known."""
    found = roofline.times(row.cost, chip, nbytes, grouping.efficiency)
    known = chip.hbm_bytes_per_s is not None or not nbytes
    return {
        "terms": found.terms,
        "seconds": found.seconds if known else None,
        "bound": found.bound if known and found.terms else None,
        "missing": list(found.missing),
    }


def _cuts(row: Row) -> dict[str, int]:
    cost = row.cost
    cuts = {"fused": cost.bytes_fused, "scoped": cost.bytes_scoped, "unfused": cost.bytes_unfused}
    return cuts if row.whole else {"unfused": cost.bytes_unfused}


def _working_set(row: Row, chip: Chip) -> Iterator[str]:
    """Does the row's largest array stay on the chip, and a tile of its products?"""
    if row.largest is not None and (fits := capacity.on_chip(row.largest.nbytes, chip)):
        yield f"working set: its largest array, {row.largest}: {'; '.join(map(str, fits))}"
    if row.cost.matmul_flops and chip.kind in capacity.TILES:
        m, n, k = capacity.TILES[chip.kind]
        nbytes = capacity.tile_nbytes(m, n, k, 16)
        yield (
            f"working set: a {m} x {n} x {k} tile of its products, 16-bit operands twice, 32-bit result: "
            + "; ".join(map(str, capacity.on_chip(nbytes, chip)[:1]))
        )


def _lines(stage: str, row: Row, chip: Chip, grouping: Grouping) -> Iterator[str]:
    cost, cuts = row.cost, _cuts(row)
    yield f"{stage}: {label(row.key)} on {chip.title}, one call ({row.instances} instances, {row.status})"
    counted = {"flops": cost.flops} | {key: getattr(cost, key) for key in COUNTS if "bytes" not in key}
    yield "counts: " + (", ".join(f"{key} {n:,}" for key, n in counted.items() if n) or "none")
    yield "bytes: " + ", ".join(f"{cut} {n:,}" for cut, n in cuts.items()) + f"; weights {cost.weight_bytes:,}"
    yield from _working_set(row, chip)
    first = next(iter(cuts))
    yield f"with {first} bytes" + (", the floor:" if first == "fused" else ":")
    for line in roofline.explain(cost, chip, cuts[first], grouping.efficiency):
        if not line.startswith("time = "):
            yield f"  {line}"
            continue
        found = _times(row, chip, cuts[first], grouping)
        if found["seconds"] is None:
            yield f"  time = ?: {chip.lacks('hbm')}"
        elif found["bound"] is None:
            yield "  time = 0 s: nothing to do"
        else:
            yield f"  {line}"
    for cut in list(cuts)[1:]:
        found = _times(row, chip, cuts[cut], grouping)
        memory = units.text(found["terms"].get("memory", 0.0) if found["seconds"] is not None else None, "s")
        binds = f": {found['bound']} binds" if found["bound"] else ""
        yield f"with {cut} bytes: memory = {memory}; time = {units.text(found['seconds'], 's')}{binds}"
