"""`costtrace compare`'s page: measured, floors and predictions side by side; below, what the gap of each is made of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from costtrace.report import table
from costtrace.report.document import Document
from costtrace.report.table import Column, Table
from costtrace.report.text import wrapped, written

SECONDS = (
    Column("measured_s", "measured", "s"), Column("floor_s", "floor", "s"),
    Column("floor_measured_rates_s", "at rates", "s"), Column("shape_aware_s", "by shape", "s"),
    Column("compiled_s", "compiled", "s"),
)  # fmt: skip
ERRORS = {"floor": "floor", "floor_measured_rates": "floor at measured rates", "shape_aware": "prediction by shape",
          "compiled": "compiled"}  # fmt: skip
LEGEND = {
    "floor_s": "floor: the datasheet's",
    "floor_measured_rates_s": "at rates: the floor at measured rates",
    "shape_aware_s": "by shape: each op at the measured rate of its own shape, and launches",
    "compiled_s": "compiled: what the chip's own compiler predicts",
    "runs": "runs: the fastest and the slowest, from the median",
    "over_shape": "/ shape: measured over by shape",
}
"""Column -> what it is, below a table that has it."""
GAPS = ("the lower table: shares of what is measured beyond that floor; ? where it is not known; negative where the "
        "rates say more than was measured")  # fmt: skip


def printed(doc: Document, form: str) -> str:
    """The document of compare.Comparison.document in one of report.output.FORMATS."""
    if form == "json":
        return json.dumps(doc, indent=2)
    if form != "text":
        columns = (*_columns(doc), *_gaps(doc))
        return table.FORMATS[form](Table(columns, [_cells(row, columns) for row in doc["rows"]]))
    config = ", ".join(f"{key} {written(value)}" for key, value in doc["config"].items())
    out = wrapped(f"{doc['model']}: {config}" if config else doc["model"])
    sheet = f", datasheet {doc['datasheet']}" if doc["datasheet"] else ""
    out += wrapped(f"measured: {', '.join(doc['measured'])}; rates of {doc['chip']}{sheet}")
    shown = _columns(doc)
    out += ["", table.text(Table(shown, [_cells(row, shown) for row in doc["rows"]])), ""]
    if gaps := _gaps(doc):
        columns = (*shown[:2], *gaps)
        some = [row for row in doc["rows"] if any(share is not None for share in row["gap"].values())]
        out += [table.text(Table(columns, [_cells(row, columns) for row in some])), ""]
    out += [line for text in _below(doc) for line in wrapped(text)]
    out += [line for text in _errors(doc) for line in wrapped(text)]
    out += [line for text in doc["notes"] for line in wrapped(f"note: {text}")]
    return "\n".join([*out, *wrapped("; ".join(_legend({c.key for c in shown}, bool(gaps))))])


def _legend(shown: set[str], gaps: bool) -> Iterator[str]:
    """What the columns are that are shown, and no other."""
    yield from (words for key, words in LEGEND.items() if key in shown)
    if {"floor_s", "floor_measured_rates_s"} & shown:
        yield f"x: measured over {'floor' if 'floor_s' in shown else 'at rates'}"
    if gaps:
        yield GAPS


RATIOS = (
    Column("id", "measurement"), Column("measured_s", "[M]", "s"), Column("at", "rates"), Column("quoted", "quoted"),
    Column("pessimistic_s", "scoped [D]", "s"), Column("ratio_pessimistic", "x"), Column("floor_s", "fused [D]", "s"),
    Column("ratio", "x fused"), Column("agrees", ""),
)  # fmt: skip


def ratios(doc: Document, form: str) -> str:
    """Published ratios, measured [M] over the floors that our rows give [D], and why they differ where they do."""
    if form == "json":
        return json.dumps(doc, indent=2)
    rows = [{**row, "agrees": "" if row["agrees"] else "differs"} for row in doc["rows"]]
    if form not in table.DATA:
        for row in rows:
            row |= {key: f"{row[key]:.2f}" for key in ("ratio", "ratio_pessimistic")} | {"quoted": f"{row['quoted']:g}"}
    made = Table(RATIOS, [[row[c.key] for c in RATIOS] for row in rows])
    if form != "text":
        return table.FORMATS[form](made)
    out = [table.text(made), ""]
    out += [line for row in doc["rows"] if row["why"] for line in wrapped(f"{row['id']}: {row['why']}")]
    out += wrapped("scoped: every named operation a kernel, which the report's unfused bytes are nearest to; fused: "
                   "the stage as one kernel. How the seconds were had: --format json")  # fmt: skip
    sources = dict.fromkeys(f"[M] {row['source']}" for row in doc["rows"])
    return "\n".join([*out, *(line for text in sources for line in wrapped(text))])


def _columns(doc: Document) -> tuple[Column, ...]:
    """Those that some row has a number for."""
    there = [c for c in SECONDS if any(row[c.key] is not None for row in doc["rows"])]
    runs = any(len(row["runs_s"]) > 1 for row in doc["rows"])
    shape = any(row["shape_aware_s"] is not None for row in doc["rows"])
    return (
        Column("stage", "stage"), Column("scope", "part"), *there, *([Column("runs", "runs")] if runs else []),
        Column("ratio", "x"), *([Column("over_shape", "/ shape")] if shape else []),
    )  # fmt: skip


def _gaps(doc: Document) -> tuple[Column, ...]:
    names = dict.fromkeys(name for row in doc["rows"] for name, share in row["gap"].items() if share is not None)
    return tuple(Column(f"gap {name}", name, "%") for name in names)


def _cells(row: Document, columns: tuple[Column, ...]) -> list[Any]:
    more = {f"gap {name}": share for name, share in row["gap"].items()}
    aware, ratio = row["shape_aware_s"], row["ratio"]
    more["ratio"] = "?" if ratio is None else f"{ratio:.2f}"
    more["over_shape"] = "?" if not aware else f"{row['measured_s'] / aware:.2f}"
    low, high = min(row["runs_s"]), max(row["runs_s"])
    more["runs"] = f"{100 * low / row['measured_s'] - 100:+.0f} {100 * high / row['measured_s'] - 100:+.0f} %"
    return [more[c.key] if c.key in more else row[c.key] for c in columns]


def _below(doc: Document) -> list[str]:
    """A line for the stages and scopes that are below their floor, by what may be the reason."""
    by_reason: dict[str, list[str]] = {}
    for row in doc["rows"]:
        if row["below"]:
            name = row["stage"] if row["scope"] == "." else f"{row['stage']} {row['scope']}"
            by_reason.setdefault(row["below"], []).append(name)
    floor = "ITS FLOOR" if any(row["floor_s"] is not None for row in doc["rows"]) else "ITS FLOOR AT MEASURED RATES"
    said = {why: ", ".join(names) for why, names in by_reason.items()}
    return [f"BELOW {floor}: {names}. Before one of them is an error: {why}" for why, names in said.items()]


def _errors(doc: Document) -> list[str]:
    known = {name: doc[f"mean_error_{key}"] for key, name in ERRORS.items() if doc[f"mean_error_{key}"] is not None}
    if not known:
        return []
    said = ", ".join(f"{name} {100 * value:.0f} %" for name, value in known.items())
    return [f"mean of |found - measured| / measured over whole stages: {said}"]
