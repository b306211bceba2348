"""What a killed process left is cleared, what a living one holds is not; what long work made is kept somewhere."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from costtrace import disk
from costtrace.errors import UsageError

HOLDS = """
import sys
from costtrace import disk
with disk.scratch() as folder:
    (folder / "program.bin").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    at = tmp_path / "temporary"
    at.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(at))
    return at


def aged(path: Path, seconds: float = 2 * disk.STALE_S) -> Path:
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


def test_a_folder_goes_away_and_is_its_users(temporary: Path) -> None:
    with disk.scratch() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700 and folder.parent == temporary
        (folder / "a").write_text("x")
    assert not list(temporary.iterdir())


def test_what_a_killed_process_left_is_cleared_once_it_is_old(temporary: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=disk.__file__[:-17],
                          env={**os.environ, "TMPDIR": str(temporary)}) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        left = Path(process.stdout.readline().strip())
        aged(left)
        with disk.scratch():
            assert (left / "program.bin").exists()  # its process lives
        process.kill()
    now = time.time()
    for seconds, there in ((0, True), (2 * disk.STALE_S, False)):
        os.utime(left, (now - seconds, now - seconds))
        with disk.scratch():
            assert left.exists() == there, seconds


def test_nothing_else_is_cleared(temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir()
    (temporary / f"{disk.SCRATCH}link").symlink_to(tmp_path / "theirs")
    kept = [aged(tmp_path / "theirs")]
    for name in (f"costtrace-{os.getuid()}", "kept-by-costtrace-1"):  # a cache without a home; what keep() kept
        (temporary / name).mkdir()
        kept.append(aged(temporary / name))
    other = temporary / f"{disk.SCRATCH}other"
    other.mkdir()
    aged(other)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: os.stat(temporary).st_uid + 1)
        with disk.scratch():
            assert other.exists()
    with disk.scratch():
        assert not other.exists() and all(path.exists() for path in kept)


def test_a_clock_that_was_set_back_keeps_nothing_for_ever(temporary: Path) -> None:
    left = temporary / f"{disk.SCRATCH}left"
    left.mkdir()
    aged(left, -9e8)
    with disk.scratch():
        assert not left.exists()


def test_half_a_file_is_cleared_when_the_file_is_written_again(tmp_path: Path) -> None:
    half, young, other = (tmp_path / name for name in (".a.html.k3j.part", ".a.html.k4j.part", ".b.html.k3j.part"))
    for path in (half, young, other):
        path.write_text("half")
    aged(half), aged(other)
    disk.write(tmp_path / "a.html", "whole")
    assert sorted(tmp_path.iterdir()) == sorted([young, other, tmp_path / "a.html"])


def test_a_folder_that_cannot_be_listed_can_be_written_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: object) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "listdir", closed)
    disk.write(tmp_path / "a", "text")
    monkeypatch.undo()
    assert (tmp_path / "a").read_text() == "text"


def test_what_long_work_made_is_kept_elsewhere(temporary: Path, tmp_path: Path) -> None:
    disk.keep({str(tmp_path / "run.json"): "{}"})
    assert (tmp_path / "run.json").read_text() == "{}"
    with pytest.raises(UsageError) as e:
        disk.keep({str(tmp_path / "gone" / "run.json"): "{}", str(tmp_path / "gone" / "more.json"): "[]"})
    found = re.search(
        r"cannot be written: No such file or directory: it is kept in (\S+): move it from there$", str(e.value)
    )
    assert found and Path(found[1]).parent == temporary
    assert {p.name: p.read_text() for p in Path(found[1]).iterdir()} == {"run.json": "{}", "more.json": "[]"}


SAYS = """
import sys
from costtrace import disk
print('before')
disk.write(sys.argv[1], 'told\\n')
print('after')
"""


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="no /dev/stdout here")
def test_stdout_takes_a_file_as_a_pipe_and_as_a_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAYS, "/dev/stdout"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "before\ntold\nafter\n"
    with open(tmp_path / "out.txt", "w") as out:
        subprocess.run(command, stdout=out, check=True)
    assert (tmp_path / "out.txt").read_text() == "before\ntold\nafter\n"


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="no /dev/fd here")
def test_a_pipe_of_another_number_takes_a_file() -> None:
    command = [sys.executable, "-c", SAYS, "/dev/fd/2"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == "told\n"
