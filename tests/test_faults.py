"""Faults from outside: killed at any moment, a full disk, no home, another user's folder, another clock, a missing
package. Nothing is lost or corrupt; what could not be done is said in one line."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import authored
import pytest

from costtrace import disk
from costtrace.cli import main
from costtrace.errors import UsageError
from costtrace.target import cache, setup

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
BOUNDED = """
import os, resource, sys
n = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (n, n))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
TRACE = ["trace", "mine.py:plain", "--arg", "f32[2,2]", "--arg", "f32[2,2]"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return authored.folder(tmp_path, monkeypatch)


def run(*argv: str, cwd: Path, limit: int | None = None, **variables: str | None) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own; a variable that is None is not set; no file may outgrow `limit` bytes."""
    known = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    environment = {name: value for name, value in known.items() if value is not None}

    command = [sys.executable, "-m", "costtrace", *argv]
    if limit is not None:  # by a program in between: forking here would warn beside jax's threads
        command = [sys.executable, "-c", BOUNDED, str(limit), *command[1:]]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


# Files that are written -----------------------------------------------------------------------------------------------

STEPS = ("tempfile.mkstemp", "os.fsync", "os.chmod", "os.replace")
KILLED = """
import os, signal, sys, tempfile
from costtrace import disk
def killed(*a, **k):
    os.kill(os.getpid(), signal.SIGKILL)
module, name = sys.argv[2].split(".")
setattr(sys.modules[module], name, killed)
disk.write_all({sys.argv[1] + "/a": "new " * 9999, sys.argv[1] + "/b": "new " * 9999})
"""


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_a_file_is_the_old_or_the_new(step: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), step], check=False, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "a").read_text() == "old" and not (tmp_path / "b").exists()
    disk.write(tmp_path / "a", "newer")
    assert (tmp_path / "a").read_text() == "newer"


@pytest.mark.parametrize("step", [*STEPS, "file.write"])
def test_a_failure_at_any_step_leaves_nothing_behind(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "a").write_text("old")
    if step == "file.write":
        monkeypatch.setattr("builtins.open", fails)
    else:
        monkeypatch.setattr(f"costtrace.disk.{step}", fails)
    with pytest.raises(OSError, match="No space left"):
        disk.write_all({str(tmp_path / "a"): "new", str(tmp_path / "b"): "new"})
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["a"] and (tmp_path / "a").read_text() == "old"


def test_a_file_keeps_its_rights_and_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to("real")
    disk.write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o640
    disk.write(tmp_path / "fresh", "new")
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "fresh").stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_pipe_is_written_to_as_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE, text=True) as reader:
        disk.write(tmp_path / "pipe", "through")
        assert reader.communicate()[0] == "through"


def test_a_page_that_does_not_fit_leaves_the_old_one_and_no_other(here: Path) -> None:
    (here / "page.html").write_text("old")
    before = sorted(here.iterdir())
    done = run(*TRACE, "--html", "page.html", "--speedscope", "s.json", cwd=here, limit=8000)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"costtrace: error: page.html, s.json cannot be written: {os.strerror(errno.EFBIG)}: make room there, or give "
        "another path\n"
    )
    assert sorted(here.iterdir()) == before and (here / "page.html").read_text() == "old"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_while_it_works_a_command_leaves_nothing(number: signal.Signals, here: Path) -> None:
    (here / "loops.py").write_text("import sys\ndef f(x):\n    print('here', flush=True)\n    while True: pass\n")
    before = sorted(here.iterdir())
    command = [sys.executable, "-B", "-m", "costtrace", "trace", "loops.py:f", "--arg", "f32[2]", "--html", "a.html"]
    with subprocess.Popen(authored.hears(number, command), cwd=here, env={**os.environ, "PYTHONPATH": str(ROOT)},
                          stderr=subprocess.PIPE, text=True) as process:  # fmt: skip
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(number)
        word = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[number]
        assert process.stderr.read() == f"costtrace: error: {word}\n"
    assert process.returncode == 128 + number and sorted(here.iterdir()) == before


# The cache ------------------------------------------------------------------------------------------------------------

WRITES = """
import sys
from pathlib import Path
from costtrace.target import cache
kept = cache.Answers(Path(sys.argv[1]))
print("begun", flush=True)
for n in range(10_000):
    kept.put(str(n), {"n": n, "text": str(n) * 60_000})
    assert not kept.problems, kept.problems
    print(n, flush=True)
"""


def test_killed_at_any_moment_the_cache_has_every_answer_that_it_took(tmp_path: Path) -> None:
    last = -1
    for seed in range(6):
        with subprocess.Popen([sys.executable, "-c", WRITES, str(tmp_path / "c")], cwd=ROOT, text=True,
                              stdout=subprocess.PIPE) as process:  # fmt: skip
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(random.Random(seed).uniform(0.0, 0.2))
            process.kill()
            told = process.stdout.read().split()
        last = max(last, *map(int, told)) if told else last
    kept = cache.Answers(tmp_path / "c")
    assert last > 0 and all((kept.get(str(n)) or {})["n"] == n for n in range(last + 1))
    after = kept.get(str(last + 1))
    assert after is None or after == {"n": last + 1, "text": str(last + 1) * 60_000}
    assert not kept.problems


def rows(place: Path) -> sqlite3.Connection:
    return sqlite3.connect(place / "cache.db")


class Ran:
    """Unpickled, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (self.path,)


def poisoned(kept: cache.Answers, change: str, value: object) -> None:
    with contextlib.closing(rows(kept.place)) as database, database:
        database.execute(f"UPDATE Cache SET {change}", (value,))


def test_a_pickle_in_the_cache_is_not_run(tmp_path: Path) -> None:
    kept = cache.Answers(tmp_path / "c")
    kept.put("a", {"n": 1})
    poisoned(kept, "mode = 4, value = ?", pickle.dumps(Ran(tmp_path / "ran")))
    assert kept.get("a") is None and not (tmp_path / "ran").exists()
    (problem,) = kept.problems
    assert problem == f"the cache at {kept.place} has an entry that costtrace did not write: it is not used"


def test_an_entry_that_points_outside_the_cache_is_not_read(tmp_path: Path) -> None:
    kept = cache.Answers(tmp_path / "c")
    kept.put("a", {"text": os.urandom(60_000).hex()})
    (tmp_path / "outside").write_text("{}")
    poisoned(kept, "filename = ?", "../outside")
    assert kept.get("a") is None and "did not write" in kept.problems[0]


@pytest.mark.parametrize("size", [60_000, 3])
def test_an_entry_that_is_cut_changed_or_anothers_is_a_miss(size: int, tmp_path: Path) -> None:
    kept = cache.Answers(tmp_path / "c")
    kept.put("a", {"text": os.urandom(size).hex()})
    kept.put("b", {"text": os.urandom(size).hex()})
    files = list(kept.place.rglob("*.val"))
    if files:
        files[0].write_bytes(files[0].read_bytes()[:-9])
    with contextlib.closing(rows(kept.place)) as database, database:
        database.execute("UPDATE Cache SET value = (SELECT value FROM Cache LIMIT 1)")
        database.execute("UPDATE Cache SET filename = (SELECT filename FROM Cache LIMIT 1)")
    found = [kept.get("a"), kept.get("b")]
    assert found.count(None) >= 1 and len(kept.problems) == found.count(None)
    kept.put("a", {"n": 2})
    assert kept.get("a") == {"n": 2}


def test_the_cache_is_its_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c").mkdir(mode=0o755)
    kept = cache.Answers(tmp_path / "c")
    kept.put("a", {"n": 1})
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    assert kept.get("a") is None
    (problem,) = kept.problems
    assert "it belongs to another user" in problem and cache.FOLDER in problem


def test_an_environment_of_another_user_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.FOLDER, str(tmp_path))
    at = setup.place("tpu")
    setup.interpreter(at).parent.mkdir(parents=True)
    setup.interpreter(at).write_text("")
    (at / setup.MARK).write_text(json.dumps({"versions": {}}))
    assert setup.python("tpu") == str(setup.interpreter(at))
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    with pytest.raises(
        UsageError, match=r"is not used, it belongs to another user .*: set COSTTRACE_CACHE to a folder"
    ):
        setup.python("tpu")


