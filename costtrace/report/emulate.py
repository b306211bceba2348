"""Emulations -> the document of `costtrace emulate`, and its pages: one chip or several, thresholds, the note.

Base units in data; None where a number is not known. Every page says that the numbers are a model's upper bounds.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from costtrace import emulation, publication, units
from costtrace.chip import Chip
from costtrace.demand import Demand
from costtrace.emulation import MODEL_ONLY, VERDICTS, Emulation
from costtrace.report import table
from costtrace.report.document import Document, plain, preamble, several
from costtrace.report.table import DATA, Column, Table
from costtrace.report.text import wrapped, written
from costtrace.scheme import SCHEMES, Handling, Scheme

MARKS = {"regression": "-", "no gain": "=", "reachable": "+", "not binding": "++", "nothing to emulate": "0",
         "no native float64": "*", "unknown": "?"}  # fmt: skip
TERMS = ("matrix", "memory", "deconstruction", "reconstruction", "rest")


def document(
    model: str, config: Mapping[str, Any], demands: Sequence[Demand], chip: Chip, scheme: Scheme, handling: Handling,
    by_scope: bool = False,
) -> Document:  # fmt: skip
    """All kernels on one chip, as DESIGN's contract has it; sums where the kernels are scopes of one program."""
    runs = [emulation.emulated(d, chip, scheme, handling) for d in demands]
    doc: Document = {
        **preamble(),
        "model": model,
        "config": plain(config),
        "chip": chip.name,
        "chip_title": chip.title,
        "kind": MODEL_ONLY,
        "scheme": _scheme(scheme, chip),
        "handling": {**dataclasses.asdict(handling), "beta": handling.beta_of(scheme), "text": handling.said(scheme)},
        "threshold_intensity": emulation.threshold(chip, scheme),
        "numbers": _numbers(chip, scheme),
        "rows": [_row(run, scheme) for run in runs],
        "notes": [*dict.fromkeys(line for run in runs for line in run.missing)],
    }
    if by_scope:
        doc |= {"native_s": _sum(run.native_s for run in runs), "emulated_s": _sum(run.emulated_s for run in runs),
                "mixed_s": _sum(run.best_s for run in runs)}  # fmt: skip
    return doc


def _sum(seconds: Any) -> float | None:
    known = list(seconds)
    return None if None in known else float(sum(known))


def _scheme(scheme: Scheme, chip: Chip) -> Document:
    return {
        "name": scheme.name, "title": scheme.title, "dtype": scheme.dtype, "r": scheme.count, "alpha": scheme.products,
        "c_q": scheme.convert, "gamma": scheme.reconstruct, "tile": list(scheme.tile), "longest_k": scheme.longest_k,
        "ceiling_per_s": emulation.ceiling(scheme, chip), "sources": dict(scheme.sources),
    }  # fmt: skip


def _numbers(chip: Chip, scheme: Scheme) -> list[Document]:
    keys = (*emulation.FP64, f"matrix.{scheme.dtype}", emulation.HBM, emulation.INT)
    return [{"key": n.key, "text": n.text, "value": n.value, "unit": n.unit, "tag": n.tag, "source": n.source}
            for key in keys if (n := chip.number(key))]  # fmt: skip


def _row(run: Emulation, scheme: Scheme) -> Document:
    d = run.demand
    return {
        "kernel": d.name, "flops": d.flops, "bytes": d.nbytes, "intensity": d.intensity, "phi": d.phi, "n_in": d.n_in,
        "n_out": d.n_out, "executed_flops": d.executed(scheme), "native_s": run.native_s,
        "native_bound": run.native_bound, "emulated_s": run.emulated_s, "original_s": run.original_s,
        "terms": run.terms, "binding": run.binding, "cap": run.cap, "cap_compute": run.cap_compute,
        "speedup": run.speedup, "verdict": run.verdict, "choice": "emulate" if run.pays else "native",
    }  # fmt: skip


def more(doc: Document, demands: Sequence[Demand], chip: Chip, scheme: Scheme, handling: Handling, side: int) -> None:
    """Adds the inverse questions: parity by kernel, crossover sizes, the ceilings of every scheme."""
    runs = [emulation.emulated(d, chip, scheme, handling) for d in demands]
    doc["parity"] = [
        {"kernel": run.demand.name, "cap": run.cap, **dataclasses.asdict(emulation.parity(run, chip, scheme))}
        for run in runs
        if run.demand.flops
    ]
    doc["crossovers"] = {"side": side, **emulation.crossovers(chip, scheme, handling, side)}
    doc["ceilings"] = {name: emulation.ceiling(s, chip) for name, s in SCHEMES.items()}


