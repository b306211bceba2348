"""A program's stages on some chips, and what their seconds become when something changes: the ground of every what-if.

A Setting is one configuration: each stage traced, placed on the chips by the strategy that serves it best, and read as
one chip's program, to which whatif.py's changes then apply. What changes an option, the chip or their number makes a
Setting anew, from a Source, which traces each configuration once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from costtrace import chip as chips
from costtrace import hoist, model, placement, roofline, sharding, whatif
from costtrace.chip import Chip
from costtrace.errors import UsageError
from costtrace.mesh import Mesh
from costtrace.profiler import folded
from costtrace.sharding import Part, Placed
from costtrace.trace import trace
from costtrace.whatif import Program, Stage

ALONE = "one chip"
WHOLE_STAGE = ("pipeline",)
"""Strategies that do not cut the ops of a stage, so that no one chip's program can be read."""
CHIP, CHIPS = "chip", "chips"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the chip's compiler says of each innermost scope on one chip: its seconds over the modelled ones."""

    chip: str
    ratios: Mapping[tuple[str, str], float]
    rest_s: Mapping[str, float]
    """{stage: seconds of all calls in no scope of the program's}"""
    totals: Mapping[str, Any]
    """{stage: the Cost of one call that was compiled}: seconds of another program are not known"""


@dataclass(slots=True)
class Setting:
    """`parts`: the stages undivided. `placed`: {stage: {strategy: all calls of it}}. `chosen`: {stage: strategy}.
    `stages`: one chip's programs. `items`: how many a call makes (the batch)."""

    values: Mapping[str, str]
    chip: Chip
    chips: int
    parts: list[Part]
    placed: dict[str, dict[str, Placed]]
    chosen: dict[str, str]
    stages: list[Stage] = field(default_factory=list)
    items: int = 1

    def links_s(self, stage: str) -> float:
        return self.placed[stage][self.chosen[stage]].link_s()

    @property
    def fits(self) -> bool:
        return all(self.placed[stage][name].fits for stage, name in self.chosen.items())

    def program(self) -> Program:
        """One chip's program; links of several chips are counted apart."""
        return whatif.program(self.stages, self.chip, links=self.chips == 1)


@dataclass(frozen=True, slots=True)
class Seconds:
    """Of all calls, for one item. `serial`: each innermost scope one kernel, one after the other, links after that.
    `floor`: each stage one kernel, its links beside it. `predicted`: serial as the chip's compiler has it, or None.
    `missing`: a line for each rate that the chip lacks; they leave that work out."""

    serial: float
    floor: float
    predicted: float | None = None
    missing: tuple[str, ...] = ()


def seconds(on: Setting, made: Program, prediction: Prediction | None = None) -> Seconds:
    links = {stage: on.links_s(stage) for stage in on.chosen}
    floors = (max(made.stage_floor_s(stage, on.chip), links[stage]) for stage in on.chosen)
    each = [(part, roofline.times(part.cost, on.chip, part.nbytes).seconds) for part in made.parts]
    predicted = _predicted(on, made, each, prediction) if prediction else None
    whole = sum(links.values())
    return Seconds(
        (sum(s for _, s in each) + whole) / on.items, sum(floors) / on.items,
        None if predicted is None else (predicted + whole) / on.items, made.missing(on.chip),
    )  # fmt: skip


def _predicted(on: Setting, made: Program, each: Sequence[tuple[Any, float]], known: Prediction) -> float | None:
    """Each part's modelled seconds times its ratio; what a change made one kernel takes at most its modelled ones."""
    same = all(part.share.total == known.totals.get(part.name) for part in on.parts)
    if on.chip.name != known.chip or not same:
        return None
    out = 0.0
    for part, modelled in each:
        place = part.stage, part.scope
        ratio = known.ratios.get(place, 1.0 if place in made.kernels else 0.0)
        out += modelled * (min(1.0, ratio) if place in made.kernels else ratio)
    return out + sum(known.rest_s.values()) / on.chips


def prediction(on: Setting, per_call: Mapping[str, Mapping[str, float]]) -> Prediction:
    """What a compile of the undivided stages says: {stage: {scope: seconds of one call}}, "." for no scope."""
    whole = [Stage(part.name, part.calls, part.trace, folded(part.trace)) for part in on.parts]
    modelled = {(p.stage, p.scope): roofline.times(p.cost, on.chip, p.nbytes).seconds
                for p in whatif.program(whole, on.chip).parts}  # fmt: skip
    ratios: dict[tuple[str, str], float] = {}
    rest: dict[str, float] = {}
    for stage in whole:
        for scope, one in per_call[stage.name].items():
            place, took = (stage.name, "" if scope == "." else scope), stage.calls * one
            if modelled.get(place):
                ratios[place] = took / modelled[place]
            else:
                rest[stage.name] = rest.get(stage.name, 0.0) + took
    return Prediction(on.chip.name, ratios, rest, {part.name: part.share.total for part in on.parts})


