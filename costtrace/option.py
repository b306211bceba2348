"""The options of a model: fields of its config, each with help, a reader for its text, and an error that says the fix.

Owns the readers; knows no model. The command line builds its options from these fields.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from costtrace.errors import ShapeError, UsageError

Reader = Callable[[str], Any]
"""Text -> value. Raises UsageError or ShapeError with what is wanted; configure() puts option and value before it."""


class Size(NamedTuple):
    """Width and height in pixels, written 1360x768."""

    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


def count(text: str) -> int:
    """A whole number, 1 or more."""
    if not re.fullmatch(r"[0-9]+", text) or int(text) < 1:
        raise UsageError("must be a whole number, 1 or more")
    return int(text)


def positive(text: str) -> float:
    """A number above 0."""
    if not re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", text) or float(text) <= 0:
        raise UsageError("must be a number above 0, such as 30 or 380.4")
    return float(text)


def size(multiple: int = 1) -> Reader:
    """Reads WIDTHxHEIGHT, each side a multiple of `multiple`."""

    def read(text: str) -> Size:
        sides = re.fullmatch(r"([0-9]+)[xX]([0-9]+)", text)
        if not sides:
            raise UsageError("must be WIDTHxHEIGHT in pixels: try 1360x768")
        wanted = Size(*(int(side) for side in sides.groups()))
        near = Size(*(max(1, round(side / multiple)) * multiple for side in wanted))
        if not all(wanted):
            raise ShapeError(f"each side must be {multiple} or more: try {near}")
        if wanted != near:
            raise ShapeError(f"each side must be a multiple of {multiple}: try {near}")
        return wanted

    return read


def choice(*words: str, **short: str) -> Reader:
    """Reads one of `words`, or a short form of one: choice("bfloat16", "float32", bf16="bfloat16")."""

    def read(text: str) -> str:
        word = short.get(text, text)
        if word not in words:
            raise UsageError(f"must be one of {', '.join(words)}")
        return word

    return read


DTYPE = choice("bfloat16", "float16", "float32",
               bf16="bfloat16", f16="float16", fp16="float16", f32="float32", fp32="float32")  # fmt: skip
"""Reads the dtype of a model's weights and activations."""

_READERS: dict[type, Reader] = {int: count, float: positive}
_METAVARS: dict[Reader, str] = {count: "N", positive: "X", DTYPE: "DTYPE"}


def option(default: Any, *, help: str, parse: Reader | None = None, metavar: str = "", quiet: bool = False) -> Any:
    """A field of a config dataclass, and an option on the command line: the field `text_tokens` is `--text-tokens`.

    parse reads its text. By default a whole number must be 1 or more, a number with a fraction above 0. quiet: the
    option is not shown where it has its default.
    """
    parse = parse or _READERS.get(type(default), str)
    metavar = metavar or _METAVARS.get(parse, "TEXT")
    metadata = {"help": help, "parse": parse, "metavar": metavar, "quiet": quiet}
    return dataclasses.field(default=parse(str(default)), metadata=metadata)


def scale() -> Any:
    """The field `scale` of a config whose model can be made smaller for a small machine; see scaled()."""
    return option(1.0, help="of depth and width, for a small machine: 0.125 is an eighth of both", quiet=True)


def scaled(n: int, by: float, multiple: int = 1) -> int:
    """A depth or a width `n` times `by`: the nearest multiple of `multiple`, at least one of it.

    `multiple` is what the program cuts a width into: the width of a head, the groups of a norm. Numbers of the task
    (tokens, pixels, vocabulary, channels of what comes in and goes out, experts) are not scaled.
    """
    return max(1, round(n * by / multiple)) * multiple


def flag(name: str) -> str:
    """A field's name on the command line."""
    return f"--{name.replace('_', '-')}"


def options(config: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """{name: field} of a config: `field.default`, and `field.metadata` with `help`, `parse` and `metavar`."""
    return {field.name: field for field in dataclasses.fields(config)}


def configure(config: type[Any], values: dict[str, Any], owner: str) -> Any:
    """A config with `values`, each as text or as what its reader gives; None leaves the default.

    Raises UsageError or ShapeError, one line that names the option, the value and the fix.
    """
    known, read = options(config), {}
    for name, value in values.items():
        if name not in known:
            raise UsageError(f"{owner} has no option {name!r}: it takes {', '.join(known) or 'none'}")
        if value is None:
            continue
        flag = name.replace("_", "-")
        if value == "":
            raise UsageError(
                f"{flag}: a value is empty: write --{flag} {known[name].default}, or several with one comma"
            )
        try:
            read[name] = known[name].metadata.get("parse", str)(str(value))
        except UsageError as e:
            raise type(e)(f"{flag} {value}: {e}") from None
    return config(**read)
