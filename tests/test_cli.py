"""The command line as a user meets it: whole outputs (tests/golden), one-line errors, exit codes, what it imports."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import authored
import click
import pytest

from costtrace import model
from costtrace.cli import main, strategies
from costtrace.cli.argument import Array, parse
from costtrace.cli.group import COMMANDS
from costtrace.cli.shared import OPTIONS


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's files in it, as the working folder."""
    return authored.folder(tmp_path, monkeypatch)


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


def test_an_interrupt_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(names: object, form: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("costtrace.report.listing.models", interrupted)
    assert main(["models"]) == 130
    assert capsys.readouterr() == ("", "costtrace: error: interrupted\n")


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


def test_the_gradient_is_by_the_weights(here: Path, run: Callable[..., str]) -> None:
    arguments = ["trace", "mine.py:plain", "--arg", "f32[2,4]", "--arg", "f32[4,8]", "--grad", "--format", "json"]
    by_default, by_w = json.loads(run(*arguments)), json.loads(run(*arguments, "--weights", "w"))
    assert [doc["stages"][0]["parameters"] for doc in (by_default, by_w)] == [2 * 4, 4 * 8]
    assert by_w["total"]["matmul_flops"] == 2 * (2 * 2 * 4 * 8)  # forward, and the weight's gradient
    (said,) = [note["text"] for note in by_default["notes"] if note["kind"] == "gradient"]
    assert "the first argument, x," in said and "gradient" not in [note["kind"] for note in by_w["notes"]]


def test_the_guides_model_runs_by_path_and_its_list_of_reserved_names_is_whole(
    tmp_path: Path, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parent.parent / "docs" / "add-a-model.md").read_text()
    (tmp_path / "tiny.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert "block/attention" in run(str(tmp_path / "tiny.py"), "--blocks", "2")
    refused = page.partition("every command has already are refused:")[2].partition(".")[0]
    options = {option.name for option in (*OPTIONS, *strategies.OPTIONS, strategies.TRAIN)}
    assert set(re.findall(r"`(\w+)`", refused)) == options


def test_without_a_bandwidth_times_are_not_known(here: Path, run: Callable[..., str]) -> None:
    (stage,) = json.loads(run("small.py", "--chip", "slow.toml", "--format", "json"))["stages"]
    assert [stage[key] for key in ("floor_s", "pessimistic_s", "bound_fused")] == [None] * 3
    page = run("small.py", "--chip", "slow.toml")
    assert "floor ?  pessimistic ?" in page and "note missing-rate: no hbm rate on v6e" in page
    assert "time = ?: no hbm rate on v6e" in run("small.py", "--chip", "slow.toml", "--explain", ".")


def test_marks_and_notes_stand_side_by_side(here: Path, run: Callable[..., str]) -> None:
    page = run("trace", "mine.py:search", "--arg", "f32[8,8]", "--chip", "v6e,h100")
    assert "  search ? " in page and "? partly unknown" in page and page.count("note unknown-trip: search: ") == 1
    big = run("klein", "--batch", "64", "--chip", "v6e,l4", "--depth", "1")
    assert "note does-not-fit: v6e: dit: peak memory" in big and "note does-not-fit: l4: dit: peak" in big


def test_side_by_side_shows_the_rows_that_any_has_at_the_top(here: Path, run: Callable[..., str]) -> None:
    page = run("klein", "--res", "512x512,1360x768", "--chip", "v6e,l4", "--top", "1", "--depth", "1")
    assert all(len(line) <= 100 for line in page.splitlines())
    assert page.splitlines()[4].split().count("GFLOP") == 2  # once a size, not once a chip
    assert "?" not in page.partition("bound:")[0]
    same = run("small.py", "--chip", "v6e,slow.toml")
    assert "v6e #1" in same and "v6e #2" in same


def test_layers_says_that_blocks_are_scanned(run: Callable[..., str]) -> None:
    page = " ".join(run("klein", "--layers", "--verbose").split())
    assert "note scanned: dit: double/norm runs 10 times under one name, as a scan's body does" in page
    assert "note scanned" not in run("klein", "--verbose")


def test_explanations_by_short_names_and_as_json(run: Callable[..., str]) -> None:
    found = json.loads(run("klein", "--explain", "dit/attention", "--format", "json"))["rows"]
    assert [row["scope"] for row in found] == ["double/attention", "single/attention"]
    assert found[0]["times"]["fused"]["bound"] and found[0]["cost"]["bytes_fused"] > 0 and found[0]["numbers"]
    assert run("klein", "--explain", "linear1") == run("klein", "--explain", "dit:single/linear1")
    assert all(len(line) <= 100 for line in run("klein", "--explain", "linear1").splitlines())


def test_several_chips_by_name(run: Callable[..., str]) -> None:
    rows = json.loads(run("chips", "v6e", "h100", "--format", "json"))["rows"]
    assert [row["chip"] for row in rows] == ["v6e", "h100"]


def test_short_words_for_sizes_and_dtypes(run: Callable[..., str]) -> None:
    doc = json.loads(run("klein", "--res", "512X512", "--dtype", "fp16", "--format", "json"))
    assert (doc["config"]["res"], doc["config"]["dtype"]) == ("512x512", "float16")
    assert "; so asked " in run("sa3", "--seconds", "10").splitlines()[0]


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


def test_a_file_inside_a_package_by_its_path(tmp_path: Path, run: Callable[..., str]) -> None:
    """With imports relative to it, from any folder."""
    inner = tmp_path / "their_models" / "nets"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").write_text("")
    (inner.parent / "parts.py").write_text("def product(a, b):\n    return a @ b\n")
    (inner / "net.py").write_text("from ..parts import product\n\ndef forward(a, b):\n    return product(a, b)\n")
    page = run("trace", f"{inner / 'net.py'}:forward", "--arg", "f32[4,8]", "--arg", "f32[8,2]", "--format", "json")
    assert json.loads(page)["total"]["matmul_flops"] == 2 * 4 * 8 * 2


def test_what_does_not_fit_is_said_before_other_notes(run: Callable[..., str]) -> None:
    page = run("qwen3", "--size", "30b-a3b")  # 61 GB of weights on 32 GiB
    notes = [line for line in page.splitlines() if line.startswith("note ")]
    assert notes[0].startswith("note does-not-fit: ") and notes[1].startswith("note routing: ")


@pytest.mark.parametrize(
    ("command", "options"),
    {
        "measure": ("--seconds-each", "--out"),
        "compare": ("--measured",),
        "audit": ("--claims", "--fail-on"),
        "sweep": ("--price", "--jobs"),
        "advise": ("--what-if", "--chips"),
    }.items(),
)
def test_the_help_of_a_command_lists_its_options_before_a_model_is_named(
    command: str, options: tuple[str, ...], run: Callable[..., str]
) -> None:
    page = run(command, "--help").partition("Options for every model, after its name:")[2]
    assert all(f"  {option} " in page for option in options)


def test_a_models_help_shows_several_values_of_an_option_that_it_has(here: Path, run: Callable[..., str]) -> None:
    assert "Several values, --tokens 8,..., stand side by side." in " ".join(run("small.py", "--help").split())
