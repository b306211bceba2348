"""What the chip's compiler says, beside the rest: in a document, and as a page, a table of kernels, one of bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from costtrace import capacity, units
from costtrace.chip import Chip
from costtrace.report import table
from costtrace.report.document import Document, Grouping, preamble, rows_of, several
from costtrace.report.table import Column, Table
from costtrace.report.text import wrapped
from costtrace.report.views import label

if TYPE_CHECKING:  # the reader of HLO, which pages of other commands do not need
    from costtrace.evidence.compiled import Compiled
    from costtrace.summary import Profile

Found = Mapping[str, tuple["Profile", "Compiled"]]
"""stage name -> its profile and what the compiler made of it"""
ESTIMATES = "times are the compiler's own estimates for the chip; kernels without one are priced by their roofline"


def attached(doc: Document, found: Found, chip: Chip) -> Document:
    """The document with `compiled` in its rows, `compiled_s`, `compiled_peak_bytes`, `compile_s` in its stages.

    What belongs to no traced row stands in a stage's `compiled_rows`, so that rows add up to the stage. `band` is what
    measured times were of predictions of that kind (evidence.band), None where nothing of the kind was measured.
    """
    from costtrace.evidence import band
    from costtrace.evidence.compiled import row_of

    bands = band.known()

    def carried(cost: Mapping[str, Any], made: Compiled) -> Document | None:
        kind = band.kind_of(cost["matmul_flops"], cost["conv_flops"])
        one = bands.get((chip.kind, kind)) if kind and not made.answer.mesh else None  # all were measured on one chip
        return None if one is None else one.to_dict()

    for stage in doc["stages"]:
        _, made = found[stage["name"]]
        parts = made.rows(row_of({row["scope"] for row in stage["rows"]}))
        for row in stage["rows"]:
            part = parts.pop(row["scope"], None)
            row["compiled"] = None if part is None else part.to_dict()
            row["band"] = carried(row["cost"], made)
        stage["compiled_rows"] = [{"scope": key, "compiled": part.to_dict()} for key, part in parts.items()]
        stage["compiled"] = made.total.to_dict()
        stage["compiled_s"] = made.total.time_s
        stage["band"] = carried(stage["total"], made)
        stage["collectives"] = made.collectives
        stage["compiled_peak_bytes"] = made.answer.peak_bytes
        stage["compile_s"] = made.answer.compile_s
        stage["compiled_cached"] = made.answer.cached
        stage["compiled_versions"] = made.answer.versions
        doc["notes"] += [{"kind": n.kind, "stage": stage["name"], "scope": n.scope, "text": n.text} for n in made.notes]
        fit = None if made.answer.peak_bytes is None else capacity.hbm(made.answer.peak_bytes * chip.devices, chip)
        stage["compiled_capacity_bytes"] = None if fit is None else fit.capacity.value / chip.devices
        if fit is not None and not fit.fits:
            each = f" on each of {chip.devices} devices" if chip.devices > 1 else ""
            text = f"compiled: {fit}{each and ', an equal part of it'}{each}"
            doc["notes"].append({"kind": "does-not-fit", "stage": stage["name"], "scope": "", "text": text})
    if chip.devices > 1:
        doc["notes"].append({"kind": "part-of-a-chip", "stage": "", "scope": "", "text": part_of(chip)})
    doc["compiled_s"] = sum(stage["calls"] * stage["compiled_s"] for stage in doc["stages"])
    return doc


def part_of(chip: Chip) -> str:
    """What must be known of a prediction for one of a chip's devices."""
    return (f"jax shows {chip.devices} devices for one {chip.name} chip: the program is compiled for one of them, with "
            f"1/{chip.devices} of the chip's rates and memory; floors are of the whole chip")  # fmt: skip


_PARTS = (
    Column("part", "part"), Column("flops", "compiled", "FLOP"), Column("hbm_bytes", "HBM", "B"),
    Column("chip_bytes", "on chip", "B"), Column("kernels", "kernels"), Column("floor_s", "floor", "s"),
    Column("time_s", "predicted", "s"), Column("ratio", "/ floor"), Column("estimated_by", "by"),
)  # fmt: skip
_NOTHING = {
    "flops": 0,
    "matmul_flops": 0,
    "hbm_bytes": 0,
    "chip_bytes": 0,
    "kernels": 0,
    "time_s": 0.0,
    "estimated_by": "fused away",
}


