"""Qwen3 against what is known of it: published totals, counts by hand, the cache, routing, XLA; and it computes."""

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

QWEN3 = model.find("qwen3")
qwen3 = importlib.import_module("costtrace.models_spec.qwen3")

V, D = 151936, 128
H, F, LAYERS, HEADS, KV = 2560, 9728, 36, 32, 8  # the 4b
P, N, B = 2048, 256, 8  # prompt, decoded tokens, prompts: the defaults


def staged(name: str, **options: object) -> Stage:
    return {stage.name: stage for stage in QWEN3.stages(QWEN3.configure(**options))}[name]


@functools.cache
def profiled(name: str, unroll: bool = False, **options: object) -> costtrace.Profile:
    fn, args = bind(staged(name, **options), unroll)
    return costtrace.profile(fn, *args, weights=0)


# Parameters and shapes


@pytest.mark.parametrize(
    ("size", "published"),
    [
        ("0.6b", 596_049_920),
        ("1.7b", 1_720_574_976),
        ("4b", 4_022_468_096),
        ("8b", 8_190_735_360),
        ("14b", 14_768_307_200),
        ("32b", 32_762_123_264),
        ("30b-a3b", 30_532_122_624),
    ],
)
def test_parameters_of_every_size(size, published) -> None:
    for name in ("prefill", "decode"):
        assert parameters(staged(name, size=size)) == published


def test_parameters_by_hand() -> None:
    layer = H * (HEADS + 2 * KV) * D + HEADS * D * H + 3 * H * F + 2 * H + 2 * D
    assert LAYERS * layer + V * H + H == 4_022_468_096
    h, e = 2048, 128
    layer = h * (32 + 2 * 4) * D + 32 * D * h + h * e + e * 3 * h * 768 + 2 * h + 2 * D
    assert 48 * layer + 2 * V * h + h == 30_532_122_624


def test_shapes_and_calls() -> None:
    prefill, decode = QWEN3.stages(QWEN3.configure(size="0.6b", prompt=100, decode="28", batch=3))
    assert [(stage.name, stage.calls) for stage in (prefill, decode)] == [("prefill", 1), ("decode", 28)]
    cache = ((28, 3, 100 + 28, 8, D), "bfloat16")
    for stage in (prefill, decode):
        fn, args = bind(stage)
        out = jax.eval_shape(fn, *args)
        assert [(a.shape, str(a.dtype)) for a in out] == [((3, 1), "int32"), cache, cache]
        # The result of one step is the argument of the next.
        assert [a.shape for a in args[-2:]] == [cache[0]] * 2
    assert decode.args[0].shape == (3, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "7b"}, "^size 7b: must be one of 0.6b, 1.7b, 4b, 8b, 14b, 32b, 30b-a3b$"),
        ({"prompt": "0"}, "^prompt 0: must be a whole number, 1 or more$"),
        ({"decode": "many"}, "^decode many: must be a whole number, 1 or more$"),
        ({"routing": "random"}, "^routing random: must be one of balanced, worst$"),
    ],
)
def test_options_that_it_cannot_take(options, message) -> None:
    with pytest.raises(UsageError, match=message):
        QWEN3.configure(**options)


# FLOPs by hand


def rows_by_hand(tokens: int, keys: int) -> dict[str, int]:
    """Products of one layer on `tokens` of each of B prompts."""
    return {
        "qkv": 2 * B * tokens * H * (HEADS + 2 * KV) * D,
        "attention": 2 * 2 * B * HEADS * tokens * keys * D,  # 4 query heads share a kv head: read once, not less work
        "o_proj": 2 * B * tokens * HEADS * D * H,
        "mlp": 2 * B * tokens * 3 * H * F,
    }


@pytest.mark.parametrize(("name", "tokens", "keys"), [("prefill", P, P), ("decode", 1, P + N)])
def test_products(name, tokens, keys) -> None:
    profile, by_hand = profiled(name), rows_by_hand(tokens, keys)
    for scope, flops in by_hand.items():
        assert profile.scopes()[f"layers/{scope}"].matmul_flops == LAYERS * flops, scope
    head = 2 * B * H * V  # of the last token only
    assert profile.total.matmul_flops == LAYERS * sum(by_hand.values()) + head


def test_products_of_experts() -> None:
    h, f, tokens = 2048, 768, B * P
    rows = profiled("prefill", size="30b-a3b").scopes()
    assert rows["layers/mlp/router"].matmul_flops == 48 * 2 * tokens * h * 128
    assert rows["layers/mlp/up"].matmul_flops == 48 * 2 * 8 * tokens * h * 2 * f  # each token meets 8 experts
    assert rows["layers/mlp/down"].matmul_flops == 48 * 2 * 8 * tokens * f * h


