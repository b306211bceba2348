"""Whether costtrace holds at large sizes: scopes, parameters, processes over one cache. size.py has the equations.

    python benchmarks/scale.py [scopes|model|processes ...]      # default: all three

scopes: 10^4 and 10^5 named scopes. model: a mixture of experts with 10^12 parameters, scanned. processes: 32 sweeps at
once over one cache, which must all print what one alone prints.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import machine

import costtrace

X = jax.ShapeDtypeStruct((8,), "float32")


def scopes() -> None:
    """Prints µs per scope, with jax's own tracing."""

    def profiled(n: int) -> float:
        def program(x: jax.Array) -> jax.Array:
            for block in range(n // 100):
                with jax.named_scope(f"block_{block}"):
                    for part in range(99):
                        with jax.named_scope(f"part_{part}"):
                            x = jax.lax.tanh(x)
            return x

        def ours() -> None:
            found = costtrace.profile(program, X)
            assert len(found.scopes()) == n
            assert len(found.rows(depth=1, merge=False)) == n // 100

        return machine.cpu_seconds(ours)

    for n in (10_000, 100_000):
        taken = profiled(n)
        print(
            f"{n:>9,} scopes: {taken:.2f} s, {taken / n * 1e6:.0f} µs a scope, {machine.peak_gib():.2f} GiB", flush=True
        )


def model() -> None:
    """72 layers of attention and 64 experts, 8192 wide."""
    layers, wide, inner, experts, tokens = 72, 8192, 4864, 64, 16

    def shape(*dims: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dims, "bfloat16")

    def block(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        with jax.named_scope("attention"):
            for name in "qkvo":
                x = x @ w[name]
        with jax.named_scope("experts"):
            up = jax.numpy.einsum("td,edf->etf", x, w["up"])
            return jax.numpy.einsum("etf,efd->td", jax.nn.silu(up), w["down"]), None

    sizes = dict.fromkeys("qkvo", (wide, wide)) | {"up": (experts, wide, inner * 3), "down": (experts, inner * 3, wide)}
    params = {name: shape(layers, *dims) for name, dims in sizes.items()}

    def ours() -> None:
        found = costtrace.profile(lambda w, x: jax.lax.scan(block, x, w)[0], params, shape(tokens, wide))
        one = 4 * wide**2 + 2 * experts * wide * inner * 3
        assert found.parameters == layers * one > 10**12
        assert found.total.matmul_flops == 2 * tokens * layers * one
        assert found.total.weight_bytes == 2 * layers * one
        print(f"{found.parameters:,} parameters: ", end="")

    print(
        f"{machine.cpu_seconds(ours):.2f} s with tracing, {machine.peak_gib():.2f} GiB held by the process", flush=True
    )


MLP = """
from dataclasses import dataclass
import jax
from costtrace.model import Model, Stage, option, param, scope

@dataclass(frozen=True)
class Config:
    tokens: int = option(128, help="tokens at once")

def forward(x):
    with scope("up"):
        return jax.nn.relu(x @ param("up", (256, 1024)))

def stages(config):
    return [Stage("forward", forward, (jax.ShapeDtypeStruct((config.tokens, 256), "bfloat16"),))]

MODEL = Model("tiny", Config, stages)
"""


def processes(count: int = 32) -> None:
    """Sweeps over the same four configurations, all at once, with one cache."""
    with tempfile.TemporaryDirectory(prefix="costtrace-") as place:
        Path(place, "tiny.py").write_text(MLP)
        command = [
            sys.executable,
            "-m",
            "costtrace",
            "sweep",
            "./tiny.py",
            "--tokens",
            "64,128,256,512",
            "--format",
            "csv",
        ]
        root = str(Path(costtrace.__file__).parent.parent)
        environment = {**os.environ, "PYTHONPATH": root, "COSTTRACE_CACHE": str(Path(place, "cache"))}

        def together() -> None:
            started = [
                subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for _ in range(count)
            ]
            answers = [(*each.communicate(), each.returncode) for each in started]
            assert all(code == 0 for *_, code in answers), answers[0][1].decode()
            assert len({out for out, _, _ in answers}) == 1, "processes that ran at once print different answers"
            said = {line for _, err, _ in answers for line in err.decode().splitlines() if "are remembered" not in line}
            assert not said, said

        taken = machine.seconds(together)
        print(f"{count} processes over one cache: {taken:.1f} s, all answers the same", flush=True)


PARTS = {"scopes": scopes, "model": model, "processes": processes}


def main() -> None:
    print(machine.line(), flush=True)
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
