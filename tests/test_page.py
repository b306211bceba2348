"""Pages of text: how wide and tall, what stands in them and below them, and in what order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest
import toy
from toy import V6E, array, masked

from costtrace import chip, model
from costtrace.core import Cost
from costtrace.errors import UsageError
from costtrace.profiler import Profile, profile
from costtrace.report import text
from costtrace.report.document import GROUPS, Document, Grouping, document
from costtrace.report.explain import explained
from costtrace.report.explain import text as explanation
from costtrace.report.side import side_by_side
from costtrace.report.views import FIELDS, fields, known, ordered


@pytest.fixture(scope="module")
def small() -> Profile:
    return toy.small()


@pytest.fixture(scope="module")
def two(small: Profile) -> list[tuple[str, int, Profile]]:
    return toy.two(small)


@pytest.fixture(scope="module")
def klein() -> Callable[[str], Document]:
    """klein(chip): its document for a table, at the larger size."""
    found = model.find("klein")
    stages = found.stages(found.configure(res="1360x768"))
    profiles = [(s.name, s.calls, profile(*_bound(s), weights=0)) for s in stages]
    depths = {s.name: s.depth for s in stages}

    def on(name: str) -> Document:
        return document("klein", {"res": "1360x768"}, chip.load(name), profiles, Grouping(depth=depths, merge=True))

    return on


def _bound(stage: model.Stage) -> tuple[Any, ...]:
    fn, args = model.bind(stage)
    return fn, *args


@pytest.mark.parametrize("name", chip.names())
def test_kleins_page_fits_a_screen(name: str, klein: Callable[[str], Document]) -> None:
    lines = text.page(klein(name)).splitlines()
    assert max(map(len, lines)) <= text.WIDTH
    assert len(lines) <= text.HEIGHT


@pytest.mark.parametrize("name", sorted(model.names()))
def test_every_page_is_as_wide_as_a_screen(name: str) -> None:
    found = model.find(name)
    config = found.configure()
    profiles = [(s.name, s.calls, profile(*_bound(s), weights=0)) for s in found.stages(config)]
    depths = {s.name: s.depth for s in found.stages(config)}
    groupings = [Grouping(by=by, depth=depths, merge=True) for by in GROUPS if by != "line"]
    docs = [document(name, found.shown(config), chip.load(c), profiles, groupings[0]) for c in chip.names()]
    docs += [document(name, found.shown(config), V6E, profiles, grouping) for grouping in groupings[1:]]
    pages = [text.page(doc, verbose=verbose, unit=unit) for doc in docs for verbose in (False, True)
             for unit in ("flop", "mac")]  # fmt: skip
    pages.append(side_by_side(docs[: len(chip.names())]))
    row = docs[0]["stages"][0]["rows"][0]["scope"]
    pages.append(explanation(explained(row, profiles, V6E, groupings[0])))
    assert max(len(line) for page in pages for line in page.splitlines()) <= text.WIDTH


def test_a_long_name_is_cut_from_the_left() -> None:
    def named(x: jax.Array) -> jax.Array:
        with jax.named_scope("a" * 60 + "_softmax"):
            return x @ x

    page = text.page(document("f", {}, V6E, [("f", 1, profile(named, array(8, 8)))]))
    assert max(map(len, page.splitlines())) <= text.WIDTH and "  ...a" in page and "a_softmax " in page


def test_what_has_no_meaning_is_a_dash_and_what_is_not_known_a_question_mark() -> None:
    def kept(x: jax.Array) -> jax.Array:
        with jax.named_scope("kept"):
            x = x.reshape(64)
        with jax.named_scope("used"):
            return x * 2

    doc = document("f", {}, V6E, [("f", 1, profile(kept, array(8, 8)))])
    zero = {"part": "f", "status": "exact", "cost": Cost().to_dict(), "floor_s": 0.0, "unfused_s": 0.0}
    zero |= {f"bound_{cut}": None for cut in ("fused", "scoped", "unfused")}
    assert (FIELDS["intensity"].value(zero), FIELDS["bound"].value(zero)) == ("-", "-")
    assert FIELDS["bound"].value(zero | {"unfused_s": None}) is None
    assert "?" not in text.page(doc)


def test_rows_by_weight_have_no_sum_and_say_why(two: list[tuple[str, int, Profile]]) -> None:
    doc = document("toy", {}, V6E, two, Grouping(by="weight"))
    page = text.page(doc)
    assert "sum of rows" not in page and "rows overlap where an op reads two weights" in page
    whole = sum(stage["calls"] * stage["unfused_s"] for stage in doc["stages"])
    for stage in doc["stages"]:
        for row in stage["rows"]:
            assert row["share"] == pytest.approx(stage["calls"] * row["unfused_s"] / whole)


def test_a_page_says_what_its_sums_are(two: list[tuple[str, int, Profile]]) -> None:
    doc = document("toy", {}, V6E, two)
    assert "rows add up serially, to more than their stage's" in text.page(doc)
    for stage in doc["stages"]:
        assert sum(row["floor_s"] for row in stage["rows"]) >= stage["floor_s"]


def test_macs_keep_useful_work() -> None:
    doc = document("toy", {}, V6E, [("f", 1, masked(10**12, 10**12 // 2))])
    assert [f.value(doc["stages"][0]["rows"][0]) for f in fields(doc, "mac")[1:3]] == [10**12 / 2, 10**12 / 4]
    assert "useful" in text.page(doc, unit="mac")


def test_a_page_says_all_that_its_rows_leave_out(klein: Callable[[str], Document]) -> None:
    doc = klein("v6e")
    short, long = text.page(doc), text.page(doc, verbose=True)
    assert "smaller" in short and "smaller" not in long
    for stage in doc["stages"]:
        for row in stage["rows"]:
            assert f"  {row['scope']} " in long
    assert long.count("sum of rows") == short.count("sum of rows") == 3


def test_status_is_marked_and_its_notes_shown() -> None:
    def either(x: jax.Array) -> jax.Array:
        with jax.named_scope("either"):
            return jax.lax.cond(x.sum() > 0, lambda x: x @ x, lambda x: x, x)

    page = text.page(document("either", {}, V6E, [("either", 1, profile(either, array(8, 8)))]))
    assert "either ~ x1" in page and "~ modelled" in page and "note branch: either: " in page


def test_notes_are_grouped_until_asked_for() -> None:
    notes = [{"kind": f"kind-{k}", "stage": "f", "scope": f"s{n}", "text": "said"} for k in range(5) for n in range(3)]
    doc = {"notes": notes, "stages": [{}, {}]}
    few = text.notes(doc, verbose=False)
    assert few[0] == "note kind-0: f: s0: said (and 2 more: -v)"
    assert few[-1] == "notes of 2 more kinds: -v shows them" and len(few) == text.NOTES + 1
    assert len(text.notes(doc, verbose=True)) == 15


@pytest.mark.parametrize("column", FIELDS)
def test_every_column_sorts(column: str, two: list[tuple[str, int, Profile]]) -> None:
    doc = document("toy", {}, V6E, two)
    kept, rest = ordered(doc, doc["stages"][1], column, 3)
    assert (len(kept), len(rest)) == (3, 1)
    values = [FIELDS[column].value(row) for row in kept]
    if all(isinstance(value, int | float) for value in values):
        assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("by", GROUPS)
def test_sort_takes_the_tables_own_columns(by: str) -> None:
    assert (known("flops", by), known("flops", by, "mac")) == ("flops", "macs")
    assert known("time", "primitive") == "unfused_time" and known("intensity") == "intensity"
    with pytest.raises(UsageError, match=f"the table by {by} has no such column: it has part, "):
        known("size", by)
