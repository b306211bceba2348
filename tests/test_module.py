"""Modules of other people's libraries, unchanged: weights, state, scopes by the module tree, what is fixed."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn
from flax import nnx

import costtrace
from costtrace.cli import main
from costtrace.errors import TraceError, UsageError
from costtrace.evidence import xla
from costtrace.module import haiku as haiku_of
from costtrace.module.call import constructed, opened
from costtrace.report import views

S = jax.ShapeDtypeStruct
B, D, H = 4, 8, 32  # batch, width, inner width
X = S((B, D), "float32")
FLOPS = 2 * B * (D * H + H * D)  # one block: up and down
PARAMS = D * H + H + H * D + D


class Linen(nn.Module):
    """Two blocks; batch norm and dropout in training."""

    norm: bool = False

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        for i in range(2):
            x = x + nn.Dense(D, name=f"down_{i}")(nn.relu(nn.Dense(H, name=f"up_{i}")(x)))
        if self.norm:
            x = nn.BatchNorm(use_running_average=not train)(x)
            x = nn.Dropout(0.5, deterministic=not train)(x)
        return x

    @nn.compact
    def half(self, x: Any) -> Any:
        return nn.Dense(H)(x)


class NnxBlock(nnx.Module):
    def __init__(self, width: int, *, rngs: nnx.Rngs) -> None:
        self.up = nnx.Linear(width, H, rngs=rngs)
        self.down = nnx.Linear(H, width, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return x + self.down(nnx.relu(self.up(x)))


class Nnx(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.blocks = nnx.List([NnxBlock(D, rngs=rngs) for _ in range(2)])

    def __call__(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


class NnxScan(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs) -> None:
        @nnx.split_rngs(splits=2)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def made(rngs: nnx.Rngs) -> NnxBlock:
            return NnxBlock(D, rngs=rngs)

        self.blocks = made(rngs)

    def __call__(self, x: Any) -> Any:
        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        def forward(block: NnxBlock, x: Any) -> Any:
            return block(x)

        return forward(self.blocks, x)


class EqxBlock(eqx.Module):
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        one, two = jax.random.split(key)
        self.up, self.down = eqx.nn.Linear(D, H, key=one), eqx.nn.Linear(H, D, key=two)

    def __call__(self, x: Any) -> Any:
        return x + jax.vmap(self.down)(jax.nn.relu(jax.vmap(self.up)(x)))


class Eqx(eqx.Module):
    blocks: list[EqxBlock]

    def __init__(self, key: Any) -> None:
        self.blocks = [EqxBlock(k) for k in jax.random.split(key, 2)]

    def __call__(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def nnx_factory(rngs: nnx.Rngs) -> Nnx:
    return Nnx(rngs=rngs)


def profiled(fn: Any, *args: Any, **keywords: Any) -> costtrace.Profile:
    fn, args = opened(fn, args, keywords)
    return costtrace.profile(fn, *args, weights=0)


BY_PATH = {f"blocks[{i}]/{name}" for i in range(2) for name in ("up", "down")}
TARGETS: list[tuple[str, Callable[[], Any], set[str]]] = [
    ("linen", lambda: Linen(), {f"Linen/{name}_{i}" for i in range(2) for name in ("up", "down")}),
    ("linen class", lambda: Linen, {"Linen/up_0", "Linen/down_1"}),
    ("linen partial", lambda: functools.partial(Linen(), train=False), {"Linen/up_0", "Linen/down_1"}),
    ("nnx", lambda: Nnx(rngs=nnx.Rngs(0)), BY_PATH),
    ("nnx class", lambda: Nnx, BY_PATH),
    ("nnx factory", lambda: nnx_factory, BY_PATH),
    ("nnx scanned", lambda: NnxScan, {"blocks/up", "blocks/down"}),
    ("equinox", lambda: Eqx(jax.random.key(0)), BY_PATH),
    ("equinox class", lambda: Eqx, BY_PATH),
    ("equinox partial", lambda: functools.partial(Eqx, jax.random.key(0)), BY_PATH),
]


@pytest.mark.parametrize(("make", "scopes"), [row[1:] for row in TARGETS], ids=[row[0] for row in TARGETS])
def test_a_module_is_its_own_model(make: Callable[[], Any], scopes: set[str]) -> None:
    found = profiled(make(), X)
    assert found.parameters == 2 * PARAMS
    assert found.total.matmul_flops == 2 * FLOPS
    assert found.total.weight_bytes == 4 * 2 * PARAMS
    assert found.exact
    assert scopes <= set(found.scopes())
    assert not any("eqx.nn" in path for path in found.scopes())  # siblings by path, not by one name for all
    each = {path: cost.matmul_flops for path, cost in found.scopes().items() if path in BY_PATH}
    assert set(each.values()) <= {FLOPS // 2}


@pytest.mark.xla
@pytest.mark.parametrize("make", [row[1] for row in TARGETS if "scan" not in row[0]])
def test_the_opened_function_is_the_one_that_xla_sees(make: Callable[[], Any]) -> None:
    fn, args = opened(make(), (X,))
    assert sum(i.flops for i in xla.lowered(fn, args)) == 2 * FLOPS


def test_the_public_function_takes_modules() -> None:
    for module in (Linen(), Nnx, Eqx):
        assert costtrace.profile(module, X).parameters == 2 * PARAMS
    symbols = jax.export.symbolic_shape("b")
    assert costtrace.profile(Linen(), S((*symbols, D), "float32"), dims={"b": B}).total.matmul_flops == 2 * FLOPS


def test_a_function_of_arrays_comes_back_as_it_is() -> None:
    def fn(x: Any) -> Any:
        return x @ x.T

    partial = functools.partial(fn)
    assert opened(fn, (X,)) == (fn, (X,))
    assert opened(partial, (X, 3)) == (partial, (X, 3))  # jax traces numbers
    assert opened(fn, (X,), {}) == (fn, (X,))


def test_state_is_read_and_written_where_the_call_does() -> None:
    net = Linen(norm=True)
    calm, busy = profiled(net, X), profiled(net, X, train=True)
    assert calm.parameters == busy.parameters == 2 * PARAMS + 2 * D  # scale and bias of the norm
    assert calm.total.weight_bytes == 4 * calm.parameters
    # In training: the running mean and variance are read and written again, and a key is read.
    fn, args = opened(net, (X,), {"train": True})
    assert set(args[1]) == {"batch_stats", "(key)"}
    assert len(jax.eval_shape(fn, *args)[0]) == 1
    assert [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(fn, *args)[1])] == [(D,), (D,)]
    fn, args = opened(net, (X,))
    assert jax.tree.leaves(jax.eval_shape(fn, *args)[1]) == []


def test_nnx_state_is_returned_only_where_it_changed() -> None:
    norm = nnx.BatchNorm(D, rngs=nnx.Rngs(0))
    fn, args = opened(norm, (X,), {"use_running_average": True})
    assert jax.tree.leaves(jax.eval_shape(fn, *args)[1]) == []
    fn, args = opened(norm, (X,), {"use_running_average": False})
    assert [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(fn, *args)[1])] == [(D,), (D,)]
    assert isinstance(norm.mean[...], jax.Array)  # the user's own module is as it was


def test_methods_and_batches() -> None:
    half = profiled(Linen().half, X)
    assert (half.name, half.parameters) == ("Linen.half", D * H + H)
    assert half.total.matmul_flops == 2 * B * D * H
    batched = profiled(eqx.filter_vmap(Eqx(jax.random.key(0))), S((3, B, D), "float32"))
    assert batched.total.matmul_flops == 3 * 2 * FLOPS
    assert BY_PATH <= set(batched.scopes())


@pytest.mark.parametrize("model", [Nnx(rngs=nnx.Rngs(0)), Eqx(jax.random.key(0))], ids=["nnx", "equinox"])
def test_a_module_may_be_an_argument(model: Any) -> None:
    def loss(model: Any, x: Any, act: Callable[[Any], Any], power: int = 2) -> Any:
        return jnp.mean(act(model(x)) ** power)

    found = profiled(loss, model, X, jnp.tanh)
    assert (found.name, found.parameters, found.total.matmul_flops) == ("loss", 2 * PARAMS, 2 * FLOPS)
    assert BY_PATH <= set(found.scopes())
    grads = profiled(lambda m, x: eqx.filter_grad(lambda m, x: m(x).sum())(m, x), Eqx(jax.random.key(0)), X)
    assert grads.total.matmul_flops == 3 * 2 * FLOPS - 2 * (
        FLOPS // 2
    )  # less the first input's gradient, and a last result that nobody asks for


def test_classes_are_put_back() -> None:
    before = (NnxBlock.__dict__["__call__"], nnx.Linear.__dict__["__call__"], eqx.nn.Linear.__dict__["__call__"])
    profiled(Nnx, X)
    profiled(Eqx, X)
    with pytest.raises(TraceError):
        profiled(Nnx, S((B, D + 1), "float32"))
    after = (NnxBlock.__dict__["__call__"], nnx.Linear.__dict__["__call__"], eqx.nn.Linear.__dict__["__call__"])
    assert before == after


def test_what_constructors_are_told_apart_by() -> None:
    def loss(key: Any) -> Any:
        return jax.random.normal(key, (3,)).sum()

    assert constructed(loss, (S((2,), "uint32"),)) is loss  # a function of a key is no constructor
    assert isinstance(constructed(Nnx), Nnx)
    assert isinstance(constructed(nnx_factory), Nnx)
    assert isinstance(constructed(Eqx), Eqx)


def test_haiku() -> None:
    hk = pytest.importorskip("haiku")

    def forward(x: Any, train: bool = False) -> Any:
        for _ in range(2):
            x = x + hk.nets.MLP([H, D])(x)
        x = hk.BatchNorm(True, True, 0.9)(x, train)
        return hk.dropout(hk.next_rng_key(), 0.5, x) if train else x

    both = hk.transform_with_state(forward)
    assert haiku_of.function(both) is forward
    for train in (False, True):
        found = profiled(both, X, train)
        assert (found.name, found.parameters, found.total.matmul_flops) == ("forward", 2 * PARAMS + 2 * D, 2 * FLOPS)
        assert {"mlp/linear_0", "mlp_1/linear_1"} <= set(found.scopes())
    plain = hk.without_apply_rng(hk.transform(lambda x: hk.Linear(H)(x)))
    assert profiled(plain, X).total.matmul_flops == 2 * B * D * H


FILE = """
import functools, jax, haiku_or_not
from test_module import Eqx, Linen, Nnx, NnxBlock, nnx_factory
net = Linen(norm=True)
"""


@pytest.fixture
def here(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "nets.py").write_text(FILE.replace(", haiku_or_not", ""))
    monkeypatch.setitem(sys.modules, "test_module", sys.modules[__name__])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


RUNS = [
    "nets.py:net --arg f32[4,8]",
    "nets.py:net --arg x=f32[4,8] --arg train=True",
    "nets.py:Nnx --arg f32[b,8] --dim b=4",
    "nets.py:nnx_factory --arg f32[4,8]",
    "nets.py:Eqx --arg x=f32[4,8]",
]


@pytest.mark.parametrize("command", RUNS)
def test_the_command_line_takes_modules(here: Any, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", *command.split(), "--format", "csv", "--depth", "2"]) == 0
    assert "up" in capsys.readouterr().out


ERRORS = {
    "nets.py:net --arg f32[4]": "Linen failed while jax traced it: ",
    "nets.py:net": "nets.py:net: missing a required argument: 'x': it takes (x",
    "nets.py:Nnx --arg f32[4,9]": "Nnx failed while jax traced it: TypeError: dot_general requires contracting",
    "nets.py:NnxBlock --arg f32[4,8]": "NnxBlock needs width to be made: give a function that makes it, or functools",
    "nets.py:Nnx --arg y=f32[4,8]": "nets.py:Nnx: no argument 'y': it takes (x",
    "nets.py:Eqx --arg f32[4,8] --arg f32[4,8]": "nets.py:Eqx: 2 arguments are too many: it takes (x",
}


@pytest.mark.parametrize("command", list(ERRORS))
def test_wrong_calls_are_one_line(here: Any, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", *command.split()]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"costtrace: error: {ERRORS[command]}")
    assert err.count("\n") == 1


def test_what_is_no_target() -> None:
    with pytest.raises(UsageError, match="a int cannot be traced: give a function, a module or a haiku transform"):
        opened(3, (X,))


def test_the_model_of_the_page_is_short_and_runs_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parent.parent / "docs" / "add-a-model.md").read_text()
    spec = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    assert len(spec.splitlines()) < 40
    (tmp_path / "tiny.py").write_text(spec)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main([str(tmp_path / "tiny.py"), "--tokens", "64", "--width", "128", "--format", "csv"]) == 0
    assert "block" in capsys.readouterr().out


def test_a_modules_own_work_is_in_no_scope_and_the_pages_say_so() -> None:
    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.a = nnx.Linear(8, 16, rngs=rngs)
            self.b = nnx.Linear(16, 8, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.b(self.a(x) * 2)

    made = costtrace.profile(nnx.eval_shape(lambda: Net(nnx.Rngs(0))), jax.ShapeDtypeStruct((4, 8), "float32"))
    rows = {row.key: row.cost for row in made.rows()}
    assert set(rows) == {"a", "b", "."} and rows["."].flops == 4 * 16
    root = Path(__file__).parent.parent
    for page in ("README.md", "docs/conventions.md"):
        assert f"`{views.label('.')}`" in (root / page).read_text()
