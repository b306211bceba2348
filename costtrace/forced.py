"""Runs in a process of its own, with forced host devices: a folder in, the program as XLA partitions it out.

In and out as target/child.py has it. It imports jax and nothing of costtrace, and ends when its parent does.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Any


def watch(folder: Path) -> None:
    """As in target/child.py."""
    sys.stdin.buffer.read()
    while folder.exists():  # the compiler may still write into it
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def partitioned(request: dict[str, Any], folder: Path) -> str:
    import jax
    import numpy
    from jax import export
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    exported = export.deserialize(bytearray((folder / "program.bin").read_bytes()))
    axes = request["axes"]
    devices = jax.devices("cpu")[: math.prod(axes.values())]
    types = tuple(getattr(AxisType, name) for name in request["types"]) or None
    grid = Mesh(numpy.array(devices).reshape(list(axes.values())), tuple(axes), axis_types=types)
    whole = NamedSharding(grid, PartitionSpec())
    given = exported.in_shardings_jax(grid)
    flat = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s or whole)
            for a, s in zip(exported.in_avals, given, strict=True)]  # fmt: skip

    def call(*leaves: object) -> object:
        args, kwargs = jax.tree.unflatten(exported.in_tree, leaves)
        return exported.call(*args, **kwargs)

    dump = folder / "dump"
    jax.jit(call).lower(*flat).compile(compiler_options={**request["options"], "xla_dump_to": str(dump)})
    found = sorted(dump.glob(f"*{request['dumped']}*.txt"), key=lambda path: path.stat().st_size)
    if not found:
        raise ValueError("XLA wrote no partitioned module: this jaxlib names the pass otherwise; use jax 0.10 or newer")
    return found[-1].read_text()


def main(folder: Path) -> None:
    parent = threading.Thread(target=watch, args=(folder,), daemon=True)
    parent.start()
    result = {}
    try:
        text = partitioned(json.loads((folder / "request.json").read_text()), folder)
        (folder / "module.hlo").write_text(text)
    except Exception as e:  # noqa: BLE001  # jax may raise anything
        result = {"error": {"step": "compile", "type": type(e).__name__, "text": str(e)[:20000]}}
    part = folder / "result.part"
    part.write_text(json.dumps(result))
    part.replace(folder / "result.json")
    parent.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
