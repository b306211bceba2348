"""The last sections of every --help: examples, exit codes, files, environment. PAGES has what a command adds to them.

A test runs every example.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True)
class Page:
    """What one command has of its own. examples: (command line after `costtrace`, what it does)."""

    examples: tuple[tuple[str, str], ...]
    exits: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


EXITS = (
    ("0", "The answer is on stdout."),
    ("2", "Something that you can mend: one line on stderr, no file written."),
    ("70", "A bug of costtrace."),
    ("130, 143", "Interrupted, terminated."),
)
"""Of every command."""
HOLDS = (("1", "A check does not hold."),)
CACHE = ("COSTTRACE_CACHE", "Folder of compilers' answers, sweeps and compilers; 'off' remembers nothing.")
JAX = ("JAX_ENABLE_X64", "1: 64-bit types, as jax has it.")
COLOUR = ("NO_COLOR", "Set: no colour, on a terminal too.")
TRACEBACK = ("COSTTRACE_TRACEBACK", "Set: errors with Python's traceback.")
CHIP = ("NAME.toml", "A chip of yours for --chip: each number with its unit and source.")
MODEL_FILE = ("NAME.py", "A file with a MODEL: code, which is run.")
MODEL = Page(
    (
        ("{name} --chip v6e,h100", "two chips side by side"),
        ("{name} --by primitive --top 5", "the five dearest kinds of operation"),
        ("{name} --format json", "every digit, in FLOP, bytes and seconds"),
        ("{name} --chips 8 --strategy fsdp,tp", "two ways over eight chips"),
        ("{name} --html page.html", "a page with charts, too"),
    ),
    files=(CHIP,),
    variables=(CACHE, COLOUR, JAX),
)
"""Of a model's own command."""
PAGES: dict[str, Page] = {
    "trace": Page(
        (
            ("trace mine.py:mlp --arg 'x=bf16[64,256]' --arg 'w=bf16[256,1024]'", "a function"),
            ("trace mine.py:mlp --args shapes --grad", "its gradient; a function gives the arguments"),
            ("trace mine.py:mlp --arg 'x=bf16[n,256]' --arg 'w=bf16[256,1024]' --dim n=64 --by layer", "a named size"),
            ("trace mine.py:mlp --args shapes --format json", "an answer for costtrace diff"),
        ),
        files=(("FILE.py", "Code, which is run: it is imported and traced."), CHIP),
        variables=(CACHE, COLOUR, JAX),
    ),
    "models": Page((("models", "their names"), ("models --format json", "as data"))),
    "chips": Page(
        (("chips", "side by side"), ("chips v6e", "every number of one, with its source"), ("chips v6e h100", "two")),
        files=(CHIP,),
    ),
    "audit": Page(
        (
            ("audit klein", "a published hand count against the program"),
            ("audit tiny.py --fail-on differs", "a check for a CI"),
        ),
        exits=HOLDS,
        files=(MODEL_FILE, ("NAME_claims.py", "Beside NAME.py, its CLAIMS: code, which is run.")),
        variables=(CACHE,),
    ),
    "emulate": Page(
        (
            ("emulate --chip b300", "the kernels of the hpc model"),
            ("emulate --chip b300 --threshold", "what would give parity"),
            ("emulate mine.py:mlp --arg 'f64[8,256]' --arg 'f64[256,8]' --chip h100", "a function of yours"),
        ),
        files=(CHIP,),
        variables=(JAX,),
    ),
    "diff": Page(
        (
            ("diff hpc hpc:nonzeros=27", "two configurations"),
            ("diff hpc hpc:chip=h100 --by floor_s", "two chips"),
            ("diff before.json after.json --format md", "two saved answers, for a comment"),
            ("diff mine.py:mlp@main --args shapes", "a function as it was on main, and as it is"),
            ("diff tiny.py@main tiny.py:tokens=256", "a model of a revision, and another configuration"),
        ),
        files=(
            ("SAVED.json", "What --format json or Profile.to_json wrote; data, never run."),
            MODEL_FILE,
            ("FILE.py", "Code, which is run, also as of a revision."),
        ),
    ),
    "check": Page(
        (
            ("check --budget budget.toml", "figures held to limits"),
            ("check --budget budget.toml --program before.json --format md", "of a saved answer, for a comment"),
        ),
        exits=HOLDS,
        files=(("BUDGET.toml", "program, chip and [[limit]] tables: docs/ci.md; data, never run."), MODEL_FILE),
    ),
    "schema": Page((("schema", "of a model's answer"), ("schema diff", "of a diff's"))),
    "sweep": Page(
        (
            ("sweep hpc --nonzeros 27,512 --chip v6e,h100", "four points"),
            ("sweep hpc --nonzeros 27,512 --chips 1,8 --jobs 2 --format csv", "in two processes, as data"),
        ),
        files=(MODEL_FILE, CHIP),
        variables=(CACHE, ("DASK_SCHEDULER_ADDRESS", "Where --backend dask runs.")),
    ),
    "advise": Page(
        (
            ("advise tiny.py --chip v6e", "the largest saving first"),
            ("advise tiny.py --what-if fuse:up,down", "one change"),
        ),
        files=(MODEL_FILE, CHIP),
    ),
    "validate": Page(
        (
            ("validate --chip v6e", "measurements on one chip beside their predictions"),
            ("validate --format csv", "all, as data"),
        ),
        variables=(CACHE,),
    ),
    "measure": Page(
        (
            ("measure tiny.py --out measured.json", "the real forward, timed on the device at hand"),
            ("measure mine.py:mlp --args shapes --depth 0", "a function of yours, as a whole"),
        ),
        files=(MODEL_FILE, ("FILE.json", "What --out writes; costtrace compare reads it: data, never run.")),
        variables=(("JAX_PLATFORMS", "Which of jax's devices is timed."),),
    ),
    "compare": Page(
        (("compare tiny.py --measured measured.json", "measured beside modelled, and what the gap is made of"),),
        files=(("FILE|FOLDER", "Seconds by scope, or a jax.profiler trace; data, never run."), MODEL_FILE, CHIP),
        variables=(CACHE,),
    ),
    "calibrate": Page(
        (("calibrate --quick --out my-chip.toml", "the device at hand as a chip file of measured rates"),),
        files=(("NAME.toml", "What --out writes: a chip for --chip; its samples beside it."),),
        variables=(("JAX_PLATFORMS", "Which of jax's devices is timed."),),
    ),
    "setup": Page(
        (("setup tpu", "the TPU compiler, in an environment of its own"), ("setup gpu --codegen", "the GPU's, whole")),
        files=(("COSTTRACE_CACHE/environments", "Where they lie; a folder that may be removed."),),
        variables=(CACHE,),
    ),
    "doctor": Page(
        (("doctor", "what is there"), ("doctor --format json", "for a bug report")), exits=HOLDS, variables=(CACHE,)
    ),
}
"""Command -> its page. A command without one has the sections that all have."""