PAIR = 4 * D * HEADS * LAYERS * B  # FLOPs of one query's score and value of one key


def test_a_prompt_needs_its_causal_half() -> None:
    program = trace(bind(staged("prefill"))[0], *bind(staged("prefill"))[1], weights=0)
    kept, _ = useful(program)
    assert sum(program.ops[i].repeat * flops for i, flops in kept.items()) == PAIR * sum(i + 1 for i in range(P))


def test_all_steps_need_the_places_written_so_far() -> None:
    executed = profiled("decode").scopes()["layers/attention"].matmul_flops
    assert executed == PAIR * (P + N)
    # Step i writes place P + i and sees P + i + 1 places; all calls together, exactly:
    seen = sum(P + i + 1 for i in range(N))
    assert N * (executed - qwen3.unwritten(QWEN3.configure())) == PAIR * seen
    assert qwen3.unwritten(QWEN3.configure(decode=1)) == 0


# Bytes by hand

CACHE = 2 * 2 * LAYERS * B * (P + N) * KV * D  # keys and values in bfloat16


def test_a_step_writes_one_place_of_the_cache() -> None:
    place = CACHE // (P + N)
    rows = profiled("decode").scopes()
    assert rows["layers/cache"].bytes_fused == pytest.approx(2 * place, rel=1e-3)  # what enters is written; an index
    q = out = 2 * LAYERS * B * HEADS * D
    assert rows["layers/attention"].bytes_fused == pytest.approx(CACHE + q + out, rel=1e-3)
    table = 2 * V * H  # the output's matrix; the embedding's rows are of the same table
    weights = 2 * 4_022_468_096
    assert rows["head"].weight_bytes == table
    assert profiled("decode").total.weight_bytes == weights
    # The places that the step writes need no read.
    assert profiled("decode").total.bytes_fused == pytest.approx(weights + (CACHE - place) + place, rel=1e-4)
    # Donated: one cache is alive, not two.
    assert profiled("decode").peak.nbytes == pytest.approx(weights + CACHE, rel=0.001)


def test_prefill_writes_its_places() -> None:
    places = CACHE * P // (P + N)
    total = profiled("prefill").total
    assert total.bytes_fused == pytest.approx(2 * 4_022_468_096 + places, rel=1e-4)


@pytest.mark.parametrize(
    ("batch", "routing", "experts"),
    [(1, "balanced", 8), (8, "balanced", 64), (32, "balanced", 128), (1, "worst", 128)],
)
def test_routing_says_how_many_experts_are_read(batch, routing, experts) -> None:
    total = profiled("decode", size="30b-a3b", batch=batch, routing=routing).total
    elsewhere = 30_532_122_624 - 48 * 128 * 3 * 2048 * 768 - V * 2048 + batch * 2048  # `batch` rows of the embedding
    assert total.weight_bytes == 2 * (elsewhere + 48 * experts * 3 * 2048 * 768)
    rows = 8 * batch
    products = 2 * rows * 3 * 2048 * 768
    mlp = profiled("decode", size="30b-a3b", batch=batch, routing=routing).scopes()["layers/mlp"].matmul_flops
    assert mlp == 48 * (products + 2 * batch * 2048 * 128)


def test_long_prompts_meet_every_expert() -> None:
    balanced, worst = (profiled("prefill", size="30b-a3b", routing=routing).total for routing in qwen3.ROUTING)
    assert balanced == worst


# Scopes, scanned, unrolled, XLA


@pytest.mark.parametrize("name", ["prefill", "decode"])
def test_scopes_name_every_operation(name) -> None:
    layer = ["norm", "qkv", "qk_norm", "rope", "cache", "attention", "o_proj", "residual", "mlp"]
    rows = [row.key for row in profiled(name).rows(depth=2)]
    assert rows == ["embed", *(f"layers/{part}" for part in layer), "norm", "head"]
    deep = [row.key for row in profiled(name, size="30b-a3b").rows(depth=3)]
    experts = [f"layers/mlp/{part}" for part in ("router", "dispatch", "up", "silu", "down", "combine")]
    assert [key for key in deep if key.startswith("layers/mlp")] == experts
    assert not [key for key in deep if key.endswith(".")]


