"""Elementwise arithmetic: one operation per element of the result, complex elements included.

Floating add, sub, mul, div, max, floor ... are 1 FLOP an element; transcendentals are counted apart; comparisons,
selects, bit work and all arithmetic on integers are integer_ops. A cast costs nothing (movement.py).
"""

from __future__ import annotations

from costtrace.core import Cost, Op
from costtrace.rules.table import is_complex, is_float, rule, vector


@rule("add", "add_any", "sub", "mul", "div", "rem", "max", "min", "neg", "floor", "ceil", "round", "square", "conj",
      "mulhi", "reciprocal")  # fmt: skip
def elementwise(op: Op) -> Cost:
    """1 per element of the result: a FLOP where that is floating, else an integer operation. A division is 1."""
    out = op.outputs[0]
    return vector(out.size, out.dtype)


@rule("abs", "sign")
def magnitude(op: Op) -> Cost:
    """1 per element; on complex input, whose modulus is a square root, 1 transcendental."""
    of = op.inputs[0]
    return Cost(transcendentals=of.size) if is_complex(of.dtype) else vector(of.size, of.dtype)


@rule("clamp")
def clamp(op: Op) -> Cost:
    """2 per element: a max and a min."""
    out = op.outputs[0]
    return vector(2 * out.size, out.dtype)


@rule("one_minus_square")
def one_minus_square(op: Op) -> Cost:
    """3 per element: (1 + x)(1 - x)."""
    out = op.outputs[0]
    return vector(3 * out.size, out.dtype)


@rule("polynomial")
def polynomial(op: Op) -> Cost:
    """2 (c - 1) per element, c the coefficients: Horner's scheme."""
    out = op.outputs[0]
    return vector(2 * (len(op.inputs) - 2) * out.size, out.dtype)


@rule("integer_pow")
def integer_pow(op: Op) -> Cost:
    """Multiplications of repeated squaring, per element: y has `bits` binary digits and `ones` of them are 1, so
    (bits - 1) squarings and (ones - 1) products; a negative y divides once more. x**2 is 1, x**3 is 2, x**-1 is 1."""
    out, y = op.outputs[0], op.params["y"]
    if y == 0:
        return Cost()
    products = (abs(y).bit_length() - 1) + (abs(y).bit_count() - 1)
    return vector((products + (y < 0)) * out.size, out.dtype)


@rule("exp", "exp2", "expm1", "log", "log2", "log1p", "logistic", "pow", "sqrt", "rsqrt", "cbrt", "sin",
      "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
      "erf", "erfc", "erf_inv", "lgamma", "digamma", "polygamma", "zeta", "igamma", "igammac",
      "igamma_grad_a", "regularized_incomplete_beta", "bessel_i0e", "bessel_i1e")  # fmt: skip
def transcendental(op: Op) -> Cost:
    """1 evaluation per element, however the chip expands it, complex as real; an integer `pow` is integer work."""
    out = op.outputs[0]
    return Cost(transcendentals=out.size) if is_float(out.dtype) else Cost(integer_ops=out.size)


@rule("eq", "ne", "lt", "le", "gt", "ge", "eq_to", "lt_to", "le_to", "is_finite", "nextafter")
def comparison(op: Op) -> Cost:
    """1 integer operation per element, whatever is compared; the next float is a step of the bit pattern."""
    return Cost(integer_ops=op.outputs[0].size)


@rule("select_n")
def select(op: Op) -> Cost:
    """1 integer operation per element of the result: a predicated move, not a FLOP."""
    return Cost(integer_ops=op.outputs[0].size)


@rule("and", "or", "xor", "not", "shift_left", "shift_right_logical", "shift_right_arithmetic", "population_count",
      "clz")  # fmt: skip
def bitwise(op: Op) -> Cost:
    """1 integer operation per element."""
    return Cost(integer_ops=op.outputs[0].size)
