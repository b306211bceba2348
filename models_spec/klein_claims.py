"""What a published roofline report claims of klein: its hand count by row, its slips included, and its sentences.

The report's script is lost. Its rows are rebuilt from its section 3 (a product (m, k) @ (k, n) is 2 m k n FLOPs, k n
weights, m k + m n activations; attention 4 d + 5 FLOPs a score; norms 4 or 6 FLOPs an element, rope 4, silu with gate
5, modulation 2, residual 1; two bytes an element) such that 91 of the 94 numbers that it prints come out. `fused` is
its column "act", `unfused` its column "unfused"; both hold the weights. Slips that the digits force: the time MLP has
256 rows where one is meant; the VAE's upsampling convolutions run before the pixels are doubled; gates count as a
second modulation.
"""

from __future__ import annotations

from costtrace.claim import Claim, Claims, Envelope, Product, Quote, Shortcut, row

REPORT = "Roofline and communication cost of klein-4B and Stable Audio 3 medium on TPU v6e"

NAMES = {
    "img": "res.width // 16 * (res.height // 16)",
    "txt": "text_tokens",
    "S": "img + txt",
    "px": "4 * img",  # pixels of the VAE's latent
    "H": "3072",
    "I": "9216",
    "heads": "24",
    "d": "128",
    "C": "7680",
    "time_rows": "256",  # a slip: the width of the time embedding, used as rows
    "E": "2560",  # Qwen3
    "F": "9728",
    "layers": "27",
    "bf16_per_s": "918e12",  # v6e, the report's section 2
    "hbm_per_s": "1638e9",
    "link_per_s": "400e9",
    "gemm_per_s": "380.1e12",  # v6e, measured
    "l4_per_s": "80.6e12",  # L4, measured
    "l4_hbm_per_s": "226.2e9",
}


def attention(heads: str, q: str, kv: str, d: str, times: str) -> tuple[Product, ...]:
    """Scores and their product with the values."""
    return (
        Product(q, d, kv, f"{heads} * {times}", "scores", weights=False),
        Product(q, kv, d, f"{heads} * {times}", "values", weights=False),
    )


def streams(k: str, n: str, name: str) -> tuple[Product, ...]:
    """Image and text tokens, each with weights of their own, in five double blocks."""
    return tuple(Product(stream, k, n, "5", f"{stream} {name}") for stream in ("img", "txt"))


DIT = (
    *row("embeddings", "dit", "embed",
         products=(Product("img", "128", "H", name="img_in"), Product("txt", "C", "H", name="txt_in"),
                   Product("time_rows", "256", "H", name="time in"), Product("time_rows", "H", "H", name="time out")),
         fused="img * (128 + H) + txt * (C + H) + time_rows * (256 + H)",
         unfused="img * (128 + H) + txt * (C + H) + time_rows * (256 + 3 * H)"),
    *row("shared modulation x3", "dit", "modulation",
         products=(Product("1", "H", "6 * H", "2", "double"), Product("1", "H", "3 * H", name="single")),
         fused="3 * H + 15 * H"),
    *row("double: norm+rope+modulate", "dit", ("double/norm", "double/qk_norm", "double/rope", "double/gate"),
         vector="53 * S * H * 5", weights="5 * 4 * d", fused="5 * 3 * S * H", unfused="5 * 24 * S * H"),
    *row("double: qkv", "dit", "double/qkv", products=streams("H", "3 * H", "qkv"), fused="5 * 4 * S * H"),
    *row("double: joint attention", "dit", "double/attention", products=attention("heads", "S", "S", "d", "5"),
         vector="5 * heads * S ** 2 * 5", fused="5 * 4 * S * H"),
    *row("double: proj", "dit", "double/proj", products=streams("H", "H", "proj"), fused="5 * 2 * S * H"),
    *row("double: mlp", "dit", "double/mlp", products=streams("H", "2 * I", "up") + streams("I", "H", "down"),
         fused="5 * S * (2 * H + I)", unfused="5 * S * (2 * H + 5 * I)"),
    *row("single: norm+rope+modulate", "dit",
         ("single/norm", "single/qk_norm", "single/rope", "single/silu", "single/gate"),
         vector="42 * S * H * 20", weights="20 * 2 * d", fused="20 * 2 * S * H", unfused="20 * 16 * S * H"),
    *row("single: linear1", "dit", "single/linear1", products=(Product("S", "H", "3 * H + 2 * I", "20"),),
         fused="20 * S * (4 * H + I)", unfused="20 * S * (4 * H + 2 * I)"),
    *row("single: attention", "dit", "single/attention", products=attention("heads", "S", "S", "d", "20"),
         vector="5 * heads * S ** 2 * 20", fused="20 * 4 * S * H"),
    *row("single: linear2", "dit", "single/linear2", products=(Product("S", "H + I", "H", "20"),),
         fused="20 * S * (2 * H + I)", unfused="20 * S * (2 * H + 2 * I)"),
    *row("final layer", "dit", "final",
         products=(Product("1", "H", "2 * H", name="modulation"), Product("img", "H", "128", name="linear")),
         vector="8 * img * H", fused="img * (H + 128)", unfused="img * (5 * H + 128)"),
)  # fmt: skip

