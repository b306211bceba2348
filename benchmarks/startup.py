"""How much longer `costtrace klein --res 1360x768` takes, as a whole process, than `python -c "import jax"`.

    python benchmarks/startup.py [RUNS]

They alternate, so that a busy machine slows all; the middle of the runs is printed, of the clock and of the processor.
"""

from __future__ import annotations

import statistics
import sys

import machine

COMMANDS = {
    "import jax": ["-c", "import jax"],
    "costtrace --help": ["-m", "costtrace", "--help"],
    "costtrace chips": ["-m", "costtrace", "chips"],
    "costtrace klein --res 1360x768": ["-m", "costtrace", "klein", "--res", "1360x768"],
}


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(runs):
        for name, command in COMMANDS.items():
            taken[name].append(machine.process_seconds([sys.executable, *command]))
    print(machine.line())
    middle = {name: [statistics.median(times) for times in zip(*pairs, strict=True)] for name, pairs in taken.items()}
    base = middle["import jax"]
    for name, (clock, processor) in middle.items():
        print(
            f"{name:32s} {clock:5.2f} s, {clock - base[0]:+5.2f} s over import jax;   "
            f"processor {processor:5.2f} s, {processor - base[1]:+5.2f} s, {processor / base[1]:.2f}x"
        )


if __name__ == "__main__":
    main()
