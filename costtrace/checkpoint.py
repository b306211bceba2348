"""A checkpoint's header held against a program's weights: names, shapes, what never runs, what is missing.

Reads safetensors: eight bytes that say how long the JSON header is, then the header. Never a weight. Of a sharded
checkpoint, the index and the headers of the files that it names.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec

from costtrace.errors import UsageError

LONGEST = 100_000_000
"""Bytes of a header; the format's own limit."""
GENERIC = ("weight", "kernel", "scale", "embedding")
BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "F64": 64,
    "I64": 64,
    "U64": 64,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
}


METADATA = "__metadata__"
"""Beside the tensors; it may hold anything and nothing is read of it."""
MOST = 1 << 63
"""Bytes that no file holds."""


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


class _Entry(msgspec.Struct):
    """A tensor of the header."""

    shape: list[Annotated[int, msgspec.Meta(ge=0)]]
    dtype: str
    data_offsets: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a file, as its header says."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return -(-self.size * BITS.get(self.dtype, 0) // 8)


def read(path: str) -> dict[str, Tensor]:
    """{name: Tensor} of a .safetensors file, or of all files of a .safetensors.index.json.

    Raises UsageError for a file that is not there, is no safetensors file, or names tensors that it does not hold.
    """
    where = Path(path)
    if not where.is_file():
        raise UsageError(f"no file {path}: give a .safetensors file or a .safetensors.index.json")
    if where.suffix != ".json":
        return _header(where)
    try:
        index = msgspec.json.decode(where.read_bytes(), type=_Index).weight_map
    except (ValueError, RecursionError, OSError) as e:
        raise UsageError(f"{path} is no index of a sharded checkpoint: {e}: it should have a weight_map") from None
    found: dict[str, Tensor] = {}
    for file in sorted(set(index.values())):
        if Path(file).is_absolute() or ".." in Path(file).parts or not Path(file).name or "\0" in file:
            raise UsageError(f"{path} names {file!r}: the files of a checkpoint lie beside its index: mend the name")
        part = where.parent / file
        if not part.is_file():
            raise UsageError(f"{path} names {file}, which is not beside it: put it there (its header is enough)")
        found |= _header(part)
    if absent := sorted(set(index) - set(found)):
        raise UsageError(f"{path} names {absent[0]!r}, which {index[absent[0]]} does not hold: index and files differ")
    return found


def _header(path: Path) -> dict[str, Tensor]:
    with _opened(path) as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= LONGEST:
            raise UsageError(f"{path} is no safetensors file: its first eight bytes are no header's length")
        text = file.read(length)
    if len(text) < length:
        raise UsageError(f"{path} ends after {len(text)} bytes of its header of {length}: fetch it again")
    try:
        whole = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        entries = {k: msgspec.json.decode(raw, type=_Entry) for k, raw in whole.items() if k != METADATA}
    except (ValueError, RecursionError) as e:
        raise UsageError(f"{path} is no safetensors file: its header is not the JSON of the format: {e}") from None
    return {name: _tensor(path, name, entry) for name, entry in entries.items()}


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as e:
        raise UsageError(f"{path} cannot be read: {e.strerror}: mend its rights") from None


def _tensor(path: Path, name: str, entry: _Entry) -> Tensor:
    """Raises UsageError for a dtype that nobody knows, a size that no file has, or bytes that are not the shape's."""
    found = Tensor(name, tuple(entry.shape), entry.dtype)
    if found.dtype not in BITS:
        raise UsageError(f"{path}: tensor {name!r} has dtype {found.dtype}: known are {', '.join(BITS)}")
    if found.nbytes >= MOST:
        raise UsageError(f"{path}: tensor {name!r} of shape {found.shape} is larger than any file: fetch it again")
    if entry.data_offsets is not None and (held := entry.data_offsets[1] - entry.data_offsets[0]) != found.nbytes:
        raise UsageError(
            f"{path}: tensor {name!r} has {held} bytes, its shape and dtype take {found.nbytes}: fetch it again"
        )
    return found


