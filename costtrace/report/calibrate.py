"""`costtrace calibrate`'s answer: the rates of a chip file just written, and how well they are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from costtrace import chip, units
from costtrace.grid import KINDS
from costtrace.measure.calibration import Calibration
from costtrace.report import table
from costtrace.report.document import Document, preamble
from costtrace.report.table import Column, Table
from costtrace.report.text import wrapped

UNITS = {**dict.fromkeys(KINDS, "OP/s"), "product": "FLOP/s", "streamed product": "FLOP/s", "batched product": "FLOP/s",
         "convolution": "FLOP/s",
         **dict.fromkeys(("copy", "read", "write", "host to device", "all-reduce", "all-gather"), "B/s")}  # fmt: skip

NUMBER = ("key", "value", "unit", "text", "tag", "convention")


def document(done: Calibration, path: Path, samples: Path) -> Document:
    """The file's numbers and grids, as they load."""
    made = chip.load(str(path))
    return {
        **preamble(),
        "file": str(path),
        "samples": str(samples),
        "device": done.device.name,
        "kind": done.device.kind,
        "devices": done.device.count,
        "versions": done.device.versions,
        "numbers": [{key: row[key] for key in NUMBER} for row in made.rows() if row["tag"] == "M"],
        "grids": [_grid(kind, dtype, g) for (kind, dtype), g in made.grids.items()],
        "spread_median": done.spread_median,
        "spread_most": done.spread_most,
        "drift": done.drift,
        "timed_again": done.again,
        "farthest_from_numpy": {"kind": done.worst[0], "error": done.worst[1]},
    }  # fmt: skip


def _grid(kind: str, dtype: str, g: Any) -> dict[str, Any]:
    scale = 2 if UNITS[kind] == "FLOP/s" else 1
    slowest = min(g.points, key=lambda p: p.rate)
    return {
        "kind": kind, "dtype": dtype, "unit": UNITS[kind], "points": len(g.points),
        "best_per_s": scale * g.best.rate, "best_at": list(g.best.sizes),
        "worst_per_s": scale * slowest.rate, "worst_at": list(slowest.sizes),
    }  # fmt: skip


def text(doc: Document) -> str:
    """The page."""
    columns = (Column("kind", "work"), Column("dtype", "dtype"), Column("points", "sizes"), Column("best", "best"),
               Column("at", "at"), Column("worst", "slowest"), Column("worst_at", "at"))  # fmt: skip
    rows = [[g["kind"], g["dtype"], g["points"], units.text(g["best_per_s"], g["unit"]), _sizes(g["best_at"]),
             units.text(g["worst_per_s"], g["unit"]), _sizes(g["worst_at"])] for g in doc["grids"]]  # fmt: skip
    out = [f"{doc['device']} ({doc['kind']}, {doc['devices']} of them): {doc['file']}", ""]
    out += [table.text(Table(columns, rows)), ""]
    for n in doc["numbers"]:
        out += wrapped(f"{n['key']} = {n['text']} [{n['tag']}]" + (f": {n['convention']}" if n["convention"] else ""))
    out += wrapped(
        f"spread of a size's samples: median {doc['spread_median']:.1%}, most {doc['spread_most']:.1%}; the reference "
        f"product drifted by {doc['drift']:.1%}; {doc['timed_again']} sizes were timed again; farthest from numpy: "
        f"{doc['farthest_from_numpy']['kind']} by {doc['farthest_from_numpy']['error']:.2g}"
    )
    out += wrapped(f"samples: {doc['samples']}; versions: {doc['versions']}")
    return "\n".join([*out, *wrapped(f"now: costtrace klein --chip {doc['file']}")])


def _sizes(sizes: list[int]) -> str:
    return " x ".join(map(str, sizes))
