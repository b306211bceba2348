"""The formulas: importing this package fills RULES. No jax here."""

from costtrace.rules import (
    attention,
    collective,
    contraction,
    convolution,
    effect,
    factorization,
    fourier,
    generator,
    movement,
    pallas,
    pointwise,
    reduction,
    sparsity,
)
from costtrace.rules.table import RULES, Rule, rule
from costtrace.rules.unreachable import FLOW, OTHER_VERSIONS, UNPRICED, UNREACHABLE

FAMILIES = (
    attention,
    collective,
    contraction,
    convolution,
    effect,
    factorization,
    fourier,
    generator,
    movement,
    pallas,
    pointwise,
    reduction,
    sparsity,
)
"""The modules that hold the rules."""

__all__ = ["FAMILIES", "FLOW", "OTHER_VERSIONS", "RULES", "UNPRICED", "UNREACHABLE", "Rule", "rule"]
