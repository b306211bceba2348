"""A process per compile: started, watched, stopped. What it is given and what it leaves is a folder that goes away.

Its death, whatever the cause, is an error with the reason; its parent's death is its own. No jax here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costtrace import units
from costtrace.disk import scratch
from costtrace.errors import CosttraceError

CHILD = Path(__file__).with_name("child.py")
TIME_LIMIT_S = 3600.0
POLL_S = 0.05
LAST_S = 5.0
"""A process that left half an answer may take this long to end."""
LEAST_ROOM = int(units.parse("1 MB", "B"))
"""With less room on disk a process that died is taken to have died of that."""
WITHHELD = ("JAX_", "XLA_", "TPU_", "LIBTPU_", "TF_", "CUDA_", "PYTHON")
"""Variables of the user's that would change what is compiled: the child does not get them."""


class CompileError(CosttraceError):
    """A compiler's process failed, was stopped, or refused the program."""


@dataclass(frozen=True, slots=True)
class Request:
    """One compile. `python`: the interpreter of the environment with the compiler. `fields`: for `script`."""

    label: str
    python: str
    artifact: bytes
    fields: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)
    setup: str = "tpu"
    script: Path | None = None
    """What the process runs in place of child.py, leaving the same files."""


Progress = Callable[[Sequence[tuple[str, float]]], None]
"""Told, every now and then, which compiles are running and for how many seconds."""


