"""A jax.export artifact on disk -> an ordinary function and its abstract arguments, without the Python code it was.

Symbolic sizes are filled from `dims`, and the program's dynamic shapes refined with them. A door into jaxlib: the
refined StableHLO becomes HLO text, which target/replay.py makes a function of.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
from jax import export

from costtrace.arguments import filled
from costtrace.core import Note
from costtrace.errors import CosttraceError, PrivateDoorError, UsageError
from costtrace.target import hlo, location, replay
from costtrace.target.opname import scope_of

LOWERED = (
    "an artifact is read as jax lowered it: {products}, bytes across edges and scopes are the function's own, "
    "elementwise work is what became of it (a softmax its exponentials and sums, a gelu its polynomial); neighbouring "
    "scopes of one name are one"
)
PASSES = "builtin.module(inline, stablehlo-refine-shapes, func.func(stablehlo-canonicalize-dynamism))"
RAGGED = re.compile(r'loc\("([^"]*ragged_dot_general)"')


def opened(path: str, dims: Mapping[str, int] | None = None) -> tuple[Callable[..., Any], tuple[Any, ...], list[Note]]:
    """(function, abstract arguments, notes) of the artifact at `path`; keyword arguments follow the positional.

    Raises UsageError where the file is no artifact, ShapeError where a symbolic size has no value, TraceError as
    replay does while the function is traced.
    """
    exported = _read(path)
    try:
        return _function(path, exported, dims)
    except CosttraceError:
        raise
    except Exception as e:  # whatever jax and MLIR meet in an artifact that was cut or changed
        said = next((line.strip() for line in str(e).splitlines() if line.strip()), "")[:200]
        raise UsageError(
            f"{path} is no whole jax.export artifact ({type(e).__name__}: {said}): write it again, for one of its "
            "platforms"
        ) from e


def _function(
    path: str, exported: Any, dims: Mapping[str, int] | None
) -> tuple[Callable[..., Any], tuple[Any, ...], list[Note]]:
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in exported.in_avals]
    args, keywords = jax.tree.unflatten(exported.in_tree, list(filled(tuple(specs), dims)))
    module = _lowered(path, exported, args, keywords)
    read = _module(module, _symbolic(exported))
    program = replay.function(read)

    def call(*given: Any) -> Any:
        return program(*jax.tree.leaves(given))

    call.__name__ = str(exported.fun_name)
    return call, (*args, *keywords.values()), _notes(module, read, exported.platforms[0])


def _notes(module: Any, read: hlo.Module, platform: str) -> list[Note]:
    """That the program is lowered, and which of its ragged products became dense ones: all that is left of what they
    were is in the locations of their constants."""
    kept = any(i.opcode == "ragged-dot" for computation in read.computations.values() for i in computation)
    text = "" if kept else module.operation.get_asm(enable_debug_info=True, large_elements_limit=16)
    scopes = dict.fromkeys(scope_of(name) for name in RAGGED.findall(text))
    said = (
        f"ragged products (ragged_dot) were made dense for {platform}: FLOPs are those of every row with every group, "
        "as many times the function's own as there are groups; export for tpu or cuda, which keep them"
    )
    products = "products but for ragged ones" if scopes else "products"
    return [Note("lowered", "", LOWERED.format(products=products)), *(Note("dense", scope, said) for scope in scopes)]


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


def _lowered(path: str, exported: Any, args: Any, keywords: Any) -> Any:
    """The artifact's StableHLO for its first platform, which need not be here. Raises UsageError."""
    if exported.nr_devices > 1:
        raise UsageError(
            f"{path} is a program of {exported.nr_devices} devices: export it for one (--chips says what several do)"
        )
    if said := _damage(exported):
        raise UsageError(f"{path} is damaged: {said}: export it again")
    try:
        traced = jax.jit(exported.call).trace(*args, **keywords)
        return traced.lower(lowering_platforms=exported.platforms[:1]).compiler_ir("stablehlo")
    except (ValueError, TypeError, NotImplementedError) as e:
        said = next(iter(str(e).splitlines()), "").partition("Using the following")[0].strip().rstrip(".")
        raise UsageError(f"{path} cannot be called with these sizes: {said}: mend --dim") from e


def _damage(exported: Any) -> str:
    """What is wrong with the program's bytes; '' where nothing is. (jax would print it, and say little itself.)"""
    said: list[str] = []

    def heard(found: Any) -> bool:
        with contextlib.suppress(RuntimeError, UnicodeDecodeError):  # it may quote the damaged bytes
            said.append("".join(c for c in found.message if c.isprintable())[:80])
        return True

    try:
        stablehlo = importlib.import_module("jaxlib.mlir.dialects.stablehlo")
        context = importlib.import_module("jax._src.interpreters.mlir").make_ir_context()
        context.attach_diagnostic_handler(heard)
        stablehlo.deserialize_portable_artifact(context, exported.mlir_module_serialized)
    except ValueError as e:
        return next(iter(said), str(e))
    except (ImportError, AttributeError, TypeError):
        return ""  # a jaxlib with other names: the lowering says it in its own words
    return ""


def _module(module: Any, symbolic: bool) -> hlo.Module:
    """A program as HLO, each computation in the order in which jax made it: the text has another, which would tear
    scopes apart."""
    try:
        hlo_of, jax_of = (importlib.import_module(f"jaxlib.{name}") for name in ("_hlo", "_jax"))
        code = _fixed(module) if symbolic else _bytes(module)
        made = jax_of.mlir.mlir_module_to_xla_computation(code, use_tuple_args=False, return_tuple=False)
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


def _symbolic(exported: Any) -> bool:
    return any(export.is_symbolic_dim(d) for a in (*exported.in_avals, *exported.out_avals) for d in a.shape)


def _bytes(module: Any) -> bytes:
    code = io.BytesIO()
    module.operation.write_bytecode(file=code)
    return code.getvalue()


def _fixed(module: Any) -> bytes:
    """The program with every size a number. It has no calls left: an operation's place in its caller is in its location
    only, of which HLO keeps a name. Where sizes are computed by nested functions, only jaxlib's own way does it, which
    makes equal operations one."""
    from jax.extend.mlir import refine_polymorphic_shapes

    stablehlo, passmanager = (
        importlib.import_module(f"jaxlib.mlir.{n}") for n in ("dialects.stablehlo", "passmanager")
    )
    ir = importlib.import_module("jaxlib.mlir.ir")
    stablehlo.register_stablehlo_passes()
    before = _bytes(module)
    with module.context:
        try:
            passmanager.PassManager.parse(PASSES).run(module.operation)
        except ir.MLIRError:
            module = type(module).parse(
                refine_polymorphic_shapes(
                    before, enable_shape_assertions=True, validate_static_shapes=True, enable_shardy=True
                )
            )
        text = module.operation.get_asm(enable_debug_info=True)
        return _bytes(type(module).parse(location.flat(text)))
