"""FILE.py@REVISION -> the repository as of that revision, in a temporary folder. Knows git; runs and traces nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from costtrace.errors import UsageError

_FORM = re.compile(r"(?P<file>.+?\.py)(?::(?P<function>[\w.]+))?(?:@(?P<revision>.*))?")
_LOCAL = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE")
"""What git sets for its hooks: the repository is the one that the file lies in."""


@dataclass(frozen=True, slots=True)
class Place:
    """A Python file, the function in it ("": it holds a model) and the revision ("": as it is on disk)."""

    file: str
    function: str = ""
    revision: str = ""


def parsed(text: str) -> Place | None:
    """model.py:forward@main, model.py@HEAD~1, model.py:forward; None for what names no Python file.

    Raises UsageError where a revision is of no file, or is not there.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        if "@" in text and not text.endswith(".json"):
            raise UsageError(f"{text}: a revision is that of a Python file: write FILE.py@REVISION")
        return None
    if form["revision"] == "":
        raise UsageError(f"{text}: no revision after @: write {text}main, or leave the @ out")
    return Place(form["file"], form["function"] or "", form["revision"] or "")


@dataclass(frozen=True, slots=True)
class Tree:
    """A repository's files as of a revision. `root`: where the repository lies; `at`: where they are meanwhile."""

    root: Path
    at: Path

    def there(self, path: Path) -> Path:
        """The place in `at` of what lies in the repository; `at` itself for what does not."""
        path = path.parent.resolve() / path.name  # a link is a file of the repository too
        return self.at / path.relative_to(self.root) if path.is_relative_to(self.root) else self.at


@contextmanager
def checked_out(place: Place) -> Iterator[Tree]:
    """All files of the repository of `place.file`, so that what it imports is of that revision too. The repository is
    only read: the index is of this folder, and no hook runs.

    Raises UsageError where there is no git, no repository, no such revision, or no such file in it.
    """
    said, git = f"{place.file}@{place.revision}", shutil.which("git")
    if git is None:
        raise UsageError(f"{said}: a revision needs git, which is not on PATH: install it")
    file = Path(place.file).parent.resolve() / Path(place.file).name
    folder = next(each for each in file.parents if each.is_dir())  # its own may be gone since
    top, failed = _ran(git, folder, "rev-parse", "--show-toplevel")
    if failed:
        raise UsageError(f"{said}: {folder} is in no git repository ({failed}): leave @{place.revision} out")
    root = Path(top).resolve()
    commit, _ = _ran(git, root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{place.revision}^{{commit}}")
    if not commit:
        raise UsageError(f"{said}: no revision {place.revision!r} in {root}: git branch -a and git tag list some, "
                         "git fetch gets more")  # fmt: skip
    inside = file.relative_to(root).as_posix()
    if _ran(git, root, "cat-file", "-t", f"{commit}:{inside}")[0] != "blob":
        raise UsageError(f"{said}: no file {inside} at {commit[:10]}: git log -- {inside} says when there was one")
    with tempfile.TemporaryDirectory(prefix="costtrace-") as made:
        at = Path(made).resolve() / "tree"
        at.mkdir()
        index = {"GIT_INDEX_FILE": str(at.parent / "index"), "GIT_LFS_SKIP_SMUDGE": "1"}
        for words in (("read-tree", commit), ("checkout-index", "--all", f"--prefix={at}/")):
            _, failed = _ran(git, root, "-c", "core.sparseCheckout=false", *words, env=index)
            if failed:
                raise UsageError(f"{said}: git {words[0]} failed: {failed}: mend the repository")
        yield Tree(root, at)


def _ran(git: str, folder: Path, *words: str, env: dict[str, str] | None = None) -> tuple[str, str]:
    """(what git says, why it failed: "" where it did not)."""
    kept = {key: value for key, value in os.environ.items() if key not in _LOCAL}
    done = subprocess.run([git, "-C", str(folder), *words], env={**kept, **(env or {})},
                          capture_output=True, text=True, check=False)  # fmt: skip
    first = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0].removeprefix("fatal: ")
    return (done.stdout.strip(), "") if not done.returncode else ("", first)
