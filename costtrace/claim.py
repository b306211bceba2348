"""A claim: what somebody says that a part of a model costs, as a formula in the terms of the model's config.

Data only. Nothing is ever computed from a claim but the claim itself; evidence/hand.py evaluates it, audit.py holds it
against the program. A model finds its claims in models_spec/NAME_claims.py, in its own file, or in NAME_claims.py
beside it: an object CLAIMS. A TOML file says the same as data, for claims of people whose code nobody should run.
"""

from __future__ import annotations

import runpy
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec

from costtrace import authored, model
from costtrace.errors import CosttraceError, UsageError

QUANTITIES = {
    "product_flops": "FLOP",
    "vector_flops": "FLOP",
    "flops": "FLOP",
    "transcendentals": "OP",
    "parameters": "",
    "weight_bytes": "B",
    "bytes_fused": "B",
    "bytes_scoped": "B",
    "bytes_unfused": "B",
}
"""What a claim may measure, and its unit. product_flops: matrix products and convolutions; vector_flops: the rest of
`flops`. parameters: the elements of the weights under a path ("" for all)."""
TAGS = ("M", "D", "S")


@dataclass(frozen=True, slots=True)
class Product:
    """`times` matrix products (m, k) @ (k, n): 2 m k n FLOPs and, where `weights`, k n weights each.

    All are formulas. A convolution is (pixels, size * size * ci) @ (.., co), attention two products without weights.
    """

    m: str
    k: str
    n: str
    times: str = "1"
    name: str = ""
    weights: bool = True

    @property
    def flops(self) -> str:
        return " * ".join(["2", *(_bracketed(f) for f in (self.m, self.k, self.n, self.times) if f != "1")])

    @property
    def elements(self) -> str:
        return " * ".join([*(_bracketed(f) for f in (self.k, self.n, self.times) if f != "1")]) or "1"


def _bracketed(formula: str) -> str:
    return f"({formula})" if any(sign in formula for sign in "+-/% ") else formula


