"""ROWS: one op per primitive with the cost it must have, the right side written as arithmetic. See test_rules.py.

`op` makes an Op from text ("f32[3,5]"); `traced` takes it from a function that jax traced, where the parameters are
jax's own objects. All dimensions of a row differ, so that a mix-up shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from costtrace.core import Cost, Frame, Op, Value
from costtrace.rules.generator import BLOCKS

SHORT = {"f": "float", "bf": "bfloat", "i": "int", "u": "uint", "c": "complex"}
E4M3 = "float8_e4m3fn"


@dataclass(frozen=True)
class Row:
    primitive: str
    op: Callable[[], Op]
    cost: Cost
    what: str = ""

    def __str__(self) -> str:
        return f"{self.primitive} {self.what}".strip()


def value(text: str) -> Value:
    """'f32[3,5]', 'bool[4]', 'key<fry>[2]', 'i4[8]' as a Value."""
    dtype, _, shape = text.rstrip("]").partition("[")
    if found := re.fullmatch(r"(bf|f|i|u|c)(\d+)", dtype):
        dtype, bits = SHORT[found[1]] + found[2], int(found[2])
    else:
        bits = 8 if dtype.startswith(("bool", "float8")) else 64
    return Value(tuple(int(n) for n in shape.split(",") if n), dtype, bits)


def op(primitive: str, inputs: str, outputs: str, **params: Any) -> Op:
    """An Op on values written as text, separated by blanks."""
    ins, outs = (tuple(value(t) for t in text.split()) for text in (inputs, outputs))
    return Op(primitive, ins, outs, params, Frame(None, "root"))


def row(primitive: str, inputs: str, outputs: str, cost: Cost, what: str = "", **params: Any) -> Row:
    return Row(primitive, lambda: op(primitive, inputs, outputs, **params), cost, what)


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr and of the programs inside it."""
    for eqn in jaxpr.eqns:
        yield eqn
        for param in eqn.params.values():
            for inner in param if isinstance(param, (tuple, list)) else (param,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from equations(inner)


def seen(variable: Any) -> Value:
    aval = getattr(variable.aval, "inner_aval", variable.aval)
    return value(f"{SHORT_OF.get(str(aval.dtype), aval.dtype)}[{','.join(map(str, aval.shape))}]")


SHORT_OF = {long + bits: short + bits for short, long in SHORT.items() for bits in ("4", "8", "16", "32", "64", "128")}


def ops(fn: Callable[..., Any], *args: str) -> list[Op]:
    """The equations of a function on abstract arguments, calls and kernels opened, as Ops."""
    shapes = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in map(value, args)]
    return [
        Op(e.primitive.name, tuple(map(seen, e.invars)), tuple(map(seen, e.outvars)), e.params, Frame(None, "root"))
        for e in equations(jax.make_jaxpr(fn)(*shapes).jaxpr)
    ]


def traced(primitive: str, fn: Callable[..., Any], args: str, cost: Cost, what: str = "") -> Row:
    """The first equation of that name in the jaxpr of fn."""
    return Row(primitive, lambda: next(o for o in ops(fn, *args.split()) if o.primitive == primitive), cost, what)


def flops(n: int, dtype: str = "float32", **more: Any) -> Cost:
    return Cost(vector_flops=n, vector_by_dtype={dtype: n}, **more)


def ints(n: int) -> Cost:
    return Cost(integer_ops=n)


def matmul(n: int, dtype: str = "float32", **more: Any) -> Cost:
    return Cost(matmul_flops=n, by_dtype={dtype: n}, **more)


def conv(n: int, dtype: str = "float32") -> Cost:
    return Cost(conv_flops=n, by_dtype={dtype: n})


FREE = Cost()

# ---- pointwise: 3 x 5 elements

ROWS = [row(p, "f32[3,5] f32[3,5]", "f32[3,5]", flops(3 * 5)) for p in (
    "add", "add_any", "sub", "mul", "div", "rem", "max", "min")]  # fmt: skip
ROWS += [row(p, "bf16[3,5]", "bf16[3,5]", flops(3 * 5, "bfloat16")) for p in (
    "neg", "floor", "ceil", "round", "square", "reciprocal", "abs", "sign")]  # fmt: skip
ROWS += [row(p, "f32[3,5]", "f32[3,5]", Cost(transcendentals=3 * 5)) for p in (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "logistic", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erf_inv", "lgamma", "digamma",
    "bessel_i0e", "bessel_i1e")]  # fmt: skip
