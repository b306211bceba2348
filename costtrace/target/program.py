"""A function -> the lowered program that travels to a compiler: a jax.export artifact with its scopes, no user code.

The one file of this folder that runs jax in the user's process. Nothing is compiled here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costtrace import authored
from costtrace.arguments import name_of
from costtrace.doors import cudnn_traceable
from costtrace.errors import CosttraceError, TraceError
from costtrace.target.identity import identity

FRAMES = "jax_traceback_in_locations_limit"
"""How many stack frames an operation's location holds. None: scopes are kept, lines are not, so that a program moved by
a comment is the same program."""


@dataclass(slots=True)
class Program:
    """What a compiler is given. `mesh`: axis -> size of the devices it is sharded over, {} for one device."""

    name: str
    platform: str
    mesh: dict[str, int]
    donated: tuple[int, ...]
    """Positions of flat arguments whose buffers the program may reuse."""
    known_as: str | None
    """Its identity, where that is known without lowering it."""
    export: Callable[[], bytes]
    _artifact: bytes | None = None

    @property
    def artifact(self) -> bytes:
        """The program as it travels, lowered when first asked for. Raises TraceError where jax cannot."""
        if self._artifact is None:
            self._artifact = self.export()
        return self._artifact

    @property
    def digest(self) -> str:
        """Equal for equal programs: what a cache may be keyed by."""
        whole = self.known_as or hashlib.sha256(self.artifact).hexdigest()
        return hashlib.sha256(json.dumps([whole, self.platform, self.mesh, self.donated]).encode()).hexdigest()


def lowered(
    fn: Callable[..., Any], args: tuple[Any, ...], platform: str, jit: Mapping[str, Any] | None = None
) -> Program:
    """`fn` on abstract `args`, lowered for "tpu" or "cuda" without a device. An AbstractMesh travels along.

    jit: keyword arguments as for jax.jit. What is known by its jaxpr is lowered once its artifact is asked for, all
    else here. Raises TraceError where jax cannot trace, lower or export the function.
    """
    import jax

    jitted = fn if hasattr(fn, "trace") and not jit else jax.jit(fn, **(jit or {}))

    def export() -> tuple[bytes, int]:
        with _lowering(fn, platform):
            exported = _exported(jitted, args, platform, [])
            try:
                return bytes(exported.serialize()), exported.nr_devices
            except ValueError as e:
                if "PyTreeDef" not in str(e):
                    raise
            leaves, _ = jax.tree.flatten(args)  # a tree of classes that nobody told jax how to write down
            exported = _exported(jax.jit(_flat(jitted, args)), tuple(leaves), platform, [])
            return bytes(exported.serialize()), exported.nr_devices

    with _lowering(fn, platform):
        donated = [info.donated for info in jax.tree.leaves(jitted.trace(*args).args_info)]
        known_as = identity(jitted, args)
    artifact, devices = (None, 1) if known_as else export()
    given = tuple(n for n, is_given in enumerate(donated) if is_given)
    return Program(name_of(fn), platform, _mesh(args, devices), given, known_as, lambda: export()[0], artifact)


def _flat(jitted: Any, args: tuple[Any, ...]) -> Callable[..., Any]:
    """The function from leaves to leaves."""
    import jax

    tree = jax.tree.structure(args)

    def call(*leaves: Any) -> Any:
        return jax.tree.leaves(jitted(*jax.tree.unflatten(tree, leaves)))

    call.__name__ = jitted.__name__
    return call


@contextlib.contextmanager
def _lowering(fn: Callable[..., Any], platform: str) -> Iterator[None]:
    """Around what runs the user's function and jax's lowering, which may raise anything: that is a TraceError."""
    try:
        with authored.running(), cudnn_traceable(), _no_frames():
            yield
    except CosttraceError:
        raise
    except ImportError as e:
        raise TraceError(f"jax cannot export {name_of(fn)}: {e}: pip install flatbuffers") from e
    except Exception as e:
        raise TraceError(f"{name_of(fn)} cannot be lowered for {platform}: {type(e).__name__}: {_line(e)}") from e


def sharded(
    args: tuple[Any, ...], axes: Mapping[str, int], cuts: Mapping[str, Sequence[int | None]]
) -> tuple[Any, ...]:
    """`args` over a mesh without devices. cuts: for each axis, the dimension of each flat argument that is cut along
    it; what does not divide is left whole, as jit does not cut it."""
    import jax
    from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

    mesh = AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
    leaves, tree = jax.tree.flatten(args)
    out = []
    for n, leaf in enumerate(leaves):
        spec: list[tuple[str, ...]] = [()] * len(leaf.shape)
        for axis, dims in cuts.items():
            if (at := dims[n]) is not None and not leaf.shape[at] % (axes[axis] * math.prod(axes[a] for a in spec[at])):
                spec[at] += (axis,)
        layout = NamedSharding(mesh, PartitionSpec(*(names or None for names in spec)))
        out.append(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=layout))
    return tuple(jax.tree.unflatten(tree, out))


def _exported(jitted: Any, args: tuple[Any, ...], platform: str, allowed: list[str]) -> Any:
    """The export; custom calls that jax keeps no promise for are allowed, since the versions here are pinned."""
    from jax import export

    try:
        checks = [export.DisabledSafetyCheck.custom_call(name) for name in allowed]
        return export.export(jitted, platforms=(platform,), disabled_checks=checks)(*args)
    except ValueError as e:
        found = re.findall(r"custom_call @([\w.$]+)|custom_call\(?['\"]([\w.$]+)", str(e))
        names = [a or b for a, b in found if (a or b) not in allowed]
        if "compatibility guarantee" not in str(e) or not names:
            raise
        return _exported(jitted, args, platform, [*allowed, *names])


@contextlib.contextmanager
def _no_frames() -> Iterator[None]:
    import jax

    before = getattr(jax.config, FRAMES, None)
    if before is None:
        yield
        return
    jax.config.update(FRAMES, 0)
    try:
        yield
    finally:
        jax.config.update(FRAMES, before)


def _mesh(args: tuple[Any, ...], devices: int) -> dict[str, int]:
    import jax

    for leaf in jax.tree.leaves(args):
        mesh = getattr(getattr(leaf, "sharding", None), "mesh", None)
        if mesh is not None and mesh.size == devices and devices > 1:
            return {str(axis): int(size) for axis, size in mesh.shape.items()}
    return {"devices": devices} if devices > 1 else {}


def _line(e: Exception) -> str:
    return next((line.strip() for line in str(e).splitlines() if line.strip()), "no message").rstrip(".")
