"""The private doors into jax: what has no public way in, in one place, so that a newer jax has one file to break."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from unittest import mock

CUDNN = "jax._src.cudnn.fused_attention_stablehlo"


@contextlib.contextmanager
def cudnn_traceable() -> Iterator[None]:
    """While open, `implementation="cudnn"` attention can be traced on a machine without cuDNN: jax asks for the
    library's version at trace time and refuses without a GPU. Where the function has moved, jax's own error stands."""
    module = sys.modules.get(CUDNN)
    if module is None or not hasattr(module, "check_cudnn_version"):
        yield
        return
    with mock.patch.object(module, "check_cudnn_version", return_value=91000):
        yield
