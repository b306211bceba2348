"""The options that every profiling command takes, and what they become: chips, a Grouping, printed documents."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from costtrace.report.document import GROUPS, Document, Grouping

FORMATS = ("text", "json", "csv", "tsv", "md", "latex")
DATA = ("json", "csv", "tsv")


@dataclass(frozen=True, slots=True)
class Shared:
    """The values of the shared options."""

    chip: str
    depth: int | None
    by: str
    sort: str | None
    top: int | None
    format: str
    unit: str
    strict: bool
    verbose: bool
    layers: bool
    efficiency: bool
    explain: str | None
