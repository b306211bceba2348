"""Table -> text: how a number is shown, and FORMATS, each written by tabulate. Knows no profile and no chip.

A table holds base units (FLOP, B, s) and None for what is not known. csv and tsv print them as they are (None is an
empty cell); the formats for readers choose one SI prefix a unit and table, and print None as "?", never as 0.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from costtrace.units import PREFIXES

# The largest number that a column shows before the next prefix is taken: 412,345.6 MB reads better than 0.4 TB beside 0.1.
LARGEST = {"FLOP": 1e6, "MAC": 1e6, "OP": 1e6, "B": 1e7, "s": 1e4, "FLOP/s": 1e5, "B/s": 1e5}
PREFIXED = {unit: ("n", "u", "m", "") if unit == "s" else ("", "k", "M", "G", "T", "P", "E") for unit in LARGEST}


@dataclass(frozen=True, slots=True)
class Column:
    """`key` heads it in csv and tsv, `head` in tables; `unit`: FLOP, B, s, FLOP/B, % (the value is a share of 1), or ""
    for text."""

    key: str
    head: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows of raw values: numbers in base units, text, None where a number is not known."""

    columns: tuple[Column, ...]
    rows: list[list[Any]]


@dataclass(frozen=True, slots=True)
class Shown:
    """A table as strings, ready for tabulate."""

    heads: list[str]
    cells: list[list[str]]
    align: list[str]


def shown(table: Table) -> Shown:
    """The table for a reader: one prefix for each unit, fixed decimals in each column, '?' for None."""
    prefix = {unit: _prefix(unit, _numbers(table, unit)) for unit in PREFIXED}
    heads, columns = [], []
    for index, column in enumerate(table.columns):
        values = [row[index] for row in table.rows]
        written = prefix.get(column.unit, "") + column.unit
        heads.append("\n".join(word for word in (column.head, written) if word))
        if column.unit:
            factor = 100.0 if column.unit == "%" else 10.0 ** -PREFIXES[prefix.get(column.unit, "")]
            columns.append(fixed(values, factor, 1 if column.unit in ("%", "FLOP/B") or "/s" in column.unit else None))
        else:
            columns.append(["?" if value is None else str(value) for value in values])
    cells = [list(row) for row in zip(*columns, strict=True)]
    return Shown(heads, cells, ["right" if column.unit else "left" for column in table.columns])


def _numbers(table: Table, unit: str) -> list[float]:
    wanted = [k for k, column in enumerate(table.columns) if column.unit == unit]
    return [abs(row[k]) for row in table.rows for k in wanted if isinstance(row[k], int | float)]


def _prefix(unit: str, values: list[float]) -> str:
    most = max(values, default=0.0)
    return next((p for p in PREFIXED[unit] if most < LARGEST[unit] * 10.0 ** PREFIXES[p]), PREFIXED[unit][-1])


def fixed(values: Iterable[Any], factor: float = 1.0, decimals: int | None = None) -> list[str]:
    """Numbers times `factor`, all with the same decimals (by default five digits in the largest, at most three after
    the point). What would round to zero is '<0.1'; None is '?'; text passes through."""
    numbers = [v * factor if isinstance(v, int | float) else v for v in values]
    if decimals is None:
        most = max((abs(n) for n in numbers if isinstance(n, int | float)), default=0.0)
        whole = math.floor(math.log10(most)) + 1 if most >= 1 else 1
        decimals = min(3, max(0, 6 - whole if whole > 3 else 4 - whole))
    least = 10.0**-decimals
    return [_fixed(n, decimals, least) for n in numbers]


def _fixed(number: Any, decimals: int, least: float) -> str:
    if number is None:
        return "?"
    if not isinstance(number, int | float):
        return str(number)
    if 0 < abs(number) < least / 2:
        return f"<{least:.{decimals}f}"
    return "0" if number == 0 else f"{number:,.{decimals}f}"


def lines(seen: Shown) -> list[str]:
    """The table as aligned lines: the heads, a rule, one line a row."""
    return _tabulate(seen, "simple").splitlines()


def _tabulate(seen: Shown, form: str) -> str:
    from tabulate import tabulate  # 40 ms that JSON and csv do not pay

    return str(tabulate(seen.cells, seen.heads, form, colalign=seen.align, headersalign=seen.align, disable_numparse=True))


def _one_line_heads(seen: Shown) -> Shown:
    heads = [" ".join(head.replace("\n", " (", 1).split()) + (")" if "\n" in head else "") for head in seen.heads]
    return Shown(heads, seen.cells, seen.align)


def text(table: Table) -> str:
    return "\n".join(lines(shown(table)))


def markdown(table: Table) -> str:
    """A pipe table; text cells with signs that Markdown would eat are set as code."""
    seen = _one_line_heads(shown(table))
    cells = [[_markdown_cell(c) for c in row] for row in seen.cells]
    return _tabulate(Shown(seen.heads, cells, seen.align), "pipe")


def _markdown_cell(cell: str) -> str:
    cell = cell.replace("|", "\\|")
    return f"`{cell}`" if set(cell) & set("*_<`[") and not cell.startswith("<0") else cell.replace("<", "&lt;")


def latex(table: Table) -> str:
    """A booktabs tabular; tabulate escapes the cells."""
    return _tabulate(_one_line_heads(shown(table)), "latex_booktabs")


def html(table: Table) -> str:
    return _tabulate(_one_line_heads(shown(table)), "html")


def _separated(table: Table, delimiter: str) -> str:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(column.key for column in table.columns)
    writer.writerows(["" if cell is None else cell for cell in row] for row in table.rows)
    return out.getvalue().rstrip("\n")


def comma_separated(table: Table) -> str:
    return _separated(table, ",")


def tab_separated(table: Table) -> str:
    return _separated(table, "\t")


FORMATS: dict[str, Callable[[Table], str]] = {
    "csv": comma_separated,
    "tsv": tab_separated,
    "md": markdown,
    "latex": latex,
    "html": html,
    "text": text,
}
DATA = ("json", "csv", "tsv")
"""Formats for programs: base units, every digit, siblings never merged."""
