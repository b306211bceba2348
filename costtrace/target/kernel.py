"""A module -> the kernels that run, each with how often, its work, its traffic and the op_name it belongs to.

Loops, branches and calls are walked; a loop's trip count is the compiler's own record, or is read from its condition.
A kernel belongs to its own name. Without one, or with a name outside every scope, it belongs where the heaviest named
instruction inside it does. Without one still (or with one that jax gives to its slicing of a loop's inputs), it belongs
where the first named kernel does that waits for its result, through copies and the edge of the loop; else where its
first named operand does; else to the compiler.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from costtrace.core import Note
from costtrace.target import opname, traffic, work
from costtrace.target.hlo import Computation, Instruction, Module
from costtrace.target.induction import trips
from costtrace.target.traffic import Traffic
from costtrace.target.work import Work

COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter", "ragged-all-to-all",
               "collective-broadcast", "send", "recv")  # fmt: skip
HOPS = 24
"""How many instructions a name is looked for along."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One instruction of the schedule that runs something. `repeat` executions in one call of the program."""

    instruction: Instruction
    computation: Computation
    op_name: str
    named_by: str
    """own, inside, consumer, producer; '' where nobody names it."""
    repeat: int
    work: Work
    traffic: Traffic

    @property
    def name(self) -> str:
        return self.instruction.name

    @property
    def target(self) -> str:
        """A custom call's target."""
        return (self.instruction.attribute("custom_call_target") or "").strip('"')

    @property
    def collective(self) -> str:
        """The kind of a collective, '' for another kernel."""
        opcode = self.instruction.opcode.removesuffix("-start")
        return opcode if opcode in COLLECTIVES else ""

    @property
    def transfer(self) -> bool:
        """True for a copy that runs beside the kernels (a prefetch)."""
        return self.instruction.opcode.endswith("-start") and not self.collective


@dataclass(slots=True)
class Kernels:
    """What a program runs, in schedule order, and what must be said of it."""

    all: list[Kernel] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def kernels(module: Module) -> Kernels:
    """Every kernel of one call of the program."""
    walk = _Walk(module)
    walk.body(module.entry, 1, "", {})
    walk.out.notes = list(dict.fromkeys(walk.out.notes))
    return walk.out


