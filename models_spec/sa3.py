"""Stable Audio 3: text to audio with a T5Gemma encoder, an 8-step diffusion transformer and the SAME decoder.

Sources: Stability-AI/stable-audio-3 (public reference code and its MLX port), T5Gemma b-b-ul2 in
huggingface/transformers. Parameters as published: text 84,972,288 and an embedding of 196,608,000; dit 1,453,170,176
(medium; with the stored rotary buffer, an argument here, 1,453,170,192) or 459,130,880 (small-music); codec 426 M
(SAME-L, of medium) or 55 M (SAME-S, of small-music).

A clip is generated with 6 s of tail, in latents of 4096 samples at 44.1 kHz, rounded up to an even number (`asked`) and
cut at the preset's most (`latents`). Precision: bfloat16 weights and activations; float32 inside RMS norms, softmax
and rotary embeddings. Matrices are stored (in, out), 1x1 convolutions are products.

What the reference computes anew in every step (the context and its keys, the zeros of the local conditioning) is
computed anew here. Left out: the tokenizer, random numbers and sigmas (arguments), the codec's regularising noise, the
padding mask of self-attention (under 0.2 % of it). The conditioner's weights (padding embedding, projection of the
seconds) are arguments of text. Letters: b batch, s and t tokens, h heads, d head width, L latents.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import gelu, silu

from costtrace.model import DTYPE, Model, Stage, choice, option, param, scale, scaled, scope, stack

FLOAT, HEAD_DIM = jnp.float32, 64
RATE, SAMPLES, TAIL_S = 44100, 4096, 6  # samples per second, samples per latent, seconds beyond the clip


@dataclass(frozen=True)
class Dims:
    """A stack of blocks. branches: attentions whose difference is taken; 1 is plain attention. silu: blocks with that
    activation, others have sin. chunk: tokens that attend to each other; 0 is a window of 17 on either side."""

    width: int
    blocks: int
    inner: int
    branches: int = 2
    silu: int = 0
    chunk: int = 0

    def scaled(self, by):
        half = scaled(self.blocks // 2, by)  # an even number: blocks stand before and behind a shift, or differ
        return replace(self, width=scaled(self.width, by, HEAD_DIM), inner=scaled(self.inner, by, HEAD_DIM),
                                   blocks=2 * half, silu=min(scaled(self.silu, by), 2 * half - 1))  # fmt: skip


MOST = {"medium": 4096, "small-music": 1292}  # latents
DIT = {"medium": Dims(1536, 24, 6144), "small-music": Dims(1024, 20, 4096, branches=1)}
CODEC = {"medium": Dims(1536, 12, 4608, silu=5), "small-music": Dims(768, 6, 2304, silu=6, chunk=34)}


@dataclass(frozen=True)
class Config:
    seconds: float = option(120.0, help="length of the clip")
    preset: str = option("medium", help="medium or small-music", parse=choice(*MOST), metavar="NAME")
    steps: int = option(8, help="sampling steps, each one forward of the DiT")
    batch: int = option(1, help="clips at once")
    dtype: str = option("bfloat16", help="of weights and activations", parse=DTYPE)
    scale: float = scale()

    @property
    def asked(self) -> int:
        """Latents of the clip and its tail, rounded up to an even number."""
        return 2 * -(-int((self.seconds + TAIL_S) * RATE) // (2 * SAMPLES))

    @property
    def latents(self) -> int:
        """Latents that are generated: those asked for, or the preset's most."""
        return min(self.asked, MOST[self.preset])


def linear(name, x, width, bias=False):
    y = lax.dot_general(x, param(f"{name}/weight", (x.shape[-1], width)), (((x.ndim - 1,), (0,)), ((), ())))
    return y + param(f"{name}/bias", (width,)) if bias else y


def normal(x, eps):
    """x over the root of its mean square, in float32."""
    x, last = x.astype(FLOAT), x.ndim - 1
    square = lax.expand_dims(lax.reduce_sum(lax.square(x), (last,)), (last,)) / x.shape[last]
    return x * lax.rsqrt(square + eps)


def rms_norm(name, x, eps=1e-5):
    return normal(x, eps).astype(x.dtype) * param(name, x.shape[-1:])


