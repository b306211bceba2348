"""LAWS: what must hold of every program, each with the kinds of statements that it is tried on.

A law takes a Program and asserts. It raises `Passed` where it says nothing of that program: the definition leaves a
choice there, or the slow account does not know it. test_random_programs.py tries a few programs in every run,
random_programs.py as many as asked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import collectives
import jax
import numpy as np
from brute import accounts
from hypothesis import strategies as st
from liveness import peak
from needs import bits
from statements import BLOCKS, KINDS, PRODUCTS, programs, written
from statements_wide import SPECIAL
from strategies import DTYPES, FLOATS, Program, Random

import costtrace
from costtrace import chip, sharding
from costtrace.evidence import xla
from costtrace.rules import RULES
from costtrace.storage import Storage
from costtrace.trace import trace

V6E = chip.load("v6e")


class Passed(Exception):
    """The law says nothing of this program."""


@dataclass(frozen=True)
class Law:
    holds: Callable[[Program], None]
    kinds: tuple[str, ...]
    size: int = 8
    depth: int = 2
    empty: bool = True
    """Whether arrays and loops of nothing are written."""
    dtypes: tuple[str, ...] = DTYPES
    """What the first argument may be."""
    marks: str = ""
    """"xla" where XLA is asked, so that the default tests leave it out."""

    @property
    def programs(self) -> st.SearchStrategy[Program]:
        return programs(self.kinds, self.size, self.depth, self.dtypes, self.empty)

    def program(self, source: Random) -> Program:
        return written(source, self.kinds, self.size, self.depth, self.dtypes, self.empty)


LAWS: dict[str, Law] = {}

COMMON = tuple(k for k in KINDS if k not in SPECIAL)
EVERYTHING = (*KINDS, *PRODUCTS, *BLOCKS, *BLOCKS)
UNROLLABLE = tuple(k for k in EVERYTHING if k != "mapped")
"""What `Program.fn(unrolled=True)` has without loops and kernels."""
NETS = (*(k for k in COMMON if k not in ("convolution", "gradient", "network")), "small", "einsum", "custom")
"""What the slow accounts know."""
PLACED = tuple(k for k in NETS if k not in ("indexed", "update"))
"""What touches elements at places known beforehand; of the rest costtrace counts elements, not places."""
NESTED = (*PLACED, "dot", "scan", "scan", "scope", "scope", "scope", "function")
BATCHED = (
    tuple(
        k
        for k in KINDS
        if k not in ("iota", "loop", "indexed", "update", "mapped", "along", "drawn", "ragged", "ordered")
    )
    + PRODUCTS
)
SUBSET = ("pointwise",) * 4 + (
    "broadcast",
    "reshape",
    "transpose",
    "slicing",
    "concatenate",
    "reverse",
    "folded",
    "dot",
)
"""What XLA's count of elementwise work is compared on; `pointwise` names its primitives."""


def law(kinds: tuple[str, ...], **more: Any) -> Callable[[Callable[[Program], None]], Callable[[Program], None]]:
    def register(holds: Callable[[Program], None]) -> Callable[[Program], None]:
        LAWS[holds.__name__] = Law(holds, kinds, **more)
        return holds

    return register


def unless(*doubtful: object) -> None:
    if any(doubtful):
        raise Passed


WORK = ("matmul_flops", "conv_flops", "vector_flops", "transcendentals")


def work(cost: costtrace.Cost) -> dict[str, int]:
    return {count: getattr(cost, count) for count in WORK}


@law(UNROLLABLE, size=10, depth=3)
def scanned_and_unrolled_do_the_same_work(p: Program) -> None:
    unless(p.remarks & {"looped gradient", "custom gradient"})
    looped, flat = (costtrace.profile(p.fn(unrolled), *p.args).total for unrolled in (False, True))
    if "jax.vmap" in p.source and work(looped) != work(flat):
        # a carry that starts without the batch has it in every trip of a loop, and unrolled from the second on
        assert all(n >= work(flat)[k] for k, n in work(looped).items()), f"{work(looped)} {work(flat)}"
        raise Passed
    assert work(looped) == work(flat), f"{work(looped)} {work(flat)}"
    assert +Counter(looped.by_dtype) == +Counter(flat.by_dtype)


@law(NESTED, size=6, empty=False)
def scanned_and_unrolled_scopes_move_the_same_bytes(p: Program) -> None:
    unless(p.remarks & {"empty", "carried row"}, "branch(" in p.source)
    unless(any("a carry whose start" in doubt for doubt in accounts(p.fn(), p.args).doubts))
    looped, flat = (costtrace.profile(p.fn(unrolled), *p.args) for unrolled in (False, True))
    assert looped.total.bytes_fused == flat.total.bytes_fused
    a, b = ({k: c.bytes_fused for k, c in each.scopes().items()} for each in (looped, flat))
    assert a == b, f"{a} {b}"


