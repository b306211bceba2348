"""Random well-typed JAX programs, as source text: a failing one prints as a function to paste.

A `Writer` writes a program statement by statement (statements.py) and knows the type of every name; what jax refuses
(a sine of int4, a quotient of booleans) is not written. Loops are calls of `scan`, `fori`, `repeat` and `branch`,
names that `Program.fn` binds to jax's control flow or, unrolled, to plain Python: one text, two programs that do the
same work. Every loop's last carry is returned, so that neither has dead work which the other lacks.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

FLOATS = ("float32", "bfloat16", "float16")
INTEGERS = ("int32", "int8", "int4")
DTYPES = (*FLOATS, *INTEGERS, "bool", "complex64")
DIMENSIONS = (2, 3, 1, 4, 2, 3, 0)
LARGEST = 400
"""Elements of the largest array: the brute-force oracle walks them one by one."""


def _repeat(n: int, body: Callable[[Any], Any], init: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, body(c[1])), (0, init))[1]


def _python_scan(body: Callable[[Any, Any], Any], carry: Any, xs: Any, length: int) -> Any:
    row = jax.ShapeDtypeStruct(xs.shape[1:], xs.dtype)
    rows, ys = [], jax.eval_shape(body, carry, row)[1]
    for i in range(length):
        carry, y = body(carry, lax.index_in_dim(xs, i, keepdims=False))
        rows.append(y)
    if not rows:
        return carry, jax.tree.map(lambda y: jnp.zeros((0, *y.shape), y.dtype), ys)
    return carry, jax.tree.map(lambda *y: jnp.stack(y), *rows)


def _python_repeat(n: int, body: Callable[[Any], Any], carry: Any) -> Any:
    for _ in range(n):
        carry = body(carry)
    return carry


def _kernel(body: Callable[[Any], Any], x: Any, block: int) -> Any:
    def run(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = body(x_ref[...])

    rest = x.shape[1:]
    spec = pl.BlockSpec((block, *rest), lambda i: (i, *(0 for _ in rest)))
    return pl.pallas_call(run, jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(x.shape[0] // block,), in_specs=[spec],
                          out_specs=spec)(x)  # fmt: skip


def _kernel_product(x: Any, y: Any, block: int) -> Any:
    def run(x_ref: Any, y_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] @ y_ref[...]

    rows, whole = pl.BlockSpec((block, x.shape[1]), lambda i: (i, 0)), pl.BlockSpec(y.shape, lambda i: (0, 0))
    out = jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype)
    out_spec = pl.BlockSpec((block, y.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(run, out, grid=(x.shape[0] // block,), in_specs=[rows, whole], out_specs=out_spec)(x, y)


def _kernel_grid(x: Any, y: Any, rows: int, inner: int) -> Any:
    """rows, inner: of a block."""

    def run(x_ref: Any, y_ref: Any, out_ref: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            out_ref[...] = jnp.zeros_like(out_ref)

        out_ref[...] += x_ref[...] @ y_ref[...]

    specs = [
        pl.BlockSpec((rows, inner), lambda i, k: (i, k)),
        pl.BlockSpec((inner, y.shape[1]), lambda i, k: (k, 0)),
    ]
    out = jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype)
    grid = (x.shape[0] // rows, x.shape[1] // inner)
    out_spec = pl.BlockSpec((rows, y.shape[1]), lambda i, k: (i, 0))
    return pl.pallas_call(run, out, grid=grid, in_specs=specs, out_specs=out_spec)(x, y)


def _python_grid(x: Any, y: Any, rows: int, inner: int) -> Any:
    out = []
    for i in range(0, x.shape[0], rows):
        part = jnp.zeros((rows, y.shape[1]), x.dtype)
        for k in range(0, x.shape[1], inner):
            part += x[i : i + rows, k : k + inner] @ y[k : k + inner]
        out.append(part)
    return jnp.concatenate(out)


def _mapped(body: Callable[[Any], Any], x: Any) -> Any:
    """One device's part, on a mesh of two by three; the results of the devices along d side by side."""
    mesh = AbstractMesh((2, 3), ("d", "e"), axis_types=(AxisType.Auto,) * 2)
    return jax.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)(x)


