"""What there is: models, chips, and one chip's numbers with their sources."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from costtrace import chip as chips_of
from costtrace.chip import Chip
from costtrace.model import Listed
from costtrace.option import flag
from costtrace.report import table
from costtrace.report.document import preamble
from costtrace.report.table import Column, Table
from costtrace.report.text import wrapped


def _json(rows: Sequence[Any], **more: Any) -> str:
    return json.dumps({**preamble(), **more, "rows": rows}, indent=2)


def _written(form: str, seen: Table, data: Table, rows: Sequence[Any], **more: Any) -> str:
    """`seen` for readers, `data` (every quantity under its JSON name) for csv and tsv, `rows` for json."""
    if form == "json":
        return _json(rows, **more)
    return table.FORMATS[form](data if form in table.DATA else seen)


def _data(rows: Sequence[Mapping[str, Any]]) -> Table:
    keys = [key for key, value in rows[0].items() if not isinstance(value, list)] if rows else []
    return Table(tuple(Column(key, key) for key in keys), [[row[key] for key in keys] for row in rows])


def models(found: Mapping[str, Listed], form: str) -> str:
    """Every model with one line on it, and its options with their defaults."""
    if form == "text":
        wide = max(map(len, found), default=0) + 2
        out = []
        for name, one in sorted(found.items()):
            out += wrapped(f"{name:{wide}}{one.title}", " " * wide)
            flags = " ".join(f"{flag(key)} {default}" for key, default in one.options.items())
            out += [f"{' ' * wide}{line}" for line in wrapped(flags, "") if line]
        return "\n".join(out)
    options = {name: [{"option": flag(key), "default": text} for key, text in one.options.items()]
               for name, one in found.items()}  # fmt: skip
    rows = [{"model": name, "title": one.title} for name, one in sorted(found.items())]
    full = [row | {"options": options[row["model"]]} for row in rows]
    return _written(form, _data(rows), _data(rows), full)


SHOWN = (
    Column("chip", "chip"),
    Column("bfloat16_per_s", "bf16", "FLOP/s"),
    Column("float8_e4m3fn_per_s", "fp8", "FLOP/s"),
    Column("int8_per_s", "int8", "FLOP/s"),
    Column("float32_per_s", "f32", "FLOP/s"),
    Column("float64_per_s", "f64", "FLOP/s"),
    Column("hbm_bytes_per_s", "HBM", "B/s"),
    Column("capacity", "HBM"),
    Column("link_bytes_per_s", "links", "B/s"),
    Column("ridge_bfloat16", "ridge", "FLOP/B"),
)


def chips(some: Sequence[Chip], form: str) -> str:
    """The chips side by side: matrix peaks by dtype, HBM, links one way, the ridge for bfloat16."""
    rows = chips_of.comparison(list(some))
    capacity = {c.name: c.hbm_bytes.text if c.hbm_bytes else None for c in some}
    cells = [[(row | {"capacity": capacity[row["chip"]]})[column.key] for column in SHOWN] for row in rows]
    out = _written(form, Table(SHOWN, cells), _data(rows), rows)
    if form != "text":
        return out
    said = (
        "dense matrix rates of one chip, links one way; f32 is jax's default precision: one bfloat16 pass on a TPU, "
        "TF32 on a GPU; ?: not published, or not there. Sources: costtrace chips NAME"
    )
    return "\n".join([out, "", *wrapped(said)])


def one_chip(chip: Chip, form: str) -> str:
    """Every number of a chip: as written, its tag, its source; derivations, conflicts and what is missing below."""
    rows = list(chip.rows())
    known = [row for row in rows if row["value"] is not None]
    sources = {key: k for k, key in enumerate(dict.fromkeys((r["source"], r["date"]) for r in known), 1)}
    seen = Table(
        (Column("key", "number"), Column("text", "value"), Column("tag", "tag"), Column("source", "source")),
        [[r["key"], r["text"], r["tag"], f"[{sources[r['source'], r['date']]}]"] for r in known],
    )
    out = _written(form, seen, _data(rows), rows, chip=chip.name, title=chip.title, kind=chip.kind,
                   topology=chip.topology, notes=list(chip.notes))  # fmt: skip
    if form != "text":
        return out
    below = ["", *(f"[{k}] {text}, read {date}" for (text, date), k in sources.items())]
    below += ["", "tags: S from a document, D derived, M measured"]
    for row in rows:
        if row["derivation"]:
            below.append(f"{row['key']} is derived: {row['derivation']}")
        if row["value"] is not None and row["convention"]:
            below.append(f"{row['key']}: {row['convention']}")
        below += [f"{row['key']} not used: {c['text']} ({c['source']}): {c['why']}" for c in row["conflicts"]]
    below += [f"{row['key']} is not known: {row['convention']}" for row in rows if row["value"] is None]
    below += [f"note: {note}" for note in chip.notes]
    head = [f"{chip.name}: {chip.title}" + (f", {chip.topology}" if chip.topology else ""), ""]
    return "\n".join([*head, out, *(line for text in below for line in (wrapped(text) if text else [""]))])
