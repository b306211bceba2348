"""More statements of random programs: kernels, shardings, custom derivatives, while loops of jvp, einsums, small types.

Like those of statements.py, and in the same table KINDS; SPECIAL names them.
"""

from __future__ import annotations

from statements import KINDS, kind
from strategies import FLOATS, Writer

BEFORE = frozenset(KINDS)

ELEMENTWISE = (
    "neg", "exp", "tanh", "abs", "sign", "floor", "ceil", "rsqrt", "sqrt", "sin", "cos", "log", "log1p", "expm1",
    "square", "cbrt",
)  # fmt: skip
PAIRED = ("add", "mul", "sub", "max", "min", "div", "pow", "atan2", "rem")
"""The named subset: floating primitives whose price is XLA's, element by element."""
SMALL = ("int2", "uint2", "uint4", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")


@kind
def pointwise(w: Writer) -> None:
    """Elementwise work that XLA prices alike."""
    x = w.pick(dtypes=FLOATS)
    if not x:
        x = w.argument(w.one(FLOATS), (w.dimension(), w.dimension()))
        w.names.append(x)
    if w.number(0, 1):
        w.let(f"lax.{w.one(ELEMENTWISE)}({x})", x)
    else:
        y = w.like(x)
        w.let(f"lax.{w.one(PAIRED)}({x}, {y})", x, y)


@kind
def folded(w: Writer) -> None:
    """A reduction in the array's own dtype."""
    x = w.pick(lambda n: len(n.shape) > 0, FLOATS)
    if x:
        w.let(f"lax.reduce_{w.one(('sum', 'max', 'min', 'prod'))}({x}, ({w.number(0, len(x.shape) - 1)},))", x)


@kind
def small(w: Writer) -> None:
    """Elements of less than a byte, or of one: packed, unpacked, moved about."""
    x = w.pick(lambda n: n.dtype in (*FLOATS, "int32", "int8"))
    if x:
        dtype = w.one([d for d in SMALL if d.startswith("float") == x.dtype.endswith(("32", "16")) or "int" in d])
        there = w.one(("reshape(-1)", "T", "ravel()"))
        w.let(f"{x}.astype({dtype!r}).{there}.astype({x.dtype!r})", x)


@kind
def einsum(w: Writer) -> None:
    x = w.array((2, 3))
    letters = "abc"[: len(x.shape)]
    sizes = dict(zip(letters, x.shape, strict=True))
    other = "".join(w.shuffled([*letters[: w.number(1, len(letters))], "d"]))
    sizes["d"] = w.dimension()
    y = w.argument(x.dtype, tuple(sizes[n] for n in other))
    out = "".join(w.shuffled([n for n in dict.fromkeys(letters + other) if w.number(0, 2)]))
    w.let(f"jnp.einsum('{letters},{other}->{out}', {x}, {y})", x, y)


@kind
def along(w: Writer) -> None:
    """Gathers and scatters of single elements, and what is combined where they meet."""
    x = w.pick(lambda n: len(n.shape) > 0 and n.size > 0)
    if not x:
        return
    axis = w.number(0, len(x.shape) - 1)
    shape = tuple(w.number(1, 3) if d == axis else n for d, n in enumerate(x.shape))
    at = w.argument("int32", shape)
    if w.number(0, 1):
        w.let(f"jnp.take_along_axis({x}, {at}, {axis})", x, at)
    else:
        y = w.argument(x.dtype, shape)
        how = w.one(("set", "add", "multiply", "min", "max"))
        before = ":, " * axis
        w.let(f"{x}.at[{before}{at}.ravel()[:1]].{how}({y}[{before}:1])", x, at, y)


CHAIN = ("lax.tanh({})", "lax.neg({})", "{0} * {0}", "lax.max({0}, lax.neg({0}))", "lax.exp({})", "{} + {}",
         "fori(3, lambda c: lax.sin(c), {})")  # fmt: skip


def chain(w: Writer) -> str:
    text = "x"
    for _ in range(w.number(1, 3)):
        step = w.one(CHAIN)
        text = step.format(text, text) if len(text) < 60 else text
    return f"lambda x: {text}"


@kind
def kernel(w: Writer) -> None:
    """A Pallas kernel over blocks of the first axis: elementwise, or rows of a product."""
    x = w.array((2, 3), ("float32", "bfloat16"))
    if x.size == 0 or w.differentiated:
        return
    block = w.one([b for b in (1, 2, 3, 4) if x.shape[0] % b == 0])
    if len(x.shape) == 2 and w.number(0, 1):
        y = w.argument(x.dtype, (x.shape[1], w.number(1, 4)))
        w.let(f"kernel_product({x}, {y}, {block})", x, y)
    else:
        w.let(f"kernel({chain(w)}, {x}, {block})", x)


@kind
def custom(w: Writer) -> None:
    """A function with a derivative of its own."""
    x = w.pick(dtypes=FLOATS)
    if x:
        w.let(f"{w.one(('custom_vjp', 'custom_jvp'))}({chain(w)}, {x})", x)
        if w.differentiated:
            w.shared.remarks.add("custom gradient")


@kind
def whiled(w: Writer) -> None:
    """Tangents pushed through a while loop, which has no reverse mode."""
    x = w.pick(dtypes=FLOATS)
    if x and not w.differentiated:
        t = w.like(x)
        n = w.trips()
        w.let(f"jax.jvp(lambda y: repeat({n}, {chain(w)}, y), ({x},), ({t},))[1]", x, t)
        w.shared.remarks.add("looped gradient")


COLLECTIVES = (
    "lax.psum({}, 'd')", "lax.pmax({}, 'd')", "lax.psum_scatter({}, 'd', tiled=True)",
    "lax.all_gather({}, 'd', tiled=True)", "lax.ppermute({}, 'd', [(0, 1), (1, 0)])",
    "lax.all_to_all({}, 'd', 0, 0, tiled=True)", "lax.tanh({})", "lax.psum({}, ('d', 'e'))",
)  # fmt: skip


@kind
def mapped(w: Writer) -> None:
    """One device's part of an array on a mesh of d=2 by e=3, with collectives, in a loop or not."""
    if w.differentiated:
        return
    x = w.pick(lambda n: len(n.shape) > 0 and n.size > 0 and n.shape[0] % 12 == 0, ("float32", "bfloat16", "int32"))
    x = x or w.argument(w.one(("float32", "bfloat16", "int32")), (w.one((12, 24)), w.number(1, 3)))
    text = "x"
    for _ in range(w.number(1, 3)):
        text = w.one(COLLECTIVES).format(text)
    if w.number(0, 3) == 0:
        text = f"fori(3, lambda x: lax.ppermute(x, 'd', [(0, 1), (1, 0)]), {text})"
    w.let(f"mapped(lambda x: {text}, {x})", x)


SPECIAL = tuple(k for k in KINDS if k not in BEFORE)
"""The kinds of this file."""
