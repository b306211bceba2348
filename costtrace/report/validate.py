"""`costtrace validate`'s page: measured, floor and predicted side by side, and the mean errors."""

from __future__ import annotations

import json
import math
from typing import Any

from costtrace import units
from costtrace.report import table
from costtrace.report.document import Document
from costtrace.report.table import Column, Table
from costtrace.report.text import wrapped

COLUMNS = (
    Column("id", "stage"), Column("measured_s", "measured", "s"), Column("floor_s", "floor", "s"),
    Column("predicted_s", "predicted", "s"), Column("over_floor", "meas./floor"), Column("over", "meas./pred."),
)  # fmt: skip


def printed(doc: Document, form: str) -> str:
    """The document of evidence.measured.document in one of report.output.FORMATS."""
    if form == "json":
        return json.dumps(doc, indent=2)
    if form in table.DATA:
        keys = [k for k, v in doc["rows"][0].items() if not isinstance(v, list | dict)] if doc["rows"] else []
        return table.FORMATS[form](
            Table(tuple(Column(k, k) for k in keys), [[r[k] for k in keys] for r in doc["rows"]])
        )
    device = [row for row in doc["rows"] if row["device"]]
    other = [row for row in doc["rows"] if not row["device"]]
    if form != "text":
        return table.FORMATS[form](Table(COLUMNS, [_cells(row) for row in doc["rows"]]))
    out = ["the device's own time", "", table.text(Table(COLUMNS, [_cells(row) for row in device])), ""]
    out += wrapped(f"mean error over these {len(device)}: floor {_factor(doc['mean_error_floor'])}, predicted "
                   f"{_factor(doc['mean_error_predicted'])} (mean |ln|, as a factor)")  # fmt: skip
    for band in doc["bands"]:
        out += wrapped(f"{band['kind']} on a {band['platform'].upper()}: measured was {band['low']:.2f} to "
                       f"{band['high']:.2f} times the prediction ({len(band['rows'])} rows)")  # fmt: skip
    for row in doc["rows"]:
        for form, seconds in row["spread"].items():
            out += wrapped(f"{row['id']}, {form}: predicted {units.text(seconds, 's')}")
    if other:
        out += ["", "other time in it, and why", "", table.text(Table(COLUMNS, [_cells(row) for row in other])), ""]
        out += [line for row in other for line in wrapped(f"{row['id']}: {row['why']}")]
    out += ["", *(line for text in doc["left_out"] for line in wrapped(f"note: {text}"))]
    sources = dict.fromkeys(f"[M] {row['source']}, read {row['date']}" for row in doc["rows"])
    out += [line for text in sources for line in wrapped(text)]
    return "\n".join(
        [*out, *wrapped("Seconds were derived as each row's derivation says (--format json). Not fitted.")]
    )


def _cells(row: Document) -> list[Any]:
    over = row["measured_over_predicted"]
    return [row["id"], row["measured_s"], row["floor_s"], row["predicted_s"], f"{row['measured_over_floor']:.2f}",
            "?" if over is None else f"{over:.2f}"]  # fmt: skip


def _factor(mean: float | None) -> str:
    return "?" if mean is None else f"{math.exp(mean):.2f}x"
