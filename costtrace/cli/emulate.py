"""`costtrace emulate [TARGET] --chip b300`: what emulating float64 on the matrix unit would gain, kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from costtrace import chip as chips
from costtrace.cli import argument, source
from costtrace.cli.number import Number
from costtrace.cli.shared import FORMAT
from costtrace.cli.trace import bound
from costtrace.cli.waiting import working
from costtrace.errors import UsageError
from costtrace.scheme import DECONSTRUCTION, SCHEMES, Handling, Scheme, changed

if TYPE_CHECKING:
    from costtrace.demand import Demand

RATES = {"fp64": ("Native float64", "1.4 TFLOP/s"), "low": ("The scheme's products", "5 PFLOP/s"),
         "integer": ("Integer instructions", "75 TOP/s"), "hbm": ("Memory", "8 TB/s")}  # fmt: skip


def _option(*names: str, **how: Any) -> click.Option:
    return click.Option(names, **how)


OPTIONS: tuple[click.Parameter, ...] = (
    click.Argument(["target"], default="hpc", metavar="[MODEL|FILE.py:FUNCTION]"),
    _option("--chip", default="b300", show_default=True, metavar="NAME[,NAME...]", help="See: costtrace chips"),
    _option("--scheme", type=click.Choice(list(SCHEMES)), help="By default the best that the chip can run."),
    _option("--set", "sizes", multiple=True, metavar="OPTION=VALUE", help="An option of the model: --set nonzeros=27."),
    _option("--scopes", is_flag=True, help="A row for each scope, not for each stage of the model."),
    _option("--arg", "given", multiple=True, metavar="[NAME=]DTYPE[SIZE,...]", help="An argument: x=f64[8,8]."),
    _option("--args", "maker", metavar="FUNCTION", help="A function in the file that returns the arguments."),
    _option("--dim", multiple=True, metavar="NAME=N", help="The value of a size that --arg names."),
    _option("--trips", multiple=True, metavar="SCOPE=N", help="Trips of a loop whose count depends on data."),
    _option("--moduli", metavar="R|auto", help="r, or slices; auto: what 53 bits and the longest k need."),
    _option("--convert", type=Number(0), metavar="C", help="c_q: integer instructions a number and modulus."),
    _option("--alpha", type=Number(0), help="Low-precision products for one of float64."),
    _option("--gamma", type=Number(0), help="Integer instructions a result."),
    _option("--tile", metavar="MxNxK", help="The matrix unit's tile."),
    _option("--longest-k", type=click.IntRange(1), metavar="K", help="Longer sums are split."),
    _option("--beta", type=Number(0), help="Bytes streamed for a converted number, over its 8."),
    _option("--deconstruction", type=click.Choice(list(DECONSTRUCTION)), default="overlapped", show_default=True,
            help="When inputs are converted: under the other work, before it, or beforehand and stored."),
    _option("--recompute", type=Number(1), default=1.0, show_default=True, metavar="X",
            help="How often each number is converted, where matrix units do not share it."),
    *(_option(f"--{name}", metavar="RATE", help=f"{what}, instead of the chip file's: '{sample}'.")
      for name, (what, sample) in RATES.items()),
    _option("--threshold", is_flag=True, help="What would give parity, and the sizes from which products pay."),
    _option("--side", type=click.IntRange(1), default=16384, show_default=True, help="The matrix of those sizes."),
    _option("--alternatives", is_flag=True, help="Which verdicts other sources' numbers change."),
    _option("--note", is_flag=True, help="The fourth-term note's table beside the traced kernels."),
)  # fmt: skip


def callback(target: str, chip: str, scheme: str | None, format: str, **options: Any) -> None:
    """What emulating float64 on low-precision matrix units gains and costs, by kernel or by scope.

    Without a target: the kernels of the hpc model. Every number is an upper bound of a model, not a measurement.
    """
    from costtrace import emulation, publication  # numpy and the rules, which --help does not need
    from costtrace.report import emulate

    on = [chips.load(each) for each in chip.split(",")]
    if options["note"]:
        for each in on:
            publication.chip(each)
    title, config, kernels, by_scope = _kernels(target, options)
    handling = Handling(options["deconstruction"], options["recompute"], options["beta"])
    documents = []
    for each in on:
        chosen = emulation.on(SCHEMES[scheme], each) if scheme else emulation.best(each)
        by = _changed(chosen, kernels, options)
        used = emulation.with_rates(each, by, **{name: options[name] for name in RATES})
        doc = emulate.document(title, config, kernels, used, by, handling, by_scope)
        if options["threshold"]:
            emulate.more(doc, kernels, used, by, handling, options["side"])
        if options["alternatives"]:
            free = scheme is None and by is chosen
            emulate.alternatives(doc, emulation.alternatives(kernels, used, None if free else by, handling))
        if options["note"]:
            emulate.note(doc, kernels, used)
        documents.append(doc)
    click.echo(emulate.printed(documents, format))


command = FORMAT(click.Command("emulate", params=[*OPTIONS], callback=callback, help=callback.__doc__))


def _changed(by: Scheme, kernels: Sequence[Demand], options: Any) -> Scheme:
    """The scheme with the constants that the command line gives."""
    count = options["moduli"]
    if count is not None:
        longest = max((p.k for d in kernels for p in d.products), default=1)
        if count != "auto" and not (count.isdecimal() and int(count)):
            raise UsageError(f"--moduli {count}: give a whole number, 1 or more, or auto")
        count = by.moduli_for(longest) if count == "auto" else int(count)
    tile = options["tile"]
    if tile is not None:
        sides = tile.split("x")
        if len(sides) != 3 or not all(s.isdecimal() and int(s) for s in sides):
            raise UsageError(f"--tile {tile}: write MxNxK, as in 16x8x32")
        tile = tuple(map(int, sides))
    return changed(by, count=count, tile=tile, convert=options["convert"], alpha=options["alpha"],
                   gamma=options["gamma"], longest_k=options["longest_k"])  # fmt: skip


def _kernels(target: str, options: Any) -> tuple[str, dict[str, Any], list[Demand], bool]:
    """(title, config, one Demand a kernel, whether the kernels are scopes of one program)."""
    trips = argument.pairs("--trips", options["trips"])
    if ":" in target:
        fn, args, config = _function(target, options)
        return target, config, _traced(fn, args, trips), True
    from costtrace import model
    from costtrace.demand import whole

    spec = model.find(target)
    chosen = spec.configure(**dict(pair.partition("=")[::2] for pair in options["sizes"]))
    stages = spec.stages(chosen)
    out = []
    for stage in stages:
        fn, args = model.bind(stage)
        parts = _traced(fn, args, trips, weights=0)
        if options["scopes"]:
            out += [part.named(f"{stage.name}/{part.name}".removesuffix("/.")) for part in parts]
        else:
            out.append(whole(parts, stage.name))
    return spec.name, {key: getattr(chosen, key) for key in spec.options()}, out, options["scopes"]


def _function(target: str, options: Any) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """(function, abstract arguments, what to say of them)."""
    from costtrace.module.call import opened

    fn, found = source.function(target)
    if maker := options["maker"]:
        if options["given"]:
            raise UsageError("--args and --arg: give one of the two")
        return fn, source.arguments(found, target, maker), {"args": maker}
    dims = argument.pairs("--dim", options["dim"])
    parsed = [argument.parse(text, dims) for text in options["given"]]
    taken, keywords, config = bound(fn, parsed, target)
    return *opened(fn, taken, keywords), dict(config)


def _traced(
    fn: Callable[..., Any], args: tuple[Any, ...], trips: dict[str, int], weights: int | None = None
) -> list[Demand]:
    from costtrace.demand import demands
    from costtrace.trace import trace

    with working("tracing"):
        return demands(trace(fn, *args, trips=trips, weights=weights))
