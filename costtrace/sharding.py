"""STRATEGIES: how a program may lie on several chips, each derived from the traced program, never from its name.

A strategy finds the classes of dimensions that it cuts (batch, tokens, features, experts) among those that the ops
join, and placement.py makes one chip's program. Every number comes from that program's profile and mesh.py's prices.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from costtrace import capacity, mesh, offload, pipeline, plan, roofline
from costtrace.chip import Chip
from costtrace.core import Cost, Trace, total
from costtrace.coverage import Counted
from costtrace.errors import UsageError
from costtrace.fusion import bytes_of
from costtrace.layout import Plan
from costtrace.memory import Peak, peak_of
from costtrace.mesh import Collective, Mesh
from costtrace.placement import cut, cuts
from costtrace.plan import Division, Found
from costtrace.profiler import Prices, counted
from costtrace.rules.table import priced
from costtrace.storage import Storage

DATA, PIPELINE = "data", "pipeline"
WHOLE = 0.9
"""A chip with more of the work than this has the whole of it: the strategy divides nothing."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one chip has of a stage: the cost of one call, and its peak memory."""

    name: str
    calls: int
    total: Cost
    peak: Peak
    bubble: float = 1.0
    """Seconds of the stage over those in which a chip has work."""


class Part:
    """A stage of a program: its trace, undivided, with its classes and cost found once."""

    def __init__(self, name: str, calls: int, trace: Trace) -> None:
        self.name, self.calls, self.trace = name, calls, trace

    @cached_property
    def found(self) -> Found:
        return Found(self.trace)

    @cached_property
    def share(self) -> Share:
        return share(self.name, self.calls, self.trace)

    @cached_property
    def counted(self) -> Counted:
        return counted(self.trace)


def share(name: str, calls: int, trace: Trace) -> Share:
    """The totals of a trace, without its rows."""
    storage = Storage(trace)
    moved, prices = bytes_of(trace, storage), Prices()
    counts: dict[int, list[Any]] = {}
    for op in trace.ops:
        cost = prices(op).cost
        counts.setdefault(id(cost), [cost, 0])[1] += op.repeat
    cost = total(cost * n for cost, n in counts.values())
    cost = cost.replace(bytes_fused=moved.fused[trace.root], bytes_scoped=sum(moved.own.values()),
                        bytes_unfused=sum(moved.unfused), weight_bytes=moved.weights.get("", 0))  # fmt: skip
    return Share(name, calls, cost, peak_of(trace, storage))


@dataclass(frozen=True, slots=True)
class Strategy:
    """words: one line for --help. axes: names of the mesh axes it takes, the first by default."""

    words: str
    axes: tuple[str, ...]
    plan: Callable[[Found, int], Plan]
    cannot: Callable[[Found, int], str] = lambda found, n: ""
    after: Callable[[Trace], Trace] = lambda trace: trace
    """What else becomes of one chip's program."""


STRATEGIES: dict[str, Strategy] = {
    "data": Strategy("each chip some of the batch", (DATA, "batch"), plan.data, plan.no_batch),
    "fsdp": Strategy("data; parameters in parts, gathered in use", ("fsdp", DATA), plan.fsdp, plan.no_fsdp),
    "tp": Strategy("Megatron: columns, then rows, then a sum", ("model", "tensor", "tp"), plan.tp, plan.no_features),
    "sp": Strategy("Megatron with tokens in parts between", ("model", "tensor", "sp"), plan.sp, plan.no_features),
    "ulysses": Strategy("tokens in parts; attention by heads, all-to-all", ("seq", "context", "ulysses"),
                        plan.context("heads"), plan.no_tokens),
    "ring": Strategy("tokens in parts; keys and values passed round", ("seq", "context", "ring"), plan.context("ring"),
                     plan.no_tokens),
    "expert": Strategy("experts in parts, tokens sent to them", ("expert", "ep"), plan.expert, plan.no_experts),
    "stream": Strategy("data; parameters in the host's memory, brought in use", ("stream", DATA), plan.data,
                       plan.no_stream, offload.streamed),
    PIPELINE: Strategy("each chip some of the layers", ("pipe", "stage", "pipeline"), lambda found, n: Plan()),
}  # fmt: skip
"""Name -> strategy. `tp+data` names two, each on an axis of its own."""