def figure(value: float | None) -> str:
    """Three significant digits without an exponent; '-' for None."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def printed(documents: Sequence[Document], form: str) -> str:
    """The documents in one of report.output.FORMATS."""
    if form == "json":
        return json.dumps(several(documents), indent=2)
    if form in DATA:
        return table.FORMATS[form](_data(documents))
    if form == "text":
        return _several(documents) if len(documents) > 1 else _page(documents[0])
    seen = _side(documents) if len(documents) > 1 else _kernels(documents[0])
    return f"{table.FORMATS[form](seen)}\n\n{'% ' if form == 'latex' else ''}{MODEL_ONLY}"


def _data(documents: Sequence[Document]) -> Table:
    """One line a chip and kernel, ready to plot."""
    flat = [
        {"kind": MODEL_ONLY, "chip": doc["chip"], "scheme": doc["scheme"]["name"],
         "threshold_intensity": doc["threshold_intensity"],
         **{k: v for k, v in row.items() if k != "terms"}, **{f"{t}_s": row["terms"].get(t) for t in TERMS}}
        for doc in documents for row in doc["rows"]
    ]  # fmt: skip
    keys = list(flat[0]) if flat else []
    return Table(tuple(Column(k, k) for k in keys), [[row[k] for k in keys] for row in flat])


def _kernels(doc: Document) -> Table:
    terms = [t for t in TERMS if any(t in row["terms"] for row in doc["rows"])]
    heads = {"deconstruction": "deconstr.", "reconstruction": "reconstr."}
    columns = (
        Column("kernel", "kernel"), Column("intensity", "OI"), Column("phi", "phi"), Column("native_s", "native", "s"),
        Column("native_bound", "bound"), *(Column(t, heads.get(t, t), "s") for t in terms), Column("binding", "binds"),
        Column("cap", "cap"), Column("speedup", "speed-up"), Column("verdict", "verdict"),
    )  # fmt: skip
    rows = [
        [r["kernel"], figure(r["intensity"]), figure(r["phi"]), r["native_s"], r["native_bound"],
         *(r["terms"].get(t, 0.0) for t in terms), heads.get(r["binding"], r["binding"]), figure(r["cap"]),
         figure(r["speedup"]), r["verdict"]]
        for r in doc["rows"]
    ]  # fmt: skip
    return Table(columns, rows)


def _page(doc: Document) -> str:
    out = [*_head(doc), "", table.text(_kernels(doc)), ""]
    if "mixed_s" in doc:
        out += wrapped(f"all: native {_s(doc['native_s'])}, all emulated {_s(doc['emulated_s'])}, the best of both "
                       f"{_s(doc['mixed_s'])}")  # fmt: skip
        if wins := [row["kernel"] for row in doc["rows"] if row["choice"] == "emulate"]:
            out += wrapped(f"emulate {', '.join(wins)}; leave the rest native")
        else:
            out.append("emulation pays nowhere: leave all of it native")
    if "parity" in doc:
        out += _inverse(doc)
    if "alternatives" in doc:
        out += _alternatives(doc)
    if "note" in doc:
        out += _note(doc)
    out += [line for text in doc["notes"] for line in wrapped(f"note: {text}")]
    out += wrapped(
        "OI: float64 FLOP per byte; phi: numbers converted per 8 bytes; cap: native over deconstruction time; "
        + "; ".join(f"{v}: {VERDICTS[v]}" for v in dict.fromkeys(row["verdict"] for row in doc["rows"]))
    )
    return "\n".join(
        [*out, *wrapped(f"{MODEL_ONLY}: scaling factors, registers, occupancy and latency are not counted.")]
    )


def _s(seconds: float | None) -> str:
    return units.text(seconds, "s")


def _head(doc: Document) -> list[str]:
    s, numbers = doc["scheme"], {n["key"]: n for n in doc["numbers"]}
    config = ", ".join(f"{key} {written(value)}" for key, value in doc["config"].items())
    rates = ", ".join(
        f"{key.rpartition('.')[2] if 'hbm' not in key else 'HBM'} {n['text']} [{n['tag']}]"
        for key, n in numbers.items()
        if key != "vector.float64"
    )
    return [
        *wrapped(f"{doc['model']}: {config}" if config else doc["model"]),
        *wrapped(f"on {doc['chip_title']}: {rates}"),
        *wrapped(f"{s['title']}: r = {s['r']}, alpha = {s['alpha']:g}, c_q = {figure(s['c_q'])}, gamma = "
                 f"{figure(s['gamma'])} instructions, tile {written(s['tile'])}, k up to {s['longest_k']:,}"),
        *wrapped(f"inputs: {doc['handling']['text']}"),
        *wrapped(f"OI* = {figure(doc['threshold_intensity'])} FLOP/B: below it conversion takes longer than float64"),
    ]  # fmt: skip


def _inverse(doc: Document) -> list[str]:
    columns = (Column("kernel", "kernel"), Column("convert", "c_q"), Column("count", "r"),
               Column("integer_per_s", "P_int"), Column("fp64_per_s", "P_fp64"),
               Column("convert_compute", "c_q (W/P)"))  # fmt: skip
    rows = [[p["kernel"], figure(p["convert"]), figure(p["count"]), units.text(p["integer_per_s"], "OP/s", 3),
             units.text(p["fp64_per_s"], "FLOP/s", 3),
             figure(p["convert_compute"])] for p in doc["parity"]]  # fmt: skip
    out = ["conversion alone takes as long as native with c_q or r below, P_int above, P_fp64 below:", "",
           table.text(Table(columns, rows)), ""]  # fmt: skip
    sizes = doc["crossovers"]
    said = {
        "B": f"B >= {sizes['B']:,} right-hand sides" if sizes["B"] else "no B",
        "k": f"k >= {sizes['k']:,} between two sides of {sizes['side']:,}" if sizes["k"] else "no k",
        "n": f"n >= {sizes['n']:,} of a cube" if sizes["n"] else "no n",
    }
    out += wrapped(f"a product pays from {said['B']} (matrix {sizes['side']:,} square), {said['k']}, {said['n']}")
    ceilings = ", ".join(f"{name} {units.text(rate, 'FLOP/s', 3)}" for name, rate in doc["ceilings"].items() if rate)
    return [*out, *wrapped(f"ceilings, the matrix unit alone: {ceilings}"), ""]


def alternatives(doc: Document, found: Sequence[emulation.Alternative]) -> None:
    """Adds what conflicting numbers of the chip file would change."""
    keys = ("kernel", "verdict", "instead")
    doc["alternatives"] = [
        {**dataclasses.asdict(a), "flips": [dict(zip(keys, flip, strict=True)) for flip in a.flips]} for a in found
    ]


def _alternatives(doc: Document) -> list[str]:
    out = ["other sources' numbers, one at a time:", ""]
    for a in doc["alternatives"]:
        flips = ", ".join(f"{f['kernel']} {f['verdict']} -> {f['instead']}" for f in a["flips"]) or "no verdict changes"
        by = f" (best then: {a['scheme']})" if a["scheme"] != doc["scheme"]["name"] else ""
        out += wrapped(
            f"{a['key']} {a['text']}, not {a['used']} ({a['source'].partition(', http')[0]}): "
            f"OI* {figure(a['threshold'])}{by}: {flips}"
        )
    return [*out, ""] if doc["alternatives"] else ["no number here has a conflicting source", ""]


def note(doc: Document, demands: Sequence[Demand], chip: Chip) -> None:
    """Adds the fourth-term note's table beside the traced kernels, and what the trace finds in it."""
    rows = publication.audited(demands, chip)
    doc["note"] = [{**dataclasses.asdict(row.printed), "traced_intensity": row.intensity, "traced_phi": row.phi,
                    "by_equation": row.by_equation, "by_traced_phi": row.traced, "corrected": row.corrected,
                    "here": row.here} for row in rows]  # fmt: skip
    doc["note_threshold_intensity"] = emulation.threshold(publication.chip(chip), publication.scheme())
    doc["findings"] = publication.findings(demands, chip)


