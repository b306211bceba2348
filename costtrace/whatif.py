"""What a change would save: a program's innermost parts, changed, priced again. Nothing is traced or compiled anew.

    int8:single/linear1,double/mlp    products with weights in int8 (activations stay as wide as they are)
    fp8:single/linear1                the same in float8, at the rate that the chip has for it
    w8a16:single/linear1              weights in 8 bits, products as before
    fuse:norm,rope,gate               these scopes move nothing but arguments: done in the kernel before or after
    flash:attention                   each of these scopes, with all in it, is one kernel
    hoist                             what is the same in every call of a stage is done in the first call only
    hoist:dit, hoist:to_kv,context    the same in one stage, or in these scopes

A pattern without "/" names a scope at any depth; with "/" it is a path from the top, where * is any one name, and
between two others none too: double/*/mlp is double/mlp and double/img/mlp. Several changes are made at once, in
one order whatever theirs: naming a scope twice changes it once. Two figures:
`floor_s`, each stage as one kernel; `serial_s`, each innermost scope as one kernel, one after the other.
"""

from __future__ import annotations

import difflib
import fnmatch
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from costtrace import hoist, roofline
from costtrace.access import VIEWS
from costtrace.chip import Chip
from costtrace.core import INPUTS, UNKNOWN, Cost, Op, Trace, Value
from costtrace.errors import UsageError
from costtrace.profiler import CASTS, Prices, folded
from costtrace.summary import Profile
from costtrace.timeline import leaves

NARROW = {"int8": "int8", "fp8": "float8_e4m3fn"}
"""Kind -> the dtype that products with weights then have."""
KINDS = (*NARROW, "w8a16", "fuse", "flash", "hoist")
EIGHT = 8


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a program, traced. `same`: which of its arguments are the same in every call, where the trace is one
    chip's part of the stage; otherwise its own trace says it."""

    name: str
    calls: int
    trace: Trace
    profile: Profile
    same: tuple[bool, ...] = ()

    def unchanging(self) -> list[Op]:
        """The ops whose results are the same in every call."""
        return hoist.unchanging(self.trace, self.same or hoist.steady(self.trace))


@dataclass(frozen=True, slots=True)
class Part:
    """An innermost scope of a stage: cost and bytes of all calls."""

    stage: str
    scope: str
    cost: Cost
    nbytes: int
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class Program:
    """All parts of all stages, the bytes of each stage as one kernel (all calls), and what memory a change takes."""

    parts: tuple[Part, ...]
    fused: dict[str, int]
    extra_bytes: int = 0
    kernels: frozenset[tuple[str, str]] = frozenset()
    """(stage, scope) of the parts that a change made one kernel each."""
    stages: tuple[Stage, ...] = field(default=(), compare=False)
    links: bool = True
    """False where what crosses links is counted apart."""

    def floor_s(self, chip: Chip) -> float:
        """Each stage as one kernel, one stage after the other."""
        return sum(self.stage_floor_s(stage, chip) for stage in self.fused)

    def stage_floor_s(self, stage: str, chip: Chip) -> float:
        cost = sum((part.cost for part in self.parts if part.stage == stage), Cost())
        return roofline.times(cost, chip, self.fused[stage]).seconds

    def serial_s(self, chip: Chip) -> float:
        """Each innermost scope as one kernel, one after the other."""
        return sum(roofline.times(part.cost, chip, part.nbytes).seconds for part in self.parts)

    def missing(self, chip: Chip) -> tuple[str, ...]:
        """A line for each rate that the chip lacks, and each stage with a part that has no price: seconds lack that."""
        lines = [f"a part of {s.name} has no price" for s in self.stages if s.profile.status == UNKNOWN]
        lines += [line for p in self.parts for line in roofline.times(p.cost, chip, p.nbytes).missing]
        return tuple(dict.fromkeys(lines))


Place = tuple[str, str]
"""(stage, scope)"""


def program(stages: Sequence[Stage], chip: Chip, links: bool = True) -> Program:
    """The program as it is. Stages of one name are calls of one stage: the first, and the later ones."""
    parts: dict[Place, Part] = {}
    fused: dict[str, int] = defaultdict(int)
    for stage in stages:
        named = all(note.kind != "no-scopes" for note in stage.profile.notes)
        for leaf in leaves(stage.profile, chip):
            nbytes = stage.calls * (leaf.cost.bytes_scoped if named else leaf.cost.bytes_unfused)
            cost, place = stage.calls * leaf.cost, (stage.name, leaf.scope)
            if not links:
                cost = cost.replace(collective_bytes=0, collective_bytes_by_axis={})
            known = parts.get(place, Part(*place, Cost(), 0, 0))
            parts[place] = Part(*place, known.cost + cost, known.nbytes + nbytes,
                                known.weight_bytes + cost.weight_bytes)  # fmt: skip
        fused[stage.name] += stage.calls * stage.profile.total.bytes_fused
    return Program(tuple(parts.values()), dict(fused), stages=tuple(stages), links=links)


