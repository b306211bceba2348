"""Environments that hold a compiler: made whole or not at all, found, and refused where they are of another version."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax import export

from costtrace.errors import CosttraceError, UsageError
from costtrace.installation import compilers
from costtrace.target import cache, child, setup


def made(kind: str, version: str | None = None) -> Path:
    at = setup.place(kind, version)
    setup.interpreter(at).parent.mkdir(parents=True)
    setup.interpreter(at).write_text("")
    (at / setup.MARK).write_text(json.dumps({"versions": {"jax": version or setup.jax_version(), "libtpu": "0.0"}}))
    return at


def test_without_a_compiler_one_line_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.FOLDER, str(tmp_path))
    monkeypatch.setattr(setup, "installed", lambda module: False)
    with pytest.raises(UsageError, match=r"^no TPU compiler: run costtrace setup tpu$"):
        setup.python("tpu")
    made("tpu", "0.1.2")
    with pytest.raises(UsageError, match=r"there is one for jax 0\.1\.2, yours is .*: run costtrace setup tpu"):
        setup.python("tpu")
    at = made("tpu")
    assert setup.python("tpu") == str(setup.interpreter(at)) and setup.versions("tpu")["libtpu"] == "0.0"
    (at / setup.MARK).unlink()  # half made
    with pytest.raises(UsageError):
        setup.python("tpu")


def test_the_users_own_environment_serves_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.FOLDER, str(tmp_path))
    monkeypatch.setattr(setup, "installed", lambda module: module == "libtpu")
    assert setup.python("tpu") == sys.executable


@pytest.mark.parametrize(("kind", "package"), [("tpu", "libtpu"), ("gpu", "jax-cuda13-pjrt")])
def test_a_compiler_of_another_version_beside_jax(
    kind: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.FOLDER, str(tmp_path))
    monkeypatch.setattr(setup, "installed", lambda module: True)
    real, found = metadata.version, {package: "0.0.1"}
    monkeypatch.setattr(metadata, "version", lambda name: found.get(name) or real(name))
    ours, fits = real("jax"), real("jax") if kind == "gpu" else r"0\.0\.\d+"
    with pytest.raises(UsageError, match=rf"^{package} 0\.0\.1 is not the one of jax {ours} \({fits}\): install that"):
        setup.python(kind)
    assert {row["name"]: row["state"] for row in compilers()}[f"{kind.upper()} compiler"] == "not this jax's"
    (wanted,) = [ours] if kind == "gpu" else [m[1] + ".7" for m in map(setup.PIN.match, metadata.requires("jax")) if m]
    found[package] = wanted
    assert setup.python(kind) == sys.executable


def test_an_environment_that_was_changed_since_is_not_asked(tmp_path: Path) -> None:
    request = {"jax": metadata.version("jax"), "versions": {"numpy": "0.0.1"}}
    exported = export.export(jax.jit(jnp.tanh))(jax.ShapeDtypeStruct((2,), "float32")).serialize()
    (tmp_path / "program.bin").write_bytes(exported)
    with pytest.raises(child.Refused, match=rf"it has numpy {metadata.version('numpy')}, and was made with 0.0.1"):
        child.compiled(request, tmp_path)


def test_a_setup_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.FOLDER, str(tmp_path))
    script = [sys.executable, "-c", "print('Collecting x'); print('no such package'); raise SystemExit(1)"]
    steps = setup._step
    monkeypatch.setattr(setup, "_step", lambda command, what, say: steps(script, what, say))
    said: list[str] = []
    with pytest.raises(CosttraceError, match=r"failed: no such package: check the network"):
        setup.make("tpu", said.append)
    assert not setup.place("tpu").exists() and any("Collecting x" in line for line in said)
