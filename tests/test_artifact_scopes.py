"""A jax.export artifact against its function, scope by scope: inner jits, random numbers, gradients, damage."""

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
from costtrace.errors import UsageError
from costtrace.evidence import exported
from costtrace.summary import Profile

S = jax.ShapeDtypeStruct
X, W, STACK = S((8, 16), "float32"), S((16, 16), "float32"), S((5, 16, 16), "float32")
IMAGE, TAPS = S((2, 8, 8, 3), "float32"), S((3, 3, 3, 4), "float32")
IDS, KEY = S((5,), "int32"), jax.eval_shape(lambda: jax.random.key(0))
NHWC = ("NHWC", "HWIO", "NHWC")
scope = jax.named_scope
Program = tuple[Callable[..., Any], tuple[Any, ...]]
PROGRAMS: dict[str, Program] = {}


def program(*args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def added(fn: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[fn.__name__] = fn, args
        return fn

    return added


def within(name: str, middle: Callable[[Any], Any]) -> None:
    """A program with `middle`, which jax lowers as a function of its own, between two products, in the first's scope"""

    def fn(w: Any, x: Any) -> Any:
        with scope("up"):
            y = middle(x @ w)
        with scope("down"):
            return y @ w

    PROGRAMS[name] = fn, (W, X)


within("relu", jax.nn.relu)
within("silu", jax.nn.silu)
within("where", lambda y: jnp.where(y > 0, y, 0.0))
within("clip", lambda y: jnp.clip(y, -1, 1))
within("var", lambda y: (y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-5))
within("hard_swish", jax.nn.hard_swish)
within("take", lambda y: jnp.take(y, jnp.arange(8), axis=0))
within("own jit", jax.jit(lambda y: jnp.tanh(y @ jnp.ones((16, 16)))))
within("cumsum", lambda y: jnp.cumsum(y, 0))
within("sort", lambda y: jnp.sort(y, -1) + jnp.argsort(y, -1) + jnp.median(y))
within("top_k", lambda y: y + lax.top_k(y, 3)[0].sum(-1, keepdims=True))


@program(W, X)
def one_jit_in_three_scopes(w: Any, x: Any) -> Any:
    @jax.jit
    def block(x: Any) -> Any:
        with scope("mm"):
            return jax.nn.relu(x @ w)

    for i in range(3):
        with scope(f"l{i}"):
            x = block(x)
    return block(block(x))


@program(W, X, KEY)
def dropout(w: Any, x: Any, key: Any) -> Any:
    with scope("up"):
        y = jax.nn.relu(x @ w)
    with scope("drop"):
        y = jnp.where(jax.random.bernoulli(key, 0.9, y.shape), y / 0.9, 0)
    with scope("noise"):
        return y @ w + jax.random.normal(key, y.shape) * jax.random.uniform(key, y.shape)


@program(S((8, 100), "float32"), S((2,), "uint32"))
def sampling(logits: Any, key: Any) -> Any:
    with scope("top"):
        _, ids = lax.top_k(logits, 5)
    with scope("pick"):
        return jnp.take_along_axis(ids, jax.random.categorical(key, logits)[:, None], 1)


def layer(c: Any, w: Any) -> Any:
    with scope("attention"):
        c = c + jax.nn.silu(c @ w)
    with scope("mlp"):
        return c + jax.nn.relu(c @ w) * lax.rsqrt(jnp.mean(c * c, -1, keepdims=True))


@program(STACK, X)
def scanned(ws: Any, x: Any) -> Any:
    with scope("stack"):
        return lax.scan(lambda c, w: (layer(c, w), c.mean()), x, ws, reverse=True)


@program(STACK, X)
def rematerialised(ws: Any, x: Any) -> Any:
    def loss(ws: Any) -> Any:
        with scope("stack"):
            y = lax.scan(lambda c, w: (jax.checkpoint(layer)(c, w), None), x, ws)[0]
        with scope("loss"):
            return jnp.mean(y**2)

    return jax.value_and_grad(loss)(ws)


@program(W, X)
def gradient(w: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        with scope("up"):
            y = jax.nn.silu(x @ w)
        with scope("loss"):
            return jax.nn.logsumexp(y @ w, -1).sum()

    return jax.grad(loss)(w)


@program(W, X)
def jvp_of_a_gradient(w: Any, x: Any) -> Any:
    with scope("h"):
        return jax.jvp(jax.grad(lambda x: jax.nn.softplus(x @ w).sum()), (x,), (x,))


@program(W, X)
def custom_derivative(w: Any, x: Any) -> Any:
    @jax.custom_vjp
    def f(x: Any, w: Any) -> Any:
        return jax.nn.silu(x @ w)

    def backward(kept: Any, g: Any) -> Any:
        with scope("own"):
            return jnp.where(kept[0] > 0, g @ kept[1].T, 0), kept[0].T @ g

    f.defvjp(lambda x, w: (f(x, w), (x, w)), backward)
    with scope("f"):
        return jax.grad(lambda w: f(x, w).sum())(w)


@program(W, X)
def branches(w: Any, x: Any) -> Any:
    def small(x: Any) -> Any:
        with scope("small"):
            return jax.nn.relu(x @ w)

    def large(x: Any) -> Any:
        with scope("large"):
            return jax.nn.silu(x @ w @ w)

    with scope("either"):
        x = lax.switch(x[0, 0].astype("int32"), [small, large, lambda x: x], x)
    with scope("gate"):
        return lax.cond(x.sum() > 0, lambda x: jax.nn.silu(x @ w), lambda x: jnp.clip(x, 0, 1), x)


@program(W, X)
def loops(w: Any, x: Any) -> Any:
    def step(c: Any) -> Any:
        with scope("step"):
            return c[0] + 1, jax.nn.relu(c[1] @ w)

    with scope("counted"):
        x = lax.fori_loop(0, 6, lambda i, c: jax.nn.hard_swish(c @ w), x)
    with scope("open"):
        return lax.while_loop(lambda c: jnp.any(c[1] > 0), step, (0, x))


@program(W, S((3, 8, 16), "float32"))
def batched(w: Any, xs: Any) -> Any:
    def one(x: Any) -> Any:
        with scope("one"):
            return jax.nn.softmax(jax.nn.silu(x @ w))

    return jax.vmap(one)(xs)


@program(S((8, 64), "float32"))
def transforms(x: Any) -> Any:
    with scope("there"):
        y = jnp.fft.rfft(x)
    with scope("back"):
        return jnp.fft.irfft(y), jnp.fft.fft2(x)


@program(IMAGE, TAPS)
def pooling(x: Any, k: Any) -> Any:
    def loss(k: Any, x: Any) -> Any:
        with scope("conv"):
            y = lax.conv_general_dilated(x, k, (1, 1), "SAME", rhs_dilation=(2, 2), dimension_numbers=NHWC)
        with scope("pool"):
            y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        return jax.nn.relu(y).sum()

    return jax.grad(loss, (0, 1))(k, x)


@program(IMAGE, TAPS)
def transposed(x: Any, k: Any) -> Any:
    with scope("up"):
        y = jax.nn.relu(lax.conv_transpose(x, k, (2, 2), "SAME"))
    with scope("depthwise"):
        return lax.conv_general_dilated(
            y, jnp.ones((3, 3, 1, 4)), (1, 1), "SAME", dimension_numbers=NHWC, feature_group_count=4
        )


@program(S((100, 16), "float32"), IDS, X)
def rows(table: Any, ids: Any, x: Any) -> Any:
    with scope("read"):
        e = jnp.take(table, ids, axis=0)
    with scope("written"):
        u = table.at[ids].add(e).at[ids].max(e)
    with scope("placed"):
        return lax.dynamic_update_slice(u, x, (ids[0], 0)), table[ids, 2]


@program(X, W)
def integers(x: Any, w: Any) -> Any:
    with scope("quantized"):
        q = jnp.clip(jnp.round(x / jnp.max(jnp.abs(x)) * 127), -127, 127).astype("int8")
    with scope("product"):
        return lax.dot_general(q, w.astype("int8"), (((1,), (0,)), ((), ())), preferred_element_type="int32")


def artifact(folder: Path, fn: Callable[..., Any], args: tuple[Any, ...], **how: Any) -> str:
    path = folder / "program.bin"
    path.write_bytes(export.export(jax.jit(fn), **how)(*args).serialize())
    return str(path)


def figures(profile: Profile) -> dict[Any, Any]:
    """What an artifact and its function have in common, by scope and by phase."""
    rows = {(row.key, "row"): row.cost for row in profile.rows()} | {"": profile.total}
    found: dict[Any, Any] = {
        key: (c.matmul_flops, c.conv_flops, c.fft_flops, c.bytes_fused, c.bytes_scoped) for key, c in rows.items()
    }
    phases = {row.key: row.cost.matmul_flops + row.cost.conv_flops for row in profile.rows(by="phase")}
    return found | {phase: flops for phase, flops in phases.items() if flops}


@pytest.mark.parametrize("name", PROGRAMS)
def test_scope_by_scope(tmp_path: Path, name: str) -> None:
    fn, args = PROGRAMS[name]
    read, given, _ = exported.opened(artifact(tmp_path, fn, args))
    assert figures(costtrace.profile(read, *given)) == figures(costtrace.profile(fn, *args))


def test_sizes_filled_in_leave_scopes_and_equal_products_as_they_are(tmp_path: Path) -> None:
    def fn(w: Any, x: Any) -> Any:
        with scope("a"):
            y = jax.nn.silu(x @ w)
        with scope("b"):
            z = jax.nn.silu(x @ w)
        return y, lax.scan(lambda c, _: (layer(c, w), None), z, None, length=3)[0]

    (b,) = export.symbolic_shape("b")
    path = artifact(tmp_path, fn, (W, S((b, 16), "float32")))
    read, given, _ = exported.opened(path, {"b": 8})
    found = costtrace.profile(read, *given)
    assert found.total.matmul_flops == (1 + 1 + 3 * 2) * 2 * 8 * 16 * 16  # a, b, three layers of two
    assert figures(found) == figures(costtrace.profile(fn, W, X))


def test_sizes_that_jax_computes_by_functions_of_its_own(tmp_path: Path) -> None:
    def fn(x: Any, y: Any) -> Any:
        with scope("a"):
            return jax.nn.silu(x).sum() * y

    m, d = export.symbolic_shape("2*m, m+1")
    read, given, _ = exported.opened(artifact(tmp_path, fn, (S((m, 4), "float32"), S((d,), "float32"))), {"m": 4})
    sizes = S((2 * 4, 4), "float32"), S((4 + 1,), "float32")
    assert figures(costtrace.profile(read, *given)) == figures(costtrace.profile(fn, *sizes))


@pytest.mark.parametrize("platforms", [("tpu",), ("cuda",), ("cpu", "tpu")], ids="-".join)
def test_an_artifact_for_another_machine(tmp_path: Path, platforms: tuple[str, ...]) -> None:
    fn, args = PROGRAMS["own jit"]
    read, given, _ = exported.opened(artifact(tmp_path, fn, args, platforms=platforms))
    assert figures(costtrace.profile(read, *given)) == figures(costtrace.profile(fn, *args))


def ragged(x: Any, w: Any, sizes: Any) -> Any:
    with scope("experts"):
        return jax.nn.silu(lax.ragged_dot(x, w, sizes))


GROUPS = (X, S((4, 16, 8), "float32"), S((4,), "int32"))


def test_a_ragged_product_of_an_accelerator_is_the_functions(tmp_path: Path) -> None:
    read, given, notes = exported.opened(artifact(tmp_path, ragged, GROUPS, platforms=("tpu",)))
    assert costtrace.profile(read, *given).total.matmul_flops == 2 * 8 * 16 * 8
    assert [note.kind for note in notes] == ["lowered"]


def test_a_ragged_product_made_dense_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = artifact(tmp_path, ragged, GROUPS, platforms=("cpu",))
    assert main(["trace", path, "--format", "json"]) == 0
    doc = json.loads(capsys.readouterr().out)
    assert doc["total"]["matmul_flops"] == 4 * 2 * 8 * 16 * 8  # each of the four groups takes every row
    assert doc["status"] == "modelled"
    notes = {note["kind"]: note for note in doc["notes"]}
    assert "products but for ragged ones" in notes["lowered"]["text"]
    assert (notes["dense"]["scope"], "export for tpu or cuda" in notes["dense"]["text"]) == ("experts", True)


def test_an_artifact_of_several_devices_is_refused(tmp_path: Path) -> None:
    mesh = jax.sharding.AbstractMesh((4,), ("d",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    path = artifact(tmp_path, jnp.sin, (S((8, 16), "float32", sharding=split),), platforms=("tpu",))
    with pytest.raises(UsageError, match=r"program.bin is a program of 4 devices: export it for one"):
        exported.opened(path)


def test_damage_and_sizes_out_of_range_are_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (b,) = export.symbolic_shape("b")
    path = Path(artifact(tmp_path, jax.nn.silu, (S((b, 16), "float32"),)))
    assert main(["trace", str(path), "--dim", "b=0"]) == 2
    assert "cannot be called with these sizes" in (said := capfd.readouterr().err)
    assert said.count("\n") == 1
    assert main(["trace", str(path), "--dim", "b=2", "--dim", "b=3"]) == 2
    assert "--dim b is given twice, as 2 and 3" in capfd.readouterr().err
    body = export.deserialize(bytearray(path.read_bytes())).mlir_module_serialized
    whole = path.read_bytes()
    path.write_bytes(whole.replace(body[:4], b"none", 1))  # MLIR's first bytes; any other damage may crash jaxlib
    assert main(["trace", str(path), "--dim", "b=2"]) == 2
    said = capfd.readouterr().err
    assert ("program.bin is damaged: " in said, said.count("\n")) == (True, 1)


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    for target in ("nothing.bin", "no/where", "nothing.py"):
        assert main(["trace", target]) == 2
        assert f"no file {target}: give FILE.py:FUNCTION, a jax.export artifact" in capsys.readouterr().err
