"""What a compiled program runs, kernel by kernel: which are slow, what binds each and why; where fusion is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from costtrace.chip import Chip
from costtrace.evidence.compiled import Compiled, row_of
from costtrace.summary import Row
from costtrace.target import traffic
from costtrace.target.hlo import Computation, Instruction, Module
from costtrace.target.price import BESIDE, COMPILER, REPLACED, ROOFLINE, Timed

SMALL = 128
"""Rows below which a product leaves the matrix unit waiting: half or all of its side, a GPU's usual tile."""
MOVES = {"bitcast", "broadcast", "concatenate", "copy", "copy-done", "copy-start", "fusion", "pad", "reshape",
         "reverse", "slice", "transpose"}  # fmt: skip
"""Instructions that put values elsewhere, and make none."""
PADDED = 1.5
"""True where padding to tiles adds half again."""


def slowest(module: Module, compiled: Compiled, top: int | None = None) -> list[dict[str, Any]]:
    """The kernels by falling time of all their executions, as rows of `--view kernels`; seconds and bytes of one."""
    chip, total = compiled.answer.chip, compiled.total.time_s
    found = [each for each in compiled.kernels if each.by != BESIDE]
    ranked = sorted(found, key=lambda each: -each.all_s)[:top]
    return [_row(module, each, chip, total) for each in ranked]


def _row(module: Module, each: Timed, chip: Chip, total: float) -> dict[str, Any]:
    k = each.kernel
    return {
        "kernel": k.name, "opcode": k.collective or k.target or k.instruction.opcode, "scope": each.scope,
        "runs": k.repeat, "time_s": each.seconds, "all_s": each.all_s, "share": each.all_s / total if total else 0.0,
        "flops": k.work.flops, "hbm_bytes": k.traffic.hbm, "chip_bytes": k.traffic.chip,
        "operands": [str(s) for shapes in k.computation.shapes_of(k.instruction) for s in shapes],
        "results": [str(s) for s in k.instruction.results], "roofline_s": each.roofline_s, "bound": each.bound,
        "estimated_by": each.by, "named_by": k.named_by, "why": "; ".join(reasons(module, each, chip)),
    }  # fmt: skip


def reasons(module: Module, each: Timed, chip: Chip) -> list[str]:
    """Why a kernel takes longer than its work must: none where nothing is known."""
    k, out = each.kernel, []
    if k.collective or each.moved:
        hidden = each.hidden_s / each.seconds if each.seconds else 0.0
        kind = each.moved.kind.replace("_", "-") if each.moved else k.collective
        out.append(f"{kind}: {100 * hidden:.0f} % behind other kernels")
    elif k.work.matmul_flops:
        rows = product_rows(module, k.computation, k.instruction)
        if rows is not None and rows < SMALL:
            out.append(f"small m: {rows} rows")
        if each.seconds > 0 and each.by == COMPILER:
            what = {"compute": "peak", "memory": "the HBM rate"}.get(each.bound, f"the {each.bound} rate")
            out.append(f"{100 * each.roofline_s / each.seconds:.0f} % of {what}")
    elif not k.work.flops and not k.work.transcendentals and not k.work.unknown:
        out.append(_moves({o.opcode for _, o in _inside(module, k.computation, k.instruction)}))
    elif each.bound == "memory" and k.traffic.hbm:
        out.append("no fusion: no product in it, reads and writes HBM")
    if each.by in (ROOFLINE, REPLACED) and each.seconds:
        out.append("priced by its roofline")
    true, padded = sizes(k.computation, k.instruction)
    if true and padded > PADDED * true:
        out.append(f"padding to tiles: {padded / true:.1f} times the bytes")
    return [reason for reason in out if reason]


def _moves(opcodes: set[str]) -> str:
    """What a kernel without FLOPs does."""
    if "dynamic-slice" in opcodes:
        return "copies a slice out of a stack"
    made = sorted(opcodes - MOVES)
    return f"no FLOPs: {', '.join(made)}" if made else "layout copy"


def sizes(computation: Computation, i: Instruction) -> tuple[int, int]:
    """(bytes, bytes padded to tiles) of all operands and results."""
    shapes = [*i.results, *(s for some in computation.shapes_of(i) for s in some)]
    return sum(s.nbytes for s in shapes), sum(s.padded_nbytes for s in shapes)


def product_rows(module: Module, computation: Computation, i: Instruction) -> int | None:
    """The lesser side of the largest product's result in a kernel (its rows or its columns); None without a product."""
    best: tuple[int, int] | None = None
    for _, each in _inside(module, computation, i):
        if each.opcode in ("dot", "convolution") and each.results[0].dims:
            dims = each.results[0].dims
            labels = (each.attribute("dim_labels") or "").partition("->")[2]
            feature = labels.index("f") if "f" in labels else len(dims) - 1
            columns = dims[feature]
            batch = len((each.attribute("lhs_batch_dims") or "").split(",")) if each.opcode == "dot" else 0
            batch = batch if each.attribute("lhs_batch_dims") else 0
            rows = each.results[0].size // max(columns, 1)
            for n in range(batch):
                rows //= dims[n]
            if best is None or each.results[0].size > best[0]:
                best = each.results[0].size, min(rows, columns)
    return None if best is None else best[1]


def _inside(module: Module, computation: Computation, i: Instruction) -> list[tuple[Computation, Instruction]]:
    out = [(computation, i)]
    for name in i.called("calls"):
        inner = module.computations[name]
        out += [pair for each in inner for pair in _inside(module, inner, each) if not traffic.free(each)]
    return out


def fusion(rows: Sequence[Row], compiled: Compiled) -> list[dict[str, Any]]:
    """Rows of `--view fusion`: bytes of a call as one kernel, a kernel a scope, one a primitive, and as compiled.

    `excess` is what the compiled program moves beyond one kernel, `over` how many times that.
    """
    parts = compiled.rows(row_of({row.key for row in rows}))
    out = []
    for row in rows:
        part = parts.pop(row.key, None)
        moved = 0 if part is None else part.hbm_bytes
        out.append(_bytes(row.key, row.cost.bytes_fused, row.cost.bytes_scoped, row.cost.bytes_unfused, moved,
                          0 if part is None else part.kernels))  # fmt: skip
    out += [_bytes(key, None, None, None, part.hbm_bytes, part.kernels) for key, part in parts.items()]
    return out


def _bytes(key: str, fused: int | None, scoped: int | None, unfused: int | None, moved: int, n: int) -> dict[str, Any]:
    return {
        "scope": key, "bytes_fused": fused, "bytes_scoped": scoped, "bytes_unfused": unfused, "bytes_compiled": moved,
        "kernels": n, "excess": None if fused is None else max(0, moved - fused),
        "over": moved / fused if fused else None,
    }  # fmt: skip
