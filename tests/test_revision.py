"""A file as of a git revision: its repository's files, nothing left behind, each side with modules of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from documented import committed

from costtrace import revision
from costtrace.cli import apart, main
from costtrace.errors import UsageError
from costtrace.revision import Place

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git on PATH")
M, K, N = 64, 128, 512
MODEL = """
import jax
from width import N

def mlp(w, x):
    with jax.named_scope("up"):
        y = x @ w["up"]
    with jax.named_scope("down"):
        return y @ w["down"]

def shapes():
    shape = lambda *dims: jax.ShapeDtypeStruct(dims, "bfloat16")
    return {"up": shape(128, N), "down": shape(N, 128)}, shape(64, 128)
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A commit in which nets/width.py says 512, and 1536 on disk; the working folder is nets/."""
    for name in list(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    nets = tmp_path / "project" / "nets"
    nets.mkdir(parents=True)
    (nets / "model.py").write_text(MODEL)
    (nets / "width.py").write_text(f"N = {N}\n")
    (nets.parent / ".gitattributes").write_text("width.py export-ignore\n")
    committed(nets.parent)
    (nets / "width.py").write_text(f"N = {3 * N}\n")
    monkeypatch.chdir(nets)
    left = tmp_path / "left"
    left.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(left))
    return nets.parent


def state(repository: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in repository.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("model.py:forward@main", Place("model.py", "forward", "main")),
        ("a@b/model.py:Net.call@HEAD@{1}", Place("a@b/model.py", "Net.call", "HEAD@{1}")),
        ("./mine.py@origin/x.py", Place("./mine.py", "", "origin/x.py")),
        ("model.py:forward", Place("model.py", "forward")),
        ("model.py", Place("model.py")),
        ("klein", None),
        ("saved@home.json", None),
    ],
)
def test_the_text_of_a_place(text: str, place: Place | None) -> None:
    assert revision.parsed(text) == place


def test_the_files_are_those_of_the_revision_and_go_away(repository: Path) -> None:
    before = state(repository)
    with revision.checked_out(Place("model.py", "mlp", "main")) as tree:
        found = {path.relative_to(tree.at).as_posix() for path in tree.at.rglob("*") if path.is_file()}
        assert found == {".gitattributes", "nets/model.py", "nets/width.py"}  # export-ignore is for releases
        assert tree.there(Path("width.py")).read_text() == f"N = {N}\n"
        assert tree.there(repository) == tree.there(Path("/elsewhere")) == tree.at
    assert not any(Path(tempfile.gettempdir()).iterdir())
    assert state(repository) == before


def test_a_file_that_is_gone_since_is_there(repository: Path) -> None:
    shutil.rmtree(repository / "nets")
    os.chdir(repository)
    with revision.checked_out(Place("nets/model.py", "", "HEAD")) as tree:
        assert (tree.at / "nets" / "model.py").read_text() == MODEL


def test_what_git_sets_for_a_hook_changes_nothing(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository / ".git" / "index"))
    before = state(repository)
    with revision.checked_out(Place("model.py", "", "main")) as tree:
        assert tree.root == repository.resolve()
    assert state(repository) == before


@pytest.mark.parametrize(
    ("file", "name", "said"),
    [
        ("model.py", "mian", "model.py@mian: no revision 'mian' in "),
        ("model.py", "--all", "model.py@--all: no revision '--all' in "),
        ("model.py", "main:nets", "no revision 'main:nets' in "),
        ("modle.py", "main", "modle.py@main: no file nets/modle.py at "),
        ("../nets", "main", "no file nets at "),
        ("../../alone.py", "main", "is in no git repository (not a git repository"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(repository: Path, file: str, name: str, said: str) -> None:
    with pytest.raises(UsageError) as e, revision.checked_out(Place(file, "", name)):
        pass
    assert said in str(e.value) and "\n" not in str(e.value)
    assert not any(Path(tempfile.gettempdir()).iterdir())


def test_without_git_it_says_so(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))
    with pytest.raises(UsageError) as e, revision.checked_out(Place("model.py", "", "main")):
        pass
    assert str(e.value) == "model.py@main: a revision needs git, which is not on PATH: install it"


@pytest.mark.slow
def test_a_function_against_its_revision(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is the same; what it imports beside it is not."""
    assert main(["diff", "model.py:mlp@main", "--args", "shapes", "--by", "flops", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    doc = json.loads(out)
    assert [(row["scope"], row["flops"]) for row in doc["rows"]] == [
        (scope, {"before": 2 * M * K * N, "after": 2 * M * K * 3 * N}) for scope in ("up", "down")
    ]
    assert (doc["before"]["title"], doc["after"]["title"]) == ("model.py:mlp@main", "model.py:mlp")
    assert err == "" and not any(Path(tempfile.gettempdir()).iterdir())


def test_an_environment_in_the_repository_is_none_of_its_files(repository: Path) -> None:
    """Nor is another repository in it, as under a home folder that is one."""
    for name in ("nets", ".venv/lib/python3.11/site-packages", "other/src", "nets/new"):
        (repository / name).mkdir(parents=True, exist_ok=True)
    with revision.checked_out(Place("model.py", "", "main")) as tree:
        own = [apart._of(tree, str(repository / name)) for name in ("", "nets", "nets/model.py", "nets/new.py")]
        others = [apart._of(tree, str(repository / name)) for name in (".venv/lib/python3.11", "other/src", "nets/new")]
        assert own == [True] * 4 and others == [False] * 3
        assert not any(apart._of(tree, text) for text in ("", json.__file__, str(tree.at / "nets")))


@pytest.mark.slow
def test_functions_of_two_names_and_files_are_compared_scope_by_scope(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "other.py").write_text(MODEL.replace("def mlp", "def wide").replace("from width import N", "N = 512"))
    assert main(["diff", "model.py:mlp@HEAD", "../other.py:wide", "--args", "shapes"]) == 0
    assert "no scope differs" in capsys.readouterr().out
    assert main(["diff", "model.py:mlp@HEAD", "../other.py:wide", "--args", "shapes", "--grad", "--chip", "h100"]) == 0
    assert "model.py:mlp@HEAD on h100" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "diff model.py:mpl@main --args shapes",
            "model.py:mpl@main: model.py has no function 'mpl': did you mean mlp?",
        ),
        ("diff model.py:mlp@main", "model.py:mlp@main: model.py:mlp: missing a required argument: 'w'"),
        ("diff model.py@main", "model.py@main: "),
    ],
)
def test_what_a_side_says_is_one_line(
    line: str, said: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"costtrace: error: {said}") and err.count("\n") == 1
    assert tempfile.gettempdir() not in err