def fourier(t):
    """cos and sin of 2 pi t at 128 frequencies from 0.5 to 10000: (b,) -> (b, 256)."""
    frequency = jnp.exp(lax.iota(FLOAT, 128) * (math.log(20000) / 127) + math.log(0.5))
    angle = t.astype(FLOAT)[:, None] * (2 * math.pi * frequency)
    return lax.concatenate([jnp.cos(angle), jnp.sin(angle)], 1).astype(t.dtype)


def rotation(tokens, pairs, frequency=None):
    """cos and sin (tokens, 1, pairs); the frequency of each pair is computed where it is not given."""
    if frequency is None:
        frequency = jnp.exp(lax.iota(FLOAT, pairs) * (-math.log(10000) / pairs))
    angle = (lax.iota(FLOAT, tokens)[:, None] * frequency)[:, None, :]
    return jnp.cos(angle), jnp.sin(angle)


def rotated(x, cos, sin):
    """The first features of a head, paired half with half, turned in float32; the others stay. x (..., s, h, d)."""
    n = cos.shape[-1]
    left, right = x[..., :n].astype(FLOAT), x[..., n : 2 * n].astype(FLOAT)
    turned = [(left * cos - right * sin).astype(x.dtype), (right * cos + left * sin).astype(x.dtype)]
    rest = [x[..., 2 * n :]] if 2 * n < x.shape[-1] else []
    return lax.concatenate([*turned, *rest], x.ndim - 1)


def parts(x, n):
    """n heads-by-features arrays of a packed projection: (..., n h d) -> n times (..., h, d)."""
    return [part.reshape(*x.shape[:-1], -1, HEAD_DIM) for part in jnp.split(x, n, -1)]


def attention(q, k, v, mask=None, cap=None):
    """softmax(q k / sqrt(d)) v, scores in float32, executed in full. q (..., s, h, d), k, v (..., t, h, d) -> (..., s,
    h d). cap: scores are bent to lie within it. mask: the scores (..., h, s, t) that stay.
    """
    n = q.ndim
    lead = tuple(range(n - 3))
    alike = (*lead, n - 2), (*lead, n - 2)
    scores = lax.dot_general(q, k, (((n - 1,), (n - 1,)), alike), preferred_element_type=FLOAT) * q.shape[-1] ** -0.5
    if cap is not None:
        scores = jnp.tanh(scores / cap) * cap
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    scores = jnp.exp(scores - lax.stop_gradient(jnp.max(scores, -1, keepdims=True)))
    weights = (scores / jnp.sum(scores, -1, keepdims=True)).astype(v.dtype)
    out = lax.dot_general(weights, v, (((n - 1,), (n - 3,)), ((*lead, n - 3), (*lead, n - 2))))
    return jnp.swapaxes(out, n - 3, n - 2).reshape(*q.shape[:-2], -1)


def difference(queries, keys, v, mask=None):
    """The attention of the first branch less that of the second, where there are two; both see the same values."""
    first, *second = (attention(q, k, v, mask) for q, k in zip(queries, keys, strict=True))
    return first - second[0] if second else first


def feed_forward(name, x, inner, act=silu):
    with scope("up"):
        wide = linear(f"{name}/proj", x, 2 * inner, bias=True)
    with scope("act"):
        narrow = wide[..., :inner] * act(wide[..., inner:])
    with scope("down"):
        return linear(f"{name}/out", narrow, x.shape[-1], bias=True)


# Text encoder: T5Gemma, and the conditioner ---------------------------------------------------------------------------

PROMPT, VOCAB, LONGEST_S, TEXT = 256, 256000, 384, Dims(768, 12, 2048)


def gemma_norm(name, x):
    return (normal(x, 1e-6) * (1 + param(name, x.shape[-1:]).astype(FLOAT))).astype(x.dtype)


