"""The private doors into jax: what has no public way in, in one place, so that a newer jax has one file to break."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

from costtrace.core import BACKWARD, RECOMPUTE

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


def trace_state() -> Any:
    """What jax is tracing now: equal while it is the same program. By the private name where it stands, because the
    public door (jax.extend) brings Pallas along, 0.03 s that a command does not need."""
    found: Any = getattr(sys.modules.get("jax._src.core"), "get_opaque_trace_state", None)
    if found is None:
        from jax.extend import core

        found = core.get_opaque_trace_state
    return found()


def settings() -> dict[str, Any] | None:
    """jax's settings as they are here and now, {name: value}; None where jax no longer lists them."""
    import jax

    listed = getattr(jax.config, "values", None)
    if not isinstance(listed, dict) or "jax_enable_x64" not in listed:
        return None
    return {name: getattr(jax.config, name, value) for name, value in listed.items()}


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


CACHES = {"_infer_params": "jax._src.pjit", "_trace_for_jit": "jax._src.pjit",
          "_create_jaxpr": "jax._src.lax.control_flow.loops"}  # fmt: skip
"""Functions of jax that look for an earlier trace: of jit, and of scan and while."""


def asked_by_a_cache() -> bool:
    """True in an __eq__ that jax calls to find an earlier trace, told by who asks; jax does not say why it does.

    Where jax renames one of them this is never true: modules that share a jitted function share the name of the first
    then, and test_module_change.py says so. Nothing else would change, so nothing is raised.
    """
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name in ("__eq__", "__ne__"):  # of what holds it
        frame = frame.f_back
    return frame is not None and CACHES.get(frame.f_code.co_name) == frame.f_globals.get("__name__")


def of_phase(phase: str) -> contextlib.AbstractContextManager[Any]:
    """While open, what jax traces carries the mark that its own gradient leaves on that phase. The recompute's is a
    scope; the backward pass's has no public door, and where the private one has moved a backward pass is forward."""
    import jax

    if phase == RECOMPUTE:
        return jax.named_scope("rematted_computation")
    transform: Any = getattr(sys.modules.get("jax._src.source_info_util"), "transform_name_stack", None)
    return transform("transpose") if phase == BACKWARD and transform is not None else contextlib.nullcontext()
