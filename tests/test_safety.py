"""What docs/security.md says: files of data run no code, reports escape names, nothing private is open to others."""

from __future__ import annotations

import ast
import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import bad_files
import pytest

from costtrace import chip
from costtrace.cli import main

ROOT = Path(__file__).parent.parent
PACKAGE = sorted((ROOT / "costtrace").rglob("*.py"))

RUNS = {"eval", "exec", "compile", "__import__"}
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "code", "codeop", "ctypes"}
NATIVE = {"measure/device.py": {"ctypes"}}
"""The C library is asked to keep freed memory; nothing of a file reaches it."""
CODE = {"claim.py": {"run_path"}, "model.py": {"exec_module"}, "source.py": {"exec_module"}}
"""Where a user's own Python is run: docs/security.md, What is code."""


@pytest.mark.parametrize("path", PACKAGE, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_runs_text_or_unpickles(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        at = f"{path.name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            assert name not in RUNS, f"{at} calls {name}"
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if method in ("run_path", "run_module", "exec_module", "load_module", "system", "popen"):
                assert method in CODE.get(path.name, ()), f"{at} calls {method}"
            assert all(k.arg != "shell" for k in node.keywords), f"{at} uses a shell"
        if isinstance(node, ast.Import):
            used = {alias.name.partition(".")[0] for alias in node.names} & MODULES
            assert used <= NATIVE.get(str(path.relative_to(ROOT / "costtrace")), set()), at
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").partition(".")[0] not in MODULES, at


WATCHED = """
import sys
from pathlib import Path
from costtrace import budget, checkpoint, chip, chipfile, claim, figure, formula
from costtrace.evidence import dump, measured
folder = Path(sys.argv[1])
def read():
    chipfile.ChipFile(folder / "good.toml")
    budget.load(folder / "budget.toml")
    figure.read(folder / "good.json")
    checkpoint.read(str(folder / "good.safetensors"))
    checkpoint.mapping_of(str(folder / "good_map.json"))
    dump.read(folder / "good.hlo")
    measured.measurements()
    claim.load(str(folder / "claims.toml"))
    formula.value("2 * a ** 2 + max(a, 3)", {"a": 5})
read()  # imports
seen = []
def hook(event, args):
    if event in ("exec", "import", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pickle.find_class",
                 "socket.connect", "socket.getaddrinfo", "ctypes.dlopen", "code.__new__"):
        seen.append((event, str(args)[:200]))
    if event == "open" and args[1] not in ("r", "rb", None):
        seen.append((event, str(args)[:200]))
sys.addaudithook(hook)
read()
assert not seen, seen
print("read")
"""


def test_reading_data_runs_nothing_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.toml").write_text((chip.folder() / "v6e.toml").read_text())
    (tmp_path / "budget.toml").write_text(bad_files.BUDGET)
    assert main(["hpc", "--format", "json"]) == 0
    (tmp_path / "good.json").write_text(capsys.readouterr().out)
    (tmp_path / "good.safetensors").write_bytes(bad_files.safetensors(bad_files.HEADER))
    (tmp_path / "good_map.json").write_text('{"w": "w"}')
    (tmp_path / "claims.toml").write_text('[[claim]]\nmeasures = "flops"\nstage = "f"\nscopes = ""\nformula = "1"\n'
                                          'source = "x"\n')  # fmt: skip
    (tmp_path / "good.hlo").write_text(bad_files.HLO)
    command = [sys.executable, "-c", WATCHED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout, done.returncode) == ("read\n", 0), done.stderr


# Names of a program that mean something to whoever shows them ---------------------------------------------------------

NAMES = ("<script>alert(1)</script>", 'a"b', "=HYPERLINK(1)", "-2+3", "@sum", "x|y", r"$\input{x}", "\x1b[2Jgone",
         "a\rb", "`code`", "\u202eright")  # fmt: skip
HOSTILE = f"""
import jax
NAMES = {NAMES!r}
def f(x):
    for name in NAMES:
        with jax.named_scope(name):
            x = x @ x
    return x
"""
COMMAND = ["trace", "hostile.py:f", "--arg", "f32[8,8]"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hostile.py").write_text(HOSTILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert main([*COMMAND, *more]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("form", ["text", "md", "latex"])
def test_no_name_moves_the_cursor(form: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = printed(capsys, "--format", form, "-v")
    assert not [c for c in page if not c.isprintable() and c != "\n"]
    assert "gone" in page and "\\x1b" in page.replace(r"\textbackslash{}", "\\")


def test_errors_hold_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["\x1b[2J"]) == 2
    err = capsys.readouterr().err
    assert "\x1b" not in err and "\\x1b[2J" in err


def test_csv_is_no_spreadsheets_formula(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form, delimiter in (("csv", ","), ("tsv", "\t")):
        rows = list(csv.DictReader(io.StringIO(printed(capsys, "--format", form)), delimiter=delimiter))
        scopes = {row["scope"] for row in rows}
        assert {"'=HYPERLINK(1)", "'-2+3", "'@sum"} <= scopes
        assert all(float(row["flops"]) >= 0 for row in rows)


def test_markup_is_text(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("p.html", "g.dot", "s.json", "t.json", "p.svg")
    options = ("--html", "--graph", "--speedscope", "--timeline", "--plot")
    printed(capsys, *(word for pair in zip(options, names, strict=True) for word in pair))
    page = (here / "p.html").read_text()
    assert "<script>alert" not in page and page.count("<script") == 2 and "default-src" in page
    assert "<script>" not in (here / "p.svg").read_text()
    assert r"a\"b" in (here / "g.dot").read_text()
    for name in ("s.json", "t.json"):
        json.loads((here / name).read_text())
    markdown = printed(capsys, "--format", "md")
    assert "\n| <script>" not in markdown and r"x\|y" in markdown
    assert r"\$" in printed(capsys, "--format", "latex")


def test_the_page_on_security_names_every_kind_of_code() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    for word in ("costtrace trace FILE.py", "NAME_claims.py", "--claims", "costtrace.models"):
        assert word in page
    assert "docs/security.md" in (ROOT / "README.md").read_text()
