"""A model is its forward function: weights declared by use, blocks repeated by stack(), options from a dataclass.

Owns how a spec is written, found, configured and bound to abstract weights; knows nothing of costs or chips.

    def forward(x):                                       # (batch, tokens, 64)
        with scope("embed"):
            x = x @ param("embed", (64, 256))             # declares the weight "embed"
        return stack(12, block, x, name="block")          # twelve blocks, each with weights of its own

    fn, args = bind(Stage("forward", forward, (jax.ShapeDtypeStruct((1, 77, 64), "bfloat16"),)))
    costtrace.profile(fn, *args, weights=0)               # fn(params, x) is an ordinary JAX function
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import functools
import importlib
import importlib.util
import inspect
import itertools
import math
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costtrace.errors import ShapeError, TraceError, UsageError
from costtrace.option import DTYPE as DTYPE
from costtrace.option import Size as Size
from costtrace.option import choice as choice
from costtrace.option import configure, options
from costtrace.option import option as option
from costtrace.option import size as size

GROUP = "costtrace.models"
"""The entry point group in which an installed package offers models: `name = "package.module:MODEL"`."""


# Weights by use -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """One program of a model, run `calls` times for one result.

    args: pytrees of jax.ShapeDtypeStruct for `forward`. dtype: of every param() that names none. depth: how deep the
    default table shows this stage's scopes.
    """

    name: str
    forward: Callable[..., Any]
    args: tuple[Any, ...]
    calls: int = 1
    dtype: str = "bfloat16"
    depth: int = 1


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
    from jax.extend.core import get_opaque_trace_state

    at = _current(f"param({name!r})")
    spec = jax.ShapeDtypeStruct(tuple(shape), dtype or at.dtype)
    if at.declares:
        if at.number is None and at.outside != get_opaque_trace_state():
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
    """(fn, (params, *stage.args)): an ordinary JAX function and the abstract arguments that it takes.

    params: nested dict of ShapeDtypeStruct, in the order of declaration. unroll: every block of a stack on its own,
    for a compiler or count that should see all of them; the numbers stay the same.
    Raises TraceError where the forward function fails, ShapeError and UsageError as param() and stack() do.
    """
    from jax.extend.core import get_opaque_trace_state

    from costtrace.trace import jaxpr_of

    params: dict[str, Any] = {}
    apart = False

    def forward(weights: dict[str, Any], declares: bool, args: tuple[Any, ...]) -> Any:
        number = next(_numbers) if apart else None
        with _Pass(weights, "", declares, unroll, stage.dtype, number, get_opaque_trace_state()).running():
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
    return fn, (params, *stage.args)


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

    return str(jax.tree.map(_written, tree)).replace("'", "")


# Where models are found -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """A named pipeline: `stages(config)` for a config that is a frozen dataclass of option()s.

    title: one line; by default the first of the spec's docstring.
    """

    name: str
    config: type[Any]
    stages: Callable[[Any], list[Stage]]
    title: str = ""

    def options(self) -> dict[str, dataclasses.Field[Any]]:
        """{name: field}; `field.default`, and `field.metadata` with `help`, `parse` and `metavar`."""
        return options(self.config)

    def configure(self, **values: Any) -> Any:
        """The config with `values`, as text or as what their option's parse gives; None leaves the default.

        Raises UsageError or ShapeError, one line that names the option, the value and the fix.
        """
        return configure(self.config, values, self.name)


def folder() -> Path:
    """Where costtrace's own specs lie: models_spec/ in the package once installed, beside it in a checkout."""
    inside = Path(__file__).parent / "models_spec"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "models_spec"


def _offered() -> dict[str, Any]:
    from importlib import metadata

    return {entry.name: entry for entry in metadata.entry_points(group=GROUP)}


def names() -> dict[str, str]:
    """{name: one line} of every model that find() knows by name; imports none of them."""
    own = {path.stem: _title(path) for path in sorted(folder().glob("*.py")) if not path.stem.startswith("_")}
    return {name: f"from {entry.value}" for name, entry in sorted(_offered().items())} | own


def _title(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def find(name: str) -> Model:
    """The model called `name`, or the MODEL of the file at the path `name` ("./mymodel.py").

    Raises UsageError where there is none, or where the file does not load.
    """
    if name.endswith(".py") or "/" in name or "\\" in name:
        return _model(_loaded(Path(name)), name)
    if name.isidentifier() and (folder() / f"{name}.py").is_file():
        return _model(importlib.import_module(f"costtrace.models_spec.{name}"), name)
    if entry := _offered().get(name):
        return _model(entry.load(), name)
    near = difflib.get_close_matches(name, names(), 1)
    raise UsageError(
        f"no model {name!r}"
        + (f": did you mean {near[0]!r}?" if near else "")
        + f" Models: {', '.join(names())}; or the path of a file, ./{name}.py"
    )


def _model(found: Any, name: str) -> Model:
    model = getattr(found, "MODEL", found)
    if not isinstance(model, Model):
        raise UsageError(f"{name} has no MODEL: end it with MODEL = Model(name, config, stages)")
    return model if model.title else dataclasses.replace(model, title=(found.__doc__ or "").partition("\n")[0])


def _loaded(path: Path) -> types.ModuleType:
    """The module in the file, found by its dataclasses under a name of its own; its folder can be imported from."""
    if not path.is_file():
        raise UsageError(f"no file {path}: give the path of a Python file with a MODEL in it")
    name = f"costtrace_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    beside = str(path.parent.resolve())
    if beside not in sys.path:
        sys.path.insert(0, beside)
    try:
        spec.loader.exec_module(module)
    except Exception as e:  # the user's file may raise anything
        del sys.modules[name]
        raise TraceError(
            f"{path} failed while it was loaded: {type(e).__name__}: {str(e).partition(chr(10))[0]}: mend the file"
        ) from e
    return module


def _specs_importable() -> None:
    """In a checkout that nobody installed, models_spec/ becomes costtrace.models_spec, its name everywhere else."""
    if importlib.util.find_spec("costtrace.models_spec") is None:
        package = types.ModuleType("costtrace.models_spec")
        package.__path__ = [str(folder())]
        sys.modules[package.__name__] = package


_specs_importable()
