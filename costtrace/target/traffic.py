"""The bytes that an HLO instruction moves, by memory space: what lies in HBM and what the compiler placed on the chip.

Of an operand only what is touched: a slice of a stack of weights is the slice, an update in place is the update. Bytes
are those of the layout, padding to tiles included. A prefetch counts once, where it starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from costtrace.target.hlo import HBM, Computation, Instruction, Module, Shape
from costtrace.target.work import FREE_CALLS

FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
        "opt-barrier", "domain", "add-dependency", "while", "conditional", "call")  # fmt: skip
"""What moves nothing itself."""
READS_PART = ("slice", "dynamic-slice", "gather")
VIEWS = ("bitcast", "reshape", "get-tuple-element")
HOST = 5
"""TPU: the memory space of arrays kept in the host's memory."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one execution, read and written together."""

    hbm: int = 0
    chip: int = 0
    host: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.hbm + other.hbm, self.chip + other.chip, self.host + other.host)

    def __mul__(self, n: int) -> Traffic:
        return Traffic(self.hbm * n, self.chip * n, self.host * n)


def _at(space: int, nbytes: int) -> Traffic:
    return Traffic(hbm=nbytes) if space == HBM else Traffic(host=nbytes) if space == HOST else Traffic(chip=nbytes)


def free(i: Instruction) -> bool:
    """True where the instruction is no kernel: it renames, waits or names a part of a tuple."""
    if i.opcode == "custom-call":
        return (i.attribute("custom_call_target") or "").strip('"') in FREE_CALLS
    return i.opcode in FREE or i.opcode.endswith(("-done", "-update"))


def of(module: Module, computation: Computation, i: Instruction) -> Traffic:
    """What one execution of an instruction moves (loops, branches and calls are walked elsewhere)."""
    if free(i):
        return Traffic()
    if i.opcode.endswith("-start"):
        return sum((_at(s.space, n) for s, n in _transferred(i)), Traffic())
    moved = [*_read(module, computation, i), *_written(module, computation, i)]
    return sum((_at(shape.space, nbytes) for shape, nbytes in moved), Traffic())


def _transferred(i: Instruction) -> Iterator[tuple[Shape, int]]:
    """A copy, a slice or a collective that runs beside the kernels: its source's part is read, its target written."""
    arrays = [s for s in i.results if s.dtype not in ("token", "opaque")]
    if i.opcode == "copy-start":
        target, source = arrays[0], arrays[1]
        moved = target.padded_nbytes
    elif i.opcode.endswith("slice-start"):
        source, target = arrays[0], arrays[1]
        moved = target.padded_nbytes
    else:  # a collective or another wrapped kernel: operands first, then as many results, then what it waits on
        arrays = [s for s in arrays if not (s.dtype in ("u32", "s32") and not s.dims)]
        yield from ((s, s.padded_nbytes) for s in arrays)
        return
    yield source, moved
    yield target, moved


def _read(module: Module, computation: Computation, i: Instruction) -> Iterator[tuple[Shape, int]]:
    if i.opcode == "fusion":
        fused = module.computations[i.called("calls")[0]]
        parameters = fused.parameters
        seen: dict[str, int] = {}
        for n, name in enumerate(i.operands):
            part = _touched(module, fused, parameters[n].name)
            for shape in computation.instructions[name].results:
                nbytes = shape.padded_nbytes if part is None else min(shape.padded_nbytes, _scaled(shape, part))
                seen[name] = max(seen.get(name, 0), nbytes)
        for name, nbytes in seen.items():
            yield computation.instructions[name].results[0], nbytes
        return
    for n, name in enumerate(dict.fromkeys(i.operands)):
        for shape in computation.instructions[name].results:
            if n == 0 and i.opcode in READS_PART:
                yield shape, _scaled(shape, i.results[0].size)
            elif not (n == 0 and i.opcode in ("dynamic-update-slice", "scatter")):
                yield shape, shape.padded_nbytes


def _scaled(shape: Shape, elements: int) -> int:
    """The bytes of some of an array's elements, its padding shared out."""
    return shape.padded_nbytes * elements // shape.size if shape.size else 0


def _touched(module: Module, computation: Computation, name: str) -> int | None:
    """How many elements of a value its users look at; None for all. A view's users are its own."""
    total = 0
    for user in computation.users.get(name, ()):
        position = user.operands.index(name)
        if user.opcode in VIEWS:
            part = _touched(module, computation, user.name)
        elif user.opcode in READS_PART and position == 0:
            part = user.results[0].size
        elif user.opcode == "dynamic-update-slice" and position == 0:
            part = 0
        elif user.opcode == "fusion":
            inner = module.computations[user.called("calls")[0]]
            part = _touched(module, inner, inner.parameters[position].name)
        else:
            part = None
        if part is None:
            return None
        total += part
    return None if computation.root == name else total


def _written(module: Module, computation: Computation, i: Instruction) -> Iterator[tuple[Shape, int]]:
    if i.opcode == "fusion":
        fused = module.computations[i.called("calls")[0]]
        parts = _updates(module, fused, fused.root)
        for shape, part in zip(i.results, parts, strict=False):
            yield shape, shape.padded_nbytes if part is None else _scaled(shape, part)
    elif i.opcode in ("dynamic-update-slice", "scatter"):
        update = computation.operand(i, 1 if i.opcode == "dynamic-update-slice" else -1).results[0]
        yield i.results[0], _scaled(i.results[0], update.size)
    else:
        results = i.results
        if _LIBRARY.search(i.attributes) and len(results) > 1 and results[-1].dtype in ("s8", "u8"):
            results = results[:-1]  # the library's workspace: what of it is used is not known
        yield from ((shape, shape.padded_nbytes) for shape in results)


_LIBRARY = re.compile(r'custom_call_target="__cu')


def _updates(module: Module, computation: Computation, name: str) -> list[int | None]:
    """For each leaf of a value: how many elements an update in place writes; None where all are written."""
    i = computation.instructions[name]
    if i.opcode == "tuple":
        return [part for operand in i.operands for part in _updates(module, computation, operand)]
    if i.opcode == "bitcast":
        return _updates(module, computation, i.operands[0])
    if i.opcode == "dynamic-update-slice":
        return [computation.operand(i, 1).results[0].size]
    if i.opcode == "fusion":
        inner = module.computations[i.called("calls")[0]]
        return _updates(module, inner, inner.root)
    return [None] * len(i.results)
