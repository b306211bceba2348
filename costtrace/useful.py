"""Matmul FLOPs that a static mask makes needless: what a kernel that skips hidden scores would not do. No jax here.

A causal mask or a window is a select, a sum or a product with an array that follows from the program alone. Two passes
find what it hides. Forward: which elements of a value are known to be 0 or a masking number (static.MASKING), through
softmax and its derivative. Backward: which elements are asked for; what is multiplied by a known 0, or replaced or
swamped by a known 0 or masking number, is not. A product is useful where its operands may be other than 0 and its
result is asked for: Q K^T, P V, and in the gradient dO V^T, dS K, dS^T Q, P^T dO. Data hide nothing: the part of a mask
that depends on them (padding) counts as all live. So useful FLOPs are an upper bound, exact where one mask is at work.
A row that is masked throughout counts as hidden, whatever softmax makes of it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from costtrace.access import IDENTITY
from costtrace.core import Note, Op, Trace, Value
from costtrace.rules import RULES
from costtrace.rules.attention import sizes
from costtrace.static import ARITHMETIC, CELLS, COMPARISONS, MASKING, UNKNOWN, Known, Move, Statics

MOVES = ("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice")
CASTS = ("convert_element_type", "reduce_precision", *IDENTITY)
HANDLED = frozenset((*ARITHMETIC, *MOVES, *CASTS, "iota", "concatenate", "integer_pow", "xor"))
HIDING = frozenset(("select_n", "mul", "add", "add_any"))
"""Primitives by which one operand can hide elements of another."""
FLOATING = ("float", "bfloat", "complex")
PRODUCTS = ("dot_general", "scaled_dot")
FUSED = "dot_product_attention_"


def useful(trace: Trace) -> tuple[dict[int, int], list[Note]]:
    """({index of an op: useful matmul FLOPs of one execution}, notes); only ops where they differ from the executed."""
    found = Masks(trace)
    found.forward()
    if found.hides:
        found.backward()
    asked = [op for op in trace.ops if op.primitive in PRODUCTS or op.primitive.startswith(FUSED)]
    hidden = [(op, share) for op in asked if (share := found.share(op)) != 1]
    kept = {op.index: int(RULES[op.primitive].formula(op).matmul_flops * share) for op, share in hidden}
    return kept, found.said(hidden) + list(dict.fromkeys(found.notes))


class Masks:
    """What the masks of one program hide: `forward`, then `backward`, then `share` of each product."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.statics = trace, Statics()
        self.known: dict[Value, Known] = {}
        self.asked: dict[Value, Known | None] = {}  # None: all of it
        self.hides: dict[int, list[Known | None]] = {}  # index of an op: what of each operand its others leave visible
        self.open: Op | None = None  # the first select by a mask that also depends on data
        self.counted: dict[Known, Fraction | None] = {}
        self.notes: list[Note] = []

    # -- forward: what is known

    def at(self, v: Value) -> Known | None:
        if v.literal is not None:
            real = v.shape == () and v.dtype.startswith(("bool", "int", "uint", "float", "bfloat"))
            return self.statics.number(v.literal) if real else None
        found, edge = self.known.get(v), v.edge
        if found is None and edge is not None and edge.kind != "part":
            found = self.at(edge.source)
            if found is not None and edge.kind == "row":  # one row for each trip: known if all are the same
                move: Move = ("reshape", (1, *v.shape), v.shape)
                found = None if 0 in found.varies() else self.statics.moved(move, found)
            elif found is not None and edge.kind == "stack":
                found = self.statics.moved(("reshape", v.shape[1:], (1, *v.shape[1:])), found)
        return found

    def constant(self, array: Any) -> Known | None:
        """A mask that the program closes over: of booleans or integers, or a bias with masking numbers in it."""
        kind = np.dtype(array.dtype).kind
        if array.size > CELLS and kind == "b":
            self.too_large("", f"bool{list(array.shape)}")
        if array.size > CELLS or kind not in "biuf":
            return None
        numbers = np.asarray(array)
        if kind == "f" and (numbers.ndim < 2 or not (numbers <= MASKING).any()):
            return None  # a weight
        return self.statics.one(Known(numbers.astype(np.float64)))

    def forward(self) -> None:
        known = self.known
        for v, array in self.trace.constants.items():
            if (found := self.constant(array)) is not None:
                known[v] = found
        for op in self.trace.ops:
            if op.primitive not in HANDLED:
                continue
            data = False
            for v in op.inputs:
                if v.literal is None:
                    data = True
                    if v in known or (v.edge is not None and self.at(v) is not None):
                        break
            else:
                if data:
                    continue
            self.learn(op)

    def learn(self, op: Op) -> None:
        inputs = [self.at(v) for v in op.inputs]
        if op.primitive in HIDING:
            shown = [self.shown(op, i) for i in range(len(op.inputs))]
            if any(k is not None and not all(a.all() for a in k.cases) for k in shown):
                self.hides[op.index] = shown
        if len(op.outputs) == 1:
            results = [self.result(op, inputs)]
        else:
            results = inputs if op.primitive in IDENTITY and len(inputs) == len(op.outputs) else []
        self.known.update((v, found) for v, found in zip(op.outputs, results, strict=False) if found is not None)

    def result(self, op: Op, inputs: list[Known | None]) -> Known | None:
        name, out, s = op.primitive, op.outputs[0], self.statics
        if name == "iota":
            shape = [n if d == op.params["dimension"] else 1 for d, n in enumerate(out.shape)]
            return s.one(Known(np.arange(float(max(shape))).reshape(shape))) if max(shape) <= CELLS else None
        first = inputs[0]
        if name in MOVES:
            move = move_of(op)
            return None if move is None or first is None else s.moved(move, first)
        if name == "concatenate":
            axis = op.params["dimension"]
            return s.joined(tuple(k or UNKNOWN for k in inputs), tuple(v.shape[axis] for v in op.inputs), axis)
        if name in CASTS:
            if first is None or name != "convert_element_type" or out.dtype.startswith(FLOATING):
                return first
            return s.apply("true" if out.dtype == "bool" else "integer", first)
        if name == "select_n" and (len(inputs) != 3 or op.inputs[0].dtype != "bool"):
            return None
        if name == "integer_pow":
            zeros = first is not None and op.params["y"] > 0 and not self.many(first)
            return s.apply("mul", first, UNKNOWN) if zeros and first is not None else None
        if out.dtype == "bool" and name == "xor":
            name = "ne"
        elif name in ("and", "or", "not", "xor") and out.dtype != "bool":
            return None
        if name in ("mul", "div") and None in inputs and any(k and self.many(k) for k in inputs):
            return None  # a zero among other numbers (positions times data) is no mask
        found = s.apply(name, *(k or UNKNOWN for k in inputs))
        if found is None and name in (*COMPARISONS, "and", "or", "abs") and None not in inputs:
            self.too_large(op.scope, str(op.outputs[0]))
        return found if found is None or out.dtype == "bool" else self.wrapped(found, name, out.dtype)

    def wrapped(self, known: Known, name: str, dtype: str) -> Known | None:
        """Integers where they fit; where they wrap round they are unknown."""
        kind = dtype.rstrip("0123456789")
        if kind not in ("int", "uint"):
            return known
        s, (low, high) = self.statics, _range(dtype)
        if name == "div":
            return s.apply("integer", known)
        if kind == "int" and known.span is None and known.outside is not None:
            return known
        return s.apply("within", known, s.number(low), s.number(high))

    def many(self, known: Known) -> bool:
        """Two different numbers other than 0 are known in it: positions, a table, but no mask."""
        if known.span is None and known.outside is not None:
            return True
        seen = [a[(a != 0) & ~np.isnan(a)] for a in known.cases]
        ends = [x for a in seen if a.size for x in (a.min(), a.max())]
        return len(set(ends)) > 1

    # -- backward: what is asked for

    def need(self, v: Value, asked: Known | None) -> None:
        while v.edge is not None:
            kind, shape = v.edge.kind, v.shape
            if asked is not None and kind == "row":
                asked = self.statics.moved(("reshape", shape, (1, *shape)), asked)
            elif asked is not None and kind == "stack" and 0 not in asked.varies():
                asked = self.statics.moved(("reshape", (1, *shape[1:]), shape[1:]), asked)
            else:
                asked = None
            v = v.edge.source
        if v not in self.asked:
            self.asked[v] = asked
        elif self.asked[v] is not asked:
            before = self.asked[v]
            self.asked[v] = None if before is None or asked is None else self.statics.apply("or", before, asked)

    def backward(self) -> None:
        asked, need = self.asked, self.need
        for v in self.trace.outputs:
            need(v, None)
        for c in self.trace.carries:
            need(c.start, None)
            need(c.end, None)
        for op in reversed(self.trace.ops):
            if op.index in self.hides or any(map(asked.get, op.outputs)):
                for v, part in zip(op.inputs, self.needs(op), strict=True):
                    need(v, part)
            else:
                for v in op.inputs:
                    if v.edge is not None:
                        need(v, None)
                    else:
                        asked[v] = None

    def needs(self, op: Op) -> list[Known | None]:
        """What an op needs of each operand, for what is asked of its results."""
        name, out = op.primitive, op.outputs[0]
        asked = self.asked.get(out)
        if len(op.outputs) > 1:
            return [self.asked.get(v) for v in op.outputs] if name in IDENTITY else [None] * len(op.inputs)
        if name in MOVES or name == "pad":
            back = None if asked is None else self.moved_back(op, asked)
            return [back, *([None] * (len(op.inputs) - 1))]
        rule = RULES.get(name)
        if name not in CASTS and name != "select_n" and (rule is None or not rule.owner.endswith(".pointwise")):
            return [None] * len(op.inputs)
        parts = [asked if v.shape == out.shape else None for v in op.inputs]
        shown = self.hides.get(op.index)
        if shown is None:
            return parts
        return [
            self.both(p, k) if v.shape == out.shape else None for p, k, v in zip(parts, shown, op.inputs, strict=True)
        ]

    def moved_back(self, op: Op, asked: Known) -> Known | None:
        if op.primitive == "pad":
            low, high, holes = zip(*op.params["padding_config"], strict=True)
            ends = tuple(a + n for a, n in zip(low, op.inputs[0].shape, strict=True))
            whole = min(*low, *high) >= 0 and not any(holes)
            return self.statics.moved(("slice", low, ends, (1,) * len(low)), asked) if whole else None
        move = move_of(op)
        if move is None or move[0] == "slice":
            return None
        if move[0] == "transpose":
            return self.statics.moved(("transpose", tuple(int(d) for d in np.argsort(move[1]))), asked)
        if move[0] == "reshape":
            return self.statics.moved(("reshape", move[2], move[1]), asked)
        out = op.outputs[0].shape
        kept = {d for d, n in zip(move[1], op.inputs[0].shape, strict=True) if n == out[d]}
        return self.statics.moved(("keep", move[1]), asked) if asked.varies() <= kept else None

    def shown(self, op: Op, i: int) -> Known | None:
        """The elements of operand i that the other operands of a hiding op leave visible."""
        s, name = self.statics, op.primitive
        if name != "select_n":
            other = self.at(op.inputs[1 - i])
            if other is None or (name == "mul" and self.many(other)):
                return None
            return s.apply("maybe 1" if name == "mul" else "not masking", other)
        if i == 0 or len(op.inputs) != 3 or op.inputs[0].dtype != "bool":
            return None
        which, other = self.at(op.inputs[0]), self.at(op.inputs[3 - i])
        if which is None or other is None:
            return None
        if self.open is None and any(np.isnan(a).any() for a in which.cases):
            self.open = op
        mine, beside = s.apply("maybe 1" if i == 2 else "maybe 0", which), s.apply("shown", other)
        return None if mine is None or beside is None else s.apply("or", mine, beside)

    def both(self, a: Known | None, b: Known | None) -> Known | None:
        return b if a is None else a if b is None else self.statics.apply("and", a, b)

    # -- products

    def share(self, op: Op) -> Fraction:
        """The useful share of a product's FLOPs."""
        if op.primitive.startswith(FUSED):
            return fused_share(op)
        if not self.hides:
            return Fraction(1)
        operands = [k for v in op.inputs[:2] if (k := self.at(v)) and any(np.isnan(a).any() for a in k.cases)]
        live = [self.asked.get(op.outputs[0]), *(self.statics.apply("maybe 1", k) for k in operands)]
        for k in live:
            if k is not None and k not in self.counted:
                self.counted[k] = k.fraction()
        return min((f for k in live if k is not None and (f := self.counted[k])), default=Fraction(1))

    # -- what must be said

    def too_large(self, scope: str, mask: str) -> None:
        text = f"a mask {mask} is no interval in each row and too large to evaluate: it counts as all live"
        self.notes.append(Note("mask", scope, text))

    def said(self, hidden: list[tuple[Op, Fraction]]) -> list[Note]:
        notes = []
        if hidden:
            shares = sorted({share for _, share in hidden})
            listed = ", ".join(f"{float(s):.2%}" for s in shares[:3]) + (", ..." if len(shares) > 3 else "")
            text = (
                f"static masks leave {listed} of the work of {len(hidden)} products: all of it is executed and counted"
            )
            notes.append(Note("mask", hidden[0][0].scope, f"{text}, useful_flops leaves out what is hidden"))
        if hidden and self.open is not None:
            text = "a mask depends on data as well (padding): that part of it counts as all live"
            notes.append(Note("mask", self.open.scope, text))
        return notes


