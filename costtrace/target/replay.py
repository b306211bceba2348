"""A lowered HLO program -> an ordinary JAX function that does the same, instruction by instruction, scopes and all.

So that a program without its Python code (a jax.export artifact) is traced, priced and cut like any other. Work is as
lowered: a softmax is its exponentials and sums, a gelu its polynomial. A while loop that steps through rows is a scan
again. Every result's shape and dtype is held against the text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from costtrace.errors import TraceError
from costtrace.target import induction
from costtrace.target.hlo import Computation, Instruction, Module, Shape
from costtrace.target.opname import scope_of
from costtrace.target.translation import LAX, dtype_of, literal

Values = dict[str, Any]
IDENTITY = ("copy", "opt-barrier", "optimization-barrier", "bitcast")
QUIET = ("parameter", "tuple", "get-tuple-element", "constant")
"""What is no work, and opens no scope."""
ANNOTATIONS = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.FuncResultSharding")


def function(module: Module) -> Callable[..., Any]:
    """The program's entry on flat arrays -> a list of its results. Tracing it raises TraceError for an instruction that
    has no counterpart in jax.lax."""

    def call(*arrays: Any) -> Any:
        with Scopes("") as scopes:
            out = Replay(module, scopes).run(module.entry, list(arrays), "")
        return out if isinstance(out, list) else [out]

    return call


class Scopes(contextlib.AbstractContextManager["Scopes"]):
    """The named scopes open now. Neighbours of one path share the scope: they are one instance of it."""

    def __init__(self, base: str) -> None:
        self.base = base.split("/") if base else []
        self.open: list[tuple[str, contextlib.ExitStack]] = []

    def at(self, path: str) -> None:
        """Closes and opens scopes until `path` is open, seen from the base."""
        import jax

        wanted = path.split("/") if path else []
        if wanted[: len(self.base)] == self.base:
            wanted = wanted[len(self.base) :]
        kept = 0
        while kept < min(len(wanted), len(self.open)) and self.open[kept][0] == wanted[kept]:
            kept += 1
        while len(self.open) > kept:
            self.open.pop()[1].close()
        for name in wanted[kept:]:
            held = contextlib.ExitStack()
            held.enter_context(jax.named_scope(name))
            self.open.append((name, held))

    @property
    def path(self) -> str:
        return "/".join([*self.base, *(name for name, _ in self.open)])

    def __exit__(self, *error: object) -> None:
        self.at("/".join(self.base))


class Replay:
    """One walk through a module's computations."""

    def __init__(self, module: Module, scopes: Scopes) -> None:
        self.module, self.scopes = module, scopes
        named = (i.op_name for i in module.entry if i.opcode != "parameter" and i.op_name)
        self.program = next(named, "").partition("/")[0]
        """What whole op_names begin with: jit(main)."""

    def run(self, computation: Computation, inputs: Sequence[Any], above: str, known: Values | None = None) -> Any:
        """The value of the computation's root; `above`: its caller's op_name, `known`: instructions known already."""
        values: Values = dict(known or {})
        order = list(self.needed(computation, values))
        for n, i in enumerate(order):
            path = self.path(i, above)
            if i.op_name and i.opcode not in QUIET and not self.between(order, n, above):
                self.scopes.at(scope_of(path))
            values[i.name] = self.value(computation, i, inputs, values, path)
            self.check(i, values[i.name])
        return values[computation.root]

    def between(self, order: list[Instruction], n: int, above: str) -> bool:
        """True for a bare name inside one scope: that of an inlined call, whose path is lost. (A bare name elsewhere is
        that of an operation outside the scopes of its body.)"""
        if "/" in order[n].op_name:
            return False
        after = next((i for i in order[n + 1 :] if "/" in i.op_name and i.opcode not in QUIET), None)
        return after is not None and self.scopes.path == scope_of(self.path(after, above))

    def path(self, i: Instruction, above: str) -> str:
        """The whole op_name: names in a called computation may start at its call."""
        name = i.op_name
        if not above or name.startswith(f"{self.program}/"):
            return name
        return f"{above}/{name}" if name else above

    @staticmethod
    def needed(computation: Computation, known: Values) -> Iterator[Instruction]:
        """What the root needs, in the program's order."""
        wanted, todo = set[str](), [computation.root]
        while todo:
            name = todo.pop()
            if name not in wanted and name not in known:
                wanted.add(name)
                todo += computation.instructions[name].operands
        late: dict[str, Instruction] = {}  # a filled array, made before all else: it belongs to its first reader
        for i in computation:
            if i.name not in wanted:
                continue
            filled = i.opcode == "broadcast" and computation.operand(i, 0).opcode == "constant"
            if filled and i.name != computation.root:
                late[i.name] = i
                continue
            yield from (late.pop(name) for name in dict.fromkeys(i.operands) if name in late)
            yield i

    def value(self, computation: Computation, i: Instruction, inputs: Sequence[Any], values: Values, path: str) -> Any:
        given = [values[name] for name in i.operands]
        if i.opcode == "parameter":
            return inputs[int(i.arguments)]
        if i.opcode == "constant":
            return literal(i)
        if i.opcode == "tuple":
            return given
        if i.opcode == "get-tuple-element":
            return given[0][int(i.attribute("index") or 0)]
        called = (i.attribute("custom_call_target") or "").strip('"')
        if i.opcode in IDENTITY or called in ANNOTATIONS:
            return given[0] if len(given) == 1 else given
        if i.opcode == "call":
            return self.run(self.module.computations[i.called("to_apply")[0]], given, path)
        if i.opcode == "while":
            return self.loop(computation, i, given[0], path)
        if i.opcode == "conditional":
            return self.branch(i, given, path)
        if i.opcode not in LAX:
            raise TraceError(f"the artifact's {i.opcode} {called or i.name!r} cannot be read: profile its function")
        return LAX[i.opcode](i, given, lambda *xs: self.inner(i, xs))

    def inner(self, i: Instruction, given: Sequence[Any]) -> Any:
        """The combiner of a reduction, sort or scatter."""
        return Replay(self.module, self.scopes).run(self.module.computations[i.called("to_apply")[0]], given, "")

    @staticmethod
    def check(i: Instruction, value: Any) -> None:
        flat = value if isinstance(value, list) else [value]
        if i.is_tuple or len(flat) != len(i.results):
            return
        for found, shape in zip(flat, i.results, strict=True):
            if (tuple(found.shape), str(found.dtype)) != (shape.dims, dtype_of(shape)):
                raise TraceError(f"the artifact's {i.opcode} {i.name!r} was read as {found.dtype}{list(found.shape)}, "
                                 f"but is {shape}: report it with the artifact")  # fmt: skip

    def branch(self, i: Instruction, given: list[Any], path: str) -> Any:
        from jax import lax

        names = i.called("branch_computations") or (*i.called("false_computation"), *i.called("true_computation"))
        if not i.called("branch_computations"):
            given = [given[0].astype("int32"), given[2], given[1]]

        def arm(name: str) -> Callable[[Any], Any]:
            return lambda x: self.body(self.module.computations[name], x, path)

        takes = [arm(name) for name in names]
        return lax.switch(given[0], [lambda k=k: takes[k](given[1 + k]) for k in range(len(takes))])

    def body(self, computation: Computation, argument: Any, path: str, known: Values | None = None) -> Any:
        """A computation that jax traces apart: its scopes are seen from where it is called."""
        with Scopes(self.scopes.path) as scopes:
            return Replay(self.module, scopes).run(computation, [argument], path, known)

    def loop(self, computation: Computation, i: Instruction, start: list[Any], path: str) -> Any:
        from jax import lax

        body, test = (self.module.computations[i.called(key)[0]] for key in ("body", "condition"))
        trips = induction.trips(self.module, computation, i)
        rows = None if trips is None else Rows(body, trips)
        if rows is None or not rows.counter:
            step = f"{path}/body"
            return lax.while_loop(lambda c: self.body(test, c, path), lambda c: self.body(body, c, step), start)
        return scanned(self, rows, body, start, path)


