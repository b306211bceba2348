"""A user's file is read as it is, also where Python's own cache of bytecode cannot tell it from what it was."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import authored
import pytest

from costtrace import model
from costtrace.cli import source


def test_an_edit_within_a_second_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    found = []
    for width in ("16", "32"):  # of the same length, at the same time
        for name, text in (
            ("own.py", authored.MODEL + f"\nWIDTH = {width}\n"),
            ("fn.py", f"def f(x): return {width}\n"),
        ):
            (tmp_path / name).write_text(text)
            os.utime(tmp_path / name, (10**9, 10**9))
        model.find(str(tmp_path / "own.py"))
        fn, _ = source.function(f"{tmp_path}/fn.py:f")
        found.append((sys.modules["costtrace_model_own"].WIDTH, fn(0)))
    assert found == [(16, 16), (32, 32)]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fn.py", "own.py"]  # nothing beside them
