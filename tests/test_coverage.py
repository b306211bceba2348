"""How much of a program is counted exactly: the same line on every page, and --strict with several chips."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from costtrace.cli import main
from costtrace.core import EXACT, MODELLED, UNKNOWN, Cost
from costtrace.coverage import coverage, said

SOURCE = """
import jax, jax.numpy as jnp
from jax.extend.core import Primitive

theirs = Primitive("their_kernel")
theirs.def_abstract_eval(lambda x: x)

def waits(w, x):
    with jax.named_scope("loop"):
        y = jax.lax.while_loop(lambda c: jnp.sum(c) < 100.0, lambda c: jnp.tanh(c @ w["a"]), x)
    with jax.named_scope("eig"):
        return jnp.linalg.eigh(y.T @ y)[0]

def blind(w, x):
    return theirs.bind(x @ w["a"])

def exact(w, x):
    return jnp.tanh(x @ w["a"])

def args():
    shape = lambda *dims: jax.ShapeDtypeStruct(dims, "float32")
    return {"a": shape(64, 64)}, shape(128, 64)
"""
MODEL = """
from dataclasses import dataclass
import jax, jax.numpy as jnp
from costtrace.model import Model, Stage, option, param

@dataclass(frozen=True)
class Config:
    way: str = option("plain", help="plain or waiting")

def plain(x):
    return x @ param("w", (64, 64))

def waiting(x):
    return jax.lax.while_loop(lambda c: jnp.sum(c) < 1.0, jnp.tanh, plain(x))

def stages(config):
    fn = {"plain": plain, "waiting": waiting}[config.way]
    return [Stage("forward", fn, (jax.ShapeDtypeStruct((128, 64), "float32"),))]

MODEL = Model("own", Config, stages)
"""
FEW = ["--chips", "8", "--strategy", "tp,data"]
LINE = re.compile(r"^counted: .*$", re.MULTILINE)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(SOURCE)
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def out(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(list(argv)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["waits", "blind", "exact"])
def test_every_page_says_the_same_of_a_program(name: str, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["trace", f"own.py:{name}", "--args", "args"]
    (line,) = LINE.findall(out(capsys, *ask))
    assert line.startswith("counted: all 2 ops exactly") == (name == "exact")
    for more in ([*FEW], [*FEW, "--chip", "v5p"], ["--chip", "v6e,h100"], ["--chips", "8", "--strategy", "tp",
                 "--sort", "floor"]):  # fmt: skip
        assert LINE.findall(out(capsys, *ask, *more)) == [line], more
    one = json.loads(out(capsys, *ask, "--format", "json"))
    many = json.loads(out(capsys, *ask, *FEW, "--format", "json"))
    assert {key: many[key] for key in ("ops", "coverage", "status")} == {
        key: one[key] for key in ("ops", "coverage", "status")
    }
    out(capsys, *ask, "--html", "page.html")
    assert (own / "page.html").read_text().count(line) == 1


def test_pages_of_several_chips_say_it_too(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = out(capsys, "./model.py", "--way", "plain,waiting", *FEW)
    assert LINE.findall(page) == ["counted: all 1 ops exactly", said_of("waiting", capsys)]
    out(capsys, "./model.py", "--chips", "8", "--html", "page.html")
    assert "counted: all 1 ops exactly" in (own / "page.html").read_text()


def said_of(way: str, capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = LINE.findall(out(capsys, "./model.py", "--way", way))
    assert "partly unknown" in line
    return line


def test_configurations_that_differ_are_told_apart(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = " ".join(out(capsys, "./model.py", "--way", "plain,waiting").split())
    assert f"plain: counted: all 1 ops exactly waiting: {said_of('waiting', capsys)} " in page


def test_the_table_of_strategies_notes_what_is_unknown(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "\nnote unknown-trip: loop: a loop's trip count depends on data: one trip" in out(
        capsys, "trace", "own.py:waits", "--args", "args", *FEW
    )
    assert "\nnote unknown-primitive: no rule for 'their_kernel'" in out(
        capsys, "trace", "own.py:blind", "--args", "args", *FEW
    )


STRICT = {
    "a loop": (["trace", "own.py:waits", "--args", "args", *FEW], "a loop's trip count depends on data"),
    "a primitive": (["trace", "own.py:blind", "--args", "args", *FEW], "no rule for 'their_kernel'"),
    "one strategy": (["trace", "own.py:waits", "--args", "args", "--chips", "8", "--strategy", "tp", "--sort", "floor"],
                     "a loop's trip count depends on data"),
    "a model": (["./model.py", "--way", "waiting", *FEW], "a loop's trip count depends on data"),
    "a model's strategy": (["./model.py", "--way", "waiting", "--chips", "8", "--strategy", "tp", "--sort", "floor"],
                           "a loop's trip count depends on data"),
    "a rate": (["trace", "own.py:exact", "--args", "args", *FEW, "--chip", "bare.toml"],
               "no transcendental rate on bare"),
}  # fmt: skip


@pytest.mark.parametrize("name", STRICT)
def test_strict_is_strict_with_several_chips(name: str, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv, wanted = STRICT[name]
    from costtrace import chip

    lines = (chip.folder() / "v6e.toml").read_text().replace('name = "v6e"', 'name = "bare"').split("\n\n")
    (own / "bare.toml").write_text("\n\n".join(part for part in lines if "[transcendental" not in part))
    assert main(argv) == 0
    capsys.readouterr()
    assert main([*argv, "--strict"]) == 2
    err = capsys.readouterr().err
    assert wanted in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "more", [["--by", "dtype"], ["--depth", "1"], ["--layers"], ["--top", "3"], ["--unit", "mac"], ["--efficiency"]]
)
def test_an_option_that_strategies_have_no_place_for_is_refused(
    more: list[str], own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "own.py:exact", "--args", "args", *FEW, *more]) == 2
    assert capsys.readouterr().err == (
        f"costtrace: error: {more[0]} with --chips: it is for the rows of one strategy: add --strategy tp --sort "
        f"floor, or leave {more[0]} out\n"
    )


def test_shares_are_of_all_calls_flops() -> None:
    groups = [(EXACT, 2, Cost(vector_flops=30)), (MODELLED, 1, Cost(matmul_flops=10))]
    made = coverage([(3, MODELLED, groups), (1, EXACT, [(EXACT, 5, Cost(vector_flops=40))])])
    assert made.ops == {EXACT: 7, MODELLED: 1, UNKNOWN: 0}
    assert made.shares == {EXACT: (3 * 30 + 40) / 160, MODELLED: 3 * 10 / 160, UNKNOWN: 0}
    assert said(made.to_dict()) == "counted: 7 exactly (81.2 % of FLOPs), 1 modelled (18.8 % of FLOPs) of 8 ops"


def test_without_a_price_no_share_is_known_and_without_flops_stages_are_counted() -> None:
    blind = coverage([(1, UNKNOWN, [(UNKNOWN, 1, Cost()), (EXACT, 1, Cost(vector_flops=4))])])
    assert set(blind.shares.values()) == {None}
    moves = coverage([(1, EXACT, [(EXACT, 3, Cost())]), (1, MODELLED, [])])
    assert moves.shares == {EXACT: 0.5, MODELLED: 0.5, UNKNOWN: 0.0}
    sorts = coverage([(1, MODELLED, [(EXACT, 1, Cost()), (MODELLED, 1, Cost(integer_ops=9))])])
    assert said({**sorts.to_dict(), "total": {"flops": 0}}) == "counted: 1 exactly, 1 modelled of 2 ops"
