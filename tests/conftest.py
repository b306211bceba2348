"""What every test shares: the CPU backend, repeatable random programs, golden texts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"  # before anything imports jax

import pytest
from hypothesis import settings

from costtrace.cli import main

GOLDEN = Path(__file__).parent / "golden"

settings.register_profile("costtrace", derandomize=True, max_examples=30, deadline=None, database=None)
settings.load_profile("costtrace")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden instead of comparing; then read the diff"
    )
    parser.addoption("--programs", type=int, default=20, help="random programs tried under each law")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden("klein.txt", text): text must equal tests/golden/klein.txt, or rewrites it under --update-golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.is_file(), f"no tests/golden/{name}: make it with pytest --update-golden, then read it"
        assert text == path.read_text(), f"tests/golden/{name} differs: if it should, pytest --update-golden"

    return compare


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """run("diff", "klein", ...): (exit code, stdout, stderr) of a command line."""

    def ran(*argv: str) -> tuple[int, str, str]:
        code = main(argv)
        return code, *capsys.readouterr()

    return ran