@law(EVERYTHING, size=10, depth=3)
def cuts_are_ordered_and_rows_add_up(p: Program) -> None:
    found = costtrace.profile(p.fn(), *p.args)
    for path, cost in found.by_scope.items():
        cuts = cost.bytes_fused, cost.bytes_scoped, cost.bytes_unfused
        assert sorted(cuts) == list(cuts), f"{path}: {cuts}"
    for by in ("primitive", "scope", "dtype", "phase"):
        rows = found.rows(by=by)
        assert sum(r.cost.flops for r in rows) == found.total.flops, by
        assert sum(r.cost.transcendentals for r in rows) == found.total.transcendentals, by
        assert sum(r.cost.bytes_unfused for r in rows) == found.total.bytes_unfused, by
    assert sum(cost.flops for cost in found.lines().values()) == found.total.flops


@law(EVERYTHING, size=10, depth=3)
def asked_again_saved_and_jitted_it_is_the_same(p: Program) -> None:
    found = costtrace.profile(p.fn(), *p.args)
    assert costtrace.profile(p.fn(), *p.args) == found
    assert costtrace.Profile.from_json(found.to_json()) == found
    jitted = costtrace.profile(jax.jit(p.fn()), *p.args)
    assert (jitted.total, jitted.peak.nbytes, jitted.scopes()) == (found.total, found.peak.nbytes, found.scopes())


@law(NESTED, size=6, empty=False)
def bytes_are_those_of_the_slow_account(p: Program) -> None:
    unless("empty" in p.remarks)
    try:
        book = accounts(p.fn(), p.args)
    except NotImplementedError as e:
        raise Passed from e  # jax does not differentiate every derivative of an author's own again
    unless(book.doubts)
    found = costtrace.profile(p.fn(), *p.args)
    unless("gather" in {row.key for row in found.rows(by="primitive")})  # of a sort's tangent: its places are data
    for path, row in book.rows.items():
        cost = found.by_scope[path]
        ours, slow = (cost.bytes_fused, cost.bytes_scoped, cost.bytes_unfused), (row.fused, row.scoped, row.unfused)
        assert ours == slow, f"{path}: {ours} {slow}"


@law((*PLACED, "dot", *("gradient",) * 4, "scope"), size=5, empty=False, dtypes=FLOATS)
def bytes_of_gradients_are_those_of_the_slow_account(p: Program) -> None:
    unless("gradient" not in p.remarks)
    bytes_are_those_of_the_slow_account(p)


@law((*NETS, "indexed", "update", "along", "scope"), size=5)
def no_count_is_below_the_slow_account(p: Program) -> None:
    book = accounts(p.fn(), p.args)
    unless(book.doubts)
    ours = costtrace.profile(p.fn(), *p.args).total.bytes_fused
    assert ours >= book.rows[""].fused, f"{ours} {book.rows[''].fused}"


@law((*NETS, "indexed", "along", "update", "update", "update"), size=4)
def no_count_of_donated_arguments_is_below_the_slow_account(p: Program) -> None:
    unless(any(bits(dtype) % 8 for dtype, _ in p.types))  # parts of an array updated in place: rounded one by one?
    given = tuple(range(len(p.args)))
    book = accounts(p.fn(), p.args, given)
    unless(book.doubts)
    ours = costtrace.profile(p.fn(), *p.args, jit={"donate_argnums": given}).total.bytes_fused
    assert ours >= book.rows[""].fused, f"{ours} {book.rows[''].fused}"
    kept = costtrace.profile(p.fn(), *p.args).total.bytes_fused
    assert ours <= kept, f"{ours} {kept}"


@law(NESTED, size=6, empty=False)
def peak_is_that_of_the_slow_account(p: Program) -> None:
    unless("repeat(" in p.source, "empty" in p.remarks)
    want = peak(p.fn(), p.args)
    unless(want is None)
    unless(Storage(trace(p.fn(), *p.args)).again)  # when a result is copied that another one holds is left open
    found = costtrace.profile(p.fn(), *p.args).peak
    assert found.nbytes == want, f"{found.nbytes} {want} {found.alive}"


@law(BATCHED, size=5, empty=False)
def a_batch_of_three_is_three_times_the_work(p: Program) -> None:
    unless("empty" in p.remarks, not p.args)
    args = tuple(jax.ShapeDtypeStruct((3, *a.shape), a.dtype) for a in p.args)
    one, many = costtrace.profile(p.fn(), *p.args).total, costtrace.profile(jax.vmap(p.fn()), *args).total
    thrice = {k: 3 * n for k, n in work(one).items()}
    unless("branch" in p.remarks)  # a batched choice runs every arm
    if "gradient" in p.remarks:  # one that is 0 whatever the argument is not batched
        assert all(n <= thrice[k] for k, n in work(many).items()), f"{work(many)} {thrice}"
        unless(work(many) != thrice)
    assert work(many) == thrice, f"{work(many)} {thrice}"


