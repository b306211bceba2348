"""The HTML page: what is in it, that no name becomes markup, and (marked browser) that a browser renders and drives it.

The browser's tests need playwright and a Chromium on PATH: `pytest -m browser`.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jax
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from costtrace import chip
from costtrace.cli import main
from costtrace.core import EXACT, Cost
from costtrace.memory import Peak
from costtrace.profiler import Profile, profile
from costtrace.report import chart, html
from costtrace.report.document import Answer
from costtrace.report.views import FIELDS, VIEWS
from costtrace.summary import Record

EVIL = '<img src=x onerror="window.hit=1">'
CHIPS = ("v6e", "h100")


def program(w: jax.Array, x: jax.Array) -> jax.Array:
    with jax.named_scope(EVIL):
        x = jax.nn.silu(x @ w)
    with jax.named_scope("deep"), jax.named_scope("inner"):
        x = x @ w
    with jax.named_scope("</script><b>"):
        return x + 1


@pytest.fixture(scope="module")
def text() -> str:
    shape = jax.ShapeDtypeStruct
    made = profile(program, shape((64, 64), "bfloat16"), shape((32, 64), "bfloat16"), weights=0)
    stages = [("first", 1, made), ("second", 3, made)]
    row = {"stage": EVIL, "row": EVIL, "quantity": "flops", "unit": "FLOP", "hand": 1, "traced": 2, "xla": None,
           "compiled": None, "tags": {"hand": "S"}, "formula": [EVIL], "verdict": EVIL}  # fmt: skip
    strategy = {"name": EVIL, "chips": 8, "blocked": False, "work_s": 1.0, "collective_s": 2.0}
    blocked = strategy | {"name": "slow", "blocked": True, "work_s": 1e3}
    beside: dict[str, Any] = {
        "audit": {"findings": [{"text": EVIL}] * 9, "rows": [row]}, "strategies": [strategy, blocked],
        "measured": {"first": (0.5, EVIL)},
    }  # fmt: skip
    return html.page([Answer(EVIL, {"n": 3}, stages, {"first": 1, "second": 2}, chip.load(name), **beside)
                      for name in CHIPS])  # fmt: skip


class Page(HTMLParser):
    """What a browser would make of the page: its elements, their attributes, the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""


def test_no_name_becomes_markup_and_nothing_is_fetched(text: str) -> None:
    page = Page(text)
    tags = {tag for tag, _ in page.tags}
    assert "svg" in tags
    assert not tags & {"img", "link", "iframe", "object", "embed", "a"}
    for tag, attributes in page.tags:
        assert not {"src", "href", "onerror", "onclick", "onload"} & set(attributes), tag
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-"
    )


def test_every_answer_has_its_parts(text: str) -> None:
    page = Page(text)
    sections = [a for tag, a in page.tags if tag == "section"]
    assert [a["data-answer"] for a in sections] == ["0", "1"]
    assert ["hidden" in a for a in sections] == [False, True]
    trees = [json.loads(script) for script in page.scripts if script.startswith("{")]
    assert [tree["n"] for tree in trees] == [EVIL, EVIL]
    first, second = trees[0]["c"]
    assert [node["n"] for node in first["c"]] == [EVIL, "deep", "<", "(arguments)"]  # after a slash is within
    assert second["n"] == "second x3"


def test_every_witness_and_chart_is_there(text: str) -> None:
    first = text[text.index('data-answer="0"') : text.index('data-answer="1"')]
    for head in ("Roofline", "Time by part", "Time by strategy", "Memory over the program", "Audit of the hand count"):
        assert f"<h2>{head}" in first
    assert "measured 500 ms [M]" in first and "1 smaller" in first
    assert "work 1 s, links 2 s" in first
    assert "; does not fit or divide: slow, 8 chips" in first and "slow, 8 chips (does not" not in first
    assert "undivided, on one chip" in first
    assert not re.search(r"#[0-9a-f]{6}", first), "a colour that does not follow light and dark"


