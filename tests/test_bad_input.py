"""Wrong input of every kind: one line that names thing, place and fix, exit code 2, no traceback, no file left behind;
and code of others that loops, prints or exits."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import authored
import bad_files
import bad_rows
import pytest

from costtrace.cli import main
from costtrace.errors import UsageError
from costtrace.formula import value


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        yield bad_files.folder(tmp_path_factory.mktemp("bad"), patch)


def listed(folder: Path) -> set[str]:
    return {str(p) for p in folder.rglob("*") if "__pycache__" not in p.parts}


@pytest.mark.parametrize("command", bad_rows.ROWS)
def test_a_wrong_input_is_one_line(command: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = listed(here)
    code = main(shlex.split(command))
    out, err = capfd.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith(f"costtrace: error: {bad_rows.ROWS[command]}")
    assert listed(here) == before


def test_there_are_many_and_of_every_command() -> None:
    assert len(bad_rows.ROWS) >= 200
    words = {command.split()[0] for command in bad_rows.ROWS}
    assert words >= {"trace", "chips", "audit", "emulate", "diff", "check", "schema", "sweep", "advise", "validate",
                     "setup", "models", "klein"}  # fmt: skip


PRINTS = "print('loaded')\n" + authored.MODEL.replace("return x @", "print('traced')\n    return x @").replace(
    "lambda c: [", "lambda c: print('stages') or ["
)
LOOPS = "def f(x):\n    print('looping', flush=True)\n    while True:\n        pass\n"


@pytest.mark.parametrize("command", ["chatty.py", "sweep chatty.py --jobs 2", "advise chatty.py", "audit chatty.py"])
def test_what_a_users_file_prints_stays_out_of_the_answer(
    command: str, here: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSTTRACE_CACHE", str(tmp_path))
    (here / "chatty.py").write_text(PRINTS)
    assert main([*command.split(), "--format", "json"]) == 0
    out, err = capfd.readouterr()
    json.loads(out)
    assert "loaded\n" in err and "stages\n" in err and "traced\n" in err


def test_from_python_a_function_prints_as_it_always_did(capsys: pytest.CaptureFixture[str]) -> None:
    import jax

    import costtrace

    costtrace.profile(lambda x: print("traced") or x, jax.ShapeDtypeStruct((2,), "float32"))
    assert capsys.readouterr().out == "traced\n"


def test_ctrl_c_in_a_users_loop_is_one_line_and_130(here: Path) -> None:
    (here / "loops.py").write_text(LOOPS)
    command = [sys.executable, "-m", "costtrace", "trace", "loops.py:f", "--arg", "f32[2]"]
    command = authored.hears(signal.SIGINT, command)
    with subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None and process.stdout is not None
        assert process.stderr.readline() == "looping\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == "costtrace: error: interrupted\n"
        assert process.stdout.read() == ""
        assert process.wait() == 130


def test_ctrl_c_while_a_file_is_loaded(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "interrupts.py:f"]) == 130
    assert capfd.readouterr().err == "costtrace: error: interrupted\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_an_answer_that_does_not_fit_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "costtrace", "models"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == f"costtrace: error: the answer cannot be written: {os.strerror(28)}: make room there\n"


BOMBS = ("9**9**9**9", "2**-99999", "(1/3)**9999", "'x' * 999999999", "+".join(["1"] * 99_999), "(" * 999, "-" * 9999)


@pytest.mark.parametrize("text", BOMBS, ids=lambda text: text[:12])
def test_no_formula_takes_long_or_much(text: str) -> None:
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"is no formula: .*: write arithmetic"):
        value(text, {})
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("text", ["__import__('os')", "a.__class__", "(lambda: 1)()", "[1][0]", "ceil.real", "a.b()"])
def test_a_formula_is_arithmetic_and_runs_nothing(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no formula|is not known"):
        value(text, {"a": 1})
