"""A Profile on a chip -> its innermost parts in program order, and the timeline that they make when none overlaps.

It is a model, not a recording: each innermost scope is one kernel (scoped bytes), its units work at peak side by side,
and the next part starts when the slowest of them is done. Scopes stand in the order of their first op; where a scope
runs n times in one run of its parent, it is unfolded into n equal parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from costtrace import roofline
from costtrace.chip import Chip
from costtrace.core import Cost
from costtrace.roofline import Times
from costtrace.summary import Profile

MOST = 20_000
"""Slices of a timeline; a program with more stands with its loops folded."""
OWN = "."


@dataclass(frozen=True, slots=True)
class Leaf:
    """An innermost part: a scope without scopes in it, or a scope's own ops (`own`). All its executions together."""

    scope: str
    own: bool
    cost: Cost
    times: Times

    @property
    def path(self) -> tuple[str, ...]:
        """The names from the outside in; a scope's own ops end in OWN where it has scopes in it."""
        names = tuple(self.scope.split("/")) if self.scope else ()
        return (*names, OWN) if self.own else names


@dataclass(frozen=True, slots=True)
class Slice:
    """One run of a scope. `leaf` is set on innermost parts, which have seconds by unit; `of` runs there are in all."""

    path: tuple[str, ...]
    start_s: float
    end_s: float
    leaf: Leaf | None = None
    terms: dict[str, float] = field(default_factory=dict)
    of: int = 1


@dataclass(slots=True)
class _Node:
    path: tuple[str, ...]
    children: dict[str, _Node] = field(default_factory=dict)
    leaf: Leaf | None = None


def leaves(profile: Profile, chip: Chip) -> list[Leaf]:
    """The program's innermost parts in program order; they partition its work and its scoped bytes. Raises UsageError
    for a chip without a memory rate."""
    roofline.timed(chip)
    named = all(note.kind != "no-scopes" for note in profile.notes)
    out = []
    for row in profile.rows(depth=None, merge=False):
        own = row.key == OWN or row.key.endswith(f"/{OWN}")
        scope = row.key[:-1].rstrip("/") if own else row.key
        nbytes = row.cost.bytes_scoped if named else row.cost.bytes_unfused
        out.append(Leaf(scope, own, row.cost, roofline.times(row.cost, chip, nbytes)))
    return out


def timeline(profile: Profile, chip: Chip) -> list[Slice]:
    """The slices of one call from 0 s on, each scope before the scopes in it. The last ends at the sum of the parts."""
    root = _Node(())
    for leaf in leaves(profile, chip):
        node = root
        for name in leaf.path:
            node = node.children.setdefault(name, _Node((*node.path, name)))
        node.leaf = leaf
    unfold = _count(root, profile, 1) <= MOST
    out: list[Slice] = []
    _lay(root, profile, 1, 1, 0.0, unfold, out)
    return out[1:]  # without the root


def _trips(node: _Node, profile: Profile, parents: int) -> int:
    """How often the scope runs in one run of its parent; 1 where that is not a whole number."""
    runs = profile.instances.get("/".join(node.path), parents)
    return runs // parents if runs % parents == 0 and runs else 1


def _count(node: _Node, profile: Profile, runs: int) -> int:
    total = runs
    for child in node.children.values():
        total += _count(child, profile, runs * _trips(child, profile, runs))
    return total


def _lay(node: _Node, profile: Profile, trips: int, runs: int, at: float, unfold: bool, out: list[Slice]) -> float:
    """Lays `trips` runs of a scope, `runs` in the whole program; returns when the last is done."""
    for _ in range(trips):
        start, index = at, len(out)
        out.append(Slice(node.path, start, start))
        terms: dict[str, float] = {}
        if node.leaf is not None:
            terms = {term: seconds / runs for term, seconds in node.leaf.times.terms.items()}
            at += node.leaf.times.seconds / runs
        for child in node.children.values():
            n = _trips(child, profile, runs) if unfold else 1
            at = _lay(child, profile, n, runs * n, at, unfold, out)
        out[index] = Slice(node.path, start, at, node.leaf, terms, runs)
    return at


def stacks(profile: Profile) -> Iterator[tuple[tuple[str, ...], Cost]]:
    """(scope names and the primitive, cost of those ops), in program order; fused and scoped bytes are not defined."""
    for r in profile.records:
        yield (*(r.scope.split("/") if r.scope else ()), r.primitive), r.cost