def test_the_icicle_adds_up() -> None:
    shape = jax.ShapeDtypeStruct
    made = profile(program, shape((64, 64), "bfloat16"), shape((32, 64), "bfloat16"), weights=0)
    tree = html.tree_of("mine", Answer("mine", {}, [("run", 3, made)], {}, chip.load("v6e")))

    def total(node: dict[str, Any], k: int) -> float:
        return node["v"][k] if "v" in node else sum(total(child, k) for child in node["c"])

    k = {words: k for k, (words, _) in enumerate(html.MEASURES)}
    assert total(tree, k["FLOPs"]) == 3 * made.total.flops
    assert total(tree, k["scoped bytes"]) == 3 * made.total.bytes_scoped
    assert total(tree, k["unfused bytes"]) == 3 * made.total.bytes_unfused
    assert total(tree, k["memory at the peak, of one call"]) == made.peak.nbytes


def test_the_plot_is_an_svg_of_its_own() -> None:
    made = profile(program, jax.ShapeDtypeStruct((64, 64), "bfloat16"), jax.ShapeDtypeStruct((32, 64), "bfloat16"))
    answer = Answer(EVIL, {}, [("run", 1, made)], {"run": 1}, chip.load("v6e"))
    text = html.plot(answer, "svg").decode()
    assert html.plot(answer, "svg").decode() == text
    assert html.plot(answer, "png").startswith(b"\x89PNG")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    found = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert found[0] == f"{EVIL} on Google TPU v6e (Trillium)"
    assert sum(each is not None and each.startswith(f"run: {EVIL}") for each in found) == 1
    assert "var(" not in text and "img" not in {each.tag for each in root.iter()}


@pytest.mark.slow
def test_depth_is_that_of_the_pages_parts_and_of_the_plots_points(tmp_path: Path) -> None:
    html_, plot = tmp_path / "a.html", tmp_path / "a.svg"
    assert main(["klein", "--depth", "1", "--html", str(html_), "--plot", str(plot)]) == 0
    parts = [a["title"] for tag, a in Page(html_.read_text()).tags if a.get("class") == "part"]
    assert "double" in parts and not any("/" in (part or "") for part in parts)
    points = [each.text or "" for each in ElementTree.parse(plot).iter("{http://www.w3.org/2000/svg}title")]
    assert sum(text.startswith("dit: double: ") for text in points) == 1 and not any("double/" in t for t in points)


CROWD = (("attn/qkv", 1300, 918), ("mlp/up", 1300, 918), ("mlp/down", 1070, 918), ("attn/sdpa", 1040, 740),
         ("attn/out", 630, 918), ("attn/norm", 1, 1.6), ("mlp/norm", 1, 1.6))  # fmt: skip
"""Parts of a block on a v6e: name, FLOP/B, TFLOP/s."""


@pytest.mark.parametrize("some", [CROWD, CROWD[:2], CROWD[3:5], CROWD[-2:]])
def test_every_point_of_a_small_roofline_has_its_name_and_no_two_meet(
    some: tuple[tuple[str, float, float], ...],
) -> None:
    shares = [(7 - k) / 28 for k in range(len(some))]
    points = [chart.Point(name, across * 1e9, 1e9, 0.1, across / (1e3 * up), "compute", share)
              for (name, across, up), share in zip(some, shares, strict=True)]  # fmt: skip
    made = chart.roofline(points, {"bfloat16": 918e12}, 1.638e12)
    assert made is not None
    FigureCanvasAgg(made.figure).draw()
    (axes,) = made.figure.axes
    names = {name for name, _, _ in some}
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text() in names]
    assert {text.get_text() for text in axes.texts} >= names and len(boxes) == len(names)
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert all(axes.bbox.contains(*corner) for box in boxes for corner in box.corners())


