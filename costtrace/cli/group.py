"""The top-level command: which commands and models there are, each imported only when it is run."""

from __future__ import annotations

import importlib
from typing import Any

import click

from costtrace.cli.manual import with_manual
from costtrace.errors import UsageError
from costtrace.version import __version__

COMMANDS = {
    "trace": "costtrace.cli.trace",
    "models": "costtrace.cli.models",
    "chips": "costtrace.cli.chips",
    "audit": "costtrace.cli.audit",
    "emulate": "costtrace.cli.emulate",
    "diff": "costtrace.cli.diff",
    "check": "costtrace.cli.check",
    "schema": "costtrace.cli.schema",
    "sweep": "costtrace.cli.sweep",
    "advise": "costtrace.cli.advise",
    "validate": "costtrace.cli.validate",
    "calibrate": "costtrace.cli.calibrate",
    "measure": "costtrace.cli.measure",
    "compare": "costtrace.cli.compare",
    "setup": "costtrace.cli.setup",
    "doctor": "costtrace.cli.doctor",
}
"""Command -> the module whose `command` it is."""


INTERRUPTED, TERMINATED = 130, 143


class Terminated(KeyboardInterrupt):
    """SIGTERM: what Ctrl-C undoes is undone as well."""


class Interrupted(Exception):
    """Stopped from outside, with the exit code that says how."""

    def __init__(self, code: int = INTERRUPTED) -> None:
        super().__init__(code)
        self.code = code


EPILOG = "Your own model: costtrace PATH.py, a file with a MODEL. Your own function: costtrace trace FILE.py:FUNCTION."


class Commands(click.Group):
    """COMMANDS, and a command for every model and for every path of a model's file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            found: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
            return with_manual(found, cmd_name)
        from costtrace import model

        if cmd_name.endswith(".py") or cmd_name in model.names():
            from costtrace.cli.model import command

            return with_manual(command(cmd_name), cmd_name)
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        found = self.get_command(ctx, name)
        if found is not None:
            return name, found, args[1:]
        from costtrace import model

        if ".py:" in name:
            raise UsageError(f"{name} is a function: write costtrace trace {name}, with an --arg for each argument")
        near = model.near(name, [*model.names(), *COMMANDS])
        if near in COMMANDS:
            raise UsageError(f'no command "{name}": did you mean {near}? costtrace --help lists them')
        hint = f"did you mean {near}? " if near else ""
        raise UsageError(f'unknown model "{name}": {hint}costtrace models lists them')

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as e:  # of which click would make an empty line
            raise Interrupted(TERMINATED if isinstance(e, Terminated) else INTERRUPTED) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from costtrace import model

        with formatter.section("Models (costtrace MODEL --help shows a model's options)"):
            formatter.write_dl(sorted(model.names().items()))
        with formatter.section("Commands"):
            found = [(name, self.get_command(ctx, name)) for name in COMMANDS]
            formatter.write_dl([(name, each.get_short_help_str(200)) for name, each in found if each is not None])


SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=Commands, epilog=EPILOG, subcommand_metavar="MODEL|COMMAND [OPTIONS]", context_settings=SETTINGS)
@click.version_option(__version__, message="costtrace %(version)s")
def commands() -> None:
    """What every named part of a JAX program costs on a chip, from shapes alone.

    For example: costtrace klein --res 1360x768 --chip v6e
    """
