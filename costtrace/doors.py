"""The private doors into jax: what has no public way in, in one place, so that a newer jax has one file to break."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

CUDNN = "jax._src.cudnn.fused_attention_stablehlo"


@contextlib.contextmanager
def cudnn_traceable() -> Iterator[None]:
    """While open, `implementation="cudnn"` attention can be traced on a machine without cuDNN: jax asks for the
    library's version at trace time and refuses without a GPU. Where the function has moved, jax's own error stands."""
    module: Any = sys.modules.get(CUDNN)
    asked = getattr(module, "check_cudnn_version", None)
    if asked is None:
        yield
        return
    module.check_cudnn_version = lambda: 91000
    try:
        yield
    finally:
        module.check_cudnn_version = asked


def expanded(eqn: Any) -> Any:
    """The closed jaxpr of a high-level primitive (jax 0.12: searchsorted is one) in terms of lower ones, by its own
    `expand`; None where it has none."""
    import jax

    primitive = eqn.params.get("_prim")
    if not hasattr(primitive, "expand") or not hasattr(primitive, "in_tree"):
        return None
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    args = jax.tree.unflatten(primitive.in_tree, shapes)
    return jax.make_jaxpr(primitive.expand)(*args)
