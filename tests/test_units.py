"""Text with units: what is read, what is refused, how numbers are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costtrace import units
from costtrace.errors import UsageError

READ = [
    ("819 GB/s", "B/s", 819 * 10**9),
    ("819GB/s", "B/s", 819 * 10**9),
    ("800 GiB/s", "B/s", 800 * 2**30),
    ("100 Gbit/s", "B/s", 100 * 10**9 / 8),
    ("32 GiB", "B", 32 * 2**30),
    ("126.5 MiB", "B", 132_644_864),  # 126.5 x 2^20
    ("918 TFLOP/s", "FLOP/s", 918 * 10**12),
    ("4.5 PFLOP/s", "FLOP/s", 45 * 10**14),
    ("153.5 TOP/s", "OP/s", 1535 * 10**11),
    ("1.75 GHz", "Hz", 175 * 10**7),
    ("524288 FLOP/cycle", "FLOP/cycle", 2**19),
    ("1 us", "s", 1e-6),
    ("80.3 %", "1", 0.803),
    ("2 devices", "device", 2),
    ("1 device", "device", 1),
    ("58 SMs", "SM", 58),
    ("3.22 USD/h", "USD/h", 3.22),
    ("1e3 GB/s", "B/s", 10**12),
]


@pytest.mark.parametrize(("text", "unit", "value"), READ)
def test_text_is_read_exactly(text: str, unit: str, value: float) -> None:
    assert units.parse(text, unit) == value


REFUSED = [
    ("819", "B/s", "'819' has no unit: write it like '819 GB/s'"),
    (819, "B/s", "819 has no unit: write it as text, like '819 GB/s'"),
    ("819 GFLOP/s", "B/s", "'819 GFLOP/s' is not in B/s: write it like '819 GB/s'"),
    ("100 Gb/s", "B/s", "'100 Gb/s' is not in B/s: write it like '819 GB/s'; bits are written out (Gbit/s)"),
    ("918 TiFLOP/s", "FLOP/s", "'918 TiFLOP/s' is not in FLOP/s: write it like '918 TFLOP/s'"),
    ("-3 GB/s", "B/s", "'-3 GB/s' is negative: a quantity in B/s is zero or more"),
    ("1,638 GB/s", "B/s", "'1,638 GB/s' is not a number: write it without separators, like '819 GB/s'"),
    ("fast", "B/s", "'fast' is not a number with a unit: write it like '819 GB/s'"),
    ("2 SMs", "lane", "'2 SMs' is not in lane: write it like '2 lanes'"),
]


@pytest.mark.parametrize(("text", "unit", "message"), REFUSED)
def test_what_is_refused_says_how_to_write_it(text: str, unit: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        units.parse(text, unit)
    assert str(error.value) == message


SHOWN = [
    (819 * 10**9, "B/s", "819 GB/s"),
    (1638 * 10**9, "B/s", "1.638 TB/s"),
    (0.0111013, "s", "11.1 ms"),
    (47 * 10**10, "FLOP/s", "470 GFLOP/s"),
    (999_960, "B", "1 MB"),  # four digits: 999.96 k rounds to 1 M
    (0, "B", "0 B"),
    (0.803, "1", "80.3 %"),
    (4, "link", "4 links"),
    (1, "link", "1 link"),
    (None, "s", "?"),
]


@pytest.mark.parametrize(("value", "unit", "text"), SHOWN)
def test_numbers_are_shown_with_the_prefix_that_fits(value: float | None, unit: str, text: str) -> None:
    assert units.text(value, unit) == text


def test_binary_prefixes_are_for_memories() -> None:
    assert units.binary(128 * 2**20) == "128 MiB"
    assert units.binary(100) == "100 B"
    assert units.binary(None) == "?"


@given(st.floats(1e-9, 1e20))
def test_what_is_shown_reads_back_within_its_digits(value: float) -> None:
    assert units.parse(units.text(value, "B"), "B") == pytest.approx(value, rel=0.5e-3)
