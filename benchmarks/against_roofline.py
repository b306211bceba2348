"""profile() of klein's unrolled DiT against jax.experimental.roofline on the same function, both with their tracing.

    python benchmarks/against_roofline.py [RUNS]

They alternate, each after jax.clear_caches(); best and middle of the runs, in processor time. roofline gives FLOPs and
bytes of the whole and no rows by scope or weight; tracing alone is printed too, since both pay it.
"""

from __future__ import annotations

import os
import statistics
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import machine
from jax.experimental import roofline

import costtrace
from costtrace import model


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    klein = model.find("klein")
    stage = next(s for s in klein.stages(klein.config()) if s.name == "dit")
    fn, args = model.bind(stage, unroll=True)
    actions = {
        "jax.make_jaxpr": lambda: jax.make_jaxpr(fn)(*args),
        "costtrace.profile": lambda: costtrace.profile(fn, *args, weights=0).rows(),
        "jax.experimental.roofline": lambda: roofline.roofline(fn)(*args),
    }
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(runs + 1):  # the first run of each, which imports the rest of jax, is left out
        for name, action in actions.items():
            jax.clear_caches()
            taken[name].append(machine.cpu_seconds(action))
    print(machine.line())
    for name, times in taken.items():
        print(f"{name:28s} best {min(times[1:]):6.3f} s   middle {statistics.median(times[1:]):6.3f} s")
    ours, theirs = (statistics.median(taken[name][1:]) for name in ("costtrace.profile", "jax.experimental.roofline"))
    print(f"costtrace / roofline, middle of {runs}: {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
