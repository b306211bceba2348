"""The advice on small programs, and on the two models that a report was written of."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path

import jax
import pytest
from staged import BF16_PER_S, HBM_PER_S, INT8_PER_S, V6E, K, M, N, large, mlp, shape, staged

from costtrace import advice, chip, model, scenario, sharding, units
from costtrace.cli import main
from costtrace.evidence import measured
from costtrace.profiler import folded
from costtrace.report import html
from costtrace.report.advice import document, printed
from costtrace.report.document import Answer
from costtrace.report.document import document as page_of
from costtrace.report.output import FORMATS
from costtrace.whatif import Stage


@pytest.fixture(scope="module", name="large")
def two_products() -> Stage:
    return large()


def adviser(*stages: Stage, on: chip.Chip = V6E, chips: int = 1) -> advice.Adviser:
    parts = [sharding.Part(stage.name, stage.calls, stage.trace) for stage in stages]
    given = scenario.Source((), lambda values: (parts, 1))
    return advice.Adviser(given.setting({}, on, chips), given)


@functools.cache
def advised(name: str) -> tuple[scenario.Setting, dict[str, advice.Advice]]:
    """The setting on eight chips, and the advice by kind, strategies by stage and words too."""
    found = model.find(name)
    given = scenario.source(found)
    base = given.setting({}, V6E, 8)
    depths = {stage.name: stage.depth for stage in found.stages(found.configure())}
    rows = [row for row in measured.measurements() if row.model == name]
    some = advice.Adviser(base, given).advise(depths, rows)
    pays = [a.saved_s for a in some if a.verdict == advice.SAVES]
    assert pays == sorted(pays, reverse=True)
    assert [a.verdict for a in some] == sorted((a.verdict for a in some), key=["pays", "kept", "stands", "no"].index)
    keys = {a: f"{a.scope} {a.what}" if a.kind == "strategy" else a.kind if not a.scope else f"{a.kind} {a.scope}"
            for a in some}  # fmt: skip
    now = some[0].before_s  # what pays begins at the present seconds, what is done already ends there
    assert all((a.after_s if a.verdict == advice.KEPT else a.before_s) == now
               for a in some if a.verdict in (advice.SAVES, advice.KEPT))  # fmt: skip
    return base, {key: a for a, key in keys.items()} | {a.kind: a for a in some}


@pytest.mark.slow
def test_what_a_report_recommends_for_klein_on_eight_chips() -> None:
    """Its seven recommendations, by number: each holds by the tool's own figures, or is said not to."""
    base, found = advised("klein")
    tp, fsdp = (base.placed["dit"][name] for name in ("tp", "fsdp"))
    one = found["dit no fsdp within a request: tp"]
    assert one.verdict == advice.KEPT and one.saved_s == pytest.approx(fsdp.serial_s() - tp.serial_s())
    assert found["text leave it on one chip, not tp"].verdict == advice.NOT  # 2 does not hold: tp is faster here
    assert {"single/linear1", "single/linear2", "double/mlp"} <= set(found["int8"].scope.split(","))
    assert found["int8"].saved_s > found["w8a16"].saved_s == found["fp8"].saved_s > 0  # 3: float8 is no faster
    assert found["fuse"].verdict == advice.SAVES and {"norm", "rope"} <= set(found["fuse"].scope.split(","))  # 4
    assert found["hoist"].verdict == advice.NOT  # 5 is for sa3; rope tables and the text's projection are small
    assert found["hoist"].scope.split(",")[0] == "embed"
    assert found["leave vae"].verdict == advice.STANDS  # 6
    assert "39.4 ms" in found["measure dit"].what and found["measure dit"].verdict == advice.STANDS  # 7


@pytest.mark.slow
def test_what_a_report_recommends_for_stable_audio_on_eight_chips() -> None:
    base, found = advised("sa3")
    dit = next(part for part in base.parts if part.name == "dit")
    whole = Stage("dit", dit.calls, dit.trace, folded(dit.trace))
    scopes = {op.scope for op in whole.unchanging() if op.primitive == "dot_general"}
    assert scopes == {"context", "time", "block/cross_qkv/to_kv", "block/local"}
    assert found["dit no fsdp within a request: ulysses"].verdict == advice.KEPT  # 1
    assert base.chosen["text"] == scenario.ALONE  # 2
    assert any(key.startswith("text leave it on one chip, not ") and a.holds for key, a in found.items())
    assert "block/mlp" in found["int8"].scope.split(",") and found["int8"].verdict == advice.SAVES  # 3
    assert found["fuse"].verdict == advice.SAVES  # 4
    assert found["hoist"].verdict == advice.SAVES and found["hoist"].scope.startswith("block/cross_qkv/to_kv,")  # 5
    assert found["leave text"].verdict == advice.STANDS  # 6
    assert "nothing is measured" in found["measure text"].what  # 7


def test_together_saves_less_than_the_sum_and_no_less_than_each(large: Stage) -> None:
    some, texts = adviser(large), ["int8:up", "int8:up,down", "fuse:act"]
    alone, both = [some.tried([text]) for text in texts], some.tried(texts)
    assert both.kind == "all"
    assert max(a.saved_s for a in alone) <= both.saved_s <= sum(a.saved_s for a in alone) * (1 + 1e-9)