ROWS += [row(p, "f32[3,5] f32[3,5]", "f32[3,5]", Cost(transcendentals=3 * 5)) for p in (
    "pow", "atan2", "polygamma", "zeta", "igamma", "igammac", "igamma_grad_a")]  # fmt: skip
ROWS += [row(p, "f32[3,5] f32[3,5]", "bool[3,5]", ints(3 * 5)) for p in (
    "eq", "ne", "lt", "le", "gt", "ge", "eq_to", "lt_to", "le_to")]  # fmt: skip
ROWS += [row(p, "i32[3,5] i32[3,5]", "i32[3,5]", ints(3 * 5)) for p in (
    "and", "or", "xor", "shift_left", "shift_right_logical", "shift_right_arithmetic", "mulhi")]  # fmt: skip
ROWS += [row(p, "u32[3,5]", "u32[3,5]", ints(3 * 5)) for p in ("not", "population_count", "clz")]
ROWS += [
    row("add", "i32[3,5] i32[3,5]", "i32[3,5]", ints(3 * 5), "of integers is no FLOP"),
    row("max", "i4[3,5] i4[3,5]", "i4[3,5]", ints(3 * 5), "of integers"),
    row("mul", "c64[3,5] c64[3,5]", "c64[3,5]", flops(3 * 5, "complex64"), "is one, complex or not"),
    row("add", "f32[0,5] f32[0,5]", "f32[0,5]", FREE, "of nothing"),
    row("exp", "c64[3]", "c64[3]", Cost(transcendentals=3), "complex is one too"),
    row("pow", "i32[3] i32[3]", "i32[3]", ints(3), "of integers"),
    row("abs", "c64[3,5]", "f32[3,5]", Cost(transcendentals=3 * 5), "of complex takes a root"),
    row("conj", "c64[3,5]", "c64[3,5]", flops(3 * 5, "complex64")),
    row("is_finite", "f32[3,5]", "bool[3,5]", ints(3 * 5)),
    row("nextafter", "f32[3,5] f32[3,5]", "f32[3,5]", ints(3 * 5)),
    row("select_n", "bool[3,5] f32[3,5] f32[3,5]", "f32[3,5]", ints(3 * 5)),
    row("clamp", "f32[] f32[3,5] f32[]", "f32[3,5]", flops(2 * 3 * 5)),
    row("regularized_incomplete_beta", "f32[7] f32[7] f32[7]", "f32[7]", Cost(transcendentals=7)),
    row("one_minus_square", "f32[7]", "f32[7]", flops(3 * 7)),
    row("polynomial", "f32[7] f32[] f32[] f32[]", "f32[7]", flops(2 * 2 * 7), "c0 + x (c1 + x c2)"),
    *(row("integer_pow", "f32[7]", "f32[7]", flops(n * 7), f"x**{y}", y=y)
      for y, n in ((2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4), (8, 3), (15, 6), (-1, 1), (-2, 2), (-3, 3))),
    *(row("integer_pow", "f32[7]", "f32[7]", FREE, f"x**{y}", y=y) for y in (0, 1)),
]  # fmt: skip

# ---- movement

ROWS += [row(p, "f32[3,5]", "f32[3,5]", FREE) for p in (
    "reshape", "squeeze", "transpose", "broadcast_in_dim", "broadcast_to", "rev", "slice", "split", "concatenate",
    "pad", "tile", "stack", "unstack", "copy", "gather", "dynamic_slice", "dynamic_update_slice", "empty",
    "empty2", "zeros_like", "iota", "real", "imag", "complex", "convert_element_type", "bitcast_convert_type",
    "reduce_precision", "to_edtype", "from_edtype")]  # fmt: skip
ROWS += [row(p, "f32[11,5] i32[3,1] f32[3,5]", "f32[11,5]", flops(3 * 5)) for p in (
    "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")]  # fmt: skip
ROWS += [
    row("scatter", "f32[11,5] i32[3,1] f32[3,5]", "f32[11,5]", FREE),
    row("scatter", "f32[64] i32[16] f32[16] bool[16]", "", flops(16), "of a sparse core, adding", add=True),
    row("scatter-add", "i32[11] i32[3,1] i32[3]", "i32[11]", ints(3), "of integers"),
]

# ---- references, order, placement, host

