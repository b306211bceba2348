"""The arguments of a traced call: symbolic dimensions filled in, parameters found and named."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from costtrace import formula
from costtrace.errors import ShapeError, UsageError

_WRAPPERS = ("value", "raw_value")


def _key_name(key: Any) -> str:
    for attribute in ("key", "name"):
        if hasattr(key, attribute):
            name = getattr(key, attribute)
            return f"[{name}]" if isinstance(name, int) else str(name)
    return f"[{key.idx}]"


def path_name(path: tuple[Any, ...]) -> str:
    """'layers[0]/kernel' for a pytree path; wrappers such as flax's `.value` dropped."""
    while path and getattr(path[-1], "name", None) in _WRAPPERS:  # an attribute; a key of that name is the user's
        path = path[:-1]
    return "/".join(map(_key_name, path)).replace("/[", "[")


def filled(args: tuple[Any, ...], dims: Mapping[str, int] | None) -> tuple[Any, ...]:
    """`args` with every symbolic dimension (jax.export) replaced by its value.

    Raises ShapeError where a dimension has no value, UsageError for a value that no dimension uses.
    """
    import jax
    from jax import export

    functions = {
        "floordiv": lambda a, b: a // b,
        "mod": lambda a, b: a % b,
        "max": max,
        "min": min,
        "non_negative": lambda a: max(a, 0),
    }

    symbols: dict[str, None] = {}

    def size(dim: Any) -> int:
        if not export.is_symbolic_dim(dim):
            return dim
        named = [w for w in re.findall(r"[A-Za-z_]\w*", str(dim)) if w not in functions]
        symbols.update(dict.fromkeys(named))
        if absent := [name for name in named if name not in (dims or {})]:
            raise ShapeError(
                f"symbolic dimension {str(dim)!r} has no value: pass dims={{{absent[0]!r}: 8}}, or --dim {absent[0]}=8"
            )
        return int(formula.value(str(dim), functions | dict(dims or {}), f"symbolic dimension {str(dim)!r}"))

    def leaf(x: Any) -> Any:
        shape = getattr(x, "shape", ())
        if any(export.is_symbolic_dim(d) for d in shape):
            return jax.ShapeDtypeStruct(tuple(size(d) for d in shape), x.dtype)
        return x

    out: tuple[Any, ...] = jax.tree.map(leaf, args)
    if unused := [name for name in dims or {} if name not in symbols]:
        known = f"they have {', '.join(symbols)}" if symbols else "they have none"
        raise UsageError(f"dims names {unused[0]!r}, but no argument has such a symbolic dimension: {known}")
    return out


WIDE = ("float64", "complex128")


def wide_types(args: tuple[Any, ...]) -> contextlib.AbstractContextManager[Any]:
    """jax's 64-bit types while open, if an abstract argument is float64: elsewhere jax would narrow it in silence."""
    import jax

    leaves = [x for x in jax.tree.leaves(args) if isinstance(x, jax.ShapeDtypeStruct)]
    return jax.enable_x64(True) if any(str(x.dtype) in WIDE for x in leaves) else contextlib.nullcontext()


def closed_over(
    fn: Callable[..., Any], args: tuple[Any, ...], jit: Mapping[str, Any] | None
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """(function of the arrays alone, `args` with None for the static ones): a number, a text or a function among the
    arguments is a constant of the program, as it is for jax.jit's static arguments."""
    import jax

    inner = jax.jit(fn, **jit) if jit else fn
    leaves = [jax.tree.leaves(a) for a in args]
    static = [bool(found) and not any(hasattr(x, "shape") for x in found) for found in leaves]
    if not any(static):
        return inner, args

    def of_arrays(*given: Any) -> Any:
        return inner(*(a if fixed else g for a, g, fixed in zip(args, given, static, strict=True)))

    return of_arrays, tuple(None if fixed else a for a, fixed in zip(args, static, strict=True))


def sharded(args: tuple[Any, ...]) -> bool:
    """Whether an abstract argument carries a sharding over several devices."""
    import jax

    return any(getattr(getattr(x, "sharding", None), "num_devices", 1) > 1 for x in jax.tree.leaves(args))


def weight_argument(fn: Callable[..., Any], args: tuple[Any, ...], weights: int | str | None) -> int | None:
    """Which positional argument holds the parameters: the one named, else the first if it is a container of arrays.

    Raises UsageError where there is no such argument.
    """
    import jax

    if isinstance(weights, str):
        names = list(inspect.signature(fn).parameters)
        if weights not in names:
            raise UsageError(f"weights={weights!r} names no argument of {name_of(fn)}: it takes {', '.join(names)}")
        weights = names.index(weights)
    if weights is not None:
        if not isinstance(weights, int):
            raise UsageError(f"weights={weights!r}: give one argument, by its position or its name")
        if not -len(args) <= weights < len(args):
            raise UsageError(f"weights={weights} names no argument: there are {len(args)}, counted from 0")
        return weights % len(args)
    if not args or hasattr(args[0], "shape"):
        return None
    leaves = jax.tree.leaves(args[0])
    return 0 if leaves and all(hasattr(x, "shape") for x in leaves) else None


def named_leaves(fn: Callable[..., Any], args: tuple[Any, ...], weights: int | None) -> list[tuple[str, str | None]]:
    """(name, parameter path or None) of every array of `args`, in the order of the jaxpr's inputs."""
    import jax

    try:
        names = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        names = []
    out: list[tuple[str, str | None]] = []
    for i, arg in enumerate(args):
        name = names[i] if i < len(names) else f"arg{i}"
        for path, _ in jax.tree_util.tree_flatten_with_path(arg)[0]:
            inner = path_name(path)
            out.append(("/".join(x for x in (name, inner) if x).replace("/[", "["), inner if i == weights else None))
    return out


def name_of(fn: Callable[..., Any]) -> str:
    """The function's own name, wrappers such as jit and partial looked through."""
    while not hasattr(fn, "__name__"):
        inside = getattr(fn, "func", None) or getattr(fn, "__wrapped__", None)
        if inside is None:
            return type(fn).__name__
        fn = inside
    return fn.__name__