class Source:
    """Settings of one model. `make(values)` gives the stages of a configuration and how many items a call makes."""

    def __init__(self, options: Sequence[str], make: Callable[[Mapping[str, str]], tuple[list[Part], int]]) -> None:
        self.options, self._make = tuple(options), make
        self._made: dict[tuple[tuple[str, str], ...], tuple[list[Part], int]] = {}
        self._placed: dict[tuple[Any, ...], Placed] = {}

    def parts(self, values: Mapping[str, str]) -> tuple[list[Part], int]:
        key = tuple(sorted(values.items()))
        if key not in self._made:
            self._made[key] = self._make(values)
        return self._made[key]

    def setting(self, values: Mapping[str, str], chip: Chip, n: int = 1) -> Setting:
        """The configuration on n chips, each stage by the strategy with the fewest seconds in turn. Raises UsageError
        for a chip without a memory rate."""
        roofline.timed(chip)
        parts, items = self.parts(values)
        out = Setting(dict(values), chip, n, parts, {}, {}, [], items)
        for part in parts:
            names = sharding.STRATEGIES if n > 1 else ()
            each = {ALONE: self._place("data", part, chip, 1), **{s: self._place(s, part, chip, n) for s in names}}
            useful = [name for name, p in each.items() if not p.blocked and name not in WHOLE_STAGE]
            best = min(useful or [ALONE], key=lambda name: each[name].serial_s())
            out.placed[part.name], out.chosen[part.name] = each, best
            out.stages.append(local(part, best, n))
        return out

    def _place(self, name: str, part: Part, chip: Chip, n: int) -> Placed:
        """Cut once; another chip has other prices of the same program."""
        key = name, id(part), n
        if key not in self._placed:
            self._placed[key] = sharding.placed(name, [part], chip, n)
        known = self._placed[key]
        if known.mesh.chip is chip:
            return known
        made = replace(known, mesh=Mesh(known.mesh.axes, chip))
        made.blocked = not made.fits or (n > 1 and made.cost.flops > sharding.WHOLE * made.whole.flops)
        return made


def local(part: Part, name: str, n: int) -> Stage:
    """One chip's program of a stage."""
    if name == ALONE:
        return Stage(part.name, part.calls, part.trace, folded(part.trace))
    strategy = sharding.STRATEGIES[name]
    cut, _ = placement.cut(part.trace, part.found.classes, strategy.plan(part.found, n), strategy.axes[0], n)
    return Stage(part.name, part.calls, cut, folded(cut), hoist.steady(part.trace))


def source(found: model.Model) -> Source:
    """The settings of a model; a field `batch` is how many items a call makes."""

    def make(values: Mapping[str, str]) -> tuple[list[Part], int]:
        config, parts = found.configure(**values), []
        for stage in found.stages(config):
            fn, args = model.bind(stage)
            parts.append(Part(stage.name, stage.calls, trace(fn, *args, weights=0)))
        batch = getattr(config, "batch", 1)
        return parts, batch if isinstance(batch, int) else 1

    return Source(tuple(found.options()), make)


def changed(texts: Sequence[str], base: Setting, whole: Program, given: Source) -> tuple[Setting, Program]:
    """The setting and program with all of these changes: first those of options and chips, then those of parts.

    Raises UsageError for a change that is not there, and as whatif.changed and Model.configure do.
    """
    values, chip, n = dict(base.values), base.chip, base.chips
    within: list[str] = []
    for text in texts:
        kind, _, value = text.partition(":")
        if kind in whatif.KINDS:
            within.append(text)
        elif kind == CHIP:
            chip = chips.load(value)
        elif kind == CHIPS:
            n = _count(text, value)
        elif kind in given.options:
            values[kind] = value
        else:
            raise UsageError(f"--what-if {text}: there are {', '.join(whatif.KINDS)}, chip, chips, and the model's "
                             f"options {', '.join(given.options)}, as in int8:double/mlp or chip:h100")  # fmt: skip
    on = base
    if (values, n) != (base.values, base.chips) or chip is not base.chip:
        on, whole = (made := given.setting(values, chip, n)), made.program()
    return on, whatif.changed(within, whole, on.chip)


def _count(text: str, value: str) -> int:
    if not value.isdecimal() or not int(value):
        raise UsageError(f"--what-if {text}: write a number of chips, as in chips:8")
    return int(value)
