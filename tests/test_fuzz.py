"""Files with bytes changed, cut, doubled and moved: a loader reads them or raises a CosttraceError, nothing else.

COSTTRACE_FUZZ=20000 runs that many of each kind instead of the few of every run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bad_files
import documented
import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import export

import costtrace
from costtrace import budget, checkpoint, chip, chipfile, claim, diff, figure, formula, header
from costtrace.cli import argument, main
from costtrace.errors import CosttraceError
from costtrace.evidence import dump, exported, measured, recording, xplane

RUNS = int(os.environ.get("COSTTRACE_FUZZ", "60"))
TRACE = Path(__file__).parent / "traces" / "toy.xplane.pb"
HLO = Path(__file__).parent / "hlo" / "block.v6e.hlo"
V6E = chip.load("v6e")


def program(w: Any, x: Any) -> Any:
    with jax.named_scope("up"):
        x = jnp.tanh(x @ w)
    with jax.named_scope("loop"):
        return jax.lax.scan(lambda c, _: (c * 2, None), x, None, length=3)[0]


SHAPES = (jax.ShapeDtypeStruct((8, 8), "float32"), jax.ShapeDtypeStruct((4, 8), "float32"))


def profile() -> bytes:
    return costtrace.profile(program, *SHAPES).to_json().encode()


def document() -> bytes:
    import io
    from contextlib import redirect_stdout

    with redirect_stdout(io.StringIO()) as out:
        assert main(["hpc", "--format", "json", "--depth", "1"]) == 0
    return out.getvalue().encode()


def proto() -> bytes:
    return bytes(jax.jit(program).lower(*SHAPES).compiler_ir("hlo").as_serialized_hlo_module_proto())


def artifact() -> bytes:
    return bytes(export.export(jax.jit(program), platforms=("cpu",))(*SHAPES).serialize())


def compared(path: Path) -> None:
    figures = figure.read(path)
    diff.diff(figures, figures, "flops")
    diff.totals(figures, figures)


def index(path: Path) -> None:
    (path.parent / "good.safetensors").write_bytes(bad_files.safetensors(bad_files.HEADER))
    checkpoint.read(str(path))


def traced(path: Path) -> None:
    found = xplane.spans(path)
    some = xplane.modules(path, {each.module for each in found.values()})
    for each in found.values():
        with contextlib.suppress(CosttraceError):
            xplane.joined(each, some, ("up", "loop"))


def recorded(text: str) -> Callable[[], bytes]:
    return text.encode


MEASURED = {
    "schema": "costtrace/1", "model": "toy", "config": {"tokens": 8}, "device": {"platform": "cpu", "kind": "x"},
    "stages": [{"name": "forward", "measured_s": 0.5, "spread": 0.01, "finite": True, "loop": {"steps": 4, "scanned_s":
                1.6}, "parts": [{"scope": "up", "measured_s": 0.25, "spread": 0.1, "runs": 3}]}],
}  # fmt: skip
ROWS = {"model": "toy", "rows": [{"scope": "up", "seconds": 0.25}, {"stage": "forward", "scope": "", "seconds": 1}]}


def text_of(load: Callable[[str], Any]) -> Callable[[Path], Any]:
    return lambda path: load(path.read_bytes().decode("utf-8", "replace").replace("\0", ""))


@dataclass(frozen=True)
class Kind:
    """A file's right form, and what reads it."""

    name: str
    right: Callable[[], bytes]
    load: Callable[[Path], Any]


KINDS = {
    "chip": Kind("chip.toml", lambda: (chip.folder() / "v6e.toml").read_bytes(), chipfile.ChipFile),
    "budget": Kind("budget.toml", bad_files.BUDGET.encode, budget.load),
    "claims": Kind("claims.toml", lambda: next(code for code in documented.blocks(
        (documented.ROOT / "docs" / "audit.md").read_text(), "toml")).encode(), lambda path: claim.load(str(path))),
    "measurements": Kind("m.toml", lambda: min(measured.folder().glob("*.toml")).read_bytes(), measured.load),
    "profile": Kind("profile.json", profile, compared),
    "document": Kind("document.json", document, compared),
    "safetensors": Kind(
        "w.safetensors", lambda: bad_files.safetensors(bad_files.HEADER), lambda path: checkpoint.read(str(path))
    ),
    "index": Kind("w.safetensors.index.json", lambda: b'{"weight_map": {"w": "good.safetensors"}}', index),
    "mapping": Kind(
        "map.json", lambda: b'{"w/{n}": ["a", "b"], "v": "c"}', lambda path: checkpoint.mapping_of(str(path))
    ),
    "trace": Kind("toy.xplane.pb", TRACE.read_bytes, traced),
    "run": Kind("run.json", recorded(json.dumps(MEASURED)), recording.read),
    "rows": Kind("rows.json", recorded(json.dumps(ROWS)), recording.read),
    "table": Kind("rows.csv", recorded("stage,scope,seconds\nforward,up,0.25\nforward,,1e-3\n"), recording.read),
    "HLO text": Kind("module.hlo", HLO.read_bytes, lambda path: dump.compiled(path, V6E)),
    "HLO proto": Kind("module.pb", proto, lambda path: dump.compiled(path, V6E)),
    "artifact": Kind("program.jaxexport", artifact, lambda path: exported.opened(str(path))),
    "formula": Kind("formula", lambda: b"ceil(2 * a / 3) ** 2 + max(a, b.real) if a > 3 else -a",
                    text_of(lambda text: formula.value(text, {"a": 7, "b": 2}))),
    "argument": Kind("argument", lambda: b"x=bf16[1024,n,3]", text_of(lambda text: argument.parse(text, {"n": 3}))),
}  # fmt: skip
SPECIAL = [b"", b"\0", b"\xff", b"-1", b"1e999", b"9" * 400, b"nan", b"[" * 50, b"{", b'"', b"null", b"=", b"\n",
           b"../", struct.pack("<Q", 2**63 - 1)]  # fmt: skip


