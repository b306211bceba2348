"""Rows that travel by an index made by sorting, as tokens do to their experts: which ops do it. No chips here.

Tokens are sorted by their expert, gathered in that order, multiplied, and gathered or scattered back. Each row is
treated alone, so chips that hold some of the tokens can each sort and gather their own: such a sort, gather or scatter
keeps the rows one axis. Which chip's expert a row then needs is placement.py's question.
"""

from __future__ import annotations

from collections.abc import Iterator

from costtrace.core import Op, Trace, Value

FREE = ("gather", "dot_general", "conv_general_dilated", "sort", "top_k")
"""Ops whose integer results are not the index of their operand any more."""


def routed(trace: Trace) -> set[int]:
    """The places in trace.ops of routing sorts, and of the gathers and scatters of activations by what they made."""
    made_by: dict[Value, frozenset[int]] = {}
    nothing: frozenset[int] = frozenset()
    weights: set[Value] = set()
    out: set[int] = set()

    def source(v: Value) -> frozenset[int]:
        """The sorts that made an index; a backward loop reads what the forward one kept."""
        while v not in made_by and v.edge is not None:
            v = v.edge.source
        return made_by.get(v, nothing)

    for i, op in enumerate(trace.ops):
        if op.inputs and op.primitive in ("convert_element_type", "reshape", "transpose") \
                and weighty(op.inputs[0], weights):  # fmt: skip
            weights.update(op.outputs)
        moves = op.primitive == "gather" or op.primitive.startswith("scatter")
        by = source(op.inputs[1]) if moves else nothing
        if by and not weighty(op.inputs[0], weights) and rows(op) is not None:
            out |= {i, *by}
        if op.primitive == "sort" and all(len(v.shape) == 1 for v in op.inputs):
            made_by.update(dict.fromkeys(op.outputs, frozenset({i})))
        elif by or op.primitive not in FREE:
            read = by.union(*map(source, op.inputs))
            if read:
                made_by.update((v, read) for v in op.outputs if v.dtype.startswith(("int", "uint", "bool")))
    return out


def weighty(v: Value, known: set[Value]) -> bool:
    v = v.behind("row")
    return v.weight is not None or v in known


def rows(op: Op) -> tuple[int, int] | None:
    """(the dimension whose rows are picked; that of the picked rows) of a gather or scatter of whole rows by one index
    each; None for any other."""
    numbers = op.params["dimension_numbers"]
    if op.primitive == "gather":
        gone, batched = numbers.collapsed_slice_dims, numbers.operand_batching_dims
        window, picked = numbers.offset_dims, op.outputs[0]
    else:
        gone, batched = numbers.inserted_window_dims, numbers.operand_batching_dims
        window, picked = numbers.update_window_dims, op.inputs[2]
    own = [d for d in range(len(picked.shape)) if d not in window]
    if len(gone) != 1 or batched or len(own) != 1:
        return None
    a, b = op.inputs[0].shape[gone[0]], picked.shape[own[0]]
    return (gone[0], own[0]) if a and b and (a % b == 0 or b % a == 0) else None


def values(op: Op) -> Iterator[Value]:
    """The operands of a routed op whose rows move: not its index."""
    yield op.inputs[0]
    yield from op.inputs[2:]