@dataclass(frozen=True, slots=True)
class Group:
    """Tensors of one place in the file or the program: "model.layers.27-35", how many, how many elements."""

    name: str
    tensors: int
    elements: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A checkpoint beside a stage's weights. matched: {program's path: names in the file}. by_name and by_order say how
    many were found which way; unlike: (path, its shape, name, its shape) of the same name with other elements."""

    file: str
    stage: str
    tensors: int
    elements: int
    nbytes: int
    wanted: int
    wanted_elements: int
    matched: dict[str, tuple[str, ...]]
    matched_elements: int
    by_name: int
    by_order: int
    by_map: int
    unlike: list[tuple[str, tuple[int, ...], str, tuple[int, ...]]]
    unused: list[Group]
    lacking: list[Group]

    @property
    def agrees(self) -> bool:
        """True where the file has every weight that the program wants, with its elements."""
        return not self.unlike and not self.lacking


def compare(
    file: str,
    tensors: Mapping[str, Tensor],
    stage: str,
    wanted: Mapping[str, tuple[int, ...]],
    mapping: Mapping[str, Any] | None = None,
) -> Comparison:
    """`tensors` beside `wanted`, the stage's weights unrolled: {path: shape}.

    A pair has the same numbers in its name, one name's words in the other's, and the same sizes in any order. What is
    left is paired by shape where file and program have equally many of it, in the order of their names. `mapping`:
    {program's path: a name, or several whose elements make it up}, "{n}" for a number, goes before both.
    """
    matched = _mapped(tensors, wanted, mapping or {})
    by_map, taken = len(matched), {name for names in matched.values() for name in names}
    named, unlike = _by_name(tensors, {p: s for p, s in wanted.items() if p not in matched}, taken)
    matched |= {path: (name,) for path, name in named.items()}
    taken |= set(named.values()) | {name for _, _, name, _ in unlike}
    known = set(matched) | {path for path, _, _, _ in unlike}
    ordered = _by_order(
        [t for n, t in tensors.items() if n not in taken], {p: s for p, s in wanted.items() if p not in known}
    )
    matched |= {path: (name,) for path, name in ordered.items()}
    taken |= set(ordered.values())
    known |= set(ordered)
    return Comparison(
        file,
        stage,
        len(tensors),
        sum(t.size for t in tensors.values()),
        sum(t.nbytes for t in tensors.values()),
        len(wanted),
        sum(map(math.prod, wanted.values())),
        matched,
        sum(math.prod(wanted[path]) for path in matched),
        len(named),
        len(ordered),
        by_map,
        unlike,
        grouped({name: t.size for name, t in tensors.items() if name not in taken}, "."),
        grouped({path: math.prod(shape) for path, shape in wanted.items() if path not in known}, "/"),
    )


def mapping_of(path: str) -> dict[str, Any]:
    """The mapping in a JSON file: {program's path: name or names in the checkpoint}. Raises UsageError."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise UsageError(f"{path} is no mapping: {e}: write JSON, program's path to the checkpoint's name") from None
    if not isinstance(found, dict):
        raise UsageError(f'{path} is no mapping: write a JSON object, {{"block/{{n}}/up": "layers.{{n}}.w1"}}')
    for weight, names in found.items():
        if not isinstance(names, str) and not (isinstance(names, list) and all(isinstance(n, str) for n in names)):
            raise UsageError(f"{path} is no mapping: {weight!r} is given {names!r}: write a name, or a list of names")
    return found


def _mapped(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, tuple[int, ...]], mapping: Mapping[str, Any]
) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for pattern, given in mapping.items():
        names = [given] if isinstance(given, str) else list(given)
        form = re.compile(re.escape(pattern).replace(r"\{n\}", r"(\d+)"))
        paths = [(path, match.groups()) for path in wanted if (match := form.fullmatch(path))]
        if not paths:
            known = next(iter(wanted), "none")
            raise UsageError(f"the mapping's {pattern!r} is no weight of the program: it has {known!r} and others")
        for path, numbers in paths:
            filled = []
            for name in names:
                for n in numbers:
                    name = name.replace("{n}", n, 1)
                filled.append(name)
            if absent := [name for name in filled if name not in tensors]:
                raise UsageError(f"the mapping's {absent[0]!r} is not in the checkpoint")
            if sum(tensors[name].size for name in filled) != math.prod(wanted[path]):
                raise UsageError(f"the mapping gives {path!r} other elements than its shape {wanted[path]} has")
            found[path] = tuple(filled)
    return found


def words(name: str) -> tuple[str, ...]:
    """The parts of a name, without a last one that every weight has."""
    parts = [part for part in re.split(r"[./]", name) if part]
    return tuple(parts[:-1] if len(parts) > 1 and parts[-1] in GENERIC else parts)


def _rank(part: str, other: str) -> bool:
    """True where two parts of names may mean the same: equal, or one begins the other at an underscore."""
    return part == other or (not part.isdigit() and (other.startswith(f"{part}_") or part.startswith(f"{other}_")))


def _lead(mine: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...] | None:
    """What stands in `theirs` before `mine`, where mine's words follow in theirs in order and no number is left over
    after the first; None where they do not."""
    at, first = 0, -1
    for word in mine:
        while at < len(theirs) and not _rank(word, theirs[at]):
            if first >= 0 and theirs[at].isdigit():
                return None
            at += 1
        if at == len(theirs):
            return None
        first, at = (at if first < 0 else first), at + 1
    if any(part.isdigit() and not mine[-1].isdigit() and len(mine) > 1 for part in theirs[at : at + 1]):
        return theirs[:first] if at + 1 == len(theirs) else None
    return theirs[:first]


def _by_name(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, tuple[int, ...]], taken: set[str]
) -> tuple[dict[str, str], list[tuple[str, tuple[int, ...], str, tuple[int, ...]]]]:
    """{path: name}, and what has the name but not the elements. Of several names the one with the commonest lead."""
    offers: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    split = {name: words(name) for name in tensors if name not in taken}
    ends: dict[str, list[str]] = defaultdict(list)
    for name, parts in split.items():
        for part in set(parts):
            ends[part].append(name)
    for path in wanted:
        mine = words(path)
        rare = min((ends[word] for word in mine if word in ends), key=len, default=list(split))
        offers[path] = [(lead, name) for name in rare if (lead := _lead(mine, split[name])) is not None]
    common = Counter(lead for some in offers.values() for lead, name in some)
    found: dict[str, str] = {}
    used: set[str] = set()
    unlike = []
    for path, some in offers.items():
        best = sorted((o for o in some if o[1] not in used), key=lambda o: (-common[o[0]], len(split[o[1]])))
        same = [name for _, name in best if sorted(_ones(tensors[name].shape)) == sorted(_ones(wanted[path]))]
        if same:
            found[path] = same[0]
            used.add(same[0])
        elif best:
            unlike.append((path, wanted[path], best[0][1], tensors[best[0][1]].shape))
            used.add(best[0][1])
    return found, unlike