def large(n: int) -> Profile:
    """A profile of n scopes, none of them numbered siblings, which a table would merge."""
    costs = {f"part_{k}_x": Cost(vector_flops=k + 1, bytes_fused=8, bytes_scoped=8, bytes_unfused=16,
                               vector_by_dtype={"float32": k + 1}) for k in range(n)}  # fmt: skip
    total = Cost(vector_flops=n * (n + 1) // 2, bytes_fused=8, bytes_scoped=8 * n, bytes_unfused=16 * n,
                 vector_by_dtype={"float32": n * (n + 1) // 2})  # fmt: skip
    records = [Record(k, "forward", "add", "float32", EXACT, 1, 0, c) for k, c in costs.items()]
    return Profile("large", total, EXACT, [], 0, Peak(), records, {"": total, **costs}, dict.fromkeys(costs, 1))


# In a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on PATH")
    with api.sync_playwright() as p:
        made = p.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """opened(text, **context): the page of that text, which must say nothing on the console and ask for no network."""
    said: list[str] = []

    def show(text: str, **context: Any) -> Any:
        (tmp_path / "page.html").write_text(text, encoding="utf-8")
        page = browser.new_page(**context)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
        page.goto((tmp_path / "page.html").as_uri())
        page.wait_for_function("document.documentElement.dataset.ready === '1'")
        return page

    yield show
    assert said == []


@pytest.mark.browser
def test_a_browser_sorts_zooms_and_switches_chip(opened: Any, text: str) -> None:
    page = opened(text)
    assert page.evaluate("window.hit") is None
    table = page.locator("section[data-answer='0'] table.sortable")
    flops = "rows => rows.map(r => Number(r.cells[1].dataset.v))"
    rows = table.locator("tbody").first.locator("tr:not(.stage)")
    table.locator("thead button").nth(1).click()
    values = rows.evaluate_all(flops)
    assert values == sorted(values, reverse=True) and len(set(values)) > 1
    table.locator("thead button").nth(1).press("Enter")
    assert rows.evaluate_all(flops) == values[::-1]
    icicle = page.locator("section[data-answer='0'] .icicle")
    before = int(icicle.get_attribute("data-cells"))
    icicle.locator("rect").nth(1).click()
    assert int(icicle.get_attribute("data-cells")) < before
    page.keyboard.press("Escape")
    assert int(icicle.get_attribute("data-cells")) == before
    icicle.locator("rect").nth(1).press("Enter")
    icicle.locator("nav button").first.click()
    assert int(icicle.get_attribute("data-cells")) == before
    focus = "rects => rects.indexOf(document.activeElement)"
    cells = icicle.locator("rect")
    cells.first.focus()
    seen = []
    for arrow in ("ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp", "ArrowUp"):
        page.keyboard.press(arrow)
        seen.append(cells.evaluate_all(focus))
    assert seen[0] == seen[2] == 1 and seen[1] > 1 and seen[3:] == [0, 0]  # down to the first child, beside it, back
    assert icicle.locator("rect[tabindex='0']").count() == 1  # one stop for Tab, however many cells
    for k in (k for k in range(len(html.MEASURES)) if k != html.PREDICTED):
        icicle.locator("select").select_option(str(k))
        assert int(icicle.get_attribute("data-cells")) >= 3
    page.locator("#picker").select_option("1")
    assert page.locator("section[data-answer='1']").is_visible()
    assert not page.locator("section[data-answer='0']").is_visible()
    assert page.locator("section[data-answer='1'] .icicle rect").count() >= 3


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(opened: Any, text: str, scheme: str) -> None:
    page = opened(text, color_scheme=scheme)
    sums = (
        "style => [style.color, style.backgroundColor].map(c => c.match(/[0-9]+/g).reduce((s, n) => s + Number(n), 0))"
    )
    front, back = page.evaluate(f"({sums})(getComputedStyle(document.body))")
    assert abs(front - back) > 400
    assert (front > back) == (scheme == "dark")


def test_every_column_says_what_it_is(text: str) -> None:
    heads = [a["title"] or "" for tag, a in Page(text).tags if tag == "button" and "title" in a]
    assert heads[0].startswith("a named scope [D] ") and "bytes with every primitive a kernel [D] " in " ".join(heads)
    assert set(html.WORDS) >= {field.column.key for field in map(FIELDS.get, VIEWS["scope"].fields) if field}

    def attend(x: jax.Array) -> jax.Array:  # scores between two scopes: more bytes than the two as one kernel move
        with jax.named_scope("attention"):
            with jax.named_scope("scores"):
                scores = x @ x.T
            with jax.named_scope("values"):
                x = scores @ x
        with jax.named_scope("after"):
            return x + 1

    made = profile(attend, jax.ShapeDtypeStruct((4096, 64), "bfloat16"))
    split = html.page([Answer("mine", {}, [("run", 1, made)], {"run": 1}, chip.load("v6e"))])
    assert "bound where fused/scoped/unfused bytes differ: " in split and "C compute" in split


def test_one_answer_needs_no_picker(text: str) -> None:
    made = profile(program, jax.ShapeDtypeStruct((64, 64), "bfloat16"), jax.ShapeDtypeStruct((32, 64), "bfloat16"))
    alone = html.page([Answer("mine", {}, [("run", 1, made)], {"run": 1}, chip.load("v6e"))])
    assert '<p hidden><label>Show <select id="picker">' in alone and 'class="named"' not in alone
    assert '<p><label>Show <select id="picker">' in text and text.count('class="named"') == 2


@pytest.mark.browser
def test_a_phone_keeps_the_parts_names_in_sight(opened: Any, text: str) -> None:
    page = opened(text, viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    wide = page.locator("section[data-answer='0'] .wide").first
    part, stage, second = (
        wide.locator(css).first for css in ("td.part", "tr.stage span", "tr:not(.stage) td >> nth=1")
    )
    before = [each.bounding_box() for each in (part, stage, second)]
    wide.evaluate("box => { box.scrollLeft = 150; }")
    after = [each.bounding_box() for each in (part, stage, second)]
    assert before[1]["x"] + before[1]["width"] <= 390
    assert [a["x"] - b["x"] for a, b in zip(after, before, strict=True)] == [0, 0, -150]


@pytest.mark.browser
def test_names_on_colour_are_dark_in_the_dark_and_print_says_what_widths_are(opened: Any, text: str) -> None:
    page = opened(text, color_scheme="dark")
    fill = "text => getComputedStyle(text).fill"
    icicle = page.locator("section[data-answer='0'] .icicle")
    assert icicle.locator("text.on").first.evaluate(fill) == "rgb(17, 17, 17)"
    assert icicle.locator("text:not(.on)").first.evaluate(fill) == "rgb(230, 230, 230)"
    page.emulate_media(media="print")
    assert icicle.locator("select").is_visible() and not page.locator("#picker").is_visible()
    assert page.locator("section[data-answer='0'] .called").is_visible()
    assert not icicle.locator(".screen").is_visible() and not icicle.locator("nav").is_visible()


@pytest.mark.browser
def test_ten_thousand_rows_load_in_three_seconds(opened: Any) -> None:
    made = large(10_000)
    text = html.page([Answer("large", {}, [("run", 1, made)], {"run": 1}, chip.load("v6e"))])
    start = time.monotonic()
    page = opened(text)
    rows = page.locator("section[data-answer='0'] table.sortable tbody tr:not(.stage)")
    assert rows.count() >= 10_000
    assert time.monotonic() - start < 3
    seen = "rows => rows.filter(r => r.offsetHeight > 0).map(r => Number(r.cells[1].dataset.v))"
    assert len(rows.evaluate_all(seen)) == html.ROWS
    page.locator("thead button").nth(1).click()
    assert rows.evaluate_all(seen) == list(range(10_000, 10_000 - html.ROWS, -1))
    page.locator("button.all").click()
    assert len(rows.evaluate_all(seen)) == 10_000


def test_figures_of_a_program_that_is_partly_unknown_say_so() -> None:
    def search(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda c: c.sum() < 3, lambda c: c @ c, x)

    made = profile(search, jax.ShapeDtypeStruct((8, 8), "float32"))
    text = html.page([Answer("mine", {}, [("search", 1, made)], {"search": 1}, chip.load("v6e"))])
    assert "1.15 kFLOP ?</b>work" in text  # 2 x 8 x 8 x 8, and the sum's 63 before each trip and after
    assert "<span>search ? x1: " in text
