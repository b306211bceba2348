"""What to do about a program on a chip, the largest saving first: every what-if that can be found in it, tried.

Figures are the tool's own: seconds of all calls with each innermost scope as one kernel, one after the other, on one
chip; for strategies, work at each stage's floor plus collectives, nothing overlapped, on all chips. A saving is a share
of its own figure, so that both can be ranked. What does not pay is said too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from costtrace import roofline, sharding, units
from costtrace.chip import Chip
from costtrace.whatif import Part, Program, Stage, changed, program

PAYS = 0.005
"""A smaller share is said not to pay."""
LARGE = 0.04
"""Groups of products with less of all products' FLOPs are left out of int8."""
SMALL = 0.1
"""A stage with less of the time is left alone."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do. `before_s` and `after_s` as the module says; `floor_saved_s` where the floor changes too."""

    kind: str
    scope: str
    what: str
    before_s: float
    after_s: float
    floor_saved_s: float | None
    costs: str

    @property
    def saved_s(self) -> float:
        return self.before_s - self.after_s

    @property
    def share(self) -> float:
        """Of `before_s`."""
        return self.saved_s / self.before_s if self.before_s else 0.0

    @property
    def holds(self) -> bool:
        return self.share >= PAYS


def advise(stages: Sequence[Stage], chip: Chip, depths: Mapping[str, int | None], chips: int = 1) -> list[Advice]:
    """All of it: what pays first, the largest share first."""
    whole = program(stages, chip)
    found = [*_changes(stages, whole, chip, depths), *_attention(whole, stages, chip), *_steps(stages, whole, chip)]
    if chips > 1:
        for stage in stages:
            found += _placed(stage, chip, chips)
    return sorted(found, key=lambda a: (not a.holds, -a.share))


def tried(text: str, stages: Sequence[Stage], whole: Program, chip: Chip, costs: str = "") -> Advice:
    """One what-if as advice. Raises UsageError as whatif.changed."""
    made = changed(text, stages, whole)
    kind, _, names = text.partition(":")
    extra = made.extra_bytes - whole.extra_bytes
    said = "; ".join(part for part in (costs, f"{units.text(extra, 'B')} more memory" if extra else "") if part)
    return Advice(kind, names, WHAT[kind], whole.serial_s(chip), made.serial_s(chip),
                  whole.floor_s(chip) - made.floor_s(chip), said or COSTS[kind])  # fmt: skip


WHAT = {
    "int8": "products and weights in int8",
    "w8": "weights in 8 bits, products as they are",
    "fuse": "fuse into the kernels before and after",
    "hoist": "do once what is the same in every call",
}
COSTS = {
    "int8": "accuracy: quantised weights and activations",
    "w8": "accuracy: quantised weights",
    "fuse": "kernels of one's own, or luck with the compiler",
    "hoist": "a second entry point",
}


def _changes(stages: Sequence[Stage], whole: Program, chip: Chip, depths: Mapping[str, int | None]) -> Iterator[Advice]:
    large = groups(whole, depths)
    if large:
        if chip.rate("matrix", "int8") is None:
            seconds = whole.serial_s(chip)
            yield Advice("int8", ",".join(large), WHAT["int8"], seconds, seconds, None, chip.lacks("matrix", "int8"))
        else:
            yield tried(f"int8:{','.join(large)}", stages, whole, chip)
        yield tried(f"w8:{','.join(large)}", stages, whole, chip)
    names = elementwise(whole, chip)
    if names:
        yield tried(f"fuse:{','.join(names)}", stages, whole, chip)
    if any(stage.calls > 1 for stage in stages):
        yield tried("hoist", stages, whole, chip)


def groups(whole: Program, depths: Mapping[str, int | None]) -> list[str]:
    """Scopes, as deep as each stage's table goes, whose products read weights and are a large share of all products."""
    flops: dict[str, int] = {}
    every = 0
    for part in whole.parts:
        products = part.cost.matmul_flops + part.cost.conv_flops
        every += products
        if part.weight_bytes and part.scope and part.cost.matmul_flops:
            name = "/".join(part.scope.split("/")[: depths.get(part.stage) or 1])
            flops[name] = flops.get(name, 0) + products
    return [name for name, n in sorted(flops.items(), key=lambda item: -item[1]) if n >= LARGE * every]


