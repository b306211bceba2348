"""What large runs must not lose: memory over many profiles, answers of many processes, counts at 10^5 scopes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import memory
import scale

pytestmark = pytest.mark.slow


def test_memory_is_flat_over_profiles() -> None:
    """Each is of a function and shapes of its own; an op kept back from each would be 40 KiB and more."""
    for i in range(100):
        memory.one(i)
    start = memory.resident_mib()
    for i in range(100, 400):
        memory.one(i)
    assert memory.resident_mib() - start < 300 * 10 / 1024


def test_processes_at_once_over_one_cache_agree() -> None:
    scale.processes(32)


def test_a_trillion_parameters() -> None:
    scale.model()
