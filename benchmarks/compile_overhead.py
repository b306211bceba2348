"""What asking a chip's compiler through costtrace takes beyond asking it bare: python benchmarks/compile_overhead.py

Bare: a process of the private environment that reads the same program, lowers and compiles it, and ends. Ours: the
child process, its text, and the table made of it, nothing remembered. Both from the start of the process, so that
imports count in both. The two alternate, RUNS times each, and the least of each is printed: by the clock, and in
seconds of the processor, which other work on the machine disturbs less.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import machine

from costtrace import chip, model
from costtrace.evidence.compiled import compiled
from costtrace.profiler import profile
from costtrace.target import cache, compiler, program, setup, tpu

RUNS = 2
Seconds = tuple[float, float]
"""By the clock, and of the processor with child processes."""
BARE = """
import sys
import jax
from jax import export
from jax.experimental import topologies
exported = export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
device = topologies.get_topology_desc(platform="tpu", topology_name=sys.argv[2]).devices[0]
one = jax.sharding.SingleDeviceSharding(device)
args = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=one) for a in exported.in_avals]
call = lambda *leaves: exported.call(*jax.tree.unflatten(exported.in_tree, leaves)[0])
jax.jit(call).lower(*args).compile()
import os
os._exit(0)
"""


def now() -> Seconds:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(each.ru_utime + each.ru_stime for each in used)


def since(began: Seconds) -> Seconds:
    clock, processor = now()
    return clock - began[0], processor - began[1]


def bare(sent: program.Program, on: chip.Chip) -> Seconds:
    """Of a process that does nothing but compile."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.bin"
        path.write_bytes(sent.artifact)
        began = now()
        environment = {**os.environ, **tpu.environment(on), "JAX_PLATFORMS": "cpu"}
        subprocess.run([setup.python("tpu"), "-I", "-c", BARE, str(path), tpu.topology(on)], check=True,
                       env=environment, stderr=subprocess.DEVNULL)  # fmt: skip
        return since(began)


def ours(name: str, stage: str, on: chip.Chip) -> Seconds:
    """From the function to its parts by scope, its trace and lowering too."""
    with tempfile.TemporaryDirectory() as folder:
        began, answers = now(), cache.Answers(Path(folder))
        fn, args = bound(name, stage)
        (answer,) = compiler.ask([compiler.Question(program.lowered(fn, args, "tpu"), on)], answers)
        compiled(answer, profile(fn, *args, weights=0), answers)
        return since(began)


def bound(name: str, stage: str) -> Any:
    found = model.find(name)
    return model.bind(next(s for s in found.stages(found.configure()) if s.name == stage))


def main(name: str = "klein", stage: str = "text", runs: str = str(RUNS)) -> None:
    on = chip.load("v6e")
    sent = program.lowered(*bound(name, stage), "tpu")
    pairs = [(bare(sent, on), ours(name, stage, on)) for _ in range(int(runs))]
    print(machine.line())
    for n, what in enumerate(("clock", "processor")):
        least, mine = (min(times[n] for times in some) for some in zip(*pairs, strict=True))
        print(f"{name} {stage} for v6e, {what}: bare {least:.1f} s, costtrace {mine:.1f} s: {mine / least - 1:+.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
