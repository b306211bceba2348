"""XLA as a witness: the FLOPs that its cost analysis gives each dot and convolution of a lowered program.

Nothing is compiled. The lowered module is printed as HLO text; every dot and convolution is costed as a module of one
instruction, so a float32 sum over the program rounds nothing away. Names in a called computation are relative to the
call, so calls are walked and their names prepended, one record per call site. A loop's body counts once (XLA does not
multiply by trip counts) and says so; a conditional counts its dearest arm. The only file with a door into jaxlib.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from costtrace.errors import PrivateDoorError

KINDS = {"dot": "matmul", "convolution": "conv"}
EXCLUDED = {
    "complex": "complex products: XLA counts 2 FLOPs a multiply-add, costtrace 8; convolutions become 3 real ones",
    "ragged_dot": "ragged products: lowered for the CPU as one dense product over all groups",
    "scaled_dot": "scaled products: lowered for the CPU as casts, products with the scales and a dense product",
}
"""What does not agree by design, by name, and why. A custom call is no dot and no convolution: it never appears."""

_LINE = re.compile(r"\s*(?:ROOT )?%?(?P<name>[\w.-]+) = (?P<shape>.*?) (?P<opcode>[\w-]+)\((?P<rest>.*)")
_HEAD = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[\w.-]+) \(.*\{$")
_ARMS = re.compile(r"branch_computations=\{([^}]*)\}|(?:true|false)_computation=%?([\w.-]+)")
_METADATA = re.compile(r", metadata=\{.*?\}")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One dot or convolution, once per call site.

    `flops` is XLA's float32 as a Python float; `path` the op_name from the entry down; `looped`: in a loop's body, so
    the program may run it more often than once; `excluded`: a key of EXCLUDED where the HLO itself shows one (a complex
    or scaled product; for a whole program ask `excluded`).
    """

    kind: str
    path: str
    flops: float
    looped: bool = False
    excluded: str | None = None

    def agrees(self, flops: int) -> bool:
        """True where XLA's number is the float32 nearest to `flops`."""
        return float(np.float32(flops)) == self.flops


@dataclass(slots=True)
class _Line:
    opcode: str
    op_name: str
    text: str


@dataclass(slots=True)
class _Module:
    entry: str = ""
    bodies: dict[str, list[_Line]] = field(default_factory=dict)


def lowered(fn: Any, args: tuple[Any, ...], jit: Mapping[str, Any] | None = None) -> list[Instruction]:
    """Every dot and convolution of `fn` as lowered for the CPU, in the module's order; dead code is not lowered.

    `args` are pytrees of jax.ShapeDtypeStruct, `jit` keyword arguments of jax.jit.
    Raises PrivateDoorError where this jaxlib has no HLO printer or no cost analysis under the names used here.
    """
    module = _parsed(_text(jax.jit(fn, **(jit or {})).lower(*args)))
    return _walked(module, module.entry, "", False)


def excluded(fn: Any, args: tuple[Any, ...], jit: Mapping[str, Any] | None = None) -> set[str]:
    """The keys of EXCLUDED that occur anywhere in the program, found in its jaxpr (the HLO forgets ragged_dot)."""
    return set(_names(jax.jit(fn, **(jit or {})).trace(*args).jaxpr.jaxpr))


