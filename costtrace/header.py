"""A checkpoint's header -> abstract weights: of safetensors, a file or an index, or of an orbax folder.

No tensor is read.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from costtrace import checkpoint
from costtrace.arguments import path_name
from costtrace.checkpoint import Tensor
from costtrace.errors import ShapeError, UsageError

DTYPES = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
          "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
          "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
          "F4": "float4_e2m1fn", "F6_E2M3": "float6_e2m3fn", "F6_E3M2": "float6_e3m2fn"}  # fmt: skip
"""A safetensors dtype -> numpy's or ml_dtypes' name for it."""
NAMES = {name: short for short, name in DTYPES.items()}
SHOWN = 20


def tensors(path: str) -> dict[str, Tensor]:
    """{name: Tensor} of a checkpoint. Raises UsageError for what is neither a safetensors file nor an orbax folder."""
    if not Path(path).is_dir():
        return checkpoint.read(path)
    return {name: _tensor(name, leaf) for name, leaf in _orbax_leaves(_orbax(path))}


def weights(path: str) -> Any:
    """The weights as a function would be given them, abstract: orbax's own tree; of safetensors a dict by name, in
    groups where its names are paths with "/". Raises UsageError as `tensors` does."""
    import jax

    if Path(path).is_dir():
        return jax.tree.map(lambda m: jax.ShapeDtypeStruct(m.shape, m.dtype), _orbax(path), is_leaf=_is_array)
    return _grouped({name: _abstract(t) for name, t in tensors(path).items()}, "/")


def split(flat: Mapping[str, Any]) -> Any:
    """{"layers.0.w": x} as {"layers": {"0": {"w": x}}}."""
    return _grouped(flat, ".")


def fitted(path: str, tree: Any, of: str) -> Any:
    """`tree` (a module's abstract weights) with the checkpoint's dtypes. Names need not be spelled alike: see
    checkpoint.compare. Raises Contradiction where the file lacks a weight or has it in another shape."""
    import jax

    held = tensors(path)
    leaves, definition = jax.tree_util.tree_flatten_with_path(tree)
    wanted = {path_name(at).replace("[", "/").replace("]", ""): leaf for at, leaf in leaves}
    found = checkpoint.compare(path, held, of, {name: tuple(leaf.shape) for name, leaf in wanted.items()})
    rows = [(name, _shape(shape), other, _shape(its)) for name, shape, other, its in found.unlike]
    known = {*found.matched, *(row[0] for row in rows)}
    rows += [(name, _shape(leaf.shape), "-", "not there") for name, leaf in wanted.items() if name not in known]
    if rows:
        raise Contradiction(path, of, rows, len(wanted))
    dtypes = [DTYPES[held[found.matched[name][0]].dtype] for name in wanted]
    return jax.tree.unflatten(
        definition, [jax.ShapeDtypeStruct(leaf.shape, dtype) for (_, leaf), dtype in zip(leaves, dtypes, strict=True)]
    )


class Contradiction(ShapeError):
    """A checkpoint that does not fit: one line, and `table`, every difference as
    (weight, its shape, name in the file, shape in the file)."""

    def __init__(self, path: str, of: str, rows: list[tuple[str, str, str, str]], total: int) -> None:
        name, wants, other, has = rows[0]
        where = f"{has} in the file" if other == "-" else f"{has} in the file ({other})"
        super().__init__(
            f"{path} does not fit {of}: {len(rows)} of {total} weights differ, as {name}: {wants} in the function, "
            f"{where}; give the checkpoint of this model, or the model's options that it was made with"
        )
        self.rows = rows

    @property
    def table(self) -> list[tuple[str, str, str, str]]:
        """At most 20 rows, and how many more there are."""
        more = len(self.rows) - SHOWN
        return self.rows[:SHOWN] + ([(f"... {more} more", "", "", "")] if more > 0 else [])


def _shape(shape: Any) -> str:
    return f"[{','.join(map(str, shape))}]"


def _abstract(tensor: Tensor) -> Any:
    import jax

    if tensor.dtype not in DTYPES:
        raise UsageError(f"tensor {tensor.name!r} has dtype {tensor.dtype}, which jax has not: convert the checkpoint")
    return jax.ShapeDtypeStruct(tensor.shape, DTYPES[tensor.dtype])


def _grouped(flat: Mapping[str, Any], separator: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, leaf in flat.items():
        *folders, last = name.split(separator)
        node = out
        for folder in folders:
            node = node.setdefault(folder, {})
            if not isinstance(node, dict):
                raise UsageError(f"tensor {name!r} lies under {folder!r}, which is a tensor too: rename one of them")
        node[last] = leaf
    return out


def _is_array(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype")


def _orbax(path: str) -> Any:
    """The tree of array metadata of an orbax checkpoint: shapes and dtypes from its JSON and its zarr headers."""
    where = Path(path).resolve()
    inside = [where, *(where / name for name in ("default", "params", "state", "model"))]
    found = next((at for at in inside if (at / "_METADATA").is_file()), None)
    if found is None:
        raise UsageError(f"{path} is no orbax checkpoint: no _METADATA in it; give the folder of one step's item")
    try:
        orbax = importlib.import_module("orbax.checkpoint")
    except ImportError:
        raise UsageError(f"{path} is an orbax checkpoint: pip install orbax-checkpoint to read its header") from None
    try:
        with _quiet():
            made = orbax.StandardCheckpointer().metadata(found)
    except Exception as e:  # orbax may raise anything
        said = str(e).partition("\n")[0]
        raise UsageError(
            f"{path}: orbax cannot read its metadata: {type(e).__name__}: {said}: give a whole checkpoint"
        ) from e
    made = getattr(made, "item_metadata", made)
    tree = getattr(made, "tree", made)
    if tree is None or not _orbax_leaves(tree):
        raise UsageError(f"{path}: its metadata names no array: give the folder of one step's item, whole")
    return tree


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """orbax warns of what it does not find where the error says it too."""
    _silenced()
    log = logging.getLogger("absl")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


@functools.cache
def _silenced() -> None:
    """Where one array cannot be read, those that orbax still reads come back to an event loop that is closed, each with
    a traceback from a thread of its own, whenever it is done."""
    before = sys.unraisablehook

    def hook(found: Any) -> None:
        if not (isinstance(found.exc_value, RuntimeError) and str(found.exc_value) == "Event loop is closed"):
            before(found)

    sys.unraisablehook = hook


def _orbax_leaves(tree: Any) -> list[tuple[str, Any]]:
    import jax

    found, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_array)
    return [
        (path_name(at).replace("[", "/").replace("]", "").lstrip("/"), leaf) for at, leaf in found if _is_array(leaf)
    ]


def _tensor(name: str, leaf: Any) -> Tensor:
    dtype = str(getattr(leaf.dtype, "name", leaf.dtype))
    return Tensor(name, tuple(leaf.shape), NAMES.get(dtype, dtype))


def elements(tree: Any) -> int:
    """How many numbers the weights hold."""
    import jax

    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))
