"""Training steps: forward, backward and recompute apart, the optimizer, model and hardware FLOPs, MFU and HFU."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import costtrace
from costtrace import chip
from costtrace.cli import main
from costtrace.errors import UsageError
from costtrace.training import OPTIMIZERS, Training, step, training

S = jax.ShapeDtypeStruct
N, B, D = 5, 4, 8
P = 2 * B * D * D  # one product
W = [S((D, D), "float32")] * N
STACKED = S((N, D, D), "float32")
X = S((B, D), "float32")


def layer(w: Any, x: Any) -> Any:
    with jax.named_scope("layer"):
        return jnp.sin(x @ w)


def chain(params: list[Any], x: Any, around: Callable[..., Any] = layer) -> Any:
    for w in params:
        x = around(w, x)
    return x


def again(params: list[Any], x: Any) -> Any:
    return chain(params, x, jax.checkpoint(layer))


def scanned(params: Any, x: Any) -> Any:
    return lax.scan(lambda c, w: (layer(w, c), None), x, params)[0]


def scanned_again(params: Any, x: Any) -> Any:
    return lax.scan(lambda c, w: (jax.checkpoint(layer)(w, c), None), x, params)[0]


def loss(params: list[Any], x: Any) -> Any:
    return jnp.sum(chain(params, x))


def parts(fn: Callable[..., Any], params: Any, optimizer: Any = None) -> tuple[costtrace.Profile, Training]:
    made = step(fn, (params, X), optimizer)
    found = costtrace.profile(made.fn, *made.args, jit=made.jit, weights=0)
    return found, training(found, made.state_bytes)


# Backward of a chain of n products is 2n, less the first input's; a loop does not know that its first input is one.
@pytest.mark.parametrize(
    ("fn", "params", "forward", "backward", "recompute"),
    [
        (chain, W, N, 2 * N - 1, 0),
        (loss, W, N, 2 * N - 1, 0),
        (again, W, N, 2 * N - 1, N),
        (scanned, STACKED, N, 2 * N, 0),
        (scanned_again, STACKED, N, 2 * N, N),
    ],
)
def test_phases(fn: Callable[..., Any], params: Any, forward: int, backward: int, recompute: int) -> None:
    found, said = parts(fn, params)
    assert {k: c.matmul_flops // P for k, c in said.phases.items()} == {
        "forward": forward, "backward": backward, "recompute": recompute, "optimizer": 0,
    }  # fmt: skip
    assert said.model_flops == (forward + backward) * P
    assert said.hardware_flops == (forward + backward + recompute) * P == found.total.matmul_flops
    assert found.parameters == N * D * D


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_the_optimizer_is_a_scope_with_its_state(name: str) -> None:
    found, said = parts(chain, W, name)
    size = N * D * D
    moments = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}[name]
    count = 4 if moments == 2 else 0  # adam's step counter
    assert said.state_bytes == moments * size * 4 + count
    cost = said.phases["optimizer"]
    assert cost.matmul_flops == 0
    # Read once and written once: parameters and state; read: the gradient.
    assert cost.bytes_fused == pytest.approx((2 * (1 + moments) + 1) * size * 4, rel=2e-3)
    if name == "sgd":
        assert cost.vector_flops == 2 * size  # a scale and an addition
    assert said.phases["forward"].matmul_flops == N * P
    # Parameters and state are donated: no second copy of them lives beside the first.
    assert found.peak.nbytes < (2 + moments) * size * 4 + 20 * B * D * 4


def test_integers_among_the_parameters_are_not_trained() -> None:
    def fn(params: Any, x: Any) -> Any:
        return x @ params["w"] * params["n"]

    made = step(fn, ({"w": S((D, D), "float32"), "n": S((), "int32")}, X), "sgd")
    new, _, _ = jax.eval_shape(made.fn, *made.args)
    assert [leaf.shape for leaf in new] == [(D, D)]


def test_utilisation() -> None:
    made = step(again, (W, X))
    found = costtrace.profile(made.fn, *made.args, weights=0)
    v6e = chip.load("v6e")
    rate = v6e.rate("matrix", "float32")
    assert rate is not None
    said = training(found, 0, v6e, 1e-6)
    assert said.mfu == pytest.approx((3 * N - 1) * P / rate.value / 1e-6)
    assert said.hfu == pytest.approx((4 * N - 1) * P / rate.value / 1e-6)
    with pytest.raises(UsageError, match=r"step time 0\.0: give seconds above 0"):
        training(found, 0, v6e, 0.0)


def test_utilisation_is_of_the_peak_of_the_dtype_that_does_most() -> None:
    """As the field has it: FLOPs over seconds times one peak, also where a few products are in another dtype."""

    def mixed(w: Any, x: Any) -> Any:
        wide, narrow = w
        return (x @ wide).astype("float32") @ narrow

    w = (S((D, 8 * D), "bfloat16"), S((8 * D, 1), "float32"))
    made = step(mixed, (w, S((B, D), "bfloat16")))
    found = costtrace.profile(made.fn, *made.args, weights=0)
    v6e = chip.load("v6e")
    said = training(found, 0, v6e, 1e-6)
    forward = 2 * B * D * 8 * D + 2 * B * 8 * D
    assert said.model_flops == 2 * forward + 2 * B * 8 * D  # both gradients, and that of what enters the second
    assert said.mfu == said.model_flops / (1e-6 * 918e12) and said.peak == "918 TFLOP/s bfloat16"


def test_the_bytes_of_a_phase_as_one_kernel_are_not_known() -> None:
    made = step(again, (W, X), "sgd")
    phases = training(costtrace.profile(made.fn, *made.args, weights=0)).to_dict()["phases"]
    assert phases["backward"]["bytes_fused"] is None and phases["backward"]["bytes_unfused"] > 0
    assert phases["optimizer"]["bytes_fused"] > 0


@pytest.mark.parametrize(
    ("fn", "args", "optimizer", "message"),
    [
        (lambda x: x + 1, (S((3,), "int32"),), None, "no floating-point arrays in its first argument"),
        (lambda: 1, (), None, "no floating-point arrays in its first argument"),
        (lambda x: x > 0, (X,), None, "none of its results is floating-point"),
        (lambda x: x, (X,), "adan", "optimizer 'adan': choose one of sgd, momentum, adam, adamw"),
    ],
)
def test_what_cannot_be_trained(fn: Any, args: Any, optimizer: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        step(fn, args, optimizer)


FILE = """
import jax, jax.numpy as jnp
from flax import nnx
def loss(w, x):
    return jnp.mean((x @ w) ** 2)
