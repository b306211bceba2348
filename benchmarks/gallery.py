"""Complete models of public packages, profiled unchanged, their products held against XLA's lowered count.

    python -m venv gallery && gallery/bin/pip install PACKAGES (docs/gallery.md names them) && gallery/bin/pip install .
    gallery/bin/python benchmarks/gallery.py [NAME ...]

A package that is not installed is left out, and said so.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import jax

import costtrace
from costtrace.evidence import xla
from costtrace.module.call import opened

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""(module, transform or constructor; arguments; keywords)"""


def array(*shape: int, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def megalodon() -> Call:
    package = importlib.import_module("megalodon_jax")

    def model(key: Any) -> Any:
        return package.MegalodonForCausalLM(package.MegalodonConfig(), key=key)

    return model, (array(1, 2048, dtype="int32"),), {}


def mamba() -> Call:
    package = importlib.import_module("mamba2_jax")

    def model(rngs: Any) -> Any:
        return package.Mamba2ForCausalLM(package.Mamba2Config(), rngs=rngs)

    return model, (array(1, 2048, dtype="int32"),), {}


def vit() -> Call:
    models = importlib.import_module("equimo.models")
    return (lambda key: models.vit_base_patch16_224(key=key)), (array(3, 224, 224),), {"key": jax.random.key(0)}


def dino() -> Call:
    models = importlib.import_module("equimo.models")
    return (lambda key: models.dinov2_vitl14(key=key)), (array(3, 518, 518),), {"key": jax.random.key(0)}


def resnet50() -> Call:
    hk = importlib.import_module("haiku")

    def resnet50(x: Any, is_training: bool) -> Any:
        return hk.nets.ResNet50(1000)(x, is_training)

    return hk.transform_with_state(resnet50), (array(1, 224, 224, 3), False), {}


def unet() -> Call:
    models = importlib.import_module("flaxdiff.models.simple_unet")
    return models.Unet(), (array(1, 64, 64, 3), array(1), array(1, 77, 768)), {}


MODELS: dict[str, tuple[str, str, str, Callable[[], Call]]] = {
    "megalodon": ("megalodon-jax", "equinox", "Megalodon language model at its default size, 2,048 tokens", megalodon),
    "mamba2": ("mamba2-jax", "flax nnx", "Mamba-2 language model of 130 M, 2,048 tokens", mamba),
    "vit-b16": ("equimo", "equinox", "ViT-B/16, one image of 224x224", vit),
    "dinov2-l14": ("equimo", "equinox", "DINOv2 ViT-L/14, one image of 518x518", dino),
    "resnet50": ("dm-haiku", "haiku", "ResNet-50, one image of 224x224, inference", resnet50),
    "unet": ("flaxdiff", "flax linen", "text-conditioned diffusion UNet, one image of 64x64, 77 text tokens", unet),
}
"""Name -> (package, library, what is run, how it is made)."""


def row(name: str) -> str:
    """A line of the table: counts, XLA's, and the seconds that costtrace took."""
    package, library, what, make = MODELS[name]
    try:
        model, args, keywords = make()
    except ImportError as e:
        return f"{name}: left out: {e}"
    start = time.perf_counter()
    fn, args = opened(model, args, keywords)
    found = costtrace.profile(fn, *args, weights=0)
    seconds = time.perf_counter() - start
    counted = (found.total.matmul_flops, found.total.conv_flops)
    theirs = xla.matmul_conv(fn, args)
    same = "equal" if tuple(map(float, counted)) == theirs else f"{theirs[0]:.0f}, {theirs[1]:.0f}"
    where = [r.key for r in found.rows(depth=3) if r.cost.matmul_flops + r.cost.conv_flops][:3]
    cells = [
        f"{package} {metadata.version(package)}", library, what, f"{found.parameters:,}", f"{counted[0]:,}",
        f"{counted[1]:,}", same, found.status, f"{seconds:.1f} s", ", ".join(f"`{key}`" for key in where),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    print("| package | library | run | parameters | matmul FLOPs | conv FLOPs | XLA | status | took | rows such as |")
    print("|---|---|---|---:|---:|---:|---|---|---:|---|")
    for name in sys.argv[1:] or MODELS:
        print(row(name), flush=True)


if __name__ == "__main__":
    main()
