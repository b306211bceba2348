"""Qwen3: a decoder language model, dense from 0.6B to 32B or a mixture of experts, its prefill and its decoding apart.

Sizes: config.json of Qwen/Qwen3-* on Hugging Face as google/tunix repeats them (tunix/models/qwen3/model.py, read
2026-12-01); parameter totals are the published checkpoints'. Precision: bfloat16 weights and activations; float32
inside norms, softmax, router and rotary embeddings. Weights are named as in the checkpoints, those of experts stacked,
matrices stored (in, out).

Cache: prompt + decode places are allocated at once, the arguments are donated and each step writes one place of every
layer in place. A step's shapes do not change while the cache fills: it attends to every allocated place and masks those
not yet written. So `decode` is one step, run `decode` times, and calls times one step is exactly the whole; `unwritten`
says how much of it goes to places that hold nothing yet. All prompts are equally long. Both stages end in the next
token (the most likely one); prefill computes the logits of the last token only.

Experts: the tokens are sorted by expert and meet their matrices in ragged products, which take the same FLOPs however
the tokens spread. What routing changes is how many experts are read. It is an assumption: balanced, as many tokens to
one expert as to the next, so min(experts, 8 tokens) of them; or worst, all. Which ones does not matter to a count: the
first stand for them. Letters: b batch, s and t tokens, h heads, k kv heads, d head width, n rows, e experts.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import silu

from costtrace.model import DTYPE, Model, Stage, choice, option, param, scale, scaled, scope, stack

FLOAT = jnp.float32
VOCAB, HEAD_DIM, THETA = 151936, 128, 1e6


@dataclass(frozen=True)
class Dims:
    """inner: of the feed-forward, or of one of the `experts` of which a token meets `chosen`. tied: the embedding is
    the output's matrix too."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    tied: bool = False
    experts: int = 0
    chosen: int = 0

    def scaled(self, by):
        heads, groups = scaled(self.kv_heads, by), self.heads // self.kv_heads
        return replace(self, hidden=scaled(self.hidden, by, 64), inner=scaled(self.inner, by, 64),
                                   layers=scaled(self.layers, by), heads=groups * heads, kv_heads=heads)  # fmt: skip


SIZES = {
    "0.6b": Dims(1024, 3072, 28, 16, 8, tied=True),
    "1.7b": Dims(2048, 6144, 28, 16, 8, tied=True),
    "4b": Dims(2560, 9728, 36, 32, 8, tied=True),
    "8b": Dims(4096, 12288, 36, 32, 8),
    "14b": Dims(5120, 17408, 40, 40, 8),
    "32b": Dims(5120, 25600, 64, 64, 8),
    "30b-a3b": Dims(2048, 768, 48, 32, 4, experts=128, chosen=8),
}
ROUTING = ("balanced", "worst")


@dataclass(frozen=True)
class Config:
    size: str = option("4b", help=", ".join(SIZES), parse=choice(*SIZES), metavar="SIZE")
    prompt: int = option(2048, help="tokens of each prompt")
    decode: int = option(256, help="tokens decoded for each prompt")
    batch: int = option(8, help="prompts at once")
    routing: str = option("balanced", help="of tokens to experts", parse=choice(*ROUTING), metavar="|".join(ROUTING))
    dtype: str = option("bfloat16", help="of weights, activations and cache", parse=DTYPE)
    scale: float = scale()

    @property
    def cache(self) -> int:
        """Places allocated in the cache of each prompt."""
        return self.prompt + self.decode


def linear(name, x, width):
    """x @ W, no bias."""
    return lax.dot_general(x, param(name, (x.shape[-1], width)), (((x.ndim - 1,), (0,)), ((), ())))


def rms_norm(name, x):
    wide, last = x.astype(FLOAT), x.ndim - 1
    square = lax.expand_dims(lax.reduce_sum(lax.square(wide), (last,)), (last,)) / x.shape[last]
    return (wide * lax.rsqrt(square + 1e-6)).astype(x.dtype) * param(name, x.shape[last:])


