"""Every error that costtrace raises on purpose. Each message is one line: the thing, the place, the fix.

CosttraceError            exit code 2 in the command line
├── UsageError            an option, argument, file or name given by the user
│   └── ShapeError        a size that the model cannot take, arguments that do not fit
├── TraceError            the function failed while jax traced it
├── UnknownCostError      --strict met something nobody priced
├── ChipError             a chip file that must not load
├── FormatError           a saved profile of another schema
└── PrivateDoorError      a private part of jax moved; says where costtrace reaches for it
"""

from __future__ import annotations


class CosttraceError(Exception):
    """Base of all; the command line prints it on one line and exits with `exit_code`."""

    exit_code = 2


class UsageError(CosttraceError):
    pass


class ShapeError(UsageError):
    pass


class TraceError(CosttraceError):
    pass


class UnknownCostError(CosttraceError):
    pass


class ChipError(CosttraceError):
    """docs/chips.md says what a chip file may hold."""


class FormatError(CosttraceError):
    pass


class PrivateDoorError(CosttraceError):
    pass
