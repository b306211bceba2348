"""Files opened by the programs that they are for, where those are on this machine.

speedscope: `npm pack speedscope`, unpacked; COSTTRACE_SPEEDSCOPE is its folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import toy

from costtrace import chip
from costtrace.report import flame, graph

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


@pytest.mark.skipif(shutil.which("dot") is None, reason="no Graphviz on PATH")
def test_graphviz_draws_the_graph(stages: Any) -> None:
    text = graph.dot("mine", stages, V6E)
    drawn = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True)
    assert drawn.stderr == "" and "<svg" in drawn.stdout
