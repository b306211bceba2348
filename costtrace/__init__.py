"""costtrace: what every named part of a JAX program costs on a chip, from shapes alone.

    >>> profile = costtrace.profile(fn, jax.ShapeDtypeStruct((8, 1024), "bfloat16"))
    >>> profile.total.flops, profile.scopes()["mlp"].bytes_fused

The names below are the public API; each is imported when it is first asked for, so that `import costtrace` imports
neither jax nor a rule.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from costtrace.version import __version__

if TYPE_CHECKING:
    from costtrace.budget import assert_cost
    from costtrace.chip import Chip
    from costtrace.core import Cost, Note, Op, Value
    from costtrace.errors import (
        ChipError,
        CosttraceError,
        FormatError,
        PrivateDoorError,
        ShapeError,
        TraceError,
        UnknownCostError,
        UsageError,
    )
    from costtrace.memory import Peak
    from costtrace.model import Model, Stage, param, scope, stack
    from costtrace.profiler import profile
    from costtrace.rules.table import rule
    from costtrace.summary import Profile, Row

_HOME = {
    "costtrace.budget": ("assert_cost",),
    "costtrace.chip": ("Chip",),
    "costtrace.core": ("Cost", "Note", "Op", "Value"),
    "costtrace.errors": (
        "ChipError",
        "CosttraceError",
        "FormatError",
        "PrivateDoorError",
        "ShapeError",
        "TraceError",
        "UnknownCostError",
        "UsageError",
    ),
    "costtrace.memory": ("Peak",),
    "costtrace.model": ("Model", "Stage", "param", "scope", "stack"),
    "costtrace.profiler": ("profile",),
    "costtrace.rules.table": ("rule",),
    "costtrace.summary": ("Profile", "Row"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "Chip",
    "ChipError",
    "Cost",
    "CosttraceError",
    "FormatError",
    "Model",
    "Note",
    "Op",
    "Peak",
    "PrivateDoorError",
    "Profile",
    "Row",
    "ShapeError",
    "Stage",
    "TraceError",
    "UnknownCostError",
    "UsageError",
    "Value",
    "__version__",
    "assert_cost",
    "param",
    "profile",
    "rule",
    "scope",
    "stack",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'costtrace' has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(_MODULE[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
