"""Stable Audio 3 against what is known of it: checkpoint totals, lengths, counts by hand, XLA, its parts' formulas."""

from __future__ import annotations

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import costtrace
from costtrace import model
from costtrace.errors import UsageError
from costtrace.evidence import xla
from costtrace.model import Stage, bind, parameters
from costtrace.rules import RULES
from costtrace.trace import trace
from costtrace.useful import useful

SA3 = model.find("sa3")
sa3 = importlib.import_module("costtrace.models_spec.sa3")

E, F, BLOCKS, D = 1536, 6144, 24, 64  # the medium DiT
L, T, S, CONTEXT = 1358, 1358 + 64, 17 * 1358, 257  # latents, tokens and codec tokens of 120 s
CE, CF, CBLOCKS = 1536, 4608, 12  # SAME-L


def staged(name: str, **options: object) -> Stage:
    return {stage.name: stage for stage in SA3.stages(SA3.configure(**options))}[name]


@functools.cache
def profiled(name: str, unroll: bool = False, **options: object) -> costtrace.Profile:
    fn, args = bind(staged(name, **options), unroll)
    return costtrace.profile(fn, *args, weights=0)


# Parameters and shapes


def test_parameters_of_the_text_encoder() -> None:
    layer = 4 * 768 * 768 + 3 * 768 * 2048 + 4 * 768
    assert 12 * layer + 768 == 84_972_288
    assert parameters(staged("text")) == 84_972_288 + 256_000 * 768 == 84_972_288 + 196_608_000


def dit_parameters(e: int, f: int, blocks: int, branches: int) -> int:
    attention = (2 * branches + 1) * e * e + e * e + branches * e * e + (branches + 1) * e * e + e * e
    local = 257 * e + e + e * e + e
    block = attention + local + (e * 2 * f + 2 * f) + (f * e + e) + 3 * e + 4 * D + 6 * e
    outside = (768 * e + e * e) * 2 + (256 * e + e) + (e * e + e) + (e * e + e) + (e * 6 * e + 6 * e)
    return blocks * block + outside + 2 * 256 * 256 + 256 * e + 64 * e + e * 256


def test_parameters_of_the_transformer() -> None:
    assert parameters(staged("dit")) == dit_parameters(E, F, BLOCKS, 2) == 1_453_170_176
    assert parameters(staged("dit", preset="small-music")) == dit_parameters(1024, 4096, 20, 1) == 459_130_880


def test_tensors_are_the_checkpoint_s() -> None:
    (params, *args) = bind(staged("dit"), unroll=True)[1]
    # Per block three norms, the modulation, two attentions with two norms each (to_qkv, to_out; to_q, to_kv, to_out),
    # two matrices with biases each of local and feed-forward. Outside: two embeddings without biases, time and
    # modulation with, two convolutions, in, out, memory.
    tensors = BLOCKS * (3 + 1 + 4 + 5 + 4 + 4) + 2 * 2 + 2 * 4 + 2 + 2 + 1
    # The checkpoint's 522 are one more: the rotary embedding's inverse frequencies.
    assert len(jax.tree.leaves(params)) == tensors == 522 - 1
    assert args[-1].shape == (16,)
    assert parameters(staged("dit")) + args[-1].size == 1_453_170_192


def test_parameters_of_the_codecs() -> None:
    def codec(e: int, f: int, blocks: int, taps: int) -> int:
        norms = 2 * (1 + 2 * e) + 2 * (1 + 2 * D)
        block = 5 * e * e + e * e + e * 2 * f + 2 * f + f * e + e + norms
        return 256 * e + e + e + blocks * block + taps * e * 512 + 512

    assert parameters(staged("codec")) == codec(CE, CF, CBLOCKS, 1) == 426_062_384
    assert parameters(staged("codec", preset="small-music")) == codec(768, 2304, 6, 3) == 54_514_712


@pytest.mark.parametrize(
    ("seconds", "preset", "asked", "latents"),
    [
        (30, "medium", 388, 388),  # 36 x 44100 / 4096 = 387.6
        (120, "medium", 1358, 1358),  # 126 x 44100 / 4096 = 1356.6, then even
        (380.4, "medium", 4162, 4096),  # 386.4 x 44100 / 4096 = 4160.2, then even, then cut
        (1000, "medium", 10832, 4096),
        (30, "small-music", 388, 388),
        (120, "small-music", 1358, 1292),
        (0.5, "small-music", 70, 70),  # 6.5 x 44100 / 4096 = 69.98
    ],
)
def test_latents_of_a_clip(seconds, preset, asked, latents) -> None:
    config = SA3.configure(seconds=seconds, preset=preset, batch=3)
    assert (config.asked, config.latents) == (asked, latents)
    shapes = {}
    for stage in SA3.stages(config):
        fn, args = bind(stage)
        out = jax.eval_shape(fn, *args)
        shapes[stage.name] = (out.shape, str(out.dtype))
    assert shapes == {
        "text": ((3, 257, 768), "bfloat16"),
        "dit": ((3, latents, 256), "bfloat16"),
        "codec": ((3, 2, 4096 * latents), "bfloat16"),
    }


