"""jax.export artifacts without their Python code: the same products, boundary bytes and scopes as their functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export, lax

import costtrace
from costtrace.cli import main
from costtrace.errors import ShapeError, TraceError, UsageError
from costtrace.evidence import exported

S = jax.ShapeDtypeStruct
X = S((8, 16), "float32")
W = S((16, 16), "float32")
STACK = S((5, 16, 16), "float32")


def layers(ws: Any, x: Any) -> Any:
    def body(c: Any, w: Any) -> tuple[Any, Any]:
        with jax.named_scope("layer"):
            y = jnp.tanh(c @ w)
        return y, y.sum(-1)

    with jax.named_scope("stack"):
        return lax.scan(body, x, ws)


def attention(x: Any) -> Any:
    with jax.named_scope("attention"):
        q = x.reshape(8, 4, 4)
        with jax.named_scope("scores"):
            s = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", q, q))
        return jnp.einsum("hqk,khd->qhd", s, q).reshape(x.shape)


def network(x: Any, k: Any, table: Any, ids: Any) -> Any:
    with jax.named_scope("conv"):
        y = lax.conv_general_dilated(x, k, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    with jax.named_scope("pool"):
        y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    with jax.named_scope("embed"):
        return y.reshape(2, -1) @ table[ids]


def gradient(ws: Any, x: Any) -> Any:
    return jax.grad(lambda ws, x: layers(ws, x)[0].sum())(ws, x)


def once_more(ws: Any, x: Any) -> Any:
    def body(c: Any, w: Any) -> tuple[Any, None]:
        return jax.checkpoint(lambda c, w: jnp.tanh(c @ w))(c, w), None

    return jax.grad(lambda ws, x: lax.scan(body, x, ws)[0].sum())(ws, x)


def several(x: Any, w: Any) -> Any:
    first = lax.fori_loop(0, 3, lambda i, h: h @ w, x)
    either = lax.cond(first.sum() > 0, lambda h: h @ w, lambda h: h, first)
    return {"best": jnp.argmax(either, -1), "top": lax.top_k(either, 2)[0], "sorted": jnp.sort(either, -1)}


def lowp(x: Any, w: Any) -> Any:
    return lax.dot_general(
        x.astype(jnp.int8), w.astype(jnp.int8), (((1,), (0,)), ((), ())), preferred_element_type="int32"
    )


def scattered(x: Any, ids: Any) -> Any:
    return jnp.zeros((32, 16)).at[ids].add(x), jnp.where(x > 0, x, 0.0)[::2], jnp.pad(x, 1), lax.rev(x, (0,))


IDS = S((8,), "int32")
IMAGE = (S((2, 9, 9, 3), "float32"), S((3, 3, 3, 8), "float32"), S((50, 7), "bfloat16"), S((32,), "int32"))
ROWS: list[tuple[str, Callable[..., Any], tuple[Any, ...], bool]] = [
    ("scan", layers, (STACK, X), True),
    ("attention", attention, (X,), True),
    ("network", network, IMAGE, True),
    ("gradient", gradient, (STACK, X), False),
    ("remat", once_more, (STACK, X), False),
    ("loops and branches", several, (X, W), False),
    ("integers", lowp, (X, W), True),
    ("scatter", scattered, (X, IDS), False),
]  # fmt: skip


def artifact(folder: Path, fn: Callable[..., Any], args: tuple[Any, ...]) -> str:
    path = folder / "program.bin"
    path.write_bytes(export.export(jax.jit(fn))(*args).serialize())
    return str(path)


@pytest.mark.parametrize(("fn", "args", "same"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_an_artifact_costs_what_its_function_costs(tmp_path: Path, fn: Any, args: Any, same: bool) -> None:
    program, given, _ = exported.opened(artifact(tmp_path, fn, args))
    found, function = costtrace.profile(program, *given), costtrace.profile(fn, *args)
    assert found.name == function.name
    assert found.total.matmul_flops == function.total.matmul_flops
    assert found.total.conv_flops == function.total.conv_flops
    assert found.total.by_dtype == function.total.by_dtype
    assert found.total.bytes_fused == function.total.bytes_fused
    assert set(found.scopes()) == set(function.scopes())
    for path, cost in function.scopes().items():
        assert found.scopes()[path].matmul_flops == cost.matmul_flops
        if same:
            assert (found.instances[path], found.scopes()[path].bytes_fused) == (
                function.instances[path],
                cost.bytes_fused,
            )


def test_symbolic_sizes_are_filled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    b, t = export.symbolic_shape("b, t")
    path = artifact(tmp_path, lambda x, w: jax.nn.gelu(x @ w), (S((b, t, 16), "float32"), W))
    fn, args, _ = exported.opened(path, {"b": 3, "t": 5})
    assert args[0].shape == (3, 5, 16)
    assert costtrace.profile(fn, *args).total.matmul_flops == 2 * 3 * 5 * 16 * 16
    with pytest.raises(ShapeError, match=r"symbolic dimension 't' has no value"):
        exported.opened(path, {"b": 3})
    assert main(["trace", path, "--dim", "b=3", "--dim", "t=5", "--format", "json"]) == 0
    doc = json.loads(capsys.readouterr().out)
    assert doc["total"]["matmul_flops"] == 2 * 3 * 5 * 16 * 16
    assert "lowered" in {note["kind"] for note in doc["notes"]}


def test_trees_and_keywords_keep_their_place(tmp_path: Path) -> None:
    def fn(params: Any, *, x: Any) -> Any:
        return x @ params["w"]

    path = tmp_path / "tree.bin"
    path.write_bytes(export.export(jax.jit(fn))({"w": W, "unused": X}, x=X).serialize())
    program, args, _ = exported.opened(str(path))
    found = costtrace.profile(program, *args)
    assert found.parameters == 16 * 16 + 8 * 16
    assert found.weights()["w"].matmul_flops == found.total.matmul_flops == 2 * 8 * 16 * 16


@pytest.mark.parametrize("name", ["text", "dit", "vae"])
def test_a_klein_stage_is_the_same_as_an_artifact(tmp_path: Path, name: str) -> None:
    from costtrace import model

    found = model.find("klein")
    stage = next(s for s in found.stages(found.configure(res="256x256")) if s.name == name)
    fn, args = model.bind(stage)
    program, given, _ = exported.opened(artifact(tmp_path, fn, args))
    one, two = costtrace.profile(fn, *args, weights=0), costtrace.profile(program, *given, weights=0)
    assert one.total.matmul_flops == two.total.matmul_flops
    assert one.total.bytes_fused == two.total.bytes_fused
    assert one.parameters == two.parameters
    assert one.instances == two.instances
    assert {k: c.bytes_fused for k, c in one.scopes().items()} == {k: c.bytes_fused for k, c in two.scopes().items()}


def test_what_is_no_artifact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.bin"
    path.write_text("HloModule of nothing")
    with pytest.raises(UsageError, match=r"notes.bin is no jax.export artifact \(.*\): write one with jax.export"):
        exported.opened(str(path))
    with pytest.raises(UsageError, match=r"no file nowhere: give a jax.export artifact, or FILE.py:FUNCTION"):
        exported.opened("nowhere")
    assert main(["trace", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    good = artifact(tmp_path, attention, (X,))
    assert main(["trace", good, "--arg", "f32[2]"]) == 2
    assert "is an artifact, with arguments of its own" in capsys.readouterr().err


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    program, args, _ = exported.opened(artifact(tmp_path, jnp.linalg.eigvalsh, (W,)))
    with pytest.raises(TraceError, match=r"the artifact's custom-call '.*' cannot be read: profile its function"):
        costtrace.profile(program, *args)
