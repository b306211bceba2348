"""What is installed: PACKAGES, each with its bound and the reason for it, and what this machine has of them; the
compilers that are set up; the cache. Reads metadata and folders; imports none of the packages, jax least of all."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from costtrace import model
from costtrace.chip import names as chips
from costtrace.target import cache, setup

PYTHON = (3, 11)


@dataclass(frozen=True, slots=True)
class Package:
    """One dependency as pyproject.toml has it. `extra`: '' for what everybody gets."""

    name: str
    bound: str
    why: str
    extra: str = ""

    @property
    def distribution(self) -> str:
        return self.name.partition("[")[0]

    @property
    def command(self) -> str:
        """What installs it."""
        own = f"costtrace[{self.extra}]" if self.extra else f"{self.name}{self.bound}"
        return f"pip install '{own}'"


PACKAGES = (
    Package("jax", ">=0.10.2", "traces the programs; its private doors (doors.py) are those of 0.10 to 0.12"),
    Package("jaxlib", ">=0.10.2", "reads and lowers HLO; it goes with jax's version"),
    Package("numpy", ">=2.0", "arrays of counts; jax 0.10 wants 2.0 itself"),
    Package("networkx", ">=3.3", "the graph of scopes, its critical path"),
    Package("tabulate", ">=0.10", "tables as text, Markdown, LaTeX and HTML; 0.10 aligns heads"),
    Package("click", ">=8.4", "the command line"),
    Package("msgspec", ">=0.21.1", "checks chip files, budgets, saved profiles and headers against their types"),
    Package("diskcache", ">=5.6", "the cache on disk; JSON only, see docs/security.md"),
    Package("flatbuffers", ">=24.3.6", "jax.export artifacts, of which jax does not install the reader"),
    Package("joblib", ">=1.6", "sweeps in several processes, results in the order in which they come"),
    Package("matplotlib", ">=3.10.7", "the charts of the HTML page and of --plot"),
    Package("platformdirs", ">=4.0", "where a user's cache lies on each system"),
    Package("optax", ">=0.2.6", "--optimizer: the update of a training step", "train"),
    Package("orbax-checkpoint", ">=0.12", "--checkpoint of an orbax folder", "orbax"),
    Package("distributed", ">=2024.1", "sweep --backend dask", "dask"),
    Package("playwright", ">=1.50", "tests the HTML page in a browser", "browser"),
    Package("jax[tpu]", ">=0.10.2", "the TPU compiler in your own environment; costtrace setup tpu: apart", "tpu"),
    Package("jax-cuda13-pjrt", ">=0.10.2", "the GPU compiler in your own environment; costtrace setup gpu: apart",
            "gpu"),
    Package("nvidia-nvvm", "", "lets the GPU compiler finish: without it the optimized program is read all the same",
            "gpu"),
    Package("nvidia-cuda-nvcc", "", "as nvidia-nvvm: both under NVIDIA's own licence", "gpu"),
    Package("pytest", ">=8.0", "runs the tests", "test"),
    Package("pytest-xdist", ">=3.5", "runs them on all cores", "test"),
    Package("hypothesis", ">=6.100", "makes random programs and random files", "test"),
    Package("jsonschema", ">=4.20", "holds every JSON answer to its schema", "test"),
    Package("flax", ">=0.12.7", "modules of linen and nnx, traced in tests; for your own modules install it yourself",
            "test"),
    Package("equinox", ">=0.13.4", "modules of equinox, traced in tests", "test"),
    Package("optax", ">=0.2.6", "training steps, traced in tests", "test"),
    Package("dm-haiku", ">=0.0.17", "transforms of haiku, traced in tests", "test"),
    Package("ruff", ">=0.15,<0.18", "format and lint; formatting changes with its minor versions", "test"),
    Package("mypy", ">=1.15", "types", "test"),
)  # fmt: skip
"""Every dependency of pyproject.toml: tests hold the two, and docs/dependencies.md, together."""
USERS = ("", "train", "orbax", "dask")
"""Extras that add something to the commands."""
OK, OLD, MISSING = "ok", "too old", "missing"


def version_of(name: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return None


def numbers(version: str) -> tuple[int, ...]:
    """(0, 10, 2) of "0.10.2" or "0.10.2.dev3"."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(n) for n in found[0].split(".")) if found else ()


def state(version: str | None, bound: str) -> str:
    """ok, too old or missing, by the bound's lower end."""
    if version is None:
        return MISSING
    lowest = re.search(r">=([\d.]+)", bound)
    return OLD if lowest and numbers(version) < numbers(lowest[1]) else OK


def packages() -> Iterator[dict[str, Any]]:
    """A row for each package that a user of the commands may want."""
    for package in PACKAGES:
        if package.extra not in USERS:
            continue
        version = version_of(package.distribution)
        found = state(version, package.bound)
        yield {
            "name": package.name, "version": version, "bound": package.bound, "state": found, "extra": package.extra,
            "why": package.why, "command": None if found == OK else package.command,
        }  # fmt: skip


def compilers() -> Iterator[dict[str, Any]]:
    """A row for each kind of compiler: where its environment lies, and whether it stands."""
    for kind, about in setup.KINDS.items():
        at = None
        with contextlib.suppress(metadata.PackageNotFoundError):
            at = setup.place(kind)
        there = at is not None and setup.whole(at)
        own = setup.installed(about.module)
        found = OK if there or own else "half made" if at is not None and at.exists() else MISSING
        if own and not there and setup.misfit(kind):
            found = "not this jax's"
        yield {
            "name": f"{about.chip} compiler", "state": found,
            "place": str(at) if there else sys.executable if own else None,
            "versions": setup.versions(kind) if found == OK else {},
            "command": None if found == OK else f"costtrace setup {kind}",
        }  # fmt: skip


def kept() -> dict[str, Any]:
    """The cache: where, how large, who may open it, and whether it can be used."""
    at = cache.folder()
    off = os.environ.get(cache.FOLDER) == "off"
    answers = cache.Answers()
    usable = answers.usable()
    mode = None
    with contextlib.suppress(OSError):
        mode = stat.filemode(answers.place.stat().st_mode)
    return {
        "place": str(at), "state": "off" if off else OK if usable else "unusable", "mode": mode,
        "answers_nbytes": size(at / "compiled") + size(at / "sweep"), "environments_nbytes": size(at / "environments"),
        "problems": answers.problems,
    }  # fmt: skip


def size(folder: Path) -> int:
    """Bytes of the files in a folder; 0 where there is none."""
    total = 0
    for at, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(at, name)).st_size
    return total


def found() -> dict[str, Any]:
    """All of it, and `problems`: one line for each thing without which commands fail."""
    rows, on_disk = list(packages()), kept()
    problems = [
        f"{row['name']} is {row['state']}: {row['command']}" for row in rows if row["state"] != OK and not row["extra"]
    ]
    if sys.version_info < PYTHON:
        problems.append(f"Python {platform.python_version()} is too old: 3.11 or newer")
    return {
        "python": {"version": platform.python_version(), "executable": sys.executable, "platform": platform.platform()},
        "place": str(Path(__file__).parent), "models": len(model.names()),
        "chips": len(chips()), "packages": rows, "compilers": list(compilers()), "cache": on_disk,
        "problems": problems + on_disk["problems"],
    }  # fmt: skip
