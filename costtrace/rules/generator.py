"""Random number generators: integer work only, derived from the rounds of each hash.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), defines Threefry and Philox; the operations
are those of jax's definitions. jax_threefry_partitionable is taken to be on (jax's default): one block an element.
"""

from __future__ import annotations

import math

from costtrace.core import MODELLED, Cost, Op
from costtrace.rules.table import is_float, rule, vector

_MIX = 1 + 3 + 1  # add, rotate (two shifts and an or), xor
BLOCKS = {
    # key word 2 xors, injection 2 adds, 20 rounds of one mix, 5 injections of 3 adds
    "threefry2x32": 2 + 2 + 20 * _MIX + 5 * 3,
    # key word 4 xors, injection 4 adds, 20 rounds of two mixes, 5 injections of 5 adds
    "threefry4x32": 4 + 4 + 20 * 2 * _MIX + 5 * 5,
    # 10 rounds of mul, mulhi and 2 xors; the key is bumped 9 times
    "philox2x32": 10 * (2 + 2) + 9,
    # 10 rounds of 2 mul, 2 mulhi and 4 xors; two key words are bumped 9 times
    "philox4x32": 10 * (4 + 4) + 9 * 2,
}
"""Integer operations of one block of each hash."""

_HASHES = {"fry": "threefry2x32", "fry4": "threefry4x32", "phx2": "philox2x32", "phx4": "philox4x32"}
_RBG = ("rbg", "urbg")


@rule("threefry2x32", "threefry4x32", "philox2x32", "philox4x32")
def block(op: Op) -> Cost:
    """The operations of one block, per element of a result; each result is one word of the blocks."""
    return Cost(integer_ops=BLOCKS[op.primitive] * op.outputs[0].size)


def _words(count: int) -> int:
    """Integer operations of `count` random 32-bit words out of XLA's generator: Philox 4x32, four words a block."""
    return -(-count // 4) * BLOCKS["philox4x32"]


def _tag(op: Op) -> str:
    """'fry' of a key whose dtype is 'key<fry>'; a hash that jax does not bring is taken to be threefry2x32."""
    return op.inputs[0].dtype.removeprefix("key<").removesuffix(">")


def _hash(op: Op) -> str:
    return _HASHES.get(_tag(op), "threefry2x32")


@rule("random_bits")
def random_bits(op: Op) -> Cost:
    """One block per element, its words xored into one (at 64 bits shifted and joined); rbg keys draw words instead."""
    size, width = op.outputs[0].size, op.params["bit_width"]
    if _tag(op) in _RBG:
        return Cost(integer_ops=_words(-(-size * width // 32)))
    name = _hash(op)
    joins = {"threefry2x32": 1, "threefry4x32": 3, "philox2x32": 1, "philox4x32": 3}[name]
    if width == 64:
        joins = 4 if name == "threefry4x32" else 2
    return Cost(integer_ops=size * (BLOCKS[name] + joins))


@rule("random_split")
def random_split(op: Op) -> Cost:
    """One block per new key; two for rbg, whose keys are two of threefry; ten blocks of Philox for unsafe_rbg."""
    keys, tag = op.outputs[0].size, _tag(op)
    if tag == "urbg":
        return Cost(integer_ops=_words(10 * 4 * keys))
    return Cost(integer_ops=keys * BLOCKS[_hash(op)] * (2 if tag == "rbg" else 1))


@rule("random_fold_in")
def random_fold_in(op: Op) -> Cost:
    """One block per key; two for rbg; ten blocks of Philox and 4 xors for unsafe_rbg."""
    keys, tag = op.outputs[0].size, _tag(op)
    if tag == "urbg":
        return Cost(integer_ops=keys * (_words(10 * 4) + 4))
    return Cost(integer_ops=keys * BLOCKS[_hash(op)] * (2 if tag == "rbg" else 1))


@rule("random_seed")
def random_seed(op: Op) -> Cost:
    """A shift and a mask split the seed in two words; threefry4x32 and both Philox hash them once more."""
    name = op.outputs[0].dtype.removeprefix("key<").removesuffix(">")
    hashed = BLOCKS[_HASHES[name]] if name in _HASHES and name != "fry" else 0
    return Cost(integer_ops=op.outputs[0].size * (2 + hashed))


@rule("random_wrap", "random_unwrap", "random_clone")
def key_view(op: Op) -> Cost:
    """Free: the same words under another type."""
    return Cost()


@rule("iota_2x32_shape")
def counters(op: Op) -> Cost:
    """A 64-bit counter in two words per element: one multiply-add per axis, a shift and a mask."""
    out = op.outputs[0]
    return Cost(integer_ops=out.size * (2 * len(out.shape) + 2))


@rule("rng_bit_generator")
def rng_bit_generator(op: Op) -> Cost:
    """Philox 4x32 unless THREE_FRY is asked for, whose block gives two words."""
    bits = op.outputs[-1]
    words = -(-bits.size * bits.bits // 32)
    if "THREE_FRY" in str(op.params.get("algorithm")):
        return Cost(integer_ops=-(-words // 2) * BLOCKS["threefry2x32"])
    return Cost(integer_ops=_words(words))


@rule("rng_uniform")
def rng_uniform(op: Op) -> Cost:
    """One word per element, then one multiply-add into [a, b)."""
    out = op.outputs[0]
    return Cost(integer_ops=_words(math.ceil(out.size * out.bits / 32))) + vector(2 * out.size, out.dtype)


@rule("random_gamma", status=MODELLED)
def random_gamma(op: Op) -> Cost:
    """One accepted trial per sample of Marsaglia and Tsang, "A simple method for generating gamma variables"
    (ACM TOMS 26, 2000), as jax writes it: sqrt, erf_inv, two logs and a pow; 32 FLOPs; 10 blocks for splits and draws.
    """
    out = op.outputs[0]
    block_ops = BLOCKS[_hash(op)] if is_float(out.dtype) else 0
    return vector(32 * out.size, out.dtype).replace(transcendentals=5 * out.size, integer_ops=10 * block_ops * out.size)