def changed(texts: Sequence[str], whole: Program, chip: Chip) -> Program:
    """The program with all of these changes. Raises UsageError for a kind that is not there, or names that nothing
    matches."""
    asked: dict[str, list[str]] = {}
    for text in texts:
        kind, _, names = text.partition(":")
        wanted = [name for name in names.split(",") if name]
        if kind not in KINDS:
            raise UsageError(f"--what-if {text}: there are {', '.join(KINDS)}, as in int8:double/mlp or fuse:norm,rope")
        scopes = wanted
        if kind == "hoist":
            scopes = [name for name in wanted if name not in whole.fused]
        elif not wanted:
            raise UsageError(f"--what-if {text}: name scopes, as in {kind}:double/mlp")
        if scopes:
            _known(text, scopes, whole)
        asked.setdefault(kind, []).extend(wanted or ["*"])
    made = whole
    if "hoist" in asked:
        made = _hoisted([text for text in texts if text.partition(":")[0] == "hoist"], made, chip)
    narrow = {kind: names for kind, names in asked.items() if kind in (*NARROW, "w8a16")}
    made, saved = _narrowed(narrow, made) if narrow else (made, {})
    inside = {(p.stage, p.scope): [(p.stage, p.scope)] for p in made.parts}
    if "flash" in asked:
        made, inside = _one_kernel(asked["flash"], made, saved)
    return _fused(asked["fuse"], made, saved, inside) if "fuse" in asked else made


def _known(text: str, wanted: Sequence[str], whole: Program) -> None:
    """Raises UsageError where no scope has any of the names; of some that nothing has, `unmatched` tells."""
    if len(unmatched(wanted, whole)) == len(wanted):
        paths = {path for part in whole.parts for path in itertools.accumulate(part.scope.split("/"), "{}/{}".format)}
        known = paths if "/" in wanted[0] else {path.rpartition("/")[2] for path in paths}
        near = difflib.get_close_matches(wanted[0], sorted(known), 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"--what-if {text}: no scope is called {wanted[0]}: {hint}costtrace MODEL --depth 3 lists them"
        )


def unmatched(names: Sequence[str], whole: Program) -> list[str]:
    """The names that no scope has."""
    return [name for name in names if not any(matches(part.scope, (name,)) for part in whole.parts)]


def _hoisted(texts: Sequence[str], whole: Program, chip: Chip) -> Program:
    """Stages with several calls as a first call and later ones, in which what is the same is an argument."""
    stages: list[Stage] = []
    extra = 0
    for stage in whole.stages:
        gone: set[Op] = set()
        for text in texts if stage.calls > 1 else ():
            wanted = [name for name in text.partition(":")[2].split(",") if name]
            scopes = [name for name in wanted if name not in whole.fused]
            if stage.name in wanted or len(scopes) == len(wanted):
                gone |= {op for op in stage.unchanging() if not scopes or matches(op.scope, scopes)}
        again, kept = hoist.later(stage.trace, gone) if gone else (stage.trace, 0)
        if len(again.ops) == len(stage.trace.ops):
            stages.append(stage)
            continue
        extra += kept
        stages += [replace(stage, calls=1), Stage(stage.name, stage.calls - 1, again, folded(again))]
    return replace(program(stages, chip, whole.links), extra_bytes=extra)


# Narrower weights


@dataclass(slots=True)
class _Weights:
    """Of one scope: what its products with weights are, and how many of its weights' bytes 8 bits save."""

    flops: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    read: int = 0
    saved: int = 0


def _weights(stages: Sequence[Stage]) -> dict[Place, _Weights]:
    """By scope, of all calls. A product is with weights where an operand is one, through views, casts and loops."""
    out: dict[Place, _Weights] = defaultdict(_Weights)
    for stage in stages:
        origin: dict[Value, Value] = {v: v for v in stage.trace.inputs if v.weight}
        readers: dict[Value, list[tuple[Op, Value]]] = defaultdict(list)
        used: set[Value] = set()
        prices = Prices()
        for op in stage.trace.ops:
            by_dtype = prices(op).cost.by_dtype
            for v in dict.fromkeys(op.inputs):
                weight = origin.get(v.behind("row", "part"))
                if weight is None:
                    continue
                if v.behind("row", "part") is weight:
                    readers[weight].append((op, v))
                if by_dtype:
                    used.add(weight)
                elif op.primitive in VIEWS or op.primitive in (*CASTS, "transpose"):
                    origin.update(dict.fromkeys(op.outputs, weight))
            if by_dtype and any(origin.get(v.behind("row", "part")) is not None for v in op.inputs):
                flops = out[stage.name, op.scope].flops
                for dtype, n in by_dtype.items():
                    flops[dtype] += stage.calls * op.repeat * n
        for weight, some in readers.items():
            for scope, (v, repeat) in {op.scope: (v, op.repeat) for op, v in some}.items():
                nbytes = stage.calls * repeat * v.nbytes
                at = out[stage.name, scope]
                at.read += nbytes
                if weight in used and weight.bits > EIGHT:
                    at.saved += nbytes * (weight.bits - EIGHT) // weight.bits
    return out


