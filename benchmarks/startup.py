"""How much longer `costtrace klein --res 1360x768` takes, as a whole process, than `python -c "import jax"`.

    python benchmarks/startup.py [RUNS]

The two alternate, so that a busy machine slows both; the middle of the runs is printed.
"""

from __future__ import annotations

import statistics
import subprocess
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
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(runs):
        for name, command in COMMANDS.items():
            run = [sys.executable, *command]
            taken[name].append(machine.seconds(lambda run=run: subprocess.run(run, check=True, capture_output=True)))
    print(machine.line())
    base = statistics.median(taken["import jax"])
    for name, times in taken.items():
        middle = statistics.median(times)
        print(f"{name:32s} {middle:6.2f} s   {middle - base:+5.2f} s over import jax   {middle / base:5.2f}x")


if __name__ == "__main__":
    main()
