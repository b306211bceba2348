"""A lowered HLO program -> an ordinary JAX function that does the same, instruction by instruction, scopes and all.

So that a program without its Python code (a jax.export artifact) is traced, priced and cut like any other. Work is as
lowered: a softmax is its exponentials and sums, a gelu its polynomial. A while loop that steps through rows is a scan
again. Every result's shape and dtype is held against the text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from costtrace.core import FORWARD
from costtrace.doors import of_phase
from costtrace.errors import TraceError
from costtrace.target import induction
from costtrace.target.hlo import Computation, Instruction, Module, bits
from costtrace.target.opname import joined, phase_of, scope_of
from costtrace.target.rows import Rows, inlined
from costtrace.target.translation import LAX, dtype_of, literal

Values = dict[str, Any]
IDENTITY = ("copy", "opt-barrier", "optimization-barrier", "bitcast")
QUIET = ("parameter", "tuple", "get-tuple-element", "constant")
"""What is no work, and opens no scope."""
ANNOTATIONS = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.FuncResultSharding")


def function(module: Module) -> Callable[..., Any]:
    """The program's entry on flat arrays -> a list of its results. Tracing it raises TraceError for an instruction that
    has no counterpart in jax.lax."""

    import jax

    wide = any(bits(shape.dtype) == 64 for c in module.computations.values() for i in c for shape in i.results)

    def call(*arrays: Any) -> Any:
        # jax.random counts in 64 bits inside, whatever the mode; every dtype is written out, so the mode widens nothing
        with jax.enable_x64(True) if wide else contextlib.nullcontext(), Scopes() as scopes:
            out = Replay(module, scopes).run(module.entry, list(arrays), "")
        return out if isinstance(out, list) else [out]

    return call


Mark = tuple[str, str]
"""("scope", its name) or ("phase", backward)."""


class Scopes(contextlib.AbstractContextManager["Scopes"]):
    """The named scopes open now, a phase around them. Neighbours of one path and phase are one instance of a scope."""

    def __init__(self, path: str = "", phase: str = FORWARD) -> None:
        self.base, self.base_phase = path.split("/") if path else [], phase
        self.open: list[tuple[Mark, contextlib.ExitStack]] = []

    def wanted(self, path: str, phase: str) -> list[Mark]:
        """What is to be open inside the base."""
        names = path.split("/") if path else []
        if names[: len(self.base)] == self.base:
            names = names[len(self.base) :]
        return [*([("phase", phase)] if phase != self.base_phase else []), *(("scope", name) for name in names)]

    def leave(self, path: str, phase: str) -> None:
        """Closes what does not lie around `path`."""
        wanted = self.wanted(path, phase)
        while self.open and [mark for mark, _ in self.open] != wanted[: len(self.open)]:
            self.open.pop()[1].close()

    def at(self, path: str, phase: str) -> None:
        """Closes and opens scopes until `path` is open."""
        import jax

        self.leave(path, phase)
        for kind, name in self.wanted(path, phase)[len(self.open) :]:
            held = contextlib.ExitStack()
            held.enter_context(jax.named_scope(name) if kind == "scope" else of_phase(name))
            self.open.append(((kind, name), held))

    @property
    def path(self) -> str:
        return "/".join([*self.base, *(name for (kind, name), _ in self.open if kind == "scope")])

    @property
    def phase(self) -> str:
        return next((name for (kind, name), _ in self.open if kind == "phase"), self.base_phase)

    def __exit__(self, *error: object) -> None:
        while self.open:
            self.open.pop()[1].close()


class Replay:
    """One walk through a module's computations."""

    def __init__(self, module: Module, scopes: Scopes) -> None:
        self.module, self.scopes = module, scopes

    def run(self, computation: Computation, inputs: Sequence[Any], above: str, known: Values | None = None) -> Any:
        """The value of the computation's root. above: the op_name of the call that its names are relative to. known:
        instructions known already."""
        values: Values = dict(known or {})
        for i, name in self.needed(computation, values):
            if name and i.opcode not in (*QUIET, "call"):
                path = joined(above, name)
                self.scopes.at(scope_of(path), phase_of(path))
            values[i.name] = self.value(computation, i, inputs, values, above)
            self.check(i, values[i.name])
        return values[computation.root]

    def call(self, i: Instruction, given: Sequence[Any], above: str) -> Any:
        """Scopes opened in a called computation are this call's alone: the next one, of the same name, has its own."""
        here = joined(above, i.op_name)
        out = self.run(self.module.computations[i.called("to_apply")[0]], given, here)
        self.scopes.leave(scope_of(f"{here}/."), phase_of(here))
        return out

    @staticmethod
    def needed(computation: Computation, known: Values) -> Iterator[tuple[Instruction, str]]:
        """What the root needs, in the program's order, and the op_name that says where each stands."""
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
            for name in dict.fromkeys(i.operands):
                if name in late:
                    made = late.pop(name)
                    yield made, made.op_name or i.op_name
            yield i, i.op_name

    def value(self, computation: Computation, i: Instruction, inputs: Sequence[Any], values: Values, above: str) -> Any:
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
            return self.call(i, given, above)
        if i.opcode == "while":
            return self.loop(computation, i, [words(x) for x in given[0]], above)
        if i.opcode == "conditional":
            return self.branch(i, given, above)
        if i.opcode not in LAX:
            raise TraceError(f"the artifact's {i.opcode} {called or i.name!r} cannot be read: profile its function")
        return LAX[i.opcode](i, [words(x) for x in given], lambda *xs: self.inner(i, xs))

    def inner(self, i: Instruction, given: Sequence[Any]) -> Any:
        """The combiner of a reduction, sort or scatter: scopes outside it stay as they are."""
        name = (i.called("to_apply") or i.called("scatter"))[0]
        with Scopes() as scopes:
            return Replay(self.module, scopes).run(self.module.computations[name], given, "")

    @staticmethod
    def check(i: Instruction, value: Any) -> None:
        flat = value if isinstance(value, list) else [value]
        if i.is_tuple or len(flat) != len(i.results):
            return
        for found, shape in zip(flat, i.results, strict=True):
            if not is_key(found) and (tuple(found.shape), str(found.dtype)) != (shape.dims, dtype_of(shape)):
                raise TraceError(f"the artifact's {i.opcode} {i.name!r} was read as {found.dtype}{list(found.shape)}, "
                                 f"but is {shape}: report it with the artifact")  # fmt: skip

    def branch(self, i: Instruction, given: list[Any], above: str) -> Any:
        import numpy as np
        from jax import lax

        names = i.called("branch_computations") or (*i.called("false_computation"), *i.called("true_computation"))
        if not i.called("branch_computations"):
            given = [given[0].astype("int32"), given[2], given[1]]

        if isinstance(given[0], np.ndarray):  # which of the platforms that the artifact is for
            taken = self.module.computations[names[min(max(int(given[0]), 0), len(names) - 1)]]
            return self.run(taken, [given[1 + names.index(taken.name)]], above)

        def arm(name: str) -> Callable[[Any], Any]:
            return lambda x: self.body(self.module.computations[name], x, above)

        takes = [arm(name) for name in names]
        return lax.switch(given[0], [lambda k=k: takes[k](given[1 + k]) for k in range(len(takes))])

    def body(self, computation: Computation, argument: Any, above: str, known: Values | None = None) -> Any:
        """A computation that jax traces apart: its scopes are seen from where it is called."""
        with Scopes(self.scopes.path, self.scopes.phase) as scopes:
            return Replay(self.module, scopes).run(computation, [argument], above, known)

    def loop(self, computation: Computation, i: Instruction, start: list[Any], above: str) -> Any:
        from jax import lax

        body, test = (self.module.computations[i.called(key)[0]] for key in ("body", "condition"))
        body = inlined(self.module, body)
        trips = induction.trips(self.module, computation, i)
        rows = None if trips is None else Rows(body, trips)
        if rows is None or not rows.counter:
            return lax.while_loop(lambda c: self.body(test, c, above), lambda c: self.body(body, c, above), start)
        return scanned(self, rows, body, start, above)