def test_stages_and_their_calls() -> None:
    stages = SA3.stages(SA3.configure(steps="4"))
    assert [(stage.name, stage.calls) for stage in stages] == [("text", 1), ("dit", 4), ("codec", 1)]


@pytest.mark.parametrize("preset", ["medium", "small-music"])
def test_other_dtypes(preset) -> None:
    for stage in SA3.stages(SA3.configure(dtype="float32", preset=preset, seconds=1)):
        fn, args = bind(stage)
        assert jax.eval_shape(fn, *args).dtype == "float32"
        assert set(costtrace.profile(fn, *args, weights=0).total.by_dtype) == {"float32"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seconds": "0"}, "^seconds 0: must be a number above 0, such as 30 or 380.4$"),
        ({"seconds": "-5"}, "^seconds -5: must be a number above 0"),
        ({"seconds": "long"}, "^seconds long: must be a number above 0"),
        ({"preset": "large"}, "^preset large: must be one of medium, small-music$"),
        ({"steps": "0"}, "^steps 0: must be a whole number, 1 or more$"),
    ],
)
def test_options_that_it_cannot_take(options, message) -> None:
    with pytest.raises(UsageError, match=message):
        SA3.configure(**options)


# FLOPs by hand


def test_products_of_a_transformer_block() -> None:
    rows = profiled("dit").scopes()
    by_hand = {
        "to_qkv": 2 * T * E * 5 * E,
        "attention": 2 * 2 * 2 * T * T * E,  # two branches of two products of 24 heads of 64
        "to_out": 2 * T * E * E,
        "cross_qkv/to_q": 2 * T * E * 2 * E,
        "cross_qkv/to_kv": 2 * CONTEXT * E * 3 * E,  # in every step, though the context stays
        "cross_attention": 2 * 2 * 2 * T * CONTEXT * E,
        "cross_to_out": 2 * T * E * E,
        "local": 2 * L * (257 * E + E * E),
        "mlp/up": 2 * T * E * 2 * F,
        "mlp/down": 2 * T * F * E,
    }
    for scope, flops in by_hand.items():
        assert rows[f"block/{scope}"].matmul_flops == BLOCKS * flops, scope
    assert rows["block"].matmul_flops == BLOCKS * sum(by_hand.values())


@pytest.mark.parametrize(("seconds", "latents"), [(30, 388), (120, 1358), (380.4, 4096)])
def test_products_of_the_transformer(seconds, latents) -> None:
    tokens = latents + 64
    block = 2 * tokens * E * (5 * E + E + 2 * E + E + 3 * F) + 8 * tokens * (tokens + CONTEXT) * E
    block += 2 * CONTEXT * E * 3 * E + 2 * latents * (257 * E + E * E)
    once = 2 * CONTEXT * (768 * E + E * E) + 2 * (768 * E + E * E) + 2 * (256 * E + E * E) + 2 * (E * E + 6 * E * E)
    outside = 2 * latents * (2 * 256 * 256 + 2 * 256 * E)
    assert profiled("dit", seconds=seconds).total.matmul_flops == BLOCKS * block + once + outside


def test_products_of_plain_attention() -> None:
    e, tokens = 1024, 1292 + 64
    rows = profiled("dit", preset="small-music").scopes()
    assert rows["block/to_qkv"].matmul_flops == 20 * 2 * tokens * e * 3 * e
    assert rows["block/attention"].matmul_flops == 20 * 4 * tokens * tokens * e
    assert rows["block/cross_qkv"].matmul_flops == 20 * 2 * (tokens * e * e + CONTEXT * e * 2 * e)


