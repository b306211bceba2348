"""HLO opcode -> the jax.lax call that lowers to it: the table LAX. Attributes are read from the instruction's text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from costtrace.errors import TraceError
from costtrace.target.hlo import Instruction, Shape

Translation = Callable[[Instruction, list[Any], Callable[..., Any]], Any]
"""(instruction, operands, its combiner) -> result, or a list of them."""

_DTYPES = {"pred": "bool", "bf16": "bfloat16", "f8e4m3": "float8_e4m3", "f4e2m1fn": "float4_e2m1fn"}
_LONG = {"s": "int", "u": "uint", "f": "float", "c": "complex"}


def dtype_of(shape: Shape) -> str:
    """numpy's or ml_dtypes' name of an HLO type: s32 is int32, f8e4m3fn is float8_e4m3fn."""
    if shape.dtype in _DTYPES:
        return _DTYPES[shape.dtype]
    small = re.fullmatch(r"f8(e\d.*)", shape.dtype)
    return f"float8_{small[1]}" if small else _LONG[shape.dtype[0]] + shape.dtype[1:]


def literal(i: Instruction) -> Any:
    """A scalar as itself; an array as zeros: what it holds costs nothing."""
    import numpy as np
    from jax import lax
    from jax.numpy import dtype

    shape = i.results[0]
    if shape.dims:
        return lax.full(shape.dims, 0, dtype(dtype_of(shape)))
    text = i.arguments.strip()
    value: Any
    if text in ("true", "false"):
        value = text == "true"
    elif text.startswith("("):
        value = complex(*map(float, text.strip("()").split(",")))
    else:
        value = float(text) if re.search(r"[.einf]", text) else int(text)
    return np.asarray(value, dtype(dtype_of(shape)))


def numbers(i: Instruction, key: str) -> tuple[int, ...]:
    """{1,0} as (1, 0); () where there is no such attribute."""
    return tuple(int(n) for n in (i.attribute(key) or "").split(",") if n.strip())


def _unary(name: str) -> Translation:
    return lambda i, given, inner: getattr(_lax(), name)(given[0])


def _binary(name: str) -> Translation:
    return lambda i, given, inner: getattr(_lax(), name)(*given)


def _lax() -> Any:
    from jax import lax

    return lax


def _dtype(i: Instruction, n: int = 0) -> Any:
    from jax.numpy import dtype

    return dtype(dtype_of(i.results[n]))


def _compare(i: Instruction, given: list[Any], inner: Any) -> Any:
    return getattr(_lax(), (i.attribute("direction") or "EQ").lower())(*given)


def _broadcast(i: Instruction, given: list[Any], inner: Any) -> Any:
    return _lax().broadcast_in_dim(given[0], i.results[0].dims, numbers(i, "dimensions"))


def _slice(i: Instruction, given: list[Any], inner: Any) -> Any:
    bounds = re.findall(r"\[(\d+):(\d+)(?::(\d+))?\]", i.attributes)
    start, limit, stride = zip(*((int(a), int(b), int(c or 1)) for a, b, c in bounds), strict=True)
    return _lax().slice(given[0], start, limit, stride)


def _pad(i: Instruction, given: list[Any], inner: Any) -> Any:
    config = [tuple(int(n) for n in part.split("_")) for part in (i.attribute("padding") or "").split("x")]
    return _lax().pad(given[0], given[1], [(*c, 0) if len(c) == 2 else c for c in config])


def _dot(i: Instruction, given: list[Any], inner: Any) -> Any:
    keys = ("contracting_dims", "batch_dims")
    contract, batch = ((numbers(i, f"lhs_{key}"), numbers(i, f"rhs_{key}")) for key in keys)
    return _lax().dot_general(*given, (contract, batch), preferred_element_type=_dtype(i))


def _ragged_dot(i: Instruction, given: list[Any], inner: Any) -> Any:
    sides = [
        tuple(numbers(i, f"{side}_{key}") for side in ("lhs", "rhs")) for key in ("contracting_dims", "batch_dims")
    ]
    names = _lax().RaggedDotDimensionNumbers(
        (sides[0], sides[1]), numbers(i, "lhs_ragged_dims"), numbers(i, "rhs_group_dims")
    )
    return _lax().ragged_dot_general(*given, names, preferred_element_type=_dtype(i))


def _window(i: Instruction, rank: int) -> dict[str, Any]:
    """size, stride, pad, lhs_dilate, rhs_dilate, rhs_reversal of a window, with what is left out filled in."""
    found = dict(re.findall(r"(\w+)=(\S+)", i.attribute("window") or ""))
    out: dict[str, Any] = {}
    for key, default in (("size", 1), ("stride", 1), ("lhs_dilate", 1), ("rhs_dilate", 1), ("rhs_reversal", 0)):
        out[key] = tuple(int(n) for n in found[key].split("x")) if key in found else (default,) * rank
    pads = found["pad"].split("x") if "pad" in found else ["0_0"] * rank
    out["pad"] = [tuple(int(n) for n in p.split("_")) for p in pads]
    return out


def _convolution(i: Instruction, given: list[Any], inner: Any) -> Any:
    lhs, rhs, out = re.fullmatch(r"(\w+)_(\w+)->(\w+)", i.attribute("dim_labels") or "").groups()  # type: ignore[union-attr]
    space = [c for c in lhs if c.isdigit()]
    window = _window(i, len(space))
    taps = tuple(rhs.index(c) for c, flip in zip(sorted(space), window["rhs_reversal"], strict=True) if flip)
    kernel = _lax().rev(given[1], taps) if taps else given[1]
    spec = [tuple(labels.index(c) for c in (*first, *sorted(space))) for labels, first in
            ((lhs, "bf"), (rhs, "oi"), (out, "bf"))]  # fmt: skip
    return _lax().conv_general_dilated(
        given[0], kernel, window["stride"], window["pad"], window["lhs_dilate"], window["rhs_dilate"],
        _lax().ConvDimensionNumbers(*spec), int(i.attribute("feature_group_count") or 1),
        int(i.attribute("batch_group_count") or 1), preferred_element_type=_dtype(i),
    )  # fmt: skip


def _reduce(i: Instruction, given: list[Any], inner: Callable[..., Any]) -> Any:
    half = len(given) // 2
    axes = numbers(i, "dimensions")
    if half > 1:
        return list(_lax().reduce(given[:half], given[half:], lambda a, b: inner(*a, *b), axes))
    name = _monoid(i, inner)
    return _lax().reduce(given[0], given[1], name or inner, axes)


def _monoid(i: Instruction, inner: Callable[..., Any]) -> Any:
    """lax.add and its like where the combiner is just that: jax has its own primitive for them."""
    import jax

    one = jax.ShapeDtypeStruct((), _dtype(i))
    eqns = jax.make_jaxpr(inner)(one, one).jaxpr.eqns
    names = {"add": "add", "mul": "mul", "max": "max", "min": "min", "and": "bitwise_and", "or": "bitwise_or"}
    known = names.get(eqns[0].primitive.name) if len(eqns) == 1 else None
    return getattr(_lax(), known) if known else None


def _reduce_window(i: Instruction, given: list[Any], inner: Callable[..., Any]) -> Any:
    w = _window(i, len(i.results[0].dims))
    how = _monoid(i, inner) or inner
    rest = (w["size"], w["stride"], w["pad"], w["lhs_dilate"], w["rhs_dilate"])
    return _lax().reduce_window(given[0], given[1], how, *rest)


def _select_and_scatter(i: Instruction, given: list[Any], inner: Callable[..., Any]) -> Any:
    """The gradient of a maximum over windows. What selects costs one comparison, whichever it is."""
    if _monoid(i, inner) is not _lax().add:
        raise TraceError(f"the artifact's {i.opcode} {i.name!r} adds nothing up, and cannot be read: "
                         "profile its function")  # fmt: skip
    w = _window(i, len(i.results[0].dims))
    return _lax().select_and_scatter_add_p.bind(
        given[1], given[0], select_prim=_lax().ge_p, window_dimensions=w["size"], window_strides=w["stride"],
        padding=tuple(w["pad"]),
    )  # fmt: skip


def _fft(i: Instruction, given: list[Any], inner: Any) -> Any:
    return _lax().fft(given[0], _lax().FftType[i.attribute("fft_type") or "FFT"], numbers(i, "fft_length"))


def _reduce_precision(i: Instruction, given: list[Any], inner: Any) -> Any:
    return _lax().reduce_precision(
        given[0], int(i.attribute("exponent_bits") or 0), int(i.attribute("mantissa_bits") or 0)
    )


def _triangular_solve(i: Instruction, given: list[Any], inner: Any) -> Any:
    said = {key: i.attribute(key) == "true" for key in ("left_side", "lower", "unit_diagonal")}
    how = i.attribute("transpose_a") or "NO_TRANSPOSE"
    return _lax().linalg.triangular_solve(
        *given, left_side=said["left_side"], lower=said["lower"], unit_diagonal=said["unit_diagonal"],
        transpose_a=how != "NO_TRANSPOSE", conjugate_a=how == "ADJOINT",
    )  # fmt: skip


def _gather(i: Instruction, given: list[Any], inner: Any) -> Any:
    lax, index = _lax(), given[1]
    if int(i.attribute("index_vector_dim") or 0) == index.ndim:
        index = lax.expand_dims(index, [index.ndim])
    names = lax.GatherDimensionNumbers(
        numbers(i, "offset_dims"), numbers(i, "collapsed_slice_dims"), numbers(i, "start_index_map"),
        numbers(i, "operand_batching_dims"), numbers(i, "start_indices_batching_dims"),
    )  # fmt: skip
    return lax.gather(given[0], index, names, numbers(i, "slice_sizes"), mode="clip")


def _scatter(i: Instruction, given: list[Any], inner: Callable[..., Any]) -> Any:
    lax, index = _lax(), given[1]
    if int(i.attribute("index_vector_dim") or 0) == index.ndim:
        index = lax.expand_dims(index, [index.ndim])
    names = lax.ScatterDimensionNumbers(
        numbers(i, "update_window_dims"), numbers(i, "inserted_window_dims"),
        numbers(i, "scatter_dims_to_operand_dims"), numbers(i, "input_batching_dims"),
        numbers(i, "scatter_indices_batching_dims"),
    )  # fmt: skip
    how = getattr(_monoid(i, inner), "__name__", "")
    put = {"add": lax.scatter_add, "mul": lax.scatter_mul, "max": lax.scatter_max, "min": lax.scatter_min}
    return put.get(how, lax.scatter)(given[0], index, given[2], names, mode="clip")


def _sort(i: Instruction, given: list[Any], inner: Any) -> Any:
    out = _lax().sort(given, dimension=numbers(i, "dimensions")[0], num_keys=1)
    return list(out) if len(out) > 1 else out[0]


def _bits(i: Instruction, given: list[Any], inner: Any) -> Any:
    algorithm = {"rng_three_fry": 1, "rng_philox": 2}.get(i.attribute("algorithm") or "", 0)
    return list(_lax().rng_bit_generator(given[0], i.results[1].dims, _dtype(i, 1), algorithm))


def _dynamic_slice(i: Instruction, given: list[Any], inner: Any) -> Any:
    return _lax().dynamic_slice(given[0], given[1:], numbers(i, "dynamic_slice_sizes"))


def _concatenate(i: Instruction, given: Sequence[Any], inner: Any) -> Any:
    return _lax().concatenate(given, numbers(i, "dimensions")[0])


LAX: dict[str, Translation] = {
    **{op: _unary(name) for op, name in {
        "abs": "abs", "ceil": "ceil", "floor": "floor", "cosine": "cos", "sine": "sin", "tan": "tan",
        "exponential": "exp", "exponential-minus-one": "expm1", "log": "log", "log-plus-one": "log1p",
        "logistic": "logistic", "negate": "neg", "not": "bitwise_not", "sign": "sign", "sqrt": "sqrt", "rsqrt": "rsqrt",
        "cbrt": "cbrt", "tanh": "tanh", "erf": "erf", "real": "real", "imag": "imag", "is-finite": "is_finite",
        "popcnt": "population_count", "count-leading-zeros": "clz",
    }.items()},
    **{op: _binary(name) for op, name in {
        "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "remainder": "rem", "maximum": "max",
        "minimum": "min", "power": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
        "shift-left": "shift_left", "shift-right-arithmetic": "shift_right_arithmetic",
        "shift-right-logical": "shift_right_logical", "atan2": "atan2", "complex": "complex", "select": "select",
        "clamp": "clamp",
    }.items()},
    "compare": _compare,
    "convert": lambda i, given, inner: _lax().convert_element_type(given[0], _dtype(i)),
    "bitcast-convert": lambda i, given, inner: _lax().bitcast_convert_type(given[0], _dtype(i)),
    "round-nearest-even": lambda i, given, inner: _lax().round(given[0], _lax().RoundingMethod.TO_NEAREST_EVEN),
    "round-nearest-afz": lambda i, given, inner: _lax().round(given[0], _lax().RoundingMethod.AWAY_FROM_ZERO),
    "iota": lambda i, given, inner: _lax().broadcasted_iota(
        _dtype(i), i.results[0].dims, int(i.attribute("iota_dimension") or 0)),
    "reshape": lambda i, given, inner: _lax().reshape(given[0], i.results[0].dims),
    "transpose": lambda i, given, inner: _lax().transpose(given[0], numbers(i, "dimensions")),
    "reverse": lambda i, given, inner: _lax().rev(given[0], numbers(i, "dimensions")),
    "dynamic-update-slice": lambda i, given, inner: _lax().dynamic_update_slice(given[0], given[1], given[2:]),
    "broadcast": _broadcast, "slice": _slice, "pad": _pad, "dot": _dot, "convolution": _convolution, "reduce": _reduce,
    "reduce-window": _reduce_window, "gather": _gather, "scatter": _scatter, "sort": _sort, "concatenate": _concatenate,
    "topk": lambda i, given, inner: list(_lax().top_k(given[0], int(i.attribute("k") or 1))),
    "select-and-scatter": _select_and_scatter, "fft": _fft, "triangular-solve": _triangular_solve,
    "cholesky": lambda i, given, inner: _lax().linalg.cholesky(given[0], symmetrize_input=False),
    "reduce-precision": _reduce_precision, "ragged-dot": _ragged_dot,
    "dynamic-slice": _dynamic_slice, "rng-bit-generator": _bits,
}  # fmt: skip
"""Opcodes that replay.py does not follow itself (calls, loops, branches, tuples)."""