TEXT = (
    *row("rmsnorm + q/k/v proj", "text", "layers/qkv",
         products=(Product("txt", "E", "4096", "layers", "q"), Product("txt", "E", "1024", "2 * layers", "k, v")),
         fused="layers * txt * (E + 6144)", unfused="layers * txt * (3 * E + 6144 + 2 * E)"),
    *row("attention (causal, full S^2)", "text", "layers/attention",
         products=attention("32", "txt", "txt", "d", "layers"), vector="5 * 32 * txt ** 2 * layers",
         fused="layers * txt * 10240"),
    *row("o_proj", "text", "layers/o_proj", products=(Product("txt", "4096", "E", "layers"),),
         fused="layers * txt * (4096 + E)"),
    *row("mlp gate/up/down", "text", "layers/mlp",
         products=(Product("txt", "E", "F", "2 * layers", "gate, up"), Product("txt", "F", "E", "layers", "down")),
         fused="layers * txt * (2 * E + F)"),
    *row("norm+rope+silu+residual", "text", ("layers/norm", "layers/qk_norm", "layers/rope", "layers/residual"),
         vector="layers * txt * (8 * E + 8 * 5120 + 5 * F + 2 * E)", weights="layers * (2 * E + 256)",
         fused="layers * txt * 2 * E", unfused="layers * txt * (2 * E + 2 * 5120 + 2 * 5120 + 4 * E + 4 * F)"),
)  # fmt: skip


def res_blocks(name: str, scope: str, number: str, ci: str, co: str, pixels: str) -> tuple[Claim, ...]:
    """`number` residual blocks, the first from ci to co channels with a 1x1 shortcut where they differ."""
    same = ci == co
    wider = (Product(pixels, f"9 * {ci}", co, name="conv1 of 0"), Product(pixels, f"9 * {co}", co, name="conv2 of 0"),
             Product(pixels, ci, co, name="shortcut"))  # fmt: skip
    first = () if same else wider
    rest = number if same else f"({number} - 1)"
    biases = f"{rest} * 6 * {co}" if same else f"{rest} * 6 * {co} + 2 * {ci} + 5 * {co}"
    ends = f"{number} * 2 * {co}" if same else f"{rest} * 2 * {co} + {ci} + {co}"
    all_ops = f"{number} * 8 * {co}" if same else f"{rest} * 8 * {co} + 3 * {ci} + 5 * {co}"
    return row(name, "vae", scope, products=(*first, Product(pixels, f"9 * {co}", co, f"2 * {rest}", "conv")),
               vector=f"{number} * {co} * {pixels}", weights=biases, fused=f"{pixels} * ({ends})",
               unfused=f"{pixels} * ({all_ops})")  # fmt: skip


def upsample(name: str, scope: str, channels: str, pixels: str) -> tuple[Claim, ...]:
    """The convolution after doubling, counted at the pixels before it (a slip)."""
    return row(name, "vae", scope, products=(Product(pixels, f"9 * {channels}", channels),), weights=channels,
               fused=f"{pixels} * 2 * {channels}")  # fmt: skip


