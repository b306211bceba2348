"""A Profile's scope graph with costs, and the critical path through it. networkx does the graph's part.

Nodes are scopes with ops of their own (arguments are "(inputs)"), edges the bytes that one reads of another. A loop
over layers makes a circle of scopes: they take turns, so on the path they count as one step with all their seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from costtrace.chip import Chip
from costtrace.core import INPUTS, Cost
from costtrace.summary import Profile
from costtrace.timeline import leaves

if TYPE_CHECKING:
    import networkx


@dataclass(slots=True)
class Flow:
    """`graph`: nodes with `cost` and `seconds`, edges with `nbytes`. `path`: the steps of the critical path, each the
    scopes that take turns in it; `path_s`: its seconds; `serial_s`: those of all scopes one after the other."""

    graph: networkx.DiGraph
    path: list[list[str]]
    path_s: float
    serial_s: float


def flow(profile: Profile, chip: Chip, depth: int | None = None) -> Flow:
    """The graph of scopes down to `depth`, deeper ones folded into theirs, and the longest chain of seconds in it.

    A folded scope's seconds are the sum of its parts'; edges within it are left out.
    """
    import networkx

    graph = networkx.DiGraph()
    serial = 0.0
    for leaf in leaves(profile, chip):
        name, serial = cut(leaf.scope, depth), serial + leaf.times.seconds
        if name not in graph:
            graph.add_node(name, cost=Cost(), seconds=0.0)
        graph.nodes[name]["cost"] += leaf.cost
        graph.nodes[name]["seconds"] += leaf.times.seconds
    for (source, target), nbytes in profile.traffic.items():
        ends = [end if end == INPUTS else cut(end, depth) for end in (source, target)]
        for end in ends:
            if end not in graph:
                graph.add_node(end, cost=Cost(), seconds=0.0)
        if ends[0] == ends[1]:
            continue
        known = graph.get_edge_data(*ends, {"nbytes": 0})["nbytes"]
        graph.add_edge(*ends, nbytes=known + nbytes)
    steps = networkx.condensation(graph)
    for step in steps:
        steps.nodes[step]["seconds"] = sum(graph.nodes[name]["seconds"] for name in steps.nodes[step]["members"])
    best: dict[int, tuple[float, list[int]]] = {}
    for step in networkx.topological_sort(steps):
        before = max((best[p] for p in steps.predecessors(step)), default=(0.0, []))
        best[step] = before[0] + steps.nodes[step]["seconds"], [*before[1], step]
    seconds, path = max(best.values(), default=(0.0, []))
    order = {name: k for k, name in enumerate(graph)}
    members = [sorted(steps.nodes[step]["members"], key=order.__getitem__) for step in path]
    return Flow(graph, [some for some in members if some != [INPUTS]], seconds, serial)


def cut(scope: str, depth: int | None) -> str:
    """The scope's path down to `depth` names; all of it for None."""
    return scope if depth is None else "/".join(scope.split("/")[:depth])
