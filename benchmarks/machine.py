"""The line that every benchmark prints about where it ran, and its clocks."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path


def line() -> str:
    """One line: processor, cores, Python, jax."""
    info = Path("/proc/cpuinfo")
    named = [text for text in info.read_text().splitlines() if text.startswith("model name")] if info.exists() else []
    processor = named[0].partition(":")[2].strip() if named else platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores, Python {platform.python_version()}, jax {version('jax')}"


def seconds(action: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def cpu_seconds(action: Callable[[], object]) -> float:
    """Processor time of one call: what other programs on the machine do hardly enters."""
    start = time.process_time()
    action()
    return time.process_time() - start


def process_seconds(command: list[str]) -> tuple[float, float]:
    """(clock, processor) time of a whole process, which must succeed."""
    before = os.times()
    clock = seconds(lambda: subprocess.run(command, check=True, capture_output=True))
    after = os.times()
    return clock, (after.children_user + after.children_system) - (before.children_user + before.children_system)


def peak_gib() -> float:
    """The most memory this process has held, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
