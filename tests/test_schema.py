"""Every document that costtrace writes fits its JSON Schema, and has no key that the schema does not describe."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jsonschema
import pytest

from costtrace.cli import main
from costtrace.profiler import profile
from costtrace.report.schema import SCHEMAS

BUDGET = 'program = "klein"\n[[limit]]\nstage = "dit"\nflops = "1 TFLOP"\npeak_bytes = "32 GB"\n'


def closed(schema: Any) -> Any:
    """The schema with every object's keys closed."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: value if key in ("enum", "const") else closed(value) for key, value in schema.items()}
    if "properties" in out and "additionalProperties" not in out:
        out["additionalProperties"] = False
    return out


def fits(name: str, doc: Any) -> None:
    jsonschema.Draft202012Validator(SCHEMAS[name]).validate(doc)
    jsonschema.Draft202012Validator(closed(SCHEMAS[name])).validate(doc)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[[str], Any]:
    def run(line: str) -> Any:
        main(line.split())
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_each_is_a_schema(schema: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("model", "klein --format json"),
        ("model", "klein --format json --by primitive --sort flops --top 3"),
        ("model", "klein --format json --by weight --efficiency --chip l4"),
        ("runs", "klein --format json --chip v6e,h100 --by line"),
        pytest.param("advise", "advise klein --chips 8 --format json", marks=pytest.mark.slow),
        ("advise", "advise klein --what-if hoist --what-if fuse:rope --format json"),
        ("diff", "diff klein klein:res=1360x768 --format json"),
    ],
)
def test_what_commands_print_fits(name: str, line: str, said: Callable[[str], Any]) -> None:
    fits(name, said(line))


@pytest.mark.slow
def test_a_sweep_fits(tmp_path: Path, said: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSTTRACE_CACHE", str(tmp_path))
    fits("sweep", said("sweep klein --steps 4,none --chip v6e,l4 --chips 1,2 --backend sequential --format json"))


def test_a_check_fits(tmp_path: Path, said: Callable[[str], Any]) -> None:
    (tmp_path / "budget.toml").write_text(BUDGET)
    fits("check", said(f"check --format json --budget {tmp_path / 'budget.toml'}"))


def test_a_saved_profile_fits() -> None:
    def forward(w: jax.Array, x: jax.Array) -> jax.Array:
        with jax.named_scope("up"):
            return jax.nn.softmax(x @ w)

    made = profile(forward, *[jax.ShapeDtypeStruct((8, 8), "float32")] * 2, weights=0)
    fits("profile", json.loads(made.to_json()))


def test_a_document_of_another_form_does_not_fit(said: Callable[[str], Any]) -> None:
    doc = said("klein --format json")
    wrong: list[tuple[Any, ...]] = [
        ("floor_s",),
        ("stages", 0, "total", "bytes_unfused"),
        ("stages", 0, "rows", 0, "scope"),
    ]
    for *path, last in wrong:
        other = copy.deepcopy(doc)
        at = other
        for key in path:
            at = at[key]
        del at[last]
        with pytest.raises(jsonschema.ValidationError):
            fits("model", other)


def test_the_command_prints_it(said: Callable[[str], Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert said("schema profile") == SCHEMAS["profile"]
    assert main(["schema", "modle"]) == 2
    assert (
        "no schema 'modle': there are model, runs, profile, diff, check, advise, sweep, calibrate, measure, compare"
        in capsys.readouterr().err
    )
