"""Files that other programs open: flame graphs, the modelled timeline, the scope graph: their rules, and their sums."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import authored
import jax
import jax.numpy as jnp
import networkx
import pytest

from costtrace import chip, dataflow, model, timeline
from costtrace.cli import main, source
from costtrace.profiler import Profile, profile
from costtrace.report import flame, graph
from costtrace.report import timeline as report
from costtrace.roofline import TERMS

V6E = chip.load("v6e")
TRIPS, M, K = 3, 256, 512


def program(w: jax.Array, x: jax.Array) -> jax.Array:
    """A loop of two scopes in a third, with ops of its own, between two scopes outside."""

    def layer(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        with jax.named_scope("layer"):
            with jax.named_scope("mix"):
                y = x @ w
            with jax.named_scope("act"):
                y = jnp.tanh(y)
            return x + y, None

    with jax.named_scope('in;"<b>'):
        x = x * 2
    x, _ = jax.lax.scan(layer, x, None, length=TRIPS)
    with jax.named_scope("out"):
        return jax.nn.relu(x)


@pytest.fixture(scope="module")
def stages() -> list[tuple[str, int, Profile]]:
    shape = jax.ShapeDtypeStruct
    return [("run", 4, profile(program, shape((K, K), "bfloat16"), shape((M, K), "bfloat16"), weights=0))]


# The timeline


def test_leaves_partition_the_program(stages: Any) -> None:
    (_, _, made) = stages[0]
    some = timeline.leaves(made, V6E)
    assert sum(leaf.cost.flops for leaf in some) == made.total.flops
    assert sum(leaf.cost.bytes_scoped for leaf in some) == made.total.bytes_scoped
    assert [leaf.path for leaf in some if leaf.own] == [("layer", ".")]


def test_a_loop_is_unfolded_and_times_add_up(stages: Any) -> None:
    (_, _, made) = stages[0]
    slices = timeline.timeline(made, V6E)
    runs = [each for each in slices if each.path == ("layer",)]
    assert len(runs) == TRIPS
    assert [each.path for each in slices[:6]] == [
        ('in;"<b>',), ("layer",), ("layer", "mix"), ("layer", "act"), ("layer", "."), ("layer",)
    ]  # fmt: skip
    assert all(a.end_s == pytest.approx(b.start_s) for a, b in zip(runs, runs[1:], strict=False))
    assert slices[-1].end_s == pytest.approx(sum(leaf.times.seconds for leaf in timeline.leaves(made, V6E)))
    mix = next(each for each in slices if each.path == ("layer", "mix"))
    assert mix.terms["compute"] == pytest.approx(2 * M * K * K / 918e12)


def test_a_program_of_too_many_slices_stands_folded(stages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (_, _, made) = stages[0]
    whole = timeline.timeline(made, V6E)
    monkeypatch.setattr(timeline, "MOST", 6)
    folded = timeline.timeline(made, V6E)
    assert len(folded) < len(whole)
    assert folded[-1].end_s == pytest.approx(whole[-1].end_s)


def test_trace_events_follow_the_format(stages: Any) -> None:
    doc = json.loads(report.trace_events("mine", [*stages, ("again", 1, stages[0][2])], V6E))
    assert doc["displayTimeUnit"] == "ms"
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    named = set()
    for event in doc["traceEvents"]:
        assert event["ph"] in "XM"
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int) and isinstance(event["name"], str)
        if event["ph"] == "M":
            named.add((event["pid"], event["tid"]))
            if "name" in event["args"]:
                assert "modelled" in event["args"]["name"]
            continue
        assert event["ts"] >= 0 and event["dur"] >= 0
        tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert set(tracks) <= named
    assert len({tid for _, tid in named}) == len(named)
    assert all(tid not in (0, pid) for pid, tid in named)  # Perfetto takes 0 for the thread whose number is pid
    scopes = {event["tid"] for event in doc["traceEvents"] if event["args"].get("name") == "scopes (modelled)"}
    assert set(report.UNITS) == set(TERMS)
    for key, some in tracks.items():
        open_until: list[float] = []
        for start, end in some:  # slices of a track lie in each other or apart, and are sorted
            while open_until and open_until[-1] <= start + 1e-6:
                open_until.pop()
            assert not open_until or (key[1] in scopes and end <= open_until[-1] + 1e-6)
            open_until.append(end)
    ends = [max(end for (pid, _), some in tracks.items() for _, end in some if pid == p) for p in (1, 2)]
    assert ends[1] == pytest.approx(2 * ends[0], abs=0.01)  # the same stage again, after the first


# Flame graphs


def test_speedscope_weighs_all_calls(stages: Any) -> None:
    doc = json.loads(flame.speedscope("mine", stages, V6E))
    time, flops, nbytes = doc["profiles"]
    assert [p["unit"] for p in doc["profiles"]] == ["seconds", "none", "bytes"]
    assert flops["endValue"] == sum(flops["weights"]) == 4 * stages[0][2].total.flops
    assert nbytes["endValue"] == 4 * stages[0][2].total.bytes_unfused
    assert time["endValue"] == pytest.approx(4 * timeline.timeline(stages[0][2], V6E)[-1].end_s)
    for each in doc["profiles"]:
        assert len(each["samples"]) == len(each["weights"])
        assert {frame for stack in each["samples"] for frame in stack} <= set(range(len(doc["shared"]["frames"])))
    names = [doc["shared"]["frames"][k]["name"] for k in flops["samples"][0]]
    assert names == ["run", 'in;"<b>', "mul"]


@pytest.mark.parametrize("weight", flame.WEIGHTS)
def test_collapsed_stacks_are_lines_of_frames_and_a_number(stages: Any, weight: str) -> None:
    lines = flame.collapsed("mine", stages, V6E, weight).splitlines()
    assert all(re.fullmatch(r"[^;]+(;[^;]+)* [1-9]\d*", line) for line in lines)
    assert lines[0].startswith('mine;run;in:"<b>')
    sums = {"flops": 4 * stages[0][2].total.flops, "bytes": 4 * stages[0][2].total.bytes_unfused}
    if weight in sums:
        assert sum(int(line.rpartition(" ")[2]) for line in lines) == sums[weight]
    else:
        assert any(line.startswith("mine;run;layer;(own) ") for line in lines)
        seconds = 4 * timeline.timeline(stages[0][2], V6E)[-1].end_s
        assert sum(int(line.rpartition(" ")[2]) for line in lines) == round(1e12 * seconds)
    many = [("run", 1, stages[0][2])] * 1000  # a large sum of small parts is the sum all the same
    huge = [("run", 10**15 + 1, stages[0][2])]
    for some in (many, huge):
        total = sum(int(line.rpartition(" ")[2]) for line in flame.collapsed("mine", some, V6E, weight).splitlines())
        wanted = sum(w for _, w in flame.WEIGHTS[weight][2](some, V6E))
        assert total == (wanted if weight in sums else pytest.approx(1e12 * wanted, rel=1e-12, abs=1))


# The graph


def test_the_graph_has_costs_bytes_and_a_path(stages: Any) -> None:
    (_, _, made) = stages[0]
    found = dataflow.flow(made, V6E)
    assert isinstance(found.graph, networkx.DiGraph)
    assert found.graph.nodes["layer/mix"]["cost"].flops == TRIPS * 2 * M * K * K
    assert found.graph.edges["layer/mix", "layer/act"]["nbytes"] == TRIPS * 2 * M * K
    assert sum(data["cost"].flops for _, data in found.graph.nodes(data=True)) == made.total.flops
    assert found.path_s <= found.serial_s * (1 + 1e-9)


def test_the_path_goes_through_a_loop(stages: Any) -> None:
    """What a trip hands on is read by the next: a loop is one step, between what stands before and behind it."""
    found = dataflow.flow(stages[0][2], V6E)
    assert [set(step) for step in found.path] == [{'in;"<b>'}, {"layer/mix", "layer/act", "layer"}, {"out"}]
    assert found.path_s == pytest.approx(found.serial_s)


def test_two_branches_are_one_path_long() -> None:
    def branches(x: jax.Array) -> jax.Array:
        with jax.named_scope("big"):
            a = x @ x @ x
        with jax.named_scope("small"):
            b = x @ x
        with jax.named_scope("join"):
            return a + b

    made = profile(branches, jax.ShapeDtypeStruct((1024, 1024), "bfloat16"))
    found = dataflow.flow(made, V6E)
    seconds = {name: data["seconds"] for name, data in found.graph.nodes(data=True)}
    assert found.path == [["big"], ["join"]]
    assert found.path_s == pytest.approx(seconds["big"] + seconds["join"])
    assert found.serial_s == pytest.approx(sum(seconds.values()))


def test_a_folded_scope_has_the_sum_of_its_parts(stages: Any) -> None:
    (_, _, made) = stages[0]
    fine, folded = dataflow.flow(made, V6E), dataflow.flow(made, V6E, 1)
    assert set(folded.graph) <= {'in;"<b>', "layer", "out", "(inputs)", ""}
    inside = sum(data["seconds"] for name, data in fine.graph.nodes(data=True) if name.startswith("layer"))
    assert folded.graph.nodes["layer"]["seconds"] == pytest.approx(inside)
    assert folded.serial_s == pytest.approx(fine.serial_s)


def test_dot_is_quoted(stages: Any) -> None:
    text = graph.dot('a "name"', stages, V6E)
    assert text.startswith('digraph "a \\"name\\"" {\n')
    assert '"0:in;\\"<b>" [label="in;\\"<b>\\n' in text
    assert text.count("{") == text.count("}")
    for line in text.splitlines():
        bare = re.sub(r'"(?:\\.|[^"\\])*"', "", line)
        assert '"' not in bare and "<" not in bare
    assert '"0:layer/mix" -> "0:layer/act" [label="786 kB"' in text  # 3 trips x 2 bytes x 256 x 512


# The options


@pytest.mark.slow
def test_a_command_writes_them_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"html": "a.html", "plot": "a.svg", "speedscope": "a.json", "collapsed": "a.txt", "timeline": "b.json",
             "graph": "a.dot"}  # fmt: skip
    assert main(["klein", *(part for k, name in names.items() for part in (f"--{k}", str(tmp_path / name)))]) == 0
    assert capsys.readouterr().err == ""
    assert all((tmp_path / name).stat().st_size > 1000 for name in names.values())
    assert main(["klein", "--chip", "v6e,h100", "--html", str(tmp_path / "two.html")]) == 0
    assert (tmp_path / "two.html").read_text().count("<section data-answer") == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--chip v6e,h100 --graph a.dot", "--graph holds one configuration on one chip, not 2"),
        ("--html nowhere/a.html", "--html nowhere/a.html: No such file or directory"),
        ("--plot a.pdf", "--plot a.pdf: it writes SVG and PNG"),
        ("--chips 8 --graph a.dot", "--graph a.dot: with --chips there is a table, and --html"),
    ],
)
def test_a_file_that_cannot_be(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["klein", *line.split()]) == 2
    assert said in capsys.readouterr().err


PLAIN = "trace mine.py:plain --arg f32[2,2] --arg f32[2,2]"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("klein --plot b.jpg", "--plot b.jpg: it writes SVG and PNG"),
        ("klein --graph nowhere/a.dot", "--graph nowhere/a.dot: No such file or directory"),
        ("klein --graph a --timeline ./a", "writes there too"),
        (f"{PLAIN} --plot b.jpg", "--plot b.jpg: it writes SVG and PNG"),
        (f"{PLAIN} --html nowhere/a.html", "--html nowhere/a.html: No such file or directory"),
        (f"{PLAIN} --optimizer sgdd", "optimizer 'sgdd': choose one of sgd, momentum"),
    ],
)
def test_a_wrong_file_or_optimizer_is_said_before_anything_is_traced(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    authored.folder(tmp_path, monkeypatch)
    monkeypatch.setattr(source, "function", lambda *args: pytest.fail("the function was loaded"))
    monkeypatch.setattr(model, "bind", lambda *args: pytest.fail("a stage was traced"))
    assert main(line.split()) == 2
    assert said in capsys.readouterr().err
