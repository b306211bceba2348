"""A user's files: functions, a model, rules; and the same with a mistake in each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from costtrace import chip
from costtrace.rules import table

MINE = """
import jax
import jax.numpy as jnp

def block(x, w, n=2, *, act="silu"):
    for i in range(n):
        with jax.named_scope(f"layer_{i}"):
            x = getattr(jax.nn, act)(x @ w)
    return x

def plain(x, w):
    return x @ w

def search(x):
    with jax.named_scope("search"):
        return jax.lax.while_loop(lambda c: c.sum() < 3, lambda c: c * c, x)

def either(x):
    with jax.named_scope("either"):
        return jax.lax.cond(x.sum() > 0, lambda x: x @ x, lambda x: x, x)

def broken(x):
    raise ValueError("the sizes do not fit")

def arguments():
    return {"w": jax.ShapeDtypeStruct((8, 16), "bfloat16")}, jax.ShapeDtypeStruct((4, 8), "bfloat16")

def with_tree(params, x):
    with jax.named_scope("up"):
        return x @ params["w"]

def tree(s):
    return jax.ShapeDtypeStruct(s, "float32")

def failing():
    return [][0]

SIZE = 3
"""
PRICED = """
import costtrace
from jax.core import ShapedArray
from jax.extend.core import Primitive

def priced(name, formula):
    made = Primitive(name)
    made.def_abstract_eval(lambda x: ShapedArray(x.shape, x.dtype))
    costtrace.rule(name)(formula)
    return made.bind

no_cost = priced("test_cli_no_cost", lambda op: 3)
negative = priced("test_cli_negative", lambda op: costtrace.Cost(vector_flops=-1))
fraction = priced("test_cli_fraction", lambda op: costtrace.Cost(by_dtype={"float32": op.inputs[0].size / 3}))
failing = priced("test_cli_failing", lambda op: costtrace.Cost(vector_flops=op.inputs[0].length))
"""
MODEL = '''
"""A model in a file of its own."""
import jax
from dataclasses import dataclass
from costtrace.model import Model, Stage, option, param

@dataclass(frozen=True)
class Config:
    tokens: int = option(8, help="tokens")

def forward(x):
    return x @ param("w", (16, 32))

MODEL = Model("small", Config, lambda c: [Stage("run", forward, (jax.ShapeDtypeStruct((c.tokens, 16), "bfloat16"),))])
'''


def folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with all of them in it, as the working folder; the rules that they register are forgotten again."""
    mistakes = {
        "bad": "import nothing_of_that_name\n",
        "wrong": "def f(:\n",
        "clash": MODEL.replace("tokens: int", "depth: int"),
        "alone": MODEL.replace("[Stage(", "Stage(").replace("))])", ")))"),
        "undecorated": MODEL.replace("@dataclass(frozen=True)", ""),
        "plain": MODEL.replace('option(8, help="tokens")', "8"),
        "raising": MODEL.replace("c.tokens", "c.width"),
    }
    for name, text in ({"mine": MINE, "small": MODEL, "priced": PRICED} | mistakes).items():
        (path / f"{name}.py").write_text(text)
    head, _, tail = (chip.folder() / "v6e.toml").read_text().partition("[hbm.bandwidth]")
    (path / "slow.toml").write_text(head + tail[tail.index("\n[") :])
    monkeypatch.chdir(path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(table, "RULES", dict(table.RULES))
    return path


def hears(number: int, command: list[str]) -> list[str]:
    """The command line of a process that a signal ends, where the shell that began the tests ignores it too. It sets
    the signal itself: a fork of this process would have jax's threads."""
    first = f"import os, signal, sys; signal.signal({int(number)}, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-S", "-c", first, *command]
