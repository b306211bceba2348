"""Text with a unit <-> a number in the base unit: '819 GB/s' <-> 819e9 B/s. The only place with 1e9 in it.

GB is 1e9 bytes, GiB is 2^30. A bit is written out (`Gbit/s`), since Gb and GB are one key apart.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation

from costtrace.errors import UsageError

PREFIXES = {"n": -9, "u": -6, "µ": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4}

# Base unit -> the ways to write it, each with its factor and whether an SI prefix may stand before it.
UNITS: dict[str, dict[str, tuple[Decimal, bool]]] = {
    "B": {"B": (Decimal(1), True)},
    "B/s": {"B/s": (Decimal(1), True), "bit/s": (Decimal(1) / 8, True)},
    "FLOP": {"FLOP": (Decimal(1), True)},
    "FLOP/s": {"FLOP/s": (Decimal(1), True)},
    "FLOP/B": {"FLOP/B": (Decimal(1), True)},
    "FLOP/cycle": {"FLOP/cycle": (Decimal(1), True)},
    "OP": {"OP": (Decimal(1), True)},
    "OP/s": {"OP/s": (Decimal(1), True)},
    "Hz": {"Hz": (Decimal(1), True)},
    "s": {"s": (Decimal(1), True)},
    "W": {"W": (Decimal(1), True)},
    "USD/h": {"USD/h": (Decimal(1), False)},
    "1": {"%": (Decimal(1) / 100, False), "x": (Decimal(1), False)},
}
COUNTED = ("ALU", "chip", "core", "device", "element", "lane", "link", "MXU", "row", "SM", "sublane")
UNITS |= {word: {word: (Decimal(1), False), f"{word}s": (Decimal(1), False)} for word in COUNTED}

_FORM = re.compile(r"\s*([+-]?[\d.][\d_,.]*(?:[eE][+-]?\d+)?)\s*(\S.*)?")


def parse(text: str, unit: str) -> float:
    """`text` as a number of `unit` (a key of UNITS). Raises UsageError for no unit, another unit, a negative number."""
    if not isinstance(text, str):
        raise UsageError(f"{text!r} has no unit: write it as text, like {example(unit)}")
    form = _FORM.fullmatch(text)
    if form is None:
        raise UsageError(f"{text!r} is not a number with a unit: write it like {example(unit)}")
    digits, written = form[1], (form[2] or "").strip()
    if not written:
        raise UsageError(f"{text!r} has no unit: write it like {example(unit)}")
    factor = _factor(written, unit)
    if factor is None:
        hint = "; bits are written out (Gbit/s)" if re.fullmatch(r".?b(ps|/s)?", written) else ""
        raise UsageError(f"{text!r} is not in {unit}: write it like {example(unit)}{hint}")
    try:
        value = Decimal(digits)
    except InvalidOperation:
        raise UsageError(f"{text!r} is not a number: write it without separators, like {example(unit)}") from None
    if value < 0:
        raise UsageError(f"{text!r} is negative: a quantity in {unit} is zero or more")
    return float(value * factor)


def _factor(written: str, unit: str) -> Decimal | None:
    for name, (factor, prefixed) in UNITS[unit].items():
        if written == name:
            return factor
        prefix = written.removesuffix(name)
        if prefixed and prefix != written:
            if prefix in PREFIXES:
                return factor * Decimal(10) ** PREFIXES[prefix]
            if prefix in BINARY and name in ("B", "B/s"):
                return Decimal(1024) ** BINARY[prefix]
    return None


def example(unit: str) -> str:
    """A quoted sample of the unit, for error messages."""
    samples = {
        "B/s": "819 GB/s",
        "B": "32 GiB",
        "FLOP/s": "918 TFLOP/s",
        "OP/s": "1836 TOP/s",
        "Hz": "1.75 GHz",
        "s": "1 us",
        "1": "80 %",
    }
    return repr(samples.get(unit) or f"2 {next(reversed(UNITS[unit]))}")


def text(value: float | None, unit: str, digits: int = 4) -> str:
    """`value` with `digits` significant digits and the SI prefix that fits: '819 GB/s'; '?' where it is None."""
    if value is None:
        return "?"
    if unit == "1":
        return f"{_digits(value * 100, digits)} %"
    if unit in UNITS and not UNITS[unit][unit][1]:  # a unit that takes no prefix
        return f"{_digits(value, digits)} {unit}{'s' if unit in COUNTED and value != 1 else ''}"
    number, prefix = si(value, digits)
    return f"{number} {prefix}{unit}"


def exact(value: float, unit: str) -> str:
    """`value` with every digit, as parse takes it back: '206_171_840_512 FLOP'."""
    return f"{int(value):_} {unit}" if float(value).is_integer() else f"{value!r} {unit}"


def binary(value: float | None, digits: int = 4) -> str:
    """Bytes with a binary prefix: '128 MiB'; '?' where it is None."""
    if value is None:
        return "?"
    for prefix, power in reversed(BINARY.items()):
        if abs(value) >= 1024**power:
            return f"{_digits(value / 1024**power, digits)} {prefix}B"
    return f"{_digits(value, digits)} B"


def si(value: float, digits: int = 4) -> tuple[str, str]:
    """(digits, SI prefix) such that 1 <= number < 1000, where a prefix from n to E can make it so."""
    if value == 0 or not math.isfinite(value):
        return _digits(value, digits), ""
    rounded = float(f"{value:.{digits - 1}e}")  # 999.96 is 1 k when four digits are shown
    power = min(18, max(-9, 3 * math.floor(math.log10(abs(rounded)) / 3)))
    prefix = next(name for name, p in PREFIXES.items() if p == power)
    return _digits(value / 10.0**power, digits), prefix


def _digits(value: float, digits: int) -> str:
    """Significant digits without an exponent and without a bare trailing zero: 819, 1.638, 0.47."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}")))))
    shown = f"{value:.{decimals}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown
