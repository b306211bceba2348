"""FLUX.2 klein-4B: text to image with a Qwen3-4B encoder, a 4-step diffusion transformer and a VAE decoder.

Sources: black-forest-labs/flux2 (public reference code), Qwen3 in huggingface/transformers, and the shapes in the
headers of the published checkpoints, whose parameter counts the stages reproduce: text 3,114,088,192 (27 of its 36
layers run, and not the final norm), dit 3,875,544,576, vae 49,620,259 (the two batch-norm buffers are arguments).

Precision is the reference's: bfloat16 weights and activations; float32 inside norms, softmax and the DiT's rotary
embedding. Weights are named as in the checkpoints, matrices stored (in, out), images (batch, height, width, channel).

Left out: the tokenizer, the noise and its schedule (host work, a few hundred numbers), the scatter of image tokens to
their places (here a reshape), the final clamp to 8 bits. Letters: b batch, s and t tokens, h heads, k kv heads, d head
width, c channels.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import lax

from costtrace.model import DTYPE, Model, Size, Stage, option, param, scale, scaled, scope, size, stack

FLOAT = jnp.float32


@dataclass(frozen=True)
class Config:
    res: Size = option("512x512", help="image size in pixels", parse=size(16), metavar="WxH")
    steps: int = option(4, help="Euler steps, each one forward of the DiT")
    text_tokens: int = option(512, help="prompt tokens, padding included")
    batch: int = option(1, help="images at once")
    dtype: str = option("bfloat16", help="of weights and activations", parse=DTYPE)
    scale: float = scale()


# What the stages share ------------------------------------------------------------------------------------------------


def linear(name, x, width):
    """x @ W, no bias."""
    return lax.dot_general(x, param(name, (x.shape[-1], width)), (((x.ndim - 1,), (0,)), ((), ())))


def silu(x):
    return lax.mul(x, lax.logistic(x))


def mean(x, *axes):
    """Over `axes`, which stay with size 1."""
    total = lax.expand_dims(lax.reduce_sum(x, axes), axes)
    return total / (x.size // total.size)


def normal(x, *axes):
    """x over the root of its mean square."""
    return x * lax.rsqrt(mean(lax.square(x), *axes) + 1e-6)


def rms_norm(name, x):
    return normal(x.astype(FLOAT), x.ndim - 1).astype(x.dtype) * param(name, x.shape[-1:])


def attention(q, k, v, mask=None):
    """softmax(q k / sqrt(d)) v, scores in float32. q (b, s, h, d), k and v (b, t, k, d) -> (b, s, h d).

    Each kv head serves h / k query heads. Executed in full: a mask (b, 1, s, 1, t) changes values, not work.
    """
    (b, s, heads, d), kv_heads = q.shape, k.shape[2]
    q = q.reshape(b, s, kv_heads, heads // kv_heads, d)
    scores = lax.dot_general(q, k, (((4,), (3,)), ((0, 2), (0, 2))), preferred_element_type=FLOAT) * d**-0.5
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    scores = jnp.exp(scores - lax.stop_gradient(jnp.max(scores, -1, keepdims=True)))
    weights = (scores / jnp.sum(scores, -1, keepdims=True)).astype(v.dtype)  # (b, k, s, h/k, t)
    out = lax.dot_general(weights, v, (((4,), (1,)), ((0, 1), (0, 2))))
    return out.transpose(0, 2, 1, 3, 4).reshape(b, s, heads * d)


# Text encoder: Qwen3 --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Qwen3:
    vocab: int = 151936
    hidden: int = 2560
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    inner: int = 9728
    theta: float = 1e6
    every: int = 9  # layers from one of the states that are given on to the next

    def scaled(self, by):
        heads, groups = scaled(self.kv_heads, by), self.heads // self.kv_heads
        return replace(self, hidden=scaled(self.hidden, by, 64), heads=groups * heads, kv_heads=heads,
                                   inner=scaled(self.inner, by, 64), every=scaled(self.every, by))  # fmt: skip


def qwen3_rope(tokens, dims, dtype):
    """cos and sin (tokens, 1, d), computed in float32; both halves of a head have the same angles."""
    half = dims.head_dim // 2
    frequency = jnp.exp(lax.iota(FLOAT, half) * (-math.log(dims.theta) / half))
    angle = lax.iota(FLOAT, tokens)[:, None] * frequency
    angle = lax.concatenate([angle, angle], 1)[:, None, :]
    return jnp.cos(angle).astype(dtype), jnp.sin(angle).astype(dtype)


def half_rotated(x, cos, sin):
    left, right = jnp.split(x, 2, -1)
    return x * cos + lax.concatenate([-right, left], x.ndim - 1) * sin


def qwen3_layer(x, rope, mask, dims):
    """One decoder layer without a cache; x (b, s, hidden)."""
    b, s, _ = x.shape
    with scope("norm"):
        y = rms_norm("input_layernorm", x)
    with scope("qkv"):
        q, k, v = (
            linear(f"self_attn/{name}_proj", y, n * dims.head_dim).reshape(b, s, n, dims.head_dim)
            for name, n in (("q", dims.heads), ("k", dims.kv_heads), ("v", dims.kv_heads))
        )
    with scope("qk_norm"):
        q, k = rms_norm("self_attn/q_norm", q), rms_norm("self_attn/k_norm", k)
    with scope("rope"):
        q, k = half_rotated(q, *rope), half_rotated(k, *rope)
    with scope("attention"):
        y = attention(q, k, v, mask)
    with scope("o_proj"):
        y = linear("self_attn/o_proj", y, dims.hidden)
    with scope("residual"):
        x = x + y
    with scope("norm"):
        y = rms_norm("post_attention_layernorm", x)
    with scope("mlp"):
        with scope("up"):
            gate, up = linear("mlp/gate_proj", y, dims.inner), linear("mlp/up_proj", y, dims.inner)
        with scope("silu"):
            y = silu(gate) * up
        with scope("down"):
            y = linear("mlp/down_proj", y, dims.hidden)
    with scope("residual"):
        return x + y


def text(ids, valid, dims=Qwen3(), outputs=3):
    """Hidden states 9, 18 and 27 side by side: token ids and validity (b, s) -> (b, s, 7680)."""
    tokens = ids.shape[1]
    with scope("embed"):
        table = param("embed_tokens", (dims.vocab, dims.hidden))
        x = table.at[ids].get(mode="promise_in_bounds", wrap_negative_indices=False)
        rope = qwen3_rope(tokens, dims, x.dtype)
        causal = lax.iota(jnp.int32, tokens)[:, None] >= lax.iota(jnp.int32, tokens)
        mask = causal[None, None, :, None, :] & (valid != 0)[:, None, None, None, :]
    states = []
    for i in range(outputs):
        x = stack(dims.every, lambda x: qwen3_layer(x, rope, mask, dims), x, name="layers", first=dims.every * i)
        states.append(x)
    with scope("output"):
        return lax.concatenate(states, 2)


# Diffusion transformer ------------------------------------------------------------------------------------------------

HIDDEN, HEAD_DIM, MLP, LATENT_CHANNELS = 3072, 128, 9216, 128
DOUBLE_BLOCKS, SINGLE_BLOCKS = 5, 20
ROPE_AXES, ROPE_WIDTH, ROPE_THETA, TIME_WIDTH = 4, 32, 2000.0, 256


def time_embedding(t):
    """cos and sin of 1000 t at 128 frequencies: (b,) -> (b, 256)."""
    half = TIME_WIDTH // 2
    frequency = jnp.exp(lax.iota(FLOAT, half) * (-math.log(10000) / half))
    angle = (t.astype(FLOAT) * 1000)[:, None] * frequency
    return lax.concatenate([jnp.cos(angle), jnp.sin(angle)], 1).astype(t.dtype)


def rope_table(ids):
    """A 2x2 rotation per pair of features, from a position on four axes: (b, s, 4) -> (b, s, 1, 64, 2, 2)."""
    half = ROPE_WIDTH // 2
    frequency = jnp.exp(lax.iota(FLOAT, half) * (-math.log(ROPE_THETA) / half))
    angle = (ids.astype(FLOAT)[..., None] * frequency).reshape(*ids.shape[:2], 1, ROPE_AXES * half)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([cos, -sin, sin, cos], -1).reshape(*angle.shape, 2, 2)


def rotated(x, table):
    """Neighbouring features of a head turned by their angle, in float32; x (b, s, h, d)."""
    pairs = x.astype(FLOAT).reshape(*x.shape[:3], HEAD_DIM // 2, 1, 2)
    turned = table[..., 0] * pairs[..., 0] + table[..., 1] * pairs[..., 1]
    return turned.reshape(x.shape).astype(x.dtype)


def modulation(name, silu_vec, n):
    """n vectors (b, 1, hidden) that shift, scale and gate every token."""
    return jnp.split(linear(name, silu_vec, n * silu_vec.shape[-1])[:, None, :], n, -1)


def modulated_norm(x, shift, scale):
    """Layer norm without weights, then (1 + scale) x + shift."""
    wide = x.astype(FLOAT)
    wide = normal(wide - mean(wide, 2), 2)
    return wide.astype(x.dtype) * (1 + scale) + shift


def heads_of(x, i, hidden):
    """q, k or v (i = 0, 1, 2) of a packed projection: (b, s, .) -> (b, s, h, 128)."""
    return x[..., i * hidden : (i + 1) * hidden].reshape(*x.shape[:2], -1, HEAD_DIM)


def double_block(x, mods, table):
    """Image and text tokens with weights of their own, attending to each other; x {"txt", "img"}: (b, s, hidden)."""
    hidden, mlp = x["img"].shape[-1], x["img"].shape[-1] * MLP // HIDDEN

    def each(part, f):
        out = {}
        with scope(part):
            for stream in ("txt", "img"):
                with scope(stream):
                    out[stream] = f(stream)
        return out

    def feed_forward(stream):
        with scope("up"):
            wide = linear(f"{stream}_mlp/0", y[stream], 2 * mlp)
        with scope("silu"):
            narrow = silu(wide[..., :mlp]) * wide[..., mlp:]
        with scope("down"):
            return linear(f"{stream}_mlp/2", narrow, hidden)

    def qk_norm(stream):
        names = [f"{stream}_attn/norm/{name}_norm" for name in ("query", "key")]
        return [rms_norm(name, heads_of(qkv[stream], i, hidden)) for i, name in enumerate(names)]

    y = each("norm", lambda stream: modulated_norm(x[stream], *mods[stream][:2]))
    qkv = each("qkv", lambda stream: linear(f"{stream}_attn/qkv", y[stream], 3 * hidden))
    qk = each("qk_norm", qk_norm)
    with scope("rope"):
        q, k = (rotated(lax.concatenate([qk["txt"][i], qk["img"][i]], 1), table) for i in (0, 1))
    with scope("attention"):
        v = lax.concatenate([heads_of(qkv["txt"], 2, hidden), heads_of(qkv["img"], 2, hidden)], 1)
        joint, tokens = attention(q, k, v), x["txt"].shape[1]
        y = {"txt": joint[:, :tokens], "img": joint[:, tokens:]}
    y = each("proj", lambda stream: linear(f"{stream}_attn/proj", y[stream], hidden))
    x = each("gate", lambda stream: x[stream] + mods[stream][2] * y[stream])
    y = each("norm", lambda stream: modulated_norm(x[stream], *mods[stream][3:5]))
    y = each("mlp", feed_forward)
    return each("gate", lambda stream: x[stream] + mods[stream][5] * y[stream])


def single_block(x, mods, table):
    """Attention and feed-forward side by side, one projection in and one out; x (b, s, hidden)."""
    (shift, scale, gate), hidden, mlp = mods, x.shape[-1], x.shape[-1] * MLP // HIDDEN
    with scope("norm"):
        y = modulated_norm(x, shift, scale)
    with scope("linear1"):
        y = linear("linear1", y, 3 * hidden + 2 * mlp)
    with scope("qk_norm"):
        q, k = (rms_norm(f"norm/{name}_norm", heads_of(y, i, hidden)) for i, name in enumerate(("query", "key")))
    with scope("rope"):
        q, k = rotated(q, table), rotated(k, table)
    with scope("attention"):
        attended = attention(q, k, heads_of(y, 2, hidden))
    with scope("silu"):
        narrow = silu(y[..., 3 * hidden : 3 * hidden + mlp]) * y[..., 3 * hidden + mlp :]
    with scope("linear2"):
        y = linear("linear2", lax.concatenate([attended, narrow], 2), hidden)
    with scope("gate"):
        return x + gate * y


def dit(x, x_ids, context, context_ids, t, dt, hidden=HIDDEN, blocks=(DOUBLE_BLOCKS, SINGLE_BLOCKS)):
    """One Euler step: image tokens (b, s, 128), positions (b, s, 4), time (b,), step () -> the next image tokens."""
    with scope("embed"):
        vec = linear("time_in/out_layer", silu(linear("time_in/in_layer", time_embedding(t), hidden)), hidden)
        streams = {"txt": linear("txt_in", context, hidden), "img": linear("img_in", x, hidden)}
        table = rope_table(lax.concatenate([context_ids, x_ids], 1))
    with scope("modulation"):
        vec = silu(vec)
        double = {stream: modulation(f"double_stream_modulation_{stream}", vec, 6) for stream in streams}
        single = modulation("single_stream_modulation", vec, 3)
    streams = stack(blocks[0], lambda s: double_block(s, double, table), streams, name="double")
    with scope("join"):
        y = lax.concatenate([streams["txt"], streams["img"]], 1)
    y = stack(blocks[1], lambda y: single_block(y, single, table), y, name="single")
    with scope("final"):
        shift, scale = modulation("final_layer/adaLN_modulation", vec, 2)
        y = modulated_norm(y[:, context.shape[1] :], shift, scale)
        return x + dt * linear("final_layer/linear", y, LATENT_CHANNELS)


# VAE decoder ----------------------------------------------------------------------------------------------------------

UP = ((3, 512), (2, 512), (1, 256), (0, 128))
"""(the checkpoint's number, channels) of each resolution in the order of execution: up0 to up3."""


def conv(name, x, width, size=3):
    """size x size, stride 1, same padding, bias; x (b, height, width, c)."""
    kernel, bias = param(f"{name}/weight", (size, size, x.shape[-1], width)), param(f"{name}/bias", (width,))
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + bias


def group_norm(name, x, groups=32):
    """Each group of channels of an image to mean 0 and variance 1, in float32; then an affine map per channel."""
    b, height, width, c = x.shape
    wide = x.astype(FLOAT).reshape(b, height * width, groups, c // groups)
    wide = normal(wide - mean(wide, 1, 3), 1, 3)
    scale, shift = param(f"{name}/weight", (c,)).astype(FLOAT), param(f"{name}/bias", (c,)).astype(FLOAT)
    return (wide.reshape(x.shape) * scale + shift).astype(x.dtype)


def res_block(name, x, width):
    """Two convolutions, each after norm and swish, added to x (or to its 1x1 projection)."""
    with scope("norm1"):
        y = silu(group_norm(f"{name}/norm1", x))
    with scope("conv1"):
        y = conv(f"{name}/conv1", y, width)
    with scope("norm2"):
        y = silu(group_norm(f"{name}/norm2", y))
    with scope("conv2"):
        shortcut = x if x.shape[-1] == width else conv(f"{name}/nin_shortcut", x, width, 1)
        return shortcut + conv(f"{name}/conv2", y, width)


def mid_attention(name, x):
    """One head over all pixels, d = c."""
    b, height, width, c = x.shape
    with scope("norm"):
        y = group_norm(f"{name}/norm", x)
    with scope("qkv"):
        q, k, v = (conv(f"{name}/{part}", y, c, 1).reshape(b, height * width, 1, c) for part in "qkv")
    with scope("scores"):
        y = attention(q, k, v).reshape(x.shape)
    with scope("proj"):
        return x + conv(f"{name}/proj_out", y, c, 1)


def unpatched(z):
    """Four channels of a latent pixel become a square of 2x2: (b, height, width, 4 c) -> (b, 2 height, 2 width, c)."""
    b, height, width, c = z.shape
    z = z.reshape(b, height, width, c // 4, 2, 2).transpose(0, 1, 4, 2, 5, 3)
    return z.reshape(b, 2 * height, 2 * width, c // 4)


def doubled(x):
    """Every pixel four times: (b, height, width, c) -> (b, 2 height, 2 width, c)."""
    b, height, width, c = x.shape
    x = jnp.broadcast_to(x[:, :, None, :, None], (b, height, 2, width, 2, c))
    return x.reshape(b, 2 * height, 2 * width, c)


def vae(z, mean, variance, scale=1):
    """Latent (b, H/16, W/16, 128), with the batch-norm buffers that undo its normalisation, -> image (b, H, W, 3)."""
    with scope("in"):
        z = unpatched(z * lax.sqrt(variance + 1e-4) + mean)
        x = conv("conv_in", conv("post_quant_conv", z, z.shape[-1], 1), scaled(512, scale, 32))
    with scope("mid"):
        with scope("res_0"):
            x = res_block("mid/block_1", x, x.shape[-1])
        with scope("attention"):
            x = mid_attention("mid/attn_1", x)
        with scope("res_1"):
            x = res_block("mid/block_2", x, x.shape[-1])
    for i, (level, channels) in enumerate(UP):
        with scope(f"up{i}"):
            for j in range(scaled(3, scale)):
                with scope(f"res_{j}"):
                    x = res_block(f"up/{level}/block/{j}", x, scaled(channels, scale, 32))
            if level:
                with scope("upsample"):
                    x = conv(f"up/{level}/upsample", doubled(x), x.shape[-1])
    with scope("out"):
        with scope("norm"):
            x = silu(group_norm("norm_out", x))
        with scope("conv"):
            return conv("conv_out", x, 3)


def stages(config):
    b, height, width = config.batch, config.res.height // 16, config.res.width // 16
    array, whole = (functools.partial(jax.ShapeDtypeStruct, dtype=dtype) for dtype in (config.dtype, "int32"))
    tokens, image, s = config.text_tokens, height * width, config.scale
    encoder, hidden, ids = Qwen3().scaled(s), scaled(HIDDEN, s, HEAD_DIM), whole((b, tokens))
    denoise = functools.partial(dit, hidden=hidden, blocks=(scaled(DOUBLE_BLOCKS, s), scaled(SINGLE_BLOCKS, s)))
    x, context = array((b, image, LATENT_CHANNELS)), array((b, tokens, 3 * encoder.hidden))
    step = (x, whole((b, image, ROPE_AXES)), context, whole((b, tokens, ROPE_AXES)), array((b,)), array(()))
    latent = (array((b, height, width, LATENT_CHANNELS)), *[array((LATENT_CHANNELS,))] * 2)
    return [
        Stage("text", functools.partial(text, dims=encoder), (ids, ids), dtype=config.dtype),
        Stage("dit", denoise, step, calls=config.steps, dtype=config.dtype, depth=2),
        Stage("vae", functools.partial(vae, scale=s), latent, dtype=config.dtype),
    ]


MODEL = Model("klein", Config, stages)
