"""What compilers answered, on disk, so that a question is asked once. No answer is ever wrong for being remembered:
the key holds the program, the target, the options and the versions. A cache that cannot be used is only not used.

Only its user can open its folder. An entry is JSON with a digest of its key and itself: reading one runs no code, and
what was cut or changed on disk is as if it had never been there. No entry depends on the clock.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import diskcache
import platformdirs
from diskcache.core import MODE_BINARY, MODE_RAW

from costtrace import units
from costtrace.disk import private

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FOLDER = "COSTTRACE_CACHE"
"""The variable that puts the cache elsewhere; 'off' turns it off."""
SIZE_LIMIT = int(units.parse("2 GB", "B"))
"""Bytes on disk; beyond it the oldest answers go."""
RESERVED = "reserved.lock"
"""A file of the cache's folder that is locked by who makes an answer; it stays empty."""
BROKEN = ("malformed", "not a database", "disk image", "encrypted", "no such table", "no such column")


def folder() -> Path:
    """Where costtrace keeps what it can make again: answers and private environments."""
    own = os.environ.get(FOLDER, "")
    if own and own != "off":
        return Path(os.path.expanduser(own)).absolute()
    with contextlib.suppress(RuntimeError):  # newer platformdirs; older ones give a path that is not absolute
        found = Path(platformdirs.user_cache_dir("costtrace"))
        if found.is_absolute():
            return found
    return Path(tempfile.gettempdir()) / f"costtrace-{os.getuid()}"  # a user without a home


def key(*parts: Any) -> str:
    """One text for everything that an answer depends on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


class Data(diskcache.JSONDisk):  # type: ignore[misc]
    """diskcache's JSON; a row that says it is a pickle, or that its file lies elsewhere, is refused."""

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        inside = filename is None or (not {"..", ""} & set(Path(filename).parts) and not Path(filename).is_absolute())
        if mode not in (MODE_RAW, MODE_BINARY) or not inside:
            raise Damaged("an entry that costtrace did not write")
        try:
            return super().fetch(mode, filename, value, read)
        except (zlib.error, ValueError, TypeError) as e:
            raise Damaged(f"an entry that is cut or changed ({e})") from None

    def get(self, key: Any, raw: bool) -> Any:
        raise NotImplementedError("keys are digests: nobody needs them back, and diskcache would unpickle them")


class Damaged(ValueError):
    """One entry that is not as it was written; the others are."""


def _digest(name: str, text: str) -> str:
    return hashlib.sha256(f"{name}\n{text}".encode()).hexdigest()


@dataclass(slots=True)
class Answers:
    """The remembered answers. `problems`: one line for each time that the disk did not do as it should."""

    place: Path = field(default_factory=lambda: folder() / "compiled")
    problems: list[str] = field(default_factory=list)

    def get(self, name: str) -> dict[str, Any] | None:
        """The answer of that key, or None."""
        with self._open("read") as disk:
            found = None if disk is None else disk.get(name)
            if found is None:
                return None
            text = found.get("answer") if isinstance(found, dict) else None
            if not isinstance(text, str) or found.get("digest") != _digest(name, text):
                raise Damaged("an entry that is cut or changed")
            return dict(json.loads(text))
        return None

    def put(self, name: str, answer: dict[str, Any]) -> None:
        """Remembers an answer, whole or not at all."""
        with self._open("written") as disk:
            if disk is not None:
                text = json.dumps(answer)
                disk.set(name, {"digest": _digest(name, text), "answer": text})

    @contextlib.contextmanager
    def reserving(self) -> Iterator[Callable[[str], bool]]:
        """Within, `reserved(name)` is True where no other process is about that answer: it is this one's then, until
        the end or its death. True, too, where nothing is remembered or the disk has no locks."""
        handle = None
        if fcntl is not None and os.environ.get(FOLDER) != "off":
            with contextlib.suppress(OSError):
                private(self.place)
                handle = os.open(self.place / RESERVED, os.O_RDWR | os.O_CREAT, 0o600)

        def reserved(name: str) -> bool:
            if handle is None:
                return True
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(name[:8], 16))  # one byte of it for a name
            except OSError as e:
                return e.errno not in (errno.EACCES, errno.EAGAIN)
            return True

        try:
            yield reserved
        finally:
            if handle is not None:
                os.close(handle)

    def usable(self) -> bool:
        """False where nothing will be remembered; `problems` then says why (nothing, where it is off)."""
        with self._open("used") as disk:
            return disk is not None
        return False

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
                private(self.place)
                disk = diskcache.Cache(
                    str(self.place), disk=Data, disk_compress_level=6, size_limit=SIZE_LIMIT, timeout=10
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
        if isinstance(e, Damaged):
            self.problems.append(f"the cache at {self.place} has {e}: it is not used")
        elif any(word in str(e) for word in BROKEN):
            self.clear()
            self.problems.append(f"the cache at {self.place} was damaged ({e}) and is begun afresh")
        else:
            said = e.strerror if isinstance(e, OSError) and e.strerror else e
            self.problems.append(
                f"the cache at {self.place} could not be {what} ({said}): set {FOLDER} to a folder that can "
                "be written, or to off"
            )
