"""Runs in a process of its own, with forced host devices: a folder in, XLA's dump of the partitioned program out.

It imports jax and nothing of costtrace, like target/child.py.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path


def main(folder: Path) -> None:
    import jax
    import numpy
    from jax import export
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    request = json.loads((folder / "request.json").read_text())
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

    options = {**request["options"], "xla_dump_to": str(folder / "dump")}
    jax.jit(call).lower(*flat).compile(compiler_options=options)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
