"""A command that compiles is killed at any moment: no process and no folder stays, the cache is whole, and the next
call has the right answer. Real compiles: skipped where no compiler is set up."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from costtrace.errors import UsageError
from costtrace.target import cache, setup

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
SOURCE = """
import jax

def f(x, w):
    with jax.named_scope("up"):
        return jax.nn.silu(x @ w)
"""
COMMAND = [sys.executable, "-m", "costtrace", "trace", "small.py:f", "--arg", "bf16[512,512]", "--arg", "bf16[512,512]",
           "--compiled", "--format", "csv"]  # fmt: skip
NOTICED_S = 5.0
"""A child may take this long to notice, on a busy machine."""
ENDED = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: 130}
SAID = {signal.SIGTERM: "terminated", signal.SIGINT: "interrupted"}


class Place:
    """A cache with the environments of the user's own, and a folder for temporary files."""

    def __init__(self, at: Path) -> None:
        self.at, self.cache, self.temporary = at, at / "cache", at / "temporary"
        self.cache.mkdir()
        self.temporary.mkdir()
        (self.cache / "environments").symlink_to(setup.place("tpu").parent)
        (at / "small.py").write_text(SOURCE)
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "COSTTRACE_CACHE": str(self.cache),
                            "TMPDIR": str(self.temporary)}  # fmt: skip

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(COMMAND, cwd=self.at, env=self.environment, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)  # fmt: skip

    def processes(self) -> list[str]:
        """The command lines that name the temporary folder: compiles."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(self.temporary) in line:
                    found.append(line)
        return found

    def made(self) -> list[Path]:
        """What lies in the temporary folder, without the file that Python's tempfile tries a new folder with: a signal
        between its two lines leaves it."""
        return [p for p in self.temporary.iterdir() if p.is_dir() or not re.fullmatch(r"[a-z0-9_]{8}", p.name)]

    def left(self) -> list[str]:
        return self.processes() + [str(p) for p in self.made()]

    def cleared(self) -> list[str]:
        """What is left once children had time to notice."""
        end = time.monotonic() + NOTICED_S
        while (left := self.left()) and time.monotonic() < end:
            time.sleep(0.05)
        return left

    def answers(self) -> cache.Answers:
        return cache.Answers(self.cache / "compiled")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, float]:
    """What the command prints, and how long it takes."""
    try:
        setup.python("tpu")
    except UsageError as e:
        pytest.skip(str(e))
    at, began = Place(tmp_path_factory.mktemp("whole")), time.monotonic()
    with at.start() as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert not at.cleared()
    return out, time.monotonic() - began


def seen(some: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Waits for something to be seen, or for the process to end."""
    while not some() and process.poll() is None:
        time.sleep(0.001)


MOMENTS: dict[str, Callable[[Place], bool]] = {
    "its folder is made": lambda at: bool(at.made()),
    "its program is written": lambda at: any(at.temporary.glob("*/program.bin")),
    "its process is started": lambda at: bool(at.processes()),
    "the compiler has begun to write": lambda at: any(p.stat().st_size for p in at.temporary.glob("*/log")),
    "the module is written": lambda at: any(at.temporary.glob("*/module.hlo")),
    "the answer is written": lambda at: any(at.temporary.glob("*/result.json")),
    "the cache is opened": lambda at: any(at.cache.glob("compiled/*")),
    "the cache is written": lambda at: any(p.stat().st_size > 4096 for p in at.cache.glob("compiled/cache.db*")),
}


def killed(
    at: Place, number: signal.Signals, wait: Callable[[subprocess.Popen[str]], None], out: str, started: bool
) -> None:
    with at.start() as process:
        wait(process)
        process.send_signal(number)
        said, err = process.communicate()
    code, last = process.returncode, err.replace("\r", "\n").splitlines()[-1:]
    if code == 0:
        assert said == out  # it was faster
    else:
        assert code in (ENDED[number], -number), f"{code} {err}"
        assert said in ("", out) and "Traceback" not in err
        if code == ENDED[number] and number in SAID:
            assert last == [f"costtrace: error: {SAID[number]}"], err
    left = at.cleared()
    if number == signal.SIGKILL and not started:
        # without a child nobody notices: the next call clears the folder, once it is old
        assert not at.processes()
        for folder in at.temporary.iterdir():
            os.utime(folder, (0, 0))
    else:
        assert not left
    kept = at.answers()
    assert kept.usable() and not kept.problems


@pytest.mark.parametrize("number", ENDED)
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_a_step(moment: str, number: signal.Signals, tmp_path: Path, whole: tuple[str, float]) -> None:
    at = Place(tmp_path)
    started = list(MOMENTS).index(moment) >= list(MOMENTS).index("its process is started")
    killed(at, number, lambda process: seen(lambda: MOMENTS[moment](at), process), whole[0], started)
    with at.start() as process:
        out, _ = process.communicate()
    assert (process.returncode, out) == (0, whole[0]) and not at.cleared()


@pytest.mark.parametrize("number", ENDED)
def test_killed_at_any_moment(number: signal.Signals, tmp_path: Path, whole: tuple[str, float]) -> None:
    at, (out, taken) = Place(tmp_path), whole
    for seed in range(8):
        killed(at, number, lambda process, seed=seed: time.sleep(random.Random(seed).uniform(0, taken)), out, False)
    with at.start() as process:
        found, _ = process.communicate()
    assert (process.returncode, found) == (0, out) and not at.cleared()
