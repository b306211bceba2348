"""A sweep: a row a point, failures told, rows remembered, the same table after a kill in the middle."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from costtrace import chip, sweep
from costtrace.cli import main
from costtrace.errors import UsageError
from costtrace.report import chart
from costtrace.report.output import FORMATS
from costtrace.report.sweep import document, printed
from costtrace.target import setup
from costtrace.target.cache import Answers
from costtrace.target.worker import CompileError

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


def test_stages_are_shares_of_the_work_by_clip_length() -> None:
    """A report on Stable Audio 3 gives a clip of 120 s 64.0 % to the DiT and 36.0 % to the codec."""
    point, _ = sweep.sweep(sweep.jobs("sa3", {"seconds": ["120", "0"]}, ["v6e"], [1]), backend="sequential")
    assert point["derived"]["latents"] == 1358
    dit, codec = (point["stages"][name] / sum(point["stages"].values()) for name in ("dit", "codec"))
    assert (round(100 * dit), round(100 * codec)) == (64, 36)
    text = printed(document("sa3", [point]), "text")
    assert "latents" in text and "codec" in text


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


def test_rows_are_asked_for_again_when_what_the_model_imports_changed(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "inner_of_small.py"
    inner.write_text("WIDTH = 128\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    Path(small).write_text(MODEL.replace("return x @", "import inner_of_small as inner\n        return x @")
                           .replace("128))", "inner.WIDTH))"))  # fmt: skip
    assert rows(small)[0]["flops"] == 3 * 2 * 8 * 64 * 128
    inner.write_text("WIDTH = 256  # wider\n")
    sys.modules.pop("inner_of_small")  # another command has nothing imported yet
    assert rows(small)[0]["flops"] == 3 * 2 * 8 * 64 * 256
    sys.modules.pop("inner_of_small")


UNKNOWN = MODEL.replace("return x @ param", "x = jax.lax.while_loop(lambda y: y.sum() < 3, lambda y: y * 2, x)\n"
                        "        return x @ param")  # fmt: skip


def test_what_a_row_leaves_out_is_said(small: str, tmp_path: Path) -> None:
    """A program that is partly unknown, work that a chip has no rate for, and a chip that has no memory rate."""
    Path(small).write_text(UNKNOWN)
    assert "v6e ?" in printed(document("small", rows(small)), "text")
    Path(small).write_text(MODEL.replace("bfloat16", "float64"))
    doc = document("small", rows(small, on=["h100", "v6e"]))
    assert [bool(row["missing"]) for row in doc["rows"]] == [False, True, False, True]
    text = " ".join(printed(doc, "text").split())
    assert "v6e ?" in text and "h100 ?" not in text and "no float64 matrix rate on v6e" in text
    spec = (Path(sweep.chips.__file__).parent.parent / "chips" / "v6e.toml").read_text()
    start = spec.index("[hbm.bandwidth]")
    nameless = spec[:start] + spec[spec.index("\n[", start) :]
    bare = tmp_path / "bare.toml"
    bare.write_text(nameless.replace('name = "v6e"', 'name = "bare"').replace("aliases = [", 'aliases = ["bare2"] #['))
    (row, *_) = rows(small, on=[str(bare)])
    assert row["floor_s"] is None and row["error"].startswith("no hbm rate on bare: no seconds are known on it")


def test_pessimistic_seconds_of_several_chips_are_a_kernel_a_scope(small: str) -> None:
    """As on one chip: what lies between scopes moves; links come on top."""
    twice = MODEL.replace("return x @", "x = x + 1\n    with scope('on'):\n        return x @")
    Path(small).write_text(twice)
    one, four = rows(small, counts=[1, 4], given={"tokens": ["64"], "width": ["64"]}, strategies=["data"])
    weights, x, y = 2 * 64 * 128, 2 * 64 * 64, 2 * 64 * 128
    rate = chip.load("v6e").hbm_bytes_per_s
    assert rate is not None
    assert one["pessimistic_s"] == pytest.approx(3 * (3 * x + weights + y) / rate.value)
    assert four["pessimistic_s"] == pytest.approx(3 * ((3 * x + y) / 4 + weights) / rate.value)


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


@pytest.mark.slow
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


COMPILER = setup.place("tpu")


@pytest.mark.slow
@pytest.mark.skipif(not COMPILER.is_dir(), reason="needs costtrace setup tpu")
def test_a_compiled_sweep_asks_the_chips_compiler(small: str, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "environments").symlink_to(COMPILER.parent)
    first, second = rows(small, on=["v6e"], counts=[1, 2], given={"tokens": ["512"]}, compiled=True, price=1.0)
    assert first["predicted_s"] > first["floor_s"] and first["compiled_peak_bytes"] and not first["error"]
    assert first["usd"] == pytest.approx(first["predicted_s"] / 3600)
    assert second["predicted_s"] is None and not second["error"]


def test_a_compile_that_fails_is_a_row_that_says_why(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise CompileError("small for v6e: the compile took longer than 1 s and was stopped")

    monkeypatch.setattr(sweep.compiler, "ask", broken)
    monkeypatch.setattr(sweep.setup, "python", lambda kind: "python")
    first, _ = rows(small, compiled=True)
    assert first["error"].startswith("small for v6e: the compile took longer")
    assert first["predicted_s"] is None and first["floor_s"] > 0


def test_a_plot_has_a_line_for_each_chip(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["sweep", small, "--tokens", "8,16", "--chip", "v6e,l4", "--backend", "sequential", "--plot"]
    assert main([*argv, str(tmp_path / "a.svg")]) == 0
    text = (tmp_path / "a.svg").read_text()
    assert "1 x v6e, floor" in text and "1 x l4, floor" in text
    assert main([*argv, str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert main([*argv, str(tmp_path / "a.pdf")]) == 2
    assert "give a name that ends in .svg or .png" in capsys.readouterr().err


@pytest.mark.slow
def test_a_plot_over_two_options_has_a_line_for_each_value_of_one(small: str) -> None:
    some = rows(small, given={"tokens": ["8", "16", "32"], "width": ["64", "128"]})
    text = chart.sweep("small", some, "svg").decode()
    assert "1 x v6e, width 64, floor" in text and "1 x v6e, width 128, floor" in text
    assert all(f">{tokens}<" in text for tokens in (8, 16, 32)) and ">tokens<" in text
    one = chart.sweep("small", rows(small, given={"tokens": ["8", "16"], "width": ["64"]}), "svg").decode()
    assert "1 x v6e, floor" in one and "tokens, width 64" in one


def test_a_sweep_says_what_it_remembers_lacks_and_loses(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    layer = 'return jax.nn.silu(x @ param("w", (x.shape[-1], 128))) @ param("d", (128, x.shape[-1]))'
    Path(small).write_text(MODEL.replace('return x @ param("w", (x.shape[-1], 128))', layer))
    argv = ["sweep", small, "--tokens", "8,16", "--chips", "1,8", "--strategy", "tp", "--backend", "sequential"]
    assert main(argv) == 0
    first = capsys.readouterr()
    assert first.err == ""
    said = " ".join(first.out.split())
    assert "USD per 1000" not in said and "no price of v6e is known: --price 2.70" in said
    assert "share of the FLOPs" not in said  # one stage
    assert said.count("slower than on 1 chip") == 2  # an all-reduce's latency alone is more than a few rows take
    assert main([*argv, "--tokens", "8,16,32"]) == 0
    assert "note: 2 of 3 configurations are remembered from an earlier sweep" in capsys.readouterr().err
    assert main([*argv, "--price", "2"]) == 0
    assert "USD per 1000" in capsys.readouterr().out


@pytest.mark.parametrize("most", [1.2, 3.0, 30.0, 1e4])
def test_a_plot_has_ticks_to_read_whatever_it_spans(most: float) -> None:
    rows = [{"config": {"n": str(n)}, "chip": "v6e", "chips": 1, "floor_s": s, "predicted_s": None}
            for n, s in ((1, 0.04), (2, 0.04 * most))]  # fmt: skip
    text = chart.sweep("small", rows, "svg").decode()
    assert len(re.findall(r">[0-9.]+ [mk]?s<", text)) >= 3


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


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """The address of a Dask scheduler with two workers, each a process of its own."""
    file = tmp_path / "scheduler.json"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    own = ["--scheduler-file", str(file)]
    env = {**os.environ, "COSTTRACE_CACHE": str(tmp_path / "workers")}
    first = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", *own]
    second = [sys.executable, "-m", "distributed.cli.dask_worker", "--nworkers", "2", "--nthreads", "1", *own]
    some = [subprocess.Popen(argv, env=env, **quiet) for argv in (first, second)]
    try:
        for _ in range(300):
            if file.is_file() and file.stat().st_size:
                break
            assert all(each.poll() is None for each in some)
            time.sleep(0.1)
        yield json.loads(file.read_text())["address"]
    finally:
        for each in reversed(some):
            each.terminate()
            each.wait()


@pytest.mark.cluster
def test_a_dask_cluster_gives_the_same_rows(small: str, scheduler: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "costtrace", "sweep", small, "--tokens", "8,16,none,32", "--format", "csv"]
    texts = []
    for backend in ("sequential", "dask"):
        env = {**os.environ, "COSTTRACE_CACHE": str(tmp_path / backend), "DASK_SCHEDULER_ADDRESS": scheduler}
        run = [*argv, "--backend", backend, "--jobs", "2"]
        texts.append(subprocess.run(run, env=env, capture_output=True, text=True, check=True).stdout)
    assert texts[0] == texts[1] and "must be a whole number" in texts[0]
    assert _counter(tmp_path / "workers" / "sweep")() == 3  # the workers did it, and remember
