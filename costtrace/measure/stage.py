"""One stage, run: its compile, its weights' way to the device, its steady seconds, the memory it took, its loop against
separate steps, and each of its scopes compiled apart. Knows programs and arrays; models and reports lie elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import jax

from costtrace import units
from costtrace.errors import TraceError
from costtrace.measure import cut, random
from costtrace.measure.clock import Effort, Timing, steady

STEPS = 8
"""The most steps of a loop that is timed."""
DEVICE, ANALYSIS = "device", "compiled"
LONG_S = 60.0
"""A stage that takes longer says so after its first call."""
Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Memory:
    """`by`: "device" is the most that the device had in use since the process began, "compiled" what the compiled
    program says that it holds (arguments, results and temporary arrays)."""

    nbytes: int
    by: str


@dataclass(frozen=True, slots=True)
class Loop:
    """`steps` runs of a stage, each on what the last one made: as one scan, dispatched one after the other, and with
    the host waiting for each. `why`: what kept the loop from being made."""

    steps: int
    scanned: Timing | None = None
    separate: Timing | None = None
    waited: Timing | None = None
    why: str = ""

    @property
    def dispatch_s(self) -> float | None:
        """Seconds a step that a scan saves: below 0 where the scan is the slower one."""
        if self.scanned is None or self.separate is None:
            return None
        return (self.separate.median_s - self.scanned.median_s) / self.steps


@dataclass(frozen=True, slots=True)
class Part:
    """A scope compiled apart. `measured_s`: of all its runs in one call of the stage."""

    scope: str
    times: int
    compile_s: float
    timings: tuple[tuple[int, Timing], ...]
    """(how often in one call, the timing of one run) of each different program that the scope is"""
    finite: bool

    @property
    def measured_s(self) -> float:
        return sum(times * timing.median_s for times, timing in self.timings)

    @property
    def spread(self) -> float:
        return max(timing.spread for _, timing in self.timings)


@dataclass(frozen=True, slots=True)
class Measured:
    """One stage, one call. `hlo`: the compiled program's text, which a profiler's trace is read with."""

    name: str
    compile_s: float
    weights: random.Staged
    timing: Timing
    memory: Memory
    finite: bool
    loop: Loop | None
    parts: tuple[Part, ...]
    left_out: tuple[str, ...]
    hlo: str


class Program:
    """A stage's function, its arguments made random and staged on the device.

    donated: positions among `args` that the program may overwrite: each is then replaced by the result of its shape.
    weights: the first of `args` are weights.
    """

    def __init__(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], donated: Collection[int] = (),
        weights: bool = True,
    ) -> None:  # fmt: skip
        self.name, self.fn, self.specs, self.donated = name, fn, args, tuple(donated)
        try:
            self.closed = jax.make_jaxpr(fn)(*args)
            self.source = random.Source(random.rows(self.closed))
            start = time.perf_counter()
            jitted = jax.jit(_called(fn, name), donate_argnums=self.donated)
            self.compiled = jitted.lower(*args).compile()
            self.compile_s = time.perf_counter() - start
        except Exception as e:  # the user's function and the compiler may raise anything
            raise TraceError(f"{name} cannot be compiled for {jax.default_backend()}: {_line(e)}") from e
        first = int(weights)
        self.weights = random.staged(tuple(self.source.tree(arg, weight=True) for arg in args[:first]))
        rest = random.staged(tuple(self.source.tree(arg) for arg in args[first:]))
        self.args: list[Any] = [*self.weights.arrays, *rest.arrays]

    def run(self) -> Any:
        """One call, waited for."""
        return jax.block_until_ready(self.dispatched())

    def dispatched(self) -> Any:
        """One call, which may not be done yet."""
        out = self.compiled(*self.args)
        if self.donated:
            given = list(out) if isinstance(out, tuple | list) else [out]
            for position in self.donated:
                at = next(k for k, some in enumerate(given) if some is not None and _alike(some, self.specs[position]))
                self.args[position], given[at] = given[at], None
        return out

    @property
    def text(self) -> str:
        """The compiled program as HLO text."""
        return self.compiled.as_text() or ""

    @property
    def memory(self) -> Memory:
        stats = jax.devices()[0].memory_stats() or {}
        if "peak_bytes_in_use" in stats:
            return Memory(int(stats["peak_bytes_in_use"]), DEVICE)
        said: Any = self.compiled.memory_analysis()
        parts = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
        return Memory(sum(int(getattr(said, part)) for part in parts) - int(said.alias_size_in_bytes), ANALYSIS)


def measured(
    program: Program, calls: int, scopes: Collection[str], effort: Effort, told: Told,
    noted: Told = lambda text: None,
) -> Measured:  # fmt: skip
    """The stage's figures. scopes: which parts are compiled apart. noted: told once, after the first call, how long a
    stage will take where that is minutes. Raises TraceError where the device fails."""
    steps = min(calls, STEPS) if calls > 1 else 0

    def first(call_s: float) -> None:
        if text := estimate(program.name, call_s, steps, scopes, effort):
            noted(text)

    try:
        told(f"{program.name}: {program.compile_s:.1f} s of compile; timing the whole")
        timing = steady(program.run, effort, first=first)
        finite = random.finite(program.run())
        if steps:
            told(f"{program.name}: timing {steps} steps as a loop and apart")
        loop = _loop(program, steps, effort) if steps else None
        memory = program.memory
        parts = _parts(program, scopes, effort, told)
    except jax.errors.JaxRuntimeError as e:
        raise TraceError(f"{program.name} failed on the device: {_line(e)}: a smaller size may fit") from e
    left_out = tuple(scope for scope in scopes if scope not in {part.scope for part in parts})
    return Measured(program.name, program.compile_s, program.weights, timing, memory, finite, loop, parts, left_out,
                    program.text)  # fmt: skip


def estimate(name: str, call_s: float, steps: int, scopes: Collection[str], effort: Effort) -> str:
    """One line where a stage will take over LONG_S, else nothing: how long, and what makes it shorter.

    A timing is two calls and then three or the budget, whichever is longer; a look at its results is one more. Scopes
    of one depth take a call together; steps are timed as a loop and twice apart.
    """

    def timing_s(run_s: float, programs: int = 1) -> float:
        return 3 * run_s + max(3 * run_s, programs * effort.budget_s)

    whole_s = timing_s(call_s) + 3 * timing_s(steps * call_s) * bool(steps)
    depths = {scope.count("/") for scope in scopes}
    parts_s = sum(timing_s(call_s, sum(s.count("/") == depth for s in scopes)) for depth in depths)
    if whole_s + parts_s < LONG_S:
        return ""
    parts = "1 part" if len(scopes) == 1 else f"{len(scopes)} parts"
    less = f"--depth 0 leaves out its {parts} (then {_minutes(whole_s)}), " if scopes else ""
    longest = f"up to {_minutes(whole_s + parts_s)} and compiles for this stage"
    return f"{name}: a call takes {units.text(call_s, 's', 3)}: {longest}: {less}a smaller size takes less"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _loop(program: Program, steps: int, effort: Effort) -> Loop:
    """What a step makes is the next one's first argument of that shape."""
    out = jax.eval_shape(program.fn, *program.specs)
    position = next((k for k, arg in enumerate(program.specs) if k and _alike(out, arg)), None)
    if position is None or program.donated:
        return Loop(
            steps, why="a step's result has no argument's shape" if position is None else "arguments are donated"
        )

    def after(args: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
        return (*args[:position], x, *args[position + 1 :])

    def scan(*args: Any) -> Any:
        def step(x: Any, _: None) -> tuple[Any, None]:
            return program.fn(*after(args, x)), None

        return jax.lax.scan(step, args[position], None, length=steps)[0]

    whole = jax.jit(scan).lower(*program.specs).compile()
    args = tuple(program.args)

    def separate(wait: bool) -> Callable[[], Any]:
        def run() -> Any:
            x = args[position]
            for _ in range(steps):
                x = program.compiled(*after(args, x))
                if wait:
                    jax.block_until_ready(x)
            return jax.block_until_ready(x)

        return run

    return Loop(steps, steady(lambda: jax.block_until_ready(whole(*args)), effort), steady(separate(False), effort),
                steady(separate(True), effort))  # fmt: skip


def _parts(program: Program, scopes: Collection[str], effort: Effort, told: Told) -> tuple[Part, ...]:
    known: dict[str, tuple[float, Timing, bool]] = {}
    out = []
    found = cut.pieces(program.closed, scopes)
    for number, (scope, pieces) in enumerate(found.items(), 1):
        told(f"{program.name}: part {number} of {len(found)}, {scope}")
        for piece in pieces:
            if piece.key not in known:
                known[piece.key] = _piece(piece, program.source, effort)
        each = [(piece.times, *known[piece.key]) for piece in pieces]
        timings = tuple((times, timing) for times, _, timing, _ in each)
        compile_s = sum(seconds for _, seconds, _, _ in each)
        out.append(Part(scope, sum(times for times, _ in timings), compile_s, timings, all(ok for *_, ok in each)))
    return tuple(out)


def _piece(piece: cut.Piece, source: random.Source, effort: Effort) -> tuple[float, Timing, bool]:
    """(compile seconds, timing, outputs finite) of one piece on random arrays."""
    args = random.staged(tuple(source.array(spec, len(spec.shape) > 1) for spec in piece.args)).arrays
    start = time.perf_counter()
    compiled = jax.jit(piece.fn).lower(*piece.args).compile()
    compile_s = time.perf_counter() - start
    timing = steady(lambda: jax.block_until_ready(compiled(*args)), effort)
    return compile_s, timing, random.finite(compiled(*args))


def _alike(some: Any, specs: Any) -> bool:
    """True where two trees have the same arrays by shape and dtype."""
    one: Any = jax.tree.structure(some)
    if one != jax.tree.structure(specs):
        return False
    pairs = zip(jax.tree.leaves(some), jax.tree.leaves(specs), strict=True)
    return all(hasattr(b, "shape") and (a.shape, a.dtype) == (b.shape, b.dtype) for a, b in pairs)


def _called(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`fn` under the name that a profiler's trace shows."""

    def named(*args: Any) -> Any:
        return fn(*args)

    named.__name__ = named.__qualname__ = name
    return named


def _line(e: Exception) -> str:
    text = next((line.strip() for line in str(e).splitlines() if line.strip()), "no message").rstrip(".")
    return f"{type(e).__name__}: {text}"
