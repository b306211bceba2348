"""Every command that README.md, docs/*.md and --help show, run; every page of --help whole."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

import click
import documented
import pytest

from costtrace.cli import main, manual
from costtrace.cli.group import COMMANDS, commands

SHOWN = sorted(set(documented.shown()))
RUN = [(page, command) for page, command in SHOWN if not re.search(documented.NEVER, command)]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """here("docs/ci.md"): the folder with that page's files, as the working folder."""
    made: dict[str, Path] = {}
    with pytest.MonkeyPatch.context() as patch:

        def folder(page: str) -> Path:
            if page not in made:
                made[page] = path = documented.folder(tmp_path_factory.mktemp("documented"), page)
                patch.chdir(path)
                with redirect_stdout(io.StringIO()) as out:
                    assert main(["tiny.py", "--format", "json"]) == 0
                documented.saved(path, out.getvalue())
            patch.chdir(made[page])
            patch.setenv("COSTTRACE_CACHE", str(made[page] / "cache"))
            return made[page]

        yield folder


@pytest.mark.parametrize(
    ("page", "command"),
    [pytest.param(*c, marks=pytest.mark.slow) if re.search(documented.LONG, c[1]) else c for c in RUN],
)
def test_a_command_that_is_shown_runs(
    page: str, command: str, here: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    here(page)
    code = documented.run(command)
    out, err = capsys.readouterr()
    assert out and code == (1 if "--fail-on" in command else 0), err


@pytest.mark.slow
def test_what_the_tutorial_measures_is_then_compared(
    here: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    here("docs/tutorials.md")
    pair = [c for c in documented.commands("docs/tutorials.md") if c.startswith(("measure", "compare"))]
    assert [command.split()[0] for command in pair] == ["measure", "compare"]
    for command in pair:
        code = documented.run(command)
        out, err = capsys.readouterr()
        assert out and code == 0, err


def test_pages_show_commands() -> None:
    assert len(SHOWN) > 60 and len(RUN) > 50


@pytest.mark.parametrize("name", [*COMMANDS, "klein", "tiny.py"])
def test_help_is_a_manual(name: str, here: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    here("README.md")
    assert main([name, "--help"]) == 0
    page = capsys.readouterr().out
    assert page.startswith(f"Usage: costtrace {name} ")
    for heading in ("Examples:", "Environment:", "Exit codes:"):
        assert f"\n{heading}\n" in page
    for line, _ in manual.page(name).examples:
        assert f"\n  costtrace {line.format(name=name)}\n" in page
    assert "COSTTRACE_TRACEBACK" in page and re.search(r"\n  2 +Something that you can mend", page)


def test_every_command_has_a_page() -> None:
    assert set(COMMANDS) <= set(manual.PAGES), "add an entry to PAGES in costtrace/cli/manual.py"


GROUPS = ("audit", "sweep", "advise", "measure", "compare")


@pytest.mark.parametrize("name", [*(c for c in COMMANDS if c not in GROUPS), "klein", *(f"{c} klein" for c in GROUPS)])
def test_every_option_says_what_it_does_what_it_takes_and_what_it_is_without(name: str) -> None:
    context = click.Context(commands, info_name="costtrace")
    command: click.Command = commands
    for word in name.split():
        assert isinstance(command, click.Group)
        found = command.get_command(context, word)
        assert found is not None
        command = found
    for option in command.params:
        if not isinstance(option, click.Option):
            continue
        assert option.help and len(option.help) > 7, option.opts
        if not option.is_flag:
            shown = context.formatter_class()
            shown.write_dl([row for row in [option.get_help_record(context)] if row])
            assert option.metavar or isinstance(option.type, click.Choice) or "RANGE" in shown.getvalue(), option.opts
            if isinstance(option.default, str | int | float):
                assert option.show_default or "default" in option.help, option.opts
