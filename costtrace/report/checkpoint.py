"""A checkpoint's comparison -> plain data and lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costtrace import units
from costtrace.checkpoint import Comparison, Group
from costtrace.report.document import Document
from costtrace.report.text import wrapped

SHOWN = 8


def plain(found: Comparison) -> Document:
    """As `--format json` prints it; elements and bytes."""
    return {
        "file": found.file,
        "stage": found.stage,
        "tensors": found.tensors,
        "parameters": found.elements,
        "nbytes": found.nbytes,
        "wanted": found.wanted,
        "wanted_parameters": found.wanted_elements,
        "matched": {path: list(names) for path, names in found.matched.items()},
        "matched_parameters": found.matched_elements,
        "by_name": found.by_name,
        "by_order": found.by_order,
        "by_map": found.by_map,
        "other_shape": [
            {"weight": path, "shape": list(shape), "name": name, "file_shape": list(other)}
            for path, shape, name, other in found.unlike
        ],
        "never_runs": _groups(found.unused),
        "lacking": _groups(found.lacking),
        "verdict": "equal" if found.agrees else "differs",
    }


def _groups(some: Sequence[Group]) -> list[Document]:
    return [{"name": g.name, "tensors": g.tensors, "parameters": g.elements} for g in some]


def told(found: Comparison) -> Iterator[str]:
    """The comparison in lines."""
    nbytes = units.text(found.nbytes, "B")
    yield from wrapped(f"checkpoint {found.file}: {found.tensors} tensors, {found.elements:,} parameters, {nbytes} [S]")
    yield from wrapped(
        f"  {found.stage} wants {found.wanted} tensors, {found.wanted_elements:,} parameters [D]: {len(found.matched)} "
        f"found with {found.matched_elements:,}: {found.by_name} by name, {found.by_order} by shape and order, "
        f"{found.by_map} by the mapping"
    )
    for path, shape, name, other in found.unlike[:SHOWN]:
        yield from wrapped(f"  differs: {path} is {shape} in the program, {name} is {other} in the file")
    for head, some in (("in the file, never runs", found.unused), ("wanted, not in the file", found.lacking)):
        for group in some[:SHOWN]:
            yield from wrapped(f"  {head}: {group.name}: {group.tensors} tensors, {group.elements:,} parameters")
        if len(some) > SHOWN:
            rest = some[SHOWN:]
            yield f"  {head}: {len(rest)} more groups, {sum(g.elements for g in rest):,} parameters"
    if found.agrees and not found.unused:
        yield "  every tensor is a weight of the program, and the other way round"