VAE = (
    *row("post_quant + conv_in", "vae", "in",
         products=(Product("px", "32", "32", name="post_quant"), Product("px", "9 * 32", "512", name="conv_in")),
         weights="32 + 512", fused="px * (3 * 32 + 512)"),
    *res_blocks("mid res x2", "mid/res_*", "2", "512", "512", "px"),
    *row("mid attention", "vae", "mid/attention",
         products=(Product("px", "512", "512", "4", "q, k, v, out"), *attention("1", "px", "px", "512", "1")),
         vector="5 * px ** 2 + 7 * 512 * px", weights="4 * 512 + 2 * 512", fused="12 * px * 512"),
    *res_blocks("up0 res x3 (512 ch)", "up0/res_*", "3", "512", "512", "px"),
    *upsample("up0 upsample conv", "up0/upsample", "512", "px"),
    *res_blocks("up1 res x3 (512 ch)", "up1/res_*", "3", "512", "512", "4 * px"),
    *upsample("up1 upsample conv", "up1/upsample", "512", "4 * px"),
    *res_blocks("up2 res x3 (256 ch)", "up2/res_*", "3", "512", "256", "16 * px"),
    *upsample("up2 upsample conv", "up2/upsample", "256", "16 * px"),
    *res_blocks("up3 res x3 (128 ch)", "up3/res_*", "3", "256", "128", "64 * px"),
    *row("norm_out + conv_out", "vae", "out", products=(Product("64 * px", "9 * 128", "3"),), weights="2 * 128 + 3",
         fused="64 * px * (128 + 3)"),
)  # fmt: skip

BIG = {"res": "1360x768"}
SMALL = {"res": "512x512"}


def at(config: dict[str, str], section: str, *quotes: tuple[str, str, str]) -> tuple[Quote, ...]:
    """(quoted, formula, about) at one image size."""
    return tuple(Quote(quoted, formula, about, f"{REPORT}, {section}", config) for quoted, formula, about in quotes)


MATH_S = "flops('*') / (8 * bf16_per_s)"
GATHER_S = "weights('dit') * 7 / 8 / link_per_s"
ULYSSES_S = "25 * 4 * S * H * 2 * 7 / 64 / link_per_s"
TENSOR_S = "35 * S * H * 2 * 2 * 7 / 8 / link_per_s"
NORMS = ("double: norm+rope+modulate", "single: norm+rope+modulate")
ROW_S = "max(flops('{0}') / bf16_per_s, unfused('{0}') / hbm_per_s)"
NORMS_S = " + ".join(ROW_S.format(name) for name in NORMS)
SERIAL_S = ("(4 * serial_s('dit', bf16_per_s, hbm_per_s) + floor_s('text', bf16_per_s, hbm_per_s) "
            "+ floor_s('vae', bf16_per_s, hbm_per_s))")  # fmt: skip
SINGLE = ("single: norm+rope+modulate", "single: linear1", "single: attention", "single: linear2")
DOUBLE = ("double: norm+rope+modulate", "double: qkv", "double: joint attention", "double: proj", "double: mlp")


def over(what: str, rows: tuple[str, ...]) -> str:
    """what(row, row, ...) of a formula."""
    return f"{what}({', '.join(map(repr, rows))})"


def l4(rows: tuple[str, ...]) -> str:
    """Seconds of some rows on the L4 at its measured rates, their work summed."""
    return f"max({over('flops', rows)} / l4_per_s, {over('unfused', rows)} / l4_hbm_per_s)"


