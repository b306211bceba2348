"""Which chips stand where, and what a collective among some of them takes: Mesh, Group, Collective, PRICES. No jax.

Two ways to price. `hand`: one ring over all of a chip's links, as papers do it. `price`: the links that the group has
on a slice of the real network: a torus whose axes close only where they are whole, a switch, hosts over their network
cards. Bandwidth and latency apart.

S is, for an all-reduce, what each device holds; for an all-gather and a reduce-scatter the gathered size; for an
all-to-all the size over all devices. Sources: Chan et al., "Collective communication" (2007), for the bytes that must
leave a device; "How to Scale Your Model", parts 2 and 3 (TPUs, sharding), for tori: a gather keeps every link of the
axis busy in both directions, an all-to-all is bound by the middle of the longest axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from costtrace import units
from costtrace.chip import Chip
from costtrace.errors import UsageError

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
ALL_TO_ALL, PERMUTE = "all_to_all", "permute"
SOURCE = ("Chan et al., Collective communication (2007), for the bytes; How to Scale Your Model, parts 2 "
          "and 3, https://jax-ml.github.io/scaling-book/sharding")  # fmt: skip
NODE = 8
"""GPUs behind one switch, where the chip file says nothing else."""
SLICES: dict[int, dict[int, tuple[int, ...]]] = {
    2: {1: (1, 1), 2: (1, 2), 4: (2, 2), 8: (2, 4), 16: (4, 4), 32: (4, 8), 64: (8, 8), 128: (8, 16), 256: (16, 16)},
    3: {1: (1, 1, 1), 2: (1, 1, 2), 4: (1, 2, 2), 8: (2, 2, 2), 16: (2, 2, 4), 32: (2, 4, 4), 64: (4, 4, 4),
        128: (4, 4, 8), 256: (4, 8, 8), 512: (8, 8, 8), 1024: (8, 8, 16), 2048: (8, 16, 16), 4096: (16, 16, 16)},
}  # fmt: skip
"""Chips -> the shape of their slice of a 2-D or 3-D torus, as the vendor offers them."""
WHOLE = {2: 16, 3: 4}
"""An axis closes to a ring where its length is a multiple of this: the whole axis of a 2-D pod, cubes of a 3-D one."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One kind of collective, `count` times in one call. `nbytes`: what a device sends each time by a
    bandwidth-optimal algorithm; `local`: what it holds before; `size`: devices of a group that is no whole axis."""

    kind: str
    axis: str
    scope: str
    count: int
    nbytes: int
    local: int
    size: int = 0

    @property
    def bytes_sent(self) -> int:
        return self.count * self.nbytes


@dataclass(frozen=True, slots=True)
class Ring:
    """The part of one network axis that a group has: `size` chips, closed to a ring or not."""

    size: int
    closed: bool

    @property
    def links(self) -> int:
        """One-way links out of the chip that has least: both ways round a ring, one way at the end of a line."""
        return 0 if self.size == 1 else 2 if self.closed and self.size > 2 else 1

    @property
    def hops(self) -> int:
        """To the farthest chip."""
        return self.size // 2 if self.closed else self.size - 1


@dataclass(frozen=True, slots=True)
class Group:
    """The chips of one collective. `rings`: its part of the torus, empty behind a switch; `nodes`: hosts that it spans,
    each with size / nodes chips."""

    size: int
    rings: tuple[Ring, ...] = ()
    nodes: int = 1

    def __str__(self) -> str:
        if self.rings:
            inside = " x ".join(f"{r.size}{' closed' if r.closed else ''}" for r in self.rings if r.size > 1)
            return f"{self.size // self.nodes} chips ({inside or 'one chip'})" + self._outside()
        return f"{self.size // self.nodes} chips behind a switch" + self._outside()

    def _outside(self) -> str:
        return f" on each of {self.nodes} hosts or pods" if self.nodes > 1 else ""


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds of one collective: bandwidth and latency, and the formula with its values."""

    bandwidth_s: float
    latency_s: float
    formula: str

    @property
    def seconds(self) -> float:
        return self.bandwidth_s + self.latency_s


def parsed(text: str) -> dict[str, int]:
    """{"data": 2, "model": 4} of "data=2,model=4". Raises UsageError for anything else."""
    out: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = part.strip().partition("=")
        if not name.isidentifier() or not size.isdecimal() or not int(size) or name in out:
            raise UsageError(f"--mesh {text!r}: write AXIS=SIZE,AXIS=SIZE, as in data=2,model=4, each axis once")
        out[name] = int(size)
    return out


