"""A disk that is really full: a small tmpfs. One clear line, exit code 2, no partial file; where only remembering
fails, the answer all the same. Skipped where nothing may be mounted."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import authored
import pytest

from costtrace import chip
from costtrace.errors import UsageError
from costtrace.target import cache, setup

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
TRACE = ["trace", "mine.py:plain", "--arg", "bf16[256,256]", "--arg", "bf16[256,256]"]
SWEEP = ["sweep", "small.py", "--tokens", "1,2,3", "--chip", "v6e,h100", "--format", "json"]
NO_SPACE = "No space left on device"


class Full:
    """A disk of a megabyte, with `left` bytes of it free."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def fill(self, left: int = 0) -> None:
        filler = self.place / "filler"
        with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 4096)
        os.truncate(filler, filler.stat().st_size // 4096 * 4096 - left)

    def names(self) -> list[str]:
        return sorted(p.name for p in self.place.iterdir() if p.name != "filler")


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Full]:
    place = tmp_path / "full"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        done = subprocess.run(mounting, capture_output=True, text=True, check=False)
    except OSError as e:
        pytest.skip(str(e))
    if done.returncode:
        pytest.skip(done.stderr.strip())
    try:
        yield Full(place)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return authored.folder(folder, monkeypatch)


def run(here: Path, *argv: str, out: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own; its output goes to a file where one is named."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COSTTRACE_CACHE": str(here / "cache"), **variables}
    with open(out or os.devnull, "w") as file:
        return subprocess.run([sys.executable, "-m", "costtrace", *argv], cwd=here, env=environment, text=True,
                              stdout=file if out else subprocess.PIPE, stderr=subprocess.PIPE, check=False)  # fmt: skip


FILES = {"html": "a.html", "plot": "a.svg", "speedscope": "s.json", "collapsed": "c.txt", "timeline": "t.json",
         "graph": "g.dot"}  # fmt: skip


@pytest.mark.parametrize("option", FILES)
def test_a_file_that_does_not_fit(option: str, here: Path, full: Full) -> None:
    path = full.place / FILES[option]
    path.write_text("old")
    full.fill()
    done = run(here, *TRACE, f"--{option}", str(path))
    assert (done.returncode, done.stdout, done.stderr) == (
        2, "", f"costtrace: error: {path} cannot be written: {NO_SPACE}: make room there, or give another path\n"
    )  # fmt: skip
    assert full.names() == [path.name] and path.read_text() == "old"


def test_of_several_files_none_is_written(here: Path, full: Full) -> None:
    full.fill(left=16_384)  # the stacks fit, the page does not
    many = [part for option, name in FILES.items() for part in (f"--{option}", str(full.place / name))]
    done = run(here, *TRACE, *many)
    assert (done.returncode, done.stdout) == (2, "") and NO_SPACE in done.stderr and done.stderr.count("\n") == 1
    assert full.names() == []


@pytest.mark.parametrize(
    "argv",
    [TRACE, [*TRACE, "--format", "json"], [*TRACE, "--format", "csv"], [*TRACE, "--chips", "8"], ["chips"], ["models"],
     ["doctor"], ["schema"], ["klein", "--help"], ["emulate", "--chip", "b300", "--format", "json"], SWEEP],
    ids=" ".join,
)  # fmt: skip
def test_an_answer_that_does_not_fit(argv: list[str], here: Path, full: Full) -> None:
    full.fill()
    done = run(here, *argv, out=full.place / "out")
    assert (done.returncode, done.stderr) == (
        2, f"costtrace: error: the answer cannot be written: {NO_SPACE}: make room there\n"
    )  # fmt: skip


@pytest.mark.parametrize("left", [0, 4096, 16_384, 65_536])
def test_a_sweep_without_room_to_remember(left: int, here: Path, full: Full) -> None:
    whole = run(here, *SWEEP).stdout
    full.fill(left)
    kept = full.place / "cache"
    done = run(here, *SWEEP, COSTTRACE_CACHE=str(kept))
    assert (done.returncode, done.stdout) == (0, whole) and len(json.loads(whole)["rows"]) == 6
    noted = done.stderr.startswith("costtrace: note: nothing is remembered: the cache at ") and "full" in done.stderr
    assert noted or done.stderr == ""
    assert left or noted
    (full.place / "filler").unlink()
    again = run(here, *SWEEP, COSTTRACE_CACHE=str(kept))  # with room: nothing of it is corrupt
    assert (again.returncode, again.stdout, again.stderr) == (0, whole, "")


