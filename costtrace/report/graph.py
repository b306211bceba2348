"""The scope graph -> DOT text for Graphviz and everything that reads it: costs on nodes, bytes on edges, the critical
path in red."""

from __future__ import annotations

from collections.abc import Iterator

from costtrace import units
from costtrace.chip import Chip
from costtrace.core import INPUTS
from costtrace.dataflow import Flow, flow
from costtrace.report.document import Stages
from costtrace.report.views import label

CRITICAL = "red3"


def dot(name: str, stages: Stages, chip: Chip, depth: int | None = None) -> str:
    """One digraph with a cluster for each stage; figures of one call, times as the chip's roofline models them."""
    out = [f"digraph {_quoted(name)} {{", "  rankdir=TB;", '  node [shape=box, fontname="Helvetica"];',
           '  edge [fontname="Helvetica", fontsize=9];']  # fmt: skip
    for number, (stage, calls, profile) in enumerate(stages):
        out += [f"  {line}" for line in _cluster(number, f"{stage} x{calls}", flow(profile, chip, depth), chip)]
    return "\n".join([*out, "}"]) + "\n"


def _cluster(number: int, title: str, found: Flow, chip: Chip) -> Iterator[str]:
    critical = {name for step in found.path for name in step}
    total, longest = (units.text(s, "s", 3) for s in (found.serial_s, found.path_s))
    yield f"subgraph cluster_{number} {{"
    yield f"  label={_quoted(f'{title} on {chip.name} (modelled): {total} in turn, critical path {longest}')};"
    for name, data in found.graph.nodes(data=True):
        figures = "" if name == INPUTS else f"\n{units.text(data['cost'].flops, 'FLOP', 3)}"
        if name != INPUTS:
            figures += (
                f"\n{units.text(data['cost'].bytes_scoped, 'B', 3)} scoped, {units.text(data['seconds'], 's', 3)}"
            )
        style = f", color={CRITICAL}, penwidth=2" if name in critical else ""
        yield f"  {_id(number, name)} [label={_quoted(label(name or '.') + figures)}{style}];"
    for source, target, nbytes in found.graph.edges(data="nbytes"):
        style = f", color={CRITICAL}" if {source, target} <= critical else ""
        yield f"  {_id(number, source)} -> {_id(number, target)} [label={_quoted(units.text(nbytes, 'B', 3))}{style}];"
    yield "}"


def _id(number: int, name: str) -> str:
    return _quoted(f"{number}:{name or '.'}")


def _quoted(text: str) -> str:
    """A DOT string: only a quote and a backslash have a meaning in it; a line break is \\n."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n") + '"'