@dataclass(slots=True)
class Placed:
    """One strategy on one mesh: one chip's programs and what they cost. `blocked`: why it is no use, else ''."""

    name: str
    mesh: Mesh
    stages: list[Share]
    collectives: list[Collective] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    blocked: bool = False
    divisions: list[tuple[str, Division]] = field(default_factory=list)
    """(stage, how a size that is cut lies over the chips)"""
    whole: Cost = field(default_factory=Cost)

    @property
    def cost(self) -> Cost:
        """All calls of one chip."""
        return sum((s.calls * s.total for s in self.stages), Cost())

    @property
    def peak_bytes(self) -> int:
        return max((s.peak.nbytes for s in self.stages), default=0)

    @property
    def fits(self) -> bool:
        fit = capacity.hbm(self.peak_bytes, self.mesh.chip)
        return fit is None or fit.fits

    @property
    def missing(self) -> tuple[str, ...]:
        """What the chip's file has no rate for: left out of the seconds."""
        return roofline.times(_unlinked(self.cost), self.mesh.chip, self.cost.bytes_fused).missing

    def work_s(self) -> float:
        """Each stage at its floor, one after the other; links apart."""
        return sum(self._stage_s(s, s.total.bytes_fused) for s in self.stages)

    def _stage_s(self, stage: Share, nbytes: int) -> float:
        """Seconds of all calls of a stage that moves so many bytes; links apart."""
        return stage.calls * stage.bubble * roofline.times(_unlinked(stage.total), self.mesh.chip, nbytes).seconds

    def pessimistic_s(self, named: Collection[str]) -> float:
        """Each innermost scope as one kernel, each primitive in stages that are not `named`; links after that."""
        work = (self._stage_s(s, s.total.bytes_scoped if s.name in named else s.total.bytes_unfused)
                for s in self.stages)  # fmt: skip
        return sum(work) + self.link_s()

    def link_s(self) -> float:
        return sum(c.count * self.mesh.price(c).seconds for c in self.collectives)

    def floor_s(self) -> float:
        """Work and collectives wholly overlapped."""
        return max(self.work_s(), self.link_s())

    def serial_s(self) -> float:
        """Nothing overlapped."""
        return self.work_s() + self.link_s()

    def percent_of_peak(self) -> float:
        """The undivided program's matrix work on all chips at peak, over the seconds without overlap: 0 to 100."""
        chip = self.mesh.chip
        matrix = Cost(by_dtype=self.whole.by_dtype)
        seconds = self.serial_s()
        return 100 * roofline.times(matrix, chip, 0).seconds / self.mesh.chips / seconds if seconds else 0.0


def _unlinked(cost: Cost) -> Cost:
    return cost.replace(collective_bytes=0, collective_bytes_by_axis={})


def axes_of(name: str, chips: int, given: dict[str, int] | None = None) -> dict[str, tuple[str, int]]:
    """{strategy: (its mesh axis, size)} for "tp" or "fsdp+tp" on a mesh; an axis "data" left over is data parallel.

    Raises UsageError for an unknown strategy, a mesh of another size, an axis that no strategy knows or a missing one.
    """
    names = name.split("+")
    for each in names:
        if each not in STRATEGIES:
            raise UsageError(f"no strategy {each!r}: there are {', '.join(STRATEGIES)}, two of them as fsdp+tp, or all")
    if len(set(names)) < len(names):
        raise UsageError(f"strategy {name} names one twice: give it one axis, of all its chips")
    if given is None:
        if len(names) > 1:
            raise UsageError(f"strategy {name}: say how many chips each has, as in --mesh "
                             f"{','.join(f'{STRATEGIES[each].axes[0]}=2' for each in names)}")  # fmt: skip
        return {name: (STRATEGIES[name].axes[0], chips)}
    if math.prod(given.values()) != chips:
        raise UsageError(f"--mesh {','.join(f'{k}={v}' for k, v in given.items())} has "
                         f"{math.prod(given.values())} chips, --chips says {chips}: make them the same")  # fmt: skip
    if PIPELINE in names and len(given) > 1:
        raise UsageError("strategy pipeline stands alone: give it a mesh of one axis, pipe=8")
    left, out = dict(given), {}
    for each in names:
        axis = next((a for a in STRATEGIES[each].axes if a in left), None)
        if axis is None:
            raise UsageError(f"strategy {each} knows the axes {', '.join(STRATEGIES[each].axes)}, and the mesh has "
                             f"{', '.join(left) or 'none left'}")  # fmt: skip
        out[each] = (axis, left.pop(axis))
    if DATA in left and "data" not in out:
        out["data"] = (DATA, left.pop(DATA))
    if left:
        raise UsageError(
            f"strategy {name} does not know the mesh axis {next(iter(left))!r}: name a strategy for it too"
        )
    return out


