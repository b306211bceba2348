"""A command that has a command for every model, for a path of a model's file, and (where it can) for a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from costtrace import model
from costtrace.errors import UsageError

Made = Callable[[str], click.Command]
"""Name or path of a model -> its command."""


def option_of(field: Any) -> click.Option:
    """A field of a model's config as an option."""
    flag = f"--{field.name.replace('_', '-')}"
    said = f"{field.metadata['help']}  [default: {field.default}]"
    return click.Option([flag, field.name], metavar=field.metadata["metavar"], help=said)


def command_of(
    name: str, own: tuple[click.Option, ...], run: Callable[[model.Model, Any, dict[str, Any]], None], what: str
) -> click.Command:
    """The command of one model: the model's options, then `own`, then run(model, config, the values of `own`)."""
    found = model.find(name)
    if clash := sorted({option.name for option in own if option.name} & found.options().keys()):
        raise UsageError(f"model {found.name}: its option {clash[0]!r} is {what}'s own: give the field another name")
    fields = [option_of(field) for field in found.options().values()]

    def callback(**options: Any) -> None:
        run(found, found.configure(**{key: options.pop(key) for key in found.options()}), options)

    return click.Command(
        name, params=[*fields, *own], callback=callback, help=f"{what.capitalize()} {name}: {found.title}"
    )


class PerModel(click.Group):
    """`model`: the command of a model; `function`: that of FILE.py:FUNCTION; `others`: those with a name; `own`: the
    options beside a model's, for the help."""

    def __init__(
        self, name: str, model: Made, function: Made | None = None, others: dict[str, click.Command] | None = None,
        own: tuple[click.Option, ...] = (), **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(name, subcommand_metavar="MODEL [OPTIONS]", no_args_is_help=False, **more)
        self.model, self.function, self.others, self.own = model, function, others or {}, own

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*sorted(model.names()), *self.others]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.others:
            return self.others[cmd_name]
        if self.function is not None and ":" in cmd_name:
            return self.function(cmd_name)
        return self.model(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        title = f"Models ({ctx.command_path} MODEL --help shows its options), or the path of a model's file"
        with formatter.section(title if self.function is None else f"{title}, or FILE.py:FUNCTION"):
            formatter.write_dl(sorted(model.names().items()))
        if self.own:
            with formatter.section("Options for every model, after its name"):
                formatter.write_dl([record for each in self.own if (record := each.get_help_record(ctx))])
        if self.others:
            with formatter.section("Others"):
                formatter.write_dl([(name, each.get_short_help_str(200)) for name, each in self.others.items()])
