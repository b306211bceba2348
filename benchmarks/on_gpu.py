"""On an NVIDIA GPU, in under 8 minutes: calibrates it, measures klein and SA3 at full size, compares with the floor and
with what XLA's compiler for that GPU predicts, and makes a measurements file of it.

    python benchmarks/on_gpu.py [--out FOLDER] [--datasheet h200] [--seconds 470] [--scale 1]

On a CPU, with `--scale 0.125`, it runs the same commands on small models: so it is proven without a GPU. A step that
takes longer than what is left is ended and said; what was measured before it stays. The prediction needs
`costtrace setup gpu` on this machine; without it the column is left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import jax

STEPS_S = {"calibrate": 90, "measure": 150, "compare": 120}
"""At most, of one command."""
MODELS = {"klein": ["--res", "1360x768"], "sa3": ["--seconds", "120"]}
SMALL = {"klein": ["--res", "256x256", "--dtype", "float32"], "sa3": ["--seconds", "30", "--dtype", "float32"]}
ROW = """[[row]]
id = "{chip}-{model}-{stage}"
chip = "{chip}"
model = "{model}"
config = {config}
stage = "{stage}"
time = "{seconds} s"
tag = "M"
source = "here"
derivation = "steady median of one call, from {file}"
device = true
kind = "stages"
"""


class Budget:
    """What is left of the time; `run` gives what a command printed, or None where it failed or was ended."""

    def __init__(self, seconds: float, out: Path) -> None:
        self.end, self.out, self.failed = time.monotonic() + seconds, out, 0

    def run(self, name: str, step: str, arguments: list[str]) -> str | None:
        start, left = time.monotonic(), self.end - time.monotonic()
        limit = min(left, STEPS_S[step])
        said = f"costtrace {' '.join(arguments)}"
        if limit < 5:
            self.failed += 1
            print(f"{name}: left out, no time: {said}", flush=True)
            return None
        try:
            done = subprocess.run(
                [sys.executable, "-m", "costtrace", *arguments],
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self.failed += 1
            print(f"{name}: ended after {limit:.0f} s: {said}", flush=True)
            return None
        print(f"{name}: {time.monotonic() - start:.0f} s, exit {done.returncode}: {said}", flush=True)
        (self.out / f"{name}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode:
            self.failed += 1
            print(done.stderr.strip()[-500:], flush=True)
            return None
        return done.stdout


def measurements(folder: Path, chip: str, written: list[Path]) -> None:
    """What `measure` wrote, as a file of the form of costtrace/measurements/*.toml."""
    device, date, rows = "", "", []
    for path in written:
        doc = json.loads(path.read_text())
        device, date = f"{doc['device']['kind']}, jax {doc['device']['jax']}", doc["date"][:10]
        keys = {k: v for k, v in doc["config"].items() if k in ("res", "seconds", "dtype", "scale")}
        texts = {k: "x".join(map(str, v)) if isinstance(v, list) else str(v) for k, v in keys.items()}
        config = "{ " + ", ".join(f"{k} = {json.dumps(v)}" for k, v in texts.items()) + " }"
        for stage in doc["stages"]:
            rows.append(ROW.format(chip=chip, model=doc["model"], stage=stage["name"], config=config,
                                   seconds=f"{stage['measured_s']:.6g}", file=path.name))  # fmt: skip
    source = f"costtrace measure on {device}"
    head = f"[sources]\nhere = {{ text = {json.dumps(source)}, date = {json.dumps(date)} }}\n"
    (folder / "measurements.toml").write_text("\n".join([head, *rows]), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("on-gpu"))
    parser.add_argument("--datasheet", help="the GPU's chip file; by default the one that its name contains")
    parser.add_argument("--seconds", type=float, default=470)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--noise", default="0.15")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    budget, gpu = Budget(given.seconds, given.out), jax.devices()[0].platform in ("gpu", "cuda")
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}", flush=True)
    if not gpu and given.scale == 1.0:
        print("no GPU: give --scale 0.125 to try the script on a CPU")
        return 2
    chip = given.out / "my-chip.toml"
    sheet = ["--datasheet", given.datasheet] if given.datasheet else []
    asked = ["calibrate", "--quick", "--noise", given.noise, "--out", str(chip), *(sheet if gpu else [])]
    calibrated = budget.run("calibrate", "calibrate", asked)
    written = []
    for model, options in (MODELS if given.scale == 1.0 else SMALL).items():
        size = [*options, *(["--scale", str(given.scale)] if given.scale != 1.0 else [])]
        path = given.out / f"{model}.json"
        whole = ["measure", model, *size, "--depth", "0", "--seconds-each", "0.5", "--out", str(path)]
        if budget.run(f"{model}-measure", "measure", whole) is None:
            continue
        written.append(path)
        compare = ["compare", model, *size, "--measured", str(path), *(["--chip", str(chip)] if calibrated else [])]
        found = budget.run(f"{model}-compare", "compare", [*compare, *sheet])
        if gpu and given.datasheet:
            found = budget.run(f"{model}-compiled", "compare", [*compare, *sheet, "--compiled"]) or found
        print(found or "", flush=True)
    if written:
        measurements(given.out, given.datasheet or "my-chip", written)
    print(f"{sum(1 for _ in given.out.iterdir())} files in {given.out}, {budget.failed} steps failed")
    return 1 if budget.failed else 0


if __name__ == "__main__":
    sys.exit(main())