class Mesh:
    """Named axes laid over a slice of the chip's network, the last axis innermost.

    shape: chips along each axis of the torus where that is not the slice as the vendor offers it; of GPUs hosts, then
    those in one. Raises UsageError where the chip has no links for more than one chip.
    """

    def __init__(self, axes: dict[str, int], chip: Chip, shape: tuple[int, ...] | None = None) -> None:
        self.axes, self.chip, self.given = dict(axes), chip, shape
        self.chips = math.prod(axes.values())
        dims = 3 if "3D" in chip.topology else 2 if "2D" in chip.topology else 0
        self.torus, self.pods = dims, 1
        pod = int(chip.value("link.pod") or NODE)
        if self.chips > 1 and chip.link_bytes_per_s is None and chip.value("scale_out.bandwidth") is None:
            raise UsageError(f"chip {chip.name} has no links, so {self.chips} of them cannot work together: --chips 1")
        if shape and not dims:
            pod = shape[-1]
        self.inside = min(self.chips, pod) if chip.link_bytes_per_s else 1
        self.pods = -(-self.chips // self.inside)
        if self.chips % self.inside:
            raise UsageError(f"{self.chips} chips are not whole pods or hosts of {self.inside} {chip.name}")
        given = shape if shape and math.prod(shape) == self.inside else None
        self.shape = (given or self._shape()) if dims else (self.inside,)
        self.placed = self._placed() if dims else {}

    def _shape(self) -> tuple[int, ...]:
        known = SLICES[self.torus]
        if self.inside in known:
            return known[self.inside]
        sizes, left = [], self.inside
        for k in range(self.torus, 0, -1):
            side = next(s for s in range(round(left ** (1 / k)), 0, -1) if left % s == 0)
            sizes.append(side)
            left //= side
        return tuple(sorted(sizes))

    def _placed(self) -> dict[str, tuple[Ring, ...]]:
        """Each mesh axis's part of each network axis: from the last, longest network axis on."""
        left = list(self.shape)
        whole = [n % WHOLE[self.torus] == 0 for n in self.shape]
        out: dict[str, tuple[Ring, ...]] = {}
        pods = self.pods
        for k, (name, size) in enumerate(reversed(self.axes.items())):
            rest = size
            if k == len(self.axes) - 1 and pods > 1:
                rest = max(1, size // pods)
            rings = []
            for i in sorted(range(len(left)), key=lambda i: -left[i]):
                take = math.gcd(rest, left[i])
                if take > 1:
                    rings.append(Ring(take, whole[i] and take == self.shape[i]))
                    left[i] //= take
                    rest //= take
            out[name] = tuple(rings)
        return out

    def group(self, axis: str) -> Group:
        """The chips along one axis of the mesh (or several, "r,d")."""
        names = axis.split(",")
        size = math.prod(self.axes[a] for a in names)
        if self.torus:
            rings = tuple(r for a in names for r in self.placed[a])
            inside = math.prod(r.size for r in rings)
            return Group(size, rings, max(1, size // inside))
        within = self.inside
        for name in reversed(self.axes):  # the last axes lie inside a host
            if name in names:
                break
            within = max(1, within // self.axes[name])
        return Group(size, (), max(1, size // max(1, min(size, within))))

    def price(self, c: Collective) -> Price:
        """Seconds of one run of the collective on this network."""
        group = self.group(c.axis)
        if c.size:
            group = Mesh({"others": self.chips // c.size, "group": c.size}, self.chip, self.given).group("group")
        return price(c.kind, c.local, group, self.chip)


@dataclass(frozen=True, slots=True)
class Factor:
    """How the bytes that leave a device follow from S, in words and as a function of (S, N)."""

    words: str
    sent: Callable[[float, int], float]
    whole: Callable[[float, int], float]
    """S from what one device holds before."""
    phases: int = 1


PRICES: dict[str, Factor] = {
    ALL_REDUCE: Factor("2 (N-1)/N S", lambda s, n: 2 * (n - 1) / n * s, lambda local, n: local, 2),
    ALL_GATHER: Factor("(N-1)/N S", lambda s, n: (n - 1) / n * s, lambda local, n: local * n),
    REDUCE_SCATTER: Factor("(N-1)/N S", lambda s, n: (n - 1) / n * s, lambda local, n: local),
    ALL_TO_ALL: Factor("(N-1)/N^2 S", lambda s, n: (n - 1) / n**2 * s, lambda local, n: local * n),
    PERMUTE: Factor("S_local", lambda s, n: s, lambda local, n: local),
}
"""Kind -> the bytes that each device sends."""


def sent(kind: str, whole: float, n: int) -> float:
    """Bytes that each of `n` devices sends for a collective on S = `whole` bytes; 0 for one device."""
    return PRICES[kind].sent(whole, n) if n > 1 else 0.0


def hand(kind: str, whole: float, n: int, chip: Chip) -> Price:
    """One ring over all links of the chip, no latency: the hand column. Raises UsageError for a chip without links."""
    rate = _rate(chip)
    nbytes = sent(kind, whole, n)
    formula = f"{PRICES[kind].words} = {units.text(nbytes, 'B')} / {units.text(rate, 'B/s')} (all links, one ring)"
    return Price(nbytes / rate, 0.0, formula)


def _rate(chip: Chip) -> float:
    rate = chip.link_bytes_per_s
    if rate is None:
        raise UsageError(f"chip {chip.name} has no links: its file has no [link.count] and [link.bandwidth]")
    return rate


def price(kind: str, local: float, group: Group, chip: Chip) -> Price:
    """Seconds of a collective among `group`, each device holding `local` bytes before it."""
    n, factor = group.size, PRICES[kind]
    if n == 1:
        return Price(0.0, 0.0, "one chip: nothing moves")
    inner = n // group.nodes
    out, words = 0.0, []
    latency = chip.value("link.latency") or 0.0
    whole = factor.whole(local, n)
    if group.nodes > 1:
        nic = chip.value("scale_out.bandwidth")
        if nic is None:
            raise UsageError(f"chip {chip.name} has no scale_out.bandwidth, and this group spans {group.nodes} hosts")
        nbytes = _outer(kind, whole, local, n, group.nodes)
        out += nbytes / nic
        words.append(f"{units.text(nbytes, 'B')} over the network at {units.text(nic, 'B/s')}")
    hops = 0
    if inner > 1:
        nbytes = _inner(kind, whole, local, n, inner)
        each = chip.value("link.bandwidth") or 0.0
        links = sum(r.links for r in group.rings) if group.rings else int(chip.value("link.count") or 0)
        if kind == PERMUTE and group.rings:
            links = 1
        seconds, why = (
            nbytes / (links * each),
            f"{units.text(nbytes, 'B')} / ({links} links x {units.text(each, 'B/s')})",
        )
        if kind == ALL_TO_ALL and group.rings:
            middle = max(r.size / (4 * max(1, r.links)) for r in group.rings) * local / each
            if middle > seconds:
                long = max(group.rings, key=lambda r: r.size / max(1, r.links))
                seconds, why = middle, (f"middle of an axis of {long.size}: {long.size}/{4 * max(1, long.links)} x "
                                        f"{units.text(local, 'B')} / {units.text(each, 'B/s')}")  # fmt: skip
        hops = 1 if kind == PERMUTE or not group.rings else sum(r.hops for r in group.rings) * factor.phases
        out += seconds
        words.append(why)
    return Price(out, hops * latency, f"{factor.words} on {group}: " + " + ".join(words)
                 + (f" + {hops} hops x {units.text(latency, 's')}" if latency and hops else ""))  # fmt: skip


def _outer(kind: str, whole: float, local: float, n: int, nodes: int) -> float:
    """Bytes of each device that cross hosts: each has 1/inner of its host's share."""
    inner = n // nodes
    if kind == PERMUTE:
        return local
    if kind == ALL_TO_ALL:
        return local * (n - inner) / n
    return sent(kind, whole / inner, nodes)


def _inner(kind: str, whole: float, local: float, n: int, inner: int) -> float:
    if kind == ALL_TO_ALL:
        return local * (inner - 1) / n
    return local if kind == PERMUTE else sent(kind, whole, inner)


NAMES = {
    **dict.fromkeys(
        ("psum", "psum_invariant", "unreduced_psum", "pmax", "pmin", "unreduced_pmax", "unreduced_pmin"), ALL_REDUCE
    ),
    **dict.fromkeys(("all_gather", "all_gather_invariant", "all_gather_reduced"), ALL_GATHER),
    **dict.fromkeys(("reduce_scatter", "unreduced_reduce_scatter"), REDUCE_SCATTER),
    **dict.fromkeys(("all_to_all", "ragged_all_to_all"), ALL_TO_ALL),
    **dict.fromkeys(("ppermute", "psend", "pbroadcast", "pbroadcast_dynamic"), PERMUTE),
}
"""A primitive of the trace (without "_start") -> the kind of its collective."""


def steps(kind: str, n: int) -> int:
    """Rounds of a ring among `n` devices: in each, a device hands one piece on."""
    return 0 if n == 1 else 1 if kind == PERMUTE else PRICES[kind].phases * (n - 1)