def rotation(positions, dtype):
    """cos and sin (s, 1, d), computed in float32; both halves of a head have the same angles."""
    half = HEAD_DIM // 2
    frequency = jnp.exp(lax.iota(FLOAT, half) * (-math.log(THETA) / half))
    angle = positions.astype(FLOAT)[:, None] * frequency
    angle = lax.concatenate([angle, angle], 1)[:, None, :]
    return jnp.cos(angle).astype(dtype), jnp.sin(angle).astype(dtype)


def rotated(x, cos, sin):
    left, right = jnp.split(x, 2, -1)
    return x * cos + lax.concatenate([-right, left], x.ndim - 1) * sin


def attention(q, k, v, mask):
    """softmax(q k / sqrt(d)) v, scores in float32. q (b, s, h, d), k and v (b, t, k, d), mask (s, t) -> (b, s, h d).

    Each kv head serves h / k query heads. Executed in full: the mask changes values, not work.
    """
    (b, s, heads, d), kv_heads = q.shape, k.shape[2]
    q = q.reshape(b, s, kv_heads, heads // kv_heads, d)
    scores = lax.dot_general(q, k, (((4,), (3,)), ((0, 2), (0, 2))), preferred_element_type=FLOAT) * d**-0.5
    scores = jnp.where(mask[:, None], scores, -jnp.inf)
    scores = jnp.exp(scores - lax.stop_gradient(jnp.max(scores, -1, keepdims=True)))
    weights = (scores / jnp.sum(scores, -1, keepdims=True)).astype(v.dtype)  # (b, k, s, h/k, t)
    out = lax.dot_general(weights, v, (((4,), (1,)), ((0, 1), (0, 2))))
    return out.transpose(0, 2, 1, 3, 4).reshape(b, s, heads * d)


def mlp(x, dims):
    with scope("up"):
        gate, up = linear("mlp/gate_proj", x, dims.inner), linear("mlp/up_proj", x, dims.inner)
    with scope("silu"):
        y = silu(gate) * up
    with scope("down"):
        return linear("mlp/down_proj", y, dims.hidden)


def experts(x, dims, routing):
    """Each token meets its `chosen` experts, and the results are added by their weights; x (b, s, hidden)."""
    shape, rows = x.shape, x.shape[0] * x.shape[1] * dims.chosen
    read = dims.experts if routing == "worst" else min(dims.experts, rows)

    def ragged(name, x, width):
        matrices = param(f"mlp/experts/{name}", (dims.experts, x.shape[-1], width))
        return lax.ragged_dot(x, matrices[:read], sizes)

    with scope("router"):
        x = x.reshape(-1, dims.hidden)
        likely = jax.nn.softmax(linear("mlp/gate", x, dims.experts).astype(FLOAT))
        weights, ids = lax.top_k(likely, dims.chosen)
        weights = (weights / jnp.sum(weights, -1, keepdims=True)).astype(x.dtype)
    with scope("dispatch"):
        order = jnp.argsort(ids.reshape(rows))
        sizes = jnp.zeros((read,), jnp.int32).at[ids.reshape(rows)].add(1, mode="drop")
        x = x.at[lax.div(order, jnp.asarray(dims.chosen, order.dtype))].get(mode="promise_in_bounds")
    with scope("up"):
        gate, up = ragged("gate_proj", x, dims.inner), ragged("up_proj", x, dims.inner)
    with scope("silu"):
        y = silu(gate) * up
    with scope("down"):
        y = ragged("down_proj", y, dims.hidden)
    with scope("combine"):
        back = jnp.zeros_like(order).at[order].set(lax.iota(order.dtype, rows), mode="promise_in_bounds")
        y = y.at[back].get(mode="promise_in_bounds").reshape(-1, dims.chosen, dims.hidden)
        return jnp.sum(y * weights[:, :, None], 1).reshape(shape)


def layer(x, keys, values, i, at, rope, mask, dims, routing):
    """Layer i on tokens whose places begin at `at`; x (b, s, hidden), keys and values (layers, b, cache, k, d).

    at None: a prompt, whose places begin at 0 and which attends to its own keys; otherwise to all of the cache.
    """
    b, s, _ = x.shape
    with scope("norm"):
        y = rms_norm("input_layernorm", x)
    with scope("qkv"):
        q, k, v = (
            linear(f"self_attn/{name}_proj", y, n * HEAD_DIM).reshape(b, s, n, HEAD_DIM)
            for name, n in (("q", dims.heads), ("k", dims.kv_heads), ("v", dims.kv_heads))
        )
    with scope("qk_norm"):
        q, k = rms_norm("self_attn/q_norm", q), rms_norm("self_attn/k_norm", k)
    with scope("rope"):
        q, k = rotated(q, *rope), rotated(k, *rope)
    with scope("cache"):
        place = (i, 0, 0 if at is None else at, 0, 0)
        keys, values = (lax.dynamic_update_slice(c, n[None], place) for c, n in ((keys, k), (values, v)))
    with scope("attention"):
        if at is not None:
            k, v = (lax.dynamic_index_in_dim(c, i, keepdims=False) for c in (keys, values))
        y = attention(q, k, v, mask)
    with scope("o_proj"):
        y = linear("self_attn/o_proj", y, dims.hidden)
    with scope("residual"):
        x = x + y
    with scope("norm"):
        y = rms_norm("post_attention_layernorm", x)
    with scope("mlp"):
        y = experts(y, dims, routing) if dims.experts else mlp(y, dims)
    with scope("residual"):
        return x + y, keys, values


def forward(tokens, at, keys, values, dims, routing):
    """The next token (b, 1) after tokens (b, s), whose places begin at `at`, and the cache with their keys, values."""
    with scope("embed"):
        table = param("embed_tokens", (VOCAB, dims.hidden))
        x = table.at[tokens].get(mode="promise_in_bounds", wrap_negative_indices=False)
        places = lax.iota(jnp.int32, tokens.shape[1])
        if at is not None:
            places = at + places
        rope = rotation(places, x.dtype)
        mask = places[:, None] >= lax.iota(jnp.int32, tokens.shape[1] if at is None else keys.shape[2])
        numbers = lax.iota(jnp.int32, dims.layers)

    def block(carry, i):
        return layer(*carry, i, at, rope, mask, dims, routing), None

    (x, keys, values), _ = stack(dims.layers, block, (x, keys, values), numbers, name="layers")
    with scope("norm"):
        x = rms_norm("norm", x[:, -1])
    with scope("head"):
        matrix = table if dims.tied else param("lm_head", (VOCAB, dims.hidden))
        logits = lax.dot_general(x, matrix, (((1,), (1,)), ((), ())))
        return jnp.argmax(logits, -1, keepdims=True), keys, values


def unwritten(config):
    """FLOPs that a step of decode spends on places not yet written, the mean of all steps: `decode` - 1 places in the
    first step, none in the last."""
    dims = SIZES[config.size].scaled(config.scale)
    return 2 * HEAD_DIM * dims.heads * dims.layers * config.batch * (config.decode - 1)


def stages(config):
    dims, b = SIZES[config.size].scaled(config.scale), config.batch
    cache = jax.ShapeDtypeStruct((dims.layers, b, config.cache, dims.kv_heads, HEAD_DIM), config.dtype)
    whole = functools.partial(jax.ShapeDtypeStruct, dtype="int32")

    def prefill(tokens, keys, values):
        return forward(tokens, None, keys, values, dims, config.routing)

    def decode(token, at, keys, values):
        return forward(token, at, keys, values, dims, config.routing)

    prompt, step = (whole((b, config.prompt)), cache, cache), (whole((b, 1)), whole(()), cache, cache)
    cached = f"a step attends to all {config.cache} allocated places, {config.prompt} to {config.cache} of them written"
    read = dims.experts if config.routing == "worst" else min(dims.experts, b * dims.chosen)
    routed = [("routing", f"assumed {config.routing}: a step reads {read} of {dims.experts} experts a layer")]
    notes = (("cache", cached), *(routed if dims.experts else []))
    return [
        Stage("prefill", prefill, prompt, 1, config.dtype, 2, (1, 2), makes=(b * config.prompt, "prompt tokens")),
        Stage("decode", decode, step, config.decode, config.dtype, 2, (2, 3), notes, (b, "tokens"), grows="batch"),
    ]


MODEL = Model("qwen3", Config, stages)
