"""What to do about a program on some chips, the largest saving first: every what-if that can be found in it, tried.

Figures are the tool's own: seconds of all calls, for one item, on all the chips, each stage by the strategy that serves
it best. Strategies are compared by each stage's floor and its links, the rest by serial seconds (scenario.Seconds).
What does not pay is said too, and what holds though it saves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from costtrace import chip as chips
from costtrace import roofline, units, whatif
from costtrace.chip import Chip
from costtrace.errors import UsageError
from costtrace.evidence.measured import Measurement
from costtrace.grouping import alike
from costtrace.scenario import ALONE, Prediction, Seconds, Setting, Source, changed, seconds
from costtrace.whatif import Program, Stage

PAYS = 0.005
"""A smaller share is said not to pay."""
LARGE = 0.04
"""Groups of products with less of all products' FLOPs are left out of int8."""
SMALL = 0.1
"""A stage with less of the time is left alone."""
OTHERS = 3
"""Other chips that are shown, the fastest."""
BATCH = 8
SAVES, KEPT, STANDS, NOT = "pays", "kept", "stands", "no"


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do, and the seconds before and after it. `verdict`: it pays; it is kept, because what it saves is
    saved already; it stands though it saves nothing; no, it does not pay here. None where a figure does not apply or
    nothing was compiled."""

    kind: str
    scope: str
    what: str
    before_s: float
    after_s: float
    floor_saved_s: float | None = None
    predicted_saved_s: float | None = None
    costs: str = ""
    stands: bool = False
    done: bool = False
    """True where the seconds after it are the present ones."""
    known: bool = True
    """False where the seconds leave out work that the chip has no rate for, and so compare with nothing."""

    @property
    def saved_s(self) -> float:
        return self.before_s - self.after_s

    @property
    def share(self) -> float:
        """Of `before_s`."""
        return self.saved_s / self.before_s if self.before_s else 0.0

    @property
    def rank(self) -> float:
        """The seconds that it is ranked by: predicted ones, where there are any."""
        return self.saved_s if self.predicted_saved_s is None else self.predicted_saved_s

    @property
    def verdict(self) -> str:
        pays = max(self.saved_s, self.rank) >= PAYS * self.before_s and self.before_s > 0
        if self.stands:
            return STANDS
        return (KEPT if self.done else SAVES) if pays and self.known else NOT

    @property
    def holds(self) -> bool:
        return self.verdict != NOT


WHAT = {
    "int8": "products and weights in int8",
    "fp8": "products and weights in float8",
    "w8a16": "weights in 8 bits, products as they are",
    "fuse": "fuse into the kernels before and after",
    "flash": "one kernel each, scores never in memory",
    "hoist": "do once what is the same in every call",
}
COSTS = {
    "int8": "accuracy: quantised weights and activations",
    "fp8": "accuracy: quantised weights and activations",
    "w8a16": "accuracy: quantised weights",
    "fuse": "kernels of one's own, or luck with the compiler",
    "flash": "a kernel of one's own",
    "hoist": "a second entry point",
}


class Adviser:
    """One setting, its program and its seconds, against which every change is held."""

    def __init__(self, base: Setting, given: Source, prediction: Prediction | None = None) -> None:
        self.base, self.given, self.prediction = base, given, prediction
        self.whole = base.program()
        self.now = seconds(base, self.whole, prediction)

    def tried(self, texts: Sequence[str], costs: str = "") -> Advice:
        """These changes, all at once. Raises UsageError as scenario.changed."""
        on, made = changed(texts, self.base, self.whole, self.given)
        after = seconds(on, made, self.prediction)
        kind, _, names = texts[0].partition(":")
        if len(texts) > 1:
            return self._advice(
                "all", "", "all of these", after, "; ".join([*_twice(texts), self._extra(made)]).strip("; ")
            )
        if kind == "hoist":
            names = ",".join(self._hoisted(made)) or names
        what = WHAT.get(kind) or f"{kind.replace('_', '-')} {names}"
        said = [costs or COSTS.get(kind, ""), self._extra(made), *self._setting(on, after)]
        if kind in WHAT and (unknown := whatif.unmatched(self._scopes(texts[0]), self.whole)):
            said.append(f"no scope is called {', '.join(unknown)}")
        if kind == "flash":
            said.append(self._plain(names.split(",")))
        return self._advice(kind, names if kind in WHAT else "", what, after, "; ".join(s for s in said if s),
                            kind == "flash" and self.now.serial - after.serial < PAYS * self.now.serial
                            and not self._faster(after))  # fmt: skip

    def _advice(
        self, kind: str, scope: str, what: str, after: Seconds, costs: str, stands: bool = False
    ) -> Advice:  # fmt: skip
        known = self.now.predicted is not None and after.predicted is not None
        predicted = self.now.predicted - after.predicted if known else None  # type: ignore[operator]
        new = [line for line in after.missing if line not in self.now.missing]
        costs = "; ".join(part for part in (costs, f"{new[0]}: its seconds leave that work out" if new else "") if part)
        return Advice(kind, scope, what, self.now.serial, after.serial, self.now.floor - after.floor, predicted, costs,
                      stands, known=not new)  # fmt: skip

    def _scopes(self, text: str) -> list[str]:
        """The scopes that a change names, without the stages that a hoist may name."""
        stages = {part.name for part in self.base.parts}
        return [name for name in text.partition(":")[2].split(",") if name and name not in stages]

    def _faster(self, after: Seconds) -> bool:
        """True where the compiler's figure says that it pays."""
        if self.now.predicted is None or after.predicted is None:
            return False
        return self.now.predicted - after.predicted >= PAYS * self.now.predicted

    def _extra(self, made: Program) -> str:
        return f"{units.text(made.extra_bytes, 'B')} more memory" if made.extra_bytes else ""

    def _hoisted(self, made: Program) -> list[str]:
        """The scopes that a hoist made cheaper, the most first."""
        chip = self.base.chip
        before = {(p.stage, p.scope): roofline.times(p.cost, chip, p.nbytes).seconds for p in self.whole.parts}
        saved = {p.scope: before[p.stage, p.scope] - roofline.times(p.cost, chip, p.nbytes).seconds
                 for p in made.parts if (p.stage, p.scope) in before}  # fmt: skip
        return [scope or "." for scope, s in sorted(saved.items(), key=lambda item: -item[1]) if s > 0]

    def _setting(self, on: Setting, after: Seconds) -> Iterator[str]:
        """What another setting means besides its seconds."""
        if on is self.base:
            return
        if on.items != self.base.items:
            yield f"an item; {on.items} at once take {units.text(after.serial * on.items, 's')}"
        if on.chip is not self.base.chip and (price := on.chip.value("price.on_demand")) is not None:
            yield f"{price:g} USD an hour and chip"
        if on.chips > 1 and (on.chips, on.chip) != (self.base.chips, self.base.chip):
            yield ", ".join(f"{stage} {name}" for stage, name in on.chosen.items())
        if not on.fits:
            yield "does not fit its memory"

    def _plain(self, names: Sequence[str]) -> str:
        """What these scopes move if every primitive is a kernel."""
        unfused = {(s.name, scope): s.calls * cost.bytes_unfused for s in self.base.stages
                   for scope, cost in s.profile.by_scope.items()}  # fmt: skip
        some = [p for p in self.whole.parts if whatif.matches(p.scope, names)]
        more = sum(max(0, unfused.get((p.stage, p.scope), p.nbytes) - p.nbytes) for p in some)
        return f"counted so here; plain, a kernel a primitive, it moves {units.text(more, 'B')} more" if more else ""

    # What is found

    def advise(self, depths: Mapping[str, int | None], measured: Sequence[Measurement] = ()) -> list[Advice]:
        """All of it: what pays, the most seconds first; then what is done already, what stands, what does not pay."""
        found = [*self._changes(depths), *self._steps(), *self._others(), *self._measured(measured)]
        if self.base.chips > 1:
            for stage in self.base.stages:
                found += self._placed(stage.name)
        order = [SAVES, KEPT, STANDS, NOT]
        return sorted(found, key=lambda a: (order.index(a.verdict), -a.rank))

    def _changes(self, depths: Mapping[str, int | None]) -> Iterator[Advice]:
        chip = self.base.chip
        if large := ",".join(groups(self.whole, depths)):
            for kind, dtype in whatif.NARROW.items():
                if chip.rate("matrix", dtype) is None:
                    s = self.now.serial
                    yield Advice(kind, large, WHAT[kind], s, s, costs=chip.lacks("matrix", dtype))
                else:
                    yield self.tried([f"{kind}:{large}"])
            yield self.tried([f"w8a16:{large}"])
        if names := elementwise(self.whole, chip):
            yield self.tried([f"fuse:{','.join(names)}"])
        if names := attention(self.base.stages, self.whole):
            yield self.tried([f"flash:{','.join(names)}"])
        if any(stage.calls > 1 for stage in self.base.stages):
            yield self.tried(["hoist"])

    def _steps(self) -> Iterator[Advice]:
        chip, now = self.base.chip, self.now
        for stage in self.base.stages:
            parts = [p for p in self.whole.parts if p.stage == stage.name]
            own = sum(roofline.times(p.cost, chip, p.nbytes).seconds for p in parts) + self.base.links_s(stage.name)
            own /= self.base.items
            if stage.calls > 1:
                floor = max(self.whole.stage_floor_s(stage.name, chip), self.base.links_s(stage.name))
                yield Advice("calls", stage.name, f"{stage.calls - 1} calls instead of {stage.calls}", now.serial,
                             now.serial - own / stage.calls, floor / stage.calls / self.base.items,
                             costs="quality: one step fewer")  # fmt: skip
            elif own < SMALL * now.serial:
                yield Advice("leave", stage.name, f"leave it alone: {own / now.serial:.1%} of the time is all it could "
                             "save", now.serial, now.serial, stands=True)  # fmt: skip

    def _others(self) -> Iterator[Advice]:
        """Twice the chips, a batch, the fastest other chips, and those of which nobody knows."""
        if self.base.chips > 1:
            yield self._maybe(f"chips:{2 * self.base.chips}")
        if "batch" in self.given.options and self.base.items == 1:
            yield self._maybe(f"batch:{BATCH}")
        every = [self._maybe(f"chip:{name}") for name in chips.names() if name != self.base.chip.name]
        faster = sorted((a for a in every if a.saved_s > 0), key=lambda a: -a.saved_s)
        yield from [a for a in faster if a.known][:OTHERS]
        yield from [a for a in faster if not a.known][:OTHERS]

    def _maybe(self, text: str) -> Advice:
        """A change of setting; what cannot be is said."""
        try:
            return self.tried([text])
        except UsageError as e:
            return Advice(text.partition(":")[0], "", text.replace(":", " "), self.now.serial, self.now.serial,
                          costs=str(e))  # fmt: skip

    def _placed(self, stage: str) -> Iterator[Advice]:
        """How a stage lies on the chips: its best strategy, fsdp where it is not that, and one chip."""
        each, name, items = self.base.placed[stage], self.base.chosen[stage], self.base.items
        chosen, alone, fsdp = each[name], each[ALONE], each["fsdp"]

        def instead(other: str, what: str, costs: str, stands: bool = False) -> Advice:
            more = (each[other].serial_s() - chosen.serial_s()) / items
            floor = (each[other].floor_s() - chosen.floor_s()) / items
            return Advice("strategy", stage, what, self.now.serial + more, self.now.serial, floor, None, costs, stands,
                          done=True)  # fmt: skip

        links = units.text(chosen.link_s(), "s", 3)
        if name != ALONE:
            yield instead(ALONE, f"{name} over {self.base.chips} chips, not one chip", f"links {links}")
            if alone.serial_s() < max(p[ALONE].serial_s() for p in self.base.placed.values()):
                gain = (chosen.serial_s() - alone.serial_s()) / items
                yield Advice("strategy", stage, f"leave it on one chip, not {name}", self.now.serial,
                             self.now.serial - gain, (chosen.floor_s() - alone.floor_s()) / items)  # fmt: skip
        else:
            rest = {s: p for s, p in each.items() if s != ALONE and not p.blocked}
            if rest:
                other = min(rest, key=lambda s: rest[s].serial_s())
                took = units.text(rest[other].link_s(), "s", 3)
                yield instead(other, f"leave it on one chip, not {other}, the best of {self.base.chips}",
                              f"its links take {took}", stands=True)  # fmt: skip
        if name != "fsdp":
            took = units.text(fsdp.link_s(), "s", 3)
            yield instead("fsdp", f"no fsdp within a request: {name}", f"fsdp's links take {took}")
        pipeline = each.get("pipeline")
        if pipeline is not None and not pipeline.blocked and pipeline.serial_s() < chosen.serial_s():
            saved = (chosen.serial_s() - pipeline.serial_s()) / items
            yield Advice("strategy", stage, f"pipeline, not {name}", self.now.serial, self.now.serial - saved,
                         (chosen.floor_s() - pipeline.floor_s()) / items)  # fmt: skip

    def _measured(self, rows: Sequence[Measurement]) -> Iterator[Advice]:
        """What is measured of the program on this chip, and that the rest is a model's word."""
        known = {row.stage: row for row in rows if row.chip == self.base.chip.name}
        for part in self.base.parts:
            row = known.get(part.name)
            floor = roofline.times(part.share.total, self.base.chip, part.share.total.bytes_fused).seconds
            if row is None:
                said = f"measure it: nothing is measured of it on {self.base.chip.name}"
            elif floor:
                config = ", ".join(f"{k} {v}" for k, v in row.config.items())
                said = (f"measured once, {units.text(row.measured_s, 's', 3)} a call ({config}); here its floor on one "
                        f"chip is {units.text(floor, 's', 3)}: measure what you change")  # fmt: skip
            else:
                continue
            yield Advice("measure", part.name, said, self.now.serial, self.now.serial, stands=True)