@pytest.mark.parametrize(("size", "name"), [("0.6b", "prefill"), ("0.6b", "decode"), ("30b-a3b", "decode")])
def test_scanned_and_unrolled_agree(name, size) -> None:
    one, other = (profiled(name, unroll=unroll, size=size) for unroll in (False, True))
    scopes = one.scopes(), other.scopes()
    assert list(scopes[0]) == list(scopes[1])
    nbytes = ("bytes_fused", "bytes_scoped", "bytes_unfused")
    for key, a in scopes[0].items():
        b, free = scopes[1][key], dict.fromkeys(nbytes, 0)
        assert a.replace(**free) == b.replace(**free), key
        # Unrolled, the last layer's rows but one are unread; and each read of the cache sees all writes before it.
        assert all(getattr(a, field) == pytest.approx(getattr(b, field), rel=0.05) for field in nbytes), key
    assert one.total.bytes_fused == other.total.bytes_fused


@pytest.mark.xla
@pytest.mark.parametrize("name", ["prefill", "decode"])
def test_products_equal_xla_s(name) -> None:
    options = {"size": "0.6b", "prompt": 96, "decode": 32, "batch": 2}
    fn, args = bind(staged(name, **options), unroll=True)
    ours = sorted(
        RULES[op.primitive].formula(op).flops for op in trace(fn, *args, weights=0).ops if op.primitive == "dot_general"
    )
    theirs = sorted(xla.lowered(fn, args), key=lambda instruction: instruction.flops)
    assert len(ours) == len(theirs) == 28 * 9 + 1  # q, k, v, scores, values, o, three of the MLP; the head
    assert all(instruction.agrees(flops) for instruction, flops in zip(theirs, ours, strict=True))
    assert profiled(name, **options).total.matmul_flops == sum(ours)


# It computes


@pytest.fixture
def small(monkeypatch):
    """Stages of two tiny layers, and their weights."""

    def made(**dims):
        monkeypatch.setitem(qwen3.SIZES, "4b", qwen3.Dims(hidden=32, inner=48, layers=2, heads=4, kv_heads=2, **dims))
        monkeypatch.setattr(qwen3, "VOCAB", 50)
        stages = QWEN3.stages(QWEN3.configure(prompt=5, decode=3, batch=2, dtype="float32", routing="worst"))
        bound = {stage.name: bind(stage) for stage in stages}
        random = np.random.default_rng(3)
        params, *_ = bound["decode"][1]
        weights = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), "float32"), params)
        run = {name: functools.partial(jax.jit(fn), weights) for name, (fn, _) in bound.items()}
        cache = bound["decode"][1][-1]
        return run, weights, jnp.zeros(cache.shape, cache.dtype)

    return made


@pytest.mark.slow
@pytest.mark.parametrize("dims", [{"tied": True}, {"experts": 4, "chosen": 2}])
def test_decoding_continues_what_prefill_began(small, dims) -> None:
    run, _, empty = small(**dims)
    prompt = jnp.asarray([[1, 7, 3, 9, 4], [8, 2, 2, 30, 41]])
    token, keys, values = run["prefill"](prompt, empty, empty)
    decoded, (k, v) = [], (empty, empty)
    for i in range(5):  # the prompt again, token by token
        last, k, v = run["decode"](prompt[:, i : i + 1], jnp.asarray(i), k, v)
        decoded.append(last)
    assert (decoded[-1] == token).all()
    assert np.allclose(keys[:, :, :5], k[:, :, :5], atol=1e-4)
    assert np.allclose(values[:, :, :5], v[:, :, :5], atol=1e-4)
    assert not keys[:, :, 5:].any()


def test_experts_are_the_sum_over_the_chosen(small) -> None:
    dims = qwen3.Dims(hidden=16, inner=8, layers=1, heads=1, kv_heads=1, experts=4, chosen=2)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 16)), "float32")
    fn, (params, _) = bind(Stage("part", lambda x: qwen3.experts(x, dims, "balanced"), (x,), dtype="float32"))
    random = np.random.default_rng(1)
    weights = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), "float32"), params)
    out = jax.jit(fn)(weights, x)
    mlp, x = jax.tree.map(np.asarray, weights["mlp"]), np.asarray(x)
    logits = x @ mlp["gate"]
    for place in np.ndindex(2, 3):
        chosen = np.argsort(-logits[place])[:2]
        share = np.exp(logits[place][chosen])
        expected = 0
        for weight, e in zip(share / share.sum(), chosen, strict=True):
            gate, up, down = (mlp["experts"][f"{name}_proj"][e] for name in ("gate", "up", "down"))
            a = x[place] @ gate
            expected = expected + weight * ((a / (1 + np.exp(-a)) * (x[place] @ up)) @ down)
        assert np.allclose(out[place], expected, rtol=1e-4, atol=1e-4)
