"""What a terminal shows while a command works: on stderr, and gone when the answer comes."""

from __future__ import annotations

import sys
from pathlib import Path

import documented
import pytest

from costtrace.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return documented.folder(tmp_path_factory.mktemp("waiting"), "README.md")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tiny.py", "tracing tiny: forward ..."),
        ("tiny.py --html a.html", "drawing a.html ..."),
        ("tiny.py --plot a.svg", "drawing a.svg ..."),
        ("tiny.py --chips 2 --strategy fsdp", "tiny on 2 x v6e ..."),
        ("trace mine.py:mlp --args shapes", "tracing mine.py:mlp ..."),
        ("audit tiny.py", "auditing tiny ..."),
        ("diff tiny.py tiny.py:tokens=256", "tracing tiny.py:tokens=256 ..."),
        ("check --budget budget.toml", "tracing tiny.py ..."),
        ("emulate mine.py:mlp --args shapes", "tracing ..."),
        ("advise tiny.py", "tiny on 1 x v6e ..."),
    ],
)
def test_a_terminal_sees_what_takes_a_while(
    line: str, said: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(line.split()) == 0
    plain = capsys.readouterr()
    assert plain.out and plain.err == ""  # a file sees nothing
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(line.split()) == 0
    out, err = capsys.readouterr()
    assert out == plain.out and f"\r{said}" in err
    assert err.split("\r")[-1] == "" and not err.split("\r")[-2].strip()