def test_another_chip_more_chips_and_other_options() -> None:
    def make(values: Mapping[str, str]) -> tuple[list[sharding.Part], int]:
        batch = int(values.get("batch", 1))
        weights = {"up": shape((K, N), "bfloat16"), "down": shape((N, K), "bfloat16")}
        some = staged(mlp, weights, shape((batch, M, K), "bfloat16"), calls=int(values.get("steps", 4)))
        return [sharding.Part("mlp", some.calls, some.trace)], batch

    given = scenario.Source(("batch", "steps"), make)
    some = advice.Adviser(given.setting({}, V6E), given)

    def after(text: str) -> float:
        return some.tried([text]).after_s

    assert after("steps:2") == pytest.approx(some.now.serial / 2)
    h100 = given.setting({}, chip.load("h100"))
    assert after("chip:h100") == pytest.approx(h100.program().serial_s(h100.chip))
    four = given.setting({"batch": "4"}, V6E)
    assert after("batch:4") == pytest.approx(four.program().serial_s(V6E) / 4)  # an item
    eight = given.setting({}, V6E, 8)
    assert eight.chosen["mlp"] != scenario.ALONE
    assert after("chips:8") == pytest.approx(eight.program().serial_s(V6E) + eight.links_s("mlp"))
    both = some.tried(["steps:2", "chip:h100"])
    assert both.after_s == pytest.approx(after("chip:h100") / 2)


def test_a_prediction_scales_each_part_as_its_modelled_seconds(large: Stage) -> None:
    given = scenario.Source((), lambda values: ([sharding.Part(large.name, large.calls, large.trace)], 1))
    base = given.setting({}, V6E)
    up, act, down = (next(p for p in base.program().parts if p.scope == name) for name in ("up", "act", "down"))
    floor = {p.scope: p.cost.matmul_flops / BF16_PER_S or p.nbytes / HBM_PER_S for p in (up, act, down)}
    known = scenario.prediction(base, {large.name: {"up": 2 * floor["up"] / 3, "act": 0.0, "down": floor["down"] / 3,
                                                    "(compiler)": 1e-3}})  # fmt: skip
    some = advice.Adviser(base, given, known)
    assert some.now.predicted == pytest.approx(2 * floor["up"] + floor["down"] + 3e-3)
    assert some.tried(["int8:up"]).predicted_saved_s == pytest.approx(2 * floor["up"] * (1 - BF16_PER_S / INT8_PER_S))
    assert some.tried(["fuse:act"]).predicted_saved_s == pytest.approx(0)  # the compiler fuses it already
    assert some.tried(["chip:h100"]).predicted_saved_s is None


def test_a_chip_without_int8_says_so(large: Stage) -> None:
    without = dataclasses.replace(V6E, numbers={k: n for k, n in V6E.numbers.items() if k != "matrix.int8"})
    found = {a.kind: a for a in adviser(large, on=without).advise({})}
    assert not found["int8"].holds
    assert found["int8"].costs == "no int8 matrix rate on v6e"


def test_seconds_without_a_rate_are_no_saving(large: Stage) -> None:
    """Work that a chip has no rate for takes no time in its seconds: that is not known, not fast."""
    a100 = chip.load("a100")
    assert a100.rate("matrix", "float8_e4m3fn") is None
    tried = adviser(large, on=a100).tried(["fp8:up"])
    assert tried.saved_s > 0 and tried.verdict == advice.NOT and "no float8_e4m3fn matrix rate" in tried.costs
    with jax.enable_x64(True):
        double = staged(
            mlp, {"up": shape((K, N), "float64"), "down": shape((N, K), "float64")}, shape((M, K), "float64")
        )
    some = adviser(double, on=chip.load("h100")).advise({})
    assert {a.verdict for a in some if a.kind == "chip" and a.what in ("chip v7x", "chip v6e", "chip v5p")} == {"no"}
    lacking = adviser(double, on=V6E)
    assert any("float64 matrix" in line for line in lacking.now.missing)
    doc = document("mine", {}, V6E, 1, lacking.advise({}), lacking.now)
    assert "no float64 matrix rate on v6e" in " ".join(printed(doc, "text").split())


