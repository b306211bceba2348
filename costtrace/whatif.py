"""What a change would save: a program's innermost parts, changed, priced again. Nothing is traced or compiled anew.

    int8:single/linear1,double/mlp    products with weights in int8 (activations stay as wide as they are)
    fp8:single/linear1                the same in float8, at the rate that the chip has for it
    w8a16:single/linear1              weights in 8 bits, products as before
    fuse:norm,rope,gate               these scopes move nothing but arguments: done in the kernel before or after
    flash:attention                   each of these scopes, with all in it, is one kernel
    hoist                             what is the same in every call of a stage is done in the first call only
    hoist:dit, hoist:to_kv,context    the same in one stage, or in these scopes

A pattern without "/" names a scope at any depth; with "/" it is a path from the top, where * is any one name, and
between two others none too: double/*/mlp is double/mlp and double/img/mlp. Two figures:
`floor_s`, each stage as one kernel; `serial_s`, each innermost scope as one kernel, one after the other.
"""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from costtrace import roofline
from costtrace.chip import Chip
from costtrace.core import COUNTS, TABLES, Cost, Op, Trace, Value
from costtrace.errors import UsageError
from costtrace.profiler import Prices
from costtrace.storage import Storage
from costtrace.summary import Profile
from costtrace.timeline import leaves

INPUTS = "(inputs)"
NARROW = {"int8": "int8", "fp8": "float8_e4m3fn"}
"""Kind -> the dtype that products with weights then have."""
KINDS = (*NARROW, "w8a16", "fuse", "flash", "hoist")
EIGHT = 8


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a program, traced."""

    name: str
    calls: int
    trace: Trace
    profile: Profile


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

    def floor_s(self, chip: Chip) -> float:
        """Each stage as one kernel, one stage after the other."""
        return sum(self.stage_floor_s(stage, chip) for stage in self.fused)

    def stage_floor_s(self, stage: str, chip: Chip) -> float:
        cost = sum((part.cost for part in self.parts if part.stage == stage), Cost())
        return roofline.times(cost, chip, self.fused[stage]).seconds

    def serial_s(self, chip: Chip) -> float:
        """Each innermost scope as one kernel, one after the other."""
        return sum(roofline.times(part.cost, chip, part.nbytes).seconds for part in self.parts)


def program(stages: Sequence[Stage], chip: Chip) -> Program:
    """The program as it is."""
    parts: list[Part] = []
    for stage in stages:
        named = all(note.kind != "no-scopes" for note in stage.profile.notes)
        for leaf in leaves(stage.profile, chip):
            nbytes = leaf.cost.bytes_scoped if named else leaf.cost.bytes_unfused
            cost = stage.calls * leaf.cost
            parts.append(Part(stage.name, leaf.scope, cost, stage.calls * nbytes, cost.weight_bytes))
    return Program(tuple(parts), {s.name: s.calls * s.profile.total.bytes_fused for s in stages})


def changed(text: str, stages: Sequence[Stage], whole: Program) -> Program:
    """The program with one change. Raises UsageError for a kind that is not there, or names that nothing matches."""
    kind, _, names = text.partition(":")
    wanted = tuple(name for name in names.split(",") if name)
    if kind not in KINDS:
        raise UsageError(f"--what-if {text}: there are {', '.join(KINDS)}, as in int8:double/mlp or fuse:norm,rope")
    if kind == "hoist":
        return _hoisted(text, wanted, stages, whole)
    if not wanted:
        raise UsageError(f"--what-if {text}: name scopes, as in {kind}:double/mlp")
    _known(text, wanted, whole)
    if kind == "fuse":
        return _fused(wanted, stages, whole)
    if kind == "flash":
        return _one_kernel(wanted, stages, whole)
    fused = dict(whole.fused)
    parts: list[Part] = []
    for part in whole.parts:
        hit = matches(part.scope, wanted)
        saved = narrower(part) if hit else 0
        fused[part.stage] -= saved
        cost = part.cost
        if hit and kind in NARROW and part.weight_bytes and cost.by_dtype:
            cost = cost.replace(by_dtype={NARROW[kind]: sum(cost.by_dtype.values())})
        parts.append(replace(part, cost=cost, nbytes=part.nbytes - saved, weight_bytes=part.weight_bytes - saved))
    return replace(whole, parts=tuple(parts), fused=fused)


def _known(text: str, wanted: Sequence[str], whole: Program) -> None:
    """Raises UsageError where no scope has any of the names; of some that nothing has, `unmatched` tells."""
    if len(unmatched(wanted, whole)) == len(wanted):
        raise UsageError(f"--what-if {text}: no scope is called {wanted[0]}: costtrace MODEL --depth 3 lists them")


def unmatched(names: Sequence[str], whole: Program) -> list[str]:
    """The names that no scope has."""
    return [name for name in names if not any(matches(part.scope, (name,)) for part in whole.parts)]


def _fused(wanted: Sequence[str], stages: Sequence[Stage], whole: Program) -> Program:
    given = {(s.name, b): n * s.calls for s in stages for (a, b), n in s.profile.traffic.items() if a == INPUTS}
    return replace(whole, parts=tuple(
        replace(p, nbytes=min(p.nbytes, given.get((p.stage, p.scope), 0))) if matches(p.scope, wanted) else p
        for p in whole.parts
    ))  # fmt: skip


def _one_kernel(wanted: Sequence[str], stages: Sequence[Stage], whole: Program) -> Program:
    """The outermost scopes of these names as one part each, which moves what crosses the scope's edge."""
    edges = {(s.name, scope): s.calls * cost.bytes_fused for s in stages for scope, cost in s.profile.by_scope.items()}
    found: dict[tuple[str, str], Part] = {}
    for part in whole.parts:
        above = outermost(part.scope, wanted)
        place = part.stage, above if above is not None else part.scope
        known = found.get(place, replace(part, scope=place[1], cost=Cost(), nbytes=0, weight_bytes=0))
        found[place] = replace(known, cost=known.cost + part.cost, nbytes=known.nbytes + part.nbytes,
                               weight_bytes=known.weight_bytes + part.weight_bytes)  # fmt: skip
    made = {place for place in found if outermost(place[1], wanted) is not None}
    parts = (replace(p, nbytes=min(p.nbytes, edges.get(place, p.nbytes))) if place in made else p
             for place, p in found.items())  # fmt: skip
    return replace(whole, parts=tuple(parts), kernels=whole.kernels | made)


