"""The rest of the rules in random programs: rare functions, windows, sorting, linear algebra, FFT, random numbers,
ragged products, many-armed branches, kernels with a grid of two axes.

Like statements.py, and in the same table KINDS; WIDE names them.
"""

from __future__ import annotations

import statements_special
from statements import KINDS, kind
from statements_special import chain
from strategies import FLOATS, Name, Writer

BEFORE = frozenset(KINDS)
INTEGERS = ("int32", "int8")

SMOOTH = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan", "digamma", "lgamma", "erf_inv",
          "erfc", "exp2", "sqrt", "cbrt", "bessel_i0e", "bessel_i1e", "expm1", "log", "reciprocal")  # fmt: skip
STEPPED = ("round", "is_finite", "ceil")
PAIRED = ("nextafter", "igamma", "igammac", "zeta", "polygamma", "random_gamma_grad")
BITS = ("population_count", "clz", "bitwise_not")
SHIFTED = ("shift_left", "shift_right_logical", "shift_right_arithmetic", "bitwise_xor", "bitwise_or", "max")


def solid(n: Name) -> bool:
    return len(n.shape) > 0 and n.size > 0


@kind
def rare(w: Writer) -> None:
    x = w.pick(dtypes=("float32",))
    if not x:
        return
    how = w.one(("smooth", "smooth", "stepped", "paired", "clamp", "precision", "complex", "power"))
    y = w.like(x)
    if how == "smooth":
        w.let(f"lax.{w.one(SMOOTH)}({x})", x)
    elif how == "clamp":
        w.let(f"lax.clamp({x}, {y}, {x})", x, y)
    elif how == "precision":
        w.let(f"lax.reduce_precision({x}, 8, {w.number(1, 10)})", x)
    elif how == "complex":
        w.let(f"lax.{w.one(('real', 'imag', 'abs'))}(lax.conj(lax.complex({x}, {y})))", x, y)
    elif how == "power":
        w.let(f"lax.integer_pow({x}, {w.number(-3, 7)})", x)
    elif not w.differentiated:
        if how == "stepped":
            w.let(f"lax.{w.one(STEPPED)}({x})", x)
        else:
            w.let(f"lax.{w.one(PAIRED)}({x}, {y})", x, y)


@kind
def bits(w: Writer) -> None:
    x = w.pick(dtypes=INTEGERS)
    if x:
        y = w.like(x)
        how = w.one((f"{w.one(BITS)}({x})", f"{w.one(SHIFTED)}({x}, {y})", f"bitcast_convert_type({x}, 'uint8')"))
        w.let(f"lax.{how}", x, y)


@kind
def ordered(w: Writer) -> None:
    """Sorting, the largest, their places."""
    x = w.pick(solid, ("float32", "int32"))
    if not x or w.differentiated:
        return
    k = w.number(1, x.shape[-1])
    w.let(w.one((f"lax.top_k({x}, {k})[{w.number(0, 1)}]", f"lax.sort_key_val({x}, {x}, 0)[1]", f"jnp.argsort({x}, 0)",
                 f"lax.argmin({x}, 0, 'int32')", f"lax.cummin({x}, 0)", f"lax.cumprod({x}, 0)",
                 f"jnp.median({x}, 0)", f"jnp.searchsorted({x}.ravel(), {x})",
                 *((f"lax.approx_max_k({x}, {k})[0]", f"lax.cumlogsumexp({x}, 0)") if x.dtype in FLOATS else ()),
                 )), x)  # fmt: skip


@kind
def window(w: Writer) -> None:
    """Sums and maxima of windows; in a gradient, what scatters back to where a maximum was."""
    x = w.pick(solid, ("float32",))
    if x:
        sizes = tuple(w.number(1, min(3, n)) for n in x.shape)
        strides = tuple(w.number(1, 2) for _ in x.shape)
        how = w.one(("lax.add", "lax.max", "lax.min"))
        start = {"lax.add": "0.", "lax.max": "-np.inf", "lax.min": "np.inf"}[how]
        w.let(f"lax.reduce_window({x}, {start}, {how}, {sizes}, {strides}, {w.one(('SAME', 'VALID'))!r})", x)


@kind
def folds(w: Writer) -> None:
    """Reductions by other combiners, and an associative scan."""
    x = w.pick(solid, ("bool", "int32", "float32"))
    if not x or w.differentiated:
        return
    axis = w.number(0, len(x.shape) - 1)
    if x.dtype == "bool":
        w.let(f"lax.reduce_{w.one(('and', 'or', 'xor'))}({x}, ({axis},))", x)
    elif x.dtype == "int32":
        w.let(f"lax.reduce({x}, np.int32(1), lambda a, b: a * b + b, ({axis},))", x)
    else:
        w.let(f"lax.associative_scan({w.one(('lax.add', 'lax.mul', 'jnp.maximum'))}, {x}, axis={axis})", x)


@kind
def pieces(w: Writer) -> None:
    """Cut, stacked, rolled, repeated, and what says nothing of arithmetic."""
    x = w.pick(solid)
    if x:
        y = w.like(x)
        w.let(w.one((f"jnp.stack([{x}, {y}])", f"jnp.split({x}, [1])[-1]", f"jnp.roll({x}, 1, 0)", f"jnp.tile({x}, 2)",
                     f"jnp.squeeze({x}[:1], 0)", f"jnp.where({x} > {y}, {x}, {y})", f"lax.optimization_barrier({x})",
                     f"jnp.repeat({x}, 2, 0)", f"jnp.diagonal({x}[..., None] * {x}[..., :1, None])",
                     f"checkpoint_name({x}, 'kept')", f"jnp.triu(jnp.atleast_2d({x}))",
                     )), x, y)  # fmt: skip