def elementwise(whole: Program, chip: Chip) -> list[str]:
    """Names of scopes without any product, bound by memory, the outermost such name of each, the slowest first."""
    products: set[str] = set()
    for part in whole.parts:
        if part.cost.matmul_flops or part.cost.conv_flops:
            products.update(part.scope.split("/"))
    seconds: dict[str, float] = {}
    for part in whole.parts:
        times = roofline.times(part.cost, chip, part.nbytes)
        name = next((name for name in part.scope.split("/") if name not in products), "")
        if name and times.bound == "memory":
            seconds[name] = seconds.get(name, 0.0) + times.seconds
    return sorted(seconds, key=lambda name: -seconds[name])


def _attention(whole: Program, stages: Sequence[Stage], chip: Chip) -> Iterator[Advice]:
    """Scopes of two or more products without weights: what they would take if their scores went through memory."""
    unfused = {(s.name, scope): s.calls * cost.bytes_unfused for s in stages
               for scope, cost in s.profile.by_scope.items()}  # fmt: skip
    products: dict[tuple[str, str], int] = {}
    for stage in stages:
        for r in stage.profile.records:
            if r.cost.matmul_flops:
                products[stage.name, r.scope] = products.get((stage.name, r.scope), 0) + r.ops
    found: list[tuple[Part, int]] = [
        (p, unfused[p.stage, p.scope])
        for p in whole.parts
        if products.get((p.stage, p.scope), 0) > 1 and not p.weight_bytes
    ]
    if found:
        plain = sum(roofline.times(p.cost, chip, n).seconds - roofline.times(p.cost, chip, p.nbytes).seconds
                    for p, n in found)  # fmt: skip
        after = whole.serial_s(chip)
        names = ",".join(dict.fromkeys(p.scope for p, _ in found))
        moved = units.text(sum(n - p.nbytes for p, n in found), "B")
        yield Advice("flash", names, "keep attention one kernel (counted so here)", after + plain, after, None,
                     f"plain attention moves {moved} more")  # fmt: skip


def _steps(stages: Sequence[Stage], whole: Program, chip: Chip) -> Iterator[Advice]:
    seconds = whole.serial_s(chip)
    for stage in stages:
        own = sum(roofline.times(p.cost, chip, p.nbytes).seconds for p in whole.parts if p.stage == stage.name)
        if stage.calls > 1:
            yield Advice("calls", stage.name, f"{stage.calls - 1} calls instead of {stage.calls}", seconds,
                         seconds - own / stage.calls, None, "quality: one step fewer")  # fmt: skip
        elif own < SMALL * seconds:
            yield Advice("leave", stage.name, f"leave alone: {own / seconds:.1%} of the time is all it could save",
                         seconds, seconds, None, "")  # fmt: skip


def _placed(stage: Stage, chip: Chip, chips: int) -> Iterator[Advice]:
    """The best strategy of a stage, or one chip; and fsdp where it is not that."""
    part = sharding.Part(stage.name, stage.calls, stage.trace)
    alone = sharding.placed("data", [part], chip, 1)
    every = {name: sharding.placed(name, [part], chip, chips) for name in sharding.STRATEGIES}
    useful = sharding.ranked(p for p in every.values() if not p.blocked)
    best = useful[0] if useful else alone
    if best.serial_s() < alone.serial_s():
        yield Advice("strategy", stage.name, f"{best.name} over {chips} chips", alone.serial_s(), best.serial_s(),
                     alone.floor_s() - best.floor_s(), f"links {units.text(best.link_s(), 's', 3)}")  # fmt: skip
    elif useful:
        links = units.text(best.link_s(), "s", 3)
        yield Advice("strategy", stage.name, f"leave it on one chip: {best.name} is the best of {chips}",
                     best.serial_s(), alone.serial_s(), None, f"links {links}, more than the work saved")  # fmt: skip
    worse, better = every["fsdp"], min((best, alone), key=lambda p: p.serial_s())
    if worse.serial_s() > better.serial_s() and better is not worse:
        what = f"no fsdp within a request: {better.name if better is not alone else 'one chip'} instead"
        yield Advice("strategy", stage.name, what, worse.serial_s(), better.serial_s(), None,
                     f"fsdp's links take {units.text(worse.link_s(), 's', 3)}")  # fmt: skip


def together(texts: Sequence[str], stages: Sequence[Stage], chip: Chip) -> list[Advice]:
    """Each what-if alone, in the order given; then, where there are several, all of them one after the other."""
    whole = program(stages, chip)
    out = [tried(text, stages, whole, chip) for text in texts]
    if len(texts) > 1:
        last = whole
        for text in texts:
            last = changed(text, stages, last)
        saved = whole.floor_s(chip) - last.floor_s(chip)
        extra = f"{units.text(last.extra_bytes, 'B')} more memory" if last.extra_bytes else ""
        out.append(Advice("all", "", "all of these", whole.serial_s(chip), last.serial_s(chip), saved, extra))
    return out
