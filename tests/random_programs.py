"""Random programs by the thousand: how often each law of program_laws.py was tried, and where it does not hold.

    python tests/random_programs.py --count 10000 [--law NAME] [--seed N] [--smallest]

The programs are shared out among the laws. Disagreements are counted by kind (the law and the line that failed), with
the shortest program of each; --smallest looks for a smaller one, which takes longer. Exit code 1 where there are any.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import jax
from hypothesis import HealthCheck, find, settings
from hypothesis.errors import NoSuchExample
from program_laws import LAWS, Law, Passed
from strategies import Program, Random

QUICK = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
CHUNK = 100
"""Programs between two of jax's cache being emptied."""


@dataclass
class Tally:
    tried: int = 0
    passed: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    shortest: dict[str, tuple[Program, str]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def add(self, p: Program, law: Law) -> None:
        self.tried += 1
        self.seen.add(repr(p))
        try:
            law.holds(p)
        except Passed:
            self.passed += 1
        except Exception as e:  # noqa: BLE001
            kind = where(e)
            self.kinds[kind] += 1
            if kind not in self.shortest or len(p.source) < len(self.shortest[kind][0].source):
                self.shortest[kind] = p, f"{type(e).__name__}: {str(e)[:600]}"


def where(e: Exception) -> str:
    """The error's type with the line of the project that it comes from."""
    ours = [f for f in traceback.extract_tb(e.__traceback__) if "site-packages" not in f.filename]
    at = next((f for f in reversed(ours) if "costtrace" in f.filename or "program_laws" in f.filename), ours[-1])
    return f"{type(e).__name__} at {Path(at.filename).name}:{at.lineno}: {at.line}"


def run(name: str, law: Law, count: int, seed: int) -> Tally:
    tally = Tally()
    for n in range(count):
        tally.add(law.program(Random(f"{name} {seed} {n}")), law)
        if n % CHUNK == CHUNK - 1:
            jax.clear_caches()
    return tally


def smaller(law: Law, kind: str, at: int) -> Program | None:
    def same(p: Program) -> bool:
        try:
            law.holds(p)
        except Passed:
            return False
        except Exception as e:  # noqa: BLE001
            return where(e) == kind
        return False

    quick = settings(max_examples=3000, **QUICK)
    try:
        return find(law.programs, same, settings=quick, random=random.Random(at))
    except NoSuchExample:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="programs in all (default 1000)")
    parser.add_argument("--law", action="append", choices=sorted(LAWS), help="only this law; may be given again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smallest", action="store_true", help="look for a small program of each disagreement")
    asked = parser.parse_args()
    laws = {name: LAWS[name] for name in asked.law or LAWS}
    disagreements = tried = checked = different = 0
    for i, (name, law) in enumerate(laws.items()):
        start = time.process_time()
        share = asked.count // len(laws) + (i < asked.count % len(laws))
        tally = run(name, law, share, asked.seed)
        bad = sum(tally.kinds.values())
        tried, checked, disagreements = tried + tally.tried, checked + tally.tried - tally.passed, disagreements + bad
        different += len(tally.seen)
        print(f"{tally.tried:>6} programs, {tally.passed:>5} passed over, {bad:>4} disagree  {name}"
              f"  ({time.process_time() - start:.0f} s)", flush=True)  # fmt: skip
        for kind, n in tally.kinds.most_common():
            program, said = tally.shortest[kind]
            if asked.smallest:
                program = smaller(law, kind, asked.seed) or program
            print(f"{n:>8} x {kind}\n           {said}\n{program!r}", flush=True)
    print(f"{tried} programs, {different} of them different, {checked} checked, {disagreements} disagreements")
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
