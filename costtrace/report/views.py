"""Document -> Table: which columns a grouping shows, what stands in them, sorting, and the smallest rows as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from costtrace.core import COUNTS, MODELLED, UNKNOWN
from costtrace.errors import UsageError
from costtrace.report.document import GROUPS, Document
from costtrace.report.table import Column

MARKS = {MODELLED: " ~", UNKNOWN: " ?"}
INITIALS = {"compute": "C", "memory": "M", "vector": "V", "transcendental": "T", "integer": "I", "link": "L",
            "host": "H"}  # fmt: skip
OWN = "/."


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a view: what it shows of a row."""

    column: Column
    value: Callable[[Document], Any]


NONE = "-"
"""What tables show where a number has no meaning: an intensity without bytes, a bound without work."""
USEFUL = 0.005
"""The share of a part's FLOPs that masks must hide before tables show useful FLOPs."""


def _ratio(a: float | None, b: float | None) -> float | str | None:
    if a is None or b is None:
        return None
    return a / b if b else NONE


def _bound(row: Document) -> str | None:
    """One word where fused, scoped and unfused bytes agree, else three initials: 'C/C/M'; '-' where there is no work,
    None where the time is not known."""
    if row["unfused_s"] is None and row["bound_unfused"] is None:
        return None
    cuts = ("fused", "scoped", "unfused") if row["floor_s"] is not None else ("unfused",)
    words = [row[f"bound_{cut}"] for cut in cuts]
    if len(set(words)) == 1:
        return NONE if words[0] is None else str(words[0])
    return "/".join(NONE if word is None else INITIALS.get(word, word) for word in words)


def macs(cost: Document) -> float | None:
    """Multiply-adds of the products alone: half their FLOPs; None where the work has no price."""
    return None if cost["matmul_flops"] is None else float((cost["matmul_flops"] + cost["conv_flops"]) / 2)


def useful(row: Document) -> int | None:
    """A part's FLOPs without what static masks hide; None where the work has no price."""
    found: int | None = row.get("useful_flops", row["cost"]["flops"])
    return found


def _useful_macs(row: Document) -> float | None:
    executed, kept = macs(row["cost"]), useful(row)
    return None if executed is None or kept is None else executed - (row["cost"]["flops"] - kept) / 2


def _field(key: str, head: str, unit: str, value: Callable[[Document], Any]) -> tuple[str, Field]:
    return key, Field(Column(key, head, unit), value)


FIELDS: dict[str, Field] = dict([
    _field("part", "part", "", lambda row: row["part"] + MARKS.get(row["status"], "")),
    _field("flops", "", "FLOP", lambda row: row["cost"]["flops"]),
    _field("macs", "", "MAC", lambda row: macs(row["cost"])),
    _field("transcendentals", "exp etc", "OP", lambda row: row["cost"]["transcendentals"]),
    _field("integers", "integer", "OP", lambda row: row["cost"]["integer_ops"]),
    _field("useful", "useful", "FLOP", useful),
    _field("useful_macs", "useful", "MAC", _useful_macs),
    _field("weight", "weight", "B", lambda row: row["cost"]["weight_bytes"]),
    _field("fused", "fused", "B", lambda row: row["cost"]["bytes_fused"]),
    _field("scoped", "scoped", "B", lambda row: row["cost"]["bytes_scoped"]),
    _field("unfused", "unfused", "B", lambda row: row["cost"]["bytes_unfused"]),
    _field("intensity", "fused", "FLOP/B", lambda row: _ratio(row["cost"]["flops"], row["cost"]["bytes_fused"])),
    _field("unfused_intensity", "unfused", "FLOP/B",
           lambda row: _ratio(row["cost"]["flops"], row["cost"]["bytes_unfused"])),
    _field("bound", "bound", "", _bound),
    _field("floor", "floor", "s", lambda row: row["floor_s"]),
    _field("pessimistic", "pessim.", "s", lambda row: row["pessimistic_s"]),
    _field("unfused_time", "time", "s", lambda row: row["unfused_s"]),
    _field("share", "share", "%", lambda row: row["share"]),
])  # fmt: skip
"""Every column that a table can show, by the name that --sort takes."""


@dataclass(frozen=True, slots=True)
class View:
    """How rows of one grouping are shown: which fields, and whether rows add up to the stage."""

    fields: tuple[str, ...]
    adds: bool = True


