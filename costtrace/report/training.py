"""A training step's parts as lines under a table, and a checkpoint's differences as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from costtrace import units
from costtrace.report.table import Column, Table, lines, shown

COLUMNS = (
    Column("phase", "phase"), Column("flops", "", "FLOP"), Column("products", "products", "FLOP"),
    Column("bytes_fused", "fused", "B"), Column("bytes_unfused", "unfused", "B"), Column("share", "products", "%"),
)  # fmt: skip


def training(found: Mapping[str, Any]) -> list[str]:
    """A document's `training` in lines: a row for each phase that runs, then the sums and utilisations."""
    return [*_parts(found), *_utilised(found)]


def trainings(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Those of several documents, by name: parts that are alike once, utilisations each."""
    out: list[str] = []
    last: list[str] = []
    for name, each in found.items():
        parts = _parts(each)
        if parts != last:
            out += [*([""] if out else []), *parts]
            last = parts
        out += [f"{name}: {line}" for line in _utilised(each)]
    return out


def _parts(found: Mapping[str, Any]) -> list[str]:
    hardware = found["hardware_flops"]
    rows = []
    for name, cost in found["phases"].items():
        if cost["bytes_unfused"]:
            products = cost["matmul_flops"] + cost["conv_flops"]
            whole = cost["bytes_fused"] if name == "optimizer" else None
            share = products / hardware if hardware else 0.0
            rows.append([name, cost["flops"], products, whole, cost["bytes_unfused"], share])
    out = [line.replace("?", "-") for line in lines(shown(Table(COLUMNS, rows)))]
    model, hardware_text = (units.text(n, "FLOP") for n in (found["model_flops"], hardware))
    out.append(f"model {model} (without recompute), hardware {hardware_text}: of products, masked ones in full")
    if found["state_bytes"]:
        out.append(f"optimizer state {units.text(found['state_bytes'], 'B')}")
    return out


def _utilised(found: Mapping[str, Any]) -> list[str]:
    if found["step_time_s"] is None:
        return []
    said = ", ".join(f"{name.upper()} {_percent(found[name])}" for name in ("mfu", "hfu"))
    peak = found["peak"] or "a peak that the chip file lacks"
    return [f"in a step of {units.text(found['step_time_s'], 's')}: {said} of {peak}"]


def _percent(share: float | None) -> str:
    return "?" if share is None else f"{100 * share:.1f} %" + (" (!)" if share > 1 else "")


def differences(rows: Sequence[tuple[str, ...]]) -> str:
    """Weights that a checkpoint and a function disagree on, a line each."""
    heads = ("weight", "in the function", "name in the file", "in the file")
    table = Table(tuple(Column(head, head) for head in heads), [list(row) for row in rows])
    return "\n".join(lines(shown(table)))
