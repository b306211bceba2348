"""Emulated float64: the constants and figures of the sources by their arithmetic, the laws of the model, its pages."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costtrace import chip, emulation, publication, scheme
from costtrace.cli import main
from costtrace.core import Cost
from costtrace.demand import Demand, product
from costtrace.emulation import emulated, with_numbers
from costtrace.errors import UsageError
from costtrace.scheme import SCHEMES, Handling, changed, padding

NAMES = ("b300", "b200", "h100", "a100", "l4", "rtx3050", "v5e", "v5p", "v6e", "v7x")
B300, B200, H100, A100, L4, RTX, V5E, V5P, V6E, V7X = map(chip.load, NAMES)
FP8, INT8, SLICES = SCHEMES["ozaki2-fp8"], SCHEMES["ozaki2-int8"], SCHEMES["ozaki1-int8"]
PAPER_FP8 = changed(FP8, count=12)
NOTE_B300, NOTE_B200, NOTE = publication.chip(B300), publication.chip(B200), publication.scheme()
T, P = 1e12, 1e15


def kernel(flops: float, nbytes: float, n_in: float, n_out: float = 0, **more: int) -> Demand:
    """A kernel of float64 vector work."""
    cost = Cost(vector_flops=int(flops), vector_by_dtype={"float64": int(flops)})
    return Demand("k", cost, int(nbytes), int(flops), (), int(flops), 0, int(n_in), int(n_out), **more)


def streaming(intensity: float, phi: float = 1.0, nbytes: int = 8 * 10**9) -> Demand:
    """A kernel of that many FLOP per byte, `phi` of whose bytes are converted."""
    return kernel(intensity * nbytes, nbytes, phi * nbytes / 8)


SMALL = streaming(0.25)

# (what, value, its arithmetic, digits as printed, source)
FIGURES = [
    ("alpha of Ozaki-I", SLICES.products, 8 * 9 / 2, "36", "arXiv:2606.06510 through the survey"),
    ("alpha of Ozaki-II int8", INT8.products, 16, "16", "arXiv:2504.08009"),
    ("alpha of Ozaki-II FP8, r = 12", PAPER_FP8.products, 3 * 12 + 1, "37", "arXiv:2603.10634"),
    ("r for k = 1024", INT8.moduli_for(1024), 15, "15", "ceil((106 + 10) / 7.97) = ceil(14.55)"),
    ("r for k = 16384", INT8.moduli_for(16384), 16, "16", "ceil((106 + 14) / 7.97) = ceil(15.06)"),
    ("longest k, int8 moduli", INT8.longest_k / 1000, 137.438, "137", "k 125^2 < 2^31; about 137 000"),
    ("longest k, 8-bit slices", SLICES.longest_k, 2**31 / (8 * 128**2), "16384", "one library"),
    ("instructions per element", FP8.deconstruct, 16 * 15, "240", "note, section 4"),
    ("beta packed", FP8.packed_beta, 9 * 15 / 64, "2.1", "note, section 6"),
    ("beta planes", FP8.planes_beta, 3 * 15 / 8, "5.6", "note, section 6"),
    ("OI*", emulation.threshold(NOTE_B300, NOTE), 240 * 1.4 / (8 * 75), "0.56", "note, section 5"),
    ("OI* at r = 12", emulation.threshold(NOTE_B300, changed(NOTE, count=12)), 192 * 1.4 / (8 * 75), "0.45",
     "note, section 5"),
    ("FLOPs per element at OI*", 8 * 0.56, 4.48, "4.5", "note, section 5"),
    ("cap of GEMV", emulated(streaming(0.25), NOTE_B300, NOTE).cap, 0.25 / 0.56, "0.45", "note, table 1"),
    ("cap of SpMV, phi as printed", emulated(streaming(2 / 12), NOTE_B300, NOTE).cap_compute, (2 / 12) / 0.56, "0.30",
     "note, table 1"),
    ("cap of SpMV, phi by dtype", emulated(streaming(2 / 12, 8 / 12), NOTE_B300, NOTE).cap_compute,
     (2 / 12) / 0.56 / (8 / 12), "0.45", "audit: 8 of 12 bytes are values"),
    ("cap of the stencil", emulated(streaming(0.5, 0.5), NOTE_B300, NOTE).cap, 0.5 / 0.5 / 0.56, "1.8",
     "note, table 1"),
    ("cap at B = 2", emulated(streaming(0.5), NOTE_B300, NOTE).cap, 0.5 / 0.56, "0.89", "note, table 1"),
    ("cap at B = 8", emulated(streaming(2), NOTE_B300, NOTE).cap, 2 / 0.56, "3.6", "note, table 1"),
    ("B = 8 below its claim", 24 / (2 / 0.56), 6.72, "6.7", "note, table 1"),
    ("c_q parity, B300", emulation.parity(emulated(SMALL, NOTE_B300, NOTE), NOTE_B300, NOTE).convert_compute,
     8 * 75 * 0.25 / (15 * 1.4), "7", "note, section 7"),
    ("c_q parity, B200", emulation.parity(emulated(SMALL, NOTE_B200, NOTE), NOTE_B200, NOTE).convert_compute,
     8 * 75 * 0.25 / (15 * 40), "0.25", "note, section 7"),
    ("instructions for 15 moduli, B200", 0.25 * 15, 3.75, "4", "note, section 7: fewer than 4"),
    ("c_q parity, B200, HBM native", emulation.parity(emulated(SMALL, NOTE_B200, NOTE), NOTE_B200, NOTE).convert,
     8 * 75 / 8 / 15, "5.0", "audit: native is max(W / P, Q / B)"),
    ("emulated TF, 3050 laptop, 36", 15 / 36, 15 / 36, "0.42", "survey: 15 TOP/s measured"),
    ("emulated TF, 3050 laptop, 64", 15 / changed(SLICES, alpha=64.0).products, 15 / 64, "0.23", "s^2 untruncated"),
    ("emulated TF, 3050 laptop, int8", 15 / INT8.products, 15 / 16, "0.9", "survey"),
]  # fmt: skip


def prints(value: float, shown: str) -> bool:
    """True where `value`, rounded to the digits of `shown`, is it (a half either way)."""
    return abs(value - float(shown)) <= 0.5 * 10.0 ** -len(shown.partition(".")[2]) + 1e-9


@pytest.mark.parametrize(("what", "value", "by_hand", "shown", "source"), FIGURES, ids=[f[0] for f in FIGURES])
def test_the_sources_figures(what: str, value: float, by_hand: float, shown: str, source: str) -> None:
    assert value == pytest.approx(by_hand, rel=1e-6), source
    assert prints(value, shown), source


# arXiv:2606.06510's ceilings over the chip files: P_low / alpha in TFLOP/s, to the digits that the survey prints.
CEILINGS = [
    (A100, SLICES, 624 / 36, "17.3"), (A100, INT8, 624 / 16, "39"),
    (H100, SLICES, 1978.9 / 36, "55"), (H100, INT8, 1978.9 / 16, "124"), (H100, PAPER_FP8, 1978.9 / 37, "53"),
    (B200, SLICES, 4500 / 36, "125"), (B200, INT8, 4500 / 16, "281"), (B200, PAPER_FP8, 4500 / 37, "122"),
    (B300, SLICES, 153.5 / 36, "4.3"), (B300, INT8, 153.5 / 16, "9.6"), (B300, PAPER_FP8, 4500 / 37, "122"),
    (L4, SLICES, 242 / 36, "6.7"), (L4, INT8, 242 / 16, "15"), (L4, PAPER_FP8, 242 / 37, "6.5"),
    (RTX, SLICES, 72.8 / 36, "2.0"), (RTX, INT8, 72.8 / 16, "4.6"),
    (V5E, SLICES, 393 / 36, "11"), (V5E, INT8, 393 / 16, "25"),
    (V5P, SLICES, 918 / 36, "26"), (V5P, INT8, 918 / 16, "57"), (V5P, PAPER_FP8, 459 / 37, "12"),
    (V6E, SLICES, 1836 / 36, "51"), (V6E, INT8, 1836 / 16, "115"), (V6E, PAPER_FP8, 918 / 37, "25"),
    (V7X, PAPER_FP8, 4614 / 37, "125"),
]  # fmt: skip


@pytest.mark.parametrize(("on", "by", "tera", "shown"), CEILINGS, ids=[f"{c.name}-{s.name}" for c, s, *_ in CEILINGS])
def test_ceilings(on: chip.Chip, by: scheme.Scheme, tera: float, shown: str) -> None:
    found = emulation.ceiling(by, on)
    assert found is not None
    assert found / T == pytest.approx(tera, rel=0.01)  # a chip file may hold 72.8 as 72.79
    assert prints(found / T, shown)


def test_b300_gains_97_fold_by_fp8_and_a100_wants_int8() -> None:
    assert emulation.ceiling(PAPER_FP8, B300) / 1.25e12 == pytest.approx(4500 / 37 / 1.25)  # 97.3
    assert emulation.ceiling(PAPER_FP8, A100) is None
    assert emulation.ceiling(SLICES, A100) < 19.5e12 < emulation.ceiling(INT8, A100)
    best = {c.name: emulation.best(c).name for c in (B300, B200, H100, A100, V6E, V7X)}
    assert best == {"b300": "ozaki2-fp8", "b200": "ozaki2-int8", "h100": "ozaki2-int8", "a100": "ozaki2-int8",
                    "v6e": "ozaki2-int8", "v7x": "ozaki2-fp8"}  # fmt: skip


def test_one_column_takes_15_percent_of_fp8_peak() -> None:
    # 46 products x 8 columns x 0.25 FLOP/B x 8 TB/s = 736 TFLOP/s, of the note's 5 PFLOP/s and of 4.5
    gemv = product(16384, 1, 16384)
    rough = 46 * 8 * 0.25 * 8 * T
    assert publication.share(gemv, NOTE_B300, NOTE) == pytest.approx(rough / (5 * P), rel=1e-3)
    assert rough / (5 * P) == pytest.approx(0.147, abs=5e-4)
    here = with_numbers(NOTE_B300, {"matrix.float8_e4m3fn": "4500 TFLOP/s"}, "the chip file")
    assert publication.share(gemv, here, NOTE) == pytest.approx(0.164, abs=5e-4)


@pytest.mark.parametrize(("lanes", "reaches"), [("18.61 TOP/s", False), ("37.22 TOP/s", True)])
def test_the_integer_pipe_decides_whether_an_fft_keeps_up(lanes: str, reaches: bool) -> None:
    # Part 2's floor: one number put together for each 8 bytes in and 8 out is 12 x 11 / 16 = 8.25 operations a byte
    each = changed(PAPER_FP8).reconstruct
    assert each is not None
    assert 2 * each / 16 == 8.25
    assert 8.25 * 7.75 == pytest.approx(64, abs=0.1)  # TOP/s at the B300's 7.75 TB/s
    pipe = with_numbers(B300, {"integer.int32": lanes}, "XLA: 64 lanes; NVIDIA's blog: 128")
    run = emulated(kernel(1, 16 * 10**9, 0, 10**9), pipe, PAPER_FP8)
    assert (run.terms["reconstruction"] <= run.terms["memory"]) is reaches


# -- tiles


@pytest.mark.parametrize(("sizes", "ratio"), [
    ((1024, 1, 1024), 8), ((1, 1024, 1024), 8), ((1024, 2, 1024), 4), ((1024, 7, 1024), 8 / 7), ((1024, 8, 1024), 1),
    ((1024, 9, 1024), 16 / 9), ((1024, 1024, 1024), 1), ((1024, 1024, 4), 8), ((1, 1, 1), 16 * 8 * 32),
    ((0, 8, 8), 1),
])  # fmt: skip
def test_tiles_are_executed_whole(sizes: tuple[int, int, int], ratio: float) -> None:
    assert padding((16, 8, 32), *sizes) == pytest.approx(ratio)


def test_a_tpu_has_the_tile_of_its_matrix_unit() -> None:
    assert emulation.best(V6E).tile == (8, 256, 256)
    assert emulation.best(V6E).executed(4096, 1, 4096) == 8  # the vector is the 8 rows, the matrix stays


def test_long_sums_are_split_and_put_together_part_by_part() -> None:
    k = INT8.longest_k
    assert product(8, 8, k).parts(INT8) == 64
    assert product(8, 8, k + 1).parts(INT8) == 2 * 64
    assert product(8, 8, 3 * k).parts(changed(INT8, longest_k=k // 2)) == 6 * 64  # six halves


# -- laws

RATES = st.floats(1e11, 1e14)
KERNELS = st.builds(
    lambda w, q, i, o: kernel(w, q, min(i, q // 8), o),
    st.integers(1, 10**12), st.integers(8, 10**10), st.integers(0, 10**9), st.integers(0, 10**6),
)  # fmt: skip
HOW = st.builds(Handling, st.sampled_from(["overlapped", "serial"]), st.floats(1, 8))


@given(KERNELS, HOW, st.sampled_from([FP8, INT8]))
def test_the_corrected_model_is_never_faster_than_the_original(d: Demand, how: Handling, by: scheme.Scheme) -> None:
    run = emulated(d, B300, by, how)
    assert run.emulated_s >= run.original_s * (1 - 1e-12)
    assert run.speedup is None or run.cap is None or run.speedup <= run.cap * (1 + 1e-12)


@given(KERNELS, RATES)
def test_twice_the_integer_rate_halves_deconstruction(d: Demand, rate: float) -> None:
    once, twice = (emulated(d, with_numbers(B300, {"integer.int32": f"{r!r} OP/s"}, "test"), FP8).terms
                   for r in (rate, 2 * rate))  # fmt: skip
    assert twice["deconstruction"] == pytest.approx(once["deconstruction"] / 2)
    assert twice["reconstruction"] == pytest.approx(once["reconstruction"] / 2)
    assert (twice["matrix"], twice["memory"]) == (once["matrix"], once["memory"])


@given(KERNELS)
def test_nothing_converted_nothing_charged(d: Demand) -> None:
    run = emulated(replace(d, n_in=0), B300, FP8)
    assert run.terms["deconstruction"] == 0
    assert run.cap is None
    stored = emulated(d, B300, FP8, Handling("packed"))
    assert stored.terms["deconstruction"] == 0
    assert stored.terms["memory"] == pytest.approx((d.nbytes + (135 / 64 - 1) * 8 * d.n_in) / 7.75e12)


@given(st.floats(0.01, 100), st.floats(0.1, 1))
def test_the_cap_is_continuous_in_intensity(intensity: float, phi: float) -> None:
    a, b = (emulated(streaming(x, phi, 8 * 10**12), B200, FP8).cap for x in (intensity, intensity * (1 + 1e-6)))
    assert b == pytest.approx(a, rel=2e-6)


@given(st.integers(1, 10**6), st.sampled_from([FP8, INT8]), st.sampled_from([B300, B200, H100]))
def test_a_product_takes_longer_the_longer_its_sum(k: int, by: scheme.Scheme, on: chip.Chip) -> None:
    times = [emulated(product(512, 512, length), on, by).emulated_s for length in (k, k + 1, 2 * k)]
    assert all(a <= b * (1 + 1e-12) for a, b in zip(times, times[1:], strict=False))


@given(st.floats(0.02, 50))
def test_the_cap_is_where_parity_says(intensity: float) -> None:
    d = streaming(intensity)
    need = emulation.parity(emulated(d, B300, FP8), B300, FP8)
    assert emulated(d, B300, changed(FP8, convert=need.convert)).cap == pytest.approx(1)
    pipe = with_numbers(B300, {"integer.int32": f"{need.integer_per_s!r} OP/s"}, "test")
    assert emulated(d, pipe, FP8).cap == pytest.approx(1)
    rate = dict.fromkeys(emulation.FP64, f"{need.fp64_per_s!r} FLOP/s")
    assert emulated(d, with_numbers(B300, rate, "test"), FP8).cap_compute == pytest.approx(1)


def test_serial_and_recomputed_conversion_cost_what_they_say() -> None:
    d = streaming(2)
    shared, serial = emulated(d, B300, FP8), emulated(d, B300, FP8, Handling("serial"))
    again = emulated(d, B300, FP8, Handling(recompute=3))
    dec = 240 * 1e9 / 18.61e12
    assert shared.terms["deconstruction"] == pytest.approx(dec, rel=1e-3)
    assert shared.emulated_s == pytest.approx(dec, rel=1e-3)
    assert serial.emulated_s == pytest.approx(dec + max(serial.terms["matrix"], serial.terms["memory"]), rel=1e-3)
    assert again.terms["deconstruction"] == pytest.approx(3 * shared.terms["deconstruction"])


def test_native_products_fill_tiles_or_take_the_vector_unit() -> None:
    # A100: one column on tensor cores is 8 W / 19.5 TF, on the vector unit W / 9.7 TF
    gemv, gemm = product(4096, 1, 4096), product(4096, 4096, 4096)
    assert emulation.native(gemv, A100).terms["vector"] == pytest.approx(2 * 4096**2 / 9.7e12)
    assert emulation.native(gemm, A100).terms["compute"] == pytest.approx(2 * 4096**3 / 19.5e12)
    assert emulation.native(gemv, B200).bound == "memory"


def test_crossovers_are_the_first_sizes_that_pay() -> None:
    found = emulation.crossovers(B200, FP8, Handling(), 4096)
    for name, made in {"k": lambda k: product(4096, 4096, k), "n": lambda n: product(n, n, n)}.items():
        assert emulated(made(found[name]), B200, FP8).speedup > 1 >= emulated(made(found[name] - 1), B200, FP8).speedup


def test_what_is_not_known_stays_unknown() -> None:
    run = emulated(streaming(1), B300, SLICES)
    assert (run.verdict, run.emulated_s, run.cap, run.speedup) == ("unknown", None, None, None)
    assert "give --convert" in run.missing[0]
    assert emulated(streaming(1, 0), V6E, INT8).verdict == "no native float64"
    assert emulated(Demand("k", Cost(), 8), B300, FP8).verdict == "nothing to emulate"
    with pytest.raises(
        UsageError, match=r"ozaki2-fp8 needs .* products: .* on a100: .*; a100 runs ozaki2-int8, ozaki1-int8"
    ):
        emulated(streaming(1), A100, FP8)


def test_other_work_of_a_kernel_stays_where_it_is() -> None:
    cost = Cost(vector_by_dtype={"float64": 300, "float32": 75 * 10**9}, by_dtype={"bfloat16": 2250 * 10**9})
    d = Demand("k", cost, 8, 200, (), 200)
    assert d.rest.vector_by_dtype == {"float64": 100, "float32": 75 * 10**9}
    run = emulated(d, B300, FP8)
    assert run.terms["rest"] == pytest.approx(1e-3 + 0, rel=1e-3)
    assert run.terms["matrix"] == pytest.approx(1e-3, rel=1e-6)


def test_verdicts_flip_with_the_sources_number() -> None:
    stencil, gemm = streaming(0.5, 0.5).named("stencil"), product(4096, 4096, 4096, "gemm")
    found = {(a.key, a.text): a for a in emulation.alternatives([stencil, gemm], B300, None, Handling())}
    assert found["integer.int32", "75 TOP/s"].flips == (("stencil", "regression", "reachable"),)
    assert found["integer.int32", "37.22 TOP/s"].flips == ()
    assert found["matrix.int8", "4500 TOP/s"].scheme == "ozaki2-int8"
    assert {a.text for k, a in found.items() if "float64" in k[0]} == {"1.2 TFLOP/s", "1.3 TFLOP/s", "1.4 TFLOP/s"}


# -- the command line


def answer(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> str:
    assert main(["emulate", *argv]) == code
    out = capsys.readouterr()
    return out.err if code else out.out


def test_the_page_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ((), ("--chip", "b300,v6e"), ("--format", "md"), ("--format", "csv"), ("--format", "latex")):
        assert "upper bounds of a model, not measurements" in " ".join(answer(capsys, *argv).split())
    assert "overlapped" not in answer(capsys, "--deconstruction", "serial", "--recompute", "2")
    assert "converted 2 times" in answer(capsys, "--recompute", "2")


def test_json_holds_the_contract_and_the_extras(capsys: pytest.CaptureFixture[str]) -> None:
    doc = json.loads(answer(capsys, "--threshold", "--alternatives", "--note", "--format", "json"))
    wanted = {"kernel", "flops", "bytes", "intensity", "phi", "native_s", "emulated_s", "terms", "binding", "cap",
              "speedup", "verdict"}  # fmt: skip
    assert all(wanted <= row.keys() for row in doc["rows"])
    assert doc["threshold_intensity"] == pytest.approx(240 * 1.25 / (8 * 18.61), rel=1e-3)
    assert {"parity", "crossovers", "ceilings", "alternatives", "note", "findings", "scheme", "handling"} <= doc.keys()
    assert doc["note_threshold_intensity"] == pytest.approx(0.56)
    printed = {row["kernel"]: row for row in doc["note"]}
    for row in printed.values():
        if row["cap"] is not None:  # what table 1 prints, from the traced kernels and the printed phi
            digits = len(f"{row['cap']:g}".partition(".")[2]) if row["cap"] != 0.3 else 2
            assert round(row["by_equation"], digits) == row["cap"], row["kernel"]
            assert float(f"{row['traced_intensity']:.2g}") == pytest.approx(row["intensity"])
    assert round(printed["spmv_csr"]["by_traced_phi"], 2) == 0.45
    assert any("0.30 is 0.45" in text for text in doc["findings"])


def test_the_b200_is_bound_by_memory_natively(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(answer(capsys, "--chip", "b200", "--note").split())
    assert "c_q < 0.25 on b200" in text
    assert "it is c_q < 5" in text


def test_the_notes_numbers_by_option(capsys: pytest.CaptureFixture[str]) -> None:
    argv = (
        "--fp64",
        "1.4 TFLOP/s",
        "--integer",
        "75 TOP/s",
        "--hbm",
        "8 TB/s",
        "--low",
        "5 PFLOP/s",
        "--format",
        "json",
    )
    doc = json.loads(answer(capsys, *argv))
    assert doc["threshold_intensity"] == pytest.approx(0.56)
    twelve = json.loads(answer(capsys, *argv, "--moduli", "12"))
    assert twelve["threshold_intensity"] == pytest.approx(0.448)
    verdicts = {row["kernel"]: row["verdict"] for row in doc["rows"]}
    assert [verdicts[k] for k in ("spmv_csr", "gemv", "gemv_b2", "gemv_b8", "gemm")] == [
        "regression", "regression", "regression", "reachable", "not binding"]  # fmt: skip


def test_every_constant_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    argv = "--scheme ozaki1-int8 --moduli 9 --convert 5 --alpha 40 --gamma 10 --tile 8x8x16 --longest-k 99 --beta 1.2"
    doc = json.loads(answer(capsys, *argv.split(), "--format", "json"))
    assert (doc["scheme"]["r"], doc["scheme"]["c_q"], doc["scheme"]["alpha"], doc["scheme"]["gamma"]) == (9, 5, 40, 10)
    assert (doc["scheme"]["tile"], doc["scheme"]["longest_k"], doc["handling"]["beta"]) == ([8, 8, 16], 99, 1.2)


def test_a_function_of_ones_own_by_scope(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    (tmp_path / "solver.py").write_text(
        "import jax\n"
        "def step(a, b, x):\n"
        "    with jax.named_scope('product'):\n"
        "        m = a @ b\n"
        "    with jax.named_scope('apply'):\n"
        "        return m @ x\n"
    )
    target = f"{tmp_path / 'solver.py'}:step"
    given = [f"--arg=f64[{s}]" for s in ("2048,2048", "2048,2048", "2048")]
    doc = json.loads(answer(capsys, target, *given, "--format", "json"))
    rows = {row["kernel"]: row for row in doc["rows"]}
    assert rows["product"]["flops"] == 2 * 2048**3
    assert (rows["product"]["choice"], rows["apply"]["choice"]) == ("emulate", "native")
    assert doc["mixed_s"] == pytest.approx(rows["product"]["emulated_s"] + rows["apply"]["native_s"])
    assert doc["mixed_s"] < min(doc["native_s"], doc["emulated_s"])
    assert "emulate product; leave the rest native" in answer(capsys, target, *given)


@pytest.mark.parametrize(("argv", "said"), [
    (("--scheme", "ozaki2-fp8", "--chip", "a100"), "ozaki2-fp8 needs float8_e4m3fn products"),
    (("--note", "--chip", "l4"), "--note: the note has no numbers for l4: it speaks of b300, b200"),
    (("--tile", "8x8"), "--tile 8x8: write MxNxK, as in 16x8x32"),
    (("--moduli", "0"), "--moduli 0: give a whole number, 1 or more, or auto"),
    (("--moduli", "auto"), "--moduli auto: no published rule for ozaki2-fp8: give a number"),
    (("--set", "grid=0"), "grid 0: must be a whole number, 1 or more"),
    (("--fp64", "1.4"), "'1.4' has no unit"),
    (("nothing",), "no model 'nothing'"),
])  # fmt: skip
def test_messages(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], said: str) -> None:
    assert said in answer(capsys, *argv, code=2)