def diffed(place: str, folder: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    """costtrace diff of a place in a process whose PYTHONPATH has some folders more."""
    argv = [sys.executable, "-m", "costtrace", "diff", place, "--args", "shapes", "--by", "flops"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).parent.parent, *path)))}
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, env=env)


@pytest.fixture
def package(repository: Path) -> Path:
    """nets as a package, and a folder beside it with a file that imports it."""
    (repository / "nets" / "__init__.py").write_text("")
    (repository / "nets" / "width.py").write_text(f"N = {N}\n")
    (repository / "bench").mkdir()
    (repository / "bench" / "run.py").write_text(MODEL.replace("from width", "from nets.width"))
    committed(repository)
    (repository / "nets" / "width.py").write_text(f"N = {3 * N}\n")
    return repository


@pytest.mark.slow
def test_a_package_on_the_path_is_that_of_the_revision(package: Path) -> None:
    done = diffed("run.py:mlp@main", package / "bench", package)
    assert done.returncode == 0 and "+200.0 %" in done.stdout, done.stderr


@pytest.mark.slow
def test_an_installed_package_that_is_not_of_the_revision_is_told(package: Path, tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(FINDER.format(place=str(package / "nets" / "__init__.py")))
    done = diffed("run.py:mlp@main", package / "bench", hook)
    assert (done.returncode, done.stdout) == (2, "")
    assert "it imports nets as it is on disk" in done.stderr and done.stderr.count("\n") == 1


FINDER = """
import importlib.util, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        place = {place!r}
        if name == "nets":
            return importlib.util.spec_from_file_location(name, place, submodule_search_locations=[place[:-12]])

sys.meta_path.append(Finder)
"""
"""What setuptools makes of `pip install -e` for a package that lies beside others."""