ROWS += [row(p, "f32[3,5]", "f32[3,5]", FREE) for p in (
    "pure_callback", "io_callback", "debug_callback", "debug_print", "buffer_callback", "inspect_sharding", "new_ref",
    "empty_ref", "free_ref", "freeze", "get", "masked_load", "masked_swap", "load", "store", "create_linear", "pin",
    "unpin", "get_global", "new_box", "box_get", "box_set", "new_log", "log_read", "log_extend",
    "optimization_barrier", "create_token", "after_all", "dce_sink", "tie", "add_dependency", "stop_gradient", "name",
    "check", "xla_metadata_value", "shape_assertion", "device_put", "sharding_constraint", "layout_constraint",
    "reshard", "relayout", "with_memory_space_constraint", "has_memory_space", "global_array_to_host_local_array",
    "host_local_array_to_global_array", "dimension_size", "dim_as_value", "platform_index")]  # fmt: skip
ROWS += [
    row("swap", "f32[3,5] f32[3,5]", "f32[3,5]", FREE),
    row("swap", "f32[3,5] f32[3,5]", "", flops(3 * 5), "of a sparse core, adding", add=True),
    row("addupdate", "f32[7,5] f32[5] i32[]", "", flops(5)),
    row("accum_grad_in_ref", "f32[3,5] f32[3,5]", "", flops(3 * 5)),
]

# ---- random

B = BLOCKS
ROWS += [
    row("threefry2x32", "u32[] u32[] u32[7] u32[7]", "u32[7] u32[7]", ints(7 * (2 + 2 + 20 * 5 + 5 * 3))),
    row("threefry4x32", "u32[]" + " u32[7]" * 7, "u32[7] " * 4, ints(7 * (4 + 4 + 20 * 2 * 5 + 5 * 5))),
    row("philox2x32", "u32[] u32[7] u32[7]", "u32[7] u32[7]", ints(7 * (10 * 4 + 9))),
    row("philox4x32", "u32[] u32[]" + " u32[7]" * 4, "u32[7] " * 4, ints(7 * (10 * 8 + 9 * 2))),
    row("random_bits", "key<fry>[]", "u32[3,7]", ints(3 * 7 * (B["threefry2x32"] + 1)), bit_width=32),
    row("random_bits", "key<fry>[]", "u64[3,7]", ints(3 * 7 * (B["threefry2x32"] + 2)), "64 bits", bit_width=64),
    row("random_bits", "key<phx4>[]", "u8[21]", ints(21 * (B["philox4x32"] + 3)), "philox", bit_width=8),
    row("random_bits", "key<fry4>[]", "u64[21]", ints(21 * (B["threefry4x32"] + 4)), "4 words", bit_width=64),
    row("random_bits", "key<rbg>[]", "u8[30]", ints(2 * B["philox4x32"]), "30 bytes are 8 words", bit_width=8),
    row("random_split", "key<fry>[]", "key<fry>[3]", ints(3 * B["threefry2x32"]), shape=(3,)),
    row("random_split", "key<rbg>[]", "key<rbg>[3]", ints(3 * 2 * B["threefry2x32"]), "rbg", shape=(3,)),
    row("random_split", "key<urbg>[]", "key<urbg>[3]", ints(3 * 10 * B["philox4x32"]), "unsafe_rbg", shape=(3,)),
    row("random_fold_in", "key<phx2>[3] u32[]", "key<phx2>[3]", ints(3 * B["philox2x32"])),
    row("random_fold_in", "key<urbg>[] u32[]", "key<urbg>[]", ints(10 * B["philox4x32"] + 4), "unsafe_rbg"),
    row("random_seed", "i32[3]", "key<fry>[3]", ints(3 * 2)),
    row("random_seed", "i32[]", "key<phx4>[]", ints(2 + B["philox4x32"]), "hashed once"),
    row("random_wrap", "u32[3,2]", "key<fry>[3]", FREE),
    row("random_unwrap", "key<fry>[3]", "u32[3,2]", FREE),
    row("random_clone", "key<fry>[3]", "key<fry>[3]", FREE),
    row("iota_2x32_shape", "", "u32[3,5] u32[3,5]", ints(3 * 5 * (2 * 2 + 2))),
    row("rng_bit_generator", "u32[4]", "u32[4] u32[9]", ints(3 * B["philox4x32"]), "9 words are 3 blocks"),
    traced("rng_bit_generator",
           lambda k: lax.rng_bit_generator(k, (9,), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY), "u32[4]",
           ints(5 * B["threefry2x32"]), "threefry: 9 words are 5 blocks"),
    row("rng_uniform", "f32[] f32[]", "f32[8]", flops(2 * 8, integer_ops=2 * B["philox4x32"])),
    row("random_gamma", "key<fry>[7] f32[7]", "f32[7]",
        flops(32 * 7, transcendentals=5 * 7, integer_ops=10 * 7 * B["threefry2x32"])),
]  # fmt: skip