def test_products_of_the_codec() -> None:
    rows = profiled("codec").scopes()
    by_hand = {
        "to_qkv": 2 * S * CE * 5 * CE,
        "attention": 2 * 2 * 2 * S * 51 * CE,  # a group's 17 queries meet 51 keys
        "to_out": 2 * S * CE * CE,
        "mlp": 2 * S * CE * 3 * CF,
    }
    for scope, flops in by_hand.items():
        assert rows[f"block/{scope}"].matmul_flops == CBLOCKS * flops, scope
    ends = 2 * L * 256 * CE + 2 * 16 * L * CE * 512
    assert profiled("codec").total.matmul_flops == CBLOCKS * sum(by_hand.values()) + ends


def test_products_of_the_chunked_codec() -> None:
    e, f, tokens = 768, 2304, 17 * 1292
    total = profiled("codec", preset="small-music").total
    shifted = tokens + 34  # blocks 3 to 5 run on one chunk more
    block = 2 * e * (5 * e + e + 3 * f) + 2 * 2 * 2 * 34 * e
    assert total.matmul_flops == 3 * (tokens + shifted) * block + 2 * 1292 * 256 * e
    assert total.conv_flops == 2 * (3 * 16 * 1292 - 2) * e * 512  # the kernel of 3 reaches over both ends


def test_products_of_the_text_encoder() -> None:
    layer = 2 * 256 * (4 * 768 * 768 + 3 * 768 * 2048) + 4 * 256 * 256 * 768
    total = profiled("text").total
    assert total.matmul_flops == 12 * layer + 2 * 256 * 768
    assert total.flops / 1e12 == pytest.approx(0.046, abs=0.0005)
    assert total.weight_bytes == 2 * (84_972_288 + 256 * 768)  # 256 rows of the table


def test_the_report_s_counts_and_why_they_differ() -> None:
    """Stable Audio 3 in "Roofline and communication cost of klein-4B and Stable Audio 3 medium on TPU v6e", GFLOP."""
    codec, dit, text = (profiled(name) for name in ("codec", "dit", "text"))
    rows = codec.scopes()
    # Its codec without the output projection of attention: 18,345 in products, norms and activation; 18,531 in all.
    gemm = [rows["project_in"], rows["mapping"], *(rows[f"block/{key}"] for key in ("to_qkv", "norm", "mlp"))]
    assert sum(cost.flops for cost in gemm) / 1e9 == pytest.approx(18_345, rel=1e-4)
    assert (codec.total.flops - rows["block/to_out"].flops) / 1e9 == pytest.approx(18_531, rel=2e-4)
    assert rows["block/attention"].matmul_flops == CBLOCKS * 24 * S * 51 * 2 * 4 * D  # its 256 of 261 a score
    # Its transformer without to_out and local, and to_kv six widths wide instead of three: 64.0 % of the clip.
    block = dit.scopes()
    theirs = (
        dit.total.flops - block["block/to_out"].flops - block["block/local"].flops + BLOCKS * 2 * CONTEXT * E * 3 * E
    )
    clip = 8 * theirs + codec.total.flops - rows["block/to_out"].flops + text.total.flops
    assert 8 * theirs / clip == pytest.approx(0.640, abs=0.0005)
    to_kv = 2 * BLOCKS * E * 3 * E
    assert block["block/cross_qkv/to_kv"].weight_bytes == to_kv == 339_738_624  # its 906 MB are to_q with six widths
    assert to_kv // 3 * 8 / 1e6 == pytest.approx(906, abs=0.05)


@pytest.mark.parametrize("seconds", [0.5, 30, 120])
def test_the_window_executes_51_keys_and_needs_35(seconds) -> None:
    fn, args = bind(staged("codec", seconds=seconds, batch=2))
    place, program = np.arange(17 * args[1].shape[1]), trace(fn, *args, weights=0)
    live = int((np.minimum(place + 17, place[-1]) - np.maximum(place - 17, 0) + 1).sum())
    kept, _ = useful(program)
    assert sum(program.ops[i].repeat * flops for i, flops in kept.items()) == 2 * CBLOCKS * 2 * 4 * live * CE
    executed = sum(program.ops[i].repeat * RULES["dot_general"].formula(program.ops[i]).flops for i in kept)
    assert executed == profiled("codec", seconds=seconds, batch=2).scopes()["block/attention"].matmul_flops


def test_work_doubles_with_the_batch_and_weights_do_not() -> None:
    for name in ("text", "dit", "codec"):
        one, two = profiled(name, seconds=30), profiled(name, seconds=30, batch=2)
        assert two.total.matmul_flops == 2 * one.total.matmul_flops
        # Two prompts read twice the rows of the table.
        assert two.total.weight_bytes - one.total.weight_bytes == (2 * 256 * 768 if name == "text" else 0)


