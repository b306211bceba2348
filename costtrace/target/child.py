"""Runs in a process of its own, in the environment that holds the compiler: a folder in, a folder out.

In: request.json, program.bin (a jax.export artifact). Out: result.json and module.hlo, the optimized program. It
imports jax and nothing of costtrace, which that environment need not have. It ends when its parent does.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import sys
import threading
import time

REFUSED = ("RESOURCE_EXHAUSTED", "Ran out of memory")


def watch(folder):
    """Ends the process, and clears its folder, once the parent is gone: its end of the pipe closes."""
    sys.stdin.buffer.read()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def devices(request):
    from jax.experimental import topologies

    if request["platform"] == "tpu":
        return topologies.get_topology_desc(platform="tpu", topology_name=request["topology"]).devices
    return topologies.get_topology_desc(platform="cuda", target_config=request["target_config"],
                                        topology=request["topology"]).devices


def arguments(exported, request, found):
    """Abstract arguments with a sharding over the topology's devices: that is what selects the target."""
    import jax
    import numpy
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    mesh = request["mesh"]
    if not mesh:
        whole = SingleDeviceSharding(found[0])
        shardings = [whole] * len(exported.in_avals)
    else:
        count = int(numpy.prod(list(mesh.values())))
        grid = Mesh(numpy.array(found[:count]).reshape(list(mesh.values())), tuple(mesh))
        whole = NamedSharding(grid, PartitionSpec())
        shardings = [s or whole for s in exported.in_shardings_jax(grid)]
    return [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s)
            for a, s in zip(exported.in_avals, shardings, strict=True)]


def compiled(request, folder):
    import jax
    from jax import export

    with open(os.path.join(folder, "program.bin"), "rb") as file:
        exported = export.deserialize(bytearray(file.read()))
    try:
        found = devices(request)
    except Exception as e:
        raise Refused("topology", e) from e
    if len(found) < max(1, exported.nr_devices):
        raise Refused("topology", ValueError(f"{request['topology']} has {len(found)} devices, the program is for "
                                             f"{exported.nr_devices}"))
    flat = arguments(exported, request, found)

    def call(*leaves):
        args, kwargs = jax.tree.unflatten(exported.in_tree, leaves)
        return exported.call(*args, **kwargs)

    began = time.perf_counter()
    lowered = jax.jit(call, donate_argnums=tuple(request["donated"])).lower(*flat)
    options = dict(request["options"])
    dump = os.path.join(folder, "dump")
    if request["platform"] == "cuda":
        options.update(xla_dump_to=dump, xla_dump_hlo_as_text=True)
    lowering = time.perf_counter() - began
    began = time.perf_counter()
    program = None
    try:
        program = lowered.compile(compiler_options=options)
    except jax.errors.JaxRuntimeError as e:
        text = dumped(dump)
        if text is None or any(word in str(e) for word in REFUSED):
            raise Refused("compile", e) from e
    seconds = time.perf_counter() - began
    if program is not None:
        try:
            text = program.as_text()
        except Exception as e:
            raise Refused("version", e) from e
    with open(os.path.join(folder, "module.hlo"), "w") as file:
        file.write(text)
    return {"compile_s": seconds, "lower_s": lowering, "memory": memory(program, dump), "versions": versions(),
            "device": str(found[0].device_kind)}


def dumped(folder):
    """The optimized module that XLA wrote before its last step failed; None where it did not come so far."""
    found = sorted(glob.glob(os.path.join(folder, "*_after_optimizations.txt")), key=os.path.getsize)
    if not found:
        return None
    with open(found[-1]) as file:
        return file.read()


def memory(program, dump):
    if program is not None:
        stats = program.memory_analysis()
        if stats is None:
            return {}
        keys = ("argument", "output", "alias", "temp", "generated_code")
        sizes = {key: int(getattr(stats, f"{key}_size_in_bytes", 0)) for key in keys}
        peak = int(getattr(stats, "peak_memory_in_bytes", 0) or 0)
        return {**sizes, "peak": peak or sizes["argument"] + sizes["output"] - sizes["alias"] + sizes["temp"]}
    found = glob.glob(os.path.join(dump, "*_after_optimizations-memory-usage-report.txt"))
    if not found:
        return {}
    with open(found[0]) as file:
        words = file.readline().replace(",", " ").split()
    total = next((int(w) for w in words if w.isdigit()), 0)
    return {"peak": total} if total else {}


def versions():
    from importlib import metadata

    out = {}
    for name in ("jax", "jaxlib", "libtpu", "jax-cuda13-pjrt"):
        try:
            out[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return out


class Refused(Exception):
    """The compiler said no: at which step, and its own words."""

    def __init__(self, step, error):
        super().__init__(str(error))
        self.step, self.kind = step, type(error).__name__


def main(folder):
    threading.Thread(target=watch, args=(folder,), daemon=True).start()
    with open(os.path.join(folder, "request.json")) as file:
        request = json.load(file)
    try:
        result = compiled(request, folder)
    except Refused as e:
        result = {"error": {"step": e.step, "type": e.kind, "text": str(e)[:20000]}}
    except Exception as e:
        result = {"error": {"step": "lower", "type": type(e).__name__, "text": str(e)[:20000]}}
    part = os.path.join(folder, "result.part")
    with open(part, "w") as file:
        json.dump(result, file)
    os.replace(part, os.path.join(folder, "result.json"))
    sys.stdout.flush()
    os._exit(0)  # plugins may hang or complain on the way out


if __name__ == "__main__":
    main(sys.argv[1])