def page(doc: Document, verbose: bool = False) -> str:
    """A table of each stage's parts, its total, peak memory and compile time, then the notes."""
    from costtrace.report.text import notes

    out = [f"{doc['model']} as compiled for {doc['chip_title']}", ""]
    for stage in doc["stages"]:
        out += [*_stage_head(stage), ""]
        rows = [_cells(label(r["scope"]), r["compiled"] or _NOTHING, r["floor_s"]) for r in stage["rows"]]
        rows += [
            _cells(label(r["scope"]), r["compiled"], None) for r in stage["compiled_rows"] if r["compiled"]["kernels"]
        ]
        rows.append(_cells("whole stage", stage["compiled"], stage["floor_s"]))
        out += [table.text(Table(_PARTS, rows)), ""]
        if stage["collectives"]:
            out += [table.text(_moved(stage["collectives"])), ""]
    total = f"all calls: predicted {units.text(doc['compiled_s'], 's')}, floor {units.text(doc['floor_s'], 's')}"
    out += [*wrapped(total), *notes(doc, verbose)]
    if any(stage["collectives"] for stage in doc["stages"]):
        out += wrapped(LINKS)
    return "\n".join([*out, *_banded(doc), *wrapped(f"{ESTIMATES}.")])


COLLECTIVES = (
    Column("scope", "part"), Column("kind", "collective"), Column("axis", "axis"), Column("count", "runs"),
    Column("bytes_sent", "sent", "B"), Column("network_s", "network", "s"), Column("time_s", "counted", "s"),
    Column("hidden_s", "hidden", "s"), Column("estimated_by", "by"),
)  # fmt: skip
LINKS = ("collectives: of all runs, what one device sends; network: by the links of this topology (mesh.PRICES); "
         "counted: the compiler's estimate where it gives one; hidden: behind other kernels, not in total")  # fmt: skip


def _moved(rows: list[Document]) -> Table:
    cells = [[label(r["scope"]), r["kind"].replace("_", "-"), r["axis"] or "?", f"{r['count']:,}",
              *(r[key] for key in ("bytes_sent", "network_s", "time_s", "hidden_s", "estimated_by"))]
             for r in rows]  # fmt: skip
    sums = [None if any(r[key] is None for r in rows) else sum(r[key] for r in rows)
            for key in ("bytes_sent", "network_s", "time_s", "hidden_s")]  # fmt: skip
    return Table(COLLECTIVES, [*cells, ["all", "", "", f"{sum(r['count'] for r in rows):,}", *sums, ""]])


def _banded(doc: Document) -> list[str]:
    """What the bands in a page's headings are."""
    some = {(b["platform"], b["kind"]): b for stage in doc["stages"] if (b := stage["band"])}
    if not some:
        return wrapped("no band: no time of this kind is published (all are of one chip): costtrace validate")
    said = "; ".join(f"{b['kind']} on a {b['platform'].upper()} {b['low']:.2f} to {b['high']:.2f} "
                     f"({', '.join(b['rows'])})" for b in some.values())  # fmt: skip
    return wrapped(f"band: measured times were, of predictions (costtrace validate): {said}")


def _cells(part: str, made: Mapping[str, Any], floor_s: float | None) -> list[Any]:
    ratio = f"{made['time_s'] / floor_s:.2f}" if floor_s and made["time_s"] else None
    return [part, made["flops"], made["hbm_bytes"], made["chip_bytes"], f"{made['kernels']:,}", floor_s, made["time_s"],
            ratio, made["estimated_by"]]  # fmt: skip


def _stage_head(stage: Document) -> list[str]:
    words = [f"{stage['name']} x{stage['calls']}", f"predicted {units.text(stage['compiled_s'], 's')}"]
    if band := stage["band"]:
        low, high = (units.text(stage["compiled_s"] * band[key], "s") for key in ("low", "high"))
        words.append(f"band {low} to {high}")
    words.append(f"floor {units.text(stage['floor_s'], 's')}")
    if stage["compiled_peak_bytes"] is not None:
        most = stage["compiled_capacity_bytes"]
        words.append(f"peak {units.text(stage['compiled_peak_bytes'], 'B')}"
                     + (f" of {units.text(most, 'B')}" if most else ""))  # fmt: skip
    words.append(
        f"compiled in {units.text(stage['compile_s'], 's', 3)}{' (remembered)' if stage['compiled_cached'] else ''}"
    )
    return wrapped("  ".join(words))


KERNELS = (
    Column("kernel", "kernel"), Column("scope", "part"), Column("runs", "runs"), Column("all_s", "all runs", "s"),
    Column("share", "share", "%"), Column("flops", "", "FLOP"), Column("hbm_bytes", "HBM", "B"),
    Column("shape", "result"), Column("bound", "bound"), Column("why", "why"),
)  # fmt: skip
FUSION = (
    Column("scope", "part"), Column("bytes_fused", "fused", "B"), Column("bytes_scoped", "scoped", "B"),
    Column("bytes_unfused", "unfused", "B"), Column("bytes_compiled", "compiled", "B"), Column("kernels", "kernels"),
    Column("excess", "excess", "B"),
)  # fmt: skip