def move_of(op: Op) -> Move | None:
    """How a view moves its operand, whatever that holds."""
    p, source, shape = op.params, op.inputs[0].shape, op.outputs[0].shape
    if op.primitive == "transpose":
        return "transpose", tuple(p["permutation"])
    if op.primitive == "broadcast_in_dim":
        return "broadcast", tuple(map(int, p["broadcast_dimensions"])), len(shape)
    if op.primitive == "slice":
        return "slice", tuple(p["start_indices"]), tuple(p["limit_indices"]), tuple(p["strides"] or (1,) * len(source))
    return None if op.primitive == "reshape" and p.get("dimensions") else ("reshape", source, shape)


def fused_share(op: Op) -> Fraction:
    """cuDNN's own causal mask, key <= query, and window, query - key < w: a count, row by row."""
    window = op.params.get("sliding_window_length") or 0
    causal = "CAUSAL" in getattr(op.params.get("mask_type"), "name", "")
    scores, rows, _, _ = sizes(op)
    keys, at = scores // max(rows, 1), np.arange(op.inputs[0].shape[2 if op.params["layout"] == 1 else 1])
    stop = np.minimum(at + 1, keys) if causal else np.full_like(at, keys)
    first = np.minimum(np.maximum(at - window + 1, 0), stop) if window > 0 else 0 * at
    live = Fraction(int((stop - first).sum()), max(1, at.size * keys))
    return live or Fraction(1)


def _range(dtype: str) -> tuple[int, int]:
    """The least and the largest number of an integer dtype, by its name: int4 has -8 to 7."""
    bits = int("".join(ch for ch in dtype if ch.isdigit()) or 8)
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
