"""factor * parameters * tokens, held against the products that really read each weight."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from costtrace import formula
from costtrace.claim import Shortcut
from costtrace.evidence.hand import Hand
from costtrace.evidence.traced import Traced


@dataclass(frozen=True, slots=True)
class Share:
    """Weights of one group that as many tokens meet: what the shortcut gives them, and their products' FLOPs.

    tokens: products' FLOPs over factor * elements; 0 for weights that no product reads.
    """

    weights: str
    elements: int
    tokens: Any
    claimed: Any
    traced: int

    @property
    def difference(self) -> Any:
        return self.claimed - self.traced


@dataclass(frozen=True, slots=True)
class Decomposed:
    """A shortcut's FLOPs, those of the products that read weights, and the difference by group of weights, largest
    first. other: FLOPs of products that read no weight (attention), which the shortcut leaves out."""

    shortcut: Shortcut
    calls: int
    parameters: int
    tokens: Any
    claimed: Any
    traced: int
    other: int
    shares: tuple[Share, ...]


def decomposed(shortcut: Shortcut, hand: Hand, stage: Traced) -> Decomposed:
    """Where the shortcut and the program part, weight by weight."""
    place = f"shortcut of {shortcut.stage}"
    tokens, factor = (formula.value(text, hand.names, place) for text in (shortcut.tokens, shortcut.factor))
    groups: dict[tuple[str, Any], list[tuple[str, int, int]]] = defaultdict(list)
    read = stage.profile.weights()
    for path, size in stage.weights.items():
        flops = read[path].matmul_flops + read[path].conv_flops if path in read else 0
        each = formula.value("a", {"a": Fraction(flops, size) / Fraction(factor)})
        groups[path.partition("/")[0], each].append((path, size, flops))
    shares = []
    for (top, each), some in groups.items():
        elements, flops = sum(size for _, size, _ in some), sum(n for _, _, n in some)
        label, claimed = _label(top, [path for path, _, _ in some]), factor * elements * tokens
        shares.append(Share(label, elements, each, claimed, flops))
    total = stage.profile.total
    products = total.matmul_flops + total.conv_flops
    traced = sum(share.traced for share in shares)
    return Decomposed(
        shortcut,
        stage.calls,
        sum(stage.weights.values()),
        tokens,
        factor * sum(stage.weights.values()) * tokens,
        traced,
        products - traced,
        tuple(sorted(shares, key=lambda share: -abs(share.difference))),
    )


def _label(top: str, paths: list[str]) -> str:
    seconds = dict.fromkeys(path.split("/")[1] for path in paths if "/" in path)
    if len(seconds) < 1 or len(seconds) > 4:
        return top
    return f"{top}/{'|'.join(seconds)}"