# Bytes by hand: U is one activation of the sequence in bfloat16

U, CU, CU_CONTEXT = 2 * T * E, 2 * S * CE, 2 * CONTEXT * E


def test_bytes_of_rows() -> None:
    rows = profiled("dit").scopes()
    assert rows["block/to_qkv"].bytes_fused == BLOCKS * (2 * E * 5 * E + U + 5 * U)
    assert rows["block/attention"].bytes_fused == BLOCKS * 6 * U  # q, k, q2, k2, v, the result
    assert rows["block/cross_attention"].bytes_fused == BLOCKS * (3 * U + 3 * CU_CONTEXT)
    assert rows["block/mlp"].bytes_fused == BLOCKS * (2 * U + 2 * (3 * E * F + 2 * F + E))
    rows = profiled("codec").scopes()
    assert rows["block/to_qkv"].bytes_fused == CBLOCKS * (2 * CE * 5 * CE + 6 * CU)
    assert rows["block/attention"].bytes_fused == CBLOCKS * 6 * CU
    # Four of five parts of the projection read and written: the report's 10.2 GB has rope on half of each.
    assert rows["block/qk_norm"].bytes_fused == CBLOCKS * (8 * CU + 2 * 2 * (1 + 2 * D))


def test_bytes_of_the_whole_step() -> None:
    latents, local, context = 2 * L * 256, 2 * L * 257, 2 * CONTEXT * 768
    arguments = 2 * latents + local + context + 2 * 2 + 16 * 4
    assert profiled("dit").total.bytes_fused == 2 * 1_453_170_176 + arguments + latents


# Scopes


@pytest.mark.parametrize("preset", ["medium", "small-music"])
def test_every_operation_lies_in_a_scope(preset) -> None:
    for name in ("text", "dit", "codec"):
        keys = [row.key for row in profiled(name, preset=preset).rows(by="scope", depth=3)]
        assert "." not in keys
        assert not [key for key in keys if key.endswith("/.")]


def test_scopes_name_the_operations() -> None:
    before = ["modulation", "norm", "to_qkv", "qk_norm", "rope", "attention", "to_out", "gate"]
    cross = ["norm", "qkv", "qk_norm", "attention", "to_out", "residual"]
    block = [f"block/{part}" for part in (*before, *(f"cross_{part}" for part in cross), "local", "mlp")]
    around = ["context", "time", "modulation", "embed"], ["final", "sampler"]
    assert [row.key for row in profiled("dit").rows(depth=2)] == [*around[0], *block, *around[1]]
    codec = [
        f"block/{part}" for part in ("norm", "to_qkv", "qk_norm", "rope", "attention", "to_out", "residual", "mlp")
    ]
    assert [row.key for row in profiled("codec").rows(depth=2)] == ["project_in", *codec, "mapping", "unpatch"]
    assert [row.key for row in profiled("text").rows(depth=1)] == ["embed", "layers", "norm", "conditioner"]


# Scanned, unrolled, XLA


@pytest.mark.parametrize("preset", ["medium", "small-music"])
@pytest.mark.parametrize("name", ["text", "dit", "codec"])
def test_scanned_and_unrolled_agree(name, preset) -> None:
    one, other = (profiled(name, unroll=unroll, preset=preset) for unroll in (False, True))
    scopes = one.scopes(), other.scopes()
    assert list(scopes[0]) == list(scopes[1])
    for key, a in scopes[0].items():
        b = scopes[1][key]
        # Unrolled, the last block's dropped rows (memory, first slots) are seen to be unread.
        free = dict.fromkeys(("bytes_fused", "bytes_scoped", "bytes_unfused"), 0)
        assert a.replace(**free) == b.replace(**free), key
        assert a.bytes_scoped == pytest.approx(b.bytes_scoped, rel=0.05), key
    assert one.total.flops == other.total.flops
    assert one.total.bytes_fused == other.total.bytes_fused


@pytest.mark.xla
@pytest.mark.parametrize(("seconds", "preset"), [(1, "medium"), (120, "medium"), (1, "small-music")])
@pytest.mark.parametrize("name", ["text", "dit", "codec"])
def test_products_equal_xla_s(name, seconds, preset) -> None:
    fn, args = bind(staged(name, seconds=seconds, preset=preset), unroll=True)
    ours = sorted(
        RULES[op.primitive].formula(op).flops
        for op in trace(fn, *args, weights=0).ops
        if op.primitive in ("dot_general", "conv_general_dilated")
    )
    theirs = sorted(xla.lowered(fn, args), key=lambda instruction: instruction.flops)
    assert len(ours) == len(theirs) > 40
    assert all(instruction.agrees(flops) for instruction, flops in zip(theirs, ours, strict=True))
    total = profiled(name, seconds=seconds, preset=preset).total
    assert total.matmul_flops + total.conv_flops == sum(ours)


