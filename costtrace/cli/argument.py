"""The grammar of --arg: text -> a name and an abstract array, or a name and a Python value. No jax here.

[NAME=]DTYPE[SIZE,...] is an array: x=bf16[1024,3072], f32[8,8], i32[], x=float8_e4m3fn[n,128] with --dim n=64.
NAME=VALUE is a Python literal, fixed while tracing: heads=8, causal=True, mode='full'.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from costtrace.errors import UsageError

GRAMMAR = "write NAME=DTYPE[SIZE,...], as in 'x=bf16[1024,3072]', or NAME=VALUE for a fixed Python value"
WORDS = {"f": "float", "i": "int", "s": "int", "u": "uint", "c": "complex"}
_NAMED = re.compile(r"\s*(?:([A-Za-z_]\w*)\s*=\s*)?(.*?)\s*", re.DOTALL)
_ARRAY = re.compile(r"([A-Za-z]\w*)\s*\[([^\[\]]*)\]")
_SHORT = re.compile(r"([fisuc])(\d+(?:_\w+)?)")


@dataclass(frozen=True, slots=True)
class Array:
    """dtype (numpy's or ml_dtypes' name) and shape."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def dtype_name(word: str) -> str:
    """'bf16' -> 'bfloat16', 'i8' -> 'int8', 'f8_e4m3fn' -> 'float8_e4m3fn', 'pred' -> 'bool'; a long name is itself."""
    if word in ("bf16", "pred"):
        return {"bf16": "bfloat16", "pred": "bool"}[word]
    short = _SHORT.fullmatch(word)
    return WORDS[short[1]] + short[2] if short else word


def parse(text: str, dims: Mapping[str, int]) -> tuple[str | None, Any]:
    """(name or None, Array or Python value). Raises UsageError where the text is not in the grammar."""
    named = _NAMED.fullmatch(text)
    assert named is not None  # it matches any text
    name, written = named[1], named[2]
    if array := _ARRAY.fullmatch(written):
        sizes = [size.strip() for size in array[2].split(",")] if array[2].strip() else []
        return name, Array(dtype_name(array[1]), tuple(_size(size, text, dims) for size in sizes))
    if name is not None:
        try:
            return name, ast.literal_eval(written)
        except (ValueError, SyntaxError):
            pass
    raise UsageError(f"--arg {text!r}: {GRAMMAR}")


def _size(text: str, where: str, dims: Mapping[str, int]) -> int:
    if text.isdecimal():
        return int(text)
    if text in dims:
        return dims[text]
    if text.isidentifier():
        raise UsageError(f"--arg {where!r}: the size {text!r} has no value: add --dim {text}=8")
    raise UsageError(f"--arg {where!r}: {text!r} is not a size: {GRAMMAR}")


def sizes(texts: Iterable[str]) -> list[str]:
    """The names of sizes in some texts of --arg: n and m of 'x=f32[n,8]', 'f32[m]'."""
    inner = [array[2] for text in texts for array in _ARRAY.finditer(text)]
    words = [word.strip() for text in inner for word in text.split(",")]
    return list(dict.fromkeys(word for word in words if word.isidentifier()))


def pairs(option: str, texts: tuple[str, ...]) -> dict[str, int]:
    """{'b': 7} for --dim b=7, {'decode/loop': 40} for --trips decode/loop=40. Raises UsageError for anything else."""
    out: dict[str, int] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name or not number.isdecimal():
            raise UsageError(f"{option} {text!r}: write {option} NAME=NUMBER")
        if out.get(name, int(number)) != int(number):
            raise UsageError(f"{option} {name} is given twice, as {out[name]} and {number}: give it once")
        out[name] = int(number)
    return out
