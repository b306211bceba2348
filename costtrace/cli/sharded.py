"""`--chips N --strategy NAME --compiled`: what the chips' own compiler makes of one strategy, collectives by scope.

The strategy's cuts are given as the shardings of the arguments, the rest is the partitioner's. Beside it stands one
chip's program as the strategy has it (placement.py), which has the floors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from costtrace.cli import strategies
from costtrace.cli.shared import Run, show
from costtrace.core import Note
from costtrace.errors import UsageError

if TYPE_CHECKING:
    from costtrace.model import Model
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
        raise UsageError("--compiled with --chips takes one number of chips and one strategy that cuts arrays, without "
                         "--train: --chips 8 --strategy tp --compiled")  # fmt: skip
    axes = sharding.axes_of(strategy, sizes[0], given)
    about = {"chips": str(sizes[0]), "strategy": strategy, **({"mesh": options["mesh"]} if given else {})}
    show((_run(name, {**config, **about}, stages, axes, weights) for config, stages in programs), options)


def _run(
    name: str,
    config: Mapping[str, Any],
    stages: list[Stage],
    axes: dict[str, tuple[str, int]],
    weights: int | str | None,
) -> Run:
    from costtrace import sharding
    from costtrace.profiler import folded
    from costtrace.target.program import lowered, sharded
    from costtrace.trace import trace

    profiles, sent = [], []
    for stage, calls, fn, args, _ in stages:
        part = sharding.Part(stage, calls, trace(fn, *args, weights=weights))
        local, cannot, _ = sharding.one_chip(part, axes)
        made = folded(local)
        made.notes += [Note("sharding", "", text) for text in cannot]
        profiles.append((stage, calls, made))
        cuts = {axis: sharding.arguments(part, each, n) for each, (axis, n) in axes.items() if n > 1}
        sent.append((fn, sharded(args, dict(axes.values()), cuts)))

    def programs(platform: str) -> list[Program]:
        return [lowered(fn, args, platform) for fn, args in sent]

    return Run(name, config, profiles, {stage: depth for stage, *_, depth in stages if depth}, None, programs)