@kind
def algebra(w: Writer) -> None:
    """Factors of a square matrix, or of a batch of them."""
    if w.differentiated:
        return
    n = w.number(1, 4)
    x = w.argument("float32", (*((w.number(1, 3),) if w.number(0, 1) else ()), n, n))
    factor = w.one((f"lax.linalg.cholesky({x})", f"lax.linalg.qr({x}, full_matrices=False)[1]",
                    f"lax.linalg.lu({x})[0]", f"lax.linalg.svd({x}, compute_uv=False)", f"lax.linalg.eigh({x})[0]",
                    f"lax.linalg.triangular_solve({x}, {x}, left_side=True, lower=True)", f"jnp.linalg.det({x})",
                    f"jnp.linalg.solve({x}, {x})",
                    f"jnp.linalg.inv({x})", f"jax.scipy.linalg.expm({x})", f"lax.linalg.tridiagonal({x})[1]",
                    ))  # fmt: skip
    w.let(factor, x)
    if "expm" in factor:
        w.shared.remarks.add("branch")


@kind
def transformed(w: Writer) -> None:
    x = w.pick(solid, ("float32",))
    if x:
        w.let(f"jnp.abs(jnp.fft.{w.one(('fft', 'rfft', 'ifft'))}({x}))", x)


@kind
def drawn(w: Writer) -> None:
    """Random numbers of every kind."""
    shape = (w.dimension(), w.dimension())
    key = f"jax.random.{w.one(('PRNGKey', 'key'))}({w.number(0, 9)})"
    w.let(w.one((f"jax.random.normal({key}, {shape})", f"jax.random.uniform({key}, {shape}, 'bfloat16')",
                 f"jax.random.bits({key}, {shape}).astype('int32')", f"jax.random.bernoulli({key}, 0.5, {shape})",
                 f"jax.random.categorical({key}, np.zeros({(*shape, 3)}))", f"jax.random.permutation({key}, 5)",
                 f"jax.random.randint(jax.random.split({key})[0], {shape}, 0, 9)",
                 f"jax.random.truncated_normal(jax.random.fold_in({key}, 3), 0., 1., {shape})")))  # fmt: skip


@kind
def ragged(w: Writer) -> None:
    if w.batched:  # jax has no such batch
        return
    x = w.array((2,), ("float32", "bfloat16"))
    groups = w.number(1, 3)
    y, sizes = w.argument(x.dtype, (groups, x.shape[1], w.number(1, 4))), w.argument("int32", (groups,))
    w.let(f"lax.ragged_dot({x}, {y}, {sizes})", x, y, sizes)


@kind
def attention(w: Writer) -> None:
    """jax.nn's own attention, masked or not."""
    batch, tokens, heads, wide = (w.number(1, 3) for _ in range(4))
    dtype = w.one(("float32", "bfloat16"))
    q, k = w.argument(dtype, (batch, tokens, heads, wide)), w.argument(dtype, (batch, tokens, heads, wide))
    w.let(f"jax.nn.dot_product_attention({q}, {k}, {k}, is_causal={bool(w.number(0, 1))})", q, k)


@kind
def switched(w: Writer) -> None:
    """One of several arms, by data: the dearest counts."""
    x = w.pick(solid, FLOATS)
    if x:
        arms = ", ".join(chain(w) for _ in range(w.number(2, 4)))
        at = w.argument("int32", ())
        w.let(f"switch({at}, [{arms}], {x})", at, x)
        w.shared.remarks.add("branch")


@kind
def remembered(w: Writer) -> None:
    """The gradient of control flow that is recomputed: remat by a policy, a map, a scan of branches."""
    x = w.pick(solid, FLOATS)
    if not x or w.differentiated:
        return
    body = w.one((f"jax.checkpoint({chain(w)}, policy=jax.checkpoint_policies.{w.one(POLICIES)})(y)",
                  f"lax.map({chain(w)}, y)",
                  f"lax.scan(lambda c, r: (c + 1, lax.cond(c[0] > 0, {chain(w)}, {chain(w)}, r)), jnp.zeros(1), y)[1]",
                  "lax.scan(jax.checkpoint(lambda c, r: (jnp.sin(c * r), c)), y[0], y)[0]",
                  "jax.jvp(lambda z: lax.scan(lambda c, r: (c * r, c), z[0], z)[0], (y,), (y,))[1]"))  # fmt: skip
    w.let(f"jax.{w.one(('grad', 'jacrev'))}(lambda y: jnp.sum({body}.astype('float32')))({x})", x)
    w.shared.remarks |= {"gradient", "looped gradient", "branch"}


POLICIES = ("everything_saveable", "nothing_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable")


@kind
def kernel_grid(w: Writer) -> None:
    """A Pallas product over a grid of two axes, added up along the second."""
    if w.differentiated:
        return
    dtype, rows, inner, outer = w.one(("float32", "bfloat16")), w.one((2, 4)), w.one((2, 4, 6)), w.number(1, 4)
    x, y = w.argument(dtype, (rows, inner)), w.argument(dtype, (inner, outer))
    w.let(f"kernel_grid({x}, {y}, {w.one((1, 2))}, {w.one((1, 2))})", x, y)


WIDE = tuple(k for k in KINDS if k not in BEFORE)
"""The kinds of this file."""
SPECIAL = (*statements_special.SPECIAL, *WIDE)
