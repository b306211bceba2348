"""jit with shardings -> one device's counts, and the collectives that XLA's partitioner puts in, by scope.

XLA partitions the program for as many devices as the shardings name: those of this process where there are enough, else
forced host devices in a process of its own. What is read is the module as the partitioner leaves it, before a backend
rewrites it: the CPU would widen bfloat16 to float32, in collectives too. A chip's own compiler may merge or replace
collectives; `counted` reads its optimized module the same way.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from costtrace import arguments
from costtrace.chip import Chip
from costtrace.core import EXACT, FORWARD, MODELLED, UNKNOWN, Cost, Note, total
from costtrace.disk import scratch
from costtrace.errors import TraceError
from costtrace.memory import Peak
from costtrace.summary import Profile, Record
from costtrace.target import collective, kernel, opname, worker
from costtrace.target.hlo import Module, parsed

NAMES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64", "s8": "int8", "s4": "int4",
         "u8": "uint8", "c64": "complex64", "c128": "complex128", "s32": "int32", "f8e4m3fn": "float8_e4m3fn",
         "f8e5m2": "float8_e5m2", "f4e2m1fn": "float4_e2m1fn"}  # fmt: skip
"""HLO's dtypes -> numpy's."""
INTEGER = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "compare",
    "and",
    "or",
    "xor",
    "not",
    "maximum",
    "minimum",
    "select",
)
CHILD = Path(__file__).with_name("forced.py")
DUMPED = "after_spmd-partitioning"
OPTIONS: dict[str, str | bool] = {"xla_dump_hlo_as_text": True, "xla_dump_hlo_pass_re": "spmd-partitioning"}


def profile(
    fn: Callable[..., Any], args: tuple[Any, ...], jit: Mapping[str, Any] | None, weights: int | str | None = None
) -> Profile:
    """What one device does in one call of `fn`, jitted with shardings. Bytes: fused is what a device holds of the
    arguments and results, once; scoped and unfused are those of each instruction. Raises TraceError where jax cannot
    lower or partition it."""
    import jax

    text, axes = partitioned(fn, args, jit)
    where = arguments.weight_argument(fn, args, weights)
    names = arguments.named_leaves(fn, args, where)
    sizes = [leaf.size for leaf in jax.tree.leaves(args)]
    known = sum(n for n, (_, weight) in zip(sizes, names, strict=False) if weight is not None)
    return counted(parsed(text), axes, arguments.name_of(fn), known)


def partitioned(
    fn: Callable[..., Any], args: tuple[Any, ...], jit: Mapping[str, Any] | None = None
) -> tuple[str, dict[str, int]]:
    """(the partitioned module, {mesh axis: size}). Raises TraceError."""
    import jax

    jitted = jax.jit(fn, **(jit or {}))
    axes = _axes((args, jit or {}), jitted, args)
    n = math.prod(axes.values())
    try:
        if _here((args, jit or {})) and len(jax.devices("cpu")) >= n:
            with scratch() as folder:
                jitted.lower(*args).compile(compiler_options={**OPTIONS, "xla_dump_to": str(folder)})
                return dumped(folder), axes
        from costtrace.target.program import lowered

        program = lowered(fn, args, "cpu", jit)
    except TraceError:
        raise
    except Exception as e:  # the user's function, and jax's lowering, may raise anything
        said = str(e).strip().partition("\n")[0].rstrip(".")
        raise TraceError(
            f"{arguments.name_of(fn)} cannot be partitioned over {_written(axes)}: {type(e).__name__}: {said}"
        ) from e
    return _forced(program.artifact, axes, _types((args, jit or {}), axes), program.name), axes


def on_chip(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    chip: Chip,
    jit: Mapping[str, Any] | None = None,
    topology: str | None = None,
    **limits: Any,
) -> tuple[Module, dict[str, int]]:
    """(what the chip's own compiler made of the sharded program, {mesh axis: size}); shardings over an AbstractMesh.

    Raises UsageError where no compiler is set up, CompileError where it fails, TraceError where jax cannot lower it.
    """
    from costtrace.target import compiler
    from costtrace.target.program import lowered

    program = lowered(fn, args, compiler.platform(chip), jit)
    axes = _axes((args, jit or {}), None, args) if _shardings((args, jit or {})) else program.mesh
    program = replace(program, mesh=axes)
    (answer,) = compiler.ask([compiler.Question(program, chip, topology)], **limits)
    return answer.module, axes


def dumped(folder: Path) -> str:
    """The module that XLA wrote after partitioning. Raises TraceError where it wrote none."""
    found = sorted(folder.glob(f"*{DUMPED}*.txt"), key=lambda path: path.stat().st_size)
    if not found:
        raise TraceError("XLA wrote no partitioned module: this jaxlib names the pass otherwise; use jax 0.10 or newer")
    return found[-1].read_text()


def _forced(artifact: bytes, axes: dict[str, int], types: list[str], name: str) -> str:
    """The same in a process of its own, with as many host devices as the mesh has."""
    n = math.prod(axes.values())
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={n}"}
    fields = {"axes": axes, "types": types, "options": OPTIONS, "dumped": DUMPED}
    try:
        (made,) = worker.run([worker.Request(name, sys.executable, artifact, fields, flags, script=CHILD)])
    except worker.CompileError as e:
        raise TraceError(f"{name} cannot be partitioned over {_written(axes)}: {e}") from None
    return str(made["text"])


def _written(axes: Mapping[str, int]) -> str:
    return ", ".join(f"{k}={v}" for k, v in axes.items())


def _shardings(tree: Any) -> list[Any]:
    import jax

    leaves = jax.tree.leaves(tree, is_leaf=lambda x: hasattr(x, "num_devices"))
    found = [leaf if hasattr(leaf, "num_devices") else getattr(leaf, "sharding", None) for leaf in leaves]
    return [s for s in found if getattr(s, "mesh", None) is not None]


def _axes(tree: Any, jitted: Any, args: tuple[Any, ...]) -> dict[str, int]:
    """The mesh that the shardings are over: of jit, of the arguments, or inside the function."""
    meshes = [s.mesh for s in _shardings(tree)]
    if not meshes:
        inside = [e.params.get("sharding") for e in jitted.trace(*args).jaxpr.jaxpr.eqns]
        meshes = [s.mesh for s in inside if getattr(s, "mesh", None) is not None]
    if not meshes:
        return {"devices": 1}
    largest = max(meshes, key=lambda m: m.size)
    return {str(axis): int(n) for axis, n in largest.shape.items()}


def _types(tree: Any, axes: Mapping[str, int]) -> list[str]:
    """How the program speaks of each axis (Auto, Explicit): the mesh that it is called with must say the same."""
    for s in _shardings(tree):
        if list(s.mesh.shape) == list(axes):
            return [str(getattr(kind, "name", kind)) for kind in s.mesh.axis_types or ()]
    return []


def _here(tree: Any) -> bool:
    """True where the shardings name devices of this process that are CPUs."""
    from jax.sharding import AbstractMesh

    meshes = [s.mesh for s in _shardings(tree)]
    return all(not isinstance(m, AbstractMesh) and m.devices.flat[0].platform == "cpu" for m in meshes)


# -- reading the module


def counted(module: Module, axes: Mapping[str, int], name: str, parameters: int = 0) -> Profile:
    """One device's profile from a partitioned module."""
    walked = kernel.kernels(module)
    sums: dict[tuple[str, str, str, str], list[Cost]] = defaultdict(list)
    notes, unknown = list(walked.notes), False
    for k in walked.all:
        scope = opname.scope_of(k.op_name)
        opcode = k.instruction.opcode.removesuffix("-start")
        dtype = next((NAMES.get(s.dtype, s.dtype) for each in k.computation.shapes_of(k.instruction) for s in each), "")
        if k.work.unknown:
            unknown = True
            notes.append(Note("unknown-primitive", scope, f"no arithmetic known of {k.work.unknown[0]}: bytes only"))
        cost = _cost(module, k, opcode, axes)
        sums[scope, opcode, dtype, UNKNOWN if k.work.unknown else EXACT].append(cost * k.repeat)
    held = [s for i in (*module.entry.parameters, module.entry.instructions[module.entry.root]) for s in i.results]
    once = sum(s.nbytes for s in held)
    records = [Record(scope, FORWARD, opcode, dtype, status, len(costs), 0, total(costs))
               for (scope, opcode, dtype, status), costs in sums.items()]  # fmt: skip
    by_scope: dict[str, list[Cost]] = {"": []}
    for r in records:
        parts = r.scope.split("/") if r.scope else []
        for depth in range(len(parts) + 1):
            by_scope.setdefault("/".join(parts[:depth]), []).append(r.cost)
    costs = {path: _whole(total(some)) for path, some in by_scope.items()}
    costs[""] = costs[""].replace(bytes_fused=once)
    said = f"one of {math.prod(axes.values())} devices, as XLA's partitioner leaves the program; scoped bytes: unfused"
    notes.append(Note("partitioned", "", said))
    status = UNKNOWN if unknown or any(n.kind == "unknown-trip" for n in notes) else EXACT
    if status == EXACT and any(n.kind == "branch" for n in notes):
        status = MODELLED
    return Profile(name, costs[""], status, list(dict.fromkeys(notes)), parameters, Peak(once, "", "arguments", []),
                   records, costs, dict.fromkeys(costs, 1), {}, costs[""].flops, {}, {})  # fmt: skip


def _whole(cost: Cost) -> Cost:
    return cost.replace(bytes_fused=cost.bytes_unfused, bytes_scoped=cost.bytes_unfused)


def _cost(module: Module, k: kernel.Kernel, opcode: str, axes: Mapping[str, int]) -> Cost:
    products = {NAMES.get(dtype, dtype): n for dtype, n in k.work.dtypes}
    vector = k.work.vector_flops
    results = k.instruction.results
    dtype = NAMES.get(results[0].dtype, results[0].dtype) if results else ""
    integers = 0
    if opcode in INTEGER and results and results[0].dtype.startswith(("s", "u", "pred")):
        integers = results[0].size
    cost = Cost(
        matmul_flops=0 if opcode == "convolution" else k.work.matmul_flops,
        conv_flops=k.work.matmul_flops if opcode == "convolution" else 0,
        vector_flops=vector, transcendentals=k.work.transcendentals, integer_ops=integers, by_dtype=products,
        vector_by_dtype={dtype: vector} if vector else {}, bytes_unfused=k.traffic.hbm,
    )  # fmt: skip
    if found := collective.of(module, k, axes):
        cost = cost.replace(collective_bytes=found.nbytes, collective_bytes_by_axis={found.axis: found.nbytes})
    return cost
