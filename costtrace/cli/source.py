"""FILE.py:FUNCTION -> the function, or the module that stands there."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from costtrace import authored
from costtrace.errors import CosttraceError, TraceError, UsageError


def module(place: str) -> ModuleType:
    """The module of a file, or of a dotted name. Raises UsageError where there is none, TraceError where it fails."""
    path = Path(place)
    if place.endswith(".py"):
        if not path.is_file():
            raise UsageError(f"no file {place}: give the path of a Python file, as in model.py:forward")
        if dotted := _inside(path):
            _run(place, functools.partial(importlib.import_module, dotted))
            return sys.modules[dotted]
        name = f"costtrace_source_{path.stem}"
        spec, loader = authored.module_spec(name, path)
        sys.modules[name] = made = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(path.parent.resolve()))
        _run(place, functools.partial(loader.exec_module, made))
        return made
    sys.path.insert(0, "")
    _run(place, functools.partial(importlib.import_module, place))
    return sys.modules[place]


def _inside(path: Path) -> str:
    """The dotted name of a file that lies in a package, whose folder is then importable; "" for one that does not."""
    names, folder = [path.stem], path.resolve().parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    if len(names) == 1:
        return ""
    sys.path.insert(0, str(folder))
    return ".".join(names)


def _run(place: str, load: Callable[[], Any]) -> None:
    try:
        with authored.running():
            load()
    except ModuleNotFoundError as e:
        if e.name and f"{place}.".startswith(f"{e.name}."):
            raise UsageError(f"no module {place}: give FILE.py:FUNCTION, or MODULE:FUNCTION") from None
        raise TraceError(f"{place} failed while it was loaded: {e}: install it, or mend the file") from e
    except Exception as e:  # the user's file may raise anything
        said = str(e).partition("\n")[0]
        raise TraceError(f"{place} failed while it was loaded: {type(e).__name__}: {said}: mend the file") from e


def function(target: str) -> tuple[Callable[..., Any], ModuleType]:
    """(the function, its module) of FILE.py:FUNCTION or MODULE:FUNCTION; a flax or equinox module or a haiku transform
    may stand for a function. Raises UsageError and TraceError."""
    place, colon, name = target.rpartition(":")
    if not colon and _is_path(target) and not Path(target).is_file():
        raise UsageError(f"no file {target}: give FILE.py:FUNCTION, a jax.export artifact or an HLO dump")
    if not colon or not name:
        raise UsageError(f"{target}: name the function too, as in {target.rstrip(':')}:forward")
    found = module(place)
    return member(found, place, name), found


def _is_path(target: str) -> bool:
    """True for model.py, runs/a and a.bin; False for a dotted name that starts at a package."""
    first = target.partition(".")[0]
    return "/" in target or (first != target and (target.endswith(".py") or importlib.util.find_spec(first) is None))


def arguments(found: ModuleType, target: str, maker: str) -> tuple[Any, ...]:
    """The arguments that the function `maker` of the file gives, as --args has it. Raises UsageError where it takes
    arguments itself, TraceError where it fails."""
    place = target.rpartition(":")[0]
    made = member(found, place, maker)
    try:
        taken = inspect.signature(made)
    except (TypeError, ValueError):
        taken = inspect.Signature()
    try:
        taken.bind()
    except TypeError:
        raise UsageError(f"--args {maker}: it takes {taken}, so it cannot make the arguments of {target}: "
                         "write one that takes none and returns their tuple") from None  # fmt: skip
    try:
        with authored.running():
            out = made()
    except CosttraceError:
        raise
    except Exception as e:  # the user's function may raise anything
        file = getattr(getattr(made, "__code__", None), "co_filename", "")
        own = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == file]
        said = str(e).partition("\n")[0]
        at = f"{place}:{own[-1]}" if own else place
        raise TraceError(f"--args {maker} failed at {at}: {type(e).__name__}: {said}: mend it there") from e
    return out if isinstance(out, tuple) else (out,)


def fits(fn: Callable[..., Any], args: tuple[Any, ...], target: str, maker: str, weights_first: bool) -> None:
    """Raises UsageError where a function or module cannot take what --args gave, with what it takes."""
    from costtrace.module.call import signature

    taken = signature(fn)
    try:
        if taken is not None:
            taken.bind(*([None] if weights_first else []), *args)
    except TypeError as e:
        raise UsageError(
            f"{target}: {e}: it takes {taken}, --args {maker} gives {len(args)}: mend one of them"
        ) from None


def exported(target: str) -> bool:
    """True where the file holds a jax.export artifact, which has StableHLO's bytecode in it; an HLO dump has not."""
    return Path(target).is_file() and b"StableHLO_v" in Path(target).read_bytes()


def artifact(target: str) -> bool:
    """True where the target is a file that is no Python: a jax.export artifact, or meant to be one."""
    return ":" not in Path(target).name and not target.endswith(".py") and Path(target).is_file()


def member(found: ModuleType, place: str, name: str) -> Callable[..., Any]:
    """The function of that name (dots reach into classes). Raises UsageError where there is none."""
    at: Any = found
    for part in name.split("."):
        if not hasattr(at, part):
            callables = [key for key, value in vars(at).items() if callable(value) and not key.startswith("_")]
            near = difflib.get_close_matches(part, callables, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(callables[:8]) or 'none'}"
            raise UsageError(f"{place} has no function {name!r}: {hint}")
        at = getattr(at, part)
    if not callable(at) and not hasattr(at, "apply"):  # a haiku transform is a pair of functions
        raise UsageError(f"{place}: {name} is a {type(at).__name__}, not a function")
    made: Callable[..., Any] = at
    return made