@law(("switched",) * 3 + ("scan", "function", "gradient", "scope", "dot", "unary"), size=4)
def a_branch_costs_its_dearest_arm(p: Program) -> None:
    unless("branch" not in p.remarks)
    found = costtrace.profile(p.fn(), *p.args)
    arms = [costtrace.profile(p.fn(arm=n), *p.args).total.flops for n in range(4)]
    assert found.total.flops >= max(arms), f"{found.total.flops} {arms}"
    if p.source.count("switch(") == 1 and "gradient" not in p.remarks:  # backward may have another dearest arm
        assert found.total.flops == max(arms), f"{found.total.flops} {arms}"


UNPLACED = tuple(k for k in EVERYTHING if k != "mapped")


@law(UNPLACED, size=6, depth=2, empty=False)
def strategies_lose_no_work_and_add_none(p: Program) -> None:
    """Two chips do all products of the whole, and neither more than that."""
    unless(not p.args)
    part = sharding.Part("program", 1, trace(p.fn(), *p.args, weights=0))
    whole = part.share.total
    for name in sharding.STRATEGIES:
        one = sharding.placed(name, [part], V6E, 2).cost
        for count in ("matmul_flops", "conv_flops"):
            chip_, all_ = getattr(one, count), getattr(whole, count)
            assert chip_ <= all_ <= 2 * chip_, f"{name} {count}: {chip_} of {all_}"
        cuts = one.bytes_fused, one.bytes_scoped, one.bytes_unfused
        assert name in ("pipeline", "stream") or sorted(cuts) == list(cuts), f"{name}: {cuts}"


@law(("mapped", "mapped", "unary", "scan", "function", "scope"), size=4, empty=False)
def collectives_send_what_a_ring_sends(p: Program) -> None:
    found = costtrace.profile(p.fn(), *p.args).total.collective_bytes
    want = collectives.sent(p.fn(), p.args)
    assert found == want, f"{found} {want}"


def ours(fn: Callable[..., Any], args: tuple[Any, ...]) -> Counter[tuple[str, float]]:
    """(kind, FLOPs as float32) of every real product and convolution, a loop's body once, as XLA counts."""
    found: Counter[tuple[str, float]] = Counter()
    for op in trace(fn, *args).ops:
        if op.primitive in RULES and "complex" not in op.outputs[0].dtype:
            cost = RULES[op.primitive].formula(op)
            for kind, flops in (("matmul", cost.matmul_flops), ("conv", cost.conv_flops)):
                if flops:
                    found[kind, float(np.float32(flops))] += 1
    return found


def theirs(fn: Callable[..., Any], args: tuple[Any, ...]) -> Counter[tuple[str, float]]:
    """The same of XLA's count."""
    return Counter((i.kind, i.flops) for i in xla.lowered(fn, args) if i.flops and not i.excluded)


@law((*COMMON, *PRODUCTS, *BLOCKS, *BLOCKS, "einsum", "custom", "whiled"), marks="xla")
def products_are_xlas_instruction_by_instruction(p: Program) -> None:
    unless("complex" in xla.excluded(p.fn(), p.args) and "conv_general" in p.source)
    if "empty" in p.remarks:  # XLA also drops what only an array of nothing needs, and prices loops that never run
        unless("0," in p.source or ", 0)" in p.source)
        assert not theirs(p.fn(), p.args) - ours(p.fn(), p.args)
    else:
        assert theirs(p.fn(), p.args) == ours(p.fn(), p.args)


@law((*COMMON, *PRODUCTS, *BLOCKS, *BLOCKS), empty=False, marks="xla")
def products_in_loops_are_xlas_unrolled(p: Program) -> None:
    unless(p.remarks - {"gradient"}, xla.excluded(p.fn(), p.args))
    unless(re.search(r"lax\.(sub|rem)\((\w+), \2\)", p.source))  # of integers, it is folded to 0 while it is lowered
    found = costtrace.profile(p.fn(), *p.args).total
    flops = found.matmul_flops, found.conv_flops
    assert flops == xla.matmul_conv(p.fn(unrolled=True), p.args)


@law(SUBSET, size=6, empty=False, dtypes=FLOATS, marks="xla")
def elementwise_work_is_xlas(p: Program) -> None:
    unless("empty" in p.remarks, any(dtype not in FLOATS for dtype, _ in p.types))
    found = costtrace.profile(p.fn(), *p.args).total
    counted = jax.jit(p.fn()).lower(*p.args).cost_analysis() or {}
    want = counted.get("flops", 0), counted.get("transcendentals", 0)
    assert (found.flops, found.transcendentals) == want, f"{found.flops, found.transcendentals} {want}"