def run(
    requests: Sequence[Request],
    at_once: int | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    memory_limit: int | None = None,
    progress: Progress | None = None,
    finished: Callable[[int, dict[str, Any]], None] | None = None,
) -> list[dict[str, Any]]:
    """What child.py answers to each request, with `text`, the optimized module.

    at_once: processes side by side (by default one for each two processors). memory_limit: bytes of one process (by
    default nine tenths of what is free). finished: told each answer, with its request's position, as it comes. Raises
    CompileError for the first that fails; then the others are stopped.
    """
    limit = memory_limit or int(0.9 * free_memory())
    waiting, running = list(enumerate(requests)), dict[int, _Child]()
    results: dict[int, dict[str, Any]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < (at_once or max(1, (os.cpu_count() or 2) // 2)):
                n, request = waiting.pop(0)
                running[n] = _Child(request)
            for n, child in list(running.items()):
                if child.ended(time_limit_s, limit):
                    results[n] = child.result()
                    running.pop(n).close()
                    if finished:
                        finished(n, results[n])
            if progress:
                progress([(child.request.label, child.elapsed_s) for child in running.values()])
            time.sleep(POLL_S if running else 0)
    finally:
        for child in running.values():
            child.close()
    return [results[n] for n in range(len(requests))]


class _Child:
    """One running compile and its folder."""

    def __init__(self, request: Request) -> None:
        self.request, self.began, self.killed = request, time.monotonic(), ""
        self.place = contextlib.ExitStack()
        self.folder = folder = self.place.enter_context(scratch())
        try:
            (folder / "program.bin").write_bytes(request.artifact)
            (folder / "request.json").write_text(json.dumps(request.fields))
            with open(folder / "log", "wb") as log:
                self.process = subprocess.Popen(
                    [request.python, "-I", str(request.script or CHILD), str(folder)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=_environment(request),
                    cwd=folder,
                    start_new_session=True,
                )
        except OSError as e:
            self.place.close()
            raise CompileError(
                f"{request.label}: its compiler could not be started ({e.strerror}: {e.filename}): "
                f"make room there, or run costtrace setup {request.setup}"
            ) from None

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    def ended(self, time_limit_s: float, memory_limit: int) -> bool:
        """True once there is an answer, or the process is over; stops it where it goes beyond a limit."""
        if self.process.poll() is not None or (self.folder / "result.json").exists():
            return True
        if self.elapsed_s > time_limit_s:
            self.killed = (
                f"took longer than {time_limit_s:.0f} s and was stopped: give it more time, or a smaller program"
            )
        elif (used := _resident(self.process.pid)) > memory_limit:
            self.killed = (
                f"took {units.binary(used, 3)} of memory, its limit is {units.binary(memory_limit, 3)}, and was "
                "stopped: free some, or scan the repeated blocks instead of unrolling them"
            )
        else:
            return False
        self.stop()
        return True

    def result(self) -> dict[str, Any]:
        """What the process left. Raises CompileError where that is an error, or nothing."""
        folder, label = self.folder, self.request.label
        if self.killed:
            raise CompileError(f"{label}: the compile {self.killed}")
        try:
            answer: dict[str, Any] = json.loads((folder / "result.json").read_text())
        except (OSError, ValueError):
            log = (folder / "log").read_text(errors="replace") if (folder / "log").is_file() else ""
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(LAST_S)
            why = death(self.process.returncode or 0, log, self.request.setup)
            if shutil.disk_usage(folder).free < LEAST_ROOM:
                why = f"the disk of {folder.parent} is full: make room there, or set TMPDIR to a folder that has some"
            raise CompileError(f"{label}: {why}") from None
        if "error" in answer:
            raise CompileError(f"{label}: {refusal(answer['error'], self.request)}")
        answer["text"] = (folder / "module.hlo").read_text()
        return answer

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Nothing stays: no process, no folder. The folder goes first, for the process clears it where this one is
        killed meanwhile, and again after it, for what the process wrote until its end."""
        self.place.close()
        self.stop()
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _environment(request: Request) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(WITHHELD)}
    return {**kept, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", **request.environment}


def death(code: int, log: str, setup: str) -> str:
    """Why a process left no answer, in one line."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not _NOISE.match(line)]
    last = f": {lines[-1][:200]}" if lines else ""
    if code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            hint = {
                "SIGKILL": "it was killed (out of memory?): free some, or scan the repeated blocks",
                "SIGILL": "the compiler met something it cannot do (int2 operands do this): change that part",
            }
            why = hint.get(
                name, "the compiler crashed: make the program smaller until it does not, and tell its makers"
            )
            return f"the compiler's process ended with {name}; {why}"
    if "ModuleNotFoundError" in log or "ImportError" in log:
        return f"its environment is not whole{last}; run costtrace setup {setup}"
    return (
        f"the compiler's process ended with code {code}{last}; run costtrace setup {setup} if its environment is broken"
    )


_NOISE = re.compile(r"^([IWE]\d{4} |WARNING: All log|[IW]0000|\d{4}-\d\d-\d\d .*: [IWE] )")
_MISSING = re.compile(r"not installed|not implemented for|Unable to load|No module named")
_USED = re.compile(r"Used ([\d.]+\w?) of ([\d.]+\w?) (\w+)")


def refusal(error: dict[str, str], request: Request) -> str:
    """A compiler's own error in one line, with what to do."""
    text, step = error["text"], error["step"]
    first = next((line.strip() for line in text.splitlines() if line.strip()), error["type"]).rstrip(".")[:300]
    if step == "topology" and _MISSING.search(text):
        return f"its environment has no compiler: {first}; run costtrace setup {request.setup}"
    if step == "topology":
        return f"no topology {request.fields['topology']!r}: {first}; for one chip leave it out, for several see --help"
    if step == "version":
        return f"its compiler's environment is of another version: {first}; run costtrace setup {request.setup}"
    if found := _USED.search(text):
        return (
            f"it does not fit: the compiler needs {found[1]} of {found[2]} {found[3].upper()}; shard it, "
            "or make the batch or the model smaller"
        )
    if "RESOURCE_EXHAUSTED" in text:
        return f"it does not fit on the chip: {first}; shard it, or make the batch or the model smaller"
    return f"the compiler refused the program while it was {'lowered' if step == 'lower' else 'compiled'}: {first}"


def free_memory() -> int:
    """Bytes that a new process may take."""
    with contextlib.suppress(OSError, StopIteration), open("/proc/meminfo") as file:
        return 1024 * int(next(line for line in file if line.startswith("MemAvailable")).split()[1])
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return sys.maxsize


def _resident(pid: int) -> int:
    """Bytes of a process in memory; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
