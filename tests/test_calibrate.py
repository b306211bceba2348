"""Calibration on times that the test makes up; what numpy says of each workload; and once for real (slow)."""

import dataclasses
import json
import math
from pathlib import Path

import jax
import jsonschema
import pytest

from costtrace import chip
from costtrace.cli import main
from costtrace.errors import UsageError
from costtrace.grid import KINDS, Grid, Point
from costtrace.measure import calibration, chipwriter, clock, device
from costtrace.measure.calibration import BETWEEN, Calibration, Session, Sizes
from costtrace.measure.clock import Effort, Timing
from costtrace.measure.workload import CHAIN, WORKLOADS, Workload, wrong
from costtrace.report import calibrate as report
from costtrace.report.schema import SCHEMAS

CPU = device.Device("cpu", "A processor, 2 cores", 1, "costtrace 0, jax 0", 32 * 2**20, 8 * 2**30)
SMALL = {
    "product": Sizes(("float32", "bfloat16"), ((1, 8), (8,), (8,))),
    "copy": Sizes(("",), ((800, 80_000),)),
    "add": Sizes(("float32", "bfloat16", "int32"), ((64,),)),
    "exp": Sizes(("float32",), ((64,),)),
    "host to device": Sizes(("",), ((4096,),)),
}
LAUNCH_S, TRIP_S = 1e-6, 10e-6


class Times:
    """Made-up timings: a product runs at 1e6 multiply-adds a second, anything else takes 100 us, and each trip has its
    kernels' launches on top. `samples` makes three samples of a median."""

    def __init__(self, samples=lambda s: (s, s, s)) -> None:
        self.samples = samples
        self.asked = 0

    def __call__(self, made: Workload) -> Timing:
        self.asked += 1
        carry = made.carry
        seconds = 1e-4
        if len(carry) == 3:
            seconds = carry[0].size * carry[1].shape[-1] / 1e6
        elif carry[0].shape == (4, 4):
            seconds = (1 if self.asked == 1 else calibration.TINY) * LAUNCH_S - LAUNCH_S
        return Timing(1.0, self.samples(seconds + TRIP_S + made.kernels * LAUNCH_S))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(calibration, "QUICK", SMALL)


def session(times: Times, noise: float = 0.15, on: device.Device = CPU, **more) -> Session:
    call = Timing(1.0, (5e-6, 5e-6, 5e-6))
    made = Session(on, True, noise, times, lambda run: call, lambda made: None, **more)
    made.patience = 0.0
    return made


# -- the clock


def test_a_slope_holds_nothing_that_a_call_costs_once() -> None:
    at = [0.0]

    def run(trips: int) -> None:
        at[0] += 5.0 + 0.25 * trips

    found = clock.slope(run, Effort(sample_s=2.0, budget_s=1000, least=3), now=lambda: at[0])
    assert found.samples_s == pytest.approx([0.25] * 3)
    assert found.first_s == 5.25
    assert found.calls * 0.25 >= 2.0


# -- workloads


@pytest.mark.parametrize("kind", sorted(set(WORKLOADS) - set(BETWEEN)))
def test_a_workload_computes_what_it_says(kind: str) -> None:
    dtype = "" if calibration.FULL[kind].dtypes == ("",) else "float32"
    assert wrong(kind, dtype, WORKLOADS[kind](dtype, 4096, *calibration.CHECKED.get(kind, (100,)))) < 1e-5


def test_every_kind_of_grid_is_timed() -> None:
    assert set(WORKLOADS) | {"host to device"} == set(KINDS)
    assert set(calibration.FULL) == set(KINDS)
    for kind, sizes in calibration.FULL.items():
        assert len(sizes.axes) == len(KINDS[kind])


def test_a_wrong_result_is_refused(monkeypatch) -> None:
    made = WORKLOADS["product"]("float32", 0, 5, 7, 9)
    bad = dataclasses.replace(made, expected=lambda data, carry: 2 * made.expected(data, carry))
    monkeypatch.setitem(WORKLOADS, "product", lambda *args: bad)
    with pytest.raises(UsageError, match=r"product float32: .* 50.00% from numpy's"):
        calibration.checked(["product"])


# -- what is written


def test_a_size_is_priced_without_launch_and_trip(small) -> None:
    done = session(Times()).run()
    assert done.overhead == pytest.approx({"dispatch": 5e-6, "launch": LAUNCH_S, "trip": TRIP_S})
    seconds = {(s.kind, s.dtype, s.sizes): s.seconds for s in done.sampled}
    assert seconds["product", "float32", (8, 8, 8)] == pytest.approx(8 * 8 * 8 / 1e6)
    assert seconds["exp", "float32", (64,)] == pytest.approx(1e-4 / CHAIN)


