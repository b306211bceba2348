"""A model is its forward function: weights declared by use, blocks repeated by stack(), options from a dataclass.

All that a spec in models_spec/ imports, and how a spec is found and configured. Imports no jax, no spec before find().

    def forward(x):                                       # (batch, tokens, 64)
        with scope("embed"):
            x = x @ param("embed", (64, 256))             # declares the weight "embed"
        return stack(12, block, x, name="block")          # twelve blocks, each with weights of its own

    def stages(config):
        return [Stage("forward", forward, (jax.ShapeDtypeStruct((config.batch, 77, 64), "bfloat16"),))]

    MODEL = Model("mine", Config, stages)                 # Config: a frozen dataclass of option()s

    fn, args = bind(stages(MODEL.configure(batch=2))[0])
    costtrace.profile(fn, *args, weights=0)               # fn(params, x) is an ordinary JAX function
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import importlib
import importlib.util
import inspect
import sys
import traceback
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costtrace import authored
from costtrace.errors import CosttraceError, UsageError
from costtrace.option import DTYPE as DTYPE
from costtrace.option import Size as Size
from costtrace.option import choice as choice
from costtrace.option import configure, options
from costtrace.option import option as option
from costtrace.option import scale as scale
from costtrace.option import scaled as scaled
from costtrace.option import size as size
from costtrace.weight import Stage as Stage
from costtrace.weight import bind as bind
from costtrace.weight import param as param
from costtrace.weight import parameters as parameters
from costtrace.weight import scope as scope
from costtrace.weight import stack as stack

GROUP = "costtrace.models"
"""The entry point group in which an installed package offers models: `name = "package.module:MODEL"`."""


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

    def shown(self, config: Any) -> dict[str, Any]:
        """{name: value} of the options, quiet ones only where they are not the default, then of the config's
        properties: numbers that follow from them."""
        follow = [name for name, value in vars(self.config).items() if isinstance(value, property)]
        known = {name: field for name, field in self.options().items()
                 if not field.metadata.get("quiet") or getattr(config, name) != field.default}  # fmt: skip
        return {name: getattr(config, name) for name in (*known, *follow)}

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


CLAIMS = "_claims"
"""models_spec/NAME_claims.py holds what others say of models_spec/NAME.py."""


@dataclass(frozen=True)
class Listed:
    """A model as its source tells, without running it: one line, and its options with their defaults as written."""

    title: str
    options: dict[str, str]


def names() -> dict[str, str]:
    """{name: one line} of every model that find() knows by name; imports none of them."""
    own = {path.stem: _read(path).title for path in _specs()}
    return {name: f"from {entry.value}" for name, entry in sorted(_offered().items())} | own


def listed() -> dict[str, Listed]:
    """The same with their options; imports none, but for the package that an installed one lies in."""
    return {name: _offer(entry) for name, entry in _offered().items()} | {path.stem: _read(path) for path in _specs()}


def _specs() -> list[Path]:
    return [path for path in sorted(folder().glob("*.py")) if not path.stem.startswith("_")
            and not path.stem.endswith(CLAIMS)]  # fmt: skip


def _offer(entry: Any) -> Listed:
    try:
        spec = importlib.util.find_spec(entry.module)
        return _read(Path(spec.origin or "")) if spec else Listed(f"from {entry.value}: no such module", {})
    except Exception as e:  # noqa: BLE001  # a package may raise anything
        return Listed(f"from {entry.value}: {type(e).__name__}: {_first(e)}", {})


def _read(path: Path) -> Listed:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    fields = [field for each in tree.body if isinstance(each, ast.ClassDef) for field in each.body]
    found = {}
    for field in fields:
        if isinstance(field, ast.AnnAssign) and isinstance(field.value, ast.Call):
            made, name = ast.unparse(field.value.func).rpartition(".")[2], ast.unparse(field.target)
            if made == "option" and field.value.args:
                default = field.value.args[0]
                found[name] = str(default.value) if isinstance(default, ast.Constant) else ast.unparse(default)
            elif made == "scale":
                found[name] = "1"
    return Listed((ast.get_docstring(tree) or "").partition("\n")[0], found)


def find(name: str) -> Model:
    """The model called `name`, or the MODEL of the file at the path `name` ("./mymodel.py").

    Raises UsageError where there is none, or where the file does not load.
    """
    if name.endswith(".py") or "/" in name or "\\" in name:
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"no file {path}: give the path of a Python file with a MODEL in it")
        return _model(_loaded(lambda: _module(path), name), name)
    if name.isidentifier() and (folder() / f"{name}.py").is_file():
        return _model(importlib.import_module(f"costtrace.models_spec.{name}"), name)
    if entry := _offered().get(name):
        return _model(_loaded(entry.load, f"{name} ({entry.value})"), name)
    file, function, _ = name.partition(".py:")
    if function:
        raise UsageError(
            f"{name} names a function, and this takes a model: put a MODEL around it in {file}.py "
            f"(docs/add-a-model.md) and give {file}.py; check and diff take its saved JSON too"
        )
    there = f"there are {', '.join(names())}; or give the path of a file with a MODEL, as ./mine.py"
    if meant := near(name, names()):
        raise UsageError(f"no model {name!r}: did you mean {meant}? {there[0].upper()}{there[1:]}")
    raise UsageError(f"no model {name!r}: {there}")


def near(name: str, known: Iterable[str]) -> str:
    """What somebody who wrote `name` meant: the file of that name, or the nearest of `known`; "" for neither."""
    beside = f"{name}.py"
    return f"./{beside}" if Path(beside).is_file() else next(iter(difflib.get_close_matches(name, known, 1)), "")


def _model(found: Any, place: str) -> Model:
    model = getattr(found, "MODEL", found)
    if not isinstance(model, Model):
        raise UsageError(f"{place} has no MODEL: end it with MODEL = Model(name, config, stages)")
    _checked_config(model.config, place)
    title = model.title or ("" if model is found else (found.__doc__ or "").partition("\n")[0])
    return dataclasses.replace(model, title=title, stages=_checked(model.stages, place))


def _checked_config(config: Any, place: str) -> None:
    """Raises UsageError, with the line, where a config is no dataclass of option()s."""
    try:
        written, first = inspect.getsourcelines(config)
    except (OSError, TypeError):
        written, first = [], 0
    if not isinstance(config, type) or not dataclasses.is_dataclass(config):
        name = getattr(config, "__name__", repr(config))
        at = f"{place}:{first}" if first else place
        raise UsageError(f"{at}: {name} is no dataclass: write @dataclass(frozen=True) above class {name}")
    for name, field in options(config).items():
        if "help" not in field.metadata:
            line = next((k for k, text in enumerate(written, first) if text.strip().startswith(f"{name}:")), first)
            default = "DEFAULT" if field.default is dataclasses.MISSING else repr(field.default)
            raise UsageError(f"{place}:{line}: the field {name!r} is no option: write {name}: ... = option({default}, "
                             "help=\"...\")")  # fmt: skip


def _checked(stages: Callable[[Any], list[Stage]], place: str) -> Callable[[Any], list[Stage]]:
    """`stages`, which then raises UsageError, with the line, where it fails or gives something else."""

    @functools.wraps(stages)
    def checked(config: Any) -> list[Stage]:
        try:
            with authored.running():
                made = stages(config)
        except CosttraceError:
            raise
        except Exception as e:  # a spec may raise anything
            raise UsageError(f"{_at(e, place)}: stages() failed: {type(e).__name__}: {_first(e)}: mend it there") from e
        if isinstance(made, list | tuple) and made and all(isinstance(stage, Stage) for stage in made):
            return list(made)
        code = getattr(stages, "__code__", None)
        at = f"{place}:{code.co_firstlineno}" if code else place
        what = f"a {type(made).__name__}" if not isinstance(made, list | tuple) else f"a list of {len(made)} things"
        raise UsageError(f'{at}: stages() returns {what}: return a list of Stages, as in [Stage("forward", ...)]')

    return checked


def _loaded(load: Callable[[], Any], place: str) -> Any:
    """What `load` gives. Raises UsageError where the author's code fails, with its line."""
    try:
        with authored.running():
            return load()
    except Exception as e:  # a spec may raise anything
        raise UsageError(
            f"{_at(e, place)} failed while it was loaded: {type(e).__name__}: {_first(e)}: mend it there"
        ) from e


