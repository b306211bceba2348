"""Trace -> Launches: the kernels that a compiler like XLA is taken to start, each with what it computes and moves.

The rule, once. Products, convolutions, gathers, scatters, sorts, scans along an axis and kernels of others start alone.
Everything between them is loops: an elementwise op, a cast, a broadcast, a slice or a transpose is computed inside its
reader, again for each reader, unless its value must be an array of its own. It must where a lone op reads it, where it
leaves the program or the trip of its loop, where it is a reduction, a concatenation or moved by a transpose, and
where it is dear (it holds a transcendental or a division) and more than one array is made of it, or it is repeated.
Knows no chip and no seconds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from costtrace.access import IDENTITY, source
from costtrace.core import Op, Trace, Value
from costtrace.rules import RULES
from costtrace.rules.table import priced
from costtrace.storage import Storage

CLASSES: dict[str, str] = {
    "div": "divide", "rem": "divide", "reciprocal": "divide",
    "exp": "exp", "exp2": "exp", "expm1": "exp",
    "log": "log", "log2": "log", "log1p": "log",
    "tanh": "tanh", "erf": "erf", "erfc": "erf", "erf_inv": "erf",
    "logistic": "logistic", "sin": "sine", "cos": "sine", "tan": "sine",
    "rsqrt": "rsqrt", "sqrt": "rsqrt", "cbrt": "rsqrt", "pow": "power",
    "select_n": "select", "convert_element_type": "add", "reduce_precision": "add",
}  # fmt: skip
"""Primitive -> the kind of grid that prices an element of it; other elementwise arithmetic is "add"."""
DEAR = {"divide", "exp", "log", "tanh", "erf", "logistic", "sine", "rsqrt", "power"}
LOOPS = {"convert_element_type", "reduce_precision", "broadcast_in_dim", "broadcast_to", "iota", "slice", "squeeze",
         "expand_dims", "reshape", "rev", "pad", "transpose", "copy", "split", "unstack", "zeros_like", "empty",
         "real", "imag", "complex", "bitcast_convert_type", "dynamic_slice", *IDENTITY}  # fmt: skip
JOINS = {"concatenate", "stack"}
SAME = {"reshape", "squeeze", "expand_dims", *IDENTITY}
"""What names an array anew."""
REDUCTIONS = {"reduce_sum": "sum", "reduce_prod": "sum", "reduce_max": "max", "reduce_min": "max", "reduce_and": "max",
              "reduce_or": "max", "reduce_xor": "sum", "argmax": "max", "argmin": "max", "reduce": "sum"}  # fmt: skip


@dataclass(slots=True)
class Launch:
    """One kernel, run `repeat` times in a call.

    kind: a key of grid.KINDS where the work has a grid of its own, "loop" for elementwise work alone, "other" for what
    has neither. `elements`: {(class, dtype): elements}; `flops`: {dtype: FLOPs} of products within "other". `streamed`:
    bytes of `read` that are parameters, which come from memory. `label`: the op, for a reader.
    """

    kind: str
    sizes: tuple[int, ...]
    dtype: str
    scope: str
    repeat: int
    label: str
    read: int = 0
    streamed: int = 0
    written: int = 0
    elements: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    flops: dict[str, int] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return self.read + self.written


@dataclass(frozen=True, slots=True)
class Launches:
    """The kernels of one call in order. `trips`: {scope: trips of loops in it}; `made`: bytes of the arrays that one
    call makes, each once; `parameters`: bytes of the parameters."""

    kernels: list[Launch]
    trips: dict[str, int]
    made: int
    parameters: int


def launches(trace: Trace) -> Launches:
    """The kernels of `trace`."""
    return _Plan(trace).result()


class _Plan:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.storage = Storage(trace)
        self.maker = {v: op for op in trace.ops for v in op.outputs}
        self.arrays: set[Value] = set()
        self.readers: dict[Value, set[Value]] = defaultdict(set)  # the arrays that are made of it
        self.dear: dict[Value, bool] = {}

    def result(self) -> Launches:
        self.mark()
        kernels: list[Launch] = []
        for op in self.trace.ops:
            if self.loops(op):
                kernels += [self.loop(op, v) for v in op.outputs if v in self.arrays and v.size]
            elif any(v.size for v in op.outputs) or not op.outputs:
                kernels += self.alone(op)
        trips: dict[str, int] = defaultdict(int)
        for frame in {loop for op in self.trace.ops for loop in op.frame.up() if loop.kind == "loop"}:
            trips[frame.scope_path] += frame.repeat
        made = sum(v.nbytes for v in self.arrays)
        parameters = sum(v.nbytes for v in self.trace.inputs if v.weight is not None)
        return Launches(kernels, dict(trips), made, parameters)

    # -- which values are arrays

    def loops(self, op: Op) -> bool:
        """Is `op` computed inside a loop over its elements, its readers' where it can?"""
        if op.priced is not None:
            return False
        rule = RULES.get(op.primitive)
        pointwise = rule is not None and rule.owner.endswith(".pointwise")
        return pointwise or op.primitive in LOOPS or op.primitive in REDUCTIONS or op.primitive in JOINS

    def mark(self) -> None:
        """Backwards, so that readers are known before what they read."""
        for v in self.trace.outputs:
            self.crossing(v)
        for c in self.trace.carries:
            self.crossing(c.end)
            self.crossing(c.start)
        for op in self.trace.ops:
            for v in op.inputs:
                at = v.edge
                while at is not None:
                    self.crossing(at.source)
                    at = at.source.edge
        for op in self.trace.ops:
            if not self.loops(op):
                self.arrays.update(op.outputs)
                for v in op.inputs:
                    self.crossing(v)
            elif op.primitive in REDUCTIONS or op.primitive in JOINS:
                self.arrays.update(op.outputs)
        for op in self.trace.ops:  # dear: holds a transcendental, or reads what does and is no array
            if self.loops(op):
                here = CLASSES.get(op.primitive) in DEAR
                held = here or any(self.dear.get(v, False) and v not in self.arrays for v in op.inputs)
                self.dear.update(dict.fromkeys(op.outputs, held))
        for op in reversed(self.trace.ops):
            if not self.loops(op):
                continue
            for v in op.outputs:
                far = any(self.maker[u].frame.loop is not op.frame.loop for u in self.readers[v] if u in self.maker)
                if v not in self.arrays and (far or (self.dear[v] and len(self.readers[v]) > 1)):
                    self.arrays.add(v)
                roots: set[Value] = {v} if v in self.arrays else self.readers[v]
                for x in op.inputs:
                    grows = op.primitive in ("broadcast_in_dim", "broadcast_to") and x.size < op.outputs[0].size
                    if grows and self.dear.get(x):
                        self.arrays.add(x)
                    self.readers[x] |= roots

    def crossing(self, v: Value) -> None:
        """`v` is an array, or a view of one: its nearest value that is computed."""
        seen: Value | None = v
        while seen is not None:
            if seen.edge is not None:
                seen = seen.edge.source
                continue
            op = self.maker.get(seen)
            if op is None:
                return
            if op.primitive in SAME and op.inputs:
                seen = source(op, op.outputs.index(seen))
                continue
            self.arrays.add(seen)
            return

    # -- kernels

    def loop(self, op: Op, out: Value) -> Launch:
        """The kernel that makes the array `out`: `op` and what is computed inside it."""
        kind = "loop"
        sizes: tuple[int, ...] = (out.size,)
        if op.primitive in REDUCTIONS:
            kind, sizes = _reduction(op)
        elif op.primitive in JOINS:
            kind = "concatenate"
        made = Launch(kind, sizes, op.inputs[0].dtype if op.inputs else out.dtype, op.scope, op.repeat, op.primitive)
        made.written = out.nbytes
        seen: dict[Value, None] = {}
        todo = [op]
        done: set[int] = set()
        while todo:
            at = todo.pop()
            if id(at) in done:
                continue
            done.add(id(at))
            if at.primitive == "transpose" and not self.storage_view(at):
                made.elements[_turned(at), at.outputs[0].dtype] += at.outputs[0].size
            elif (name := self.element(at)) is not None:
                made.elements[name, _computed(at)] += max(v.size for v in (*at.outputs, *at.inputs))
            for v in at.inputs:
                maker = self.maker.get(v)
                if v.kind == "literal":
                    continue
                if maker is None or v.edge is not None or v in self.arrays or not self.loops(maker):
                    seen[v] = None
                    if at.primitive in ("slice", "split", "unstack", "dynamic_slice"):
                        seen.pop(v)
                        made.read += min(v.nbytes, at.outputs[0].nbytes)
                else:
                    todo.append(maker)
        made.read += sum(v.nbytes for v in seen)
        made.streamed = sum(v.nbytes for v in seen if _parameter(v))
        return made

    def storage_view(self, op: Op) -> bool:
        """A transpose that moves no element past another: only axes of size 1 change places."""
        kept = [p for p in op.params["permutation"] if op.inputs[0].shape[p] > 1]
        return kept == sorted(kept)

    def element(self, op: Op) -> str | None:
        if op.primitive in CLASSES:
            return CLASSES[op.primitive]
        rule = RULES.get(op.primitive)
        return "add" if rule is not None and rule.owner.endswith(".pointwise") else None

    def alone(self, op: Op) -> Iterable[Launch]:
        made = Launch("other", (), "", op.scope, op.repeat, op.primitive)
        made.read = sum(v.nbytes for v in dict.fromkeys(op.inputs) if v.kind != "literal")
        made.written = sum(v.nbytes for v in op.outputs)
        made.streamed = sum(v.nbytes for v in dict.fromkeys(op.inputs) if _parameter(self.origin(v)))
        made.dtype = op.inputs[0].dtype if op.inputs else ""
        if op.primitive == "dot_general":
            yield from self.product(op, made)
            return
        if op.primitive == "conv_general_dilated":
            _convolution(op, made)
        elif op.primitive == "gather":
            out = op.outputs[0]
            width = out.shape[-1] if out.shape else 1
            made.kind, made.sizes = "gather", (out.size // max(1, width), width)
            made.read = made.streamed = out.nbytes
        elif op.primitive in ("dynamic_update_slice", "scatter"):
            update = op.inputs[1] if op.primitive == "dynamic_update_slice" else op.inputs[2]
            made.kind, made.sizes = "copy", (2 * update.nbytes,)
            made.read = made.written = update.nbytes
        elif op.primitive == "cond":
            return
        else:
            cost = priced(op).cost
            made.flops = dict(cost.by_dtype)
            for dtype, n in cost.vector_by_dtype.items():
                made.elements["add", dtype] += n
            for key, n in ((("exp", "float32"), cost.transcendentals), (("add", "int32"), cost.integer_ops)):
                if n:
                    made.elements[key] += n
        yield made

    def product(self, op: Op, made: Launch) -> Iterable[Launch]:
        lhs, rhs = op.inputs[:2]
        (lc, rc), (lb, rb) = op.params["dimension_numbers"]
        batch = math.prod(lhs.shape[d] for d in lb)
        k = math.prod(lhs.shape[d] for d in lc)
        m, n = lhs.size // max(1, batch * k), rhs.size // max(1, batch * k)
        left, right = _parameter(self.origin(lhs)), _parameter(self.origin(rhs))
        if left and not right:  # the grid's right operand is the one that is streamed
            m, n = n, m
        made.dtype = max(lhs, rhs, key=lambda v: v.bits).dtype
        made.kind = "batched product" if batch > 1 else "streamed product" if left or right else "product"
        made.sizes = (batch, m, n, k) if batch > 1 else (m, n, k)
        for v, contracted, batched in ((lhs, lc, lb), (rhs, rc, rb)):
            if not _in_order(v, contracted, batched):
                turn = Launch("swap", (v.size,), v.dtype, op.scope, op.repeat, "transpose of a product's operand")
                turn.read = turn.written = v.nbytes
                yield turn
        yield made

    def origin(self, v: Value) -> Value:
        """What `v` is but for views and casts."""
        while v.edge is None:
            op = self.maker.get(v)
            if op is None or not (self.storage.is_view(op) or op.primitive in ("convert_element_type", "transpose")):
                break
            v = op.inputs[0]
        return v


def _parameter(v: Value) -> bool:
    """Is it read from memory, as an argument or a layer's part of one?"""
    return v.behind().kind in ("input", "const")


def _computed(op: Op) -> str:
    """The dtype that an element is computed in: the wider of what goes in and comes out, floating before integer."""
    return max((*op.inputs, *op.outputs), key=lambda v: ("float" in v.dtype, v.size, v.bits)).dtype


def _turned(op: Op) -> str:
    """ "swap" where the last axis stays the last, else "transpose"."""
    last = len(op.inputs[0].shape) - 1
    return "swap" if op.params["permutation"][-1] == last else "transpose"


def _reduction(op: Op) -> tuple[str, tuple[int, int]]:
    """(kind of grid, (rows, columns)): over the last axis, or over others."""
    x, axes = op.inputs[0], tuple(op.params.get("axes", op.params.get("dimensions", ())))
    folded = math.prod(x.shape[d] for d in axes)
    kept = x.size // max(1, folded)
    wide = [d for d, n in enumerate(x.shape) if n > 1]
    if not wide or wide[-1] in axes:
        return f"{REDUCTIONS[op.primitive]} last", (kept, folded)
    return "sum first", (folded, kept)


def _in_order(v: Value, contracted: tuple[int, ...], batched: tuple[int, ...]) -> bool:
    """Do the batch axes lead, and the contracted ones lie together, first or last of the rest?"""
    free = [d for d in range(len(v.shape)) if d not in contracted and d not in batched]
    order = [d for d in range(len(v.shape)) if v.shape[d] > 1]
    for rest in ([*free, *contracted], [*contracted, *free]):
        if [d for d in (*batched, *rest) if v.shape[d] > 1] == order:
            return True
    return False


def _convolution(op: Op, made: Launch) -> None:
    lhs, rhs = op.inputs[:2]
    _, rhs_dims, out_dims = op.params["dimension_numbers"]
    out = op.outputs[0]
    taps = math.prod(rhs.shape[d] for d in rhs_dims[2:])
    pixels = out.size // max(1, out.shape[out_dims[1]])
    made.dtype = max(lhs, rhs, key=lambda v: v.bits).dtype
    made.kind, made.sizes = "convolution", (pixels, rhs.shape[rhs_dims[1]], rhs.shape[rhs_dims[0]], taps)