@pytest.mark.parametrize("form", ["layers_{}", "layers[{}]"])
def test_many_numbered_layers_are_one_piece_of_advice(form: str) -> None:
    """Each of 30 is less than the share from which a group is told; together they are all that there is."""

    def layers(w: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        for i in range(30):
            with jax.named_scope(form.format(i)), jax.named_scope("mlp"):
                x = x @ w[f"w{i}"]
        return x

    made = staged(layers, {f"w{i}": shape((K, K), "bfloat16") for i in range(30)}, shape((M, K), "bfloat16"))
    (found,) = (a for a in adviser(made).advise({}) if a.kind == "int8")
    saved = 30 * 2 * M * K * K * (1 / BF16_PER_S - 1 / INT8_PER_S)
    assert found.scope == form.format("*") and found.floor_saved_s == pytest.approx(saved)
    one = adviser(made).tried([f"int8:{form.format(3)}"])
    assert one.floor_saved_s == pytest.approx(saved / 30)


def test_a_call_fewer_saves_what_its_option_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.py").write_text(SMALL_MODEL)
    rows = {}
    for words in ([], ["--what-if", "steps:3"]):
        assert main(["advise", str(tmp_path / "small.py"), *words, "--format", "json"]) == 0
        doc = json.loads(capsys.readouterr().out)
        rows |= {row["kind"]: row for row in doc["rows"] if row["kind"] in ("calls", "steps")}
    for key in ("after_s", "saved_s", "floor_saved_s"):
        assert rows["calls"][key] == pytest.approx(rows["steps"][key])


def test_advice_on_a_program_that_is_partly_unknown_says_so() -> None:
    def search(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda c: c.sum() < 3, lambda c: c @ c, x)

    some = adviser(staged(search, shape((64, 64), "bfloat16"), weights=None))
    doc = document("mine", {}, V6E, 1, some.advise({}), some.now)
    assert doc["missing"] == ["a part of search has no price"]
    assert "a part of search has no price: seconds leave that work out" in printed(doc, "text")


def test_of_two_settings_all_have_the_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.py").write_text(SMALL_MODEL)
    assert main(["advise", str(tmp_path / "small.py"), "--what-if", "steps:2", "--what-if", "steps:3"]) == 0
    assert "all of these (steps: the last, 3)" in " ".join(capsys.readouterr().out.split())


def test_serial_is_the_sum_of_rooflines_and_pessimistic_the_roofline_of_the_sum(tmp_path: Path) -> None:
    """A product bound by the matrix unit, then a sum bound by memory: only the second name lets them overlap."""

    def two(w: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        with jax.named_scope("product"):
            x = x @ w
        with jax.named_scope("sum"):
            return x, y + 1

    made = staged(two, shape((4096, 4096), "bfloat16"), shape((4096, 4096), "bfloat16"), shape((2**26,), "bfloat16"))
    product_s, sum_s = 2 * 4096**3 / BF16_PER_S, 2 * 2 * 2**26 / HBM_PER_S
    product_bytes_s = 3 * 2 * 4096**2 / HBM_PER_S
    now = adviser(made).now
    assert now.serial == pytest.approx(product_s + sum_s)
    doc = page_of("two", {}, V6E, [("two", 1, made.profile)])
    assert doc["pessimistic_s"] == pytest.approx(max(product_s, product_bytes_s + sum_s))
    assert f"now: serial {units.text(now.serial, 's')}, floor " in printed(document("two", {}, V6E, 1, [], now), "text")
    tile = f"<b>{units.text(doc['pessimistic_s'], 's')}</b>pessimistic, all calls"
    assert tile in html.page([Answer("two", {}, [("two", 1, made.profile)], None, V6E)])


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_prints_it(form: str, large: Stage) -> None:
    some = adviser(large)
    assert "int8" in printed(document("mine", {"n": 3}, V6E, 1, some.advise({}), some.now), form)


SMALL_MODEL = '''
"""A small model."""
import jax
from dataclasses import dataclass
from costtrace.model import Model, Stage, option, param, scope

@dataclass(frozen=True)
class Config:
    steps: int = option(4, help="steps")

def forward(x):
    with scope("double"), scope("mlp"):
        x = x @ param("w", (4096, 8192))
    with scope("norm"):
        return x / x.mean(-1, keepdims=True)

def stages(c):
    return [Stage("run", forward, (jax.ShapeDtypeStruct((4096, 4096), "bfloat16"),), calls=c.steps)]

MODEL = Model("small", Config, stages)
'''


@pytest.mark.parametrize("words", [["advise"], []])
def test_the_command(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.py").write_text(SMALL_MODEL)
    command = [*words, str(tmp_path / "small.py"), "--what-if"]
    some = ["int8:double/*/mlp", "--what-if", "fuse:norm,rope,modulate", "--what-if", "steps:2"]
    assert main([*command, *some]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "all of these" in out and "double/*/mlp: products and weights in int8" in out
    assert "no scope is called rope, modulate" in out and "steps 2" in out
    assert main([*command, "int8:nothing"]) == 2
    assert "no scope is called nothing" in capsys.readouterr().err
    assert main([*command, "int4:mlp"]) == 2
    known = "there are int8, fp8, w8a16, fuse, flash, hoist, chip, chips, and the model's options steps"
    assert known in capsys.readouterr().err


def test_what_ifs_stand_side_by_side_and_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.py").write_text(SMALL_MODEL)
    small = str(tmp_path / "small.py")
    assert main([small, "--chip", "v6e,h100", "--what-if", "steps:2"]) == 0
    assert capsys.readouterr().out.count("steps 2") == 2
    assert main([small, "--what-if", "steps:2", "--html", "page.html"]) == 2
    assert "--html page.html: with --what-if there is only a table" in capsys.readouterr().err
