"""`costtrace measure`'s page: each stage's figures in a line or two, its parts in a table."""

from __future__ import annotations

import json
from typing import Any

from costtrace import units
from costtrace.report import table
from costtrace.report.document import Document
from costtrace.report.table import Column, Table
from costtrace.report.text import wrapped, written

COLUMNS = (
    Column("stage", "stage"), Column("scope", "part"), Column("runs", "runs"), Column("measured_s", "measured", "s"),
    Column("share", "of stage", "%"), Column("spread", "spread", "%"), Column("compile_s", "compile", "s"),
)  # fmt: skip
LEGEND = ("a part is compiled apart, on arrays of its own, and stands for all its runs in one call: each run has a "
          "dispatch, and parts do not add up to their stage. spread: quartile distance over median")  # fmt: skip
BY = {
    "device": "by the device, since the process began",
    "compiled": "by the compiled program: arguments, results, temporary arrays",
}


def printed(doc: Document, form: str) -> str:
    """The document of measure.run.measured in one of report.output.FORMATS."""
    if form == "json":
        return json.dumps(doc, indent=2)
    if form != "text":
        return table.FORMATS[form](Table(COLUMNS, [row for stage in doc["stages"] for row in _rows(stage)]))
    on, config = doc["device"], ", ".join(f"{key} {written(value)}" for key, value in doc["config"].items())
    out = wrapped(f"{doc['model']}: {config}")
    where = f"{on['kind']} ({on['platform']}, {on['count']} device, {on['cores']} cores)"
    out += wrapped(f"measured on {where}, jax {on['jax']}, {doc['date']}")
    out += ["", table.text(Table(COLUMNS, [row for stage in doc["stages"] for row in _rows(stage)])), ""]
    for stage in doc["stages"]:
        out += [line for text in _lines(stage) for line in wrapped(text)]
    return "\n".join([*out, *wrapped(LEGEND)])


def _rows(stage: Document) -> list[list[Any]]:
    whole = [stage["name"], "", stage["calls"], stage["measured_s"], 1.0, stage["spread"], stage["compile_s"]]
    parts = [
        ["", part["scope"], part["runs"], part["measured_s"], part["measured_s"] / stage["measured_s"], part["spread"],
         part["compile_s"]]
        for part in stage["parts"]
    ]  # fmt: skip
    return [whole, *parts]


def _lines(stage: Document) -> list[str]:
    name, loop = stage["name"], stage["loop"]
    rate, peak = stage["staging_bytes_per_s"], units.text(stage["peak_bytes"], "B")
    weights = f"weights {units.text(stage['weight_bytes'], 'B')} staged in {units.text(stage['staging_s'], 's')}"
    weights = f"{weights}, {units.text(rate, 'B/s')}" if rate else "no weights"
    out = [f"{name}: {weights}; peak {peak} ({BY[stage['peak_by']]})"]
    if loop and loop["scanned_s"] is not None:
        sign = "a scan saves" if loop["dispatch_s"] >= 0 else "a scan costs"
        out.append(
            f"{name}: {loop['steps']} steps as one scan {units.text(loop['scanned_s'], 's')}, dispatched apart "
            f"{units.text(loop['separate_s'], 's')}, each waited for {units.text(loop['waited_s'], 's')}: {sign} "
            f"{units.text(abs(loop['dispatch_s']), 's')} a step (spread {100 * loop['scanned_spread']:.0f} and "
            f"{100 * loop['separate_spread']:.0f} %)"
        )
    elif loop:
        out.append(f"{name}: no loop was timed: {loop['why']}")
    if not stage["finite"]:
        out.append(f"{name}: WARNING: its results hold what is no finite number")
    if wrong := [part["scope"] for part in stage["parts"] if not part["finite"]]:
        out.append(
            f"{name}: the results of {', '.join(wrong)} hold what is no finite number: random inputs may not suit them"
        )
    if stage["left_out"]:
        out.append(f"{name}: cannot be cut out: {', '.join(stage['left_out'])}")
    return out