_PARTS = ("part", "flops", "weight", "fused", "scoped", "unfused", "intensity", "bound", "floor", "share")
_OPS = ("part", "flops", "transcendentals", "integers", "unfused", "unfused_intensity", "bound", "unfused_time",
        "share")  # fmt: skip
VIEWS: dict[str, View] = {
    "scope": View(_PARTS),
    "layer": View(_PARTS),
    "phase": View(_OPS),
    "weight": View(_OPS, adds=False),
    "primitive": View(_OPS),
    "dtype": View(_OPS),
    "line": View(_OPS),
}


def fields(doc: Document, unit: str = "flop") -> list[Field]:
    """The columns of the document's view: `unit` mac shows multiply-adds of products for FLOPs; useful FLOPs stand
    beside the executed ones where a part's differ by USEFUL of them or more."""
    parts = [row for stage in doc["stages"] for row in stage["rows"] if "useful_flops" in row]
    masked = any(row["cost"]["flops"] - useful(row) >= USEFUL * row["cost"]["flops"] for row in parts)
    return [FIELDS[key] for key in columns(doc["by"], unit) if masked or not key.startswith("useful")]


def columns(by: str, unit: str = "flop") -> list[str]:
    """The names of the columns that a view may show."""
    wanted = list(VIEWS[by].fields)
    at = wanted.index("flops")
    wanted.insert(at + 1, "useful")
    if unit == "mac":
        wanted[at : at + 2] = ["macs", "useful_macs"]
    return wanted


def rows(doc: Document, stage: Document) -> list[Document]:
    """A stage's rows, each with `part`: its label in tables."""
    return [row | {"part": label(row[GROUPS[doc["by"]]])} for row in stage["rows"]]


def label(key: str) -> str:
    """'double (own)' for a scope's ops outside its children, '(no scope)' for those outside any."""
    if key == ".":
        return "(no scope)"
    return f"{key.removesuffix(OWN)} (own)" if key.endswith(OWN) else key


def added(part: str, some: Sequence[Document]) -> Document:
    """One row that adds up others. Its bound is empty: times of rows do not overlap in a sum."""
    cost = {key: _sum([row["cost"][key] for row in some]) for key in ("flops", *COUNTS)}
    out: Document = {"part": part, "status": "exact", "cost": cost}
    out |= {key: _sum([row[key] for row in some]) for key in ("floor_s", "pessimistic_s", "unfused_s", "share")}
    out |= {f"bound_{cut}": "" for cut in ("fused", "scoped", "unfused")}
    if any("useful_flops" in row for row in some):
        out["useful_flops"] = sum(map(useful, some))
    return out


def _sum(values: list[Any]) -> Any:
    return None if any(v is None for v in values) else sum(values)


ALIASES = {
    "flops": "macs",
    "flop": "flops",
    "mac": "macs",
    "exp": "transcendentals",
    "integer": "integers",
    "name": "part",
}
"""What --sort takes besides the names of columns."""
NAMED = {"unfused_intensity": "intensity", "unfused_time": "time", "useful_macs": "useful"}
"""A column's name in --sort, where it is another than its own."""


def known(column: str | None, by: str = "scope", unit: str = "flop") -> str | None:
    """The key in FIELDS of a column as --sort names it. Raises UsageError where the table has no such column."""
    if column is None:
        return None
    shown = {NAMED.get(key, key): key for key in columns(by, unit)}
    found = shown.get(column) or shown.get(ALIASES.get(column, column))
    if found is None and column in shown.values():
        return column
    if found is None:
        raise UsageError(f"--sort {column}: the table by {by} has no such column: it has {', '.join(shown)}")
    return found


def ordered(
    doc: Document, stage: Document, sort: str | None = None, top: int | None = None
) -> tuple[list[Document], list[Document]]:
    """(the rows to show, the rest): sorted by a column (numbers falling, text rising; by share where only `top` is
    given), cut after `top`."""
    some = rows(doc, stage)
    sort = sort or ("share" if top is not None else None)
    if sort is not None:
        some.sort(key=lambda row: _rank(sort, row))
    return (some, []) if top is None else (some[:top], some[top:])


def _rank(sort: str, row: Document) -> tuple[int, Any]:
    value = FIELDS[sort].value(row)
    if value is None or value == NONE:
        return 2, 0
    return (0, -value) if isinstance(value, int | float) else (1, value)
