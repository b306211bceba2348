"""What a published roofline report claims of Stable Audio 3 medium: its hand count by row, slips included, and its
sentences.

The report's script is lost; its rows are rebuilt from what it prints, of which 42 of 43 numbers come out. Slips that
the digits force: no output projection after self-attention, in the DiT and in the codec; cross to_kv six widths wide;
no local conditioning; both branches of an attention in the FLOPs and one in the bytes; the codec's window with 51 keys,
whose keys and values are 51 rows of bytes. Not forced by any digit, and taken as the simplest that fits: the DiT's
elementwise rows (22 tensors written or read a block), the tensor that joins the codec's new tokens, the bytes of
T5Gemma.
"""

from __future__ import annotations

from costtrace.claim import Claims, Envelope, Product, Quote, row

REPORT = "Roofline and communication cost of klein-4B and Stable Audio 3 medium on TPU v6e"

NAMES = {
    "L": "config.latents",
    "T": "L + 64",  # memory tokens
    "S": "17 * L",
    "ctx": "257",
    "E": "1536",
    "F": "6144",
    "G": "4608",  # the codec's feed-forward
    "heads": "24",
    "blocks": "24",
    "codec_blocks": "12",
    "window": "51",
    "W": "768",  # T5Gemma
    "prompt": "256",
    "stored": "1453170192",  # parameters of the DiT, its rotary buffer included
    "bf16_per_s": "918e12",  # v6e, the report's section 2
    "hbm_per_s": "1638e9",
    "link_per_s": "400e9",
    "gemm_per_s": "380.1e12",
}


def attention(q: str, kv: str, blocks: str, branches: str = "2") -> tuple[Product, ...]:
    """Scores and their product with the values, in each branch."""
    times = f"heads * {branches} * {blocks}"
    return (Product(q, "64", kv, times, "scores", weights=False), Product(q, kv, "64", times, "values", weights=False))


TEXT = (
    *row("T5Gemma q/k/v", "text", "layers/qkv", products=(Product("prompt", "W", "W", "3 * 12", "q, k, v"),),
         fused="12 * prompt * 4 * W"),
    *row("T5Gemma attention", "text", "layers/attention",
         products=(Product("prompt", "64", "prompt", "12 * 12", weights=False),
                   Product("prompt", "prompt", "64", "12 * 12", weights=False)),
         vector="5 * 12 * prompt ** 2 * 12", fused="12 * prompt * 4 * W"),
    *row("T5Gemma o", "text", "layers/o_proj", products=(Product("prompt", "W", "W", "12"),),
         fused="12 * prompt * 2 * W"),
    *row("T5Gemma mlp", "text", "layers/mlp",
         products=(Product("prompt", "W", "2048", "2 * 12", "gate, up"), Product("prompt", "2048", "W", "12", "down")),
         vector="12 * 5 * prompt * 2048", fused="12 * prompt * (2 * W + 2048)",
         unfused="12 * prompt * (2 * W + 5 * 2048)"),
)  # fmt: skip

DIT = (
    *row("prologue and final", "dit", ("context", "time", "modulation", "embed", "final"),
         products=(Product("ctx", "768", "E", name="context in"), Product("ctx", "E", "E", name="context out"),
                   Product("1", "768", "E", name="global in"), Product("1", "256", "E", name="time in"),
                   Product("1", "E", "E", "3", "global out, time out, modulation in"),
                   Product("1", "E", "6 * E", name="modulation out"),
                   Product("L", "256", "256", "2", "convolutions"), Product("L", "256", "E", name="project_in"),
                   Product("L", "E", "256", name="project_out")),
         fused="ctx * (768 + 3 * E) + L * (6 * 256 + 2 * E)"),
    *row("norm + modulate + rope", "dit",
         ("block/norm", "block/qk_norm", "block/rope", "block/cross_norm", "block/gate", "block/cross_residual"),
         vector="blocks * T * E * (3 * 4 + 2 * 2 + 4 * 4 + 4 * 2 + 3)", fused="0", unfused="blocks * T * E * 22"),
    *row("self to_qkv", "dit", "block/to_qkv", products=(Product("T", "E", "5 * E", "blocks", "to_qkv"),),
         fused="blocks * T * 6 * E"),
    *row("self attention", "dit", "block/attention", products=attention("T", "T", "blocks"),
         vector="5 * heads * T ** 2 * 2 * blocks", fused="blocks * T * 4 * E"),
    *row("cross to_q/to_kv", "dit", "block/cross_qkv",
         products=(Product("T", "E", "2 * E", "blocks", "to_q"), Product("ctx", "E", "6 * E", "blocks", "to_kv")),
         fused="blocks * (T * 3 * E + ctx * 7 * E)"),
    *row("cross attention", "dit", "block/cross_attention", products=attention("T", "ctx", "blocks"),
         vector="5 * heads * T * ctx * 2 * blocks", fused="blocks * (2 * T * E + 2 * ctx * E)"),
    *row("cross to_out", "dit", "block/cross_to_out", products=(Product("T", "E", "E", "blocks", "to_out"),),
         fused="blocks * T * 2 * E"),
    *row("mlp", "dit", "block/mlp",
         products=(Product("T", "E", "2 * F", "blocks", "up"), Product("T", "F", "E", "blocks", "down")),
         vector="blocks * 5 * T * F", fused="blocks * T * (2 * E + F)", unfused="blocks * T * (2 * E + 5 * F)"),
)  # fmt: skip