def is_key(x: Any) -> bool:
    import jax

    return hasattr(x, "dtype") and bool(jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key))


def words(x: Any) -> Any:
    """A typed random key as the integers that the lowered program takes; opened where it is read, in its scope."""
    import jax

    return jax.random.key_data(x) if is_key(x) else x


def scanned(replay: Replay, rows: Rows, body: Computation, start: list[Any], above: str) -> list[Any]:
    """The loop as lax.scan: rows read are its inputs, rows written its stacked results."""
    from jax import lax

    root = body.instructions[body.root]
    updates = {k: bare(body, body.operand(body.instructions[name], 1)) for k, name in rows.written.items()}

    def trip(state: list[Any], inputs: list[Any]) -> tuple[list[Any], list[Any]]:
        whole: list[Any] = [None] * rows.count
        for k, value in zip(rows.carried, state, strict=True):
            whole[k] = value
        known: Values = {}
        for names, row in zip(rows.read.values(), inputs, strict=True):
            for name in names:
                bare = [u for u in body.users[name] if u.opcode == "reshape" and u.results[0].dims == row.shape]
                known |= {u.name: row for u in bare}
                if len(bare) < len(body.users[name]):
                    known[name] = lax.expand_dims(row, [0])
        wanted = [root.operands[k] for k in rows.carried] + list(updates.values())
        part = Computation(body.name, {**body.instructions, "(out)": _tuple(wanted)}, "(out)", body.users)
        out = replay.body(part, whole, above, known)
        written = zip(out[len(rows.carried) :], (start[k].shape[1:] for k in updates), strict=True)
        return out[: len(rows.carried)], [y if y.shape == row else lax.squeeze(y, [0]) for y, row in written]

    ends, stacked = lax.scan(trip, [start[k] for k in rows.carried], [start[k] for k in rows.read], length=rows.trips)
    after = dict(zip(rows.carried, ends, strict=True)) | dict(zip(updates, stacked, strict=True))
    return [start[k] if k in rows.read else after[k] for k in range(rows.count)]


def bare(body: Computation, row: Instruction) -> str:
    """What is written as a row: the array before it got its dimension of 1, if that is how it was made."""
    before = body.operand(row, 0) if row.opcode == "reshape" else row
    return before.name if before.results and (1, *before.results[0].dims) == row.results[0].dims else row.name


def _tuple(names: list[str]) -> Instruction:
    return Instruction("(out)", "tuple", (), tuple(names), "", "", True)
