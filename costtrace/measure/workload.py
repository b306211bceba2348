"""WORKLOADS: for each kind of grid, a loop on the device whose trip does that work once, and what numpy says it makes.

Each trip depends on the one before, so that no compiler moves the work out of the loop or drops it: a result is carried
on, and one element of each operand is replaced by one of the last result. Inputs are random. Knows no stopwatch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Body = Callable[[Any, Any, Any], Any]
CHAIN = 8
"""Applications of an elementwise operation in one trip: one kernel, so that its own memory traffic weighs little."""
BATCHED_NHWC = ("NHWC", "HWIO", "NHWC")


@dataclass(frozen=True)
class Workload:
    """One trip: body(data, trip, carry) -> carry, whose last leaf is the result. `kernels` are started in a trip, of
    which one does the work, `runs` times. `expected`: numpy's result of trip 0 from data and carry."""

    data: Any
    carry: Any
    body: Body
    expected: Callable[[Any, Any], np.ndarray]
    kernels: int = 1
    runs: int = 1

    @functools.cached_property
    def run(self) -> Callable[[int], Any]:
        """run(trips), which returns when the device is done; compiled at its first call."""
        body = self.body

        @jax.jit
        def program(trips: Any, data: Any, carry: Any) -> Any:
            return lax.fori_loop(0, trips, lambda i, c: body(data, i, c), carry)

        def run(trips: int) -> Any:
            return jax.block_until_ready(program(trips, self.data, self.carry))

        return run


Maker = Callable[..., Workload]
WORKLOADS: dict[str, Maker] = {}
"""Kind of grid -> make(dtype, pool_bytes, *sizes)."""


def workload(*kinds: str) -> Callable[[Maker], Maker]:
    def register(make: Maker) -> Maker:
        for kind in kinds:
            if kind in WORKLOADS:
                raise ValueError(f"the kind {kind!r} has a workload already")
            WORKLOADS[kind] = make
        return make

    return register


BLOCK = 2**20
"""Random numbers drawn; a larger array repeats them."""


