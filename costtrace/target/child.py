"""Runs in a process of its own, in the environment that holds the compiler: a folder in, a folder out.

In: request.json, program.bin (a jax.export artifact). Out: result.json and module.hlo, the optimized program. It
imports jax and nothing of costtrace, which that environment need not have. It ends when its parent does.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

NO_ROOM = ("RESOURCE_EXHAUSTED", "Ran out of memory")
PACKAGES = ("jax", "jaxlib", "libtpu", "jax-cuda13-pjrt")


class Refused(Exception):
    """The compiler said no: at which step, and its own words."""

    def __init__(self, step: str, error: Exception) -> None:
        super().__init__(str(error))
        self.step, self.kind = step, type(error).__name__


def watch(folder: Path) -> None:
    """Ends the process, and clears its folder, once the parent is gone: its end of the pipe closes."""
    sys.stdin.buffer.read()
    while folder.exists():  # the compiler may still write into it
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def devices(request: dict[str, Any]) -> Any:
    from jax.experimental import topologies

    more = {"topology_name": request["topology"]}
    if request["platform"] == "cuda":
        more = {"topology": request["topology"], "target_config": request["target_config"]}
    try:
        return topologies.get_topology_desc(platform=request["platform"], **more).devices
    except Exception as e:
        raise Refused("topology", e) from e


def arguments(exported: Any, mesh: dict[str, int], found: Any) -> list[Any]:
    """Abstract arguments with a sharding over the topology's devices: that is what selects the target."""
    import jax
    import numpy
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    shardings: list[Any] = [SingleDeviceSharding(found[0])] * len(exported.in_avals)
    if mesh:
        grid = Mesh(numpy.array(found[: math.prod(mesh.values())]).reshape(list(mesh.values())), tuple(mesh))
        whole = NamedSharding(grid, PartitionSpec())
        shardings = [s or whole for s in exported.in_shardings_jax(grid)]
    avals = zip(exported.in_avals, shardings, strict=True)
    return [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s) for a, s in avals]


def compiled(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    import jax
    from jax import export

    if jax.__version__ != request["jax"]:
        raise Refused("version", ValueError(f"it has jax {jax.__version__}, the program is of jax {request['jax']}"))
    for name, version in request["versions"].items():  # somebody may have changed it since it was made
        if (has := versions((name,)).get(name, "none")) != version:
            raise Refused("version", ValueError(f"it has {name} {has}, and was made with {version}"))
    exported = export.deserialize(bytearray((folder / "program.bin").read_bytes()))
    found = devices(request)
    if len(found) < exported.nr_devices:
        what = f"it has {len(found)} devices, the program is for {exported.nr_devices}"
        raise Refused("topology", ValueError(what))
    flat = arguments(exported, request["mesh"], found)

    def call(*leaves: Any) -> Any:
        args, kwargs = jax.tree.unflatten(exported.in_tree, leaves)
        return exported.call(*args, **kwargs)

    began = time.perf_counter()
    lowered = jax.jit(call, donate_argnums=tuple(request["donated"])).lower(*flat)
    lowering = time.perf_counter() - began
    options, dump = dict(request["options"]), folder / "dump"
    if request["platform"] == "cuda":
        options.update(xla_dump_to=str(dump), xla_dump_hlo_as_text=True)
    program, text = None, ""
    began = time.perf_counter()
    try:
        program = lowered.compile(compiler_options=options)
    except Exception as e:
        text = dumped(dump)
        if not text or any(word in str(e) for word in NO_ROOM):
            raise Refused("compile", e) from e
    seconds = time.perf_counter() - began
    if program is not None:
        try:
            text = program.as_text() or ""
        except Exception as e:
            raise Refused("version", e) from e
    (folder / "module.hlo").write_text(text)
    return {
        "compile_s": seconds,
        "lower_s": lowering,
        "memory": memory(program, dump),
        "versions": versions(),
        "device": str(found[0].device_kind),
    }


def answer(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    try:
        return compiled(request, folder)
    except Refused:
        raise
    except Exception as e:  # jax may raise anything
        raise Refused("lower", e) from e


def dumped(dump: Path) -> str:
    """The optimized module that XLA wrote before its last step failed; '' where it did not come so far."""
    found = sorted(dump.glob("*_gpu_after_optimizations.txt"), key=lambda path: path.stat().st_size)
    return found[-1].read_text() if found else ""


def memory(program: Any, dump: Path) -> dict[str, int]:
    """Bytes on one device, by what they are for; of a dump only all of them, `peak`."""
    stats = None if program is None else program.memory_analysis()
    if stats is not None:
        keys = ("argument", "output", "alias", "temp", "generated_code")
        return {key: int(getattr(stats, f"{key}_size_in_bytes", 0)) for key in keys}
    for path in dump.glob("*_gpu_after_optimizations-memory-usage-report.txt"):
        total = [word for word in path.read_text().replace(",", " ").split() if word.isdigit()]
        return {"peak": int(total[0])} if total else {}
    return {}


def versions(packages: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    out = {}
    for name in packages:
        try:
            out[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return out


def main(folder: Path) -> None:
    parent = threading.Thread(target=watch, args=(folder,), daemon=True)
    parent.start()
    try:
        result = answer(json.loads((folder / "request.json").read_text()), folder)
    except Refused as e:
        result = {"error": {"step": e.step, "type": e.kind, "text": str(e)[:20000]}}
    part = folder / "result.part"
    part.write_text(json.dumps(result))
    part.replace(folder / "result.json")
    parent.join()  # who has read it ends this process; a plugin may hang or complain on its own way out


if __name__ == "__main__":
    main(Path(sys.argv[1]))
