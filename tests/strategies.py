"""Random well-typed JAX programs, as source text: a failing one prints as a function to paste.

A `Writer` writes a program statement by statement (statements.py) and knows the type of every name; what jax refuses
(a sine of int4, a quotient of booleans) is not written. Loops are calls of `scan`, `fori`, `repeat` and `branch`,
names that `Program.fn` binds to jax's control flow or, unrolled, to plain Python: one text, two programs that do the
same work. Every loop's last carry is returned, so that neither has dead work which the other lacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

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


_MODULES = {"jax": jax, "jnp": jnp, "lax": lax, "np": np}
AS_WRITTEN = _MODULES | {
    "scan": lambda body, init, xs, length: lax.scan(body, init, xs, length),
    "fori": lambda n, body, init: lax.fori_loop(0, n, lambda i, c: body(c), init),
    "repeat": _repeat,
    "branch": lambda p, dear, x: lax.cond(p, dear, lambda x: x, x),
}
UNROLLED = _MODULES | {
    "scan": _python_scan,
    "fori": _python_repeat,
    "repeat": _python_repeat,
    "branch": lambda p, dear, x: dear(x),
}


@dataclass(frozen=True)
class Program:
    """Source of a function `program`, and the types of its arguments."""

    source: str
    types: tuple[tuple[str, tuple[int, ...]], ...]
    remarks: frozenset[str] = frozenset()
    """"empty": an array or a loop of nothing in it; "looped gradient": a loop that is differentiated;
    "carried row": a scan stacks what it also carries, one array in the loop and two unrolled."""

    @property
    def args(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return tuple(jax.ShapeDtypeStruct(shape, dtype) for dtype, shape in self.types)

    def fn(self, unrolled: bool = False) -> Callable[..., Any]:
        space = dict(UNROLLED if unrolled else AS_WRITTEN)
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


@dataclass
class Shared:
    draw: Any
    makers: tuple[Callable[[Writer], Any], ...]
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
    lines: list[str] = field(default_factory=list)
    kept: list[Name] = field(default_factory=list)
    own: list[Name] = field(default_factory=list)

    def one(self, options: Any) -> Any:
        return self.shared.draw(st.sampled_from(list(options)))

    def number(self, low: int, high: int) -> int:
        return int(self.shared.draw(st.integers(low, high)))

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
        return found or self.argument(self.one(dtypes), tuple(self.one(DIMENSIONS) for _ in range(self.one(ranks))))

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
        except (TypeError, ValueError, ZeroDivisionError, Warning):
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
        n = self.number(0, 3)
        if n == 0:
            self.shared.remarks.add("empty")
        return n

    def block(self, size: int, params: tuple[Name, ...], **changes: Any) -> Writer:
        """A function's body of up to `size` statements, all names in sight."""
        options = {"loops": self.loops, "differentiated": self.differentiated} | changes
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
