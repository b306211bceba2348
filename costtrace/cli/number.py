"""The type of an option that takes a number with a fraction: click's, which lets `nan` and `inf` pass, without them."""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A number from `min`, or above it with min_open; never nan, never infinite."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a number.", param, ctx)
        return found
