"""The arithmetic of an HLO instruction, by costtrace's conventions: what the compiler left after its rewrites.

A multiply-add is 2 FLOPs (8 if complex), padded and dilated positions of a convolution do nothing, transcendentals,
comparisons and integer work are no FLOPs. A product that a backend turned into a custom call is read from its shapes.
"""

from __future__ import annotations

import functools
import json
import math
import re
from dataclasses import dataclass
from typing import Any

from costtrace.target.hlo import Computation, Instruction, Module, Shape

FLOATS = ("f", "bf", "c")
ARITHMETIC = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder", "negate", "abs", "clamp",
              "round-nearest-afz", "round-nearest-even", "floor", "ceil", "sign")  # fmt: skip
TRANSCENDENTAL = ("exponential", "exponential-minus-one", "log", "log-plus-one", "rsqrt", "sqrt", "cbrt", "tanh", "tan",
                  "sine", "cosine", "power", "atan2", "logistic", "erf")  # fmt: skip
INSIDE = ("fusion", "call", "async-start", "map")
"""Opcodes whose work is that of the computation they call."""
GEMM = re.compile(r"__cublas\$(?:lt\$)?(?:grouped)?matmul|__cublas\$gemm|__triton_(?:nested_)?gemm")


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs of one execution: of products (dot and convolution), of the rest; transcendentals apart.

    `unknown`: names of custom calls inside whose arithmetic nobody knows. `dtypes`: {operand dtype: product FLOPs}.
    """

    matmul_flops: int = 0
    vector_flops: int = 0
    transcendentals: int = 0
    unknown: tuple[str, ...] = ()
    dtypes: tuple[tuple[str, int], ...] = ()

    @property
    def flops(self) -> int:
        return self.matmul_flops + self.vector_flops

    def __add__(self, other: Work) -> Work:
        dtypes = dict(self.dtypes)
        for dtype, flops in other.dtypes:
            dtypes[dtype] = dtypes.get(dtype, 0) + flops
        return Work(
            self.matmul_flops + other.matmul_flops,
            self.vector_flops + other.vector_flops,
            self.transcendentals + other.transcendentals,
            tuple(dict.fromkeys(self.unknown + other.unknown)),
            tuple(dtypes.items()),
        )


NONE = Work()


def of(module: Module, computation: Computation, instruction: Instruction) -> Work:
    """The work of one execution of an instruction with all it calls (not of loops and branches: they are walked)."""
    i, code = instruction, instruction.opcode
    if code in ("dot", "convolution"):
        operands = [shapes[0] for shapes in computation.shapes_of(i)]
        return _product(dot_flops(i, operands) if code == "dot" else convolution_flops(i, operands), operands[0])
    if code in INSIDE:
        return sum((inside(module, name) for name in i.called("calls") or i.called("to_apply")), NONE)
    if code == "custom-call":
        return _custom(computation, i)
    if not i.results or not i.results[0].dtype.startswith(FLOATS):
        return NONE
    size = i.results[0].size
    if code in ("reduce", "reduce-window", "select-and-scatter", "scatter", "all-reduce", "reduce-scatter"):
        return _combined(module, computation, i)
    if code in TRANSCENDENTAL:
        return Work(transcendentals=size)
    return Work(vector_flops=size) if code in ARITHMETIC else NONE


def inside(module: Module, name: str) -> Work:
    """The work of one run of a computation's straight-line instructions."""
    computation = module.computations[name]
    return sum((of(module, computation, i) for i in computation), NONE)


def _product(flops: int, operand: Shape) -> Work:
    return Work(matmul_flops=flops, dtypes=((operand.dtype, flops),))


def _combined(module: Module, computation: Computation, i: Instruction) -> Work:
    """A reduction applies its computation once less than it has values; a window once less than its positions."""
    each = sum((inside(module, name) for name in i.called("to_apply")), NONE)
    outputs = sum(s.size for s in i.results[:1])
    operands = computation.shapes_of(i)
    if i.opcode == "reduce":
        times = operands[0][0].size - outputs
    elif i.opcode == "reduce-window":
        times = _windowed(i, operands[0][0])
    elif i.opcode == "scatter":
        times = operands[-1][0].size
    else:
        times = outputs
    times = max(times, 0)
    return Work(0, each.vector_flops * times, each.transcendentals * times)


def _windowed(i: Instruction, operand: Shape) -> int:
    """Positions x (values - 1). A window that always holds the whole dimension has one value there, broadcast: so
    the TPU compiler writes a row's maximum beside the row."""
    outputs = values = 1
    for inputs, positions, w in zip(operand.dims, i.results[0].dims, windows(i), strict=True):
        whole = w.low >= inputs - 1 and w.size >= w.low + inputs
        outputs *= 1 if whole else positions
        values *= inputs if whole else w.size
    return outputs * (values - 1)


def dot_flops(i: Instruction, operands: list[Shape]) -> int:
    """2 b m n k: each result is a dot product over the contracted dimensions."""
    contracted = [int(d) for d in (i.attribute("lhs_contracting_dims") or "").split(",") if d]
    k = math.prod(operands[0].dims[d] for d in contracted)
    return (8 if i.results[0].dtype.startswith("c") else 2) * i.results[0].size * k