BESIDE = ("tp", "sp", "ulysses", "ring")
"""Strategies that leave a batch whole, for `data` to cut."""


def beside_data(names: Iterable[str], stages: Sequence[Part], chips: int) -> dict[str, dict[str, int]]:
    """{"data+tp": {"data": 4, "model": 2}}: what to try where the batch does not divide by the chips, but a factor of
    theirs divides it."""
    sizes = [part.found.smallest([part.found.batch]) for part in stages if part.found.batch]
    factor = math.gcd(chips, *sizes)
    if not sizes or not 1 < factor < chips:
        return {}
    return {f"{DATA}+{each}": {DATA: factor, STRATEGIES[each].axes[0]: chips // factor}
            for each in names if each in BESIDE}  # fmt: skip


def placed(name: str, stages: Sequence[Part], chip: Chip, chips: int, given: dict[str, int] | None = None) -> Placed:
    """The program on `chips` chips by the strategy `name` ("tp", "fsdp+tp"). Raises UsageError as axes_of and Mesh."""
    axes = axes_of(name, chips, given)
    on = Mesh(given or dict(axes.values()), roofline.timed(chip))
    out = Placed(name, on, [])
    for part in stages:
        if PIPELINE in axes:
            _deep(out, part, *axes[PIPELINE])
            continue
        local, cannot, divisions = one_chip(part, axes)
        out.divisions += [(part.name, d) for d in divisions]
        out.problems += [f"{part.name}: {text}" for text in cannot]
        mine = part.share if local is part.trace else share(part.name, part.calls, local)
        out.stages.append(mine)
        out.collectives += collectives(local, part.calls)
        out.whole += part.calls * part.share.total
    if out.cost.host_bytes and chip.number("host.bandwidth") is None:
        out.problems.append(f"{chip.lacks('host')}: what crosses the host link has no price")
        out.blocked = True
    out.blocked |= not out.fits or (chips > 1 and out.cost.flops > WHOLE * out.whole.flops)
    if not out.fits:
        out.problems.append(f"peak memory {capacity.hbm(out.peak_bytes, chip)}")
    return out


def one_chip(part: Part, axes: dict[str, tuple[str, int]]) -> tuple[Trace, list[str], list[Division]]:
    """(one chip's program of a stage, what could not be cut, how sizes lie), for strategies as axes_of has them."""
    local, cannot, found, divisions = part.trace, [], part.found, []
    for each, (axis, n) in axes.items():
        strategy = STRATEGIES[each]
        found = found if local is part.trace else Found(local)
        problem = strategy.cannot(found, n) if n > 1 else ""
        made = strategy.plan(found, n)
        if n > 1:
            divisions += plan.divisions(found, made, n)
        local, more = cut(local, found.classes, made, axis, n)
        cannot += [problem] * bool(problem) + more
    for each in axes:
        local = STRATEGIES[each].after(local)
    return local, cannot, divisions


def arguments(part: Part, name: str, n: int) -> list[int | None]:
    """The dimension along which a strategy cuts each flat argument: what jit is given as in_shardings, to ask XLA."""
    made = STRATEGIES[name].plan(part.found, n)
    return cuts(part.trace, part.found.classes, replace(made, whole=frozenset()), n)


def _deep(out: Placed, part: Part, axis: str, n: int) -> None:
    """A stage by depth: one chip's share of it, the hand-over, and what the chips wait."""
    whole = part.share
    out.whole += part.calls * whole.total
    held = sum(v.nbytes for v in part.trace.inputs if v.weight)
    depth = pipeline.deep(part.trace, whole.total, held, n) if n > 1 else None
    if depth is None:
        out.stages.append(whole)
        if n > 1:
            out.problems.append(f"{part.name}: no loop over layers: one chip does the whole of it")
        return
    batch = part.found.smallest([part.found.batch])
    bubble = pipeline.bubble(n, batch)
    if bubble > 1:
        out.problems.append(f"{part.name}: {depth.layers} layers a chip at most, {batch} microbatches over {n} chips: "
                            f"{1 - 1 / bubble:.1%} of the time a chip has no work")  # fmt: skip
    state = sum(v.nbytes for v in part.trace.inputs if v.name.startswith(plan.STATE))  # parted as its parameters are
    kept = depth.weight_bytes + round(state * depth.weight_bytes / held) if held else 0
    peak = replace(whole.peak, nbytes=whole.peak.nbytes - held - state + kept)
    out.stages.append(replace(whole, total=pipeline.parted(whole.total, depth, whole.total.weight_bytes), peak=peak,
                              bubble=bubble))  # fmt: skip
    out.collectives.append(pipeline.handed(depth, axis, part.calls, batch))


def collectives(trace: Trace, calls: int = 1) -> list[Collective]:
    """The collectives of one chip's program, those of one kind, axis, scope and size together."""
    counts: dict[tuple[str, str, str, int, int], int] = defaultdict(int)
    for op in trace.ops:
        kind = mesh.NAMES.get(op.primitive.removesuffix("_start"))
        if kind is None:
            continue
        cost = priced(op).cost
        for axis, nbytes in cost.collective_bytes_by_axis.items():
            local = sum(v.nbytes for v in op.inputs)
            counts[kind, axis, op.scope, nbytes, local] += op.repeat * calls
    return [Collective(kind, axis, scope, n, nbytes, local) for (kind, axis, scope, nbytes, local), n in counts.items()]


def zero_bytes(parameters: int, n: int, stage: int, weight: int = 2, gradient: int = 2, state: int = 12) -> float:
    """Bytes of a chip that hold parameters, gradients and optimizer state under ZeRO stage 0 to 3 on `n` chips: stage 1
    parts the state, 2 the gradients too, 3 the parameters too. Rajbhandari et al., arXiv:1910.02054, section 5.

    By default mixed precision with Adam: 2, 2 and 12 bytes a parameter. Raises UsageError for another stage.
    """
    if stage not in range(4):
        raise UsageError(f"ZeRO stage {stage}: there are 0, 1, 2 and 3")
    parted = (n if stage >= 3 else 1, n if stage >= 2 else 1, n if stage >= 1 else 1)
    return parameters * sum(nbytes / k for nbytes, k in zip((weight, gradient, state), parted, strict=True))


def ranked(some: Iterable[Placed]) -> list[Placed]:
    """Best first: those that work before those that do not, then by seconds without overlap."""
    return sorted(some, key=lambda p: (p.blocked, p.serial_s()))


def everything(stages: Sequence[Part], chip: Chip, chips: int) -> list[Placed]:
    """Every strategy, best first; those that work also beside `data`, where the batch asks for that."""
    alone = ranked(placed(each, stages, chip, chips) for each in STRATEGIES)
    laid = beside_data([p.name for p in alone if not p.blocked], stages, chips)
    return ranked([*alone, *(placed(name, stages, chip, chips, axes) for name, axes in laid.items())])


__all__ = ["STRATEGIES", "Part", "Placed", "Share", "axes_of", "beside_data", "collectives", "everything", "placed",
           "ranked", "share", "zero_bytes"]  # fmt: skip