def test_the_file_loads_and_says_what_was_measured(small, tmp_path: Path) -> None:
    done = session(Times()).run()
    out = tmp_path / "mine.toml"
    samples = chipwriter.write(out, done, "2026-12-01", None)
    mine = chip.load(str(out))
    assert mine.kind == "cpu" and mine.grids["product", "float32"].seconds(8, 8, 8) == pytest.approx(
        512 / 1e6, rel=1e-4
    )
    rate = mine.number("matrix.float32")
    assert rate is not None and rate.tag == "M" and rate.value == pytest.approx(2e6, rel=1e-4)  # 2 FLOPs a multiply-add
    assert "no datasheet" in rate.convention and "jax 0" in rate.source and rate.date == "2026-12-01"
    assert mine.value("hbm.bandwidth") == pytest.approx(80_000 / 1e-4, rel=1e-4)
    assert mine.value("hbm.capacity") == 8 * 2**30 and mine.value("memory.l2") == 32 * 2**20
    raw = json.loads(samples.read_text())
    assert len(raw["samples"]) == len(done.sampled) and raw["samples"][0]["samples_s"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.samples.json", "mine.toml"]


def test_its_document_follows_its_schema(small, tmp_path: Path) -> None:
    done = session(Times()).run()
    out = tmp_path / "mine.toml"
    doc = json.loads(json.dumps(report.document(done, out, chipwriter.write(out, done, "2026-12-01", None))))
    jsonschema.validate(doc, SCHEMAS["calibrate"])
    product = next(g for g in doc["grids"] if (g["kind"], g["dtype"]) == ("product", "float32"))
    assert product["unit"] == "FLOP/s" and product["best_per_s"] == pytest.approx(2e6, rel=1e-3)
    assert "matrix.float32 = 2 MFLOP/s [M]" in report.text(doc)


def test_an_accelerator_keeps_its_datasheet_and_gains_what_it_reached(small, tmp_path: Path) -> None:
    done = session(Times(), on=dataclasses.replace(CPU, kind="gpu", name="NVIDIA L4")).run()
    sheet = device.datasheet(done.device, None)
    assert sheet is not None and sheet.name == "l4"
    chipwriter.write(tmp_path / "mine.toml", done, "2026-12-01", sheet)
    mine = chip.load(str(tmp_path / "mine.toml"))
    peak, kept = sheet.number("matrix.bfloat16"), mine.number("matrix.bfloat16")
    assert peak is not None and kept is not None
    assert (kept.value, kept.tag, kept.source) == (peak.value, peak.tag, peak.source)
    assert mine.value("efficiency.bfloat16") == pytest.approx(2e6 / peak.value, rel=1e-3)


def test_a_rate_above_the_datasheet_is_refused(small) -> None:
    done = session(Times()).run()
    sheet = chip.load("l4")
    low = dataclasses.replace(sheet.numbers["matrix.float32"], value=1e6)
    sheet = dataclasses.replace(sheet, numbers=sheet.numbers | {"matrix.float32": low})
    with pytest.raises(UsageError, match="--datasheet"):
        chipwriter.text(done, "mine", "2026-12-01", sheet)


def test_an_accelerator_that_no_file_names_asks_for_one() -> None:
    with pytest.raises(UsageError, match="--datasheet NAME"):
        device.datasheet(dataclasses.replace(CPU, kind="gpu", name="Nobody's accelerator"), None)


# -- noise


def test_samples_that_disagree_are_refused(small) -> None:
    with pytest.raises(UsageError, match=r"too noisy to write: .* sizes vary by more than 30%"):
        session(Times(lambda s: (s, 2 * s, 3 * s))).run()


def test_trips_that_take_less_than_none_are_refused(small) -> None:
    with pytest.raises(UsageError, match="so much that more trips took less time"):
        session(Times(lambda s: (-s,) * 3 if s < 1 else (s,) * 3), noise=1.0).run()


def test_noise_that_is_allowed_is_written(small) -> None:
    done = session(Times(lambda s: (s, 2 * s, 3 * s)), noise=0.3).run()
    assert {round(s.timing.spread, 6) for s in done.sampled if s.kind == "copy"} == {(2.5 - 1.5) / 2}


def test_a_noisy_machine_gets_a_file_that_says_so_where_that_is_allowed(small, tmp_path: Path) -> None:
    """The error says how much would do; with so much there is a file, and it is flagged."""

    def busy() -> Times:
        return Times(lambda s: (s, 4 * s, 8.9 * s))

    with pytest.raises(UsageError, match=r"by 99%: run it on a quiet machine, or allow it with --noise 0.5$"):
        session(busy()).run()  # quartiles 2.5 s and 6.45 s: 3.95 s over 4 s
    done = session(busy(), noise=0.5).run()
    chipwriter.write(tmp_path / "mine.toml", done, "2026-12-01", None)
    mine = chip.load(str(tmp_path / "mine.toml"))
    assert mine.title.endswith(", calibrated 2026-12-01, on a noisy machine")
    assert "spread by 99% in the median and 99% at most" in mine.notes[-1] and "noisy" in mine.notes[-1]
    quiet = session(Times()).run()
    assert "noisy" not in chipwriter.text(quiet, "mine", "2026-12-01", None)


def test_noise_may_be_more_than_all(monkeypatch, tmp_path: Path, capsys) -> None:
    monkeypatch.setattr(Session, "run", lambda self: (_ for _ in ()).throw(UsageError(f"noise {self.out.noise}")))
    assert main(["calibrate", "--noise", "3", "--out", str(tmp_path / "mine.toml")]) == 2
    assert "noise 3.0" in capsys.readouterr().err


def test_a_size_of_which_more_trips_took_less_time_is_left_out(monkeypatch) -> None:
    monkeypatch.setattr(calibration, "QUICK", SMALL | {"copy": Sizes(("",), (tuple(range(800, 896, 8)),))})
    times = Times()
    odd = session(lambda made: Timing(1.0, (-1e-3,) * 3) if made.carry[0].size == 808 // 8 else times(made))
    whole = session(Times()).run()
    done = odd.run()
    assert (done.lost, len(done.sampled)) == (1, len(whole.sampled) - 1)
    assert "1 sizes are left out" in chipwriter.text(done, "mine", "2026-12-01", None)


def test_a_clock_that_drifts_is_refused(small) -> None:
    at = [1.0]

    def slower(seconds: float) -> tuple[float, ...]:
        at[0] *= 1.1
        return (seconds * at[0],) * 3

    with pytest.raises(UsageError, match=r"the same product took .* longer than its fastest"):
        session(Times(slower)).run()


def test_a_disturbed_size_is_timed_again(small) -> None:
    passed: list[float] = []

    def burst(seconds: float) -> tuple[float, ...]:
        passed.append(seconds)
        return (seconds * (3 if 4 <= len(passed) <= 8 else 1),) * 3

    made = session(Times(burst))
    made.patience = math.inf
    done = made.run()
    assert done.again > 0
    assert {round(s.seconds, 9) for s in done.sampled if s.kind == "copy"} == {1e-4}


def test_nothing_is_written_where_it_is_too_noisy(small, monkeypatch, tmp_path: Path, capsys) -> None:
    def noisy(self: Session) -> Calibration:
        self.time_of = Times(lambda s: (s, 2 * s, 3 * s))
        self.time_of_call = lambda run: Timing(1.0, (1e-6,) * 3)
        self.patience = 0.0
        return run(self)

    run = Session.run
    monkeypatch.setattr(Session, "run", noisy)
    assert main(["calibrate", "--quick", "--out", str(tmp_path / "mine.toml")]) == 2
    assert "too noisy to write" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("out", "said"),
    [("mine.txt", "ends in .toml"), ("nowhere/mine.toml", "give the path of a file in a folder that is there")],
)
def test_a_place_to_write_is_asked_for_first(out: str, said: str, monkeypatch, tmp_path: Path, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate", "--out", out]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_this_machine_is_calibrated_or_refused(tmp_path: Path, capsys) -> None:
    out = tmp_path / "here.toml"
    code = main(["calibrate", "--quick", "--noise", "0.5", "--out", str(out), "--format", "json"])
    said = capsys.readouterr()
    if code == 2:  # a busy machine
        assert "too noisy to write" in said.err and not list(tmp_path.iterdir())
        return
    assert code == 0
    doc = json.loads(said.out)
    here = chip.load(str(out))
    assert doc["numbers"] and {n.tag for n in here.numbers.values()} <= {"M", "S"}
    for kind in ("product", "copy", "exp"):
        assert any(k == kind for k, _ in here.grids)


def test_rates_of_the_chip_come_from_sizes_that_take_long_enough() -> None:
    """A tiny product of which nearly all was overhead is no peak."""
    points = (Point((1, 8, 8), 64 / 1e12), Point((64, 64, 64), 64**3 / 1e9))
    grid = Grid("product", "float32", points)
    launch_s = 1e-6
    assert points[0].seconds < chipwriter.LONG * launch_s < points[1].seconds
    assert chipwriter._best(grid, launch_s, 2) == (pytest.approx(2e9), "product, m 64, n 64, k 64")
    assert chipwriter._best(grid, 1.0, 2)[0] == pytest.approx(2e9)  # none is long enough: the longest


def test_half_of_a_trip_is_work_at_least() -> None:
    session = Session(CPU, True)
    session.out.overhead = {"dispatch": 0.0, "launch": 1.0, "trip": 1.0}
    session.kernels["copy"] = (1, 1)
    for trip_s, work_s in ((10.0, 8.0), (3.0, 1.5), (2.0, 1.0)):
        assert session.sampled(("copy", "", (8,)), Timing(0.0, (trip_s,), 1)).seconds == work_s


def test_no_compiler_folds_the_chain_of_additions() -> None:
    """x + 1 eight times is x + 8; what is timed as sixteen operations must be sixteen."""
    made = WORKLOADS["add"]("float32", 0, 64)
    text = jax.jit(lambda c: made.body((), 0, c)).lower(made.carry).compile().as_text()
    assert (text.count(" abs("), text.count(" subtract(") + text.count(" add(")) == (8, 8)