def page(name: str) -> Page:
    """The page of a command, or of a model's own command."""
    return PAGES.get(name, MODEL)


def sections(name: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """(heading, rows) of the last sections of a command's help."""
    own = page(name)
    examples = [(f"costtrace {line.format(name=name)}", what) for line, what in own.examples]
    exits = sorted((*own.exits, *EXITS), key=lambda row: int(row[0].partition(",")[0]))
    variables = [*own.variables, TRACEBACK]
    some = [("Examples", examples), ("Files", list(own.files)), ("Environment", variables), ("Exit codes", exits)]
    return [(heading, rows) for heading, rows in some if rows]


def with_manual(command: click.Command, name: str) -> click.Command:
    """The command, whose --help then ends with its sections."""
    if "format_epilog" in vars(command):
        return command  # a module's command is asked for more than once
    before = command.format_epilog

    def format_epilog(ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, rows in sections(name):
            with formatter.section(heading):
                if heading == "Examples":
                    _lines(formatter, rows)
                else:
                    formatter.write_dl(rows)
        before(ctx, formatter)

    command.format_epilog = format_epilog  # type: ignore[method-assign]
    return command


def _lines(formatter: click.HelpFormatter, rows: Sequence[tuple[str, str]]) -> None:
    """A command on a line of its own, never folded, so that it can be copied."""
    for line, what in rows:
        formatter.write(f"{'':>{formatter.current_indent}}{line}\n{'':>{formatter.current_indent + 4}}{what}\n")
