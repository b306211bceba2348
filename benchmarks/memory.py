"""Whether memory stays flat when one process profiles again and again.

    python benchmarks/memory.py [PROFILES]           # default 1000

Every profile is of a function and of shapes of its own, so that jax can keep nothing back from the last one: a training
step with a scan, remat and scopes. Resident memory is read after Python's collector ran.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import machine

import costtrace


def resident_mib() -> float:
    """Resident memory of this process, after a collection."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def one(i: int) -> costtrace.Profile:
    """The profile of a training step that no call before has seen: its width and its closure are its own."""
    width, bias = 8 + i % 61, float(i)

    def step(w: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        def layer(h: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
            with jax.named_scope("layer"):
                return jnp.tanh(h @ row + bias), None

        with jax.named_scope("loss"):
            return jnp.sum(jax.lax.scan(jax.checkpoint(layer), x, w["kernel"])[0] ** 2)

    def shape(*dims: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dims, "float32")

    found = costtrace.profile(jax.jit(jax.grad(step)), {"kernel": shape(3, width, width)}, shape(4, width))
    found.rows()
    found.lines()
    return found


def main() -> None:
    count = int(sys.argv[1]) if sys.argv[1:] else 1000
    print(machine.line(), flush=True)
    for i in range(100):
        one(i)
    start = at = resident_mib()
    for i in range(100, count + 100):
        one(i)
        if (i + 1) % (count // 5 or 1) == 0:
            at = resident_mib()
            print(f"after {i + 1:>6,} profiles {at:7.1f} MiB", flush=True)
    print(f"{count:,} profiles after the first 100: {1024 * (resident_mib() - start) / count:+.2f} KiB each")


if __name__ == "__main__":
    main()
