"""Published ratios of measured over modelled, and the floors that our own counts give them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import costtrace.cli as cli
from costtrace.errors import FormatError
from costtrace.evidence import measured, ratio
from costtrace.evidence.ratio import Checked, Ratio


@pytest.fixture(scope="module")
def found() -> dict[str, Checked]:
    return {one.ratio.id: one for one in ratio.checked(ratio.ratios())}


def test_every_published_ratio_agrees_or_says_why(found: dict[str, Checked]) -> None:
    quoted = {one.ratio.quoted for one in found.values()}
    assert {"2.4", "2.7", "8.1", "5.4", "1.47", "2.74", "13.7"} <= quoted  # section 7
    for one in found.values():
        assert one.agrees == (not one.ratio.why), one.ratio.id


def test_a_floor_is_made_of_our_own_counts(found: dict[str, Checked]) -> None:
    step = 10_172_971_352_064  # FLOPs of the products of one step, tests/test_klein.py
    assert found["l4-klein-step"].floor_s == pytest.approx(step / 80.6e12)
    assert found["v6e-klein-step"].floor_s == pytest.approx(step / 380.1e12)
    assert found["v6e-klein-step-peak"].floor_s == pytest.approx(step / 918e12)
    single = found["l4-klein-single"]
    assert single.ratio.measured_s == pytest.approx(20 * 12e-3)
    assert single.ratio.measured_s / single.pessimistic_s == pytest.approx(2.38, abs=0.005)


def test_the_text_encoder_is_bound_by_the_bytes_of_its_scopes(found: dict[str, Checked]) -> None:
    text = found["l4-klein-text"]
    assert text.pessimistic_s == pytest.approx(9.223e9 / 226.2e9, rel=1e-3) and text.floor_s < text.pessimistic_s
    assert 0.3189 / (8.918e9 / 226.2e9) == pytest.approx(8.09, abs=0.005)  # the report's own bytes


def test_agreeing_is_to_the_last_digit_that_was_printed() -> None:
    one = Ratio("x", "v6e", "klein", {}, "dit", "1.47 s", "stated", "1.5", "peak", "report")
    assert Checked(one, "report", 1.0, 1.0).agrees and not Checked(one, "report", 1.0, 1.02).agrees  # 1.47, 1.441


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('at = "peak"', 'at = "best"'), "at 'best'"),
        (('source = "update"', 'source = "memory"'), "a source that"),
        (('time = "240 ms"', 'time = "240"'), "no unit"),
        (('quoted = "2.4"', 'quoted = "0"'), "above zero"),
        (("[[ratio]]", "[[ratio]]\nextra = 1"), "unknown field"),
    ],
)
def test_a_ratio_that_must_not_load(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    text = (measured.folder() / measured.RATIOS).read_text()
    (tmp_path / "x.toml").write_text(text.replace(*change, 1))
    with pytest.raises(FormatError, match=message) as e:
        ratio.ratios(tmp_path / "x.toml")
    assert "measurements/x.toml" in str(e.value)


def test_the_command_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "published", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == len(ratio.ratios()) and all(row["tag"] == "M" and row["source"] for row in rows)
    assert cli.main(["compare", "published"]) == 0
    text = capsys.readouterr().out
    assert "l4-klein-vae" in text and "differs" in text and "before their pixels are doubled" in text
    assert cli.main(["compare", "published", "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("id,measured_s,at,quoted,")
