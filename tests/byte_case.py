"""The table of byte counts by hand: what a row holds, how one is written. Rows: byte_rows.py, byte_rows_nested.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax


def A(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:  # noqa: N802
    return jax.ShapeDtypeStruct(shape, dtype)


def I(*shape: int) -> jax.ShapeDtypeStruct:  # noqa: E743, N802
    return A(*shape, dtype="int32")


@dataclass(frozen=True)
class Case:
    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    fused: int
    unfused: int | None
    scoped: int | None = None
    rows: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Scope -> (fused, scoped, unfused)."""
    donate: tuple[int, ...] = ()
    brute: bool = True
    """False where the brute-force account does not know a primitive."""


CASES: list[Case] = []
WRAP = (4 + 1) + (4 + 4) + (1 + 4 + 4 + 4)
"""jax wraps a negative index before it uses it: a comparison, an addition, a selection of one int32."""


def case(*args: Any, fused: int, unfused: int | None, scoped: int | None = None, **more: Any) -> Callable[..., Any]:
    """Adds a function to the table. Without scopes, scoped bytes equal fused ones; unfused None: not worked out."""

    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        assert fn.__name__ not in [c.name for c in CASES]
        CASES.append(Case(fn.__name__, fn, args, fused, unfused, fused if scoped is None else scoped, **more))
        return fn

    return add