def _twice(texts: Sequence[str]) -> list[str]:
    """A line for each setting that several texts give: they stand for alternatives, of which all have the last."""
    kinds = [text.partition(":")[0] for text in texts]
    return [f"{kind}: the last, {value}" for k, (kind, _, value) in enumerate(text.partition(":") for text in texts)
            if kind not in whatif.KINDS and kind in kinds[:k] and kind not in kinds[k + 1 :]]  # fmt: skip


def groups(whole: Program, depths: Mapping[str, int | None]) -> list[str]:
    """Scopes, as deep as each stage's table goes, whose products read weights and are a large share of all products."""
    flops: dict[str, int] = {}
    every, named = 0, alike(part.scope for part in whole.parts)
    for part in whole.parts:
        products = part.cost.matmul_flops + part.cost.conv_flops
        every += products
        if part.weight_bytes and part.scope and part.cost.matmul_flops:
            name = named("/".join(part.scope.split("/")[: depths.get(part.stage) or 1]))
            flops[name] = flops.get(name, 0) + products
    return [name for name, n in sorted(flops.items(), key=lambda item: -item[1]) if n >= LARGE * every]


def elementwise(whole: Program, chip: Chip) -> list[str]:
    """Names of scopes without any product, bound by memory, the outermost such name of each, the slowest first."""
    products: set[str] = set()
    for part in whole.parts:
        if part.cost.matmul_flops or part.cost.conv_flops:
            products.update(part.scope.split("/"))
    took: dict[str, float] = {}
    named = alike(part.scope for part in whole.parts)
    for part in whole.parts:
        times = roofline.times(part.cost, chip, part.nbytes)
        pairs = zip(part.scope.split("/"), named(part.scope).split("/"), strict=True)
        name = next((shown for name, shown in pairs if name not in products), "")
        if name and times.bound == "memory":
            took[name] = took.get(name, 0.0) + times.seconds
    return sorted(took, key=lambda name: -took[name])


def attention(stages: Sequence[Stage], whole: Program) -> list[str]:
    """Scopes of two or more products without weights: those of queries and keys, of scores and values."""
    products: dict[tuple[str, str], int] = {}
    for stage in stages:
        for r in stage.profile.records:
            if r.cost.matmul_flops:
                products[stage.name, r.scope] = products.get((stage.name, r.scope), 0) + r.ops
    named = alike(p.scope for p in whole.parts)
    found = (named(p.scope) for p in whole.parts if products.get((p.stage, p.scope), 0) > 1 and not p.weight_bytes)
    return list(dict.fromkeys(found))