class _Walk:
    def __init__(self, module: Module) -> None:
        self.module, self.out = module, Kernels()
        self.works: dict[int, tuple[Work, Traffic]] = {}

    def body(self, computation: Computation, repeat: int, above: str, loop: dict[str, Computation]) -> None:
        for i in computation:
            path = opname.joined(above, i.op_name)
            if i.opcode == "while":
                n = trips(self.module, computation, i)
                if n is None:
                    self.out.notes.append(
                        Note(
                            "unknown-trip",
                            opname.scope_of(path),
                            "a compiled loop's trip count depends on data: one trip is counted",
                        )
                    )
                inner = self.module.computations[i.called("body")[0]]
                test = self.module.computations[i.called("condition")[0]]
                n = 1 if n is None else n
                self.body(test, repeat * (n + 1), above, {})
                self.body(inner, repeat * n, above, {"body": inner})
            elif i.opcode == "conditional":
                self.branch(i, repeat, above)
            elif i.opcode == "call":
                self.body(self.module.computations[i.called("to_apply")[0]], repeat, path, {})
            elif not traffic.free(i) and not _for_the_next_run(computation, i):
                self.kernel(computation, i, repeat, above, loop)

    def branch(self, i: Instruction, repeat: int, above: str) -> None:
        names = i.called("branch_computations") or (*i.called("true_computation"), *i.called("false_computation"))
        arms = []
        for name in names:
            arm = _Walk(self.module)
            arm.body(self.module.computations[name], repeat, above, {})
            arms.append(arm.out)
        dearest = max(arms, key=_price)
        if len({_price(arm) for arm in arms}) > 1:
            self.out.notes.append(
                Note(
                    "branch",
                    opname.scope_of(opname.joined(above, i.op_name)),
                    f"a compiled branch depends on data: its dearest of {len(arms)} arms is counted",
                )
            )
        self.out.all += dearest.all
        self.out.notes += dearest.notes

    def kernel(
        self, computation: Computation, i: Instruction, repeat: int, above: str, loop: dict[str, Computation]
    ) -> None:
        if id(i) not in self.works:
            self.works[id(i)] = work.of(self.module, computation, i), traffic.of(self.module, computation, i)
        name, by = self.named(computation, i, loop)
        self.out.all.append(Kernel(i, computation, opname.joined(above, name), by, repeat, *self.works[id(i)]))

    def named(self, computation: Computation, i: Instruction, loop: dict[str, Computation]) -> tuple[str, str]:
        """(op_name, by which rule)."""
        own, inside = _own(i), ""
        if own and opname.scope_of(own):
            return own, "own"
        inside = self.inside(i)
        if inside and (not own or opname.scope_of(inside)):
            return inside, "inside"
        if own:
            return own, "own"
        if name := self.along(computation, i, loop, forward=True):
            return name, "consumer"
        if name := self.along(computation, i, loop, forward=False):
            return name, "producer"
        return "", ""

    def inside(self, i: Instruction) -> str:
        """The name of the heaviest instruction in what it calls: most FLOPs, then the largest result."""
        best: tuple[tuple[int, int], str] | None = None
        for called in (*i.called("calls"), *(i.called("to_apply") if i.opcode == "call" else ())):
            computation = self.module.computations[called]
            for each in computation:
                name = _own(each) or (self.inside(each) if each.opcode == "fusion" else "")
                if not name or traffic.free(each):
                    continue
                weight = (work.of(self.module, computation, each).flops, sum(s.nbytes for s in each.results))
                if best is None or weight > best[0]:
                    best = weight, name
        return best[1] if best else ""

    def along(self, computation: Computation, i: Instruction, loop: dict[str, Computation], forward: bool) -> str:
        """The nearest name among what uses the result (or among what it is made of), breadth first."""
        edge, seen = [i], {i.name}
        for _ in range(HOPS):
            following: list[Instruction] = []
            for at in edge:
                near = (
                    self.after(computation, at, loop) if forward else [computation.instructions[n] for n in at.operands]
                )
                for other in near:
                    if other.name in seen:
                        continue
                    seen.add(other.name)
                    if not traffic.free(other) and (name := _own(other) or self.inside(other)):
                        return name
                    following.append(other)
            edge = following
        return ""

    def after(self, computation: Computation, i: Instruction, loop: dict[str, Computation]) -> list[Instruction]:
        """The users of a result; of a loop's last tuple those of the same element in the next trip."""
        out = []
        for user in computation.users.get(i.name, ()):
            if user.opcode == "tuple" and user.name == computation.root and loop.get("body") is computation:
                positions = {n for n, name in enumerate(user.operands) if name == i.name}
                out += [
                    x
                    for x in computation
                    if x.opcode == "get-tuple-element"
                    and int(x.attribute("index") or -1) in positions
                    and computation.operand(x, 0).opcode == "parameter"
                ]
            elif user.opcode == "while":
                continue
            else:
                out.append(user)
        return out


_EDGE = re.compile(
    r"(^jit\([^/]*\)|^[^/]*|/(while|closed_call|body|cond)|"
    r"/while/body/(jit\(dynamic_index_in_dim\)/?)?(dynamic_slice|dynamic_update_slice|squeeze|broadcast_in_dim)?)$"
)
"""Names that say nothing: the program's own, a loop's, and those of slices at a loop's edge."""


def _own(i: Instruction) -> str:
    """An instruction's name, '' where it has none that says anything."""
    return "" if _EDGE.search(opname.plain(i.op_name)) else i.op_name


def _for_the_next_run(computation: Computation, i: Instruction) -> bool:
    """True for a prefetch that nobody here waits for: the next run's, whose like this run's first copy stands for."""
    waiting = computation.users.get(i.name, ())
    if i.opcode != "copy-start" or not waiting or any(u.opcode != "copy-done" for u in waiting):
        return False
    return not any(computation.users.get(u.name) or u.name == computation.root for u in waiting)


def _price(arm: Kernels) -> tuple[int, int]:
    return (sum(k.work.flops * k.repeat for k in arm.all), sum(k.traffic.hbm * k.repeat for k in arm.all))


def scaled(kernel: Kernel, n: int) -> Kernel:
    """The kernel run n times as often."""
    return replace(kernel, repeat=kernel.repeat * n)
