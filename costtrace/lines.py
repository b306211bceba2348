"""The user's source line of an op. The only file after trace.py that asks jax, and only when jax made the op."""

from __future__ import annotations

from typing import Any


def line_of(source: Any) -> str:
    """'model.py:31 (forward)' for a jax SourceInfo; '?' where none is known."""
    if source is None:
        return "?"
    from jax.extend import source_info_util

    return str(source_info_util.summarize(source)).rsplit("/", 1)[-1]