def t5_layer(x, rope, mask, inner):
    width = x.shape[-1]
    with scope("norm"):
        y = gemma_norm("pre_self_attn_layernorm", x)
    with scope("qkv"):
        q, k, v = (linear(f"self_attn/{name}_proj", y, width).reshape(*y.shape[:2], -1, HEAD_DIM) for name in "qkv")
    with scope("rope"):
        q, k = rotated(q, *rope), rotated(k, *rope)
    with scope("attention"):
        y = attention(q, k, v, mask, cap=50)
    with scope("o_proj"):
        y = linear("self_attn/o_proj", y, width)
    with scope("norm"):
        y = gemma_norm("post_self_attn_layernorm", y)
    with scope("residual"):
        x = x + y
    with scope("norm"):
        y = gemma_norm("pre_feedforward_layernorm", x)
    with scope("mlp"):
        y = gelu(linear("mlp/gate_proj", y, inner)) * linear("mlp/up_proj", y, inner)
        y = linear("mlp/down_proj", y, width)
    with scope("norm"):
        y = gemma_norm("post_feedforward_layernorm", y)
    with scope("residual"):
        return x + y


def text(ids, valid, seconds, padding, weight, bias, dims=TEXT):
    """Prompt ids and validity (b, 256), seconds (b,) -> the context (b, 257, 768), the last of it the seconds."""
    with scope("embed"):
        table = param("embed_tokens", (VOCAB, dims.width))
        x = table.at[ids].get(mode="promise_in_bounds", wrap_negative_indices=False) * math.sqrt(dims.width)
        rope = rotation(ids.shape[1], HEAD_DIM // 2)
        mask = (valid != 0)[:, None, None, :]
    x = stack(dims.blocks, lambda x: t5_layer(x, rope, mask, dims.inner), x, name="layers")
    with scope("norm"):
        x = gemma_norm("norm", x)
    with scope("conditioner"):
        x = jnp.where(valid[:, :, None] != 0, x, padding)
        last = lax.dot_general(fourier(seconds / LONGEST_S), weight, (((1,), (0,)), ((), ()))) + bias
        return lax.concatenate([x, last[:, None, :]], 1)


# Diffusion transformer ------------------------------------------------------------------------------------------------

CHANNELS, MEMORY, LOCAL = 256, 64, 257


def dit_block(x, context, local, mod, rope, dims):
    """Self-attention, cross-attention, local conditioning and feed-forward; x (b, 64 + L, width)."""
    width, branches = dims.width, dims.branches

    def qk_norm(name, queries, keys):
        return [[rms_norm(f"{name}/{kind}_norm", x, 1e-6) for x in xs] for kind, xs in (("q", queries), ("k", keys))]

    with scope("modulation"):
        mods = jnp.split(param("to_scale_shift_gate", (6 * width,)) + mod, 6, -1)
    with scope("norm"):
        y = rms_norm("pre_norm", x) * (1 + mods[0]) + mods[1]
    with scope("to_qkv"):
        y = linear("self_attn/to_qkv", y, (2 * branches + 1) * width)
    with scope("qk_norm"):
        q, k, v, *second = parts(y, 2 * branches + 1)
        queries, keys = qk_norm("self_attn", [q, *second[:1]], [k, *second[1:]])
    with scope("rope"):
        queries, keys = ([rotated(x, *rope) for x in xs] for xs in (queries, keys))
    with scope("attention"):
        y = difference(queries, keys, v)
    with scope("to_out"):
        y = linear("self_attn/to_out", y, width)
    with scope("gate"):
        x = x + y * lax.logistic(1 - mods[2])
    with scope("cross_norm"):
        y = rms_norm("cross_attend_norm", x)
    with scope("cross_qkv"):
        with scope("to_q"):
            queries = linear("cross_attn/to_q", y, branches * width)
        with scope("to_kv"):
            keys = linear("cross_attn/to_kv", context, (branches + 1) * width)
    with scope("cross_qk_norm"):
        *keys, v = parts(keys, branches + 1)
        queries, keys = qk_norm("cross_attn", parts(queries, branches), keys)
    with scope("cross_attention"):
        y = difference(queries, keys, v)
    with scope("cross_to_out"):
        y = linear("cross_attn/to_out", y, width)
    with scope("cross_residual"):
        x = x + y
    with scope("local"):
        y = linear("to_local_embed/2", silu(linear("to_local_embed/0", local, width, bias=True)), width, bias=True)
        x = x + lax.pad(y, jnp.zeros((), y.dtype), ((0, 0, 0), (MEMORY, 0, 0), (0, 0, 0)))
    with scope("norm"):
        y = rms_norm("ff_norm", x) * (1 + mods[3]) + mods[4]
    with scope("mlp"):
        y = feed_forward("ff", y, dims.inner)
    with scope("gate"):
        return x + y * lax.logistic(1 - mods[5])


def dit(x, t, t_next, noise, context, local, frequency, dims):
    """One sampling step: x, noise (b, L, 256), t, t_next (b,), context (b, 257, 768), local (b, L, 257) -> next x."""
    width = dims.width
    with scope("context"):
        cross = linear("to_cond_embed/2", silu(linear("to_cond_embed/0", context, width)), width)
    with scope("time"):
        whole = linear("to_global_embed/2", silu(linear("to_global_embed/0", context[:, -1], width)), width)
        time = silu(linear("to_timestep_embed/0", fourier(t), width, bias=True))
        vec = whole + linear("to_timestep_embed/2", time, width, bias=True)
        rope = rotation(MEMORY + x.shape[1], HEAD_DIM // 4, frequency)
    with scope("modulation"):
        vec = silu(linear("global_cond_embedder/0", vec, width, bias=True))
        mod = linear("global_cond_embedder/2", vec, 6 * width, bias=True)[:, None, :]
    with scope("embed"):
        y = linear("project_in", x + linear("preprocess_conv", x, CHANNELS), width)
        memory = jnp.broadcast_to(param("memory_tokens", (MEMORY, width)), (len(x), MEMORY, width))
        y = lax.concatenate([memory, y], 1)
    y = stack(dims.blocks, lambda y: dit_block(y, cross, local, mod, rope, dims), y, name="block")
    with scope("final"):
        y = linear("project_out", y[:, MEMORY:], CHANNELS)
        velocity = y + linear("postprocess_conv", y, CHANNELS)
    with scope("sampler"):
        t, t_next = t[:, None, None], t_next[:, None, None]
        return (1 - t_next) * (x - t * velocity) + t_next * noise


# Codec: the decoder of SAME-L or SAME-S -------------------------------------------------------------------------------

GROUP, PATCH, CHANNELS_OUT, STEREO = 17, 16, 512, 2
"""Tokens of a latent: itself and 16 that become 256 samples each, of two channels."""


def dyt(name, x):
    """gamma tanh(alpha x) + beta, alpha a single number."""
    alpha, width = param(f"{name}/alpha", ()), x.shape[-1:]
    return param(f"{name}/gamma", width) * jnp.tanh(alpha * x) + param(f"{name}/beta", width)


def windowed(queries, keys, v):
    """Attention to the 17 tokens on either side, as a block-dense kernel runs it: each group of 17 queries meets the 51
    keys of its own group and the two beside it, and a mask leaves the window. q, k, v (b, 1, 17 L, h, d).
    """
    b, _, n, h, d = v.shape
    groups = n // GROUP

    def beside(x):
        x = lax.pad(x[:, 0], jnp.zeros((), x.dtype), ((0, 0, 0), (GROUP, GROUP, 0), (0, 0, 0), (0, 0, 0)))
        x = x.reshape(b, groups + 2, GROUP, h, d)
        return lax.concatenate([x[:, i : i + groups] for i in range(3)], 2)

    query, key = lax.iota(jnp.int32, GROUP)[:, None], lax.iota(jnp.int32, 3 * GROUP) - GROUP
    place = GROUP * lax.iota(jnp.int32, groups)[:, None, None, None] + key
    window = (lax.abs(query - key) <= GROUP) & (place >= 0) & (place < n)
    queries = [q.reshape(b, groups, GROUP, h, d) for q in queries]
    return difference(queries, [beside(k) for k in keys], beside(v), window)


def same_block(x, rope, act, dims):
    """Attention in chunks or a window, then feed-forward; x (b, tokens, width)."""
    with scope("norm"):
        y = dyt("pre_norm", x)
    with scope("to_qkv"):
        y = linear("self_attn/to_qkv", y, 5 * dims.width).reshape(len(x), -1, len(rope[0]), 5 * dims.width)
    with scope("qk_norm"):
        q, k, v, q2, k2 = parts(y, 5)
        queries = [dyt("self_attn/q_norm", x) for x in (q, q2)]
        keys = [dyt("self_attn/k_norm", x) for x in (k, k2)]
    with scope("rope"):
        queries, keys = ([rotated(x, *rope) for x in xs] for xs in (queries, keys))
    with scope("attention"):
        y = (difference if dims.chunk else windowed)(queries, keys, v).reshape(x.shape)
    with scope("to_out"):
        y = linear("self_attn/to_out", y, dims.width)
    with scope("residual"):
        x = x + y
    with scope("norm"):
        y = dyt("ff_norm", x)
    with scope("mlp"):
        y = feed_forward("ff", y, dims.inner, act)
    with scope("residual"):
        return x + y


def codec(z, running_std, dims):
    """Latents (b, L, 256), and the buffer that undoes their normalisation, -> stereo samples (b, 2, 4096 L)."""
    b, latents, width = *z.shape[:2], dims.width

    def blocks(x, first, n, act):
        return stack(n, lambda x: same_block(x, rope, act, dims), x, name="block", first=first)

    with scope("project_in"):
        x = linear("project_in", z * running_std, width, bias=True)
        new = jnp.broadcast_to(param("new_tokens", (1, width)), (b, latents, PATCH, width))
        x = lax.concatenate([x[:, :, None], new], 2).reshape(b, GROUP * latents, width)
        rope = rotation(dims.chunk or GROUP * latents, HEAD_DIM // 4)
    if dims.chunk:
        x = blocks(x, 0, dims.blocks // 2, silu)
        with scope("shift"):
            x = lax.concatenate([x[:, :GROUP], x, x[:, -GROUP:]], 1)
        x = blocks(x, dims.blocks // 2, dims.blocks // 2, silu)
    else:
        x = blocks(x, 0, dims.silu, silu)
        x = blocks(x, dims.silu, dims.blocks - dims.silu, lambda x: jnp.sin(math.pi * x))
    with scope("mapping"):
        first = 1 if dims.chunk else 0
        x = x.reshape(b, -1, GROUP, width)[:, first : first + latents, 1:].reshape(b, PATCH * latents, width)
        if dims.chunk:
            kernel, bias = param("mapping/weight", (3, width, CHANNELS_OUT)), param("mapping/bias", (CHANNELS_OUT,))
            x = lax.conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")) + bias
        else:
            x = linear("mapping", x, CHANNELS_OUT, bias=True)
    with scope("unpatch"):
        x = x.reshape(b, PATCH * latents, STEREO, -1).transpose(0, 2, 1, 3).reshape(b, STEREO, -1)
        return lax.clamp(jnp.asarray(-1, x.dtype), x, jnp.asarray(1, x.dtype))


def stages(config):
    array = functools.partial(jax.ShapeDtypeStruct, dtype=config.dtype)
    b, ids = config.batch, jax.ShapeDtypeStruct((config.batch, PROMPT), "int32")
    encoder = TEXT.scaled(config.scale)
    x, time, context = array((b, config.latents, CHANNELS)), array((b,)), array((b, PROMPT + 1, encoder.width))
    local, frequency = array((b, config.latents, LOCAL)), jax.ShapeDtypeStruct((HEAD_DIM // 4,), "float32")
    step = (x, time, time, x, context, local, frequency)
    conditioner = (time, array((encoder.width,)), array((256, encoder.width)), array((encoder.width,)))
    denoise, decode = (functools.partial(fn, dims=some[config.preset].scaled(config.scale))
                       for fn, some in ((dit, DIT), (codec, CODEC)))  # fmt: skip
    length = f"{config.seconds:g} s and {TAIL_S} s of tail are {config.asked} latents"
    if config.asked > config.latents:
        length += f", cut at {config.preset}'s {config.latents}: {config.latents * SAMPLES / RATE:.1f} s"
    return [
        Stage("text", functools.partial(text, dims=encoder), (ids, ids, *conditioner), dtype=config.dtype),
        Stage("dit", denoise, step, calls=config.steps, dtype=config.dtype, depth=2, notes=(("length", length),)),
        Stage("codec", decode, (x, array(())), dtype=config.dtype, depth=2),
    ]


MODEL = Model("sa3", Config, stages)