TOLD = {
    "kernels": f"{ESTIMATES}.",
    "fusion": "bytes of one call to and from the chip's memory: fused, were the part one kernel; scoped, each "
    "innermost scope one; unfused, each primitive one; compiled, what the compiler's kernels move. excess: compiled "
    "beyond fused, what more fusion could save at most.",
}
"""The foot of each view."""


def view(name: str, doc: Document, found: Found, grouping: Grouping, top: int | None, form: str) -> str:
    """`--view kernels` or `--view fusion`, a table a stage; in data, a row each with its stage."""
    columns = {"kernels": KERNELS, "fusion": FUSION}[name]
    stages = {stage: _rows(name, stage, *found[stage], grouping, top) for stage in found}
    flat = [{"stage": stage, **row} for stage, rows in stages.items() for row in rows]
    if form == "json":
        head = {key: doc[key] for key in ("schema", "costtrace", "model", "config", "chip")}
        return json.dumps({**head, "view": name, "rows": flat}, indent=2)
    if form in table.DATA:
        keys = [key for key, value in flat[0].items() if not isinstance(value, list)] if flat else []
        return table.FORMATS[form](Table(tuple(Column(k, k) for k in keys), [[r[k] for k in keys] for r in flat]))
    out = [f"{doc['model']} on {doc['chip_title']}: {name}", ""]
    for stage, rows in stages.items():
        cells = [[_shown(column.key, row) for column in columns] for row in rows]
        out += [stage, "", table.FORMATS[form](Table(columns, cells)), ""]
    return "\n".join([*out, *wrapped(TOLD[name])])


def _rows(
    name: str, stage: str, profile: Profile, made: Compiled, grouping: Grouping, top: int | None
) -> list[dict[str, Any]]:
    from costtrace.evidence import kernels

    if name == "kernels":
        return kernels.slowest(made.answer.module, made, top or 20)
    return kernels.fusion(rows_of(stage, profile, grouping), made)[:top]


def _shown(key: str, row: Mapping[str, Any]) -> Any:
    if key == "shape":
        return max(row["results"], key=len, default="")
    value = row[key]
    return label(value) if key == "scope" else f"{value:,}" if key in ("runs", "kernels") else value


def dumped(made: Compiled, name: str, form: str, depth: int | None = None, top: int | None = None) -> str:
    """A user's dump by scope (down to `depth`), then its slowest kernels; in data the rows by scope."""
    parts = made.rows(lambda scope: "/".join(scope.split("/")[:depth]))
    chip, total = made.answer.chip, made.total
    rows = [{"scope": key, **part.to_dict()} for key, part in parts.items()]
    if form == "json":
        head = {**preamble(), "module": name, "chip": chip.name}
        notes = [{"kind": n.kind, "scope": n.scope, "text": n.text} for n in made.notes]
        return json.dumps({**head, "rows": rows, "total": total.to_dict(), "notes": notes}, indent=2)
    if form in table.DATA:
        keys = ["scope", *total.to_dict()]
        return table.FORMATS[form](Table(tuple(Column(k, k) for k in keys), [[r[k] for k in keys] for r in rows]))
    columns = tuple(c for c in _PARTS if c.key not in ("floor_s", "ratio"))
    cells = [
        [label(r["scope"]), *(r[c.key] for c in columns[1:])] for r in [*rows, {"scope": "whole", **total.to_dict()}]
    ]
    from costtrace.evidence import kernels

    slow = [[_shown(c.key, row) for c in KERNELS] for row in kernels.slowest(made.answer.module, made, top or 10)]
    out = [f"{name} on {chip.title}", "", table.FORMATS[form](Table(columns, cells)), "",
           table.FORMATS[form](Table(KERNELS, slow)), ""]  # fmt: skip
    out += [line for n in made.notes for line in wrapped(f"note {n.kind}: {n.scope or '.'}: {n.text}")]
    return "\n".join([*out, *wrapped(f"{ESTIMATES}.")])


def pages(documents: Sequence[Document], form: str, verbose: bool = False) -> str:
    """Documents with `attached` compiles in one of report.output.FORMATS."""
    if form == "json":
        return json.dumps(several(list(documents)), indent=2)
    if form == "text":
        return "\n\n".join(page(doc, verbose) for doc in documents)
    flat = []
    for doc in documents:
        for stage in doc["stages"]:
            for row in [*stage["rows"], *stage["compiled_rows"]]:
                band = row.get("band") or {}
                flat.append({"chip": doc["chip"], "stage": stage["name"], "scope": row["scope"],
                             "floor_s": row.get("floor_s"), **(row["compiled"] or _NOTHING),
                             "band_low": band.get("low"), "band_high": band.get("high")})  # fmt: skip
    keys = list(flat[0]) if flat else []
    return table.FORMATS[form](Table(tuple(Column(k, k) for k in keys), [[row[k] for k in keys] for row in flat]))
