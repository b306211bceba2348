"""A Profile cut into rows. Rows of one view never overlap (but for `weight`), and add up to the total's FLOPs."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from costtrace.core import Cost, total
from costtrace.errors import UsageError
from costtrace.summary import BY, Array, Profile, Record, Row, worst

NUMBERED = re.compile(r"((?:^|(?<=[_.\-]))\d+|\[\d+\])$")
"""The number that tells siblings apart: layers_0, blocks.3, layers[2], 7."""


def rows(profile: Profile, by: str, depth: int | None, merge: bool) -> list[Row]:
    """See Profile.rows."""
    if by not in BY:
        raise UsageError(f"rows(by={by!r}): choose one of {', '.join(BY)}")
    if by in ("scope", "layer"):
        return _by_scope(profile, depth, merge and by == "scope")
    if by == "weight":
        leaves = _leaves(profile.by_weight, depth)
        return [Row(path, cost, profile.status, 1, cost.flops, False) for path, cost in leaves.items()]
    if by == "line":
        return [Row(line, cost, profile.status, 1, cost.flops, False) for line, cost in profile.lines().items()]
    groups: dict[str, list[Record]] = defaultdict(list)
    for r in profile.records:
        groups[getattr(r, by)].append(r)
    out = []
    for key, parts in groups.items():
        cost, kept = total(r.cost for r in parts), sum(r.cost.flops - r.masked_flops for r in parts)
        out.append(Row(key or "-", cost, worst(r.status for r in parts), sum(r.ops for r in parts), kept, False))
    return out


def _leaves(costs: dict[str, Cost], depth: int | None) -> dict[str, Cost]:
    """The paths at `depth` (a leaf above it stands for itself); every leaf where depth is None."""

    def level(path: str) -> int:
        return len(re.findall(r"[/\[]", path)) + 1

    parents = {path[:i] for path in costs for i, ch in enumerate(path) if ch in "/["}
    return {
        p: c for p, c in costs.items() if (p not in parents if depth is None or level(p) < depth else level(p) == depth)
    }


def _by_scope(profile: Profile, depth: int | None, merge: bool) -> list[Row]:
    status: dict[str, list[str]] = defaultdict(list)
    own: dict[str, list[Cost]] = defaultdict(list)
    masked: dict[str, int] = defaultdict(int)
    for r in profile.records:
        own[r.scope].append(r.cost)
        masked[r.scope] += r.masked_flops
        status[r.scope].append(r.status)
    children: dict[str, list[str]] = defaultdict(list)
    for path in profile.by_scope:
        if path:
            children[path.rpartition("/")[0]].append(path)
    kin = _kin(path for path in profile.by_scope if path)
    out: dict[str, Row] = {}
    done: set[str] = set()

    def add(key: str, row: Row) -> None:
        key = _merged(key, kin) if merge else key
        have = out.get(key)
        out[key] = dataclasses.replace(row, key=key) if have is None else Row(
            key, have.cost + row.cost, worst((have.status, row.status)), have.instances + row.instances,
            have.useful_flops + row.useful_flops, largest=_larger(have.largest, row.largest),
        )  # fmt: skip

    def under(prefix: str) -> list[str]:
        return [prefix] * (prefix in own) + [scope for child in children[prefix] for scope in under(child)]

    for scope in own:
        names = scope.split("/") if scope else []
        cut = names if depth is None else names[:depth]
        key = "/".join(cut)
        whole = (depth is not None and len(names) >= depth) or not children[scope]
        if whole:
            if key in done:
                continue
            done.add(key)
            cost, scopes = profile.by_scope[key], under(key)
            known = worst(s for each in scopes for s in status[each])
            kept = cost.flops - sum(masked[each] for each in scopes)
            most = max((a for each in scopes if (a := profile.largest.get(each))), key=_size, default=None)
            add(key or ".", Row(key or ".", cost, known, profile.instances.get(key, 1), kept, largest=most))
        else:
            cost = total(own[scope])
            nbytes = profile.by_scope[scope].bytes_scoped - sum(
                profile.by_scope[c].bytes_scoped for c in children[scope]
            )
            cost = cost.replace(bytes_fused=nbytes, bytes_scoped=nbytes)
            kept, most = cost.flops - masked[scope], profile.largest.get(scope)
            row = Row("", cost, worst(status[scope]), profile.instances.get(scope, 1), kept, largest=most)
            add(f"{scope}/." if scope else ".", row)
    return list(out.values())


def _size(array: Array) -> int:
    return array.nbytes


def _larger(a: Array | None, b: Array | None) -> Array | None:
    return max((x for x in (a, b) if x is not None), key=_size, default=None)


def alike(scopes: Iterable[str]) -> Callable[[str], str]:
    """scope -> its name in a table, where numbered siblings of `scopes` are one row: layers_0/mlp -> layers_*/mlp."""
    names = (scope.split("/") for scope in scopes)
    return partial(_merged, kin=_kin({"/".join(each[: k + 1]) for each in names for k in range(len(each))}))


def _kin(paths: Iterable[str]) -> dict[tuple[str, str], int]:
    """{(parent, name without its number): numbered siblings}"""
    kin: dict[tuple[str, str], int] = defaultdict(int)
    for path in paths:
        parent, _, name = path.rpartition("/")
        stem = NUMBERED.sub("", name)
        kin[parent, stem] += stem != name
    return kin


def _merged(key: str, kin: Mapping[tuple[str, str], int]) -> str:
    """The key with the number of each numbered component starred where it has numbered siblings."""
    at, out = "", []
    for name in key.split("/"):
        stem = NUMBERED.sub("", name)
        alike = stem != name and kin.get((at, stem), 0) > 1
        out.append(stem + ("[*]" if name.endswith("]") else "*") if alike else name)
        at = f"{at}/{name}" if at else name
    return "/".join(out)
