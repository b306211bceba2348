"""A small program whose compiled forms lie in tests/hlo: six scanned layers of norm, up, gelu, down."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import costtrace
from costtrace import chip
from costtrace.target import compiler

DUMPS = Path(__file__).parent / "hlo"
LAYERS, TOKENS, WIDTH, INNER = 6, 256, 512, 2048
shape = functools.partial(jax.ShapeDtypeStruct, dtype="bfloat16")
ARGS = ({"up": shape((LAYERS, WIDTH, INNER)), "down": shape((LAYERS, INNER, WIDTH))}, shape((TOKENS, WIDTH)))


def layer(x: Any, w: Any) -> Any:
    with jax.named_scope("norm"):
        y = x.astype("float32")
        y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)
    with jax.named_scope("mlp"):
        with jax.named_scope("up"):
            y = jax.nn.gelu(y.astype("bfloat16") @ w["up"])
        with jax.named_scope("down"):
            y = y @ w["down"]
    return x + y, None


def block(w: Any, x: Any) -> Any:
    """What tests/hlo holds the compiled forms of."""
    with jax.named_scope("embed"):
        x = jnp.tanh(x)
    return jax.lax.scan(layer, x, w)[0]


def unrolled(w: Any, x: Any) -> Any:
    with jax.named_scope("embed"):
        x = jnp.tanh(x)
    for n in range(LAYERS):
        x, _ = layer(x, {name: each[n] for name, each in w.items()})
    return x


@functools.cache
def profiled() -> Any:
    return costtrace.profile(block, *ARGS, weights=0)


def answer(name: str, text: str | None = None, mesh: dict[str, int] | None = None) -> compiler.Answer:
    text = text or (DUMPS / f"block.{name}.hlo").read_text()
    return compiler.Answer(chip.load(name), text, 1.0, {}, {}, name, True, mesh or {})