def _names(jaxpr: Any) -> Iterator[str]:
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name in ("dot_general", "conv_general_dilated") and eqn.outvars[0].aval.dtype.kind == "c":
            yield "complex"
        elif name.startswith(("ragged_dot", "scaled_dot")):
            yield name[:10]
        for inner in jax.tree.leaves(tuple(eqn.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(inner):
                yield from _names(getattr(inner, "jaxpr", inner))


def _is_jaxpr(x: Any) -> bool:
    return hasattr(x, "eqns")


def matmul_conv(fn: Any, args: tuple[Any, ...], jit: Mapping[str, Any] | None = None) -> tuple[float, float]:
    """(matmul FLOPs, conv FLOPs) as XLA counts the lowered program, loop bodies once, EXCLUDED ones in."""
    found = lowered(fn, args, jit)
    matmul, conv = (sum(i.flops for i in found if i.kind == kind) for kind in ("matmul", "conv"))
    return matmul, conv


def _door(module: str, name: str) -> Any:
    """A private name of jaxlib."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise PrivateDoorError(
            f"{module}.{name} is not in the jaxlib of jax {jax.__version__}: XLA's count is not to be had; "
            "mend costtrace/evidence/xla.py or use jax 0.10 to 0.12"
        ) from None


def _text(lowered_program: Any) -> str:
    options = _door("jaxlib._hlo", "HloPrintOptions")()
    options.print_operand_shape = True
    options.print_large_constants = False
    return str(lowered_program.compiler_ir("hlo").as_hlo_module().to_string(options))


def _parsed(text: str) -> _Module:
    module, body = _Module(), None
    for line in text.splitlines():
        if line.startswith("}"):
            body = None
        elif body is None and (head := _HEAD.match(line)):
            body = module.bodies.setdefault(head["name"], [])
            module.entry = head["name"] if head["entry"] else module.entry
        elif body is not None and (match := _LINE.match(line)):
            name = re.search(r'op_name="([^"]*)"', line)
            body.append(_Line(match["opcode"], name[1] if name else "", line.strip()))
    return module


def _walked(module: _Module, computation: str, above: str, looped: bool) -> list[Instruction]:
    found: list[Instruction] = []
    for line in module.bodies[computation]:
        path = f"{above}/{line.op_name}" if above and line.op_name else above or line.op_name
        if line.opcode in KINDS:
            flops = _flops(_alone(line.text))
            found.append(Instruction(KINDS[line.opcode], path, flops, looped, _excluded(line.text, computation)))
        elif line.opcode == "call":
            found += _walked(module, _named(line.text, "to_apply"), path, looped)
        elif line.opcode == "while":  # names in a region start where those around the loop start
            found += _walked(module, _named(line.text, "condition"), above, True)
            found += _walked(module, _named(line.text, "body"), above, True)
        elif line.opcode == "conditional":
            arms = [_walked(module, arm, above, looped) for arm in _arms(line.text)]
            found += max(arms, key=lambda arm: sum(i.flops for i in arm))
    return found


def _named(text: str, key: str) -> str:
    match = re.search(rf"{key}=%?([\w.-]+)", text)
    assert match, text
    return match[1]


def _arms(text: str) -> list[str]:
    return [name.strip().lstrip("%") for several, one in _ARMS.findall(text) for name in (several or one).split(",")]


def _excluded(text: str, computation: str) -> str | None:
    if "scaled_dot" in computation:
        return "scaled_dot"
    return "complex" if re.search(r"= c(?:64|128)\[", text) else None


def _alone(text: str) -> str:
    """The text of a module that holds one instruction, its operands made parameters."""
    text = _METADATA.sub("", text).removeprefix("ROOT ")
    match = _LINE.match(text)
    assert match, text
    operands, _, attributes = match["rest"].partition(")")
    shapes = re.findall(r"(\w+\[[\d,]*\](?:\{[^}]*\})?) %?[\w.-]+", operands)
    names = [f"p{i}" for i in range(len(shapes))]
    lines = [f"  {n} = {s} parameter({i})" for i, (n, s) in enumerate(zip(names, shapes, strict=True))]
    call = f"  ROOT r = {match['shape']} {match['opcode']}({', '.join(names)}){attributes}"
    return "\n".join(["HloModule alone", "", "ENTRY main {", *lines, call, "}"])


@functools.lru_cache(maxsize=4096)
def _flops(text: str) -> float:
    analysis = _door("jaxlib._jax", "hlo_module_cost_analysis")
    module = _door("jaxlib._hlo", "hlo_module_from_text")(text)
    return float(analysis(jax.devices("cpu")[0].client, module).get("flops", 0.0))