@dataclass(frozen=True, slots=True)
class Window:
    """One spatial dimension of a window attribute."""

    size: int
    stride: int = 1
    low: int = 0
    dilated: int = 1  # the operand (lhs_dilate)
    spread: int = 1  # the window (rhs_dilate)


def windows(i: Instruction) -> list[Window]:
    """The dimensions of `window={size=3x3 stride=1x1 pad=1_1x1_1 lhs_dilate=1x1 rhs_dilate=1x1}`."""
    text = dict(part.split("=") for part in (i.attribute("window") or "").split() if "=" in part)
    size = [int(n) for n in text.get("size", "").split("x") if n]

    def each(key: str, default: int) -> list[int]:
        return [int(n.split("_")[0]) for n in text[key].split("x")] if key in text else [default] * len(size)

    return [Window(*w) for w in zip(size, each("stride", 1), each("pad", 0), each("lhs_dilate", 1),
                                    each("rhs_dilate", 1), strict=True)]  # fmt: skip


def convolution_flops(i: Instruction, operands: list[Shape]) -> int:
    """2 x batch x outputs x inputs of a group x (output, window) positions that meet a value of the operand."""
    lhs, rhs, out = (labels for labels in re.split(r"_|->", i.attribute("dim_labels") or ""))
    groups = int(i.attribute("feature_group_count") or 1)
    positions = 1
    for n, w in enumerate(windows(i)):
        inputs, outputs = operands[0].dims[lhs.index(str(n))], i.results[0].dims[out.index(str(n))]
        positions *= met(inputs, outputs, w)
    batch = operands[0].dims[lhs.index("b")] // int(i.attribute("batch_group_count") or 1)
    features = i.results[0].dims[out.index("f")]
    each = operands[1].dims[rhs.index("i")]
    assert groups > 0
    return (8 if i.results[0].dtype.startswith("c") else 2) * batch * features * each * positions


@functools.lru_cache(maxsize=4096)
def met(inputs: int, outputs: int, w: Window) -> int:
    """How many pairs (output position, window position) fall on a value: not on padding, not between dilated values."""
    found = 0
    step = math.gcd(w.stride, w.dilated)
    period = w.dilated // step
    last = (inputs - 1) * w.dilated
    for k in range(w.size):
        offset = k * w.spread - w.low  # the operand's position is o * stride + offset
        if offset % step:
            continue
        first = -(offset // step) * pow(w.stride // step, -1, period) % period if period > 1 else 0
        low = max(0, -(offset // w.stride))  # the first o that is not before the operand
        low += (first - low) % period
        high = min(outputs - 1, (last - offset) // w.stride)
        if high >= low:
            found += (high - low) // period + 1
    return found


def _custom(computation: Computation, i: Instruction) -> Work:
    target = (i.attribute("custom_call_target") or "").strip('"')
    operands = [shapes[0] for shapes in computation.shapes_of(i) if shapes]
    if GEMM.search(target):
        dims = _gemm(i.backend_config).get("dot_dimension_numbers", {})
        contracted = [int(d) for d in dims.get("lhs_contracting_dimensions", [])]
        if contracted:
            return _product(2 * i.results[0].size * math.prod(operands[0].dims[d] for d in contracted), operands[0])
    if target.startswith("__cudnn$conv") and i.attribute("dim_labels"):
        return _product(_cudnn_flops(target, i, operands), operands[0])
    if target.startswith("__cudnn$fmha"):
        shape = _attention(i.backend_config)
        if shape:  # q k and weights v: two products over the scores
            flops = 4 * math.prod(shape) * operands[0].dims[-1]
            return _product(flops * (5 if "Backward" in target else 2) // 2, operands[0])
    return NONE if target in FREE_CALLS else Work(unknown=(target,))


FREE_CALLS = ("ConcatBitcast", "AllocateBuffer", "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape",
              "AssumeGatherIndicesInBound", "xla.sdy.FuncResultSharding")  # fmt: skip
"""Custom calls that do nothing at run time, or are gone after compilation."""


def _gemm(config: dict[str, Any]) -> dict[str, Any]:
    return dict(
        config.get("gemm_backend_config")
        or config.get("grouped_gemm_backend_config", {}).get("gemm_backend_config")
        or {}
    )


def _attention(config: dict[str, Any]) -> list[int]:
    found = re.search(
        r'"intermediate_tensor_shape":.*?"dimensions":\[([^\]]*)\]', json.dumps(config).replace(": ", ":")
    )
    return [int(n.strip().strip('"')) for n in found[1].split(",")] if found else []


def _cudnn_flops(target: str, i: Instruction, operands: list[Shape]) -> int:
    """Forward as a convolution; for gradients the three arrays change roles, the pairs are the same."""
    if "Backward" not in target:
        return convolution_flops(i, operands)
    lhs, rhs, out = re.split(r"_|->", i.attribute("dim_labels") or "")
    image, kernel, result = (
        (operands[0], i.results[0], operands[1]) if "Filter" in target else (i.results[0], operands[1], operands[0])
    )
    positions = 1
    for n, w in enumerate(windows(i)):
        positions *= met(image.dims[lhs.index(str(n))], result.dims[out.index(str(n))], w)
    return 2 * image.dims[lhs.index("b")] * kernel.dims[rhs.index("o")] * kernel.dims[rhs.index("i")] * positions