@functools.cache
def _drawn(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(BLOCK, "float32")


def random(dtype: str, *shape: int, seed: int = 1) -> Any:
    """Normal numbers on the device, by way of the host: nothing is compiled for them."""
    x = np.resize(_drawn(seed), shape)
    return jnp.asarray((1000 * x).astype(dtype) if dtype.startswith("int") else x.astype(jnp.dtype(dtype)))


def zeros(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    return jnp.asarray(np.zeros(shape, jnp.dtype(dtype)))


def _stored(x: Any) -> Any:
    """How an operand is carried: bfloat16 as whole numbers, as XLA for the CPU widens all of a bfloat16 array to change
    one element of it."""
    return np.asarray(x).view("uint16") if x.dtype == jnp.bfloat16 else x


def _loaded(x: Any) -> Any:
    """What `_stored` stands for, in numpy in float64."""
    if isinstance(x, np.ndarray):
        return np.asarray(x.view(jnp.bfloat16) if x.dtype == np.uint16 else x, np.float64)
    return lax.bitcast_convert_type(x, jnp.bfloat16) if x.dtype == jnp.uint16 else x


def _touched(x: Any, scalar: Any) -> Any:
    """x, as stored, with its first element replaced in place: no longer the same array to a compiler."""
    one = lax.reshape(scalar * 0.01, (1,) * x.ndim)
    one = (
        lax.bitcast_convert_type(one.astype(jnp.bfloat16), jnp.uint16) if x.dtype == jnp.uint16 else one.astype(x.dtype)
    )
    return lax.dynamic_update_slice(x, one, (0,) * x.ndim)


def _first(x: Any) -> Any:
    return lax.reshape(lax.slice(x, (0,) * x.ndim, (1,) * x.ndim), ())


def _product(dtype: str, left: tuple[int, ...], right: tuple[int, ...], of: Callable[[Any, Any], Any]) -> Workload:
    def body(data: Any, i: Any, carry: Any) -> Any:
        a, b, c = carry
        a, b = _touched(a, _first(c)), _touched(b, _first(c))
        return a, b, of(_loaded(a), _loaded(b))

    a, b = random(dtype, *left, seed=1), random(dtype, *right, seed=2)
    c = zeros(jax.eval_shape(of, a, b).shape, dtype)

    def expected(data: Any, carry: Any) -> np.ndarray:
        x, y = (_loaded(np.array(v)) for v in carry[:2])
        x[(0,) * x.ndim] = y[(0,) * y.ndim] = 0
        return _convolved(x, y) if x.ndim == 4 else x @ y

    return Workload((), (_stored(a), _stored(b), c), body, expected, kernels=3)


@workload("product")
def product(dtype: str, pool: int, m: int, n: int, k: int) -> Workload:
    return _product(dtype, (m, k), (k, n), jnp.matmul)


@workload("batched product")
def batched_product(dtype: str, pool: int, batch: int, m: int, n: int, k: int) -> Workload:
    return _product(dtype, (batch, m, k), (batch, k, n), jnp.matmul)


@workload("convolution")
def convolution(dtype: str, pool: int, pixels: int, features_in: int, features_out: int, taps: int) -> Workload:
    side, window = math.isqrt(pixels), math.isqrt(taps)

    def of(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=BATCHED_NHWC)

    return _product(dtype, (1, side, side, features_in), (window, window, features_in, features_out), of)


def _convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    (_, height, width, _), size = x.shape, w.shape[0]
    low = (size - 1) // 2
    wide = np.pad(x, ((0, 0), (low, size - 1 - low), (low, size - 1 - low), (0, 0)))
    return sum(
        (wide[:, i : i + height, j : j + width] @ w[i, j] for i in range(size) for j in range(size)), np.zeros(())
    )


@workload("streamed product")
def streamed_product(dtype: str, pool: int, m: int, n: int, k: int) -> Workload:
    """The right operand is another one each trip, as a layer's weights in a scan: `pool` bytes of them go round."""
    layers = max(2, -(-pool // (n * k * jnp.dtype(dtype).itemsize)))
    weights = random(dtype, layers, k, n)

    def body(data: Any, i: Any, carry: Any) -> Any:
        a, c = carry
        a = _touched(a, _first(c))
        return a, _loaded(a) @ lax.dynamic_index_in_dim(data, i % layers, keepdims=False)

    def expected(data: Any, carry: Any) -> np.ndarray:
        a = _loaded(np.array(carry[0]))
        a[0, 0] = 0
        return a @ np.asarray(data[0], np.float64)

    return Workload(weights, (_stored(random(dtype, m, k)), zeros((m, n), dtype)), body, expected, kernels=2)


def _map(dtype: str, shape: tuple[int, ...], f: Callable[[Any], Any], by_numpy: Callable[[Any], Any]) -> Workload:
    """carry -> f(carry), of the same shape."""
    return Workload(
        (),
        (random(dtype, *shape),),
        lambda data, i, carry: (f(carry[0]).astype(dtype),),
        lambda data, carry: by_numpy(np.asarray(carry[0], np.float64)),
    )


ELEMENTWISE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "add": (lambda x: abs(x) - x.dtype.type(1), lambda x: abs(x) - 1),
    "divide": (lambda x: 1 / (x + x.dtype.type(3)), lambda x: 1 / (x + 3)),
    "exp": (lambda x: jnp.exp(-x), lambda x: np.exp(-x)),
    "log": (lambda x: jnp.log(abs(x) + 2), lambda x: np.log(abs(x) + 2)),
    "tanh": (jnp.tanh, np.tanh),
    "erf": (lax.erf, lambda x: np.vectorize(math.erf)(x)),
    "logistic": (lax.logistic, lambda x: 1 / (1 + np.exp(-x))),
    "sine": (jnp.sin, np.sin),
    "rsqrt": (lambda x: lax.rsqrt(abs(x) + 1), lambda x: 1 / np.sqrt(abs(x) + 1)),
    "power": (lambda x: (abs(x) + 1) ** jnp.asarray(0.3, x.dtype), lambda x: (abs(x) + 1) ** 0.3),
    "select": (lambda x: jnp.where(x > 0, x - x.dtype.type(1), x), lambda x: np.where(x > 0, x - 1, x)),
}
"""Kind -> one application, by jax and by numpy; each may be applied again and again."""


OPERATIONS = {"add": 2}
"""Operations in one application: x + 1 eight times over is x + 8 to a compiler, |x| - 1 is not."""


def _chain(kind: str, dtype: str, elements: int) -> Workload:
    f, by_numpy = ELEMENTWISE[kind]

    def repeated(of: Callable[[Any], Any], x: Any) -> Any:
        for _ in range(CHAIN):
            x = of(x)
        return x

    made = _map(dtype, (elements,), functools.partial(repeated, f), functools.partial(repeated, by_numpy))
    return Workload(made.data, made.carry, made.body, made.expected, runs=CHAIN * OPERATIONS.get(kind, 1))


def _chained(kind: str) -> Maker:
    return lambda dtype, pool, elements: _chain(kind, dtype, elements)


for _kind in ELEMENTWISE:
    workload(_kind)(_chained(_kind))


@workload("copy")
def copy(dtype: str, pool: int, nbytes: int) -> Workload:
    """Half of the bytes in, half out."""
    return _map("float32", (nbytes // 8,), lambda x: x + 1, lambda x: x + 1)


@workload("read")
def read(dtype: str, pool: int, nbytes: int) -> Workload:
    columns = min(1024, nbytes // 4)
    return sum_last("float32", pool, nbytes // 4 // columns, columns)


@workload("write")
def write(dtype: str, pool: int, nbytes: int) -> Workload:
    x = random("float32", nbytes // 4)
    return Workload((), (x,), lambda d, i, c: (jnp.full_like(c[0], i + 1),), lambda d, c: np.ones_like(c[0]))


@workload("transpose")
def transpose(dtype: str, pool: int, elements: int) -> Workload:
    side = math.isqrt(elements)
    return _map(dtype, (side, side), lambda x: x.T + x.dtype.type(1), lambda x: x.T + 1)


@workload("swap")
def swap(dtype: str, pool: int, elements: int) -> Workload:
    """The first two axes of (s, s, 64), as heads and tokens."""
    side = math.isqrt(elements // 64)
    return _map(dtype, (side, side, 64), lambda x: x.swapaxes(0, 1) + x.dtype.type(1), lambda x: x.swapaxes(0, 1) + 1)


@workload("concatenate")
def concatenate(dtype: str, pool: int, elements: int) -> Workload:
    half = elements // 2

    def by(library: Any) -> Callable[[Any], Any]:
        return lambda x: library.concatenate([x[half:], x[:half]])

    return _map(dtype, (elements,), by(jnp), by(np))


@workload("gather")
def gather(dtype: str, pool: int, rows: int, width: int) -> Workload:
    """`rows` rows of a table of `pool` bytes, or four times as many rows."""
    table = random(dtype, max(4 * rows, pool // (width * jnp.dtype(dtype).itemsize)), width)
    at = jnp.asarray(np.random.default_rng(3).integers(0, table.shape[0] - 1, rows, "int32"))

    def body(data: Any, i: Any, carry: Any) -> Any:
        at, _ = carry
        at = (at + i * 7919) % table.shape[0]
        return at, data.at[at].get(mode="promise_in_bounds")

    carry = (at, zeros((rows, width), dtype))
    return Workload(table, carry, body, lambda d, c: np.asarray(d, np.float64)[np.asarray(c[0])], kernels=2)


def _reduction(f: str, axis: int, dtype: str, rows: int, columns: int) -> Workload:
    x = random(dtype, rows, columns)

    def body(data: Any, i: Any, carry: Any) -> Any:
        x, y = carry
        x = _touched(x, _first(y))
        return x, getattr(jnp, f)(_loaded(x).astype("float32"), axis)

    def expected(data: Any, carry: Any) -> np.ndarray:
        x = _loaded(np.array(carry[0]))
        x[0, 0] = 0
        return getattr(np, f)(x, axis)

    return Workload((), (_stored(x), zeros((columns if axis == 0 else rows,))), body, expected, kernels=2)


@workload("sum last")
def sum_last(dtype: str, pool: int, rows: int, columns: int) -> Workload:
    return _reduction("sum", 1, dtype, rows, columns)


@workload("max last")
def max_last(dtype: str, pool: int, rows: int, columns: int) -> Workload:
    return _reduction("max", 1, dtype, rows, columns)


@workload("sum first")
def sum_first(dtype: str, pool: int, rows: int, columns: int) -> Workload:
    return _reduction("sum", 0, dtype, rows, columns)


def _between(nbytes: int, of: Callable[[Any, int], Any], expected: Callable[[np.ndarray], np.ndarray]) -> Workload:
    """Every device holds a part of an array and runs `of` on it: the part it has next."""
    n = len(jax.local_devices())
    mesh = jax.make_mesh((n,), ("devices",))
    spec = jax.sharding.PartitionSpec("devices")
    x = random("float32", n, nbytes // 4)
    x = jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))
    part = jax.shard_map(lambda x: of(x, n), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    return Workload((), (x,), lambda d, i, c: (part(c[0]),), lambda d, c: expected(np.asarray(c[0], np.float64)))


@workload("all-reduce")
def all_reduce(dtype: str, pool: int, nbytes: int) -> Workload:
    """Of so many bytes that each device holds."""
    return _between(nbytes, lambda x, n: lax.psum(x, "devices") / n, lambda x: np.broadcast_to(x.mean(0), x.shape))


@workload("all-gather")
def all_gather(dtype: str, pool: int, nbytes: int) -> Workload:
    """Into so many bytes on each device, of which it keeps its neighbour's part."""

    def of(x: Any, n: int) -> Any:
        whole = lax.all_gather(x, "devices", tiled=True)
        return lax.dynamic_slice_in_dim(whole, (lax.axis_index("devices") + 1) % n, 1)

    return _between(nbytes // len(jax.local_devices()), of, lambda x: np.roll(x, -1, 0))


def transfer(nbytes: int) -> Callable[[], Any]:
    """Puts so many bytes of the host's on the device."""
    x = np.random.default_rng(0).standard_normal(nbytes // 4, dtype="float32")
    return lambda: jax.block_until_ready(jnp.array(x, copy=True))


def tiny(kernels: int) -> Workload:
    """A trip of so many products of 4 by 4: what starting a kernel takes, and what a trip takes beside its kernels."""
    w = jnp.asarray(np.asarray(random("float32", 4, 4)) / 4)

    def repeated(x: Any) -> Any:
        for _ in range(kernels):
            x = x @ w
        return x

    weights = np.asarray(w, np.float64)

    def by_numpy(x: Any) -> Any:
        for _ in range(kernels):
            x = x @ weights
        return x

    return _map("float32", (4, 4), repeated, by_numpy)


def wrong(kind: str, dtype: str, made: Workload) -> float:
    """How far one trip's result is from numpy's: the norm of the difference over the norm."""
    found = np.asarray(jax.tree.leaves(made.run(1))[-1], np.float64)
    wanted = made.expected(made.data, made.carry)
    scale = np.linalg.norm(wanted) or 1.0
    return float(np.linalg.norm(found - wanted) / scale)
