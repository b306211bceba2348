"""Reductions, scans along an axis, sorts and windows: folding n values takes n - 1 operations."""

from __future__ import annotations

import math

from costtrace.core import MODELLED, Cost, Op, Value
from costtrace.rules.body import body
from costtrace.rules.table import rule, vector


@rule("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor",
      "mosaic_gpu_reduce_sum", "mosaic_gpu_reduce_prod", "mosaic_gpu_reduce_max",
      "mosaic_gpu_reduce_min")  # fmt: skip
def reduction(op: Op) -> Cost:
    """(n - 1) per result, n the elements folded into it."""
    of, out = op.inputs[0], op.outputs[0]
    return vector(of.size - out.size, of.dtype)


@rule("reduce")
def reduce(op: Op) -> Cost:
    """(n - 1) runs of the combiner per result; the initial value is taken to be its identity."""
    of, out = op.inputs[0], op.outputs[0]
    return max(0, of.size - out.size) * body(op.params["jaxpr"])


@rule("argmax", "argmin")
def argument(op: Op) -> Cost:
    """(n - 1) comparisons per result."""
    return Cost(integer_ops=max(0, op.inputs[0].size - op.outputs[0].size))


def lines(of: Value, axis: int) -> tuple[int, int]:
    """How many lines run along an axis, and how long each is."""
    return math.prod(of.shape[:axis] + of.shape[axis + 1 :]), of.shape[axis]


@rule("cumsum", "cumprod", "cummax", "cummin")
def cumulative(op: Op) -> Cost:
    """(n - 1) per line of n, as a serial scan does; a parallel scan does up to twice that."""
    of = op.inputs[0]
    count, n = lines(of, op.params["axis"])
    return vector(count * (n - 1), of.dtype)


@rule("cumlogsumexp")
def cumlogsumexp(op: Op) -> Cost:
    """(n - 1) per line of max(a, b) + log1p(exp(-|a - b|)): 5 FLOPs and 2 transcendentals."""
    of = op.inputs[0]
    count, n = lines(of, op.params["axis"])
    steps = max(0, count * (n - 1))
    return vector(5 * steps, of.dtype).replace(transcendentals=2 * steps)


@rule("sort", status=MODELLED)
def sort(op: Op) -> Cost:
    """n ceil(log2 n) comparisons per line of n, on each key: a merge sort. Further operands are carried along."""
    count, n = lines(op.inputs[0], op.params["dimension"])
    return Cost(integer_ops=count * n * max(0, n - 1).bit_length() * op.params["num_keys"])


@rule("top_k", status=MODELLED)
def top_k(op: Op) -> Cost:
    """n ceil(log2(k + 1)) comparisons per line of n: a heap of the k best."""
    axis = op.params.get("axis", -1) % len(op.inputs[0].shape)
    count, n = lines(op.inputs[0], axis)
    return Cost(integer_ops=count * n * op.params["k"].bit_length())


@rule("approx_top_k", status=MODELLED)
def approx_top_k(op: Op) -> Cost:
    """n comparisons per line into partial maxima, then the partial results are merged as `top_k` does."""
    of = op.inputs[0]
    k, axis = op.params["k"], op.params["reduction_dimension"] % len(of.shape)
    count, n = lines(of, axis)
    kept = op.outputs[0].shape[axis]
    return Cost(integer_ops=count * (n + kept * k.bit_length()))


@rule("reduce_window_sum", "reduce_window_max", "reduce_window_min")
def reduce_window(op: Op) -> Cost:
    """(w - 1) per result, w the elements of the window; padding is folded in like an element."""
    out = op.outputs[0]
    return vector(out.size * (math.prod(op.params["window_dimensions"]) - 1), out.dtype)


@rule("reduce_window")
def reduce_window_by(op: Op) -> Cost:
    """(w - 1) runs of the combiner per result."""
    window = math.prod(op.params["window_dimensions"])
    return max(0, op.outputs[0].size * (window - 1)) * body(op.params["jaxpr"])


@rule("select_and_scatter_add")
def select_and_scatter_add(op: Op) -> Cost:
    """Per element of the source: (w - 1) comparisons find its place in the window, 1 addition puts it there."""
    source = op.inputs[0]
    chosen = source.size * (math.prod(op.params["window_dimensions"]) - 1)
    return vector(source.size, source.dtype) + Cost(integer_ops=chosen)


@rule("select_and_gather_add")
def select_and_gather_add(op: Op) -> Cost:
    """(w - 1) comparisons per result; the chosen tangent is moved, not computed."""
    return Cost(integer_ops=op.outputs[0].size * (math.prod(op.params["window_dimensions"]) - 1))


@rule("select_and_scatter")
def select_and_scatter(op: Op) -> Cost:
    """Per element of the source: (w - 1) runs of the select body, 1 of the scatter body."""
    source, p = op.inputs[1], op.params
    chosen = source.size * (math.prod(p["window_dimensions"]) - 1)
    return chosen * body(p["select_jaxpr"]) + source.size * body(p["scatter_jaxpr"])
