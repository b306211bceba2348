"""Random arrays for a program's arguments, made on the host and staged on the device. Values that no program chokes on:
weights as a layer starts with, other floats between 0.1 and 1 (a variance, a time, a probability), whole numbers that
every lookup of the program has a row for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from costtrace import dce

POOL = 1 << 22
"""Random numbers drawn; a larger array repeats them."""
MOST = 1000
"""The largest whole number where no lookup says less."""
SEED = 9


@dataclass(frozen=True, slots=True)
class Staged:
    """Arrays on the device, and what it took to bring them there."""

    arrays: Any
    nbytes: int
    seconds: float


class Source:
    """Random numbers, the same in every run."""

    def __init__(self, below: int = MOST) -> None:
        self.below = max(2, below)
        rng = np.random.default_rng(SEED)
        self.normal = rng.standard_normal(POOL, np.float32)
        self.uniform = rng.uniform(0.1, 1.0, POOL).astype(np.float32)
        self.whole = rng.integers(1, self.below, POOL)

    def array(self, spec: Any, weight: bool = False) -> Any:
        """An array of the shape and dtype of `spec`, on the host; a key where it is one."""
        import jax

        if str(spec.dtype).startswith("key<"):
            keys = jax.random.split(jax.random.key(SEED), max(1, math.prod(spec.shape)))
            return keys.reshape(spec.shape)
        kind = np.dtype(spec.dtype)
        if kind.kind in "iu":
            return _filled(self.whole, spec)
        if kind.kind == "b":
            return np.ones(spec.shape, kind)
        if weight and len(spec.shape) > 1:
            return _filled(self.normal / np.float32(math.sqrt(spec.shape[-2])), spec)
        return _filled(self.uniform, spec)

    def tree(self, specs: Any, weight: bool = False) -> Any:
        import jax

        return jax.tree.map(lambda spec: self.array(spec, weight) if hasattr(spec, "shape") else spec, specs)


def _filled(pool: Any, spec: Any) -> Any:
    """The pool, cast once, as often as the array needs it."""
    size = math.prod(spec.shape)
    return np.resize(pool[: max(1, min(size, POOL))].astype(spec.dtype), size).reshape(spec.shape)


def staged(tree: Any) -> Staged:
    """The arrays copied to the device (also where the device is the host) and the seconds until they are there."""
    import jax

    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "nbytes")]
    start = time.perf_counter()
    arrays = jax.block_until_ready(jax.device_put(tree, may_alias=False))
    return Staged(arrays, sum(leaf.nbytes for leaf in leaves), time.perf_counter() - start)


def rows(closed: Any) -> int:
    """The fewest places that a lookup or a slice of the program can start at: whole numbers stay below it."""
    return min((n for n in _places(dce.opened(closed)) if n > 1), default=MOST)


def _places(jaxpr: Any) -> Iterator[int]:
    for eqn in jaxpr.eqns:
        name, sizes = eqn.primitive.name, eqn.params.get("slice_sizes", ())
        if name in ("gather", "dynamic_slice"):
            numbers = eqn.params.get("dimension_numbers")
            axes = getattr(numbers, "start_index_map", range(len(sizes)))
            yield from (eqn.invars[0].aval.shape[axis] - sizes[axis] + 1 for axis in axes)
        elif name == "dynamic_update_slice":
            pairs = zip(eqn.invars[0].aval.shape, eqn.invars[1].aval.shape, strict=True)
            yield from (whole - part + 1 for whole, part in pairs)
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if hasattr(dce.opened(inner), "eqns"):
                    yield from _places(dce.opened(inner))


def finite(tree: Any) -> bool:
    """True where every floating number of some results is a number."""
    import jax
    import jax.numpy as jnp

    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return all(
        bool(jnp.isfinite(leaf.astype(jnp.float32) if leaf.dtype.itemsize < 4 else leaf).all()) for leaf in floats
    )
