"""The command line as a user meets it: whole outputs (tests/golden), one-line errors, exit codes, what it imports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from costtrace import model
from costtrace.cli import main
from costtrace.cli.argument import Array, parse
from costtrace.cli.group import COMMANDS

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

SIZE = 3
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


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's files in it, as the working folder."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "small.py").write_text(MODEL)
    (tmp_path / "bad.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "wrong.py").write_text("def f(:\n")
    (tmp_path / "clash.py").write_text(MODEL.replace("tokens: int", "depth: int"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """run("klein", "--res", ...): what it prints; it must succeed, and say nothing on stderr."""

    def printed(*argv: str) -> str:
        code = main(argv)
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return out

    return printed


GOLDEN = {
    "klein-help.txt": "klein --help",
    "trace-help.txt": "trace --help",
    "chips.txt": "chips",
    "chips-v6e.txt": "chips v6e",
    "klein.txt": "klein",
    "klein-1360x768.txt": "klein --res 1360x768",
    "klein-l4.txt": "klein --res 1360x768 --chip l4 --efficiency",
    "klein-primitive.txt": "klein --by primitive --sort unfused_time --top 6",
    "klein-depth-1.md": "klein --depth 1 --format md",
    "klein-depth-1.tex": "klein --depth 1 --format latex",
    "klein-depth-1.csv": "klein --depth 1 --format csv",
    "klein-chips.txt": "klein --depth 1 --chip v6e,v5p,l4,a100,h100,b200",
    "klein-sizes.txt": "klein --depth 1 --res 512x512,1360x768",
    "klein-explain.txt": "klein --explain single/attention",
    "trace.txt": "trace mine.py:block --arg x=bf16[1024,3072] --arg w=bf16[3072,3072]",
    "trace-layers.txt": "trace mine.py:block --arg x=bf16[4,8] --arg bf16[n,n] --dim n=8 --arg n=3 --layers --unit mac",
    "trace-unknown.txt": "trace mine.py:search --arg f32[8,8]",
}


@pytest.mark.parametrize(("name", "command"), GOLDEN.items(), ids=GOLDEN)
def test_whole_output(
    name: str, command: str, here: Path, run: Callable[..., str], golden: Callable[[str, str], None]
) -> None:
    golden(name, run(*command.split()))


ERRORS = {
    "klien": 'unknown model "klien": did you mean klein? costtrace models lists them',
    "nothing-like-it": 'unknown model "nothing-like-it": costtrace models lists them',
    "klein --chip v9": "no chip 'v9': known are ",
    "klein --chip nofile.toml": "no chip file 'nofile.toml': give the path of a TOML file, or a name: ",
    "klein --rez 512x512": "no such option '--rez'. Did you mean '--res'? (costtrace klein --help)",
    "klein --res 512": "res 512: must be WIDTHxHEIGHT in pixels: try 1360x768",
    "klein --res 500x512": "res 500x512: each side must be a multiple of 16: try 496x512",
    "klein --res 512x512,500x512": "res 500x512: each side must be a multiple of 16: try 496x512",
    "klein --steps 0": "steps 0: must be a whole number, 1 or more",
    "klein --dtype int99": "dtype int99: must be one of bfloat16, float16, float32",
    "klein --by part": "invalid value for '--by': 'part' is not one of 'scope', ",
    "klein --depth none": "invalid value for '--depth': 'none' is not a valid integer range (costtrace klein --help)",
    "klein --sort size": "--sort size: the table by scope has no such column: it has part, flops, useful, ",
    "klein --explain sinlge/gate": "--explain sinlge/gate: no such row: did you mean single/gate",
    "klein extra": "got unexpected extra argument (extra) (costtrace klein --help)",
    "chips v9": "no chip 'v9': known are ",
    "trace": "missing argument 'FILE.py:FUNCTION|MODULE.hlo' (costtrace trace --help)",
    "trace mine.py": "mine.py: name the function too, as in mine.py:forward",
    "trace nofile.py:f": "no file nofile.py: give the path of a Python file, as in model.py:forward",
    "trace no.such:f": "no module no.such: give FILE.py:FUNCTION, or MODULE:FUNCTION",
    "trace mine.py:plian": "mine.py has no function 'plian': did you mean plain?",
    "trace mine.py:SIZE": "mine.py: SIZE is a int, not a function",
    "trace bad.py:f": "bad.py failed while it was loaded: No module named 'nothing_of_that_name': install it, or mend",
    "trace wrong.py:f": "wrong.py failed while it was loaded: SyntaxError: ",
    "trace mine.py:broken --arg f32[2]": "broken failed while jax traced it: ValueError: the sizes do not fit (at ",
    "trace mine.py:plain --arg f32[2,3]": "mine.py:plain: missing a required argument: 'w': it takes (x, w); add",
    "trace mine.py:plain --arg x=f32[2] --arg x=f32[2]": "mine.py:plain: an argument is given twice: use each",
    "trace mine.py:plain --arg y=f32[2]": "mine.py:plain: no argument 'y': it takes (x, w)",
    "trace mine.py:plain --arg x=f32(2)": "--arg 'x=f32(2)': write NAME=DTYPE[SIZE,...], as in 'x=bf16[1024,3072]', or",
    "trace mine.py:plain --arg x=f32[2;3]": "--arg 'x=f32[2;3]': '2;3' is not a size: write NAME=DTYPE[SIZE,...]",
    "trace mine.py:plain --arg f32[n,3]": "--arg 'f32[n,3]': the size 'n' has no value: add --dim n=8",
    "trace mine.py:plain --arg f32[] --dim n": "--dim 'n': write --dim NAME=NUMBER",
    "trace mine.py:plain --arg x=f99[2] --arg f32[2]": "--arg float99[2]: no dtype 'float99': try bf16, f32, i32, u8",
    "trace mine.py:plain --arg i64[2] --arg i64[2]": "--arg int64[2]: jax narrows int64 to 32 bits: set JAX_ENABLE",
    "trace mine.py:with_tree --args arguments --arg f32[2]": "--args and --arg: give one of the two",
    "trace mine.py:with_tree --args argument": "mine.py has no function 'argument': did you mean arguments?",
    "trace mine.py:search --arg f32[8,8] --strict": "search: at scope search",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --trips a=3": "trips names the scope 'a', where no loop",
    "nofile.py": "no file nofile.py",
    "mine.py": "mine.py has no MODEL",
    "clash.py": "model small: its option 'depth' is costtrace's own: give the field another name",
}  # fmt: skip


@pytest.mark.parametrize("command", ERRORS)
def test_an_error_is_one_line_that_names_thing_place_and_fix(
    command: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(command.split())
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith(f"costtrace: error: {ERRORS[command]}")
    assert err.count("\n") == 1 and err.endswith("\n")


def test_a_functions_failure_names_its_own_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["trace", "mine.py:broken", "--arg", "f32[2]"])
    line = MINE.splitlines().index('    raise ValueError("the sizes do not fit")') + 1
    assert capsys.readouterr().err.rstrip().endswith(f"mine.py:{line})")


def test_a_bug_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("costtrace.report.listing.models", lambda names, form: {}["key"])
    monkeypatch.delenv("COSTTRACE_TRACEBACK", raising=False)
    assert main(["models"]) == 70
    err = capsys.readouterr().err
    assert err.startswith("costtrace: error: a bug of costtrace, at test_cli.py:") and "KeyError: 'key'" in err
    assert "COSTTRACE_TRACEBACK=1" in err and err.count("\n") == 1
    monkeypatch.setenv("COSTTRACE_TRACEBACK", "1")
    assert main(["models"]) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_an_interrupt_is_silent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(names: object, form: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("costtrace.report.listing.models", interrupted)
    assert main(["models"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_leaves_is_no_error() -> None:
    command = f"{sys.executable} -m costtrace chips v6e --format json | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("{\n", "")


NO_JAX = ("--help", "--version", "models", "chips", "chips v6e", "trace --help", "klien")


@pytest.mark.parametrize("command", NO_JAX)
def test_needs_neither_jax_nor_numpy(command: str) -> None:
    code = f"import sys; from costtrace.cli import main; main({command.split()!r})"
    code += "; print(sorted({'jax', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_python_m_and_the_exit_code() -> None:
    done = subprocess.run([sys.executable, "-m", "costtrace", "klien"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1


def test_help_and_models_name_what_there_is(run: Callable[..., str]) -> None:
    page, listed = run("--help"), run("models")
    assert page.startswith("Usage: costtrace [OPTIONS] MODEL|COMMAND [OPTIONS]\n")
    for command in COMMANDS:
        assert f"\n  {command} " in page
    for name, title in model.names().items():
        assert f"\n  {name} " in page and f"\n{name} " in f"\n{listed}"
        assert title in " ".join(listed.split())


def test_without_arguments_it_is_help(run: Callable[..., str]) -> None:
    assert run() == run("--help")


def test_a_models_file_is_a_command(here: Path, run: Callable[..., str]) -> None:
    doc = json.loads(run("small.py", "--tokens", "4", "--format", "json"))
    assert (doc["model"], doc["config"]) == ("small", {"tokens": 4})
    assert doc["total"]["matmul_flops"] == 2 * 4 * 16 * 32


def test_arguments_by_a_function_of_the_file(here: Path, run: Callable[..., str]) -> None:
    doc = json.loads(run("trace", "mine.py:with_tree", "--args", "arguments", "--format", "json"))
    assert doc["stages"][0]["name"] == "with_tree"
    assert doc["stages"][0]["parameters"] == 8 * 16
    assert doc["total"]["by_dtype"] == {"bfloat16": 2 * 4 * 8 * 16}


def test_fixed_values_and_keyword_only_arguments(here: Path, run: Callable[..., str]) -> None:
    arguments = ["--arg", "x=f32[4,8]", "--arg", "w=f32[8,8]", "--arg", "n=3", "--arg", "act='relu'"]
    doc = json.loads(run("trace", "mine.py:block", *arguments, "--format", "json"))
    arrays = {"x": "float32[4,8]", "w": "float32[8,8]"}
    assert doc["config"] == {"function": "mine.py:block", **arrays, "n": 3, "act": "relu"}
    assert doc["total"]["matmul_flops"] == 3 * 2 * 4 * 8 * 8


def test_trips_and_weights(here: Path, run: Callable[..., str]) -> None:
    once, often = (
        json.loads(run("trace", "mine.py:search", "--arg", "f32[8,8]", "--format", "json", *more))
        for more in ([], ["--trips", "search=40"])
    )
    assert (once["status"], often["status"]) == ("unknown", "modelled")
    body = 8 * 8
    assert often["total"]["vector_flops"] - once["total"]["vector_flops"] >= 39 * body
    arguments = ["--arg", "f32[2,4]", "--arg", "f32[4,8]", "--weights", "w"]
    doc = json.loads(run("trace", "mine.py:plain", *arguments, "--format", "json"))
    assert doc["stages"][0]["parameters"] == 4 * 8


GRAMMAR = {
    "x=bf16[1024,3072]": ("x", Array("bfloat16", (1024, 3072))),
    "f32[8,8]": (None, Array("float32", (8, 8))),
    "i32[]": (None, Array("int32", ())),
    " x = float8_e4m3fn[ 2 , b ] ": ("x", Array("float8_e4m3fn", (2, 7))),
    "x=f8_e5m2[0]": ("x", Array("float8_e5m2", (0,))),
    "x=s4[2]": ("x", Array("int4", (2,))),
    "u8[1]": (None, Array("uint8", (1,))),
    "pred[1]": (None, Array("bool", (1,))),
    "c64[3]": (None, Array("complex64", (3,))),
    "n=3": ("n", 3),
    "mode='full'": ("mode", "full"),
    "causal=True": ("causal", True),
    "axes=(0, 1)": ("axes", (0, 1)),
}


@pytest.mark.parametrize("text", GRAMMAR)
def test_grammar_of_arguments(text: str) -> None:
    assert parse(text, {"b": 7}) == GRAMMAR[text]


def test_colour_only_on_a_terminal_that_wants_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["trace", "mine.py:plain", "--arg", "f32[2,2]", "--arg", "f32[2,2]"]
    monkeypatch.delenv("NO_COLOR", raising=False)
    main(command)
    plain = capsys.readouterr().out
    assert "\x1b" not in plain
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    main(command)
    coloured = capsys.readouterr().out
    assert "\x1b[33mmemory\x1b[0m" in coloured and click.unstyle(coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    main(command)
    assert capsys.readouterr().out == plain
