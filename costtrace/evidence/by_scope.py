"""XLA's count of products by scope: each instruction of the lowered program, as often as costtrace says that it runs.

An instruction agrees where XLA's number is the float32 nearest to costtrace's for the same op of the same scope. Where
XLA is silent or counts by other rules, the scope's cell says so. Nothing is compiled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from costtrace.evidence import xla
from costtrace.evidence.traced import Traced, Work, within
from costtrace.target.opname import scope_of

_CUSTOM = "a custom call to XLA, whose FLOPs it counts as -1"
SILENT = {
    "cumsum": "XLA counts a running sum of n as n (n - 1) additions",
    "cumprod": "XLA counts a running product of n as n (n - 1) multiplications",
    "cummax": "XLA counts a running maximum of n as n (n - 1) FLOPs",
    "cummin": "XLA counts a running minimum of n as n (n - 1) FLOPs",
    "cumlogsumexp": "XLA counts a running sum of n as n (n - 1) additions of logarithms",
    "sort": "XLA counts the n log2 n comparisons of a sort as FLOPs",
    **dict.fromkeys(("pallas_call", "cholesky", "eigh", "eig", "lu", "geqrf", "svd", "triangular_solve"), _CUSTOM),
    "ragged_dot_general": xla.EXCLUDED["ragged_dot"],
    "scaled_dot": xla.EXCLUDED["scaled_dot"],
}
"""Primitives for which XLA's own count means something else: said in the cell of their scope."""


@dataclass(slots=True)
class Cell:
    """What XLA says of a part: FLOPs of its products (None: nothing to say), and how far that can be believed.

    `equal`: True where every instruction's number is the float32 nearest to costtrace's and none is left over on either
    side; None where XLA is silent or counts by rules that are excluded by name.
    """

    flops: float | None = 0.0
    equal: bool | None = True
    notes: list[str] = field(default_factory=list)

    def __add__(self, other: Cell) -> Cell:
        flops = None if self.flops is None or other.flops is None else self.flops + other.flops
        both = (self.equal, other.equal)
        equal = False if False in both else None if None in both else True
        return Cell(flops, equal, list(dict.fromkeys(self.notes + other.notes)))


class Lowered:
    """XLA's witness of one stage, by scope."""

    def __init__(self, stage: Traced) -> None:
        self.cells: dict[str, Cell] = {}
        self.why = ""
        known = stage.profile.by_scope
        try:
            instructions = xla.lowered(stage.fn, stage.args)
        except (NotImplementedError, RuntimeError, TypeError, ValueError) as e:  # what jax raises where it cannot lower
            self.why = f"not lowered for the CPU: {str(e).partition(chr(10))[0]}"
            return
        theirs: dict[str, list[xla.Instruction]] = defaultdict(list)
        for instruction in instructions:
            theirs[scope_of(instruction.path, known)].append(instruction)
        ours: dict[str, list[Work]] = defaultdict(list)
        for work in stage.work:
            ours[work.scope].append(work)
        for scope in known:
            self.cells[scope] = _cell(ours[scope], theirs[scope])
        for op in stage.trace.ops:
            if op.primitive in SILENT and (said := SILENT[op.primitive]) not in self.cells[op.scope].notes:
                self.cells[op.scope].notes.append(said)

    def cell(self, paths: Iterable[str], own: bool = False) -> Cell:
        """The cells of the scopes and of all in them, added up; with `own`, of the scopes alone."""
        if self.why:
            return Cell(None, None, [self.why])
        some = list(paths)
        found = Cell()
        for scope, cell in self.cells.items():
            if scope in some if own else any(within(scope, path) for path in some):
                found = found + cell
        return found


def _cell(ours: list[Work], theirs: list[xla.Instruction]) -> Cell:
    cell, left, over = Cell(), list(ours), list[xla.Instruction]()
    for instruction in theirs:
        match = next((work for work in left if instruction.agrees(work.flops)), None)
        if match is None:
            over.append(instruction)
            cell.flops = (cell.flops or 0) + instruction.flops
        else:
            left.remove(match)
            cell.flops = (cell.flops or 0) + instruction.flops * match.times
    if any(work.op.primitive in SILENT for work in left) or any(i.excluded for i in over):
        cell.equal = None
        cell.notes += dict.fromkeys(xla.EXCLUDED[i.excluded] for i in over if i.excluded)
    elif left or over:
        cell.equal = False
        cell.notes += [
            f"XLA has a {i.kind} of {i.flops:.0f} FLOP that costtrace has not"
            + (", in a loop whose body it counts once" if i.looped else "")
            for i in over
        ]
        cell.notes += [f"XLA has no {work.op.primitive} of {work.flops} FLOP here" for work in left]
    return cell