def _note(doc: Document) -> list[str]:
    heads = ("kernel", "OI", "traced", "phi", "traced", "claim", "cap", "eq. 2", "traced phi", "max native", "here")
    keys = ("kernel", "intensity", "traced_intensity", "phi", "traced_phi", "claim", "cap", "by_equation",
            "by_traced_phi", "corrected", "here")  # fmt: skip
    rows = [[row["kernel"], *(figure(row[key]) for key in keys[1:])] for row in doc["note"]]
    said = (f"the note's table 1 beside the trace, at the note's numbers (OI* {doc['note_threshold_intensity']:.2f}); "
            "last column: the cap on this page's numbers")  # fmt: skip
    out = [*wrapped(said), "", table.text(Table(tuple(map(Column, keys, heads)), rows)), ""]
    return [*out, *(line for text in doc["findings"] for line in wrapped(f"finding: {text}")), ""]


def _side(documents: Sequence[Document]) -> Table:
    """Kernels down, a chip a column: the speed-up with the verdict's mark."""
    kernels = [row["kernel"] for row in documents[0]["rows"]]
    columns = (Column("kernel", "kernel"), *(Column(doc["chip"], doc["chip"]) for doc in documents))
    by = [{row["kernel"]: row for row in doc["rows"]} for doc in documents]
    cells = [[k, *(_told(b[k]) for b in by)] for k in kernels]
    cells.append(["OI*", *(figure(doc["threshold_intensity"]) for doc in documents)])
    cells.append(["scheme", *(doc["scheme"]["name"] for doc in documents)])
    return Table(columns, cells)


def _told(row: Document) -> str:
    """The speed-up and the verdict's mark; the emulated rate where there is no native one."""
    gain = figure(row["speedup"])
    if row["speedup"] is None and row["emulated_s"] and row["flops"]:
        gain = units.text(row["flops"] / row["emulated_s"], "FLOP/s", 3)
    return f"{gain} {MARKS[row['verdict']]}"


def _several(documents: Sequence[Document]) -> str:
    used = dict.fromkeys(row["verdict"] for doc in documents for row in doc["rows"])
    legend = "; ".join(f"{MARKS[v]} {v}: {VERDICTS[v]}" for v in used)
    return "\n".join([f"{documents[0]['model']}: emulated float64, speed-up over native", "",
                      table.text(_side(documents)), "", *wrapped(legend), *wrapped(f"{MODEL_ONLY}.")])  # fmt: skip
