"""What compilers answered, on disk, so that a question is asked once. No answer is ever wrong for being remembered:
the key holds the program, the target, the options and the versions. A cache that cannot be used is only not used."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import diskcache
import platformdirs

from costtrace import units

FOLDER = "COSTTRACE_CACHE"
"""The variable that puts the cache elsewhere; 'off' turns it off."""
SIZE_LIMIT = int(units.parse("2 GB", "B"))
"""Bytes on disk; beyond it the oldest answers go."""
BROKEN = ("malformed", "not a database", "disk image", "encrypted", "no such table", "no such column")


def folder() -> Path:
    """Where costtrace keeps what it can make again: answers and private environments."""
    own = os.environ.get(FOLDER, "")
    return Path(own).expanduser() if own and own != "off" else Path(platformdirs.user_cache_dir("costtrace"))


def key(*parts: Any) -> str:
    """One text for everything that an answer depends on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(slots=True)
class Answers:
    """The remembered answers. `problems`: one line for each time that the disk did not do as it should."""

    place: Path = field(default_factory=lambda: folder() / "compiled")
    problems: list[str] = field(default_factory=list)

    def get(self, name: str) -> dict[str, Any] | None:
        """The answer of that key, or None."""
        with self._open("read") as disk:
            if disk is not None:
                found = disk.get(name)
                return found if isinstance(found, dict) else None
        return None

    def put(self, name: str, answer: dict[str, Any]) -> None:
        """Remembers an answer, whole or not at all."""
        with self._open("written") as disk:
            if disk is not None:
                disk.set(name, answer)

    def clear(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)

    @contextlib.contextmanager
    def _open(self, what: str) -> Iterator[Any]:
        """The open cache; None where it is off or unusable. An error while it is used ends the use, with a problem."""
        if os.environ.get(FOLDER) == "off":
            yield None
            return
        disk, used = None, False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                disk = diskcache.Cache(
                    str(self.place), disk=diskcache.JSONDisk, disk_compress_level=6, size_limit=SIZE_LIMIT, timeout=10
                )
            used = True
            yield disk
        except (sqlite3.Error, OSError, ValueError, diskcache.Timeout) as e:
            self._failed(what, e)
            if not used:
                yield None
        finally:
            if disk is not None:
                with contextlib.suppress(sqlite3.Error):
                    disk.close()

    def _failed(self, what: str, e: Exception) -> None:
        if any(word in str(e) for word in BROKEN):
            self.clear()
            self.problems.append(f"the cache at {self.place} was damaged ({e}) and is begun afresh")
        else:
            self.problems.append(
                f"the cache at {self.place} could not be {what} ({e}): set {FOLDER} to a folder that can "
                "be written, or to off"
            )
