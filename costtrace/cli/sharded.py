"""`--chips N --strategy NAME --compiled`: what the chips' own compiler makes of one strategy, collectives by scope.

The strategy's cuts are given as the shardings of the arguments, the rest is the partitioner's. Beside it stands one
chip's program as the strategy has it (placement.py), which has the floors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from costtrace import units
from costtrace.cli import strategies
from costtrace.cli.shared import Run, show
from costtrace.core import Note
from costtrace.errors import UsageError

if TYPE_CHECKING:
    from costtrace.chip import Chip
    from costtrace.mesh import Collective
    from costtrace.model import Model
    from costtrace.sharding import Share
    from costtrace.target.program import Program

Stage = tuple[str, int, Any, tuple[Any, ...], int | None]
"""(name, calls, function, abstract arguments, depth of its rows)"""


def of_model(found: Model, configs: Iterable[Any]) -> Iterable[tuple[Mapping[str, Any], list[Stage]]]:
    """Each configuration, as it is shown, with its stages."""
    from costtrace import model

    for config in configs:
        yield found.shown(config), [(s.name, s.calls, *model.bind(s), s.depth) for s in found.stages(config)]


def compile_and_show(
    name: str,
    programs: Iterable[tuple[Mapping[str, Any], list[Stage]]],
    options: Mapping[str, Any],
    weights: int | str | None = 0,
) -> None:
    """Prints every configuration on every chip of --chip. weights: as in costtrace.profile. Raises UsageError where not
    just one strategy is named."""
    from costtrace import mesh, sharding

    sizes = strategies.counts(options["chips"])
    given = mesh.parsed(options["mesh"]) if options["mesh"] else None
    strategy = options["strategy"] or ""
    one = len(sizes) == 1 and strategy and "," not in strategy and strategy != "all"
    cuts = not {sharding.PIPELINE, "stream"} & set(strategy.split("+"))
    if not one or not cuts or options.get("train"):
        asked = "--compiled" if options["compiled"] or options["view"] else "--sort"
        raise UsageError(f"{asked} with --chips takes one number of chips and one strategy that cuts arrays, without "
                         f"--train: --chips 8 --strategy tp {asked}{' floor' * (asked == '--sort')}")  # fmt: skip
    axes = sharding.axes_of(strategy, sizes[0], given)
    laid = given or dict(axes.values())
    about = {"chips": str(sizes[0]), "strategy": strategy, **({"mesh": options["mesh"]} if given else {})}
    show((_run(name, {**config, **about}, stages, axes, laid, weights) for config, stages in programs), options)


def _run(
    name: str,
    config: Mapping[str, Any],
    stages: list[Stage],
    axes: dict[str, tuple[str, int]],
    laid: dict[str, int],
    weights: int | str | None,
) -> Run:
    from costtrace import sharding
    from costtrace.profiler import folded
    from costtrace.target.program import lowered, sharded
    from costtrace.trace import trace

    profiles, sent, shares = [], [], []
    moved: list[Collective] = []
    for stage, calls, fn, args, _ in stages:
        part = sharding.Part(stage, calls, trace(fn, *args, weights=weights))
        local, cannot, _ = sharding.one_chip(part, axes)
        made = folded(local)
        made.notes += [Note("sharding", "", text) for text in cannot]
        profiles.append((stage, calls, made))
        shares.append(sharding.Share(stage, calls, made.total, made.peak))
        moved += sharding.collectives(local, calls)
        cuts = {axis: sharding.arguments(part, each, n) for each, (axis, n) in axes.items() if n > 1}
        sent.append((fn, sharded(args, dict(axes.values()), cuts)))

    def programs(platform: str) -> list[Program]:
        return [lowered(fn, args, platform) for fn, args in sent]

    def extra(on: Chip, efficiency: bool) -> dict[str, Any]:
        return {"notes": [_links(shares, moved, laid, on)]} if moved and on.link_bytes_per_s else {}

    return Run(name, config, profiles, {stage: depth for stage, *_, depth in stages if depth}, extra, programs)


def _links(shares: list[Share], moved: list[Collective], laid: dict[str, int], on: Chip) -> dict[str, str]:
    """The note of what this page's floors take links for, and what they take on the slice."""
    from costtrace import mesh, sharding

    count = on.number("link.count")
    text = f"floors here have all {'links' if count is None else count.text} of a chip busy at once, without latency"
    try:
        p = sharding.Placed("", mesh.Mesh(laid, on), shares, moved)
        text += (f"; as a slice of {'x'.join(map(str, p.mesh.shape))} has them, all calls send for "
                 f"{units.text(p.link_s(), 's')}, and the floor is {units.text(p.floor_s(), 's')}, as on the page of "
                 "strategies (no --sort)")  # fmt: skip
    except UsageError as e:
        text += f": {e}"
    return {"kind": "links", "stage": "", "scope": "", "text": text}
