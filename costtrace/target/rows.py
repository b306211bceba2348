"""An HLO loop that steps through the rows of arrays: which it reads row by row, and which it writes so. No jax here."""

from __future__ import annotations

import re
from dataclasses import replace

from costtrace.target.hlo import Computation, Instruction, Module, Shape
from costtrace.target.opname import joined

STEPS = ("parameter", "constant", "dynamic-slice", "dynamic-update-slice", "reshape", "broadcast", "convert", "compare",
         "select", "add", "subtract")  # fmt: skip
"""What jax's functions that read or write one row are made of."""
_OP_NAME = re.compile(r'op_name="(?:[^"\\]|\\.)*"')


def inlined(module: Module, body: Computation) -> Computation:
    """The loop's body with the calls that only read or write a row opened."""
    out: dict[str, Instruction] = {}
    for i in body:
        callee = module.computations[i.called("to_apply")[0]] if i.opcode == "call" else None
        if callee is None or not _steps(callee):
            out[i.name] = i
            continue
        names = {k.name: f"{i.name}/{k.name}" for k in callee} | {callee.root: i.name}
        names |= {p.name: i.operands[int(p.arguments)] for p in callee.parameters}
        for k in callee:
            if k.opcode != "parameter":
                said = f'op_name="{joined(i.op_name, k.op_name)}"'.replace("\\", "")
                attributes = _OP_NAME.sub(said, k.attributes)
                operands = tuple(names[name] for name in k.operands)
                out[names[k.name]] = replace(k, name=names[k.name], operands=operands, attributes=attributes)
    made = Computation(body.name, out, body.root)
    for i in made:
        for name in dict.fromkeys(i.operands):
            made.users.setdefault(name, []).append(i)
    return made


def _steps(callee: Computation) -> bool:
    opcodes = {i.opcode for i in callee}
    moves = bool(opcodes & {"dynamic-slice", "dynamic-update-slice"})
    return moves and opcodes.issubset(STEPS) and callee.instructions[callee.root].opcode != "parameter"


class Rows:
    """A loop that steps through rows: which of its values are only read row by row, and which are only written so."""

    def __init__(self, body: Computation, trips: int) -> None:
        self.trips = trips
        root = body.instructions[body.root]
        self.count = len(root.operands) if root.opcode == "tuple" else 0
        self.element = {i.name: int(i.attribute("index") or 0) for i in body if i.opcode == "get-tuple-element"
                        and body.operand(i, 0).opcode == "parameter"}  # fmt: skip
        self.counter = {name for name, k in self.element.items() if self.steps(body, root, k)}
        self.derived = set(self.counter)
        fixed = {i.name for i in body if i.opcode == "constant"}
        for i in body:
            known = self.derived | fixed
            if i.opcode in ("add", "subtract", "select", "compare", "convert") and known.issuperset(i.operands):
                (self.derived if self.derived & set(i.operands) else fixed).add(i.name)
        self.read: dict[int, list[str]] = {}
        self.written: dict[int, str] = {}
        for name, k in self.element.items():
            users = [u for u in body.users.get(name, []) if u is not root]
            shape = body.instructions[name].results[0]
            if not users or not shape.dims or shape.dims[0] != trips:
                continue
            after = body.instructions[root.operands[k]]
            if after.name == name and all(self.is_row(body, u, name, "dynamic-slice") for u in users):
                self.read[k] = [u.name for u in users]
            elif users == [after] and self.is_row(body, after, name, "dynamic-update-slice"):
                self.written[k] = after.name
        self.carried = [k for k in range(self.count) if k not in self.read and k not in self.written]

    @staticmethod
    def steps(body: Computation, root: Instruction, k: int) -> bool:
        """True where element k grows by a constant of 1 in each trip."""
        after = body.instructions[root.operands[k]]
        if after.opcode != "add" or after.results[0].dims:
            return False
        sides = [body.operand(after, n) for n in (0, 1)]
        return any(s.opcode == "get-tuple-element" and int(s.attribute("index") or 0) == k for s in sides) and any(
            s.opcode == "constant" and s.arguments.strip() == "1" for s in sides
        )

    def is_row(self, body: Computation, i: Instruction, of: str, opcode: str) -> bool:
        """True for a slice or update of one whole row at the loop's counter."""
        if i.opcode != opcode or i.operands[0] != of or of in i.operands[1:]:
            return False
        first = 1 if opcode == "dynamic-slice" else 2
        part: Shape = i.results[0] if first == 1 else body.operand(i, 1).results[0]
        whole = body.instructions[of].results[0]
        return part.dims == (1, *whole.dims[1:]) and i.operands[first] in self.derived
