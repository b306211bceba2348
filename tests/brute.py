"""A slow account of bytes, element by element: what each kernel must read and write, by running the program on indices.

Every buffer's elements get numbers; a value is an array of numbers (-1: written in the program, nothing to read). A
view is an array of its source's numbers. Any other primitive makes a new buffer and says which numbers each of its
elements needs. Loops are run trip by trip. What the results ask for is followed back, and the bytes that cross the edge
of a set of primitives are counted with sets. It shares no code and no approximation with costtrace."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax._src.interpreters.partial_eval import dce_jaxpr
from needs import (
    HELD,
    INDEXED,
    MOVES,
    VIEWS,
    Key,
    Needs,
    Numbers,
    Step,
    Value,
    bits,
    elementwise,
    needed,
    scan_counts,
    starts_of,
    window,
)

UPDATES = ("dynamic_update_slice", "scatter", "scatter-add")
CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


@dataclass
class Account:
    fused: int
    scoped: int
    unfused: int


@dataclass
class Book:
    rows: dict[str, Account]
    """Scope path -> bytes, "" the whole program."""
    doubts: set[str]
    """Where the definition leaves a choice that this account makes in its own way."""


@dataclass
class Machine:
    steps: list[Step] = field(default_factory=list)
    bits: list[int] = field(default_factory=list)
    """Width of every number's element."""
    buffer: list[int] = field(default_factory=list)
    """First number of every number's buffer."""
    asked: set[int] = field(default_factory=set)
    columns: dict[int, frozenset[int]] = field(default_factory=dict)
    """Elements at one place of a loop's stacked rows: who reads one row has them all made."""

    def new(self, shape: tuple[int, ...], dtype: Any) -> Numbers:
        start, size = len(self.bits), math.prod(shape)
        self.bits += [bits(dtype)] * size
        self.buffer += [start] * size
        return np.arange(start, start + size).reshape(shape)

    def nbytes(self, numbers: Iterable[int]) -> int:
        """Bytes of a set of elements, whole bytes for each buffer."""
        per: dict[int, int] = defaultdict(int)
        for n in numbers:
            per[self.buffer[n]] += self.bits[n]
        return sum(-(-bits // 8) for bits in per.values())

    def make(self, primitive: str, place: Key, aval: Any, needs: Needs) -> Numbers:
        out = self.new(aval.shape, aval.dtype)
        assert len(needs) == out.size, (primitive, len(needs), out.size)
        self.steps.append(Step(primitive, place, dict(zip(out.ravel().tolist(), needs, strict=True))))
        return out

    def join(self, n: int) -> None:
        """The last n steps are one, with n results: its operands are read once."""
        for step in self.steps[len(self.steps) - n + 1 :]:
            self.steps[len(self.steps) - n].needs.update(step.needs)
        del self.steps[len(self.steps) - n + 1 :]

    def ask(self, place: Key, numbers: Numbers) -> None:
        """A step without a result that reads `numbers`: a branch's predicate."""
        n = int(self.new((1,), "none").item())
        self.asked.add(n)
        self.steps.append(Step("cond", place, {n: needed(*numbers.ravel())}))

    def whole(self, numbers: Numbers) -> bool:
        """True where the array is one or more whole buffers, made by a step, one after the other in their order."""
        made = {n for s in self.steps for n in s.needs}
        flat, at = numbers.ravel().tolist(), 0
        if len(set(flat)) < len(flat):
            return False
        while at < len(flat):
            start = flat[at]
            if start not in made or self.buffer[start] != start:
                return False
            end = start
            while end < len(self.bits) and self.buffer[end] == start:
                end += 1
            if flat[at : at + end - start] != list(range(start, end)):
                return False
            at += end - start
        return True


@dataclass
class Runner:
    machine: Machine = field(default_factory=Machine)
    donated: set[int] = field(default_factory=set)
    """Numbers of donated arguments."""
    doubts: set[str] = field(default_factory=set)
    held: list[Any] = field(default_factory=list)

    def run(self, jaxpr: Any, consts: list[Value], args: list[Value], place: Key) -> list[Value]:
        self.held.append(jaxpr)
        env: dict[Any, Value] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
        for eqn in jaxpr.eqns:
            stack = eqn.source_info.name_stack.stack
            turned = any(s.name == "transpose" for s in stack if type(s).__name__ == "Transform")
            scopes = [s for s in stack if type(s).__name__ == "Scope" and "," not in s.name]
            at = (*place, *(("scope", s.name, hash((id(s), turned))) for s in scopes))
            outs = self.step(eqn, [self.read(env, v) for v in eqn.invars], at)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [self.read(env, v) for v in jaxpr.outvars]

    def read(self, env: dict[Any, Value], v: Any) -> Value:
        if hasattr(v, "val"):
            return Value(np.full(v.aval.shape, -1), np.asarray(v.val))
        return env[v]

    def closed(self, closed: Any, args: list[Value], place: Key) -> list[Value]:
        return self.run(closed.jaxpr, [self.constant(c) for c in closed.consts], args, place)

    def constant(self, c: Any) -> Value:
        return Value(self.machine.new(np.shape(c), np.asarray(c).dtype), np.asarray(c))

    def step(self, eqn: Any, ins: list[Value], at: Key) -> list[Value]:
        name, p = eqn.primitive.name, eqn.params
        here = (*at, ("call", "", id(eqn)))
        if name == "scan":
            return self.scan(p, ins, here)
        if name == "while":
            return self.repeat(p, ins, here)
        if name == "cond":
            self.machine.ask(at, ins[0].numbers)
            return self.closed(max(p["branches"], key=lambda b: len(b.jaxpr.eqns)), ins[1:], here)
        body = next((p[key] for key in CALLS if key in p), None)
        if body is not None:
            return self.closed(body, ins, here) if hasattr(body, "consts") else self.run(body, [], ins, here)
        if name in ("split", "unstack"):
            return self.parts(eqn, ins[0])
        aval, numbers = eqn.outvars[0].aval, [v.numbers for v in ins]
        if name in VIEWS:
            return [Value(VIEWS[name](numbers[0], p, aval.shape), self.hold(name, p, ins, aval), at)]
        if name == "dynamic_slice":  # a view that reads its place
            if aval.size:
                self.machine.ask(at, np.array([int(v.numbers) for v in ins[1:]]))
            box = window(starts_of(ins[1:]), p["slice_sizes"], numbers[0].shape)
            return [Value(numbers[0][box], None, at)]
        if name in INDEXED:
            needs = INDEXED[name](ins, p, aval.shape)
            if name != "gather" and self.in_place(numbers[0]):
                return [Value(self.updated(name, at, aval, needs, numbers[0]), None, at)]
        elif name in MOVES:
            needs = MOVES[name](numbers, p, aval.shape)
        else:
            needs = elementwise(numbers, p, aval.shape)
        outs = [Value(self.machine.make(name, at, v.aval, needs), None, at) for v in eqn.outvars]
        self.machine.join(len(outs))
        if name in UPDATES and self.machine.whole(numbers[0]):
            self.machine.steps[-1].changes = frozenset(numbers[0].ravel().tolist())
        outs[0].known = self.hold(name, p, ins, aval)
        return outs

    def parts(self, eqn: Any, x: Value) -> list[Value]:
        p, shapes = eqn.params, [v.aval.shape for v in eqn.outvars]
        sizes = p.get("sizes") or [1] * len(shapes)
        cuts = np.split(x.numbers, np.cumsum(sizes)[:-1], p["axis"])
        return [Value(c.reshape(s)) for c, s in zip(cuts, shapes, strict=True)]

    def hold(self, name: str, p: Any, ins: list[Value], aval: Any) -> Numbers | None:
        """The value itself, where it is index arithmetic on values that are known."""
        if np.dtype(aval.dtype).kind not in "iub" or any(v.known is None for v in ins):
            return None
        known = [v.known for v in ins]
        if name in ("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "slice"):
            return VIEWS[name](np.asarray(known[0]), p, aval.shape)
        if name in HELD:
            return np.broadcast_to(HELD[name](*known), aval.shape)
        if name == "iota":
            shape = [n if d == p["dimension"] else 1 for d, n in enumerate(aval.shape)]
            return np.broadcast_to(np.arange(aval.shape[p["dimension"]]).reshape(shape), aval.shape)
        return np.asarray(known[0]) if name in ("convert_element_type", "stop_gradient") else None

    def in_place(self, x: Numbers) -> bool:
        return len(np.unique(x)) == x.size > 0 and self.donated.issuperset(x.ravel().tolist())

    def updated(self, name: str, at: Key, aval: Any, needs: Needs, x: Numbers) -> Numbers:
        """A donated buffer after an update: its own numbers, but for the elements that are written."""
        out = x.copy().ravel()
        where = [i for i, n in enumerate(needs) if n - {int(out[i])} or not n]
        part = jax.ShapeDtypeStruct((len(where),), aval.dtype)
        out[where] = self.machine.make(name, at, part, [needs[i] for i in where])
        self.donated.update(out.tolist())
        return out.reshape(x.shape)

    def scan(self, p: Any, ins: list[Value], place: Key) -> list[Value]:
        nc, nk = scan_counts(p)
        consts, carry, xs = ins[:nc], ins[nc : nc + nk], ins[nc + nk :]
        fixed = {n for v in [*consts, *xs] for n in v.numbers.ravel().tolist()}
        starts = [n for v in carry for n in v.numbers.ravel().tolist()]
        if -1 in starts or fixed.intersection(starts) or len(starts) > len(set(starts)):
            self.doubts.add("a carry whose start is read otherwise, or is no array: is it a buffer in the first trip?")
        trips: list[list[Value]] = []
        order = range(p["length"])
        for i in reversed(order) if p["reverse"] else order:
            at = (*place, ("trip", "", i))
            rows = [Value(x.numbers[i], None if x.known is None else x.known[i]) for x in xs]
            outs = self.closed(p["jaxpr"], [*consts, *carry, *rows], at)
            carry = outs[:nk]
            trips.append([self.real(y, at) for y in outs[nk:]])
        if p["reverse"]:
            trips.reverse()
        avals = [v.aval for v in p["jaxpr"].jaxpr.outvars[nk:]]
        stacked = [
            np.stack([t[k].numbers for t in trips]) if trips else np.zeros((0, *a.shape), int)
            for k, a in enumerate(avals)
        ]
        for rows in stacked:
            for column in rows.reshape(len(rows), -1).T.tolist() if rows.size else []:
                self.machine.columns.update(dict.fromkeys(column, frozenset(column)))
        return [*carry, *(Value(s, None, place) for s in stacked)]

    def repeat(self, p: Any, ins: list[Value], place: Key) -> list[Value]:
        self.doubts.add("a while loop: is its counter's start read, is its condition?")
        nc, nb = p["cond_nconsts"], p["body_nconsts"]
        tests, consts, carry = ins[:nc], ins[nc : nc + nb], ins[nc + nb :]
        for i in itertools.count():
            (more,) = self.closed(p["cond_jaxpr"], [*tests, *carry], (*place, ("test", "", i)))
            self.machine.ask(place, more.numbers)
            assert more.known is not None
            if not more.known:
                return carry
            carry = self.closed(p["body_jaxpr"], [*consts, *carry], (*place, ("trip", "", i)))
        raise AssertionError

    def real(self, v: Value, place: Key) -> Value:
        """v, or a copy of it where it is not a buffer of its own."""
        if self.machine.whole(v.numbers):
            return v
        width = self.machine.bits[int(v.numbers.ravel()[0])] if v.numbers.size and v.numbers.min() >= 0 else 32
        by_width = {2: "int2", 4: "int4", 8: "int8", 16: "float16", 32: "float32", 64: "complex64"}
        struct = jax.ShapeDtypeStruct(v.numbers.shape, by_width[width])
        return Value(self.machine.make("copy", v.place or place, struct, [needed(n) for n in v.numbers.ravel()]))


def accounts(fn: Callable[..., Any], args: tuple[Any, ...], donate: tuple[int, ...] = ()) -> Book:
    """Bytes of each scope and of the whole program."""
    closed = jax.make_jaxpr(fn)(*args)
    jaxpr, used = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
    machine = (runner := Runner()).machine
    values = []
    for i, v in enumerate(closed.jaxpr.invars):
        known = np.arange(v.aval.size).reshape(v.aval.shape) if np.dtype(v.aval.dtype).kind == "i" else None
        values.append(Value(machine.new(v.aval.shape, v.aval.dtype), known))
        if i in donate:
            runner.donated |= set(values[-1].numbers.ravel().tolist())
    consts = [runner.constant(c) for c in closed.consts]
    inputs = len(machine.bits)
    results: list[frozenset[int]] = []
    found = runner.run(jaxpr, consts, [v for v, u in zip(values, used, strict=True) if u], ())
    for v, out in zip(found, jaxpr.outvars, strict=True):
        numbers = v.numbers
        if any(v is given for given in values):  # an argument handed through is not copied
            continue
        needs = [needed(n) for n in numbers.ravel()]
        if not any(needs) or not (runner.donated & set(numbers.ravel()) or machine.whole(numbers)):
            numbers = machine.make("copy", v.place, out.aval, needs)
            if any(out is u for eqn in jaxpr.eqns for u in eqn.invars):
                runner.doubts.add("a view that is a result and is read: from its source or from the copy?")
        results.append(frozenset(n for n in numbers.ravel().tolist() if n >= inputs))
    looped = {n for s in machine.steps if any("trip" in part for part in s.place) for n in s.needs}
    twice = {n for n, k in Counter(itertools.chain(*results)).items() if k > 1}
    if looped & twice:
        runner.doubts.add("one array is two results and made in a loop: which scope writes it again?")
    if any(bits % 8 for bits in machine.bits) and any("trip" in part for s in machine.steps for part in s.place):
        runner.doubts.add("rows of less than whole bytes, stacked: rounded one by one?")
    return Book(_Counter(machine, results).all(), runner.doubts)


@dataclass
class _Counter:
    machine: Machine
    arrays: list[frozenset[int]]
    """Elements of each result. One that is in two results is written twice."""

    def all(self) -> dict[str, Account]:
        self.results = frozenset().union(*self.arrays)
        self.steps = self.folded()
        self.maker = {n: i for i, s in enumerate(self.steps) for n in s.needs}
        self.wanted: set[int] = set()
        self.want(self.results | self.machine.asked)
        for s in reversed(self.steps):
            for n, needs in s.needs.items():
                if n in self.wanted:
                    self.want(needs)
        self.readers: dict[int, set[int]] = defaultdict(set)
        for i, s in enumerate(self.steps):
            for n, needs in s.needs.items():
                for m in needs if n in self.wanted else ():
                    self.readers[m].add(i)
        leaves: dict[Key, set[int]] = defaultdict(set)
        trees: dict[Key, set[int]] = defaultdict(set)
        for i, s in enumerate(self.steps):
            ends = [k + 1 for k, part in enumerate(s.place) if part[0] == "scope"]
            leaves[s.place[: ends[-1]] if ends else ()].add(i)
            for end in ends:
                trees[s.place[:end]].add(i)
        own = {key: self.edge(steps) for key, steps in leaves.items()}
        everything = set(range(len(self.steps)))
        found = {"": Account(self.edge(everything), sum(own.values()), self.unfused(everything))}
        for key, steps in trees.items():
            path = "/".join(part[1] for part in key if part[0] == "scope")
            row = found.setdefault(path, Account(0, 0, 0))
            row.fused += self.edge(steps)
            row.scoped += sum(n for leaf, n in own.items() if leaf[: len(key)] == key)
            row.unfused += self.unfused(steps)
        return found

    def want(self, numbers: frozenset[int]) -> None:
        for n in numbers - self.wanted:
            self.wanted |= self.machine.columns.get(n, {n})

    def folded(self) -> list[Step]:
        """The steps without the transposes that only dots read, whose numbers become their sources'."""
        steps = list(self.machine.steps)
        for t in [s for s in reversed(steps) if s.primitive == "transpose"]:
            made = set(t.needs)
            readers = [s for s in steps if s is not t and any(made & needs for needs in s.needs.values())]
            if readers and not made & self.results and all(s.primitive == "dot_general" for s in readers):
                steps.remove(t)
                for s in readers:
                    for n, needs in s.needs.items():
                        s.needs[n] = frozenset(itertools.chain.from_iterable(t.needs.get(m, (m,)) for m in needs))
        for i, s in enumerate(steps):
            if s.changes and not s.changes & self.results:
                later = frozenset().union(*(n for t in steps[i + 1 :] for n in t.needs.values()))
                if not later & s.changes:
                    self.in_place(s, steps[i + 1 :])
        return steps

    def in_place(self, update: Step, later: list[Step]) -> None:
        """Makes an update of a buffer that nobody reads afterwards write only what it changes."""
        same = {n: m for n, needs in update.needs.items() for m in needs if needs == {m} and m in update.changes}
        update.needs = {n: needs for n, needs in update.needs.items() if n not in same}
        for s in later:
            s.needs = {n: frozenset(same.get(m, m) for m in needs) for n, needs in s.needs.items()}
            s.changes = frozenset(same.get(m, m) for m in s.changes)
        self.arrays = [frozenset(same.get(m, m) for m in array) for array in self.arrays]
        self.results = frozenset().union(*self.arrays)

    def edge(self, steps: set[int]) -> int:
        """Bytes that cross the edge of a set of steps: read from outside, and made inside and wanted outside."""
        entering, leaving = set(), set()
        for i in steps:
            for n, needs in self.steps[i].needs.items():
                if n in self.wanted:
                    entering |= {m for m in needs if self.maker.get(m, -1) not in steps}
                    if n in self.results or self.readers[n] - steps:
                        leaving.add(n)
        return self.machine.nbytes(entering) + self.written(leaving)

    def written(self, numbers: set[int]) -> int:
        """Bytes of writing these: once each, and once more for every further result that an element is in."""
        seen, total = set[int](), self.machine.nbytes(numbers)
        for array in self.arrays:
            total += self.machine.nbytes(array & numbers & seen)
            seen |= array
        return total

    def unfused(self, steps: set[int]) -> int:
        total = 0
        for i in steps:
            needs = self.steps[i].needs
            total += self.machine.nbytes(set().union(*needs.values())) + self.written(set(needs))
        return total