TRUNK = f"{over('weights', tuple(dict.fromkeys(claim.label for claim in TEXT)))}"
NAMED = ("embeddings", "shared modulation x3", "final layer")
ATTENTION = "flops('double: joint attention', 'single: attention')"
QUOTES = (
    *at(SMALL, "4.1",
        ("3875544576", "params('dit')", "parameters of the DiT"),
        ("245.37 M", "(weights('double: norm+rope+modulate', 'double: qkv', 'double: proj', 'double: mlp')) / 2 / 5",
         "parameters of a double block"),
        ("122.68 M", "weights('single: norm+rope+modulate', 'single: linear1', 'single: linear2') / 2 / 20",
         "parameters of a single block"),
        ("1536", "S", "joint sequence"),
        ("10.191 TFLOP", "flops('dit')", "one forward of the DiT"),
        ("17.384 GB", "unfused('dit')", "its unfused traffic"),
        ("848 FLOP/B", "flops('dit') / fused('dit')", "its intensity, fused"),
        ("586 FLOP/B", "flops('dit') / unfused('dit')", "its intensity, unfused"),
        ("74 %", "flops('single: linear1', 'single: linear2') / flops('dit')", "share of linear1 and linear2"),
        ("0.732 TFLOP", ATTENTION, "attention"),
        ("7.2 %", f"{ATTENTION} / flops('dit')", "share of attention"),
        ("11.906 TFLOP", "2 * params('dit') * S", "the parameter shortcut"),
        ("26 %", f"2 * params('dit') * S / (flops('dit') - {ATTENTION}) - 1", "its overcount"),
        ("0.725 TFLOP", "25 * 4 * S ** 2 * H", "the shortcut's attention"),
        ("1 %", f"{ATTENTION} / (25 * 4 * S ** 2 * H) - 1", "the difference of the two attentions"),
        ("560 FLOP/B", "bf16_per_s / hbm_per_s", "ridge of v6e"),
        ("100930816", f"{TRUNK} / 2 / layers", "parameters of a Qwen3 layer"),
        ("2.725 G", f"{TRUNK} / 2", "of 27 layers"),
        ("389 M", "151936 * E", "of the embedding"),
        ("3.114 G", f"{TRUNK} / 2 + 151936 * E", "of what runs of the text encoder"),
        ("4.02 G", f"{TRUNK} / 2 / layers * 36 + 151936 * E + E", "of the whole Qwen3 file"),
        ("6.4 %", "flops('text') / flops('*')", "share of the text encoder"),
        ("49.6 M", "params('vae')", "parameters of the VAE decoder"),
        ("84.05 M", "params('vae') + 34426 * 1000 + 257", "parameters of the whole VAE file"),
        ("1.994 TFLOP", "flops('vae')", "VAE decoder")),
    Quote("9.459 TFLOP", f"flops('dit') - {ATTENTION}", "matrix products of the DiT", f"{REPORT}, 4.1", SMALL,
          checks=(("products('dit') - products('double: joint attention', 'single: attention')",
                   "what is left without attention still holds elementwise work; its products alone are"),)),
    Quote("the double block's down-projection is used by fewer tokens than its up-projection",
          "products('double: mlp') < weights('double: mlp') / 2 * S", "why the shortcut overcounts",
          f"{REPORT}, 4.1", SMALL),
    Quote("embeddings, modulation and final layer explain most of the overcount",
          f"{over('weights', NAMED)} * S - {over('products', NAMED)} > (weights('dit') * S - products('dit') "
          "+ products('double: joint attention', 'single: attention')) / 2",
          "why the shortcut overcounts", f"{REPORT}, 4.1", SMALL),
    Quote("5.450 GB", TRUNK, "bytes of the executed trunk of 3.114 G parameters", f"{REPORT}, 4.1", SMALL,
          checks=(("2 * 3.114e9", "3.114 G parameters, embedding included, at two bytes"),)),
    Quote("every one of the text encoder's five rows has an unfused AI of 317 to 465",
          "flops('norm+rope+silu+residual') / unfused('norm+rope+silu+residual') >= 316.5",
          "rows of the text encoder", f"{REPORT}, 4.1", SMALL),
    *at(BIG, "4.1",
        ("4592", "S", "joint sequence at 1360x768"), ("4080", "img", "image tokens at 1360x768"),
        ("34.761 TFLOP", "flops('dit')", "one forward of the DiT at 1360x768"),
        ("6.541 TFLOP", ATTENTION, "attention at 1360x768"),
        ("18.8 %", f"{ATTENTION} / flops('dit')", "share of attention at 1360x768"),
        ("8.355 TFLOP", "flops('vae')", "VAE decoder at 1360x768"),
        ("5.6 %", "flops('vae') / flops('*')", "share of the VAE at 1360x768")),
    Quote("up2 and up3 are a quarter of the VAE's FLOPs each",
          "0.24 < flops('up2 res x3 (256 ch)') / flops('vae') < 0.275 "
          "and 0.24 < flops('up3 res x3 (128 ch)') / flops('vae') < 0.275", "VAE at 1360x768", f"{REPORT}, 4.1", BIG),
    *at(BIG, "4.2",
        ("0.392 %", "ceil(img / 128) * 128 / img - 1", "more tokens when padded to 128"),
        ("0.698 %", "(ceil(S / 128) * 128) / S * (ceil(S / 128) * 128) / S - 1", "more attention when padded to 128"),
        ("0.13 %", f"((ceil(S / 128) * 128 / S) ** 2 - 1) * {ATTENTION} / flops('dit')", "... as a share of the DiT")),
    *at(SMALL, "5",
        ("40.8 TFLOP", "4 * flops('dit')", "four steps"),
        ("16.96 ms", GATHER_S, "FSDP-8: one all-gather of the DiT"),
        ("6.22 ms", MATH_S, "math floor of the pipeline on 8 chips"),
        ("0.26 ms", ULYSSES_S, "Ulysses"), ("1.45 ms", TENSOR_S, "tensor parallelism: 35 all-reduces"),
        ("96.0 %", f"{MATH_S} / ({MATH_S} + {ULYSSES_S})", "of peak, Ulysses"),
        ("26.8 %", f"{MATH_S} / ({MATH_S} + {GATHER_S})", "of peak, FSDP"),
        ("5.6 x", f"({TENSOR_S}) / ({ULYSSES_S})", "tensor parallelism over Ulysses"),
        ("65 x", "16.96 / 0.26", "FSDP over Ulysses, of the printed digits"),
        ("3.6 x", f"({MATH_S} + {GATHER_S}) / ({MATH_S} + {ULYSSES_S})", "FSDP's floor over that of Ulysses"),
        ("9.44 MB", "S * H * 2", "activation between two blocks"),
        ("4.4 %", "flops('vae') / flops('*')", "share of the VAE")),
    Quote("6.48 ms", f"{MATH_S} + {ULYSSES_S}", "floor of the pipeline on 8 chips, Ulysses", f"{REPORT}, 5", SMALL,
          checks=(("4 * weights('dit') / hbm_per_s",
                   "Ulysses leaves all weights on every chip, and four forwards read them"),
                  (f"{MATH_S} + 4 * {ULYSSES_S}", "four forwards have four collectives"))),
    Quote("23.17 ms", f"{MATH_S} + {GATHER_S}", "floor of the pipeline on 8 chips, FSDP", f"{REPORT}, 5", SMALL,
          checks=((f"{MATH_S} + 4 * {GATHER_S}", "weights gathered once a forward, and there are four"),)),
    *at(BIG, "5", ("0.77 ms", ULYSSES_S, "Ulysses at 1360x768"),
        ("4.32 ms", TENSOR_S, "tensor parallelism at 1360x768")),
    *at(SMALL, "6",
        ("332 FLOP/B", "flops('embeddings') / unfused('embeddings')", "intensity of the embeddings, unfused"),
        ("512 FLOP/B", "flops('double: proj') / unfused('double: proj')", "intensity of double: proj, unfused"),
        ("522 FLOP/B", "flops('double: mlp') / unfused('double: mlp')", "intensity of double: mlp, unfused"),
        ("674 FLOP/B", "flops('double: mlp') / fused('double: mlp')", "the least of the int8 list, fused"),
        ("317 FLOP/B", "flops('rmsnorm + q/k/v proj') / unfused('rmsnorm + q/k/v proj')", "text rows, least")),
    Quote("465 FLOP/B", "flops('mlp gate/up/down') / unfused('mlp gate/up/down')", "text rows, most",
          f"{REPORT}, 4.1", SMALL,
          checks=(("flops('mlp gate/up/down') / (unfused('mlp gate/up/down') + 2 * layers * txt * 4 * F)",
                   "the DiT's mlp row has gate and up written and read again; by that rule"),)),
    *at(SMALL, "7",
        ("2.909 TFLOP", "flops('text')", "text encoder"),
        ("283 MB", "weights('shared modulation x3')", "modulation weights"),
        ("92 kB", "15 * H * 2", "modulation output"),
        ("5.0 ms", f"({l4(SINGLE)}) / 20", "a single block on L4"),
        ("2.4 x", f"12.0e-3 / (({l4(SINGLE)}) / 20)", "its measured 12.0 ms over that"),
        ("2.7 x", f"(308 - 20 * 12.0) / 5 * 1e-3 / (({l4(DOUBLE)}) / 5)", "a double block, measured over floor"),
        ("2.0 ms", " + ".join(l4((name,)) for name in NAMED), "prologue on L4"),
        ("2.6 x", "1325.2e-3 / (4 * floor_s('dit', l4_per_s, l4_hbm_per_s))", "four steps on L4, measured over floor"),
        ("8.1 x", "318.9e-3 / floor_s('text', l4_per_s, l4_hbm_per_s)", "text encoder on L4, measured over floor"),
        ("5.4 x", "(1778 - 318.9 - 1325.2) * 1e-3 / floor_s('vae', l4_per_s, l4_hbm_per_s)", "VAE on L4"),
        ("14.9 TFLOP/s", "flops('vae') / ((1778 - 318.9 - 1325.2) * 1e-3)", "VAE on L4"),
        ("9.1 TFLOP/s", "flops('text') / 318.9e-3", "text encoder on L4"),
        ("11 %", "flops('text') / 318.9e-3 / l4_per_s", "... of its GEMM rate"),
        ("67 %", "l4_per_s / 121e12", "L4 GEMM rate over datasheet"),
        ("75 %", "l4_hbm_per_s / 300e9", "L4 bandwidth over datasheet"),
        ("1.057 x", "1400.8 / 1325.2", "scan over four calls"),
        ("39 ms", "(350 - 308) * 1e-3", "the prologue, forward less blocks"),
        ("2.7 x", "350.2e-3 / floor_s('dit', l4_per_s, l4_hbm_per_s)", "a whole forward, the top of 2.4-2.7"),
        ("3.6 x", "1.47 * floor_s('dit', gemm_per_s, hbm_per_s) / floor_s('dit', bf16_per_s, hbm_per_s)",
         "DiT on v6e over its datasheet floor"),
        ("6.5 x", "2.74 * floor_s('vae', gemm_per_s, hbm_per_s) / floor_s('vae', bf16_per_s, hbm_per_s)",
         "VAE on v6e over its datasheet floor"),
        ("19 x", "13.7 * floor_s('text', gemm_per_s, hbm_per_s) / floor_s('text', bf16_per_s, hbm_per_s)",
         "text encoder on v6e over its datasheet floor"),
        ("13.3 GB", "weights('dit', 'text', 'vae')", "weights staged"),
        ("8 ms", "weights('dit', 'text', 'vae') / hbm_per_s", "... into HBM"),
        ("37 x", "67.1 / 1.778", "weight loading over compute"),
        ("0.5 s", "13.3e9 / 25e9", "... over PCIe at 25 GB/s"), ("1.3 s", "13.3e9 / 10e9", "... at 10 GB/s")),
    *at(BIG, "4.1", ("4 x", "flops('vae') / 2e12", "the guess of 2 TFLOP for the VAE is low")),
    *at(SMALL, "8",
        ("5.4 ms", "floor_s('text', bf16_per_s, hbm_per_s)", "text encoder on one v6e"),
        ("3.2 ms", "flops('text') / bf16_per_s", "its math"), ("8.9 GB", "unfused('text')", "its traffic"),
        ("11.9 ms", f"{TRUNK} * 7 / 8 / link_per_s", "FSDP-8 all-gather of the trunk"),
        ("4.8 ms", "floor_s('text', bf16_per_s, hbm_per_s) * 7 / 8", "the most that it could save"),
        ("0.2 %", f"{over('flops', NORMS)} / bf16_per_s / ({NORMS_S})", "norm, rope and modulate rows, of peak")),
    Quote("seven rows of klein and SA3 are memory-bound, three of them klein's: embeddings, double: proj, double: mlp",
          "min(" + ", ".join(f"flops({r!r}) / unfused({r!r})" for r in (
              "shared modulation x3", "final layer", "rmsnorm + q/k/v proj", "o_proj", "mlp gate/up/down")) + ") > 560",
          "rows under the ridge", f"{REPORT}, 2 and 6", SMALL),
    Quote("16 %", f"4 * ({NORMS_S}) / {SERIAL_S}", "norm, rope and modulate rows, of the 8-chip floor",
          f"{REPORT}, 8", SMALL,
          checks=((f"4 * ({NORMS_S}) / 8 / ({MATH_S} + {ULYSSES_S})",
                   "a share of rows added up; of the 6.48 ms that section 5 calls the floor it is"),)),
)  # fmt: skip

ABOUT = {"batch": "1", "dtype": "bfloat16"}
CHIPS = Envelope("v6e", 8, MATH_S, {"ulysses": ULYSSES_S, "fsdp": GATHER_S, "tp": TENSOR_S}, f"{REPORT}, 5")
CLAIMS = Claims((*TEXT, *DIT, *VAE), NAMES, QUOTES, (Shortcut("dit", "S"),), REPORT, ABOUT, CHIPS)
