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
INITIALS = {"compute": "C", "memory": "M", "vector": "V", "transcendental": "T", "integer": "I", "link": "L"}
OWN = "/."


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a view: what it shows of a row."""

    column: Column
    value: Callable[[Document], Any]


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _bound(row: Document) -> str | None:
    """One word where fused, scoped and unfused bytes agree, else three initials: 'C/C/M'."""
    words = [row[f"bound_{cut}"] for cut in ("fused", "scoped", "unfused") if row[f"bound_{cut}"]]
    if len(set(words)) == 1:
        return str(words[0])
    return "/".join(INITIALS[word] for word in words)


def macs(cost: Document) -> float:
    """Multiply-adds of the products alone: half their FLOPs."""
    return float((cost["matmul_flops"] + cost["conv_flops"]) / 2)


def _field(key: str, head: str, unit: str, value: Callable[[Document], Any]) -> tuple[str, Field]:
    return key, Field(Column(key, head, unit), value)


FIELDS: dict[str, Field] = dict([
    _field("part", "part", "", lambda row: row["part"] + MARKS.get(row["status"], "")),
    _field("flops", "", "FLOP", lambda row: row["cost"]["flops"]),
    _field("macs", "", "MAC", lambda row: macs(row["cost"])),
    _field("transcendentals", "exp etc", "OP", lambda row: row["cost"]["transcendentals"]),
    _field("integers", "integer", "OP", lambda row: row["cost"]["integer_ops"]),
    _field("useful", "useful", "FLOP", lambda row: row.get("useful_flops", row["cost"]["flops"])),
    _field("weight", "weight", "B", lambda row: row["cost"]["weight_bytes"]),
    _field("fused", "fused", "B", lambda row: row["cost"]["bytes_fused"]),
    _field("scoped", "scoped", "B", lambda row: row["cost"]["bytes_scoped"]),
    _field("unfused", "unfused", "B", lambda row: row["cost"]["bytes_unfused"]),
    _field("intensity", "fused", "FLOP/B", lambda row: _ratio(row["cost"]["flops"], row["cost"]["bytes_fused"])),
    _field("unfused_intensity", "", "FLOP/B", lambda row: _ratio(row["cost"]["flops"], row["cost"]["bytes_unfused"])),
    _field("bound", "bound", "", _bound),
    _field("floor", "floor", "s", lambda row: row["floor_s"]),
    _field("pessimistic", "pessim.", "s", lambda row: row["pessimistic_s"]),
    _field("unfused_time", "unfused", "s", lambda row: row["unfused_s"]),
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
    beside the executed ones where they differ."""
    wanted = list(VIEWS[doc["by"]].fields)
    if unit == "mac":
        wanted[wanted.index("flops")] = "macs"
    elif any("useful_flops" in row for stage in doc["stages"] for row in stage["rows"]):
        wanted.insert(wanted.index("flops") + 1, "useful")
    return [FIELDS[key] for key in wanted]


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
        out["useful_flops"] = sum(row.get("useful_flops", row["cost"]["flops"]) for row in some)
    return out


def _sum(values: list[Any]) -> Any:
    return None if any(v is None for v in values) else sum(values)


def known(column: str | None) -> None:
    """Raises UsageError where no table has such a column to sort by."""
    if column is not None and column not in FIELDS:
        raise UsageError(f"--sort {column}: no such column; there are {', '.join(FIELDS)}")


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
    if value is None:
        return 2, 0
    return (0, -value) if isinstance(value, int | float) else (1, value)
