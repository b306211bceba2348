"""Bytes that one device sends in a program's collectives, slowly: each is played out message by message.

Loops are run trip by trip and every collective of a group of n devices is played on a ring (an all-to-all and a permute
directly): who holds which piece, and what the first device has handed on when all hold what they should. It shares no
formula with costtrace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax._src.interpreters.partial_eval import dce_jaxpr

CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def _gathered(n: int, nbytes: int) -> int:
    """An all-gather: each hands on what it got last until everybody has every part."""
    held, last, sent = [{i} for i in range(n)], list(range(n)), 0
    while any(len(h) < n for h in held):
        sent += nbytes
        last = [last[i - 1] for i in range(n)]
        for i in range(n):
            held[i].add(last[i])
    return sent


def _scattered(n: int, nbytes: int) -> int:
    """A reduce-scatter of arrays of nbytes: a piece goes round, each adds its own, until the sum is whole."""
    pieces, sent = [{i} for i in range(n)], 0
    while any(len(piece) < n for piece in pieces):
        sent += nbytes // n
        pieces = [pieces[i - 1] | {i} for i in range(n)]
    return sent


def _exchanged(n: int, nbytes: int) -> int:
    return sum(nbytes // n for other in range(n) if other != 0)


PLAYED: dict[str, Callable[[int, int], int]] = {
    "psum": lambda n, b: _scattered(n, b) + _gathered(n, b // n),
    "pmax": lambda n, b: _scattered(n, b) + _gathered(n, b // n),
    "pmin": lambda n, b: _scattered(n, b) + _gathered(n, b // n),
    "all_gather": _gathered,
    "reduce_scatter": _scattered,
    "all_to_all": _exchanged,
    "ppermute": lambda n, b: b,
}


def sent(fn: Callable[..., Any], args: tuple[Any, ...]) -> int:
    """Bytes that one device sends in one call."""
    closed = jax.make_jaxpr(fn)(*args)
    return _run(dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))[0], {})


def _run(jaxpr: Any, sizes: dict[str, int]) -> int:
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    total = 0
    for eqn in jaxpr.eqns:
        name, p = eqn.primitive.name, eqn.params
        kind = name.removesuffix("_invariant")
        if name == "shard_map":
            total += _run(p["jaxpr"], sizes | dict(p["mesh"].shape))
        elif name == "scan":
            total += sum(_run(p["jaxpr"], sizes) for _ in range(p["length"]))
        elif kind in PLAYED:
            axes = p.get("axes", p.get("axis_name"))
            n = int(np.prod([sizes[a] for a in (axes if isinstance(axes, tuple) else (axes,))]))
            nbytes = sum(v.aval.size * v.aval.dtype.itemsize for v in eqn.invars)
            total += PLAYED[kind](n, nbytes) if n > 1 else 0
        else:
            total += sum(_run(p[key], sizes) for key in CALLS if key in p)
    return total
