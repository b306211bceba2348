"""What a published roofline report claims of klein: its hand count by row, its slips included, and its sentences.

The report's script is lost. Its rows are rebuilt from its section 3 (a product (m, k) @ (k, n) is 2 m k n FLOPs, k n
weights, m k + m n activations; attention 4 d + 5 FLOPs a score; norms 4 or 6 FLOPs an element, rope 4, silu with gate
5, modulation 2, residual 1; two bytes an element) such that 91 of the 94 numbers that it prints come out. `fused` is its
column "act", `unfused` its column "unfused"; both hold the weights. Slips that the digits force: the time MLP has 256
rows where one is meant; the VAE's upsampling convolutions run before the pixels are doubled; gates count as a second
modulation.
"""

from __future__ import annotations

from costtrace.claim import Claim, Claims, Product, Quote, Shortcut, row

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
    *row("attention (causal, full S^2)", "text", "layers/attention", products=attention("32", "txt", "txt", "d", "layers"),
         vector="5 * 32 * txt ** 2 * layers", fused="layers * txt * 10240"),
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
    first = () if same else (Product(pixels, f"9 * {ci}", co, name="conv1 of 0"),
                             Product(pixels, f"9 * {co}", co, name="conv2 of 0"), Product(pixels, ci, co, name="shortcut"))  # fmt: skip
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