def _custom_vjp(body: Callable[[Any], Any], x: Any) -> Any:
    fn = jax.custom_vjp(body)
    fn.defvjp(lambda x: (body(x), x), lambda x, g: (g * x,))
    return fn(x)


def _custom_jvp(body: Callable[[Any], Any], x: Any) -> Any:
    fn = jax.custom_jvp(body)
    fn.defjvp(lambda xs, ts: (body(*xs), ts[0] * xs[0]))
    return fn(x)


_MODULES = {"jax": jax, "jnp": jnp, "lax": lax, "np": np, "mapped": _mapped, "checkpoint_name": checkpoint_name}
AS_WRITTEN = _MODULES | {
    "kernel": _kernel,
    "kernel_product": _kernel_product,
    "kernel_grid": _kernel_grid,
    "custom_vjp": _custom_vjp,
    "custom_jvp": _custom_jvp,
    "scan": lambda body, init, xs, length: lax.scan(body, init, xs, length),
    "fori": lambda n, body, init: lax.fori_loop(0, n, lambda i, c: body(c), init),
    "repeat": _repeat,
    "branch": lambda p, dear, x: lax.cond(p, dear, lambda x: x, x),
    "switch": lambda at, arms, x: lax.switch(at, arms, x),
}
UNROLLED = _MODULES | {
    "kernel": lambda body, x, block: body(x),
    "kernel_product": lambda x, y, block: x @ y,
    "kernel_grid": _python_grid,
    "custom_vjp": lambda body, x: body(x),
    "custom_jvp": lambda body, x: body(x),
    "scan": _python_scan,
    "fori": _python_repeat,
    "repeat": _python_repeat,
    "branch": lambda p, dear, x: dear(x),
    "switch": lambda at, arms, x: lax.switch(at, arms, x),
}


