"""Function -> Trace: jax.make_jaxpr on abstract values (no array, no device), then one flat list of Ops.

trace.py, walk.py and flow.py are the only files that know jaxprs, control flow and name stacks. Dead code is dropped as
XLA drops it; every loop, branch and call is flattened once, so that no later file knows that loops exist.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from costtrace import arguments, authored
from costtrace.core import FORWARD, UNKNOWN, Note, Trace
from costtrace.doors import cudnn_traceable
from costtrace.errors import CosttraceError, TraceError, UsageError
from costtrace.walk import Walk


def jaxpr_of(fn: Callable[..., Any], args: tuple[Any, ...], jit: Mapping[str, Any] | None = None) -> Any:
    """The closed jaxpr of `fn` on abstract arguments. Raises TraceError where the function fails, with its own line."""
    import jax

    try:
        traced, arrays = arguments.closed_over(fn, args, jit)
        with authored.running(), cudnn_traceable(), arguments.wide_types(args):
            return jax.make_jaxpr(traced)(*arrays)
    except CosttraceError:
        raise
    except Exception as e:  # the user's function may raise anything
        raise TraceError(
            f"{arguments.name_of(fn)} failed while jax traced it: {type(e).__name__}: {_first_line(e)}{_blame(e)}"
        ) from e


def _first_line(e: Exception) -> str:
    return next((line.strip() for line in str(e).splitlines() if line.strip()), "no message").rstrip(".")


def _blame(e: Exception) -> str:
    ours = [
        f
        for f in traceback.extract_tb(e.__traceback__)
        if "site-packages" not in f.filename and not f.filename.endswith("contextlib.py") and not _own(f.filename)
    ]
    return f" (at {ours[-1].filename}:{ours[-1].lineno})" if ours else " (check the arguments' shapes)"


def _own(file: str) -> bool:
    """True for costtrace's own files, in a checkout too; its model specs are their authors'."""
    here = Path(__file__).parent
    return here in Path(file).parents and here / "models_spec" not in Path(file).parents


def trace(
    fn: Callable[..., Any],
    *args: Any,
    jit: Mapping[str, Any] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    weights: int | str | None = None,
) -> Trace:
    """The flat program of one call of `fn` on `args` (pytrees of jax.ShapeDtypeStruct).

    jit: keyword arguments as for jax.jit. dims: values of symbolic dimensions. trips: {scope: trip count} for loops
    whose count depends on data. weights: the argument that holds the parameters (position or name; by default the
    first one if it is a container of arrays). Raises TraceError, ShapeError, UsageError.
    """
    args = arguments.filled(args, dims)
    where = arguments.weight_argument(fn, args, weights)
    closed = jaxpr_of(fn, args, jit)
    arrays = arguments.closed_over(fn, args, None)[1]
    names = arguments.named_leaves(fn, arrays, where)
    made = flatten(closed, names, arguments.name_of(fn), trips)
    _on_host(made, arrays)
    if arguments.sharded(args):
        made.notes.append(Note("sharding", "", "the arguments' shardings are not followed here"))
        made.status = UNKNOWN
    return made


def _on_host(made: Trace, arrays: Any) -> None:
    """Marks the arguments whose shardings name a memory of the host."""
    import jax

    leaves = jax.tree.leaves(arrays)
    if len(leaves) == len(made.inputs):
        for v, leaf in zip(made.inputs, leaves, strict=True):
            v.host |= str(getattr(getattr(leaf, "sharding", None), "memory_kind", "")).endswith("host")


def flatten(
    closed: Any, names: list[tuple[str, str | None]], name: str, trips: Mapping[str, int] | None = None
) -> Trace:
    """The flat program of a closed jaxpr whose inputs are called `names`: (name, parameter path or None)."""
    walk = Walk(name, dict(trips or {}))
    jaxpr = closed.jaxpr
    if len(names) != len(jaxpr.invars):
        names = [(f"arg{i}", None) for i in range(len(jaxpr.invars))]
    donated = _donated(jaxpr)
    for var, (label, weight), given in zip(jaxpr.invars, names, donated, strict=True):
        walk.out.inputs.append(walk.value(var.aval, "input", name=label, weight=weight, donated=given))
    outputs = walk.body(closed, walk.out.inputs, (True,) * len(jaxpr.outvars), walk.out.root, FORWARD)
    walk.out.outputs.extend(outputs)
    unused = sorted(set(walk.trips) - walk.trips_used)
    if unused:
        open_loops = sorted({n.scope or "." for n in walk.out.notes if n.kind == "unknown-trip"})
        raise UsageError(
            f"trips names the scope {unused[0]!r}, where no loop's count is unknown: "
            f"such loops are in {', '.join(open_loops) or 'no scope of this program'}"
        )
    walk.out.notes = list(dict.fromkeys(walk.out.notes))
    for i, op in enumerate(walk.out.ops):
        op.index = i
    return walk.out


def _donated(jaxpr: Any) -> list[bool]:
    eqn: Any = jaxpr.eqns[0] if len(jaxpr.eqns) == 1 else None
    given = eqn.params.get("donated_invars") if eqn is not None else None
    if not given:
        return [False] * len(jaxpr.invars)
    mine = dict(zip((id(v) for v in eqn.invars), given, strict=True))
    return [mine.get(id(v), False) for v in jaxpr.invars]