def _at(e: Exception, place: str) -> str:
    """file:line of an author's failure; the file alone where no line of it is known."""
    if isinstance(e, SyntaxError):
        line = e.lineno
    else:
        own = [f.lineno for f in traceback.extract_tb(e.__traceback__) if Path(f.filename) == Path(place).resolve()]
        line = own[-1] if own else None
    return f"{place}:{line}" if line else place


def _first(e: Exception) -> str:
    return str(e).partition("\n")[0]


def _module(path: Path) -> types.ModuleType:
    """The module in a file, which may import what lies beside it."""
    beside = str(path.parent.resolve())
    if beside not in sys.path:
        sys.path.insert(0, beside)
    name = f"costtrace_model_{path.stem}"
    spec, loader = authored.module_spec(name, path.resolve())
    sys.modules[name] = module = importlib.util.module_from_spec(spec)  # dataclasses look their module up there
    loader.exec_module(module)
    return module


def _specs_importable() -> None:
    """In a checkout that nobody installed, models_spec/ becomes costtrace.models_spec, its name everywhere else."""
    if importlib.util.find_spec("costtrace.models_spec") is None:
        package = types.ModuleType("costtrace.models_spec")
        package.__path__ = [str(folder())]
        sys.modules[package.__name__] = package


_specs_importable()
