"""Files on disk, whole or not at all: written beside their place under another name, then moved there in one step.

What is half made is locked by its process while it lives. What a killed process left is cleared by the next that works
at the same place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from costtrace.errors import UsageError

try:
    import fcntl
except ImportError:  # Windows, where nothing is cleared
    fcntl = None  # type: ignore[assignment]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says where a disk is full, or a file at its limit."""
MODE = 0o666
"""Of a new file, less the umask."""
SCRATCH = "costtrace.tmp-"
"""How the names of temporary folders begin."""
STALE_S = 60.0
"""What is not older may be about to be locked."""


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


def keep(files: Mapping[str, str | bytes]) -> None:
    """Writes what long work made, as write_all; where it cannot, beside other temporary files. Raises UsageError that
    says where it lies then."""
    try:
        write_all(files)
    except OSError as e:
        place = tempfile.mkdtemp(prefix="kept-by-costtrace-")
        try:
            write_all({str(Path(place) / Path(path).name): content for path, content in files.items()})
            where = f"it is kept in {place}: move it from there"
        except OSError:
            shutil.rmtree(place, ignore_errors=True)
            where = "make room there, or give another path"
        raise UsageError(f"{', '.join(files)} cannot be written: {e.strerror}: {where}") from None


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


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder of mode 0700 that goes away. Raises OSError."""
    _clear(Path(tempfile.gettempdir()), SCRATCH)
    with (
        tempfile.TemporaryDirectory(prefix=SCRATCH, ignore_cleanup_errors=True) as place,
        contextlib.ExitStack() as locks,
    ):
        _lock(place, locks)
        yield Path(place)


def _lock(path: str, locks: contextlib.ExitStack) -> None:
    if fcntl is not None:
        handle = os.open(path, os.O_RDONLY)
        locks.callback(os.close, handle)
        with contextlib.suppress(OSError):  # a disk without locks: its files are old enough before anyone clears them
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _clear(folder: Path, start: str, end: str = "") -> None:
    """Removes what is in the folder under such names, is this user's and old, and is held by no process."""
    if fcntl is None:
        return
    names: list[str] = []
    with contextlib.suppress(OSError):  # a folder may be closed to those who list it
        names = os.listdir(folder)
    for path in (folder / name for name in names if name.startswith(start) and name.endswith(end)):
        with contextlib.suppress(OSError), contextlib.ExitStack() as locks:
            found = os.lstat(path)
            if found.st_uid != os.getuid() or abs(time.time() - found.st_mtime) < STALE_S or path.is_symlink():
                continue
            handle = os.open(path, os.O_RDONLY)
            locks.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def _staged(path: Path, content: str | bytes, undo: contextlib.ExitStack) -> tuple[str | None, Path]:
    """(the file that waits, where it goes); nothing waits for a device or a pipe, which takes it at once."""
    writable(path)
    data = content.encode() if isinstance(content, str) else content
    if _is_stdout(path):
        sys.stdout.flush()
        with open(os.dup(1), "wb") as stream:  # after what is printed already, before what will be
            stream.write(data)
        return None, path
    if path.exists() and not path.is_file():  # before resolve(): a pipe behind /dev/fd has no other name
        path.write_bytes(data)
        return None, path
    path = path.resolve()  # a link stays a link
    start = f".{path.name[:100]}."
    _clear(path.parent, start, ".part")
    handle, part = tempfile.mkstemp(prefix=start, suffix=".part", dir=path.parent)
    undo.callback(_gone, part)
    _lock(part, undo)
    with open(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)
    os.chmod(part, _mode(path))
    return part, path


def _is_stdout(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(os.stat(path), os.fstat(1))
    return False


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
