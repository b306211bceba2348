"""Table -> text: how a number is shown, and FORMATS, each written by tabulate. Knows no profile and no chip.

A table holds base units (FLOP, B, s) and None for what is not known. csv and tsv print them as they are (None is an
empty cell); the formats for readers choose one SI prefix a unit and table, and print None as "?", never as 0.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from costtrace.units import PREFIXES

# Unit -> the prefix that tables have it in where their largest number is then between 1 and 10^7.
USUAL = {"FLOP": "G", "MAC": "G", "OP": "G", "B": "M", "s": "m", "FLOP/s": "T", "B/s": "G"}
PREFIXED = {unit: ("n", "u", "m", "") if unit == "s" else ("", "k", "M", "G", "T", "P", "E") for unit in USUAL}


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
    """The table for a reader: for each unit one prefix and one number of decimals; '?' for None."""
    heads, columns = [], []
    for index, column in enumerate(table.columns):
        values = [row[index] for row in table.rows]
        alike = [k for k, other in enumerate(table.columns) if other.unit == column.unit]
        numbers = [abs(row[k]) for row in table.rows for k in alike if isinstance(row[k], int | float)]
        most = max(numbers, default=0.0)
        prefix = _prefix(column.unit, most)
        factor = 100.0 if column.unit == "%" else 10.0 ** -PREFIXES[prefix]
        heads.append("\n".join(word for word in (column.head, prefix + column.unit) if word))
        places = decimals(column.unit, most * factor)
        columns.append([_fixed(value, factor, places) if column.unit else _text(value) for value in values])
    cells = [list(row) for row in zip(*columns, strict=True)]
    return Shown(heads, cells, ["right" if column.unit else "left" for column in table.columns])


def _prefix(unit: str, most: float) -> str:
    if unit not in USUAL:
        return ""
    if 1 <= most / 10.0 ** PREFIXES[USUAL[unit]] < 10**7:
        return USUAL[unit]
    return next((p for p in PREFIXED[unit] if most < 10.0 ** (4 + PREFIXES[p])), PREFIXED[unit][-1])


def decimals(unit: str, most: float) -> int:
    """How many decimals the columns of a unit show, whose largest number is `most`."""
    if unit in ("%", "FLOP/B") or "/s" in unit:
        return 1
    return 3 if most < (1000 if unit == "s" else 100) else 1 if most < (10**5 if unit == "s" else 10**4) else 0


KEPT = "\n\u00a0"
"""Line breaks and spaces that hold words together are costtrace's own."""


def printable(text: str) -> str:
    """Without what a terminal would act on: a control character is shown as Python writes it, \\x1b."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in KEPT else repr(c)[1:-1] for c in text)


def _text(value: Any) -> str:
    return "?" if value is None else printable(str(value)).replace("\n", "\\n")


def _fixed(value: Any, factor: float, places: int) -> str:
    """'1,234.5'; what would round to zero is '<0.1'; None is '?'; text passes through."""
    if not isinstance(value, int | float):
        return _text(value)
    number = value * factor
    if number and abs(number) < 0.5 * 10.0**-places:
        return f"<{10.0**-places:.{places}f}"
    return f"{number:,.{places}f}" if number else "0"


def lines(seen: Shown, gap: int = 2) -> list[str]:
    """The table as aligned lines: the heads (their last line next to the rule), a rule, one line a row; `gap` spaces
    between columns."""
    from tabulate import SEPARATING_LINE, DataRow, Line, TableFormat, tabulate  # 40 ms that JSON and csv do not pay

    tall = max((head.count("\n") + 1 for head in seen.heads), default=1)
    split = [[""] * (tall - len(words)) + words for words in (head.split("\n") for head in seen.heads)]
    heads = [list(line) for line in zip(*split, strict=True)]
    row = DataRow("", " " * gap, "")
    form = TableFormat(None, Line("", "-", " " * gap, ""), None, None, row, row, 0, None)
    rows = [*heads, SEPARATING_LINE, *seen.cells]  # as rows: tabulate widens a column by two for its head
    return str(tabulate(rows, (), form, colalign=seen.align, disable_numparse=True)).splitlines()


def _tabulate(seen: Shown, form: str) -> str:
    from tabulate import tabulate

    align = {"colalign": seen.align, "headersalign": seen.align}
    return str(tabulate(seen.cells, seen.heads, form, disable_numparse=True, **align))


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
    writer.writerows(["" if cell is None else _no_formula(cell) for cell in row] for row in table.rows)
    return out.getvalue().rstrip("\n")


def _no_formula(cell: Any) -> Any:
    """A name that a spreadsheet would take for a formula has an apostrophe before it; numbers are as they are."""
    if not isinstance(cell, str):
        return cell
    return ("'" if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else "") + printable(cell)


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
