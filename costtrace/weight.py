"""Weights by use: a forward function asks for its weights by name and shape, and repeats blocks by stack().

Owns Stage, param(), stack() and bind(), which makes an ordinary JAX function of a forward function: a first abstract
run collects the weights that it asks for, later runs are given them. Knows nothing of costs, chips or model files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from costtrace.doors import trace_state
from costtrace.errors import ShapeError, UsageError


@dataclass(frozen=True)
class Stage:
    """One program of a model, run `calls` times for one result.

    args: pytrees of jax.ShapeDtypeStruct for `forward`. dtype: of every param() that names none. depth: how deep the
    default table shows this stage's scopes. donated: the positions of args that the stage updates in place, as a cache.
    notes: (kind, text) of what the reader of its numbers must know. makes: how many of what one call makes, as
    (8, "tokens"). grows: the option that asks for more of them at once, as "batch".
    """

    name: str
    forward: Callable[..., Any]
    args: tuple[Any, ...]
    calls: int = 1
    dtype: str = "bfloat16"
    depth: int = 1
    donated: tuple[int, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    makes: tuple[int, str] | None = None
    grows: str = ""


@dataclass(frozen=True)
class _Pass:
    """One run of a forward function: it declares its weights, or is given them. `weights` is what lies at `path`.

    jax traces a function under jit or remat once and remembers it, weights and all. So a pass whose weights are asked
    for in such a function has a `number`, by which jax keeps passes and blocks apart; it costs a third of the time
    again, so a pass starts without one. `outside` is jax's state where the pass began: elsewhere it is another.
    """

    weights: dict[str, Any]
    path: str
    declares: bool
    unroll: bool
    dtype: str
    number: int | None
    outside: Any

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """While open, param() and stack() speak to this pass."""
        token = _PASS.set(self)
        try:
            with contextlib.nullcontext() if self.number is None else _trace_key()((self.number, self.path)):
                yield
        finally:
            _PASS.reset(token)


class _AskedWithin(Exception):
    """param() was called in a function that jax traces apart, in a pass without a number."""


_PASS: ContextVar[_Pass] = ContextVar("pass")
_numbers = itertools.count()


@functools.cache
def _trace_key() -> Callable[[Any], AbstractContextManager[None]]:
    import jax

    return jax.make_user_context(default_value=None)


def scope(name: str) -> AbstractContextManager[None]:
    """jax.named_scope: what is traced in it is the part `name` of the program."""
    import jax

    return jax.named_scope(name)


def param(name: str, shape: tuple[int, ...], dtype: str | None = None) -> Any:
    """The weight `name` of the stack block (or stage) that asks: an array of `shape`, of the stage's dtype if none.

    A "/" in the name makes a path. The same name and shape twice is one weight, used twice.
    Raises ShapeError where the name stands for another weight already, UsageError outside a bound stage.
    """
    import jax
    from jax import lax

    at = _current(f"param({name!r})")
    spec = jax.ShapeDtypeStruct(tuple(shape), dtype or at.dtype)
    if at.declares:
        if at.number is None and at.outside != trace_state():
            raise _AskedWithin
        _declare(at, name, spec)
        return lax.full(spec.shape, 0, spec.dtype)
    node: Any = at.weights
    for key in name.split("/"):
        if not isinstance(node, dict) or key not in node:
            raise UsageError(f"param {at.path + name!r} was not declared: bind() the stage again, with these options")
        node = node[key]
    if isinstance(node, dict) or (node.shape, node.dtype) != (spec.shape, spec.dtype):
        raise ShapeError(
            f"param {at.path + name!r} is {_written(node)}, not the {_written(spec)} that the forward "
            "function asks for: pass weights of that shape"
        )
    return node


def stack(
    n: int, block: Callable[..., Any], carry: Any, xs: Any = None, *, name: str = "layers", first: int | None = None
) -> Any:
    """carry after `n` blocks, each with weights of its own, each in the scope `name`: block(carry) -> carry.

    With `xs` (arrays with a leading axis n) block(carry, x) -> (carry, y), and (carry, ys) is returned, as in
    lax.scan. A scan, whose weights are one leaf with a leading axis n ("name/w"); or, bound with unroll=True, a
    Python loop over leaves "name/0/w", "name/1/w", .... `first` is the first block's number where several stacks share
    a name: "name/9:18/w" and "name/9/w".
    Raises ShapeError where a block does not return what it takes.
    """
    import jax
    from jax import lax

    at = _current(f"stack({name!r})")
    if n < 1:
        raise UsageError(f"stack {at.path + name!r} of {n} blocks: it needs at least 1")
    whole = name if first is None else f"{name}/{first}:{first + n}"
    each = [f"{name}/{i}" for i in range(first or 0, (first or 0) + n)]

    def run(weights: dict[str, Any], path: str, carry: Any, x: Any) -> tuple[Any, Any]:
        inner = dataclasses.replace(at, weights=weights, path=f"{at.path}{path}/")
        with inner.running(), scope(name):
            return (block(carry), None) if xs is None else block(carry, x)

    if at.declares:
        own: dict[str, Any] = {}
        out, y = run(own, whole, carry, jax.tree.map(lambda a: lax.index_in_dim(a, 0, keepdims=False), xs))
        if (took := _shapes(carry)) != (gave := _shapes(out)):
            raise ShapeError(
                f"stack {at.path + name!r}: the block takes {took} and returns {gave}: it must return what it takes"
            )
        for path, leaf in _leaves(own):
            stacked = jax.ShapeDtypeStruct((n, *leaf.shape), leaf.dtype)
            for block_path, spec in [(e, leaf) for e in each] if at.unroll else [(whole, stacked)]:
                _declare(at, f"{block_path}/{path}", spec)
        return out if xs is None else (out, jax.tree.map(lambda a: lax.broadcast(a, (n,)), y))

    if not at.unroll:
        carry, ys = lax.scan(lambda c, wx: run(wx[0], whole, c, wx[1]), carry, (_at(at.weights, whole), xs), length=n)
        return carry if xs is None else (carry, ys)
    rows = []
    for i, path in enumerate(each):
        x = jax.tree.map(lambda a, i=i: lax.index_in_dim(a, i, keepdims=False), xs)
        carry, y = run(_at(at.weights, path), path, carry, x)
        rows.append(y)
    return carry if xs is None else (carry, jax.tree.map(lambda *a: jax.numpy.stack(a), *rows))


def bind(stage: Stage, unroll: bool = False) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """(fn, (params, *stage.args)): an ordinary JAX function, jitted where arguments are donated, and the abstract
    arguments that it takes.

    params: nested dict of ShapeDtypeStruct, in the order of declaration. unroll: every block of a stack on its own,
    for a compiler or count that should see all of them; the numbers stay the same.
    Raises TraceError where the forward function fails, ShapeError and UsageError as param() and stack() do.
    """
    import jax

    from costtrace.trace import jaxpr_of

    if not callable(stage.forward):
        raise UsageError(
            f"stage {stage.name!r} has {stage.forward!r} for its function: write Stage(name, forward, args)"
        )
    params: dict[str, Any] = {}
    apart = False

    def forward(weights: dict[str, Any], declares: bool, args: tuple[Any, ...]) -> Any:
        number = next(_numbers) if apart else None
        with _Pass(weights, "", declares, unroll, stage.dtype, number, trace_state()).running():
            return stage.forward(*args)

    def declare(*args: Any) -> Any:
        nonlocal apart
        try:
            return forward(params, True, args)
        except _AskedWithin:
            params.clear()
            apart = True
            return forward(params, True, args)

    def fn(params: dict[str, Any], *args: Any) -> Any:
        return forward(params, False, args)

    declare.__name__ = fn.__name__ = stage.name
    taken = inspect.signature(stage.forward).parameters.values()
    first = inspect.Parameter("params", inspect.Parameter.POSITIONAL_ONLY)
    fn.__signature__ = inspect.Signature([first, *taken])  # type: ignore[attr-defined]  # jax names arguments by it
    jaxpr_of(declare, stage.args)
    given = (params, *stage.args)
    return (jax.jit(fn, donate_argnums=tuple(i + 1 for i in stage.donated)) if stage.donated else fn), given


def parameters(stage: Stage) -> int:
    """How many numbers the stage's weights hold."""
    _, (params, *_) = bind(stage)
    return sum(math.prod(leaf.shape) for _, leaf in _leaves(params))