@dataclass(frozen=True, slots=True)
class Claim:
    """`measures` (a key of QUANTITIES) of `scopes` in `stage` is `formula`.

    scopes: one path, several paths whose sum is meant, or none for the whole stage; "*" stands for any characters
    within one name. row: what its author calls it. tolerance: the largest relative difference that counts as equal, 0
    unless `reason` says why not. products: the matrix products that the formula is made of, where its author says so:
    then a difference can be told by shape.
    """

    measures: str
    stage: str
    scopes: str | tuple[str, ...]
    formula: str
    source: str = ""
    tag: str = "D"
    row: str = ""
    tolerance: float = 0.0
    reason: str = ""
    products: tuple[Product, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        some = (self.scopes,) if isinstance(self.scopes, str) else self.scopes
        return tuple(path for path in some if path)

    @property
    def label(self) -> str:
        return self.row or " + ".join(self.paths) or self.stage


@dataclass(frozen=True, slots=True)
class Quote:
    """A number (`quoted`: "10.191 TFLOP", "74 %", "1536") or a sentence that its author prints, and what it rests on.

    formula: of the figures flops(), products(), vector(), weights(), fused(), unfused(), each of rows, stages or "*"
    (all calls of all stages); params(stage); floor_s(stage, flops_per_s, bytes_per_s) of summed work and serial_s() of
    row after row; and of the claims' names. A sentence's formula is a comparison. checks: (formula, why) that must
    agree with `quoted` if it is right by its author's own rules. config: the options that it is about, with defaults
    for the rest; without any, it is about what is audited.
    """

    quoted: str
    formula: str
    about: str
    source: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    checks: tuple[tuple[str, str], ...] = ()
    tag: str = "D"


@dataclass(frozen=True, slots=True)
class Shortcut:
    """factor * parameters * tokens as the FLOPs of a stage's products: 2 N tokens forward, 6 N D for training.

    The audit tells by weight where it and the program part.
    """

    stage: str
    tokens: str
    factor: str = "2"
    source: str = ""

    @property
    def formula(self) -> str:
        return f"{self.factor} * parameters * {_bracketed(self.tokens)}"


@dataclass(frozen=True, slots=True)
class Envelope:
    """What the author gives for `chips` of `chip`: seconds of `work` and, by strategy, of `collectives`, as formulas of
    quotes; their sum is the author's floor."""

    chip: str
    chips: int
    work: str
    collectives: Mapping[str, str]
    source: str = ""


@dataclass(frozen=True)
class Claims:
    """All that one author claims of a model. `names`: the formulas' own terms, each a formula of the config's fields
    and of the names before it, or of `config` itself (config.latents). `source` stands for claims, quotes and shortcuts
    that have none. about: the only values of options that the claims speak of ({"preset": "medium"}). envelope: what
    the author says of several chips.

    Raises UsageError for a claim that says no quantity, a tolerance without a reason, or the same thing twice.
    """

    claims: Iterable[Claim] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    quotes: tuple[Quote, ...] = ()
    shortcuts: tuple[Shortcut, ...] = ()
    source: str = ""
    about: Mapping[str, str] = field(default_factory=dict)
    envelope: Envelope | None = None

    @property
    def origin(self) -> str:
        """Who says it: the source of all, else those of each claim, the first three; "" where nothing is claimed."""
        each = [c.source for c in self.claims] + [q.source for q in self.quotes] + [s.source for s in self.shortcuts]
        some = list(dict.fromkeys(source for source in each if source))
        more = f" and {len(some) - 3} more" if len(some) > 3 else ""
        return self.source or "; ".join(some[:3]) + more

    def __post_init__(self) -> None:
        object.__setattr__(self, "claims", tuple(self.claims))
        seen: set[tuple[str, str, str]] = set()
        where: dict[tuple[str, str], tuple[str, ...]] = {}
        for claim in self.claims:
            place = f"claim {claim.label!r} of {claim.stage}"
            if claim.measures not in QUANTITIES:
                raise UsageError(f"{place} measures {claim.measures!r}: choose one of {', '.join(QUANTITIES)}")
            if claim.tag not in TAGS:
                raise UsageError(f"{place} has the tag {claim.tag!r}: use M (measured), D (derived) or S (a document)")
            if claim.tolerance and not claim.reason:
                raise UsageError(f"{place} has a tolerance of {claim.tolerance} and no reason: say why, or leave it 0")
            if not (claim.source or self.source):
                raise UsageError(f"{place} has no source: say who claims it and where, source=...")
            if (key := (claim.stage, claim.label, claim.measures)) in seen:
                raise UsageError(f"{place} claims {claim.measures} twice: give one of the two another row")
            seen.add(key)
            about = (
                where.setdefault((claim.stage, claim.label), claim.paths) if claim.measures != "parameters" else None
            )
            if about is not None and about != claim.paths:
                raise UsageError(f"{place} is about {claim.paths} and about {about}: a row's claims share their scopes")


def row(
    name: str,
    stage: str,
    scopes: str | tuple[str, ...],
    *,
    products: tuple[Product, ...] = (),
    vector: str = "0",
    weights: str = "0",
    fused: str | None = None,
    unfused: str | None = None,
    element: str = "2",
    **more: Any,
) -> tuple[Claim, ...]:
    """The claims of one row of a hand count: FLOPs of products and elementwise, weights, fused and unfused bytes.

    weights: elements beside those of the products. fused, unfused: activation elements, to which the weights are
    added; the claim's `unfused` stands beside costtrace's scoped bytes. element: bytes of one element.
    """
    flops = " + ".join(p.flops for p in products) or "0"
    held = " + ".join(part for part in (weights, *(p.elements for p in products if p.weights)) if part != "0") or "0"
    formulas = {"product_flops": flops, "vector_flops": vector, "weight_bytes": f"{element} * ({held})"}
    if fused is not None:
        formulas["bytes_fused"] = f"{element} * ({held} + {fused})"
        formulas["bytes_scoped"] = f"{element} * ({held} + {unfused or fused})"
    return tuple(
        Claim(
            measures, stage, scopes, formula, row=name, products=products if measures == "product_flops" else (), **more
        )
        for measures, formula in formulas.items()
    )


def find(name: str) -> Claims:
    """The claims of the model called `name`, or at that path; no claims where there are none.

    Raises UsageError as load() does.
    """
    if name.endswith(".py"):
        own = Path(name)
        beside = own.with_name(f"{own.stem}{model.CLAIMS}.py")
        if beside.is_file():
            return load(str(beside))
        return load(name) if "CLAIMS" in own.read_text(encoding="utf-8") else Claims()
    path = model.folder() / f"{name}{model.CLAIMS}.py"
    return load(str(path)) if path.is_file() else Claims()


TABLES: dict[str, type[Any]] = {"claim": Claim, "quote": Quote, "shortcut": Shortcut, "products": Product}


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """Claims as TOML: [[claim]], [[quote]] and [[shortcut]] with the fields of their classes, [names] and [about]."""

    claim: list[Claim] = []
    quote: list[Quote] = []
    shortcut: list[Shortcut] = []
    names: dict[str, str] = {}
    about: dict[str, str] = {}
    source: str = ""


def read(path: str) -> Claims:
    """The claims in a TOML file: data, of which nothing is run. Raises UsageError for what must not load."""
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        for kind in ("claim", "quote", "shortcut"):
            _fields(data.get(kind), kind)
        found = msgspec.convert(data, _File)
        return Claims(found.claim, found.names, tuple(found.quote), tuple(found.shortcut), found.source, found.about)
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}: give the path of a file with claims") from None
    except (ValueError, RecursionError, UsageError) as e:
        raise UsageError(f"{path}: {e}: see docs/audit.md for what a claim has") from None


def _fields(tables: Any, kind: str) -> None:
    """Raises ValueError for a key that the class of these tables has not."""
    for table in tables if isinstance(tables, list) else []:
        known = [field.name for field in fields(TABLES[kind])]
        if unknown := [key for key in table if key not in known] if isinstance(table, dict) else []:
            raise ValueError(f"a [[{kind}]] has no {unknown[0]!r}: it has {', '.join(known)}")
        if isinstance(table, dict) and kind == "claim":
            _fields(table.get("products"), "products")


def load(path: str) -> Claims:
    """The CLAIMS of a Python file, which is run, or the claims of a TOML file. Raises UsageError where the file is not
    there, fails, or has none."""
    if path.endswith(".toml"):
        return read(path)
    if not Path(path).is_file():
        raise UsageError(f"no file {path}: give the path of a Python file with CLAIMS = Claims(...) in it")
    try:
        with authored.running():
            found = runpy.run_path(path, run_name=f"costtrace_claims_{Path(path).stem}").get("CLAIMS")
    except CosttraceError as e:
        raise UsageError(f"{path}: {e}") from None
    except Exception as e:  # the user's file may raise anything
        said = str(e).partition("\n")[0]
        raise UsageError(f"{path} failed while it was loaded: {type(e).__name__}: {said}: mend the file") from e
    if not isinstance(found, Claims):
        raise UsageError(f"{path} has no CLAIMS: end it with CLAIMS = Claims([Claim(...), ...])")
    return found
