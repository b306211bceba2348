"""Any target and its arguments -> an ordinary function of arrays: `opened`. A constructor -> its module: `constructed`.

The two tables are the only place that knows which libraries there are: one more is a file beside this one and a row.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from costtrace.arguments import name_of
from costtrace.errors import UsageError
from costtrace.module import equinox, haiku, linen, nnx
from costtrace.module.inputs import Inputs, array, arrays
from costtrace.module.naming import named, unmarked
from costtrace.module.parts import Parts, shaped

INITIALISED: tuple[Any, ...] = (linen, haiku)
"""Libraries whose weights come from an abstract init on the call's arguments."""
HOLDING: tuple[Any, ...] = (nnx, equinox)
"""Libraries whose modules hold their weights: these may be arguments too."""
SEEDS = {"rngs", "key"}
"""Parameters that a constructor may ask for."""


def library(x: Any) -> Any:
    """The file of this folder that a module belongs to, else None."""
    return next((lib for lib in (*INITIALISED, *HOLDING) if lib.owns(x)), None)


def opened(
    fn: Any, args: tuple[Any, ...], keywords: Mapping[str, Any] | None = None
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """(an ordinary function, its abstract arguments): of a module fn(weights, state, *args), state left out where there
    is none; likewise of a function that is handed one. A function of arrays comes back as it is.

    fn: a function; a flax.linen, nnx or equinox module, a method of one, its class, or a function that makes one; a
    haiku transform; a functools.partial of any. What is no array among the arguments (a flag, a config, a function) is
    fixed while tracing; a number too, but for a plain function without `keywords`, as jax has it.
    Raises TraceError where a constructor or an init fails, UsageError for what cannot be called.
    """
    fn = constructed(fn, args, keywords)
    target, method, given, fixed = _target(fn, args, dict(keywords or {}))
    owner = library(target)
    if owner is None and not callable(target):
        raise UsageError(f"a {type(target).__name__} cannot be traced: give a function, a module or a haiku transform")
    if _class(target):
        wants = ", ".join(sorted((_asked(fn) or set()) - SEEDS))
        raise UsageError(
            f"{target.__name__} needs {wants} to be made: give a function that makes it, or functools.partial"
        )
    inputs = Inputs(given, fixed, _parts)
    plain = owner is None and not inputs.weights
    if plain and (_traceable(args) if keywords is None else not keywords and inputs.all_arrays):
        return fn, args
    if owner in INITIALISED:
        own = owner.opened(target, method, given, fixed)
    else:
        own = None if owner is None else owner.parts(target)
    return _function(target, method, own, inputs)


def _parts(x: Any) -> Parts | None:
    owner = library(x)
    return owner.parts(x) if owner in HOLDING else None


def _target(
    fn: Any, args: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[Any, str, tuple[Any, ...], dict[str, Any]]:
    """(module or function inside, method, all arguments, all keywords): partials and bound methods looked through."""
    while isinstance(fn, functools.partial):
        fn, args, keywords = fn.func, (*fn.args, *args), {**fn.keywords, **keywords}
    owner = getattr(fn, "__self__", None)
    if owner is not None and library(owner) is not None and not isinstance(owner, type):
        return owner, fn.__name__, args, keywords
    return fn, "__call__", args, keywords


def _traceable(args: tuple[Any, ...]) -> bool:
    import jax

    return all(array(x) or isinstance(x, bool | int | float | complex) for x in jax.tree.leaves(args))


def _function(target: Any, method: str, own: Parts | None, inputs: Inputs) -> tuple[Any, tuple[Any, ...]]:
    import jax

    groups = ({"": own.weights} if own is not None else {}) | inputs.weights
    whole = next(iter(groups.values())) if len(groups) == 1 else groups
    stateful = own is not None and bool(jax.tree.leaves(own.state))
    marks = library(target) in HOLDING or inputs.holds_modules

    def call(*arguments: Any) -> Any:
        try:
            return attempt(*arguments)
        except Exception:  # an author's code may raise anything, and may not like the marks
            if not marks:
                raise
        with unmarked():
            return attempt(*arguments)

    def attempt(*arguments: Any) -> Any:
        left = list(arguments)
        weights = left.pop(0) if groups else {}
        split = dict(zip(groups, [weights], strict=True)) if len(groups) == 1 else weights
        state = left.pop(0) if stateful else own.state if own is not None else None
        args, keywords = inputs.joined(tuple(left), split)
        changed: list[Any] = []
        with _scopes(inputs):
            if own is None:
                out = target(*args, **keywords)
            else:
                out, changed = own.run(split[""], state, method, args, keywords)
        changes = [parts.changed(module, before) for parts, module, before in inputs.built]
        return arrays(out), changed, changes

    first = [("params", whole)] * bool(groups) + ([("state", own.state)] if stateful and own is not None else [])
    names = [*(name for name, _ in first), *_names(target, method, inputs)]
    call.__name__ = _label(target, method)
    kind = inspect.Parameter.POSITIONAL_ONLY
    call.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
    return call, (*(tree for _, tree in first), *inputs.values)


@contextlib.contextmanager
def _scopes(inputs: Inputs) -> Iterator[None]:
    """Scopes by the tree of each module among the arguments."""
    with contextlib.ExitStack() as stack:
        for lib in HOLDING:
            roots = [module for _, module, _ in inputs.built if lib.owns(module)]
            if roots:
                stack.enter_context(named(roots, lib.tree()))
        yield


def _label(target: Any, method: str) -> str:
    if library(target) is None:
        return name_of(target)
    if haiku.owns(target):
        return name_of(haiku.function(target) or target)
    return type(target).__name__ + ("" if method == "__call__" else f".{method}")


def _names(target: Any, method: str, inputs: Inputs) -> list[str]:
    """The arguments' names as the target's signature has them, each once."""
    taken = signature(target if method == "__call__" else getattr(target, method))
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [n for n, p in taken.parameters.items() if p.kind in positional] if taken else []
    names = [known[i] if i < len(known) else f"arg{i}" for i in range(inputs.count)] + inputs.names
    return [f"{n}_" if n in ("params", "state") or not n.isidentifier() else n for n in names]


def constructed(fn: Any, args: tuple[Any, ...] = (), keywords: Mapping[str, Any] | None = None) -> Any:
    """The module that a constructor makes, its arrays abstract; anything else as it is.

    A constructor: a class of modules, a partial of one, or a function that asks for nothing but `rngs` or `key`
    and returns a module or a haiku transform. Raises TraceError where it fails.
    """
    inner = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    is_class = _class(inner)
    if not (is_class or inspect.isfunction(inner)) or library(fn) is not None:
        return fn
    asked = _asked(fn)
    if asked is None or not asked <= SEEDS or not (is_class or asked or _refuses(fn, args)):
        return fn
    made: list[Any] = []

    def make() -> Any:
        seeds = {name: seed for lib in HOLDING for name, seed in lib.seeds().items() if name in asked}
        return fn(**seeds)

    def look() -> None:
        module = make()
        made.append((library(module), module if library(module) in INITIALISED else None))

    look.__name__ = name_of(inner)
    shaped(look, ())
    lib, module = made[0]
    if lib is None:
        return fn
    return module if lib in INITIALISED else lib.abstract(make)


def _refuses(fn: Any, args: tuple[Any, ...]) -> bool:
    """True where there are arguments and the function cannot take them: it makes what can."""
    try:
        inspect.signature(fn).bind(*args)
    except TypeError:
        return True
    return False


def _class(x: Any) -> bool:
    return isinstance(x, type) and any(lib.constructs(x) for lib in (linen, *HOLDING))


def signature(fn: Any) -> inspect.Signature | None:
    """What a function, module or transform takes of its caller; None where Python does not say."""
    at = haiku.function(fn) if haiku.owns(fn) else fn
    try:
        return None if at is None else inspect.signature(at)
    except (TypeError, ValueError):
        return None


def _asked(fn: Any) -> set[str] | None:
    """The parameters without a default, and `rngs` and `key` where they stand; None where there is no signature.

    A class is asked through its __init__: the metaclasses of nnx and equinox hide its signature.
    """
    bound: list[Any] = []
    named: dict[str, Any] = {}
    while isinstance(fn, functools.partial):
        bound, named, fn = [*fn.args, *bound], {**fn.keywords, **named}, fn.func
    try:
        asked: Any = getattr(fn, "__init__") if isinstance(fn, type) else fn  # noqa: B009  # mypy reads it otherwise
        parameters = list(inspect.signature(asked).parameters.values())
    except (TypeError, ValueError):
        return None
    single = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    left = [p for p in single[len(bound) + isinstance(fn, type) :] if p.name not in named]
    return {p.name for p in left if p.default is p.empty or (p.name in SEEDS and p.default is None)}
