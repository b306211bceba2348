"""Statements of random programs: each maker writes one statement, or nothing where no name in sight fits.

`programs` draws makers from KINDS; what jax refuses for a dtype or a shape is simply not written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
from hypothesis import strategies as st
from strategies import DTYPES, FLOATS, Drawn, Name, Program, Random, Shared, Writer

KINDS: dict[str, Callable[[Writer], Any]] = {}
"""Statement makers by name."""


def kind(maker: Callable[[Writer], Any]) -> Callable[[Writer], Any]:
    KINDS[maker.__name__] = maker
    return maker


UNARY = ("neg", "exp", "tanh", "abs", "sign", "floor", "logistic", "rsqrt", "sin", "erf", "square", "cos", "log1p")
BINARY = ("add", "mul", "sub", "max", "min", "div", "pow", "atan2", "rem", "bitwise_and")
ROWS = ("sum", "max", "prod", "min", "argmax", "mean")
NETWORK = ("relu", "gelu", "softmax", "silu", "logsumexp")


@kind
def unary(w: Writer) -> None:
    x = w.pick()
    if x:
        w.let(f"lax.{w.one(UNARY)}({x})", x)


@kind
def binary(w: Writer) -> None:
    x = w.pick()
    if x:
        y = w.like(x)
        w.let(f"lax.{w.one(BINARY)}({x}, {y})", x, y)


@kind
def literal(w: Writer) -> None:
    x = w.pick()
    if x:
        w.let(f"{x} {w.one('*+-/')} 2", x)


@kind
def select(w: Writer) -> None:
    x = w.pick()
    if x:
        y = w.like(x)
        if w.let(f"lax.select(lax.{w.one(('ne', 'ge'))}({x}, {y}), {x}, {y})", x, y) and x == y:
            w.shared.remarks.add("folded")


@kind
def convert(w: Writer) -> None:
    x = w.pick()
    to = w.one(DTYPES)
    if x and x.dtype not in (to, "complex64"):
        w.let(f"{x}.astype({to!r})", x)


@kind
def network(w: Writer) -> None:
    x = w.pick(lambda n: len(n.shape) > 0, FLOATS)
    if x:
        w.let(f"jax.nn.{w.one(NETWORK)}({x})", x)


@kind
def broadcast(w: Writer) -> None:
    x = w.pick(lambda n: len(n.shape) < 3)
    if x:
        w.let(f"lax.broadcast({x}, ({w.dimension()},))", x)


@kind
def reshape(w: Writer) -> None:
    x = w.pick()
    if x:
        w.let(f"{x}.reshape({w.one(('-1', '(-1, 1)', '(1, -1)', '(2, -1)'))})", x)


@kind
def transpose(w: Writer) -> None:
    x = w.pick(lambda n: len(n.shape) >= 2)
    if x:
        w.let(f"lax.transpose({x}, {tuple(w.shuffled(range(len(x.shape))))})", x)


def _box(w: Writer, x: Name) -> list[tuple[int, int]]:
    starts = [w.number(0, max(n - 1, 0)) for n in x.shape]
    return [(s, w.number(s, n)) for s, n in zip(starts, x.shape, strict=True)]


@kind
def slicing(w: Writer) -> None:
    x = w.pick(lambda n: len(n.shape) > 0)
    if x:
        box = _box(w, x)
        strides = tuple(w.number(1, 2) for _ in box)
        w.let(f"lax.slice({x}, {tuple(a for a, _ in box)}, {tuple(b for _, b in box)}, {strides})", x)


@kind
def update(w: Writer) -> None:
    x = w.pick(lambda n: len(n.shape) > 0)
    if x:
        box = _box(w, x)
        part = w.argument(x.dtype, tuple(b - a for a, b in box))
        if (
            w.let(f"lax.dynamic_update_slice({x}, {part}, {tuple(a for a, _ in box)})", x, part)
            and part.shape == x.shape
        ):
            w.shared.remarks.add("folded")


@kind
def indexed(w: Writer) -> None:
    """Rows at places that depend on data: read, sliced, or written."""
    x = w.pick(lambda n: len(n.shape) > 0 and n.shape[0] > 0)
    if not x:
        return
    how = w.one(("take", "slice", "set", "add"))
    if how == "slice":
        at = w.argument("int32", ())
        w.let(f"lax.dynamic_slice_in_dim({x}, {at}, {w.number(1, x.shape[0])})", x, at)
        return
    rows = w.argument("int32", (w.number(1, 3),))
    if how == "take":
        w.let(f"{x}[{rows}]", x, rows)
    else:
        y = w.argument(x.dtype, rows.shape + x.shape[1:])
        w.let(f"{x}.at[{rows}].{how}({y})", x, rows, y)


@kind
def concatenate(w: Writer) -> None:
    x = w.pick(lambda n: len(n.shape) > 0)
    if x:
        y = w.like(x)
        w.let(f"lax.concatenate([{x}, {y}], {w.number(0, len(x.shape) - 1)})", x, y)


@kind
def pad(w: Writer) -> None:
    x = w.pick(lambda n: len(n.shape) > 0)
    if x:
        edges = tuple((w.number(-1, 2), w.number(0, 1), w.number(0, 1)) for _ in x.shape)
        w.let(f"lax.pad({x}, np.zeros((), {x}.dtype), {edges})", x)


@kind
def reverse(w: Writer) -> None:
    x = w.pick(lambda n: len(n.shape) > 0)
    if x:
        w.let(f"lax.rev({x}, ({w.number(0, len(x.shape) - 1)},))", x)


@kind
def iota(w: Writer) -> None:
    w.let(f"lax.iota({w.one(('int32', 'float32'))!r}, {w.dimension()})")


@kind
def reduce(w: Writer) -> None:
    x = w.pick(lambda n: len(n.shape) > 0)
    if x:
        rows = [r for r in ROWS if r != "argmax" or x.dtype != "complex64"]  # which XLA cannot be given
        w.let(f"jnp.{w.one(rows)}({x}, {w.number(0, len(x.shape) - 1)})", x)


@kind
def cumulative(w: Writer) -> None:
    x = w.pick(lambda n: len(n.shape) > 0)
    if x:
        w.let(f"lax.{w.one(('cumsum', 'cummax', 'sort'))}({x}, {w.number(0, len(x.shape) - 1)})", x)


@kind
def dot(w: Writer) -> None:
    x = w.array((2, 3, 1))
    k, batch = x.shape[-1], x.shape[0] if len(x.shape) > 2 else None
    form = w.one(("rows", "batched", "self", "columns", "wide"))
    if form == "self":
        dims = tuple(range(len(x.shape)))
        w.let(f"lax.dot_general({x}, {x}, (({dims[-1:]}, {dims[-1:]}), ((), ())))", x)
    elif form == "batched" and batch is not None:
        y = w.argument(x.dtype, (batch, k, w.dimension()))
        w.let(f"lax.dot_general({x}, {y}, ((({len(x.shape) - 1},), (1,)), ((0,), (0,))))", x, y)
    elif form == "columns":
        y = w.argument(x.dtype, (w.dimension(), x.shape[0]))
        w.let(f"lax.dot_general({x}, {y}, (((0,), (1,)), ((), ())))", x, y)
    else:
        y = w.argument(x.dtype, (k, w.dimension()))
        wide = {"bfloat16": "float32", "float16": "float32", "int8": "int32"}.get(x.dtype, x.dtype)
        extra = f", preferred_element_type={wide!r}" if form == "wide" else ""
        w.let(f"jnp.matmul({x}, {y}{extra})", x, y)


@kind
def convolution(w: Writer) -> None:
    x = w.array((3,), (*FLOATS, "int8"))
    if x.size == 0:
        return
    groups = x.shape[2] if w.number(0, 2) == 2 else 1
    taps = w.number(1, 3)
    kernel = w.argument(x.dtype, (taps, x.shape[2] // groups, groups * w.number(1, 2)))
    edges = (w.number(-1, 2), w.number(0, 2))
    extra = f"lhs_dilation=({w.number(1, 2)},), rhs_dilation=({w.number(1, 2)},), feature_group_count={groups}"
    dims = "('NWC', 'WIO', 'NWC')"
    w.let(
        f"lax.conv_general_dilated({x}, {kernel}, ({w.number(1, 2)},), ({edges},), dimension_numbers={dims}, {extra})",
        x, kernel,
    )  # fmt: skip


def _tuple(names: list[Name]) -> str:
    return "(" + "".join(f"{n}, " for n in names) + ")"


@kind
def scope(w: Writer) -> None:
    if w.depth > 0:
        inner = w.block(3, ())
        w.lines += [f"with jax.named_scope('{w.fresh('s')}'):", *(f"    {line}" for line in inner.lines or ["pass"])]
        w.names = inner.names
        w.own += inner.own
        w.kept += inner.kept


@kind
def function(w: Writer) -> None:
    """jit, remat, vmap over the first axis, of one argument."""
    how = w.one(("jit", "checkpoint", "vmap"))
    x = w.pick(lambda n: how != "vmap" or len(n.shape) > 0)
    if not x or w.depth <= 0:
        return
    param = Name(w.fresh("x"), x.dtype, x.shape[1:] if how == "vmap" else x.shape)
    body = w.block(4, (param,), **({"batched": True} if how == "vmap" else {}))
    results = [body.own[-1], *body.kept]
    called = w.define(param.text, body, _tuple(results))
    lead = x.shape[:1] if how == "vmap" else ()
    outs = [w.named(jax.ShapeDtypeStruct(lead + r.shape, r.dtype)) for r in results]
    w.lines.append(f"{_tuple(outs)} = jax.{how}({called})({x})")
    w.kept += outs[1:]


@kind
def gradient(w: Writer) -> None:
    x = w.pick(dtypes=FLOATS)
    if not x or w.depth <= 0:
        return
    param = Name(w.fresh("x"), x.dtype, x.shape)
    body = w.block(4, (param,), differentiated=True)
    result = next((n for n in reversed(body.own) if n.dtype in FLOATS), param)
    called = w.define(param.text, body, f"jnp.sum({result}.astype('float32'))")
    w.shared.remarks.add("gradient")
    if w.one(("grad", "jvp")) == "grad":
        out = w.named(x.struct)
        w.lines.append(f"{out} = jax.grad({called})({x})")
    else:
        t = w.like(x)
        out = w.named(jax.ShapeDtypeStruct((), "float32"))
        w.lines.append(f"{out} = jax.jvp({called}, ({x},), ({t},))[1]")


@kind
def scan(w: Writer) -> None:
    c = w.pick()
    if not c or w.depth <= 0 or not w.loops:
        return
    length = w.trips()
    xs = w.pick(lambda n: n.shape[:1] == (length,)) or w.argument(w.one(DTYPES), (length, w.dimension()))
    carry, x = Name(w.fresh("c"), c.dtype, c.shape), Name(w.fresh("x"), xs.dtype, xs.shape[1:])
    body = w.block(4, (x, carry))
    end = body.stepped(carry)
    rows = [body.own[-1], *body.kept]
    if end in rows:
        w.shared.remarks.add("carried row")
    called = w.define(f"{carry}, {x}", body, f"{end}, {_tuple(rows)}")
    last = w.named(c.struct)
    ys = [w.named(jax.ShapeDtypeStruct((length, *r.shape), r.dtype)) for r in rows]
    w.lines.append(f"{last}, {_tuple(ys)} = scan({called}, {c}, {xs}, {length})")
    w.kept += [last, *ys[1:]]
    if w.differentiated:
        w.shared.remarks.add("looped gradient")


@kind
def loop(w: Writer) -> None:
    """A fori or while loop of known trips, or a branch whose other arm does nothing."""
    how = w.one(("fori", "repeat", "branch"))
    c = w.pick()
    if not c or w.depth <= 0 or not w.loops or (how == "repeat" and w.differentiated):
        return
    carry = Name(w.fresh("c"), c.dtype, c.shape)
    body = w.block(3, (carry,), loops=False)
    end = body.stepped(carry)
    called = w.define(carry.text, body, end.text)
    last = w.named(c.struct)
    if how == "branch":
        w.lines.append(f"{last} = branch({w.argument('bool', ())}, {called}, {c})")
        return
    w.lines.append(f"{last} = {how}({w.trips()}, {called}, {c})")
    w.kept.append(last)
    if w.differentiated:
        w.shared.remarks.add("looped gradient")


PRODUCTS = ("dot", "convolution") * 4
BLOCKS = ("scope", "function", "gradient", "scan", "loop")
_NAME = re.compile(r"\b[av]\d+\b")


def programs(
    kinds: tuple[str, ...] = (*KINDS, *PRODUCTS, *BLOCKS, *BLOCKS),
    size: int = 8,
    depth: int = 2,
    dtypes: tuple[str, ...] = DTYPES,
    empty: bool = True,
) -> st.SearchStrategy[Program]:
    """Programs of up to `size` statements at each level, blocks nested up to `depth` deep. empty: may they hold
    arrays and loops of nothing?"""

    @st.composite
    def build(draw: Any) -> Program:
        return written(Drawn(draw), kinds, size, depth, dtypes, empty)

    return build()


def written(
    source: Drawn | Random, kinds: tuple[str, ...], size: int, depth: int, dtypes: tuple[str, ...], empty: bool
) -> Program:
    """One program, as the source chooses."""
    writer = Writer(Shared(source, tuple(KINDS[k] for k in kinds), empty), [], depth)
    dtype = writer.one(dtypes)
    rank = writer.one((2, 3, 1, 0))
    writer.names.append(writer.argument(dtype, tuple(writer.dimension() for _ in range(rank))))
    writer.write(size)
    uses = Counter(_NAME.findall("\n".join(writer.lines)))
    unused = [n for n in writer.own if uses[n.text] == 1 and n not in writer.kept]
    results = [*writer.kept, *unused[-3:]] or [writer.names[0]]
    shared = writer.shared
    head = f"def program({', '.join(map(str, shared.arguments))}):"
    body = [*writer.lines, f"return {', '.join(map(str, results))}"]
    text = "\n".join([head, *(f"    {line}" for line in body)])
    return Program(text, tuple((a.dtype, a.shape) for a in shared.arguments), frozenset(shared.remarks))
