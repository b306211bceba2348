"""What the collectives of a compiled program take, by scope, and how much of it other kernels hide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from costtrace.target.price import Timed


def hidden(kernels: list[Timed]) -> list[Timed]:
    """Collectives that start here and are waited for later: the kernels between cover them, as far as they last; what
    covers one covers no other."""
    out, free = list(kernels), {id(each): each.seconds for each in kernels if not each.moved}
    orders: dict[str, dict[str, int]] = {}
    for n, each in enumerate(kernels):
        i, computation = each.kernel.instruction, each.kernel.computation
        if not each.moved or not i.opcode.endswith("-start"):
            continue
        order = orders.setdefault(computation.name, {name: at for at, name in enumerate(computation.instructions)})
        done = next((u for u in computation.users.get(i.name, ()) if u.opcode.endswith("-done")), None)
        if done is None:
            continue
        left = each.seconds
        for o in kernels:
            if o.kernel.computation is computation and order[i.name] < order[o.kernel.name] < order[done.name]:
                taken = min(left, free.get(id(o), 0.0))
                left -= taken
                free[id(o)] = free.get(id(o), 0.0) - taken
        out[n] = replace(each, hidden_s=each.seconds - left)
    return out


def summed(kernels: Sequence[Timed]) -> list[dict[str, Any]]:
    """The collectives by scope, kind and axis, of all runs: bytes that one device sends, the network's seconds
    (mesh.PRICES), the seconds that count, and how many of them are hidden behind other kernels."""
    sums: dict[tuple[str, str, str | None, str], list[Timed]] = {}
    for each in kernels:
        c = each.moved
        if c or each.kernel.collective:
            key = (each.scope, c.kind if c else each.kernel.collective, c.axis if c else None, each.by)
            sums.setdefault(key, []).append(each)
    rows = [{"scope": scope, "kind": kind, "axis": axis, "count": sum(each.kernel.repeat for each in some),
             "bytes_sent": _known((each, each.moved and each.moved.nbytes) for each in some),
             "network_s": _known((each, each.network_s) for each in some),
             "time_s": sum(each.kernel.repeat * each.seconds for each in some),
             "hidden_s": sum(each.kernel.repeat * each.hidden_s for each in some), "estimated_by": by}
            for (scope, kind, axis, by), some in sums.items()]  # fmt: skip
    return sorted(rows, key=lambda row: -row["time_s"])


def _known(values: Iterable[tuple[Timed, Any]]) -> Any:
    """The sum over all runs; None where one is not known."""
    some = list(values)
    return None if any(v is None for _, v in some) else sum(each.kernel.repeat * v for each, v in some)
