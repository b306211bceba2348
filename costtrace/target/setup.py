"""Private environments that hold a compiler, so that the user's own holds none: a chip's plugin beside jax makes every
plain jax program on a machine without that chip print start-up errors. No jax here."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from costtrace.disk import private
from costtrace.errors import CosttraceError, UsageError
from costtrace.target import cache

MARK = "costtrace.json"
"""Written last: an environment without it is half made."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What one compiler needs. `packages` with {jax} where the user's version goes; `module`: to see it is there."""

    packages: tuple[str, ...]
    module: str
    chip: str
    codegen: tuple[str, ...] = ()
    """Packages under a licence of their own that let the compiler finish; without them its dump is read."""


PIN = re.compile(r"libtpu==([\d.]+?)(?:\.\*)?;")
"""What a jax says of the libtpu it was made for."""
KINDS = {
    "tpu": Kind(("jax[tpu]=={jax}", "flatbuffers"), "libtpu", "TPU"),
    "gpu": Kind(("jax=={jax}", "jaxlib=={jax}", "jax-cuda13-pjrt=={jax}", "flatbuffers"), "jax_plugins.xla_cuda13",
                "GPU", ("nvidia-nvvm", "nvidia-cuda-nvcc")),
}  # fmt: skip


def jax_version() -> str:
    """The user's own: a compiler of another version may print, or read, something else."""
    return metadata.version("jax")


def place(kind: str, version: str | None = None) -> Path:
    """Where the environment lies for a jax version and this Python."""
    tag = f"{kind}-jax{version or jax_version()}-py{sys.version_info.major}.{sys.version_info.minor}"
    return cache.folder() / "environments" / tag


def interpreter(at: Path) -> Path:
    return at / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def python(kind: str) -> str:
    """The interpreter that has the compiler: the private one, else the user's own where the compiler is installed.

    Raises UsageError, with what to run, where there is neither.
    """
    at = place(kind)
    if whole(at):
        try:
            private(at.parent)
        except OSError as e:
            raise UsageError(f"{at} is not used, {e.strerror}: set {cache.FOLDER} to a folder of yours") from None
        return str(interpreter(at))
    if installed(KINDS[kind].module):
        if other := misfit(kind):
            raise UsageError(f"{other}: install that one, or run costtrace setup {kind}")
        return sys.executable
    others = sorted(p.name.split("-jax")[1].split("-py")[0] for p in at.parent.glob(f"{kind}-jax*") if whole(p))
    had = f" (there is one for jax {', '.join(others)}, yours is {jax_version()})" if others else ""
    raise UsageError(f"no {KINDS[kind].chip} compiler{had}: run costtrace setup {kind}")


def misfit(kind: str) -> str:
    """How the compiler beside the user's jax is not the one that this jax asks for; '' where it is."""
    name, wanted = "jax-cuda13-pjrt", jax_version()
    if kind == "tpu":
        lines = [PIN.match(line) for line in metadata.requires("jax") or ()]
        name, wanted = "libtpu", next((line[1] for line in lines if line), "")
    with contextlib.suppress(metadata.PackageNotFoundError):  # installed in some other way
        if not f"{metadata.version(name)}.".startswith(wanted and f"{wanted}."):
            return f"{name} {metadata.version(name)} is not the one of jax {jax_version()} ({wanted})"
    return ""


def whole(at: Path) -> bool:
    """True where an environment was made to its end and still stands."""
    return (at / MARK).is_file() and interpreter(at).exists()


def versions(kind: str) -> dict[str, str]:
    """What the environment holds, by package, without starting it: part of an answer's key."""
    at = place(kind)
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((at / MARK).read_text())["versions"]
        return {str(k): str(v) for k, v in found.items()}
    out = {}
    for name in ("jax", "jaxlib", "libtpu", "jax-cuda13-pjrt"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            out[name] = metadata.version(name)
    return out


def installed(module: str) -> bool:
    """True where the user's own environment has the compiler's module; it is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def make(kind: str, say: Callable[[str], None], codegen: bool = False) -> Path:
    """Makes (or makes anew) the private environment and returns its folder; `say` is told each step.

    Raises UsageError for an unknown kind, CosttraceError where Python or pip fails, with pip's own last line.
    """
    if kind not in KINDS:
        raise UsageError(f"no compiler {kind!r} to set up: choose {' or '.join(KINDS)}")
    whole_at, version = place(kind), jax_version()
    packages = [p.format(jax=version) for p in KINDS[kind].packages] + list(KINDS[kind].codegen if codegen else ())
    say(f"making {whole_at}")
    at = whole_at
    try:
        private(whole_at.parent)
        at = Path(tempfile.mkdtemp(prefix=f"{whole_at.name}.", dir=whole_at.parent))  # the old one serves meanwhile
        _step([sys.executable, "-m", "venv", str(at)], "making the environment", say)
        _step(
            [str(interpreter(at)), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *packages],
            f"installing {', '.join(packages)}",
            say,
        )
        listed = subprocess.run([str(interpreter(at)), "-I", "-c", _LIST], capture_output=True, text=True, check=True)
        (at / MARK).write_text(json.dumps({"kind": kind, "versions": json.loads(listed.stdout)}))
        _replaced(whole_at, at)
    except OSError as e:
        _gone(at, whole_at)
        raise CosttraceError(
            f"the {kind} compiler's environment cannot be made at {whole_at} ({e.strerror}): set "
            f"{cache.FOLDER} to a folder with room"
        ) from None
    except (subprocess.CalledProcessError, CosttraceError, KeyboardInterrupt):
        _gone(at, whole_at)
        raise
    say(f"done: costtrace can ask the {KINDS[kind].chip} compiler of jax {version}")
    return whole_at


def _gone(at: Path, whole_at: Path) -> None:
    if at != whole_at:
        shutil.rmtree(at, ignore_errors=True)


def _replaced(old: Path, new: Path) -> None:
    """Moves `new` to `old`; what was there goes once the new one stands. An interpreter finds its packages from where
    it lies, so an environment may be moved; only its scripts, which nobody runs, still name the old place."""
    before = new.with_name(f"{new.name}.old")
    if old.exists():
        os.rename(old, before)
    os.rename(new, old)
    shutil.rmtree(before, ignore_errors=True)


_LIST = """
import json
from importlib import metadata
names = ("jax", "jaxlib", "libtpu", "jax-cuda13-pjrt", "nvidia-nvvm", "nvidia-cuda-nvcc")
found = {}
for name in names:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def _step(command: list[str], what: str, say: Callable[[str], None]) -> None:
    """Runs a command; says what it does, then its progress, line by line."""
    say(what)
    began, last = time.monotonic(), ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip():
                last = line.strip() if not line.startswith("WARNING") else last
                if line.startswith(("Collecting", "Downloading", "Installing", "  Downloading")):
                    say(f"  {line.strip()[:100]} ({time.monotonic() - began:.0f} s)")
    if process.returncode:
        raise CosttraceError(f"{what} failed: {last[:300]}: check the network and the free space, then run it again")