def _ones(shape: Iterable[int]) -> list[int]:
    return [size for size in shape if size != 1]


def _by_order(tensors: Iterable[Tensor], wanted: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """{path: name} of shapes that file and program have equally often."""
    left, right = defaultdict(list), defaultdict(list)
    for tensor in sorted(tensors, key=lambda t: natural(t.name)):
        left[tuple(sorted(_ones(tensor.shape)))].append(tensor.name)
    for path in sorted(wanted, key=natural):
        right[tuple(sorted(_ones(wanted[path])))].append(path)
    return {
        path: name
        for shape, paths in right.items()
        if len(paths) == len(left[shape])
        for path, name in zip(paths, left[shape], strict=True)
    }


def natural(name: str) -> list[Any]:
    """A key that sorts layer.2 before layer.10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]


def grouped(sizes: Mapping[str, int], separator: str) -> list[Group]:
    """Names folded at their first number ("model.layers.27-35") or first word, largest first."""
    folded: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for name, size in sizes.items():
        parts = name.split(separator)
        k = next((k for k, part in enumerate(parts) if part.isdigit()), None)
        if k is None:
            folded[separator.join(parts[: max(1, min(2, len(parts) - 1))])][-1].append(size)
        else:
            folded[separator.join(parts[:k])][int(parts[k])].append(size)
    out = []
    for prefix, numbers in folded.items():
        for first, last, some in _runs(numbers):
            tail = "" if first < 0 else separator + (str(first) if first == last else f"{first}-{last}")
            out.append(Group(prefix + tail, len(some), sum(some)))
    return sorted(out, key=lambda group: -group.elements)


def _runs(numbers: Mapping[int, list[int]]) -> Iterable[tuple[int, int, list[int]]]:
    """(first, last, sizes) of consecutive numbers."""
    run: list[Any] = []
    for n in sorted(numbers):
        if run and n == run[1] + 1 and n:
            run[1], run[2] = n, run[2] + numbers[n]
        else:
            if run:
                yield tuple(run)
            run = [n, n, list(numbers[n])]
    if run:
        yield tuple(run)