def narrower(part: Part) -> int:
    """Bytes that a part's weights lose in 8 bits; its products' widest operands say how wide they are."""
    bits = max((_bits(dtype) for dtype in part.cost.by_dtype), default=EIGHT)
    return part.weight_bytes - part.weight_bytes * EIGHT // bits if bits > EIGHT else 0


def _bits(dtype: str) -> int:
    digits = dtype.partition("_")[0].lstrip("abcdefghijklmnopqrstuvwxyz")
    return int(digits) if digits.isdecimal() else EIGHT


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
            forms = (pattern, pattern.replace("/*/", "/"))
            if any(fnmatch.fnmatchcase(each, form) and each.count("/") == form.count("/") for form in forms):
                return path
    return None


# What does not change from call to call


def steady(stage: Stage) -> list[Value]:
    """The stage's arguments that are taken to be the same in every call: the weights, and all but what the stage hands
    on (an argument with a result's shape and dtype) and what counts the steps (numbers and vectors over the batch)."""
    results = {(v.shape, v.dtype) for v in stage.trace.outputs}
    state = [v for v in stage.trace.inputs if not v.weight and (v.shape, v.dtype) in results]
    batch = state[0].shape[0] if state and state[0].shape else 1
    return [v for v in stage.trace.inputs if v.weight or (v not in state and v.shape not in ((), (batch,)))]


def unchanging(stage: Stage) -> list[Op]:
    """The ops whose results are the same in every call: they depend on steady arguments alone."""
    kept = set(steady(stage))
    varies: set[Value] = {v for v in stage.trace.inputs if v not in kept}
    before = -1
    while before != len(varies):
        before = len(varies)
        for op in stage.trace.ops:
            if any(v.behind() in varies for v in op.inputs):
                varies.update(op.outputs)
        varies |= {c.inner for c in stage.trace.carries if c.start.behind() in varies or c.end.behind() in varies}
    return [op for op in stage.trace.ops if op.outputs and not any(v in varies for v in op.outputs)]


def _hoisted(text: str, wanted: Sequence[str], every: Sequence[Stage], whole: Program) -> Program:
    stages = [stage for stage in every if stage.name in wanted] or list(every)
    scopes = [name for name in wanted if name not in {stage.name for stage in every}]
    if scopes:
        _known(text, scopes, whole)
    parts, fused, extra = list(whole.parts), dict(whole.fused), whole.extra_bytes
    for stage in stages:
        again = stage.calls - 1
        if not again:
            continue
        ops, prices = [op for op in unchanging(stage) if not scopes or matches(op.scope, scopes)], Prices()
        inside = {id(op) for op in ops}
        cost: dict[str, list[Cost]] = defaultdict(list)
        weights: dict[str, dict[Value, int]] = defaultdict(dict)
        for op in ops:
            cost[op.scope].append(prices(op).cost * (op.repeat * again))
            for v in op.inputs:
                if v.behind().weight:
                    weights[op.scope][v] = v.nbytes * op.repeat * again
        mixed = {op.scope for op in stage.trace.ops if id(op) not in inside and op.outputs}
        made = {v: op for op in ops for v in op.outputs}
        storage = Storage(stage.trace)
        later = [v for op in stage.trace.ops if id(op) not in inside for v in op.inputs if v.kind != "literal"]
        used = {piece.root for v in dict.fromkeys(later) for piece in storage.pieces(v)}
        kept = sum(v.nbytes * made[v].repeat for v in used if v in made)
        extra += kept
        fused[stage.name] += again * kept
        for k, part in enumerate(parts):
            if part.stage != stage.name or part.scope not in cost:
                continue
            fewer = min(part.weight_bytes, sum(weights[part.scope].values()))
            fused[stage.name] -= fewer
            nbytes = part.nbytes - fewer if part.scope in mixed else part.nbytes // stage.calls
            less = _less(part.cost, sum(cost[part.scope], Cost()))
            parts[k] = replace(part, cost=less, nbytes=max(0, nbytes), weight_bytes=part.weight_bytes - fewer)
    fused = {s: max(0, n) for s, n in fused.items()}
    return replace(whole, parts=tuple(parts), fused=fused, extra_bytes=extra)


def _less(cost: Cost, part: Cost) -> Cost:
    counts = {name: getattr(cost, name) - getattr(part, name) for name in COUNTS if not name.startswith("bytes")}
    tables = {name: {k: n - getattr(part, name).get(k, 0) for k, n in getattr(cost, name).items()} for name in TABLES}
    return cost.replace(**counts, **tables)