@pytest.mark.parametrize("left", [0, 4096, 40_960, 131_072])
def test_answers_are_whole_or_not_there(left: int, full: Full) -> None:
    answers = cache.Answers(full.place / "cache")
    answers.put("first", {"text": "a" * 20_000})
    assert not answers.problems
    full.fill(left)
    for n in range(20):
        answers.put(str(n), {"n": n, "text": os.urandom(20_000).hex()})
    why = re.compile(rf"could not be \w+ \((.*disk is full|disk I/O error|{NO_SPACE})\)")
    assert all(why.search(text) for text in answers.problems)
    assert answers.problems
    gc.collect()  # connections that diskcache leaves open where it cannot open a cache
    (full.place / "filler").unlink()
    fresh = cache.Answers(full.place / "cache")
    assert fresh.get("first") == {"text": "a" * 20_000}
    for n in range(20):
        found = fresh.get(str(n))
        assert found is None or (found["n"] == n and len(found["text"]) == 40_000)
    assert not fresh.problems
    fresh.put("last", {"n": 1})
    assert fresh.get("last") == {"n": 1} and not fresh.problems


@pytest.mark.parametrize("left", [0, 8192, 65_536])
def test_a_compile_without_room_for_temporary_files(left: int, here: Path, full: Full) -> None:
    """Where nothing at all fits Python takes another folder; else it is an error with the folder's name."""
    with_compiler(here)
    full.fill(left)
    big = ["trace", "large.py:f", "--arg", "f32[64,64]", "--compiled"]
    (here / "large.py").write_text(LARGE)
    done = run(here, *big, TMPDIR=str(full.place))
    if done.returncode:
        assert left and done.returncode == 2 and done.stdout == ""
        last = done.stderr.splitlines()[-1]
        assert last.startswith("costtrace: error: ") and "make room there" in last and "Traceback" not in done.stderr
        assert NO_SPACE in last or f"the disk of {full.place} is full" in last
    assert full.names() == []


LARGE = """
import jax, jax.numpy as jnp

def f(x):
    for n in range(300):
        x = jnp.sin(x) * float(n) + jnp.cos(x)
    return x
"""


def with_compiler(here: Path) -> None:
    try:
        setup.python("tpu")
    except UsageError as e:
        pytest.skip(str(e))
    (here / "cache").mkdir()
    (here / "cache" / "environments").symlink_to(setup.place("tpu").parent)


def test_a_compile_whose_answer_is_not_remembered(here: Path, full: Full) -> None:
    with_compiler(here)
    (full.place / "environments").symlink_to(setup.place("tpu").parent)
    full.fill()
    done = run(here, *TRACE, "--compiled", "-v", COSTTRACE_CACHE=str(full.place))
    assert done.returncode == 0 and "note cache: the cache at " in " ".join(done.stdout.split())
    assert "Traceback" not in done.stderr and full.names() in (["environments"], ["compiled", "environments"])


def test_what_was_measured_is_kept_elsewhere(here: Path, full: Full) -> None:
    full.fill()
    done = run(here, "measure", "mine.py:plain", "--arg", "f32[8,8]", "--arg", "f32[8,8]", "--out",
               str(full.place / "run.json"), TMPDIR=str(here))  # fmt: skip
    assert done.returncode == 2 and done.stdout.startswith("plain")
    last = done.stderr.splitlines()[-1]
    start = f"costtrace: error: {full.place}/run.json cannot be written: {NO_SPACE}: it is kept in "
    assert last.startswith(start) and full.names() == []
    kept = Path(last.removeprefix(start).partition(":")[0])
    assert json.loads((kept / "run.json").read_text())["stages"]


def test_a_chip_file_on_a_full_disk_is_read(here: Path, full: Full) -> None:
    (full.place / "mine.toml").write_text((chip.folder() / "v6e.toml").read_text())
    full.fill()
    assert run(here, *TRACE, "--chip", str(full.place / "mine.toml")).returncode == 0
