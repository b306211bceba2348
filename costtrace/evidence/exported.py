"""A jax.export artifact on disk -> an ordinary function and its abstract arguments, without the Python code it was.

Symbolic sizes are filled from `dims`, and the program's dynamic shapes refined with them. A door into jaxlib: the
refined StableHLO becomes HLO text, which target/replay.py makes a function of.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
from jax import export

from costtrace.arguments import filled
from costtrace.core import Note
from costtrace.errors import CosttraceError, PrivateDoorError, UsageError
from costtrace.target import hlo, replay

LOWERED = Note(
    "lowered",
    "",
    "an artifact is read as jax lowered it: products, bytes across edges and scopes are the function's own, "
    "elementwise work is what became of it (a softmax its exponentials and sums, a gelu its polynomial)",
)


def opened(path: str, dims: Mapping[str, int] | None = None) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """(function, abstract arguments) of the artifact in the file at `path`; keyword arguments follow the positional.

    Raises UsageError where the file is no artifact, ShapeError where a symbolic size has no value, TraceError as
    replay does while the function is traced.
    """
    exported = _read(path)
    try:
        return _function(exported, dims)
    except CosttraceError:
        raise
    except Exception as e:  # whatever jax and MLIR meet in an artifact that was cut or changed
        said = next((line.strip() for line in str(e).splitlines() if line.strip()), "")[:200]
        raise UsageError(
            f"{path} is no whole jax.export artifact ({type(e).__name__}: {said}): write it again, for one of its "
            "platforms"
        ) from e


def _function(exported: Any, dims: Mapping[str, int] | None) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in exported.in_avals]
    args, keywords = jax.tree.unflatten(exported.in_tree, list(filled(tuple(specs), dims)))
    program = replay.function(_module(exported, args, keywords))

    def call(*given: Any) -> Any:
        return program(*jax.tree.leaves(given))

    call.__name__ = str(exported.fun_name)
    return call, (*args, *keywords.values())


def _read(path: str) -> Any:
    if not Path(path).is_file():
        raise UsageError(f"no file {path}: give a jax.export artifact, or FILE.py:FUNCTION")
    try:
        return export.deserialize(bytearray(Path(path).read_bytes()))
    except Exception as e:  # noqa: BLE001  # whatever flatbuffers meets in a file of another kind
        said = next(iter(str(e).splitlines()), "") or type(e).__name__
        raise UsageError(
            f"{path} is no jax.export artifact ({said[:80]}): write one with jax.export.export(...)(...).serialize()"
        ) from None


def _module(exported: Any, args: Any, keywords: Any) -> hlo.Module:
    """The artifact's program as HLO, each computation in the order in which jax made it: the text has another, which
    would tear scopes apart."""
    module: Any = jax.jit(exported.call).lower(*args, **keywords).compiler_ir("stablehlo")
    code = io.BytesIO()
    module.operation.write_bytecode(file=code)
    try:
        from jax.extend.mlir import refine_polymorphic_shapes

        hlo_of, jax_of = (importlib.import_module(f"jaxlib.{name}") for name in ("_hlo", "_jax"))
        refined = refine_polymorphic_shapes(
            mlir_module=code.getvalue(), enable_shape_assertions=True, validate_static_shapes=True, enable_shardy=True
        )
        made = jax_of.mlir.mlir_module_to_xla_computation(refined, use_tuple_args=False, return_tuple=False)
        options = hlo_of.HloPrintOptions()
        options.print_large_constants = False
        whole = made.get_hlo_module()
        found = hlo.parsed(str(whole.to_string(options)))
        for computation in whole.computations():
            mine = found.computations[computation.name]
            order = [name for i in computation.instructions() if (name := i.name) in mine.instructions]
            mine.instructions = {name: mine.instructions[name] for name in order}
    except (ImportError, AttributeError, TypeError) as e:
        raise PrivateDoorError(
            f"jaxlib of jax {jax.__version__} has no way from StableHLO to HLO under the names used here ({e}): "
            "mend costtrace/evidence/exported.py or use jax 0.10 to 0.12"
        ) from None
    return found
