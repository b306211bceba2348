"""How time and memory of profile() grow with the program.

    python benchmarks/size.py [EQUATIONS ...]        # default 10000 100000 1000000

Each size runs in a process of its own; times are the processor's. Time per equation is what profile() takes beyond
jax's tracing of the same function. Then a scan of 10 and of a million trips, and a model of 400 billion parameters.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import machine

import costtrace

SHAPE = jax.ShapeDtypeStruct((8, 8), "float32")


def equations(n: int) -> None:
    """Prints µs per equation of a straight program of n equations, three in four elementwise, under 10 scopes."""

    def program(x: jax.Array) -> jax.Array:
        y = x
        for part in range(10):
            with jax.named_scope(f"part_{part}"):
                for _ in range(n // 40):
                    y = jax.lax.dot(jax.lax.tanh(jax.lax.add(y, jax.lax.mul(x, y))), x)
        return y

    def ours() -> None:
        profile = costtrace.profile(program, SHAPE)
        assert profile.total.matmul_flops == n // 40 * 10 * 2 * 8**3
        assert len(profile.rows()) == 1

    def best(action: Callable[[], object]) -> float:
        def once() -> float:
            jax.clear_caches()
            return machine.cpu_seconds(action)

        return min(once() for _ in range(max(1, min(5, 200_000 // n))))

    costtrace.profile(lambda x: x + 1, SHAPE).rows()  # what is imported late
    tracing, whole = best(lambda: jax.make_jaxpr(program)(SHAPE)), best(ours)
    beyond = (whole - tracing) / n * 1e6
    print(
        f"{n:>9,} equations: jax traces {tracing:6.2f} s, profile() {whole:6.2f} s, "
        f"{beyond:5.1f} µs an equation beyond tracing, {machine.peak_gib():.2f} GiB"
    )


def scan(trips: int) -> float:
    def program(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (jnp.tanh(c @ x), None), x, None, length=trips)[0]

    def ours() -> None:
        assert costtrace.profile(program, SHAPE).total.matmul_flops == trips * 2 * 8**3

    def once() -> float:
        jax.clear_caches()
        return machine.cpu_seconds(ours)

    return min(once() for _ in range(10))


def large_model() -> None:
    """120 layers of a gated MLP and four square products, 16384 wide, 400 billion parameters, scanned."""
    layers, wide, inner = 120, 16384, 46080

    def shape(*dims: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dims, "bfloat16")

    def block(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        with jax.named_scope("attention"):
            for name in ("q", "k", "v", "o"):
                x = x @ w[name]
        with jax.named_scope("mlp"):
            x = (jax.nn.silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"]
        return x, None

    sizes = dict.fromkeys("qkvo", (wide, wide)) | {
        "gate": (wide, inner),
        "up": (wide, inner),
        "down": (inner, wide),
    }
    params = {name: shape(layers, *dims) for name, dims in sizes.items()}

    def ours() -> None:
        profile = costtrace.profile(lambda w, x: jax.lax.scan(block, x, w)[0], params, shape(1, wide))
        assert profile.parameters == layers * (4 * wide**2 + 3 * wide * inner)
        print(f"{profile.parameters / 1e9:.0f} billion parameters: ", end="")

    taken = machine.cpu_seconds(ours)
    print(f"{taken:.2f} s with tracing, {machine.peak_gib():.2f} GiB held by the process")


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        equations(int(sys.argv[2]))
        return
    print(machine.line(), flush=True)
    for n in sys.argv[1:] or ("10000", "100000", "1000000"):
        subprocess.run([sys.executable, __file__, "--one", n], check=True)
    short, long = scan(10), scan(1_000_000)
    print(f"scan of 10 trips {short * 1e3:.1f} ms, of 1,000,000 trips {long * 1e3:.1f} ms: {long / short:.2f}x")
    large_model()


if __name__ == "__main__":
    main()
