"""Attention and recurrent layers that cuDNN runs as one opaque call. Masked attention is counted in full.

b batch, n query heads, t queries, s keys, d head size of queries and keys, v head size of values, e = b n t s scores.
Grouped keys and values are read less often, not multiplied less often.
"""

from __future__ import annotations

from costtrace.core import MODELLED, Cost, Op
from costtrace.rules.contraction import product
from costtrace.rules.table import rule, vector

_BNTH = 1  # the layout parameter: 0 is (batch, time, heads, size), 1 is (batch, heads, time, size)


def sizes(op: Op) -> tuple[int, int, int, int]:
    """(scores e, rows of scores b n t, d, v) of an attention call; a page table replaces the keys' own length."""
    query, key, value = op.inputs[:3]
    time, heads = (2, 1) if op.params["layout"] == _BNTH else (1, 2)
    rows = query.shape[0] * query.shape[heads] * query.shape[time]
    keys = key.shape[time]
    if "fp8" not in op.primitive and len(op.inputs[8].shape) == 4:  # (b, 1, blocks per batch, 1), keys are blocks
        keys *= op.inputs[8].shape[2]
    return rows * keys, rows, query.shape[3], value.shape[3]


@rule("dot_product_attention_fwd", "dot_product_attention_fwd_wrapper", "dot_product_attention_fp8_fwd",
      "dot_product_attention_fp8_fwd_wrapper", status=MODELLED)  # fmt: skip
def attention(op: Op) -> Cost:
    """2 e d + 2 e v (4 b n t s d): two products. The softmax between them, in float32: per score a scale, a max, a
    subtraction, a sum and a division, 5e - 2 b n t; e exponentials; and e additions for a bias."""
    query, key, _ = op.inputs[:3]
    e, rows, d, v = sizes(op)
    bias = e if _has_bias(op) else 0
    softmax = vector(5 * e - 2 * rows + bias, "float32").replace(transcendentals=e)
    return product(e * (d + v), query, key) + softmax


@rule("dot_product_attention_bwd", "dot_product_attention_bwd_wrapper", "dot_product_attention_fp8_bwd",
      "dot_product_attention_fp8_bwd_wrapper", status=MODELLED)  # fmt: skip
def attention_backward(op: Op) -> Cost:
    """2 e (3d + 2v) (10 b n t s d): the scores again, dP, dV, dQ and dK. Around them, in float32: per score a scale
    and a subtraction, an exponential, dS = P (dP - D) and a scale, 5e; D is a sum over v, (2v - 1) b n t.
    Source: Dao et al., "FlashAttention", 2022, algorithm 4."""
    query, key, _ = op.inputs[:3]
    e, rows, d, v = sizes(op)
    bias = e if _has_bias(op) else 0
    around = vector(5 * e + rows * (2 * v - 1) + bias, "float32").replace(transcendentals=e)
    return product(e * (3 * d + 2 * v), query, key) + around


def _has_bias(op: Op) -> bool:
    return bool(op.params.get("variadic_args", (False,))[0])


def _lstm(op: Op, width: int, hidden: int) -> tuple[int, int]:
    """(multiply-adds, hidden states computed) of a whole LSTM on x (batch, time, width)."""
    x = op.inputs[0] if op.primitive == "rnn_fwd" else op.inputs[3]
    steps = x.shape[0] * x.shape[1]
    directions = 2 if op.params["bidirectional"] else 1
    multiply_adds = states = 0
    for layer in range(op.params["num_layers"]):
        below = width if layer == 0 else directions * hidden
        multiply_adds += directions * steps * 4 * hidden * (below + hidden)
        states += directions * steps * hidden
    return multiply_adds, states


@rule("rnn_fwd", status=MODELLED)
def rnn(op: Op) -> Cost:
    """An LSTM: 4 gates, each a product with the layer's input and with the state below. Per state 16 FLOPs (3 sums in
    each gate, 3 for the cell, 1 for the output) and 5 transcendentals."""
    multiply_adds, states = _lstm(op, op.params["input_size"], op.params["hidden_size"])
    x = op.inputs[0]
    return product(multiply_adds, x, x) + vector(16 * states, x.dtype).replace(transcendentals=5 * states)


@rule("rnn_bwd", status=MODELLED)
def rnn_backward(op: Op) -> Cost:
    """Twice the forward products: for the inputs' and for the weights' gradients. 32 FLOPs per state around them."""
    multiply_adds, states = _lstm(op, op.params["input_size"], op.params["hidden_size"])
    x = op.inputs[3]
    return product(2 * multiply_adds, x, x) + vector(32 * states, x.dtype)
