"""A sweep: a row a point, failures told, rows remembered, the same table after a kill in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from costtrace import chip, sweep
from costtrace.cli import main
from costtrace.errors import UsageError
from costtrace.report.output import FORMATS
from costtrace.report.sweep import document, printed
from costtrace.target.cache import Answers

MODEL = '''
"""A small model."""
import jax, os, time
from dataclasses import dataclass
from costtrace.model import Model, Stage, option, param, scope

@dataclass(frozen=True)
class Config:
    tokens: int = option(8, help="tokens")
    width: int = option(64, help="width")

def forward(x):
    with scope("up"):
        return x @ param("w", (x.shape[-1], 128))

def stages(c):
    time.sleep(float(os.environ.get("SLOW", "0")))
    return [Stage("run", forward, (jax.ShapeDtypeStruct((c.tokens, c.width), "bfloat16"),), calls=3)]

MODEL = Model("small", Config, stages)
'''


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a model, with a cache of its own beside it."""
    monkeypatch.setenv("COSTTRACE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "small.py").write_text(MODEL)
    return str(tmp_path / "small.py")


def rows(name: str, **more: Any) -> list[sweep.Row]:
    given = {"tokens": ["8", "16"], "width": ["64"]}
    return sweep.sweep(sweep.jobs(name, **{"given": given, "on": ["v6e"], "counts": [1], **more}), backend="sequential")


def test_a_row_is_all_calls_of_a_point(small: str) -> None:
    first, second = rows(small, price=2.0)
    assert first["config"] == {"tokens": "8", "width": "64"}
    flops = 3 * 2 * 8 * 64 * 128
    assert (first["flops"], second["flops"]) == (flops, 2 * flops)
    nbytes = 2 * (8 * 64 + 64 * 128 + 8 * 128)
    assert first["bytes_fused"] == 3 * nbytes
    rate = chip.load("v6e").hbm_bytes_per_s
    assert rate is not None
    assert first["floor_s"] == pytest.approx(3 * nbytes / rate.value)
    assert first["usd"] == pytest.approx(2.0 * first["floor_s"] / 3600)
    assert (first["strategy"], first["fits"], first["error"]) == ("one chip", True, "")


def test_several_chips_have_the_best_strategy(small: str) -> None:
    one, four = rows(small, given={"tokens": ["4096"]}, counts=[1, 4])
    assert (one["chips"], four["chips"]) == (1, 4)
    assert four["strategy"] != "one chip"
    assert four["flops"] == one["flops"] // 4
    assert four["pessimistic_s"] >= four["floor_s"]


def test_a_failed_point_is_a_row_that_says_why(small: str) -> None:
    good, bad = rows(small, given={"tokens": ["8", "none"]})
    assert good["error"] == "" and good["flops"]
    assert bad["error"] == "tokens none: must be a whole number, 1 or more"
    assert bad["flops"] is None and bad["floor_s"] is None
    assert "1 of 2 points failed" in printed(document("small", [good, bad]), "text")


def test_what_is_not_there_is_said_first(small: str) -> None:
    with pytest.raises(UsageError, match="has no option 'tokenz': it takes tokens, width"):
        rows(small, given={"tokenz": ["8"]})
    with pytest.raises(UsageError, match="no chip 'v66'"):
        rows(small, on=["v66"])
    with pytest.raises(UsageError, match="no strategy 'tpp'"):
        rows(small, counts=[8], strategies=["tpp"])


def test_rows_are_remembered_until_anything_changes(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rows(small)
    ran: list[Any] = []
    real = sweep._rows
    monkeypatch.setattr(sweep, "_rows", lambda job: ran.append(job) or real(job))
    assert rows(small) == first and not ran
    rows(small, price=3.0)
    assert len(ran) == 2
    Path(small).write_text(MODEL.replace("128", "256"))
    assert rows(small)[0]["flops"] == 2 * first[0]["flops"]


def test_a_failure_is_tried_again(small: str, tmp_path: Path) -> None:
    rows(small, given={"tokens": ["none"]})
    answers = Answers(place=tmp_path / "cache" / "sweep")
    job, *_ = sweep.jobs(small, {"tokens": ["none"]}, ["v6e"], [1])
    assert sweep.remembered(job)[0]["error"]
    assert not answers.problems


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_prints_it(form: str, small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["sweep", small, "--tokens", "8,16", "--chip", "v6e,l4", "--backend", "sequential", "--format", form]) == 0
    )
    out, err = capsys.readouterr()
    assert err == "" and "v6e" in out
    if form == "json":
        assert [(row["config"]["tokens"], row["chip"]) for row in json.loads(out)["rows"]] == [
            ("8", "v6e"), ("8", "l4"), ("16", "v6e"), ("16", "l4")
        ]  # fmt: skip


def test_processes_give_the_same_rows(small: str) -> None:
    jobs = sweep.jobs(small, {"tokens": ["8", "16", "32"]}, ["v6e"], [1])
    heard: list[tuple[int, int]] = []
    many = sweep.sweep(jobs, 2, "loky", lambda done, of: heard.append((done, of)))
    assert heard == [(1, 3), (2, 3), (3, 3)]
    Answers(place=sweep.folder() / "sweep").clear()
    assert many == sweep.sweep(jobs, 1, "sequential")


@pytest.mark.slow
def test_a_sweep_survives_a_kill(small: str, tmp_path: Path) -> None:
    """60 points; killed when some are done, it ends with the same table, without asking for those again."""
    points = [str(8 * k) for k in range(1, 61)]
    argv = [sys.executable, "-m", "costtrace", "sweep", small, "--tokens", ",".join(points), "--jobs", "2"]

    def run(cache: str, slow: str) -> dict[str, str]:
        return {**os.environ, "COSTTRACE_CACHE": str(tmp_path / cache), "SLOW": slow}

    whole = subprocess.run(argv, env=run("whole", "0"), capture_output=True, text=True, check=True).stdout
    started = subprocess.Popen(argv, env=run("cut", "0.2"), start_new_session=True, stdout=subprocess.PIPE)
    known = _counter(tmp_path / "cut" / "sweep")
    while known() < 5:
        assert started.poll() is None
        time.sleep(0.1)
    os.killpg(started.pid, signal.SIGKILL)
    started.communicate()
    done = known()
    assert 5 <= done < 60
    again = subprocess.run(argv, env=run("cut", "0"), capture_output=True, text=True, check=True).stdout
    assert again == whole
    assert known() == 60


def _counter(place: Path) -> Callable[[], int]:
    import sqlite3

    def known() -> int:
        if not (place / "cache.db").is_file():
            return 0
        try:
            with sqlite3.connect(place / "cache.db") as disk:
                return int(disk.execute("select count(*) from Cache").fetchone()[0])
        except sqlite3.OperationalError:
            return 0

    return known


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_rows(small: str) -> None:
    pytest.importorskip("distributed")
    argv = [sys.executable, "-m", "costtrace", "sweep", small, "--tokens", "8,16,32", "--format", "csv", "--backend"]
    texts = []
    for number, backend in enumerate(("sequential", "dask")):
        env = {**os.environ, "COSTTRACE_CACHE": f"{os.environ['COSTTRACE_CACHE']}{number}"}
        texts.append(subprocess.run([*argv, backend], env=env, capture_output=True, text=True, check=True).stdout)
    assert texts[0] == texts[1]
