"""Documents, tables and pages: the JSON's keys and laws, how a number is shown, what each format holds."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import jax
import pytest
import toy
from toy import V6E, K, M, N, array, layers, masked

from costtrace import chip
from costtrace.core import Cost
from costtrace.errors import UsageError
from costtrace.profiler import Profile, profile
from costtrace.report import notebook, table, text
from costtrace.report.document import GROUPS, Grouping, document, several
from costtrace.report.explain import explained
from costtrace.report.explain import text as explanation
from costtrace.report.flat import flat
from costtrace.report.output import FORMATS, written
from costtrace.report.table import Column, Table
from costtrace.report.views import VIEWS, label


@pytest.fixture(scope="module")
def small() -> Profile:
    return toy.small()


@pytest.fixture(scope="module")
def two(small: Profile) -> list[tuple[str, int, Profile]]:
    return toy.two(small)


# The document

COST = set(Cost().to_dict())
TIMES = {"floor_s", "pessimistic_s", "bound_fused", "bound_scoped", "bound_unfused"}


def test_the_documents_keys(two: list[tuple[str, int, Profile]]) -> None:
    doc = document("toy", {"size": 3}, V6E, two)
    assert doc["schema"] == "costtrace/1" and doc["costtrace"]
    assert (doc["model"], doc["config"], doc["chip"], doc["status"]) == ("toy", {"size": 3}, "v6e", "exact")
    wanted = {"total", "floor_s", "pessimistic_s", "coverage", "notes", "stages"}
    assert wanted <= doc.keys() and doc["total"].keys() == COST
    for stage in doc["stages"]:
        assert {
            "name",
            "calls",
            "parameters",
            "total",
            "peak_bytes",
            "rows",
            "floor_s",
            "pessimistic_s",
        } <= stage.keys()
        for row in stage["rows"]:
            assert {"scope", "cost", "share", "status", *TIMES} <= row.keys() and row["cost"].keys() == COST
    assert json.loads(json.dumps(doc)) == doc


def test_totals_are_calls_times_stages(two: list[tuple[str, int, Profile]]) -> None:
    doc = document("toy", {}, V6E, two)
    first, second = doc["stages"]
    for key in ("flops", "bytes_fused", "bytes_scoped", "bytes_unfused", "weight_bytes"):
        assert doc["total"][key] == first["total"][key] + 3 * second["total"][key]
    assert doc["floor_s"] == first["floor_s"] + 3 * second["floor_s"]
    rows = [(stage["calls"], row) for stage in doc["stages"] for row in stage["rows"]]
    seconds = sum(calls * row["pessimistic_s"] for calls, row in rows)
    for calls, row in rows:
        assert row["share"] == pytest.approx(calls * row["pessimistic_s"] / seconds)
    assert sum(row["share"] for _, row in rows) == pytest.approx(1)
    assert doc["coverage"] == {"exact": 1.0, "modelled": 0.0, "unknown": 0.0}


def test_the_rows_of_a_norm_and_a_product(small: Profile) -> None:
    norm, linear = document("toy", {}, V6E, [("part", 1, small)])["stages"][0]["rows"]
    assert (norm["scope"], linear["scope"]) == ("norm", "linear")
    assert linear["cost"]["flops"] == 2 * M * K * N
    moved = 2 * (M * K + K * N + M * N)
    assert linear["cost"]["bytes_fused"] == linear["cost"]["bytes_scoped"] == moved
    # 4.29 GFLOP / 918 TFLOP/s = 4.68 us; 13.6 MB / 1638 GB/s = 8.32 us
    assert linear["floor_s"] == pytest.approx(moved / 1638e9)
    assert linear["bound_fused"] == "memory" and 2 * M * K * N / 918e12 < moved / 1638e9


@pytest.mark.parametrize("by", GROUPS)
def test_rows_of_every_grouping(by: str, two: list[tuple[str, int, Profile]]) -> None:
    doc = document("toy", {}, V6E, two, Grouping(by=by))
    whole = by in ("scope", "layer")
    for stage in doc["stages"]:
        if VIEWS[by].adds:
            assert sum(row["cost"]["flops"] for row in stage["rows"]) == stage["total"]["flops"]
        for row in stage["rows"]:
            assert isinstance(row[GROUPS[by]], str)
            assert (row["floor_s"] is not None) == (row["cost"]["bytes_fused"] is not None) == whole
            assert (row["floor_s"] or 0) <= row["pessimistic_s"] <= row["unfused_s"]


def test_data_never_merges_siblings(two: list[tuple[str, int, Profile]]) -> None:
    keys = [row["scope"] for row in document("toy", {}, V6E, two)["stages"][1]["rows"]]
    assert keys == [f"layer_{i}" for i in range(4)]
    merged = document("toy", {}, V6E, two, Grouping(merge=True))["stages"][1]["rows"]
    assert [row["scope"] for row in merged] == ["layer_*"]


def test_what_no_chip_file_prices_is_said(small: Profile) -> None:
    wide = profile(lambda x: x @ x, jax.ShapeDtypeStruct((8, 8), "float16"))
    notes = document("toy", {}, V6E, [("f", 1, wide)])["notes"]
    assert "missing-rate" in [note["kind"] for note in notes]
    assert any("float16" in note["text"] and "v6e" in note["text"] for note in notes)


def test_a_peak_over_the_chips_memory_is_said() -> None:
    side = 120_000
    big = profile(lambda x: x + 1, array(side, side))  # 2 x 28.8 GB
    notes = document("toy", {}, V6E, [("f", 1, big)])["notes"]
    assert "f: peak memory 57.6 GB does not fit hbm (32 GiB)" in [f"{n['stage']}: {n['text']}" for n in notes]


def test_efficiency_slows_products_to_the_measured_rate() -> None:
    square = profile(lambda x: x @ x, array(8192, 8192))
    peak, measured = (
        document("toy", {}, V6E, [("f", 1, square)], Grouping(efficiency=efficiency)) for efficiency in (False, True)
    )
    assert peak["floor_s"] == pytest.approx(2 * 8192**3 / 918e12)
    assert measured["floor_s"] == pytest.approx(2 * 8192**3 / 380.1e12)
    assert "efficiency.bfloat16" in [n["key"] for n in measured["numbers"]]


def test_useful_flops_stand_beside_executed_ones_only_where_they_differ() -> None:
    doc = document("toy", {}, V6E, [("f", 2, masked(918 * 10**9, 459 * 10**9))])
    assert doc["useful_flops"] == 2 * 459 * 10**9
    assert doc["useful_floor_s"] == pytest.approx(2 * 0.0005)
    assert doc["floor_s"] == pytest.approx(2 * 0.001)
    assert text.page(doc).count("useful") == 4  # the column, what it is, all calls' FLOPs and floor
    same = document("toy", {}, V6E, [("f", 2, masked(100, 100))])
    assert "useful_flops" not in same and "useful" not in text.page(same)


# Numbers


def shown(unit: str, *values: Any) -> tuple[str, list[str]]:
    seen = table.shown(Table((Column("x", "x", unit),), [[value] for value in values]))
    return seen.heads[0].replace("\n", " "), [row[0] for row in seen.cells]


SHOWN = {
    "usual prefix": (("B", 5_451e6, 1e6), ("x MB", ["5,451.0", "1.0"])),
    "five digits or so": (("B", 548_396e6, 21.4e6), ("x MB", ["548,396", "21"])),
    "small": (("B", 512, 256), ("x B", ["512.0", "256.0"])),
    "between": (("B", 52_000.0), ("x kB", ["52.000"])),
    "tiny beside large is not zero": (("FLOP", 2908.6e9, 32_832, 0), ("x GFLOP", ["2,908.6", "<0.1", "0"])),
    "time": (("s", 0.0034224, 4e-6), ("x ms", ["3.422", "0.004"])),
    "short time": (("s", 4.2e-5,), ("x us", ["42.000"])),
    "unknown is not zero": (("B", None, 1e6), ("x MB", ["?", "1.000"])),
    "all unknown": (("s", None), ("x ns", ["?"])),
    "share": (("%", 0.33333, 0.0001), ("x %", ["33.3", "<0.1"])),
    "rate": (("FLOP/s", 2307e12, 0.47e12), ("x TFLOP/s", ["2,307.0", "0.5"])),
    "text passes": (("", "double/mlp", None), ("x", ["double/mlp", "?"])),
}  # fmt: skip


@pytest.mark.parametrize("case", SHOWN)
def test_how_a_number_is_shown(case: str) -> None:
    given, expected = SHOWN[case]
    assert shown(*given) == expected


def test_labels() -> None:
    assert [label(key) for key in ("double/mlp", "double/.", ".")] == ["double/mlp", "double (own)", "(no scope)"]


# Formats


def test_csv_holds_every_digit_of_the_json(two: list[tuple[str, int, Profile]]) -> None:
    doc = document("toy", {}, V6E, two)
    rows = list(csv.DictReader(io.StringIO(written([doc], "csv"))))
    expected = [(stage, row) for stage in doc["stages"] for row in stage["rows"]]
    for got, (stage, row) in zip(rows, expected, strict=True):
        assert (got["stage"], int(got["calls"]), got["scope"]) == (stage["name"], stage["calls"], row["scope"])
        assert int(got["flops"]) == row["cost"]["flops"]
        assert float(got["floor_s"]) == row["floor_s"]
    assert written([doc], "tsv").splitlines()[0].split("\t") == list(rows[0])


def test_several_documents_are_told_apart(small: Profile) -> None:
    docs = [document("toy", {"n": n}, chip.load(c), [("f", 1, small)]) for n in (1, 2) for c in ("v6e", "l4")]
    assert json.loads(written(docs, "json"))["runs"] == docs
    rows = list(csv.DictReader(io.StringIO(written(docs, "csv"))))
    assert [(row["chip"], row["n"]) for row in rows[::2]] == [("v6e", "1"), ("l4", "1"), ("v6e", "2"), ("l4", "2")]
    page = written(docs, "text")
    assert "v6e 1" in page and "l4 2" in page and "stage as one kernel" in page
    assert several(docs[:1]) is docs[0]


def test_runs_with_other_parts_keep_their_order() -> None:
    docs = [document("toy", {"n": n}, V6E, [("f", 1, profile(layers, [array(K, K)] * n, array(M, K)))]) for n in (2, 3)]
    parts = [line.split()[0] for line in written(docs, "text").splitlines() if line.startswith("  layer")]
    assert parts == ["layer_0", "layer_1", "layer_2"]


def test_markdown_is_a_table_whose_cells_survive(two: list[tuple[str, int, Profile]]) -> None:
    lines = written([document("toy", {}, V6E, two, Grouping(merge=True))], "md").splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert set(lines[1]) <= set("|:-")
    assert any("`layer_*`" in line for line in lines)


def test_latex_escapes(two: list[tuple[str, int, Profile]]) -> None:
    page = written([document("toy", {}, V6E, two)], "latex")
    assert r"layer\_0" in page and r"share (\%)" in page and page.endswith(r"\end{tabular}")


@pytest.mark.parametrize("form", FORMATS)
def test_macs_are_half_the_products(form: str, small: Profile) -> None:
    doc = document("toy", {}, V6E, [("f", 1, small)])
    page = written([doc], form, unit="mac")
    assert ("MAC" in page) == (form not in table.DATA)
    if form == "text":
        assert f"{M * K * N / 1e9:.3f}" in page


def test_flat_needs_rows_only(small: Profile) -> None:
    seen = flat([document("toy", {}, V6E, [("f", 1, small)])], data=True, top=1)
    assert [row[0] for row in seen.rows] == ["f"]


def test_a_notebook_shows_the_parts(small: Profile) -> None:
    for shown in (notebook.html(small), notebook.markdown(small)):
        assert "norm" in shown and "linear" in shown and "part as one kernel" in shown
    assert notebook.html(small).startswith("<table>")


def test_a_profile_prints_as_one_line(two: list[tuple[str, int, Profile]]) -> None:
    for _, _, made in two:
        said = repr(made)
        assert str(made) == said and "\n" not in said and len(said) < 120
        assert said.startswith(f"Profile({made.name!r}, exact: ") and said.endswith(f"{len(made.scopes())} scopes)")


# Explanations


def explain(name: str, stages: list[tuple[str, int, Profile]]) -> str:
    return explanation(explained(name, stages, V6E, Grouping()))


def test_an_explanation_can_be_followed_by_hand(small: Profile) -> None:
    lines = explain("linear", [("part", 1, small)]).splitlines()
    assert lines[0] == "part: linear on Google TPU v6e (Trillium), one call (1 instances, exact)"
    assert lines[1] == f"counts: flops {2 * M * K * N:,}, matmul_flops {2 * M * K * N:,}"
    moved = 2 * (M * K + K * N + M * N)
    assert lines[2].startswith(f"bytes: fused {moved:,}, scoped {moved:,}, unfused {moved:,}; weights {2 * K * N:,}")
    assert "  compute = 4.295 GFLOP bfloat16 / 918 TFLOP/s = 4.679 us" in lines
    assert "  memory = 13.63 MB / 1638 GB/s = 8.322 us" in lines
    assert any("8.322 us: memory binds" in line for line in lines)
    assert any("918 TFLOP/s" in line and "[S: Google Cloud documentation" in line for line in lines)


def test_an_explanation_of_one_stages_row(two: list[tuple[str, int, Profile]]) -> None:
    assert explain("second:layer_1", two).startswith("second: layer_1 on ")
    with pytest.raises(UsageError, match=r"--explain layer_9: no such row: did you mean layer_"):
        explain("layer_9", two)


def test_work_without_a_price_is_not_0() -> None:
    from jax.extend.core import Primitive

    theirs = Primitive("their_kernel")
    theirs.def_abstract_eval(lambda x: x)

    def fn(x: Any) -> Any:
        with jax.named_scope("theirs"):
            y = theirs.bind(x)
        with jax.named_scope("ours"):
            return y * 2

    found = profile(fn, jax.ShapeDtypeStruct((64, 64), "float32"))
    doc = document("fn", {}, chip.load("v6e"), [("fn", 1, found)], Grouping())
    theirs_row, ours_row = doc["stages"][0]["rows"]
    assert theirs_row["cost"]["flops"] is None and theirs_row["cost"]["matmul_flops"] is None
    assert theirs_row["cost"]["bytes_fused"] == 2 * 4 * 64 * 64  # its bytes are known
    assert ours_row["cost"]["flops"] == 64 * 64
    assert doc["coverage"] == {"exact": None, "modelled": None, "unknown": None}


def test_the_heading_says_how_much_is_counted_how() -> None:
    side = 64

    def fn(x: Any) -> Any:
        return jax.lax.linalg.cholesky(x, symmetrize_input=False) + x

    exact = document("toy", {}, V6E, [("f", 3, profile(lambda x: x + x, array(side, side)))])
    assert text.page(exact).splitlines()[2] == "counted: all 1 ops exactly"
    some = profile(fn, jax.ShapeDtypeStruct((side, side), "float32"))
    doc = document("toy", {}, V6E, [("f", 3, some)])
    total, modelled = some.total.flops, some.total.linalg_flops  # n^3 / 3, by LAPACK's leading term
    assert doc["coverage"]["modelled"] == pytest.approx(modelled / total)
    n = doc["ops"]["exact"]
    assert text.page(doc).splitlines()[2] == (
        f"counted: {n} exactly ({100 - 100 * modelled / total:.1f} % of FLOPs), "
        f"1 modelled ({100 * modelled / total:.1f} % of FLOPs) of {n + 1} ops"
    )