# The parts compute what they say


def numbers(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), "float32")


def weighed(forward, *args):
    """(result, weights) of a part with random weights."""
    fn, (params, *_) = bind(Stage("part", forward, args, dtype="float32"))
    random = np.random.default_rng(7)
    values = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape) / 8, "float32"), params)
    return jax.jit(fn)(values, *args), values


def softmax_attention(q, k, v, live=True):
    scores = np.where(live, np.einsum("bshd,bthd->bhst", q, k) / np.sqrt(q.shape[-1]), -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    out = np.einsum("bhst,bthd->bshd", scores / scores.sum(-1, keepdims=True), v)
    return out.reshape(*out.shape[:2], -1)


def test_the_window_is_the_band_of_a_full_attention() -> None:
    q, k, v, q2, k2 = (numbers(2, 1, 4 * 17, 3, 8, seed=seed) for seed in range(5))
    out = jax.jit(lambda *a: sa3.windowed(a[:2], a[2:4], a[4]))(q, q2, k, k2, v).reshape(2, 68, 24)
    live = np.abs(np.arange(68)[:, None] - np.arange(68)) <= 17
    one, two = (softmax_attention(a[:, 0], b[:, 0], v[:, 0], live) for a, b in ((q, k), (q2, k2)))
    assert np.allclose(out, one - two, atol=1e-5)


def rms(x, weight, eps=1e-5):
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + eps) * weight


def rope(x):
    angle = (np.arange(x.shape[1])[:, None] * 1e4 ** (-np.arange(16) / 16))[:, None, :]
    turned = (x[..., :16] + 1j * x[..., 16:32]) * np.exp(1j * angle)
    return np.concatenate([turned.real, turned.imag, x[..., 32:]], -1)


def test_a_transformer_block() -> None:
    """Against the order of operations written out in numpy; two heads of 64."""
    args, dims = (numbers(2, 69, 128), numbers(2, 7, 128), numbers(2, 5, 257)), sa3.Dims(128, 1, 96)
    y, p = weighed(lambda *a: sa3.dit_block(*a, 0.1, sa3.rotation(69, 16), dims), *args)
    (x, context, local), p, sigmoid = *jax.tree.map(np.asarray, (args, p)), jax.nn.sigmoid

    def linear(at, x):
        return x @ at["weight"] + at.get("bias", 0)

    def heads(x, n):
        return [part.reshape(*part.shape[:2], 2, 64) for part in np.split(x, n, -1)]

    scale, shift, gate, ff_scale, ff_shift, ff_gate = np.split(p["to_scale_shift_gate"] + 0.1, 6)
    own, cross, embed = p["self_attn"], p["cross_attn"], p["to_local_embed"]
    q, k, v, q2, k2 = heads(linear(own["to_qkv"], rms(x, p["pre_norm"]) * (1 + scale) + shift), 5)
    (q, q2), (k, k2) = ([rope(rms(a, own[n], 1e-6)) for a in b] for n, b in (("q_norm", (q, q2)), ("k_norm", (k, k2))))
    attended = softmax_attention(q, k, v) - softmax_attention(q2, k2, v)
    x = x + linear(own["to_out"], attended) * sigmoid(1 - gate)
    q, q2 = (rms(a, cross["q_norm"], 1e-6) for a in heads(linear(cross["to_q"], rms(x, p["cross_attend_norm"])), 2))
    k, k2, v = heads(linear(cross["to_kv"], context), 3)
    k, k2 = (rms(a, cross["k_norm"], 1e-6) for a in (k, k2))
    x = x + linear(cross["to_out"], softmax_attention(q, k, v) - softmax_attention(q2, k2, v))
    wide = linear(embed["0"], local)
    x = x + np.pad(linear(embed["2"], wide * sigmoid(wide)), ((0, 0), (64, 0), (0, 0)))
    a, g = np.split(linear(p["ff"]["proj"], rms(x, p["ff_norm"]) * (1 + ff_scale) + ff_shift), 2, -1)
    x = x + linear(p["ff"]["out"], a * g * sigmoid(g)) * sigmoid(1 - ff_gate)
    assert np.allclose(y, x, atol=1e-3)
