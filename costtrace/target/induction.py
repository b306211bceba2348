"""How often an HLO loop runs: the compiler's record, or its counter's start, step and bound read from the text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from costtrace.target.hlo import Computation, Instruction, Module

SAME = ("copy", "bitcast", "reshape", "convert", "copy-start", "copy-done", "opt-barrier")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A known number, or element `carry` of the loop's tuple plus a number."""

    value: int
    carry: int | None = None


@dataclass(frozen=True, slots=True)
class Test:
    """A comparison of two scalars."""

    left: Scalar
    right: Scalar
    direction: str


def trips(module: Module, computation: Computation, loop: Instruction) -> int | None:
    """The trip count of a while instruction; None where it depends on data."""
    known = loop.backend_config.get("known_trip_count", {})
    if isinstance(known, dict) and "n" in known:
        return int(known["n"])
    if found := re.search(r'known_trip_count[^}]*?"n":"(\d+)"', loop.attributes):
        return int(found[1])
    test = _root(module, loop.called("condition")[0])
    body = module.computations[loop.called("body")[0]]
    last = body.instructions[body.root]
    start = computation.operand(loop, 0)
    if not isinstance(test, Test) or last.opcode != "tuple":
        return None

    def resolved(s: Scalar) -> Scalar:
        """An element that the body hands on unchanged is what it was before the loop."""
        if s.carry is None:
            return s
        after = _value(module, body, body.instructions[last.operands[s.carry]], {})
        if after == Scalar(0, s.carry) and start.opcode == "tuple":
            before = _value(module, computation, computation.instructions[start.operands[s.carry]], {})
            if isinstance(before, Scalar) and before.carry is None:
                return Scalar(before.value + s.value)
        return s

    left, right, direction = resolved(test.left), resolved(test.right), test.direction
    if left.carry is None and right.carry is not None:
        left, right, direction = right, left, {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}.get(direction, direction)
    if left.carry is None or right.carry is not None or start.opcode != "tuple":
        return None
    begin = _value(module, computation, computation.instructions[start.operands[left.carry]], {})
    after = _value(module, body, body.instructions[last.operands[left.carry]], {})
    if not isinstance(begin, Scalar) or begin.carry is not None:
        return None
    if not isinstance(after, Scalar) or after.carry != left.carry or not after.value:
        return None
    return _counted(begin.value + left.value, after.value, right.value, direction)


def _counted(begin: int, step: int, bound: int, direction: str) -> int | None:
    """How many of begin, begin + step, ... pass the test."""
    if direction == "NE":
        n, rest = divmod(bound - begin, step)
        return n if not rest and n >= 0 else None
    if direction in ("LE", "GE"):
        bound += 1 if direction == "LE" else -1
    if direction in ("LT", "LE") and step > 0:
        return max(0, -(-(bound - begin) // step))
    if direction in ("GT", "GE") and step < 0:
        return max(0, -(-(begin - bound) // -step))
    return None


def _root(module: Module, name: str) -> Scalar | Test | None:
    computation = module.computations[name]
    return _value(module, computation, computation.instructions[computation.root], {})


Inputs = dict[int, "Scalar | Test | None"]


def _value(module: Module, computation: Computation, i: Instruction, inputs: Inputs) -> Scalar | Test | None:
    """What a scalar instruction is, as far as constants and the loop's tuple tell."""
    if i.opcode == "constant":
        return _literal(i)
    if i.opcode == "parameter":
        return inputs.get(int(i.arguments))
    if i.opcode == "get-tuple-element":
        of = computation.operand(i, 0)
        if of.opcode == "parameter" and not inputs:
            return Scalar(0, int(i.attribute("index") or 0))
        if of.opcode == "tuple":
            return _value(module, computation, computation.operand(of, int(i.attribute("index") or 0)), inputs)
        return None
    if i.opcode in SAME:
        return _value(module, computation, computation.operand(i, 0), inputs)
    if i.opcode in ("fusion", "call"):
        inner = module.computations[(i.called("calls") or i.called("to_apply"))[0]]
        given = {
            n: _value(module, computation, computation.instructions[name], inputs) for n, name in enumerate(i.operands)
        }
        root = inner.instructions[inner.root]
        return None if root.opcode == "tuple" else _value(module, inner, root, given)
    if i.opcode not in ("add", "subtract", "compare") or len(i.operands) != 2:
        return None
    a, b = (_value(module, computation, computation.operand(i, n), inputs) for n in (0, 1))
    if not isinstance(a, Scalar) or not isinstance(b, Scalar):
        return None
    if i.opcode == "compare":
        return Test(a, b, i.attribute("direction") or "")
    if i.opcode == "add" and (a.carry is None or b.carry is None):
        return Scalar(a.value + b.value, b.carry if a.carry is None else a.carry)
    if i.opcode == "subtract" and b.carry is None:
        return Scalar(a.value - b.value, a.carry)
    return None


def _literal(i: Instruction) -> Scalar | None:
    found = re.fullmatch(r"\s*\{?\s*(-?\d+)\s*\}?\s*", i.arguments)
    if found:
        return Scalar(int(found[1]))
    return Scalar(int(i.arguments == "true")) if i.arguments in ("true", "false") else None