class Rows:
    """A loop that steps through rows: which of its values are only read row by row, and which are only written so."""

    def __init__(self, body: Computation, trips: int) -> None:
        self.trips = trips
        root = body.instructions[body.root]
        self.count = len(root.operands) if root.opcode == "tuple" else 0
        self.element = {i.name: int(i.attribute("index") or 0) for i in body if i.opcode == "get-tuple-element"
                        and body.operand(i, 0).opcode == "parameter"}  # fmt: skip
        self.counter = {name for name, k in self.element.items() if self.steps(body, root, k)}
        self.derived = set(self.counter)
        fixed = {i.name for i in body if i.opcode == "constant"}
        for i in body:
            known = self.derived | fixed
            if i.opcode in ("add", "subtract", "select", "compare", "convert") and known.issuperset(i.operands):
                (self.derived if self.derived & set(i.operands) else fixed).add(i.name)
        self.read: dict[int, list[str]] = {}
        self.written: dict[int, str] = {}
        for name, k in self.element.items():
            users = [u for u in body.users.get(name, []) if u is not root]
            shape = body.instructions[name].results[0]
            if not users or not shape.dims or shape.dims[0] != trips:
                continue
            after = body.instructions[root.operands[k]]
            if after.name == name and all(self.is_row(body, u, name, "dynamic-slice") for u in users):
                self.read[k] = [u.name for u in users]
            elif users == [after] and self.is_row(body, after, name, "dynamic-update-slice"):
                self.written[k] = after.name
        self.carried = [k for k in range(self.count) if k not in self.read and k not in self.written]

    @staticmethod
    def steps(body: Computation, root: Instruction, k: int) -> bool:
        """True where element k grows by a constant of 1 in each trip."""
        after = body.instructions[root.operands[k]]
        if after.opcode != "add" or after.results[0].dims:
            return False
        sides = [body.operand(after, n) for n in (0, 1)]
        return any(s.opcode == "get-tuple-element" and int(s.attribute("index") or 0) == k for s in sides) and any(
            s.opcode == "constant" and s.arguments.strip() == "1" for s in sides
        )

    def is_row(self, body: Computation, i: Instruction, of: str, opcode: str) -> bool:
        """True for a slice or update of one whole row at the loop's counter."""
        if i.opcode != opcode or i.operands[0] != of or of in i.operands[1:]:
            return False
        first = 1 if opcode == "dynamic-slice" else 2
        part: Shape = i.results[0] if first == 1 else body.operand(i, 1).results[0]
        whole = body.instructions[of].results[0]
        return part.dims == (1, *whole.dims[1:]) and i.operands[first] in self.derived


