"""How ways to write the same attention compile for a v6e: python benchmarks/formulations.py [NAME...]

Stable Audio 3's, 120 s: 24 layers of the DiT's two branches (1422 tokens, 24 heads of 64), 12 of the decoder's windows
(23,086 tokens). Nothing but attention is compiled; what the table says is compared within the table.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from costtrace import chip, model
from costtrace.evidence.compiled import compiled
from costtrace.target import compiler, program

sa3 = importlib.import_module(model.find("sa3").stages.__module__)
FLOAT, HEADS, WIDTH, GROUP = jnp.float32, 24, 64, 17
DIT = jax.ShapeDtypeStruct((1, 1422, HEADS, WIDTH), "bfloat16")
DECODER = jax.ShapeDtypeStruct((1, 1, 23086, HEADS, WIDTH), "bfloat16")


def heads_first(q: Any, k: Any, v: Any, scores: Any = FLOAT, operands: Any = None) -> Any:
    """softmax(q k / sqrt(d)) v with scores in that dtype; operands: a dtype that q, k and v are widened to."""
    out = v.dtype
    q, k, v = (jnp.swapaxes(x, -3, -2).astype(operands or x.dtype) for x in (q, k, v))
    s = jnp.einsum("...qd,...kd->...qk", q, k, preferred_element_type=scores) * q.shape[-1] ** -0.5
    y = jnp.einsum("...qk,...kd->...qd", jax.nn.softmax(s, -1).astype(v.dtype), v)
    return jnp.swapaxes(y, -3, -2).astype(out)


def two(attention: Callable[..., Any]) -> Callable[..., Any]:
    """The difference of two attentions that share their values."""
    return lambda q, k, v, q2, k2: attention(q, k, v) - attention(q2, k2, v)


def by_head(q: Any, k: Any, v: Any, q2: Any, k2: Any) -> Any:
    def one(head: Any) -> Any:
        q, k, v, q2, k2 = (x[:, None] for x in head)
        return (heads_first(q, k, v) - heads_first(q2, k2, v))[:, 0]

    return lax.map(one, tuple(jnp.swapaxes(x[0], 0, 1) for x in (q, k, v, q2, k2)))


def stacked(q: Any, k: Any, v: Any, q2: Any, k2: Any) -> Any:
    """Windows with both branches stacked on heads and an additive mask."""
    q, k, v = jnp.concatenate([q, q2], 3), jnp.concatenate([k, k2], 3), jnp.concatenate([v, v], 3)
    n, heads = q.shape[2], q.shape[3]
    groups = n // GROUP

    def beside(x: Any) -> Any:
        x = jnp.pad(x[0, 0], ((GROUP, GROUP), (0, 0), (0, 0))).reshape(groups + 2, GROUP, heads, WIDTH)
        return jnp.concatenate([x[i : i + groups] for i in range(3)], 1).swapaxes(1, 2)

    query, key = jnp.arange(GROUP)[:, None], jnp.arange(3 * GROUP) - GROUP
    place = GROUP * jnp.arange(groups)[:, None, None] + key
    window = jnp.where((abs(query - key) <= GROUP) & (place >= 0) & (place < n), 0.0, -jnp.inf)
    q, k, v = q.reshape(groups, GROUP, heads, WIDTH).swapaxes(1, 2), beside(k), beside(v)
    s = jnp.einsum("ghqd,ghkd->ghqk", q, k, preferred_element_type=FLOAT) * WIDTH**-0.5 + window[:, None]
    y = jnp.einsum("ghqk,ghkd->ghqd", jax.nn.softmax(s, -1).astype(v.dtype), v)
    return (y[:, : heads // 2] - y[:, heads // 2 :]).swapaxes(1, 2).reshape(1, n, -1)


WAYS: dict[str, tuple[Callable[..., Any], jax.ShapeDtypeStruct, int]] = {
    "model": (lambda q, k, v, q2, k2: sa3.difference([q, q2], [k, k2], v), DIT, 24),
    "heads first": (two(heads_first), DIT, 24),
    "library": (two(jax.nn.dot_product_attention), DIT, 24),
    "by head": (by_head, DIT, 24),
    "bfloat16 scores": (two(functools.partial(heads_first, scores=jnp.bfloat16)), DIT, 24),
    "float32 operands": (two(functools.partial(heads_first, operands=FLOAT)), DIT, 24),
    "windows, model": (lambda q, k, v, q2, k2: sa3.windowed([q, q2], [k, k2], v), DECODER, 12),
    "windows, stacked": (stacked, DECODER, 12),
}
"""Name -> (attention of q, k, v, q2, k2, an operand, layers)."""


def main(names: list[str]) -> None:
    on = chip.load("v6e")
    for name in names or WAYS:
        fn, operand, layers = WAYS[name]
        (answer,) = compiler.ask([compiler.Question(program.lowered(fn, (operand,) * 5, "tpu"), on)])
        total = compiled(answer).total
        print(f"{name:18s} {1e3 * layers * total.time_s:7.1f} ms, {layers * total.hbm_bytes / 1e9:6.1f} GB of HBM")


if __name__ == "__main__":
    main(sys.argv[1:])
