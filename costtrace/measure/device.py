"""The device at hand: what it is called, what runs on it, and the chip file whose datasheet is its own."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from costtrace import chip
from costtrace.chip import Chip
from costtrace.errors import UsageError
from costtrace.version import __version__


@dataclass(frozen=True, slots=True)
class Device:
    """kind: "cpu", "gpu" or "tpu". name: as its maker calls it. count: how many of them jax shows here. cache_bytes: of
    the largest cache, memory_bytes of its memory; None where nobody says."""

    kind: str
    name: str
    count: int
    versions: str
    cache_bytes: int | None
    memory_bytes: int | None


def at_hand() -> Device:
    """The device that jax computes on."""
    import jax
    import numpy as np

    devices = jax.local_devices()
    first = devices[0]
    kind = {"cuda": "gpu", "rocm": "gpu"}.get(first.platform, first.platform)
    stats = first.memory_stats() or {} if kind != "cpu" else {}
    memory = stats.get("bytes_limit") if kind != "cpu" else _ram()
    versions = (
        f"costtrace {__version__}, jax {jax.__version__}, jaxlib {metadata.version('jaxlib')}, numpy {np.__version__}, "
        f"Python {platform.python_version()}, {platform.platform(terse=True)}"
    )
    name = f"{_cpu_name()}, {os.cpu_count()} cores" if kind == "cpu" else first.device_kind
    return Device(kind, name, len(devices), versions, _cache() if kind == "cpu" else None, memory)


MALLOPT = {-1: 2**31 - 1, -4: 0, -8: 1}
"""glibc's M_TRIM_THRESHOLD, M_MMAP_MAX and M_ARENA_MAX: what is freed stays with the process, all in one heap."""


def keep_memory() -> bool:
    """Lets this process keep the host memory that it frees, where its C library is glibc; True where it does.

    By default glibc gives each large array back to the system and asks for new pages at the next call, so that half of
    a CPU's time goes into page faults, differently at each call.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return sum(mallopt(key, value) for key, value in MALLOPT.items()) == len(MALLOPT)


def _cpu_name() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def _ram() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _cache() -> int | None:
    """Bytes of the largest cache of the first core, as Linux tells it."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            found = re.fullmatch(r"(\d+)([KM]?)", path.read_text().strip())
        except OSError:
            continue
        if found:
            sizes.append(int(found[1]) * {"": 1, "K": 2**10, "M": 2**20}[found[2]])
    return max(sizes, default=None)


def datasheet(device: Device, wanted: str | None) -> Chip | None:
    """The chip file that holds the device's datasheet: `wanted`, else the shipped one that its name contains. None for
    a CPU: nobody publishes its peak. Raises UsageError where an accelerator is in no file."""
    if wanted:
        return chip.load(wanted)
    if device.kind == "cpu":
        return None
    said = re.sub(r"[\s_-]+", "", device.name.lower())
    best: tuple[int, Chip] | None = None
    for name in chip.names():
        one = chip.load(name)
        for word in (one.name, *one.aliases):
            plain = re.sub(r"[\s_-]+", "", word.lower())
            if plain in said and (best is None or len(plain) > best[0]):
                best = (len(plain), one)
    if best is None:
        raise UsageError(
            f"no chip file is called like this device ({device.name!r}): say whose datasheet it has with "
            f"--datasheet NAME, one of {', '.join(chip.names())}, or a TOML file of your own"
        )
    return best[1]