def test_a_setup_that_fails_keeps_the_environment_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.FOLDER, str(tmp_path))
    at = setup.place("tpu")
    at.mkdir(parents=True)
    (at / "old").write_text("")
    monkeypatch.setattr(setup, "_step", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        setup.make("tpu", lambda text: None)
    assert [p.name for p in at.parent.iterdir()] == [at.name] and (at / "old").exists()


def test_another_clock_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = cache.Answers(tmp_path / "c")
    kept.put("a", {"n": 1})
    for now in (0.0, 5e9):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        assert kept.get("a") == {"n": 1} and not kept.problems


# A sweep --------------------------------------------------------------------------------------------------------------

SWEEP = ["sweep", "small.py", "--tokens", ",".join(map(str, range(1, 9))), "--chip", "v6e,h100", "--format", "json"]


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_a_sweep_that_is_killed_goes_on_where_it_was(kills: int, here: Path) -> None:
    whole = run(*SWEEP, cwd=here, COSTTRACE_CACHE=str(here / "other")).stdout
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COSTTRACE_CACHE": str(here / "cache")}
    for seed in range(kills):
        with subprocess.Popen([sys.executable, "-m", "costtrace", *SWEEP], cwd=here, env=environment,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:  # fmt: skip
            time.sleep(random.Random(seed).uniform(0.5, 3.0))
            process.send_signal((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[seed % 3])
    done = run(*SWEEP, cwd=here, COSTTRACE_CACHE=str(here / "cache"))
    assert (done.returncode, done.stdout) == (0, whole)
    assert re.sub(r"^costtrace: note: \d+ of \d+ configurations are remembered .*\n", "", done.stderr) == ""
    assert len(json.loads(whole)["rows"]) == 16


HOMES = {
    "read-only": ({"HOME": "/proc"}, "could not be used"),
    "a file": ({"HOME": "/dev/null"}, "could not be used (Not a directory)"),
    "full": ({}, "could not be used"),
}


@pytest.mark.parametrize("name", HOMES)
def test_without_a_place_for_the_cache_a_sweep_says_so_and_answers(name: str, here: Path) -> None:
    variables, said = HOMES[name]
    limit = 5000 if name == "full" else None
    apart = {"COSTTRACE_CACHE": None, "XDG_CACHE_HOME": None, **({} if variables else {"COSTTRACE_CACHE": "cache"})}
    done = run(*SWEEP, cwd=here, limit=limit, **apart, **variables)
    assert done.returncode == 0 and len(json.loads(done.stdout)["rows"]) == 16
    assert done.stderr.startswith("costtrace: note: nothing is remembered: the cache at ") and said in done.stderr
    assert done.stderr.count("\n") == 1 and "set COSTTRACE_CACHE to a folder that can be written" in done.stderr


def test_without_home_the_cache_is_the_users_own_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in (cache.FOLDER, "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("costtrace.target.cache.tempfile.gettempdir", lambda: str(tmp_path))
    assert cache.folder().is_absolute()
    monkeypatch.setattr("pwd.getpwuid", lambda uid: (_ for _ in ()).throw(KeyError(uid)))
    assert cache.folder() == tmp_path / f"costtrace-{os.getuid()}"


# Packages that are not there ------------------------------------------------------------------------------------------


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda name: monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]


MISSING = {
    "optax": ([*TRACE, "--optimizer", "adam"], "optimizer 'adam' is optax's: pip install optax"),
    "orbax.checkpoint": (
        ["trace", "mine.py:with_tree", "--arg", "bf16[4,8]", "--checkpoint", "step"],
        "step is an orbax checkpoint: pip install orbax-checkpoint to read its header",
    ),
    "distributed": (
        ["sweep", "small.py", "--backend", "dask"],
        "--backend dask needs dask's distributed: pip install distributed",
    ),
    "matplotlib": ([*TRACE, "--plot", "a.svg"], "charts need matplotlib: pip install matplotlib"),
    "joblib": (["sweep", "small.py"], "a sweep needs joblib: pip install joblib"),
}


@pytest.mark.parametrize("package", MISSING)
def test_a_missing_package_is_named_with_its_command(
    package: str, here: Path, without: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "step").mkdir()
    (here / "step" / "_METADATA").write_text("{}")
    without(package)
    command, said = MISSING[package]
    assert main(command) == 2
    assert capsys.readouterr() == ("", f"costtrace: error: {said}\n")


def test_without_any_module_library_a_function_is_traced(
    here: Path, without: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("flax", "equinox", "haiku", "optax", "orbax", "distributed"):
        without(package)
    assert main(TRACE) == 0
    assert capsys.readouterr().err == ""
