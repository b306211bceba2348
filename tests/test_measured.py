"""Measurements as data: sources, errors, bands."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import costtrace
from costtrace import chip, model
from costtrace.errors import FormatError
from costtrace.evidence import band, measured
from costtrace.report import validate


def test_measurements_load_with_source_and_derivation() -> None:
    rows = measured.measurements()
    assert {row.id for row in rows} >= {"v6e-klein-dit", "v6e-klein-vae", "v6e-klein-text", "l4-klein-dit"}
    assert all(row.source and row.derivation and row.date and row.formulation for row in rows)
    assert all(chip.load(row.chip) for row in rows)


def test_errors_weigh_twice_and_half_the_same() -> None:
    assert measured.error(2.0, 1.0) == measured.error(0.5, 1.0) == pytest.approx(math.log(2))
    rows = measured.measurements()
    device = [measured.Validation(r, r.measured_s / 4, r.measured_s * 2) for r in rows if r.device]
    other = [measured.Validation(r, r.measured_s / 99, None) for r in rows if not r.device]
    pairs = [(v.measurement, v.predicted_s) for v in device]
    head = {"schema": "s", "costtrace": "v", "bands": [one.to_dict() for one in band.bands(pairs)]}
    found = measured.document(device + other, head)
    assert found["mean_error_floor"] == pytest.approx(math.log(4))
    assert found["mean_error_predicted"] == pytest.approx(math.log(2))
    assert {"id", "chip", "stage", "measured_s", "floor_s", "predicted_s", "source"} <= set(found["rows"][0])
    assert all(band["low"] == 0.5 and band["high"] == 1.0 for band in found["bands"])
    text = validate.printed({**found, "left_out": ["x: no compiler"]}, "text")
    assert "4.00x" in text and "2.00x" in text and "note: x: no compiler" in text
    assert len(validate.printed(found, "csv").splitlines()) == 1 + len(rows)


def test_bands_are_what_is_recorded_over_what_was_measured() -> None:
    found = band.known()
    rows = {row.id: row for row in measured.measurements()}
    assert {(chip.load(row.chip).kind, row.kind) for row in rows.values() if row.device} == set(found)
    for one in found.values():
        assert one.low <= 1 <= one.high and one.rows and all(rows[name].device for name in one.rows)
    pairs = [(rows["v6e-klein-dit"], rows["v6e-klein-dit"].measured_s * 2), (rows["v6e-klein-text"], 1.0)]
    (one,) = band.bands(pairs)
    assert (one.platform, one.kind, one.low, one.high, one.rows) == ("tpu", "products", 0.5, 1.0, ("v6e-klein-dit",))


def test_a_kind_is_what_a_stage_is_made_of() -> None:
    for row in measured.measurements():
        found = model.find(row.model)
        (stage,) = (s for s in found.stages(found.configure(**row.config)) if s.name == row.stage)
        fn, args = model.bind(stage)
        total = costtrace.profile(fn, *args, weights=0).total
        assert row.kind == band.kind_of(total.matmul_flops, total.conv_flops)
    assert band.kind_of(0, 0) is None


def test_predictions_are_written_as_they_are_read(tmp_path: Path) -> None:
    rows = [measured.Validation(r, 1.0, r.measured_s * 2, versions={"jax": "1"}) for r in measured.measurements()]
    (tmp_path / "p.toml").write_text(band.recorded(rows, "2026-12"))
    found = band.known(tmp_path / "p.toml")
    assert {(round(one.low, 4), one.high) for one in found.values()} == {(0.5, 1.0)}
    (tmp_path / "p.toml").write_text(band.recorded(rows, "2026-12").replace("v6e-klein-dit", "nobody"))
    with pytest.raises(FormatError, match="validate --record"):
        band.known(tmp_path / "p.toml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('time = "39.41 ms"', 'time = "39.41"'), "no unit"),
        (('tag = "M"', 'tag = "D"'), "a measurement has M"),
        (('source = "report"', 'source = "memory"'), "does not name"),
        (("device = true", "device = false"), "`why`"),
        (("[[row]]", "[[row]]\nextra = 1"), "unknown field"),
    ],
)
def test_a_measurement_without_its_source_does_not_load(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    text = (measured.folder() / "klein.toml").read_text()
    (tmp_path / "x.toml").write_text(text.replace(*change, 1))
    with pytest.raises(FormatError, match=message) as e:
        measured.load(tmp_path / "x.toml")
    assert "measurements/x.toml" in str(e.value)
