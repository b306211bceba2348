"""Files on disk, whole or not at all: written beside their place under another name, then moved there in one step."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

MODE = 0o666
"""Of a new file, less the umask."""


def write(path: str | Path, text: str) -> None:
    """Writes one file. Raises OSError; then what was there before is still there, whole."""
    write_all({str(path): text})


def write_all(files: Mapping[str, str | bytes]) -> None:
    """Writes {path: text or bytes}: every file is complete on disk before the first takes its place. Raises OSError."""
    with contextlib.ExitStack() as undo:
        moves = [_staged(Path(path), content, undo) for path, content in files.items()]
        for part, path in moves:
            if part is not None:
                os.replace(part, path)


def writable(path: str | Path) -> None:
    """Raises OSError where no file can be written there: no such folder, a folder in its place, no right to."""
    path = Path(path)
    number = 0
    if path.is_dir():
        number = errno.EISDIR
    elif not path.resolve().parent.is_dir():
        number = errno.ENOENT
    elif not os.access(path if path.exists() else path.resolve().parent, os.W_OK):
        number = errno.EACCES
    if number:
        raise OSError(number, os.strerror(number), str(path))


def _staged(path: Path, content: str | bytes, undo: contextlib.ExitStack) -> tuple[str | None, Path]:
    """(the file that waits, where it goes); nothing waits for a device or a pipe, which takes it at once."""
    writable(path)
    data = content.encode() if isinstance(content, str) else content
    path = path.resolve()  # a link stays a link
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return None, path
    handle, part = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
    undo.callback(_gone, part)
    with open(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)
    os.chmod(part, _mode(path))
    return part, path


def _mode(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return stat.S_IMODE(os.stat(path).st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return MODE & ~mask


def _gone(part: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part)


def private(folder: Path) -> None:
    """Makes the folder where it is not there, and closes it to all but its user. Raises PermissionError where it is
    another user's, OSError where it cannot be made."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not hasattr(os, "getuid"):
        return  # Windows keeps a user's folders from the others
    found = os.stat(folder)
    if found.st_uid != os.getuid():
        raise PermissionError(1, f"it belongs to another user (id {found.st_uid})", str(folder))
    if stat.S_IMODE(found.st_mode) & 0o077:
        try:
            os.chmod(folder, 0o700)
        except OSError as e:
            if e.errno != errno.EROFS:  # on a disk that is only read nobody puts anything in
                raise
