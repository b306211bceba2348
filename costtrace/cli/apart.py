"""A function, or a file as of a revision, traced in a process of its own: no two versions of a module meet.

`side` asks and reads the answer; `main` is what runs in the process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costtrace.cli.waiting import working
from costtrace.errors import CosttraceError, UsageError
from costtrace.option import flag
from costtrace.revision import Place, Tree, checked_out

if TYPE_CHECKING:
    from costtrace.figure import Figures

START = ("import sys; sys.path.insert(0, sys.argv[1]); import costtrace; del sys.path[0]; "
         "from costtrace.cli.apart import main; sys.exit(main(sys.argv[2:]))")  # fmt: skip
PREFIX = "costtrace: error: "


def side(place: Place, given: Sequence[str], options: Mapping[str, str], chip: str | None, title: str) -> Figures:
    """The figures of a function with `given` of `costtrace trace`, or of a model's file with its options.

    Raises UsageError as checked_out does, and what the process says of the program.
    """
    from costtrace import figure

    fields = [word for name, value in options.items() for word in (flag(name), value)]
    with ExitStack() as stack:
        stack.enter_context(working(f"tracing {title}"))
        tree = stack.enter_context(checked_out(place)) if place.revision else None
        folder = Path.cwd() if tree is None else tree.there(Path.cwd())
        folder.mkdir(parents=True, exist_ok=True)  # one that was not there yet
        file = place.file if tree is None else os.path.relpath(tree.there(Path(place.file)), folder)
        words = ["trace", f"{file}:{place.function}", *given] if place.function else [f"{file}", *fields]
        text = _asked([*words, "--format", "json"], tree, folder, title)
    made = figure.of_document(json.loads(text), title, chip)
    made.title = title
    return made


def _asked(words: Sequence[str], tree: Tree | None, folder: Path, title: str) -> str:
    """What the process prints; what it says on stderr beside an error is passed on."""
    own = Path(__file__).parents[2]
    where = [] if tree is None else [str(tree.root), str(tree.at)]
    command = [sys.executable, "-P", "-c", START, str(own), json.dumps(where), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    if done.returncode:
        said = [line.removeprefix(PREFIX) for line in lines if line.startswith(PREFIX)] or lines or ["no message"]
        error = CosttraceError(f"{title}: {said[-1]}")
        error.exit_code = done.returncode if done.returncode > 0 else 2
        raise error
    if lines:
        click.echo("\n".join(lines), err=True)
    return done.stdout


def main(argv: Sequence[str]) -> int:
    """In the process: [root, at] of a Tree as JSON, or [], then the command line."""
    from costtrace.cli import main as run

    where, *words = argv
    tree = Tree(*map(Path, json.loads(where))) if json.loads(where) else None
    sys.path.append(os.getcwd())
    if tree is None:
        return run(words)
    sys.path[:] = [str(tree.there(Path(entry))) if _of(tree, entry) else entry for entry in sys.path]
    code = run(words)
    some = {name: getattr(module, "__file__", None) or "" for name, module in list(sys.modules.items())}
    strayed = [name for name, file in some.items() if name.partition(".")[0] != "costtrace" and _of(tree, file)]
    if code or not strayed:
        return code
    click.echo(f"{PREFIX}it imports {strayed[0]} as it is on disk, in {tree.root}, not of that revision: an installed "
               "package comes first: run it in an environment without that one", err=True)  # fmt: skip
    return UsageError.exit_code


def _of(tree: Tree, text: str) -> bool:
    """True for a file or folder of the repository as it is on disk, in a folder that the revision has too: not for an
    environment or another repository that lies in it."""
    path = Path(text).resolve()
    folder = path if path.is_dir() else path.parent
    mine = bool(text) and folder.is_relative_to(tree.root) and not folder.is_relative_to(tree.at)
    return mine and tree.there(folder).is_dir()