class Net(nnx.Module):
    def __init__(self, *, rngs):
        self.up = nnx.Linear(8, 32, rngs=rngs)
    def __call__(self, x):
        return self.up(x)
"""


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    run = ["trace", "net.py:Net", "--arg", "f32[4,8]", "--optimizer", "adam", "--step-time", "1e-6"]
    assert main([*run, "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)["training"]
    assert said["model_flops"] == 2 * (2 * 4 * 8 * 32)  # forward, and the weight's gradient
    assert said["state_bytes"] == 2 * 4 * (8 * 32 + 32) + 4
    assert 0 < said["mfu"] == said["hfu"] < 1
    assert main(run) == 0
    text = capsys.readouterr().out
    assert "optimizer state" in text and "MFU" in text
    assert max(map(len, text.splitlines())) <= 100
    assert main(["trace", "net.py:loss", "--arg", "f32[8,2]", "--arg", "f32[4,8]", "--grad"]) == 0
    assert "backward" in capsys.readouterr().out
    assert main([*run, "--chip", "v6e,h100"]) == 0
    several = capsys.readouterr().out
    assert several.count("optimizer state") == 1 and "v6e: in a step of 1 us: MFU" in several
    assert "h100: in a step of 1 us: MFU" in several
    assert main([*run, "--format", "csv"]) == 0
    assert capsys.readouterr().err == (
        "note: csv has no room for phases, MFU and HFU: --format text or json has them\n"
    )
    assert main([*run[:-1], "0"]) == 2
    assert capsys.readouterr().err == (
        "costtrace: error: invalid value for '--step-time': 0.0 is not in the range x>0 (costtrace trace --help)\n"
    )


def block(params: dict[str, Any], x: Any) -> Any:
    """A dense transformer block: 64 heads over 8 of keys and values, gated feed-forward."""

    def norm(x: Any) -> Any:
        return x * lax.rsqrt(jnp.mean(jnp.square(x.astype("float32")), -1, keepdims=True) + 1e-6).astype(x.dtype)

    b, t, _ = x.shape
    with jax.named_scope("attention"):
        h = norm(x)
        q, k, v = ((h @ params[n]).reshape(b, t, -1, 128) for n in "qkv")
        x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, -1) @ params["o"]
    with jax.named_scope("mlp"):
        h = norm(x)
        return x + (jax.nn.silu(h @ params["gate"]) * (h @ params["up"])) @ params["down"]


def test_a_step_of_400_billion_parameters_takes_seconds() -> None:
    layers, d, inner, kv, vocab, b, t = 126, 16384, 53248, 1024, 128256, 1, 8192
    shapes = {"q": (d, d), "k": (d, kv), "v": (d, kv), "o": (d, d),
              "gate": (d, inner), "up": (d, inner), "down": (inner, d)}  # fmt: skip
    weights = {n: S((layers, *s), "bfloat16") for n, s in shapes.items()}
    params = {"embed": S((vocab, d), "bfloat16"), "layers": weights, "head": S((d, vocab), "bfloat16")}

    def model(params: Any, ids: Any) -> Any:
        with jax.named_scope("embed"):
            x = params["embed"][ids]
        run = jax.checkpoint(block)
        x, _ = lax.scan(lambda x, w: (run(w, x), None), x, params["layers"])
        with jax.named_scope("head"):
            logits = (x @ params["head"]).astype("float32")
            return jnp.mean(jax.nn.logsumexp(logits, -1) - logits[..., 0])

    start = time.perf_counter()
    made = step(model, (params, S((b, t), "int32")), "adam")
    found = costtrace.profile(made.fn, *made.args, jit=made.jit, weights=0)
    said = training(found, made.state_bytes)
    assert time.perf_counter() - start < 20  # 2 s alone on this kind of machine
    per_layer = sum(x * y for x, y in shapes.values())
    assert found.parameters == layers * per_layer + 2 * vocab * d > 400e9
    scores = 2 * 2 * b * t * t * d  # q k^T and its product with v, the full square
    forward = layers * (2 * b * t * per_layer + scores) + 2 * b * t * d * vocab
    assert said.phases["forward"].matmul_flops == forward
    assert said.phases["recompute"].matmul_flops <= layers * (2 * b * t * per_layer + scores)
    assert said.model_flops == 3 * forward
    assert said.state_bytes == 2 * 2 * found.parameters + 4  # adam's moments in bfloat16, and its counter


def test_a_scan_of_ten_thousand_layers_takes_seconds() -> None:
    start = time.perf_counter()
    made = step(scanned_again, (S((10_000, 1024, 1024), "bfloat16"), S((8, 1024), "bfloat16")), "sgd")
    found = costtrace.profile(made.fn, *made.args, jit=made.jit, weights=0)
    assert time.perf_counter() - start < 10
    assert found.total.matmul_flops == 10_000 * 4 * 2 * 8 * 1024 * 1024