@st.composite
def changes(draw: st.DrawFn, right: bytes) -> bytes:
    """A few changes of the right form: cut, put in, put in place, double a part, move a part."""
    out = bytearray(right)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(out)))
        length = draw(st.integers(0, 40))
        some = draw(st.one_of(st.sampled_from(SPECIAL), st.binary(max_size=8)))
        how = draw(st.sampled_from(("cut", "put", "place", "end", "double", "move")))
        if how == "cut":
            del out[at : at + length]
        elif how == "put":
            out[at:at] = some
        elif how == "place":
            out[at : at + len(some)] = some
        elif how == "end":
            del out[at:]
        elif how == "double":
            out[at:at] = out[at : at + length]
        else:
            part = out[at : at + length]
            del out[at : at + length]
            to = draw(st.integers(0, len(out)))
            out[to:to] = part
    return bytes(out)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("name", KINDS)
def test_the_right_form_is_read(name: str, place: Path) -> None:
    kind = KINDS[name]
    (place / kind.name).write_bytes(kind.right())
    kind.load(place / kind.name)


@pytest.mark.parametrize("name", KINDS)
def test_a_changed_file_is_read_or_refused(name: str, place: Path) -> None:
    kind = KINDS[name]
    (place / kind.name).write_bytes(kind.right())
    fuzzed(place / kind.name, kind.load, RUNS)


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small orbax checkpoint."""
    orbax = pytest.importorskip("orbax.checkpoint")
    place = tmp_path_factory.mktemp("orbax") / "step"
    tree = {"up": {"kernel": jnp.zeros((4, 8)), "bias": jnp.zeros(8, "bfloat16")}, "down": [jnp.zeros((8, 4))]}
    with orbax.StandardCheckpointer() as saved:
        saved.save(place, tree)
    assert set(header.tensors(str(place))) == {"up/kernel", "up/bias", "down/0"}
    return place


@pytest.mark.slow
def test_an_orbax_folder_with_any_file_changed_is_read_or_refused(step: Path, tmp_path: Path) -> None:
    """And without any of its files."""

    def loaded(at: Path) -> None:
        with contextlib.suppress(CosttraceError):
            header.tensors(str(at))

    for number, file in enumerate(p for p in sorted(step.rglob("*")) if p.is_file() and p.stat().st_size):
        at = tmp_path / str(number)
        shutil.copytree(step, at)
        fuzzed(at / file.relative_to(step), lambda path, at=at: loaded(at), max(10, RUNS // 4))
        (at / file.relative_to(step)).unlink()
        loaded(at)


def fuzzed(path: Path, load: Callable[[Path], Any], runs: int) -> None:
    """Loads the file again and again, each time changed from its right form."""

    @settings(max_examples=runs, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(changes(path.read_bytes()))
    def once(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(CosttraceError):
            load(path)

    once()


OTHERS: tuple[Any, ...] = (None, True, 0, -1, 1.5, 10**300, "", "x", [], {}, [[1]], {"x": 1})
"""What stands in the place of a value."""


def places(data: Any) -> list[list[Any]]:
    """The path of every value in a JSON document."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [[], *([key, *path] for key, value in inside for path in places(value))]


@pytest.mark.parametrize("name", ["profile", "document", "index", "mapping", "run", "rows"])
def test_any_value_of_another_kind_is_read_or_refused(name: str, place: Path) -> None:
    kind = KINDS[name]
    text = kind.right().decode()
    every = places(json.loads(text))
    for number, path in enumerate(every[:: 1 + len(every) // RUNS]):
        for other in OTHERS if RUNS > 60 else OTHERS[number % 3 :: 3]:
            data = json.loads(text)
            at = data
            for key in path[:-1]:
                at = at[key]
            if path:
                at[path[-1]] = other
            (place / kind.name).write_text(json.dumps(data if path else other))
            with contextlib.suppress(CosttraceError):
                kind.load(place / kind.name)