# ---- reductions, scans, sorts, windows

ROWS += [row(p, "f32[3,5,7]", "f32[3]", flops(3 * (5 * 7 - 1)), axes=(1, 2)) for p in (
    "reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "mosaic_gpu_reduce_sum", "mosaic_gpu_reduce_prod",
    "mosaic_gpu_reduce_max", "mosaic_gpu_reduce_min")]  # fmt: skip
ROWS += [row(p, "bool[3,5]", "bool[5]", ints(5 * (3 - 1)), axes=(0,)) for p in (
    "reduce_and", "reduce_or", "reduce_xor")]  # fmt: skip
ROWS += [row(p, "f32[3,5]", "i32[3]", ints(3 * (5 - 1)), axes=(1,)) for p in ("argmax", "argmin")]
ROWS += [row(p, "f32[3,5]", "f32[3,5]", flops((3 - 1) * 5), axis=0) for p in ("cumsum", "cumprod", "cummax", "cummin")]
ROWS += [row(p, "f32[16] bool[16]", "f32[16]", flops(15)) for p in ("masked_cumsum", "masked_cummax", "masked_cummin")]
ROWS += [row(p, "i32[16] bool[16]", "i32[16] bool[16]", ints(16 * 4)) for p in ("masked_sort", "unique", "scan_count")]
WINDOW = {"window_dimensions": (1, 3, 2)}
ROWS += [row(p, "f32[5,7,9]", "f32[5,5,8]", flops(5 * 5 * 8 * (6 - 1)), **WINDOW) for p in (
    "reduce_window_sum", "reduce_window_max", "reduce_window_min")]  # fmt: skip
ROWS += [
    row("reduce_sum", "f32[0,5]", "f32[5]", FREE, "of nothing", axes=(0,)),
    row("reduce_sum", "f32[5,0]", "f32[5]", FREE, "of no columns", axes=(1,)),
    row("cumlogsumexp", "f32[3,5]", "f32[3,5]", flops(5 * 3 * 4, transcendentals=2 * 3 * 4), axis=1),
    row("sort", "f32[3,1000]", "f32[3,1000]", ints(3 * 1000 * 10), dimension=1, num_keys=1),
    row("sort", "i32[6,5] i32[6,5]", "i32[6,5] i32[6,5]", ints(5 * 6 * 3 * 2), "two keys", dimension=0, num_keys=2),
    traced("top_k", lambda x: lax.top_k(x, 4), "f32[3,50]", ints(3 * 50 * 3)),
    traced("approx_top_k", lambda x: lax.approx_max_k(x, 4, aggregate_to_topk=False), "f32[3,5]",
           ints(3 * (5 + 5 * 3))),
    traced("reduce", lambda x: lax.reduce(x, 1.0, lambda a, b: a * b + jnp.sin(b), (0,)), "f32[3,5]",
           flops(2 * 2 * 5, transcendentals=2 * 5), "a product, a sum, a sine"),
    traced("reduce_window", lambda x: lax.reduce_window(x, 1.0, lambda a, b: a * b + b, (2, 3), (1, 1), "VALID"),
           "f32[5,7]", flops(2 * (4 * 5) * (6 - 1))),
    row("select_and_scatter_add", "f32[5,5,8] f32[5,7,9]", "f32[5,7,9]",
        flops(5 * 5 * 8, integer_ops=5 * 5 * 8 * 5), **WINDOW),
    row("select_and_scatter", "f32[5,7,9] f32[5,5,8] f32[]", "f32[5,7,9]",
        flops(2 * 5 * 5 * 8, integer_ops=5 * 5 * 8 * 5), "ge selects, (a + b) a combines", **WINDOW,
        select_jaxpr=jax.make_jaxpr(lambda a, b: a >= b)(1.0, 2.0).jaxpr,
        scatter_jaxpr=jax.make_jaxpr(lambda a, b: (a + b) * a)(1.0, 2.0).jaxpr),
    row("select_and_gather_add", "f32[5,7,9] f32[5,7,9]", "f32[5,5,8]", ints(5 * 5 * 8 * 5), **WINDOW),
]  # fmt: skip
