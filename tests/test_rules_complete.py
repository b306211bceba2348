"""Every primitive that is alive in this jax has a rule, or a reason why not; and no entry names a dead one."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import jax

from costtrace.rules import FLOW, OTHER_VERSIONS, RULES, UNPRICED, UNREACHABLE

MODULES = (
    "jax",
    "jax.numpy",
    "jax.numpy.fft",
    "jax.numpy.linalg",
    "jax.lax",
    "jax.lax.linalg",
    "jax.nn",
    "jax.random",
    "jax.image",
    "jax.scipy",
    "jax.scipy.cluster",
    "jax.scipy.fft",
    "jax.scipy.integrate",
    "jax.scipy.interpolate",
    "jax.scipy.linalg",
    "jax.scipy.ndimage",
    "jax.scipy.optimize",
    "jax.scipy.signal",
    "jax.scipy.sparse.linalg",
    "jax.scipy.spatial.transform",
    "jax.scipy.special",
    "jax.scipy.stats",
    "jax.export",
    "jax.ffi",
    "jax.experimental.buffer_callback",
    "jax.experimental.checkify",
    "jax.experimental.compute_on",
    "jax.experimental.custom_partitioning",
    "jax.experimental.fused",
    "jax.experimental.hijax",
    "jax.experimental.jet",
    "jax.experimental.multihost_utils",
    "jax.experimental.pallas",
    "jax.experimental.pallas.fuser",
    "jax.experimental.pallas.mosaic_gpu",
    "jax.experimental.pallas.tpu",
    "jax.experimental.pallas.tpu_sc",
    "jax.experimental.pallas.triton",
    "jax.experimental.rnn",
    "jax.experimental.scheduling_groups",
    "jax.experimental.shard_map",
    "jax.experimental.sparse",
    "jax.experimental.sparse.linalg",
    "jax.experimental.xla_metadata",
)
"""jax's public modules, with those of its experimental ones that bring primitives; a missing one is passed over."""

LIST = """
import contextlib, gc, importlib, sys, warnings
warnings.simplefilter("ignore")
for name in sys.argv[1:]:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
from jax.extend.core import Primitive
print(*sorted({p.name for p in gc.get_objects() if isinstance(p, Primitive)}), sep="\\n")
"""

OURS = {name for name, rule in RULES.items() if rule.owner.startswith("costtrace.")}
KNOWN = OURS | set(FLOW) | set(UNPRICED) | set(UNREACHABLE)


@cache
def alive() -> frozenset[str]:
    """Names of all primitives after importing MODULES, in a process where no test has made any."""
    done = subprocess.run([sys.executable, "-c", LIST, *MODULES], capture_output=True, text=True, check=True,
                          env={**os.environ, "JAX_PLATFORMS": "cpu"})  # fmt: skip
    return frozenset(done.stdout.split())


def test_every_live_primitive_has_a_rule_or_a_reason() -> None:
    assert len(alive()) > 300
    assert sorted(alive() - KNOWN) == []


def test_no_entry_names_a_primitive_that_is_not_alive() -> None:
    assert sorted(KNOWN - alive() - set(OTHER_VERSIONS)) == []


def test_what_is_said_of_other_versions_holds_here() -> None:
    here = {name for name, version in OTHER_VERSIONS.items() if jax.__version__.startswith(version)}
    assert sorted(here - alive()) == []
    assert sorted(set(OTHER_VERSIONS) - KNOWN) == []


def test_each_primitive_stands_in_one_table_with_its_reason() -> None:
    assert len(OURS) + len(FLOW) + len(UNPRICED) + len(UNREACHABLE) == len(KNOWN)
    assert all({**FLOW, **UNPRICED, **UNREACHABLE, **OTHER_VERSIONS}.values())