CODEC = (
    *row("codec project_in", "codec", "project_in", products=(Product("L", "256", "E"),), fused="L * 256 + S * E"),
    *row("codec to_qkv", "codec", ("block/to_qkv", "block/norm"),
         products=(Product("S", "E", "5 * E", "codec_blocks", "to_qkv"),), vector="codec_blocks * 3 * S * E",
         fused="codec_blocks * S * 6 * E", unfused="codec_blocks * S * 8 * E"),
    *row("codec qk DyT + rope x4", "codec", ("block/qk_norm", "block/rope"),
         vector="codec_blocks * 4 * (3 + 4 / 2) * S * E", fused="0", unfused="codec_blocks * 4 * 3 * S * E"),
    *row("codec window attention", "codec", "block/attention", products=attention("S", "window", "codec_blocks"),
         vector="5 * heads * S * window * 2 * codec_blocks", fused="codec_blocks * (2 * S * E + 2 * window * E)"),
    *row("codec ff", "codec", "block/mlp",
         products=(Product("S", "E", "2 * G", "codec_blocks", "up"), Product("S", "G", "E", "codec_blocks", "down")),
         vector="codec_blocks * (5 * S * G + 3 * S * E)", fused="codec_blocks * S * (2 * E + G)",
         unfused="codec_blocks * S * (2 * E + 5 * G + 2 * E)"),
    *row("codec residual", "codec", "block/residual", vector="codec_blocks * 2 * S * E", fused="0"),
    *row("codec mapping", "codec", "mapping", products=(Product("16 * L", "E", "512"),), fused="16 * L * (E + 512)"),
)  # fmt: skip

CLIP = {"seconds": "120", "preset": "medium"}
ROWS = tuple(dict.fromkeys(claim.label for claim in (*TEXT, *DIT, *CODEC)))
OTHERS = ("cross to_q/to_kv", "cross attention", "cross to_out", "mlp", "norm + modulate + rope",
          "codec qk DyT + rope x4", "codec residual")  # fmt: skip
GEMM = "flops('codec project_in', 'codec to_qkv', 'codec ff', 'codec mapping')"
MATH_S = "flops('*') / (8 * bf16_per_s)"
TRAFFIC_S = "unfused('*') / (8 * hbm_per_s)"
FLOOR_S = f"max({MATH_S}, {TRAFFIC_S})"
ULYSSES_S = "blocks * 12 * T * E * 2 * 7 / 64 / link_per_s"
REPLICATED_S = f"max({MATH_S}, (unfused('*') + 7 * weights('*')) / (8 * hbm_per_s)) + {ULYSSES_S}"
GATHER_S = "stored * 2 * 7 / 8 / link_per_s"


def at(section: str, *quotes: tuple[str, str, str]) -> tuple[Quote, ...]:
    """(quoted, formula, about) of a clip of 120 s."""
    return tuple(Quote(quoted, formula, about, f"{REPORT}, {section}", CLIP) for quoted, formula, about in quotes)


def intensity(row: str, column: str = "unfused") -> str:
    return f"flops({row!r}) / {column}({row!r})"


