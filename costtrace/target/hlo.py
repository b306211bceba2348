"""HLO text -> instructions. Reads lowered or optimized modules, of any backend; knows nothing of costs. No jax here.

Layouts keep what the compiler decided: `{1,0:T(8,128)(2,1)S(1)}` is minor-to-major, tiles, and the memory space.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from costtrace.errors import FormatError

HBM = 0
"""The memory space of a layout without S(n). Others lie on the chip (TPU: 1 VMEM, 2 and 6 scalar memories)."""

_BITS = {"pred": 8, "bf16": 16, "token": 0, "opaque": 0}
_NUMBERED = re.compile(r"(?:s|u|f|c)(\d+)")


@functools.cache
def bits(dtype: str) -> int:
    """True bits of an element of an HLO type: s4 is 4, f8e4m3fn is 8, pred is stored as 8."""
    found = _NUMBERED.match(dtype)
    return _BITS[dtype] if dtype in _BITS else int(found[1]) if found else 0


@dataclass(frozen=True, slots=True)
class Shape:
    """One array of an instruction's result or operand."""

    dtype: str
    dims: tuple[int, ...]
    order: tuple[int, ...] = ()
    """Minor to major, () where the text has no layout."""
    tile: tuple[int, ...] = ()
    space: int = HBM

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        return -(-self.size * bits(self.dtype) // 8)

    @property
    def padded_nbytes(self) -> int:
        """Bytes with each tiled dimension filled up to whole tiles: what lies in memory and is moved."""
        if not self.tile or not self.order or not self.dims:
            return self.nbytes
        dims = list(self.dims)
        for length, axis in zip(reversed(self.tile), self.order, strict=False):
            dims[axis] = -(-dims[axis] // length) * length
        return -(-math.prod(dims) * bits(self.dtype) // 8)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


_SHAPE = re.compile(r"(\w+)\[([^\]]*)\](?:\{([^}]*)\})?")
_TILE = re.compile(r"T\(([\d,*]*)\)")
_SPACE = re.compile(r"S\((\d+)\)")


@functools.lru_cache(maxsize=1 << 16)
def shapes(text: str) -> tuple[Shape, ...]:
    """Every array of a shape's text, a tuple's leaves in order."""
    return tuple(_shape(*found) for found in _SHAPE.findall(text))


def _shape(dtype: str, dims: str, layout: str) -> Shape:
    order, _, rest = layout.partition(":")
    tile, space = _TILE.search(rest), _SPACE.search(rest)
    return Shape(
        dtype, tuple(int(d.lstrip("<=")) for d in dims.split(",") if d.strip() and d.strip() != "?"),
        tuple(int(d) for d in order.split(",") if d.strip().isdigit()),
        tuple(int(d) for d in tile[1].split(",") if d.isdigit()) if tile else (),
        int(space[1]) if space else HBM,
    )  # fmt: skip


@dataclass(slots=True, eq=False)
class Instruction:
    """One line of a computation. `results` are the leaves of its shape; `operands` names of the same computation."""

    name: str
    opcode: str
    results: tuple[Shape, ...]
    operands: tuple[str, ...]
    arguments: str
    """The text between the parentheses: a parameter's number, a constant's value."""
    attributes: str
    is_tuple: bool = False

    @property
    def op_name(self) -> str:
        """The metadata's op_name; '' where the compiler gave none. Of merged names the first."""
        found = _OP_NAME.search(self.attributes)
        return found[1].replace("\\'", "'").partition(";")[0] if found else ""

    def attribute(self, key: str) -> str | None:
        """The value of `key=`, a word or what its brackets hold."""
        at = self.attributes.find(f", {key}=") + 2
        if at == 1:
            if not self.attributes.startswith(f"{key}="):
                return None
            at = 0
        at += len(key) + 1
        if self.attributes[at : at + 1] in ("{", "["):
            return self.attributes[at + 1 : _closing(self.attributes, at)]
        return re.split(r"[,\s]", self.attributes[at:], maxsplit=1)[0].lstrip("%")

    def called(self, key: str) -> tuple[str, ...]:
        """The computations under `key=`."""
        value = self.attribute(key)
        return tuple(name.strip().lstrip("%") for name in value.split(",")) if value else ()

    @property
    def backend_config(self) -> dict[str, Any]:
        """The backend's own record as JSON; {} where there is none or it is no JSON."""
        at = self.attributes.find("backend_config=")
        if at < 0:
            return {}
        text = self.attributes[at + len("backend_config=") :]
        if text.startswith('"'):
            text = text[1 : text.rfind('"')].replace('\\"', '"')
        try:
            found, _ = _DECODER.raw_decode(text)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


_DECODER = json.JSONDecoder()
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')


@dataclass(slots=True, eq=False)
class Computation:
    """Instructions in the order of the text: of a scheduled module, the order of execution."""

    name: str
    instructions: dict[str, Instruction] = field(default_factory=dict)
    root: str = ""
    users: dict[str, list[Instruction]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions.values())

    def operand(self, instruction: Instruction, n: int) -> Instruction:
        return self.instructions[instruction.operands[n]]

    def shapes_of(self, instruction: Instruction) -> list[tuple[Shape, ...]]:
        """The result shapes of each operand."""
        return [self.instructions[name].results for name in instruction.operands]

    @property
    def parameters(self) -> list[Instruction]:
        found = [i for i in self if i.opcode == "parameter"]
        return sorted(found, key=lambda i: int(i.arguments))


@dataclass(slots=True, eq=False)
class Module:
    """A whole program. `files`: stack frame id -> 'file.py:31' where the text carries the tables."""

    name: str
    computations: dict[str, Computation]
    entry: Computation
    scheduled: bool = False
    partitions: int = 1
    files: dict[int, str] = field(default_factory=dict)


AGAIN = "dump the module again, as text and whole"
_HEAD = re.compile(r"(ENTRY )?%?([\w.-]+) (?:\(.*\) -> .*)?\{$")
_LINE = re.compile(r"\s+(ROOT )?%?([\w.-]+) = ")
_OPCODE = re.compile(r"\s*([\w-]+)\(")
_NAME = re.compile(r"%?([\w.-]+(?:#\d+)?)$")
_COMMENT = re.compile(r"/\*.*?\*/")


def parsed(text: str) -> Module:
    """The module that HLO text describes. Raises FormatError where it is no HLO module, or not a whole one."""
    lines = text.splitlines()
    head = next((line for line in lines if line.strip()), "")
    if not head.startswith("HloModule "):
        raise FormatError(
            f"not an HLO module: the text starts with {head[:40]!r}, not with 'HloModule'; "
            "give an HLO dump as text (XLA_FLAGS=--xla_dump_hlo_as_text)"
        )
    computations: dict[str, Computation] = {}
    entry: Computation | None = None
    body: Computation | None = None
    for line in lines:
        if body is None:
            found = _HEAD.match(line) if line.endswith("{") and not line.startswith("HloModule") else None
            if found:
                body = computations[found[2]] = Computation(found[2])
                entry = body if found[1] else entry
        elif line.startswith("}"):
            body = None
        elif (named := _LINE.match(line)) is not None:
            try:
                instruction = _instruction(named[2], line[named.end() :])
            except (ValueError, IndexError) as e:
                raise FormatError(f"HLO instruction {named[2]!r} cannot be read ({e}): {AGAIN}") from None
            body.instructions[instruction.name] = instruction
            body.root = instruction.name if named[1] else body.root
    if entry is None or body is not None:
        what = "no ENTRY computation" if body is None else f"the text ends inside {body.name!r}"
        raise FormatError(f"not a whole HLO module: {what}; dump the module with all its computations")
    for computation in computations.values():
        _elements(computation)
        _whole(computation, computations)
        for instruction in computation:
            for name in dict.fromkeys(instruction.operands):
                computation.users.setdefault(name, []).append(instruction)
    partitions = re.search(r"num_partitions=(\d+)", head)
    return Module(
        head.split()[1].rstrip(","),
        computations,
        entry,
        "is_scheduled=true" in head,
        int(partitions[1]) if partitions else 1,
        _files(lines),
    )


CALLS = ("calls", "to_apply", "body", "condition", "true_computation", "false_computation", "branch_computations")


def _whole(computation: Computation, computations: Mapping[str, Computation]) -> None:
    """Raises FormatError where an instruction reads or calls what the module does not have."""
    for i in computation:
        if absent := [name for name in i.operands if name not in computation.instructions]:
            raise FormatError(f"HLO instruction {i.name!r} reads {absent[0]!r}, which {computation.name!r} has not: "
                              f"{AGAIN}")  # fmt: skip
        if absent := [name for key in CALLS for name in i.called(key) if name not in computations]:
            raise FormatError(f"HLO instruction {i.name!r} calls {absent[0]!r}, which is not in the module: {AGAIN}")
        if i.opcode == "parameter" and not i.arguments.isdecimal():
            raise FormatError(f"HLO parameter {i.name!r} has no number: {AGAIN}")


def _elements(computation: Computation) -> None:
    """Newer text writes element 1 of the flat tuple %a as %a#1 where it is used: an instruction of its own here."""
    written = [name for i in computation for name in i.operands if "#" in name]
    for name in dict.fromkeys(written):
        base, _, k = name.partition("#")
        whole = computation.instructions.get(base)
        if whole is not None and int(k) < len(whole.results):
            computation.instructions[name] = Instruction(
                name, "get-tuple-element", (whole.results[int(k)],), (base,), base, f"index={k}", False
            )


def _instruction(name: str, rest: str) -> Instruction:
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    found = _OPCODE.match(rest, end)
    if found is None:
        raise FormatError(f"HLO instruction {name!r} cannot be read: {rest[:60]!r}; {AGAIN}")
    close = _closing(rest, found.end() - 1)
    arguments = rest[found.end() : close]
    operands = () if found[1] in ("parameter", "constant") else tuple(_names(arguments))
    return Instruction(
        name, found[1], shapes(rest[:end]), operands, arguments, rest[close + 1 :].lstrip(", "), rest.startswith("(")
    )


def _names(arguments: str) -> Iterator[str]:
    for part in _split(_COMMENT.sub("", arguments)):
        found = _NAME.search(part.strip())
        if found:
            yield found[1]


def _split(text: str) -> Iterator[str]:
    """At commas outside brackets; operands may carry their shapes."""
    if "[" not in text:
        yield from text.split(",")
        return
    depth = start = 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and not depth:
            yield text[start:i]
            start = i + 1
    yield text[start:]


_BRACKET = re.compile(r'[()\[\]{}]|"(?:[^"\\]|\\.)*"')


def _closing(text: str, at: int) -> int:
    """Where the bracket that opens at `at` closes; text in quotes does not count."""
    depth = 0
    for found in _BRACKET.finditer(text, at):
        c = found[0]
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if not depth:
                return found.start()
    return len(text)


_ROW = re.compile(r"(\d+) (?:\"(.*)\"|\{(.*)\})$")


def _files(lines: list[str]) -> dict[int, str]:
    """The tables at a module's head, joined: stack frame id -> innermost 'file.py:31'."""
    tables: dict[str, dict[int, str]] = {}
    table: dict[int, str] | None = None
    for line in lines[1:]:
        if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            table = tables.setdefault(line, {})
        elif table is not None and (row := _ROW.match(line)):
            table[int(row[1])] = row[2] if row[2] is not None else row[3]
        elif line.endswith("{"):
            break
    places = {n: dict(re.findall(r"(\w+)=(\d+)", text)) for n, text in tables.get("FileLocations", {}).items()}
    out = {}
    for n, text in tables.get("StackFrames", {}).items():
        place = places.get(int(dict(re.findall(r"(\w+)=(\d+)", text)).get("file_location_id", 0)))
        if place:
            file = tables.get("FileNames", {}).get(int(place["file_name_id"]), "?")
            out[n] = f"{file.rpartition('/')[2]}:{place['line']}"
    return out
