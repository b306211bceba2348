"""Which elements of an array are touched: regions, their unions and volumes.

A region is FULL (None), a Box (one axis each: None for all of it, (start, stop), or Row(loop): one row per trip of that
loop), or Some: a number of elements whose place is not known when the program is traced. Volumes are in elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from costtrace.core import Frame


@dataclass(frozen=True, slots=True)
class Row:
    """Row i of an axis in trip i of `loop`: one row for who stands inside the loop, all rows from outside."""

    loop: Frame


@dataclass(frozen=True, slots=True)
class Some:
    """`count` elements at places that are not followed: equal tokens are equal places. `fixed`: the same places in
    every execution; else other ones on each of `repeat` executions. `within`: a box that holds them, where known."""

    count: int
    token: int
    repeat: int = 1
    fixed: bool = False
    within: tuple[Row | tuple[int, int] | None, ...] | None = None


Axis = Row | tuple[int, int] | None
Box = tuple[Axis, ...]
Region = None | Some | Box
FULL: Final = None
CELLS = 200_000
"""Cells of the grid on which a union of boxes is measured exactly; above it, the sum capped at the whole."""


def axes_of(region: Region, rank: int) -> Box:
    """An axis each: those of a box; of FULL, and of Some, whose places are not known, all of every axis."""
    return region if isinstance(region, tuple) else (None,) * rank


def of_axes(axes: Box) -> Region:
    """The box of these axes, or FULL where all of every axis is in it."""
    return FULL if all(a is None for a in axes) else axes


def box(shape: tuple[int, ...], axes: Box) -> Region:
    """The box, or FULL where it covers the array."""
    out: list[Axis] = []
    for a, n in zip(axes, shape, strict=True):
        if isinstance(a, tuple):
            out.append(None if a[0] <= 0 and a[1] >= n else (int(a[0]), int(a[1])))  # numpy's integers end here
        else:
            out.append(a)
    return of_axes(tuple(out))


def shared(shape: tuple[int, ...], a: Region, b: Box) -> Region | Literal[False]:
    """The part of region `a` (FULL or a box) that lies in the box `b`; False where there is none."""
    axes: list[Axis] = []
    for x, y, n in zip(axes_of(a, len(shape)), b, shape, strict=True):
        if not isinstance(x, tuple) or not isinstance(y, tuple):
            axes.append(y if x is None else x)
            continue
        if max(x[0], y[0]) >= min(x[1], y[1], n):
            return False
        axes.append((max(x[0], y[0]), min(x[1], y[1])))
    return box(shape, tuple(axes))


def without(shape: tuple[int, ...], a: Region, b: Box) -> list[Region]:
    """The boxes of region `a` (FULL or a box) outside the box `b`; a row of a loop is never split."""
    left: list[Axis] = list(axes_of(a, len(shape)))
    if any(isinstance(x, Row) and y is not None for x, y in zip(left, b, strict=True)):
        return [a]
    out: list[Region] = []
    for d, (y, n) in enumerate(zip(b, shape, strict=True)):
        if not isinstance(y, tuple):
            continue
        x = left[d]
        lo, hi = x if isinstance(x, tuple) else (0, n)
        for span in ((lo, min(hi, y[0])), (max(lo, y[1]), hi)):
            if span[0] < span[1]:
                out.append(box(shape, (*left[:d], span, *left[d + 1 :])))
        left[d] = (max(lo, y[0]), min(hi, y[1]))
        if left[d][0] >= left[d][1]:  # type: ignore[index]
            return [a]
    return out


def _span(axis: Axis, size: int, inside: frozenset[int]) -> tuple[int, int]:
    if axis is None:
        return 0, size
    if isinstance(axis, Row):
        return (0, min(1, size)) if id(axis.loop) in inside else (0, size)
    return axis


def volume(
    shape: tuple[int, ...], regions: Region | list[Region], inside: frozenset[int] = frozenset(), repeat: int = 1
) -> int:
    """Elements in the union of `regions` of an array, seen from a place inside the loops `inside` (ids of frames),
    of which one instance stands for `repeat` executions."""
    size = math.prod(shape)
    if regions is FULL:
        return size
    if not isinstance(regions, list):
        regions = [regions]
    spans: list[list[tuple[int, int]]] = []
    some: dict[int, int] = {}
    for r in regions:
        if r is FULL:
            return size
        if isinstance(r, Some):
            some[r.token] = max(
                some.get(r.token, 0), min(size, r.count * (1 if r.fixed else max(1, r.repeat // repeat)))
            )
        else:
            spans.append([_span(a, n, inside) for a, n in zip(r, shape, strict=True)])
    return min(size, _union(shape, spans) + sum(some.values()))


def _union(shape: tuple[int, ...], spans: list[list[tuple[int, int]]]) -> int:
    spans = [s for s in spans if all(b > a for a, b in s)]
    if not spans:
        return 0
    if len(spans) == 1 or not shape:
        return math.prod(b - a for a, b in spans[0])
    cuts = [sorted({x for s in spans for x in s[d]}) for d in range(len(shape))]
    if math.prod(len(c) for c in cuts) > CELLS:
        return sum(math.prod(b - a for a, b in s) for s in spans)
    covered = np.zeros([len(c) - 1 for c in cuts], bool)
    for s in spans:
        covered[tuple(slice(c.index(a), c.index(b)) for c, (a, b) in zip(cuts, s, strict=True))] = True
    cells = covered.astype(object)
    for d, c in enumerate(cuts):
        widths = np.array([b - a for a, b in zip(c, c[1:], strict=False)], dtype=object)
        cells = cells * widths.reshape([-1 if i == d else 1 for i in range(len(cuts))])
    return int(cells.sum())