QUOTES = (
    *at("6",
        ("1358", "L", "latents"), ("1422", "T", "tokens of the DiT"), ("23086", "S", "tokens of the codec"),
        ("257", "prompt + 1", "cross-attention context"), ("4096", "16777216 / 4096", "latents of medium's clamp"),
        ("380.4 s", "4096 * 4096 / 44100", "... in time"), ("5292032", "1292 * 4096", "small-music's sample_size"),
        ("1292", "5292032 / 4096", "small-music's clamp"), ("4160", "4096 + 64", "tokens at medium's clamp"),
        ("560 FLOP/B", "bf16_per_s / hbm_per_s", "ridge of v6e"),
        ("36.0 %", "flops('codec') / flops('*')", "share of the codec in a clip's FLOPs"),
        ("64.0 %", "8 * flops('dit') / flops('*')", "share of the DiT in a clip's FLOPs"),
        ("18345 GFLOP", GEMM, "the codec's GEMMs"), ("18531 GFLOP", "flops('codec')", "the codec"),
        ("99.0 %", f"{GEMM} / flops('codec')", "share of GEMMs in the codec"),
        ("0.96 %", "flops('codec window attention') / flops('codec')", "share of the window attention"),
        ("35.9 GB", "unfused('codec')", "traffic of the codec"), ("112.8 GB", "unfused('*')", "traffic of a clip"),
        ("10.2 GB", "unfused('codec qk DyT + rope x4')", "traffic of qk DyT + rope"),
        ("0.8 FLOP/B", intensity("codec qk DyT + rope x4"), "its intensity"),
        ("367 FLOP/B", intensity("cross to_q/to_kv"), "intensity of cross to_q/to_kv"),
        ("444 FLOP/B", intensity("cross attention"), "intensity of cross attention"),
        ("499 FLOP/B", intensity("cross to_out"), "intensity of cross to_out"),
        ("527 FLOP/B", intensity("mlp"), "intensity of mlp"),
        ("2471 FLOP/B", intensity("codec ff", "fused"), "intensity of the codec's ff, fused"),
        ("1.66 GB", "24 * 4160 ** 2 * 4", "float32 scores of a branch at 4160 tokens"),
        ("3.3 GB", "2 * 24 * 4160 ** 2 * 4", "... of one attention"),
        ("194 MB", "24 * T ** 2 * 4", "float32 scores of a branch at 120 s"),
        ("9.8 GB", "(stored + 852100 * 1000) * 4 + (84972288 + 196608000) * 2", "medium's checkpoint"),
        ("0.046 TFLOP", "flops('text')", "T5Gemma")),
    Quote("906 MB", "weights('cross to_q/to_kv')", "weights of cross to_kv", f"{REPORT}, 6", CLIP,
          checks=(("2 * blocks * E * 6 * E", "the row's weights are to_q and to_kv; to_kv of six widths alone has"),)),
    Quote("the codec's share of traffic exceeds its share of FLOPs",
          "unfused('codec') / unfused('*') > flops('codec') / flops('*')", "the codec", f"{REPORT}, 6", CLIP),
    Quote("no more than four rows of SA3's products are under the ridge of 560",
          "min(" + ", ".join(intensity(row) for row in ROWS if row not in OTHERS) + ") > 560",
          "rows of SA3", f"{REPORT}, 6", CLIP),
    *at("8",
        ("6.36 ms", GATHER_S, "FSDP-8: one all-gather of the DiT"), ("0.34 ms", ULYSSES_S, "Ulysses"),
        ("78.4 %", f"{MATH_S} / ({FLOOR_S} + {ULYSSES_S})", "of peak, Ulysses"),
        ("46.9 %", f"{MATH_S} / ({FLOOR_S} + {GATHER_S})", "of peak, FSDP")),
    Quote("8.95 ms", f"{FLOOR_S} + {ULYSSES_S}", "floor of a clip on 8 chips, Ulysses", f"{REPORT}, 8", CLIP,
          checks=((REPLICATED_S, "with the weights on every chip, as Ulysses leaves them"),
                  (f"{FLOOR_S} + 8 * {ULYSSES_S}", "eight forwards have eight collectives"))),
    Quote("14.96 ms", f"{FLOOR_S} + {GATHER_S}", "floor of a clip on 8 chips, FSDP", f"{REPORT}, 8", CLIP,
          checks=((f"{FLOOR_S} + 8 * {GATHER_S}", "weights gathered once a forward, and there are eight"),)),
    *at("1",
        ("57 %", "217e12 / gemm_per_s", "DiT on v6e, of its GEMM rate"),
        ("1.75 x", "gemm_per_s / 217e12", "over floor"),
        ("21 %", "79e12 / gemm_per_s", "codec on v6e, of its GEMM rate"),
        ("4.83 x", "gemm_per_s / 79e12", "over floor"),
        ("33 %", "127e12 / gemm_per_s", "clip on v6e, of its GEMM rate"),
        ("2.99 x", "gemm_per_s / 127e12", "over floor")),
)  # fmt: skip

ABOUT = {"preset": "medium", "batch": "1", "dtype": "bfloat16"}
CHIPS = Envelope("v6e", 8, FLOOR_S, {"ulysses": ULYSSES_S, "fsdp": GATHER_S}, f"{REPORT}, 8")
CLAIMS = Claims((*TEXT, *DIT, *CODEC), NAMES, QUOTES, (), REPORT, ABOUT, CHIPS)
