"""`--chips N --strategy ...`: the options, and how the strategies of a program are asked for and printed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from costtrace import chip
from costtrace.cli.waiting import working
from costtrace.errors import UnknownCostError, UsageError
from costtrace.report import table

if TYPE_CHECKING:
    from costtrace.core import Trace
    from costtrace.model import Model
    from costtrace.quote import Said
    from costtrace.sharding import Part, Placed

Programs = Iterable[tuple[Mapping[str, Any], "list[Part]", "Said | None"]]
"""(configuration as it is shown, its stages, what is published of it) of each; traced when it is asked for."""
OPTIONS: tuple[click.Option, ...] = (
    click.Option(["--chips"], metavar="N[,N...]", help="Several chips: strategies compared; a list: how they scale."),
    click.Option(["--strategy"], metavar="NAME[,NAME...]",
                 help="all, or some of data, fsdp, tp, sp, ulysses, ring, expert, stream, pipeline; fsdp+tp: both."),
    click.Option(["--mesh"], metavar="AXIS=N,AXIS=N", help="The axes of the chips, as in data=2,model=4."),
)  # fmt: skip
NO_PLACE = {"by": "scope", "depth": None, "layers": False, "top": None, "unit": "flop", "efficiency": False}
"""Options that the table of strategies has no place for, each with its default."""
TRAIN = click.Option(["--train"], metavar="OPTIMIZER", help="A training step: sgd, momentum, adam or adamw.")
"""Of a model; `trace` has --grad and --optimizer."""


def wanted(options: Mapping[str, Any]) -> bool:
    """True where several chips are asked for. Raises UsageError for a strategy or a mesh without --chips."""
    for name in ("strategy", "mesh", "train"):
        if options.get(name) and not options["chips"]:
            raise UsageError(f"--{name} {options[name]}: say how many chips: --chips 8")
    return bool(options["chips"])


def counts(text: str) -> list[int]:
    """[1, 2, 4] of "1,2,4". Raises UsageError."""
    out = [int(n) for n in text.split(",") if n.strip().isdecimal()]
    if len(out) != text.count(",") + 1 or not all(out):
        raise UsageError(f"--chips {text!r}: write numbers of chips, as in 8 or 1,2,4,8")
    return out


def of_model(name: str, found: Model, configs: Iterable[Any], optimizer: str | None) -> Programs:
    """Each configuration's stages, or their training steps."""
    from costtrace import claim, model, quote, sharding, training
    from costtrace.trace import trace

    claims = claim.find(name) if not optimizer else claim.Claims()
    for config in configs:
        parts = []
        for stage in found.stages(config):
            fn, args = model.bind(stage)
            jit: Mapping[str, Any] = {}
            if optimizer:
                step = training.step(fn, args, optimizer)
                fn, args, jit = step.fn, step.args, step.jit
            with working(f"tracing {found.name}: {stage.name}"):
                made = trace(fn, *args, jit=jit, weights=0)
            parts.append(sharding.Part(stage.name, 1 if jit else stage.calls, made))
        yield found.shown(config), parts, quote.said(claims, config, {part.name: part.calls for part in parts})


def of_trace(name: str, config: Mapping[str, Any], made: Trace) -> Programs:
    """A program of one stage. Raises UsageError where it is cut over devices already."""
    from costtrace import sharding
    from costtrace.dimension import COLLECTIVE

    if any(note.kind == "sharding" for note in made.notes) or any(op.primitive in COLLECTIVE for op in made.ops):
        raise UsageError(f"{name} says itself how it lies over devices, by shardings or shard_map: --chips takes one "
                         "for one device; leave --chips out and costtrace counts one of yours")  # fmt: skip
    yield config, [sharding.Part(name, 1, made)], None


