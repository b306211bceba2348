"""docs/dependencies.md, installation.PACKAGES and pyproject.toml say the same; costtrace doctor says what is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from costtrace import installation
from costtrace.cli import main
from costtrace.installation import MISSING, OK, OLD, PACKAGES, Package

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGE = ROOT / "docs" / "dependencies.md"


def split(text: str) -> tuple[str, str]:
    """("jax[tpu]", ">=0.10") of "jax[tpu]>=0.10"."""
    found = re.fullmatch(r"([\w.-]+(?:\[\w+\])?)(.*)", text)
    assert found is not None
    return found[1], found[2]


def table(some: list[Package]) -> list[str]:
    return ["| package | for |", "|---|---|", *(f"| `{p.name}{p.bound}` | {p.why} |" for p in some)]


def written() -> str:
    """The page's tables, from PACKAGES."""
    extras = dict.fromkeys(p.extra for p in PACKAGES if p.extra)
    lines = table([p for p in PACKAGES if not p.extra])
    for extra in extras:
        lines += ["", f"## costtrace[{extra}]", "", *table([p for p in PACKAGES if p.extra == extra])]
    return "\n".join(lines) + "\n"


def test_every_dependency_has_its_bound_and_its_reason() -> None:
    wanted = {("", *split(text)) for text in PROJECT["dependencies"]} | {
        (extra, *split(text)) for extra, some in PROJECT["optional-dependencies"].items() for text in some
    }
    assert {(p.extra, p.name, p.bound) for p in PACKAGES} == wanted
    assert len(PACKAGES) == len(wanted)
    assert all(len(p.why) > 4 for p in PACKAGES)


def test_the_page_is_current(request: pytest.FixtureRequest) -> None:
    head, mark, _ = PAGE.read_text().partition("<!-- the tables: pytest --update-golden writes them -->\n")
    if request.config.getoption("--update-golden"):
        PAGE.write_text(head + mark + "\n" + written())
    assert PAGE.read_text() == head + mark + "\n" + written(), "pytest --update-golden, then read the diff"


def test_python_is_as_in_pyproject() -> None:
    assert PROJECT["requires-python"] == f">={'.'.join(map(str, installation.PYTHON))}"


STATES = {
    ("0.10.2", ">=0.10"): OK,
    ("0.9.9", ">=0.10"): OLD,
    (None, ">=0.10"): MISSING,
    ("0.17.4", ">=0.15,<0.18"): OK,
    ("2.0.0rc1", ">=2.0"): OK,
    ("1.0", ""): OK,
}


@pytest.mark.parametrize(("version", "bound"), STATES)
def test_states(version: str | None, bound: str) -> None:
    assert installation.state(version, bound) == STATES[version, bound]


@pytest.fixture
def doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    monkeypatch.setenv("COSTTRACE_CACHE", str(tmp_path / "cache"))

    def run(*more: str) -> tuple[int, str]:
        code = main(["doctor", *more])
        return code, capsys.readouterr().out

    return run


def test_the_doctor_names_versions_compilers_and_the_cache(
    doctor: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    code, out = doctor("--format", "json")
    doc = json.loads(out)
    versions = {row["name"]: row["version"] for row in doc["packages"]}
    assert code == 0 and versions["jax"] == metadata.version("jax") and versions["numpy"] == metadata.version("numpy")
    assert doc["python"]["executable"] == sys.executable
    assert [(row["name"], row["state"], row["command"]) for row in doc["compilers"]] == [
        ("TPU compiler", "missing", "costtrace setup tpu"), ("GPU compiler", "missing", "costtrace setup gpu"),
    ]  # fmt: skip
    kept = doc["cache"]
    assert (kept["place"], kept["state"], kept["mode"]) == (str(tmp_path / "cache"), "ok", "drwx------")
    assert kept["answers_nbytes"] > 0 == kept["environments_nbytes"]


def test_what_is_missing_is_said_with_what_gets_it(
    doctor: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = metadata.version
    absent = {"optax", "networkx"}

    def version(name: str) -> str:
        if name in absent:
            raise metadata.PackageNotFoundError(name)
        return "0.9.0" if name == "jax" else real(name)

    monkeypatch.setattr(metadata, "version", version)
    code, page = doctor()
    assert code == 1
    assert "pip install 'costtrace[train]'" in page
    assert "\nproblem: jax is too old: pip install 'jax>=0.10.2'\n" in page
    assert "\nproblem: networkx is missing: pip install 'networkx>=3.3'" in page
    assert "problem: optax" not in page


def test_the_doctor_says_that_the_cache_cannot_be_used(
    doctor: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSTTRACE_CACHE", "/dev/null/cache")
    code, page = doctor()
    assert code == 1 and "cache /dev/null/cache: unusable, not made yet" in page and "problem: the cache at " in page
    monkeypatch.setenv("COSTTRACE_CACHE", "off")
    code, page = doctor()
    assert code == 0 and ": off, " in page


def test_the_doctor_imports_nothing_that_it_looks_for() -> None:
    code = (
        "import sys; from costtrace.cli import main; main(['doctor']); "
        "print(*sorted({'jax', 'jaxlib', 'flax', 'optax', 'orbax', 'distributed', 'joblib'} & set(sys.modules)), 'end')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "end"