def scanned(replay: Replay, rows: Rows, body: Computation, start: list[Any], path: str) -> list[Any]:
    """The loop as lax.scan: rows read are its inputs, rows written its stacked results."""
    from jax import lax

    root = body.instructions[body.root]
    updates = {k: body.instructions[name].operands[1] for k, name in rows.written.items()}

    def trip(state: list[Any], inputs: list[Any]) -> tuple[list[Any], list[Any]]:
        whole: list[Any] = [None] * rows.count
        for k, value in zip(rows.carried, state, strict=True):
            whole[k] = value
        pairs = zip(rows.read.values(), inputs, strict=True)
        known = {name: lax.expand_dims(row, [0]) for names, row in pairs for name in names}
        wanted = [root.operands[k] for k in rows.carried] + list(updates.values())
        part = Computation(body.name, {**body.instructions, "(out)": _tuple(wanted)}, "(out)", body.users)
        out = replay.body(part, whole, f"{path}/body", known)
        return out[: len(rows.carried)], [lax.squeeze(y, [0]) for y in out[len(rows.carried) :]]

    ends, stacked = lax.scan(trip, [start[k] for k in rows.carried], [start[k] for k in rows.read], length=rows.trips)
    after = dict(zip(rows.carried, ends, strict=True)) | dict(zip(updates, stacked, strict=True))
    return [start[k] if k in rows.read else after[k] for k in range(rows.count)]


def _tuple(names: list[str]) -> Instruction:
    return Instruction("(out)", "tuple", (), tuple(names), "", "", True)