def _narrowed(asked: Mapping[str, Sequence[str]], whole: Program) -> tuple[Program, dict[Place, int]]:
    """(the program with weights in 8 bits, products in the dtype that was named last; the bytes that each saves)."""
    fused, parts, saved = dict(whole.fused), [], {}
    weights = _weights(whole.stages)
    for part in whole.parts:
        kinds = [kind for kind, names in asked.items() if matches(part.scope, names)]
        at = weights.get((part.stage, part.scope))
        if not kinds or at is None:
            parts.append(part)
            continue
        less = part.weight_bytes * at.saved // at.read if at.read else 0
        narrow = next((NARROW[kind] for kind in reversed(kinds) if kind in NARROW), None)
        cost = part.cost
        if narrow is not None:
            by_dtype = dict(cost.by_dtype)
            for dtype, n in at.flops.items():
                if _bits(dtype) > EIGHT:
                    by_dtype[dtype] -= n
                    by_dtype[narrow] = by_dtype.get(narrow, 0) + n
            cost = cost.replace(by_dtype={dtype: n for dtype, n in by_dtype.items() if n})
        fused[part.stage] -= less
        saved[part.stage, part.scope] = less
        parts.append(replace(part, cost=cost, nbytes=part.nbytes - less, weight_bytes=part.weight_bytes - less))
    return replace(whole, parts=tuple(parts), fused=fused), saved


def _bits(dtype: str) -> int:
    digits = dtype.partition("_")[0].lstrip("abcdefghijklmnopqrstuvwxyz")
    return int(digits) if digits.isdecimal() else EIGHT


# Kernels


def _one_kernel(
    wanted: Sequence[str], whole: Program, saved: Mapping[Place, int]
) -> tuple[Program, dict[Place, list[Place]]]:
    """(the outermost scopes of these names as one part each, which moves what crosses the scope's edge; the parts that
    each now holds)."""
    edges: dict[Place, int] = defaultdict(int)
    for s in whole.stages:
        for scope, cost in s.profile.by_scope.items():
            edges[s.name, scope] += s.calls * cost.bytes_fused
    found: dict[Place, Part] = {}
    inside: dict[Place, list[Place]] = defaultdict(list)
    for part in whole.parts:
        above = outermost(part.scope, wanted)
        place = part.stage, above if above is not None else part.scope
        known = found.get(place, replace(part, scope=place[1], cost=Cost(), nbytes=0, weight_bytes=0))
        found[place] = replace(known, cost=known.cost + part.cost, nbytes=known.nbytes + part.nbytes,
                               weight_bytes=known.weight_bytes + part.weight_bytes)  # fmt: skip
        inside[place].append((part.stage, part.scope))
    made = {place for place in found if outermost(place[1], wanted) is not None}
    less = {place: sum(saved.get(each, 0) for each in inside[place]) for place in made}
    parts = (replace(p, nbytes=min(p.nbytes, edges.get(place, p.nbytes) - less[place])) if place in made else p
             for place, p in found.items())  # fmt: skip
    return replace(whole, parts=tuple(parts), kernels=whole.kernels | made), dict(inside)


def _fused(
    wanted: Sequence[str], whole: Program, saved: Mapping[Place, int], inside: Mapping[Place, Sequence[Place]]
) -> Program:
    """These scopes move nothing but the program's arguments."""
    given: dict[Place, int] = defaultdict(int)
    for s in whole.stages:
        for (maker, reader), n in s.profile.traffic.items():
            if maker == INPUTS:
                given[s.name, reader] += s.calls * n

    def moved(part: Part) -> int:
        some = inside[part.stage, part.scope]
        return min(part.nbytes, sum(given[each] - saved.get(each, 0) for each in some))

    return replace(whole, parts=tuple(
        replace(p, nbytes=moved(p)) if matches(p.scope, wanted) else p for p in whole.parts
    ))  # fmt: skip


# Names


def matches(scope: str, patterns: Iterable[str]) -> bool:
    """True where a pattern names the scope or one that it lies in."""
    return outermost(scope, patterns) is not None


def outermost(scope: str, patterns: Iterable[str]) -> str | None:
    """The outermost scope that this one is or lies in and that a pattern names."""
    names, some = scope.split("/"), tuple(patterns)
    for k, name in enumerate(names):
        path = "/".join(names[: k + 1])
        for pattern in some:
            each = path if "/" in pattern else name
            plain = pattern.replace("[", "[[]").replace("?", "[?]")  # only * is more than itself
            forms = (plain, plain.replace("/*/", "/"))
            if any(fnmatch.fnmatchcase(each, form) and each.count("/") == form.count("/") for form in forms):
                return path
    return None