def _current(what: str) -> _Pass:
    at = _PASS.get(None)
    if at is None:
        raise UsageError(f"{what} outside a stage: call it from a forward function that bind() runs")
    return at


def _declare(at: _Pass, name: str, spec: Any) -> None:
    *folders, last = name.split("/")
    node = at.weights
    for key in folders:
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            raise ShapeError(f"param {at.path + name!r}: {key!r} is a weight already: give one of the two another name")
    known = node.setdefault(last, spec)
    if isinstance(known, dict) or (known.shape, known.dtype) != (spec.shape, spec.dtype):
        raise ShapeError(
            f"param {at.path + name!r} is declared as {_written(known)} and as {_written(spec)}: give one "
            "of the two another name"
        )


def _at(weights: dict[str, Any], path: str) -> dict[str, Any]:
    """The weights under `path`; none where the block declared none."""
    for key in path.split("/"):
        weights = weights.get(key, {})
    return weights


def _leaves(weights: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, node in weights.items():
        if isinstance(node, dict):
            yield from _leaves(node, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", node


def _written(spec: Any) -> str:
    return "a group of weights" if isinstance(spec, dict) else f"{spec.dtype}[{','.join(map(str, spec.shape))}]"


def _shapes(tree: Any) -> str:
    import jax

    return str(jax.tree.map(lambda a: _written(jax.typeof(a)), tree)).replace("'", "")