@dataclass(frozen=True)
class Program:
    """Source of a function `program`, and the types of its arguments."""

    source: str
    types: tuple[tuple[str, tuple[int, ...]], ...]
    remarks: frozenset[str] = frozenset()
    """"empty": an array or a loop of nothing in it; "looped gradient": a loop that is differentiated; "custom
    gradient": a derivative of the author's own; "gradient": any at all; "branch": one of several arms; "folded":
    what MLIR drops while it is lowered, a choice between equals or an array that is overwritten whole;
    "carried row": a scan stacks what it also carries, one array in the loop and two unrolled."""

    @property
    def args(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return tuple(jax.ShapeDtypeStruct(shape, dtype) for dtype, shape in self.types)

    def fn(self, unrolled: bool = False, arm: int | None = None) -> Callable[..., Any]:
        """arm: what every switch takes, or its last where it has fewer."""
        space = dict(UNROLLED if unrolled else AS_WRITTEN)
        if arm is not None:
            space["switch"] = lambda at, arms, x: arms[min(arm, len(arms) - 1)](x)
        exec(self.source, space)
        return space["program"]  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        types = ", ".join(f"{d}[{','.join(map(str, s))}]" for d, s in self.types)
        return f"\n# {types}\n{self.source}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@dataclass(frozen=True)
class Name:
    text: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return self.text

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def struct(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.shape, self.dtype)


class Drawn:
    """What hypothesis chooses: it finds a small program where one fails."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw

    def choice(self, options: list[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def randint(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def shuffled(self, items: list[Any]) -> list[Any]:
        return list(self.draw(st.permutations(items)))


class Random(random.Random):
    """Chance alone: hypothesis repeats itself, and writes few programs that are long."""

    def shuffled(self, items: list[Any]) -> list[Any]:
        return self.sample(items, len(items))


@dataclass
class Shared:
    source: Drawn | Random
    makers: tuple[Callable[[Writer], Any], ...]
    empty: bool = True
    arguments: list[Name] = field(default_factory=list)
    count: int = 0
    remarks: set[str] = field(default_factory=set)


@dataclass
class Writer:
    """One function body being written. `kept` are names that it must return: last carries of loops inside it."""

    shared: Shared
    names: list[Name]
    depth: int
    loops: bool = True
    differentiated: bool = False
    batched: bool = False
    lines: list[str] = field(default_factory=list)
    kept: list[Name] = field(default_factory=list)
    own: list[Name] = field(default_factory=list)

    def one(self, options: Any) -> Any:
        return self.shared.source.choice(list(options))

    def number(self, low: int, high: int) -> int:
        return self.shared.source.randint(low, high)

    def shuffled(self, items: Any) -> list[Any]:
        return self.shared.source.shuffled(list(items))

    def dimension(self) -> int:
        return int(self.one(DIMENSIONS if self.shared.empty else [n for n in DIMENSIONS if n]))

    def fresh(self, prefix: str = "v") -> str:
        self.shared.count += 1
        return f"{prefix}{self.shared.count}"

    def argument(self, dtype: str, shape: tuple[int, ...]) -> Name:
        name = Name(f"a{len(self.shared.arguments)}", dtype, shape)
        self.shared.arguments.append(name)
        self.noticed(name)
        return name

    def pick(self, fits: Callable[[Name], bool] = lambda n: True, dtypes: tuple[str, ...] = DTYPES) -> Name | None:
        """A name in sight that fits, newest first; None where there is none."""
        found = [n for n in reversed(self.names) if n.dtype in dtypes and fits(n)]
        return self.one(found[:4]) if found else None

    def array(self, ranks: tuple[int, ...], dtypes: tuple[str, ...] = DTYPES) -> Name:
        """A name in sight of one of these ranks without an axis of 0, or a new argument."""
        found = self.pick(lambda n: len(n.shape) in ranks and n.size > 0, dtypes)
        return found or self.argument(self.one(dtypes), tuple(self.dimension() for _ in range(self.one(ranks))))

    def like(self, x: Name) -> Name:
        """A name of x's type: one in sight or a new argument."""
        found = [n for n in reversed(self.names) if (n.dtype, n.shape) == (x.dtype, x.shape)]
        found = found[:3]
        i = self.number(0, len(found))
        return found[i] if i < len(found) else self.argument(x.dtype, x.shape)

    def let(self, expression: str, *used: Name) -> Name | None:
        """Writes `v = expression` where jax accepts it and the result is not too large."""
        unique = {u.text: u for u in used}
        try:
            out = jax.eval_shape(
                eval(f"lambda {', '.join(unique)}: {expression}", dict(AS_WRITTEN)),
                *(u.struct for u in unique.values()),
            )
        except (TypeError, ValueError, ZeroDivisionError, NotImplementedError, Warning):
            return None
        if out.size > LARGEST or str(out.dtype) not in DTYPES:
            return None
        name = self.named(out)
        self.lines.append(f"{name} = {expression}")
        return name

    def named(self, out: Any) -> Name:
        name = Name(self.fresh(), str(out.dtype), tuple(out.shape))
        self.names.append(name)
        self.own.append(name)
        self.noticed(name)
        return name

    def noticed(self, name: Name) -> None:
        if name.size == 0:
            self.shared.remarks.add("empty")

    def trips(self) -> int:
        n = self.number(0 if self.shared.empty else 1, 3)
        if n == 0:
            self.shared.remarks.add("empty")
        return n

    def block(self, size: int, params: tuple[Name, ...], **changes: Any) -> Writer:
        """A function's body of up to `size` statements, all names in sight."""
        options = {"loops": self.loops, "differentiated": self.differentiated, "batched": self.batched} | changes
        inner = Writer(self.shared, [*self.names, *params], self.depth - 1, **options)
        inner.own += params
        inner.write(size)
        return inner

    def write(self, size: int) -> None:
        for _ in range(self.number(1, size)):
            self.one(self.shared.makers)(self)

    def define(self, params: str, body: Writer, result: str) -> str:
        name = self.fresh("f")
        self.lines += [f"def {name}({params}):", *(f"    {line}" for line in body.lines), f"    return {result}"]
        return name

    def stepped(self, carry: Name) -> Name:
        """What a loop's body hands on for `carry`: the newest name of its type, or a new one."""
        same = [n for n in reversed(self.own) if (n.dtype, n.shape) == (carry.dtype, carry.shape) and n != carry]
        how = ("bitwise_or", "bitwise_not") if carry.dtype == "bool" else ("add", "neg")
        if same:  # and it depends on the carry: a start that nobody reads is dead unrolled, and alive in a loop
            return self.let(f"lax.{how[0]}({same[0]}, {carry})", same[0], carry) or carry
        return self.let(f"lax.{how[1]}({carry})", carry) or carry
