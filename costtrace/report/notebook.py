"""A Profile as a notebook shows it: counts only, since no chip was named."""

from __future__ import annotations

from costtrace.profiler import Profile
from costtrace.report import table
from costtrace.report.table import Column, Table
from costtrace.report.views import label

COLUMNS = (
    Column("part", "part"),
    Column("flops", "", "FLOP"),
    Column("weight", "weight", "B"),
    Column("fused", "fused", "B"),
    Column("scoped", "scoped", "B"),
    Column("unfused", "unfused", "B"),
)


def summary(profile: Profile, depth: int | None = 1) -> Table:
    """Rows by scope, and the whole as one kernel in the last."""
    parts = [(label(row.key), row.cost) for row in profile.rows(depth=depth)]
    parts.append((f"{profile.name} as one kernel", profile.total))
    rows = [[part, c.flops, c.weight_bytes, c.bytes_fused, c.bytes_scoped, c.bytes_unfused] for part, c in parts]
    return Table(COLUMNS, rows)


def html(profile: Profile, depth: int | None = 1) -> str:
    """An HTML table of the profile's parts."""
    return table.html(summary(profile, depth))


def markdown(profile: Profile, depth: int | None = 1) -> str:
    """The same as a Markdown table."""
    return table.markdown(summary(profile, depth))
