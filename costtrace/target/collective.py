"""A compiled program's collectives: kind, the mesh axes that one runs over, bytes, and what it takes on the network.

Bytes and seconds are mesh.py's. A compiler writes a collective as an instruction, as a pair of start and done, as an
asynchronous call, or inside a fusion: all are one collective here.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from costtrace import mesh
from costtrace.chip import Chip
from costtrace.errors import UsageError
from costtrace.mesh import Collective, Mesh, Price
from costtrace.target import kernel, opname
from costtrace.target.hlo import Instruction, Module

KINDS = {"all-reduce": mesh.ALL_REDUCE, "all-gather": mesh.ALL_GATHER, "reduce-scatter": mesh.REDUCE_SCATTER,
         "all-to-all": mesh.ALL_TO_ALL, "ragged-all-to-all": mesh.ALL_TO_ALL, "collective-permute": mesh.PERMUTE,
         "collective-broadcast": mesh.PERMUTE, "send": mesh.PERMUTE}  # fmt: skip


def collectives(module: Module, axes: Mapping[str, int]) -> list[Collective]:
    """Every collective of the module by kind, axis, scope and size, with how often it runs."""
    counts: dict[Collective, int] = defaultdict(int)
    for k in kernel.kernels(module).all:
        if found := of(module, k, axes):
            counts[replace(found, count=1)] += found.count
    return [replace(each, count=n) for each, n in counts.items()]


def of(module: Module, k: kernel.Kernel, axes: Mapping[str, int]) -> Collective | None:
    """The collective that a kernel is, or has in it; None for another kernel and among one device."""
    if math.prod(axes.values()) == 1:
        return None
    i, kind = k.instruction, KINDS.get(k.collective)
    computation = k.computation
    if i.opcode in ("fusion", "async-start"):  # a TPU's reduce-scatter: an all-reduce of which a chip keeps a slice
        computation = module.computations[i.called("calls")[0]]
        inside = next((each for each in computation if each.opcode in KINDS), None)
        if inside is None:
            return None
        i, kind = inside, KINDS[inside.opcode]
        if kind == mesh.ALL_REDUCE and sum(s.nbytes for s in k.instruction.results) < sum(s.nbytes for s in i.results):
            kind = mesh.REDUCE_SCATTER
    if kind is None:
        return None
    local = sum(s.nbytes for each in computation.shapes_of(i) for s in each)
    axis, n = _axis(i, axes)
    if n == 1:
        return None
    nbytes = math.ceil(mesh.sent(kind, mesh.PRICES[kind].whole(local, n), n) - 1e-6)
    whole = kind == mesh.PERMUTE or n == math.prod(axes[a] for a in axis.split(","))
    return Collective(kind, axis, opname.scope_of(k.op_name), k.repeat, nbytes, local, 0 if whole else n)


_MESH = re.compile(r"replica_groups=\{?mesh\[([^\]]*)\]\s*\{([^}]*)\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_LISTED = re.compile(r"replica_groups=\{(\{[\d,{} ]*\})\}")
_PAIRS = re.compile(r"source_target_pairs=\{(\{[\d,{} ]*\})\}")


def _numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


def groups(i: Instruction, n: int) -> list[list[int]]:
    """The devices of each group of a collective, of `n` in all; a permute's pairs."""
    text = i.attributes
    if found := _MESH.search(text):
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", found[1]))
        names = list(sizes)
        grid = np.arange(n).reshape([int(s) for s in sizes.values()])
        inside = [names.index(a) for a in re.findall(r"'([^']+)'", found[2])]
        rest = [d for d in range(len(names)) if d not in inside]
        width = math.prod(grid.shape[d] for d in inside)
        return [list(map(int, row)) for row in grid.transpose(*rest, *inside).reshape(-1, width)]
    if found := _IOTA.search(text):
        shape, dims = _numbers(found[1]), _numbers(found[2])
        order = _numbers(found[3]) if found[3] else list(range(len(dims)))
        return [list(map(int, row)) for row in np.arange(n).reshape(dims).transpose(order).reshape(shape)]
    if found := _PAIRS.search(text) or _LISTED.search(text):
        return [_numbers(part) for part in re.findall(r"\{([\d, ]+)\}", found[1])]
    return [list(range(n))]


def _axis(i: Instruction, axes: Mapping[str, int]) -> tuple[str, int]:
    """(the mesh axes that a collective runs over, "r,d" for two; the size of a group)."""
    n, names = math.prod(axes.values()), list(axes)
    found = groups(i, n)
    grid = np.arange(n).reshape(list(axes.values()))
    if KINDS.get(i.opcode.removesuffix("-start")) == mesh.PERMUTE and all(len(pair) == 2 for pair in found):
        differ = {d for a, b in found for d, (x, y) in enumerate(zip(*(np.argwhere(grid == v)[0] for v in (a, b)),
                                                                     strict=True)) if x != y}  # fmt: skip
        return ",".join(names[d] for d in sorted(differ)) or names[0], 2 if differ else 1
    wanted = {frozenset(g) for g in found}
    for count in range(1, len(names) + 1):
        for some in itertools.combinations(range(len(names)), count):
            rest = [d for d in range(len(names)) if d not in some]
            width = math.prod(grid.shape[d] for d in some)
            if {frozenset(map(int, row)) for row in grid.transpose(*rest, *some).reshape(-1, width)} == wanted:
                return ",".join(names[d] for d in some if grid.shape[d] > 1) or names[some[0]], len(found[0])
    return ",".join(names), len(found[0])


class Network:
    """The links among the devices of a mesh; prices a collective of a program that was compiled for them."""

    def __init__(self, axes: Mapping[str, int], chip: Chip, topology: tuple[int, ...] = ()) -> None:
        self.axes, self.chip = dict(axes), chip
        self.mesh = self._mesh(self.axes, topology)

    def _mesh(self, axes: dict[str, int], topology: tuple[int, ...]) -> Mesh | None:
        try:
            return Mesh(axes, self.chip, topology or None) if math.prod(axes.values()) > 1 else None
        except UsageError:
            return None

    def price(self, c: Collective) -> Price | None:
        """Seconds of one run; None where nobody published the links that it needs."""
        if self.mesh is None:
            return None
        try:
            return self.mesh.price(c)
        except UsageError:
            return None