def show(name: str, programs: Programs, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Prints every configuration on every chip of --chip, and returns their documents. Raises UsageError before
    anything is traced."""
    from costtrace import mesh, sharding
    from costtrace.profiler import refused
    from costtrace.report import strategies as report

    for option, default in NO_PLACE.items():
        if options[option] != default and not (option == "depth" and options.get("html")):
            raise UsageError(f"--{option} with --chips: it is for the rows of one strategy: add --strategy tp --sort "
                             f"floor, or leave --{option} out")  # fmt: skip
    chips = [chip.load(each) for each in options["chip"].split(",")]
    sizes, given = counts(options["chips"]), mesh.parsed(options["mesh"]) if options["mesh"] else None
    names = (options["strategy"] or "all").split(",")
    everything = names == ["all"] and given is None
    if names == ["all"]:
        names = _fitting(given)
    known = [*names, *(f"{sharding.DATA}+{each}" for each in sharding.BESIDE if everything)]
    if options["explain"] and options["explain"] not in known:
        raise UsageError(f"--explain {options['explain']}: with --chips it takes a strategy: {', '.join(names)}")
    for each in names:
        for n in sizes:
            sharding.axes_of(each, n, given)
    for on in chips:
        for n in sizes:
            mesh.Mesh(given or {"chips": n}, on)
    documents, explained = [], []
    for config, parts, said in programs:
        if options["strict"]:
            for part in parts:
                refused(part.name, part.counted.status, part.counted.notes)
        for on in chips:
            placed: list[Placed] = []
            for n in sizes:
                with working(f"{name} on {n} x {on.name}"):
                    if everything:
                        placed += sharding.everything(parts, on, n)
                        continue
                    some = sharding.ranked(sharding.placed(each, parts, on, n, given) for each in names)
                    if given is None:
                        _told(some, parts, n)
                    placed += some
            if options["strict"]:
                rated(text for p in placed for text in p.missing)
            if options["explain"]:
                explained += [line for p in placed if p.name == options["explain"] for line in report.explain(p)]
            documents.append(report.document(name, config, on, parts, placed, said))
    form = options["format"]
    if options["explain"] and not explained:
        raise UsageError(f"--explain {options['explain']}: no row of that name: the batch divides, or has no factor of "
                         "the chips")  # fmt: skip
    if options["explain"]:
        click.echo("\n".join(explained))
    elif form == "json":
        from costtrace.report.document import several

        click.echo(json.dumps(several(documents), indent=2))
    elif form == "text":
        click.echo("\n\n".join(report.page(doc) for doc in documents))
    else:
        click.echo("\n".join(table.FORMATS[form](report.table(doc)) for doc in documents))
    return documents


def _told(some: Sequence[Placed], parts: list[Part], n: int) -> None:
    """Where the batch leaves `data` no use, its line names the strategy to try beside it."""
    from costtrace import sharding

    name, laid = next(iter(sharding.beside_data(sharding.BESIDE, parts, n).items()), ("", {}))
    for p in some:
        if p.name == sharding.DATA and p.blocked and name:
            axes = ",".join(f"{axis}={size}" for axis, size in laid.items())
            p.problems.append(f"a factor of {n} divides the batch: try --strategy {name} --mesh {axes}")


def rated(missing: Iterable[str]) -> None:
    """Raises UnknownCostError where the chip's file lacks a rate that the work needs: --strict."""
    for text in missing:
        raise UnknownCostError(
            f"--strict: {text}: give a chip file that has it (--chip my.toml), or leave --strict out"
        )


def _fitting(given: dict[str, int] | None) -> list[str]:
    """Every strategy that knows the mesh's axes. Raises UsageError where none does."""
    from costtrace import sharding

    if given is None:
        return list(sharding.STRATEGIES)
    out = []
    for name in sharding.STRATEGIES:
        try:
            sharding.axes_of(name, _size(given), given)
        except UsageError:
            continue
        out.append(name)
    if not out:
        raise UsageError(f"no one strategy knows the axes {', '.join(given)}: name two, as in --strategy fsdp+tp")
    return out


def _size(given: Mapping[str, int]) -> int:
    out = 1
    for n in given.values():
        out *= n
    return out
