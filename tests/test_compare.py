"""Measurements read from every form, a profiler's trace joined by scope, and the gap between measured and modelled."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jsonschema
import pytest
from traced_toy import toy

import costtrace.cli as cli
from costtrace import chip, compare, roofline, shape
from costtrace.errors import FormatError, UsageError
from costtrace.evidence import measured, recording, xplane
from costtrace.evidence.compiled import Part
from costtrace.evidence.recording import Recording, Timed
from costtrace.measure import job
from costtrace.report import compare as report
from costtrace.report.schema import SCHEMAS

TRACE = Path(__file__).parent / "traces" / "toy.xplane.pb"


def array(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, "float32")


@pytest.fixture(scope="module")
def toys() -> list[job.Job]:
    return job.of_function(toy, ({"up": array(3, 64, 256), "down": array(3, 256, 64)}, array(128, 64)))


# -- a profiler's trace


def test_spans_nest_and_a_span_has_its_own_seconds_only() -> None:
    out: dict[str, xplane.Spans] = {}
    events = [  # nanoseconds: a loop of 100 holds 30 and 40, which holds 10; then one after it; then another run
        (0.0, 100.0, "f", "while", "1"), (10.0, 40.0, "f", "a", "1"), (50.0, 90.0, "f", "b", "1"),
        (60.0, 70.0, "f", "c", "1"), (100.0, 120.0, "f", "d", "1"), (500.0, 510.0, "f", "d", "2"),
    ]  # fmt: skip
    xplane._line(events, out)
    found = {op: round(seconds / xplane.SECOND) for op, seconds in out["f"].seconds.items()}
    assert found == {"while": 100 - 30 - 40, "a": 30, "b": 40 - 10, "c": 10, "d": 20 + 10}
    assert out["f"].runs == 2 and out["f"].wall_s == pytest.approx((120 + 10) * xplane.SECOND)
    assert out["f"].op_s == pytest.approx((120 + 10) * xplane.SECOND)


def test_a_trace_without_run_ids_ran_as_often_as_its_rarest_op() -> None:
    out: dict[str, xplane.Spans] = {}
    xplane._line([(t, t + 1.0, "f", op, "") for t, op in enumerate(("a", "b", "b", "a", "b", "b"))], out)
    assert out["f"].runs == 2


def test_a_trace_holds_its_hlo_and_every_op_lands_in_one_scope(toys: list[job.Job]) -> None:
    (spans,) = xplane.spans(TRACE).values()
    assert spans.module == "jit_toy" and spans.runs == 3
    one = xplane.joined(spans, xplane.modules(TRACE, ["jit_toy"]), toys[0].profile.by_scope)
    assert set(one.by_scope) == {"block/up", "block/norm", "block/down", "out", xplane.REST}
    assert one.op_s == pytest.approx(spans.op_s / 3)
    assert one.named == pytest.approx(1 - one.by_scope[xplane.REST] / one.op_s) and one.named > 0.95
    assert sum(one.rest.values()) == pytest.approx(one.by_scope[xplane.REST])
    assert set(one.rest) == {"while", "copy", "fusion"}  # the loop's own control, a copy of its carry, its counter


def test_a_trace_as_rows_in_the_table_s_order(toys: list[job.Job]) -> None:
    found = xplane.recording(TRACE, toys, None)
    assert [row.scope for row in found.rows] == ["", "block/up", "block/norm", "block/down", "out", xplane.REST]
    assert all(row.runs == 0 for row in found.rows)
    assert found.rows[-1].what.startswith("while 13.06 us, copy 10.66 us")
    assert "95.3 % of the op time of 3 traced runs is in scopes" in found.notes[0]
    deep = sum(row.seconds for row in found.rows if row.scope.startswith("block"))
    flat = {row.scope: row.seconds for row in xplane.recording(TRACE, toys, 1).rows}
    assert flat["block"] == pytest.approx(deep)


def test_a_trace_without_the_program_or_its_hlo(toys: list[job.Job], tmp_path: Path) -> None:
    other = job.of_function(lambda x: x + 1, (array(3),))
    with pytest.raises(FormatError, match=r"no stage of this model in it .*it has jit_toy"):
        xplane.recording(TRACE, other, None)
    (spans,) = xplane.spans(TRACE).values()
    with pytest.raises(FormatError, match=r"no HLO of 'jit_toy'.*save it there as jit_toy.hlo"):
        xplane.joined(spans, {}, ())
    with pytest.raises(UsageError, match=r"no \*.xplane.pb in it"):
        xplane.recording(tmp_path, toys, None)
    (tmp_path / "bad.xplane.pb").write_bytes(b"\x07nothing")
    with pytest.raises(FormatError, match=r"bad.xplane.pb"):
        xplane.recording(tmp_path, toys, None)


def test_hlo_beside_a_trace_is_read(tmp_path: Path) -> None:
    text = "HloModule jit_f, is_scheduled=true\n\nENTRY main {\n  ROOT a = f32[2] parameter(0)\n}\n"
    (tmp_path / "jit_f.hlo").write_text(text)
    (tmp_path / "x.xplane.pb").write_bytes(b"")
    assert list(xplane.modules(tmp_path / "x.xplane.pb", ["jit_f"])) == ["jit_f"]
    assert xplane.modules(tmp_path / "x.xplane.pb", ["jit_g"]) == {}


# -- plain files


def test_scope_and_seconds_in_csv_and_json(tmp_path: Path) -> None:
    rows = [Timed("toy", "", 0.5), Timed("toy", "block/up", 0.25)]
    (tmp_path / "a.csv").write_text("stage,scope,seconds\ntoy,,0.5\ntoy,block/up,0.25\n")
    (tmp_path / "a.json").write_text(
        json.dumps(
            [{"stage": "toy", "scope": "", "seconds": 0.5}, {"stage": "toy", "scope": "block/up", "seconds": 0.25}]
        )
    )
    (tmp_path / "excel.csv").write_text((tmp_path / "a.csv").read_text().replace("\n", "\r\n"), encoding="utf-8-sig")
    for name in ("a.csv", "a.json", "excel.csv"):
        found = recording.read(tmp_path / name)
        assert found is not None and found.rows == rows


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "scope,seconds\nblock,0\n", "row 2: '0' is no time: give seconds above zero"),
        ("a.csv", "scope,seconds\nblock,-1e-3\n", "row 2: '-1e-3' is no time"),
        ("a.csv", "scope,seconds\nblock,nan\n", "row 2: 'nan' is no time"),
        ("a.csv", "scope,ms\nblock,1\n", "names no columns scope and seconds"),
        ("a.csv", "scope,seconds\n", "has no row"),
        ("a.json", '[{"scope": "block", "seconds": true}]', "row 1: True is no time"),
        ("a.json", '[{"scope": "block"}]', "row 1 has no scope and seconds"),
        ("a.json", '[{"scope": 3, "seconds": 1}]', 'row 1: scope 3 is no text: write its name, or "" for the whole'),
        ("a.json", '[{"scope": ["a"], "stage": "x", "seconds": 1}]', "row 1: scope ['a'] is no text"),
        ("a.json", '[{"scope": "", "stage": 0, "seconds": 1}]', "row 1: stage 0 is no text"),
        (
            "a.json",
            '{"schema": "costtrace/9", "device": {}, "stages": []}',
            "this costtrace reads 'costtrace/1': measure",
        ),
        ("a.json", '{"schema": "costtrace/1", "device": {}, "stages": [{"name": 7}]}', "a.json: stage 7 is no text"),
        ("a.json", "{", "no JSON"),
        ("a.json", '{"schema": "costtrace/1"}', "neither a document of costtrace measure nor rows"),
        (
            "a.json",
            '{"schema": "costtrace/1", "device": {}, "stages": [{"name": "x"}]}',
            "not a whole document of costtrace measure",
        ),
        ("a.toml", "x = ", "mend the file"),
    ],
)
def test_files_that_are_no_measurement(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(FormatError) as e:
        recording.read(tmp_path / name)
    assert message in str(e.value) and name in str(e.value)


def test_published_rows_are_those_of_the_model_and_the_chip() -> None:
    path = measured.folder() / "klein.toml"
    found = recording.read(path, "klein", "l4")
    assert found is not None and (found.model, found.chip, found.config) == ("klein", "l4", {"res": "512x512"})
    assert [(row.stage, row.seconds) for row in found.rows] == [("dit", 0.3502), ("text", 0.3189), ("vae", 0.1339)]
    with pytest.raises(UsageError, match="has rows on v6e, l4: name one with --chip"):
        recording.read(path, "klein")
    with pytest.raises(FormatError, match="no row of sa3 on any chip: it has klein on v6e, klein on l4"):
        recording.read(path, "sa3")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        recording.read(tmp_path / "x.json")


# -- the gap


def number(key: str, value: str, more: str = "") -> str:
    return f'[{key}]\nvalue = "{value}"\ntag = "M"\nsource = "a test, by hand"\ndate = "2026-12"\n{more}'


HEAD = 'name = "mine"\ntitle = "A machine"\nvendor = "me"\nkind = "cpu"\n'
GRID = '[[grid]]\nkind = "{}"\ndtype = "{}"\ntag = "M"\nsource = "a test, by hand"\ndate = "2026-12"\npoints = [{}]\n'
RATES = number("matrix.float32", "100 GFLOP/s") + number("hbm.bandwidth", "10 GB/s")
OVERHEADS = number("overhead.launch", "1 us") + number("overhead.trip", "2 us") + number("overhead.dispatch", "100 us")
GRIDS = "".join(
    GRID.format(kind, dtype, points)
    for kind, dtype, points in [
        ("product", "float32", "[128, 64, 64, 1e-5, 0.0]"),
        ("copy", "", "[1000, 1e-6, 0.0]"),
        ("add", "float32", "[1000, 1e-7, 0.0]"),
        ("sum last", "float32", "[128, 256, 1e-5, 0.0]"),
        ("read", "", "[1000, 1e-6, 0.0]"),
    ]
)


def loaded(tmp_path: Path, text: str) -> chip.Chip:
    (tmp_path / "mine.toml").write_text(text)
    return chip.load(str(tmp_path / "mine.toml"))


def recorded(*rows: Timed) -> list[Recording]:
    return [Recording("here", list(rows))]


def test_shares_of_a_gap_on_a_calibrated_chip_add_up(toys: list[job.Job], tmp_path: Path) -> None:
    on = compare.On.of(loaded(tmp_path, HEAD + GRIDS + RATES + OVERHEADS))
    (row,) = compare.compared([compare.Subject(toys[0])], recorded(Timed("toy", "", 0.01, 1)), on).rows
    cost = toys[0].profile.total
    assert on.rates is not None and on.datasheet is None and row.floor_s is None
    compute_s, memory_s = cost.matmul_flops / 100e9, cost.bytes_fused / 10e9
    assert row.floor_measured_rates_s == pytest.approx(max(compute_s, memory_s))
    aware = shape.shape_aware(toys[0].trace, on.rates)
    assert row.shape_aware_s == pytest.approx(aware.total_s)
    whole = 0.01 - max(compute_s, memory_s)
    assert row.gap["hardware"] is None and row.gap["host"] is None
    assert row.gap["small shapes"] == pytest.approx((aware.by_mechanism["product"] - compute_s) / whole)
    assert row.gap["launch"] == pytest.approx((aware.by_mechanism["launch"] + aware.by_mechanism["trip"]) / whole)
    assert row.gap["dispatch"] == pytest.approx(100e-6 / whole)
    assert sum(share for share in row.gap.values() if share is not None) == pytest.approx(1)
    assert row.gap["unexplained"] == pytest.approx((0.01 - aware.total_s) / whole)


def test_a_part_timed_apart_has_a_dispatch_a_run(toys: list[job.Job], tmp_path: Path) -> None:
    on = compare.On.of(loaded(tmp_path, HEAD + GRIDS + RATES + OVERHEADS))
    rows = recorded(
        Timed("toy", "block/up", 0.01, 3), Timed("toy", "block/up", 0.03, 3), Timed("toy", "block/up", 0.02, 3)
    )
    apart = compare.compared([compare.Subject(toys[0])], rows, on).rows[0]
    within = compare.compared([compare.Subject(toys[0])], recorded(Timed("toy", "block/up", 0.02)), on).rows[0]
    assert apart.measured_s == 0.02 and apart.runs_s == (0.01, 0.03, 0.02)  # the median of three runs
    assert apart.shape_aware_s == pytest.approx((within.shape_aware_s or 0) + 3 * 100e-6)


def test_hardware_and_fusion_where_a_chip_has_measured_shares(toys: list[job.Job], tmp_path: Path) -> None:
    shares = number("efficiency.float32", "50 %") + number("efficiency.hbm", "80 %")
    on = compare.On.of(loaded(tmp_path, HEAD + RATES.replace('"M"', '"S"') + shares))
    cost = toys[0].profile.total
    (row,) = compare.compared([compare.Subject(toys[0])], recorded(Timed("toy", "", 1.0)), on).rows
    floor_s = max(cost.matmul_flops / 100e9, cost.bytes_fused / 10e9)
    rated_s = max(cost.matmul_flops / 50e9, cost.bytes_fused / 8e9)
    scoped_s = max(cost.matmul_flops / 50e9, (cost.bytes_scoped or 0) / 8e9)
    assert (row.floor_s, row.floor_measured_rates_s) == (pytest.approx(floor_s), pytest.approx(rated_s))
    assert row.ratio == pytest.approx(1 / floor_s) and row.shape_aware_s is None
    assert row.gap["hardware"] == pytest.approx((rated_s - floor_s) / (1 - floor_s))
    assert row.gap["fusion"] == pytest.approx((scoped_s - rated_s) / (1 - floor_s))
    part = Part(hbm_bytes=cost.bytes_fused + 8_000_000, time_s=0.5)
    (row,) = compare.compared([compare.Subject(toys[0], {"block/up": part})], recorded(Timed("toy", "", 1.0)), on).rows
    assert row.compiled_s == 0.5 and row.gap["fusion"] == pytest.approx(8e6 / 8e9 / (1 - floor_s))


def test_what_is_below_its_floor_is_said_with_what_may_be_the_reason(toys: list[job.Job]) -> None:
    on = compare.On.of(chip.load("v6e"))
    floor_s = roofline.floor_s(toys[0].profile.total, chip.load("v6e"))
    found = compare.compared([compare.Subject(toys[0])], recorded(Timed("toy", "", (floor_s or 0) / 2)), on)
    assert "hoisting" in found.rows[0].below and "common subexpressions" in found.rows[0].below
    assert set(found.rows[0].gap.values()) == {None}  # there is no gap to share out
    doc = found.document({"schema": "costtrace/1", "costtrace": "0", "model": "toy", "config": {}, "chip": "v6e",
                          "datasheet": None, "measured": ["here"]})  # fmt: skip
    jsonschema.validate(doc, SCHEMAS["compare"])
    assert "BELOW ITS FLOOR: toy. Before one of them is an error: hoisting" in report.printed(doc, "text")
    assert json.loads(report.printed(doc, "json")) == doc
    assert report.printed(doc, "csv").splitlines()[0].startswith("stage,scope,measured_s,floor_s")


def test_a_page_explains_the_columns_that_it_shows(toys: list[job.Job]) -> None:
    on = compare.On.of(chip.load("v6e"))
    head = {"model": "toy", "config": {}, "chip": "v6e", "datasheet": None, "measured": ["here"]}
    doc = compare.compared([compare.Subject(toys[0])], recorded(Timed("toy", "", 1.0)), on).document(head)
    page = " ".join(report.printed(doc, "text").split())
    assert "floor: the datasheet's" in page and "x: measured over floor" in page
    assert not any(word in page for word in ("by shape", "compiled", "runs:", "/ shape"))
    row = doc["rows"][0] | {"compiled_s": 0.5, "runs_s": [0.9, 1.0, 1.2]}
    page = " ".join(report.printed(doc | {"rows": [row]}, "text").split())
    assert "compiled: what the chip's own compiler predicts" in page
    assert "runs: the fastest and the slowest" in page and "-10 +20 %" in page


def test_mean_errors_are_of_whole_stages(toys: list[job.Job]) -> None:
    on = compare.On.of(chip.load("v6e"))
    floor_s = roofline.floor_s(toys[0].profile.total, chip.load("v6e")) or 0.0
    rows = recorded(Timed("toy", "", 4 * floor_s), Timed("toy", "out", 1.0))
    assert compare.compared([compare.Subject(toys[0])], rows, on).error("floor_s") == pytest.approx(1 - 1 / 4)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Timed("dit", "", 1.0), "here: no stage 'dit' in this model: it has toy"),
        (Timed("toy", "block/upp", 1.0), "here: no scope 'block/upp' in toy: did you mean block/up?"),
    ],
)
def test_rows_that_the_model_does_not_have(toys: list[job.Job], row: Timed, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        compare.compared([compare.Subject(toys[0])], recorded(row), compare.On.of(chip.load("v6e")))


def test_a_row_without_a_stage_is_of_the_only_one(toys: list[job.Job]) -> None:
    on = compare.On.of(chip.load("v6e"))
    assert compare.compared([compare.Subject(toys[0])], recorded(Timed("", "out", 1.0)), on).rows[0].stage == "toy"
    two = [compare.Subject(toys[0]), compare.Subject(job.of_function(lambda x: x, (array(1),))[0])]
    with pytest.raises(UsageError, match="a row names no stage"):
        compare.compared(two, recorded(Timed("", "out", 1.0)), on)


def test_a_measurement_of_another_model_or_configuration() -> None:
    one = Recording("m.json", [], "klein", {"res": [256, 256], "scale": 0.125})
    compare.checked(one, "klein", {"res": (256, 256), "scale": 0.125}, one.config)
    with pytest.raises(UsageError, match=r"m\.json was measured of klein, not of sa3"):
        compare.checked(one, "sa3", {}, one.config)
    with pytest.raises(
        UsageError, match=r"measured with res 256x256, scale 0.125, this is res 512x512, scale by default"
    ):
        compare.checked(one, "klein", {"res": (512, 512)}, one.config)


# -- the command


def test_compare_reads_what_measure_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part: dict[str, Any] = {"scope": "final", "runs": 1, "measured_s": 1e-3, "spread": 0.0}
    stage = {"name": "dit", "measured_s": 0.5, "spread": 0.1, "finite": True, "parts": [part],
             "loop": {"steps": 4, "scanned_s": 1.6}}  # fmt: skip
    config = {"res": [256, 256], "steps": 4, "text_tokens": 512, "batch": 1, "dtype": "bfloat16", "scale": 0.125}
    doc = {
        "schema": "costtrace/1",
        "model": "klein",
        "config": config,
        "device": {"platform": "cpu"},
        "stages": [stage],
    }
    (tmp_path / "m.json").write_text(json.dumps(doc))
    words = ["compare", "klein", "--scale", "0.125", "--res", "256x256", "--measured", str(tmp_path / "m.json")]
    assert cli.main([*words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMAS["compare"])
    whole, final = found["rows"]
    (note,) = found["notes"]
    assert note.startswith(f"{tmp_path / 'm.json'} was measured on a cpu, v6e is a tpu: ")
    assert "Calibrate first" in note and "then compare with --chip my-chip.toml" in note
    assert (whole["stage"], whole["scope"], final["scope"]) == ("dit", ".", "final")
    assert whole["gap"]["dispatch"] == pytest.approx((0.5 - 1.6 / 4) / (0.5 - whole["floor_s"]))
    assert cli.main(words) == 0 and "dit" in capsys.readouterr().out
    assert cli.main(["compare", "klein", "--measured", str(tmp_path / "m.json")]) == 2
    assert "was measured with res 256x256, scale 0.125" in capsys.readouterr().err
    assert cli.main([*words, "--compiled", "--datasheet", "nochip"]) == 2


def test_a_floor_without_a_rate_says_what_it_leaves_out() -> None:
    def product(x: jax.Array) -> jax.Array:
        return x @ x

    with jax.enable_x64(True):
        jobs = job.of_function(product, (jax.ShapeDtypeStruct((64, 64), "float64"),))
    subjects, some = [compare.Subject(each) for each in jobs], [Recording("mine", [Timed("product", "", 1e-3)])]
    v6e = chip.load("v6e")
    found = compare.compared(subjects, some, compare.On.of(v6e))
    assert any(note.startswith("no float64 matrix rate on v6e") for note in found.notes)
    assert not compare.compared(subjects, some, compare.On.of(chip.load("h100"))).notes
    bare = dataclasses.replace(v6e, numbers={k: n for k, n in v6e.numbers.items() if k != "hbm.bandwidth"})
    (row,) = compare.compared(subjects, some, compare.On.of(bare)).rows
    assert row.floor_s is None and row.floor_measured_rates_s is None and row.ratio is None
