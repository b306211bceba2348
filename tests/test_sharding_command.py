"""`--chips`: whole answers, errors, and the formula behind a number."""

from __future__ import annotations

import json

import pytest

from costtrace.cli import main


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["klein", *argv])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_ranks_strategies(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--chips", "8", "--strategy", "ulysses,data,tp", "--format", "json")
    doc = json.loads(out)
    assert code == 0
    assert [s["name"] for s in doc["strategies"]] == ["tp", "ulysses", "data"]
    first = doc["strategies"][0]
    assert first["collective_s"] == pytest.approx(sum(c["time_s"] for c in first["collectives"]))
    assert first["floor_s"] == pytest.approx(max(first["work_s"], first["collective_s"]))
    assert first["serial_s"] == pytest.approx(first["work_s"] + first["collective_s"])
    assert first["mesh"] == {"model": 8}
    assert doc["strategies"][2]["problems"][0].startswith("text: batch 1 does not divide by 8")


def test_padding_to_a_kernels_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--res", "1360x768", "--chips", "8", "--strategy", "ulysses")
    assert "dit: tokens 4080 = 8 x 510\n" in out
    assert "dit: tokens 4080 padded to 4096 (blocks of 128): +0.392%" in out
    assert "dit: tokens 4592 = 8 x 574\n" in out
    assert "dit: tokens 4592 padded to 4608 (blocks of 128): +0.348%, attention +0.698%" in out


@pytest.mark.parametrize(("argv", "said"), [
    (["--chips", "8", "--mesh", "data=2,model=2", "--strategy", "tp"], "--chips says 8"),
    (["--chips", "8", "--mesh", "a=8"], "no one strategy knows the axes a"),
    (["--chips", "0"], "write numbers of chips"),
    (["--strategy", "tp"], "say how many chips"),
    (["--chips", "2", "--chip", "rtx3050"], "has no links"),
    (["--chips", "8", "--strategy", "tp", "--explain", "dit"], "it takes a strategy: tp"),
])  # fmt: skip
def test_the_command_refuses_in_one_line(capsys: pytest.CaptureFixture[str], argv: list[str], said: str) -> None:
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_explain_shows_formula_values_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--chips", "8", "--strategy", "tp", "--explain", "tp")
    assert "2 (N-1)/N S on 8 chips (4 x 2): 16.52 MB / (2 links x 100 GB/s); latency 8 x 1 us = 90.58 us" in out
    assert "by hand: 2 (N-1)/N S = 16.52 MB / 400 GB/s (all links, one ring) = 41.29 us" in out
    assert "v6e link.bandwidth = 100 GB/s [D: " in out
    assert "How to Scale Your Model" in out
