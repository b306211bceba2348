"""The chip files: all load, every number has a source, what a file may not say is refused with line and fix."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from costtrace import chip, chipfile
from costtrace.errors import ChipError, UsageError

SHIPPED = sorted(p.stem for p in chip.folder().glob("*.toml"))
PRODUCTS = {"v4", "v5e", "v5p", "v6e", "v7x", "l4", "a100", "h100", "h200", "b200", "b300", "rtx3050"}


@pytest.fixture(autouse=True)
def _no_chips_of_this_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COSTTRACE_CHIPS", str(tmp_path / "none"))


def test_the_twelve_chips_are_there() -> None:
    assert set(SHIPPED) == PRODUCTS
    assert chip.names() == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_every_number_says_where_it_comes_from(name: str) -> None:
    c = chip.load(name)
    assert c.name == name
    assert c.path == f"chips/{name}.toml"
    for n in c.numbers.values():
        assert n.value > 0
        assert n.tag in "MDS"
        assert len(n.source) > 5, n.key
        assert re.match(r"20\d\d-\d\d", n.date), n.key
        assert bool(n.derivation) == (n.tag == "D"), n.key
        for other in n.conflicts:
            assert other.source and other.why and other.value > 0, n.key
    for key in ("matrix.bfloat16", "matrix.float32", "hbm.bandwidth", "hbm.capacity", "cores.devices"):
        assert c.number(key), key
    for key in ("vector.float32", "transcendental.float32", "integer.int32", "matrix.float64", "matrix.int8"):
        assert c.number(key) or c.missing[key], f"{key} is neither given nor said to be missing"


PAGE = (Path(__file__).parent.parent / "docs" / "chips.md").read_text()


def cells(heading: str) -> list[tuple[str, str]]:
    """The first two cells of each row of the table under a heading of docs/chips.md."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `([^`]+)` \|([^|]*)\|", section, re.MULTILINE)
    return [(name.strip("[]"), second.strip()) for name, second in found]


def test_the_page_has_every_section_key_and_unit() -> None:
    known = [(f"{section}.{key}", unit) for section, keys in chipfile.SECTIONS.items() for key, unit in keys.items()]
    assert cells("Sections and keys") == known


@pytest.mark.parametrize(
    ("heading", "kind", "inherited"),
    [("The head", chipfile._Head, ()), ("A number", chipfile._Entry, ("date",)),
     ("Rates by size", chipfile._Grid, ())],
)  # fmt: skip
def test_the_page_has_every_field_and_says_which_are_required(
    heading: str, kind: type[msgspec.Struct], inherited: tuple[str, ...]
) -> None:
    """inherited: fields that [sources] can give instead."""
    fields = {f.name: "required" if f.required or f.name in inherited else "" for f in msgspec.structs.fields(kind)}
    assert dict(cells(heading)) == fields
    for part in (chipfile._Conflict, chipfile._Source):
        assert "{ " + ", ".join(f"{name} = " + "{}" for name in part.__struct_fields__) + " }" in re.sub(
            r'"[^"]*"', "{}", PAGE
        )
    for tag in chipfile.TAGS:
        assert f'`"{tag}"`' in PAGE
    for name in chipfile.KINDS:
        assert f'`"{name}"`' in PAGE


def test_the_file_on_the_page_loads(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "mychip.toml").write_text(example)
    mine = chip.load(str(tmp_path / "mychip.toml"))
    assert mine.value("vector.float32") == 50 * 100 * 2 * 1e9 and mine.value("matrix.float16") == 100e12
    assert mine.lacks("matrix", "float64").endswith("no float64 matrix unit")


WORDS = {"GHz": 1e9, "GB/s": 1e9, "TFLOP/s": 1e12}


def product(derivation: str) -> float | None:
    """'58 SMs x 128 lanes x 2 FLOP x 2.04 GHz' multiplied out; None where the derivation is prose."""
    formula, _, _ = derivation.partition(" = ")
    parts = re.split(r" (x|/) ", formula)
    value = 1.0
    for operator, part in zip(["x", *parts[1::2]], parts[::2], strict=True):
        number = re.match(r"(?:about )?(\d+(?:\.\d+)?)\b(.*)", part)
        if number is None or ":" in part:
            return None
        factor = float(number[1]) * next((f for word, f in WORDS.items() if word in number[2]), 1.0)
        value = value * factor if operator == "x" else value / factor
    return value


@pytest.mark.parametrize("name", SHIPPED)
def test_derived_numbers_follow_from_their_derivation(name: str) -> None:
    derived = [n for n in chip.load(name).numbers.values() if n.tag == "D"]
    formulas = [n for n in derived if " x " in n.derivation or " / " in n.derivation]
    checked = [(n, value) for n in formulas if (value := product(n.derivation))]
    for number, value in checked:
        assert number.value == pytest.approx(value, rel=2e-3), number.key
    assert len(checked) >= 2


def test_a_product_of_the_derivation_is_what_it_says() -> None:
    assert product("4 MXUs x 128 x 128 x 2 FLOP") == 4 * 128 * 128 * 2
    assert product("800 GB/s in both directions over 4 links / 4 / 2") == 800e9 / 8
    assert product("2 x (2 MXUs x 256)") is None


# Every conflict of the list that the files were made from: (chip, number, what another source says, the one used).
CONFLICTS = [
    ("b300", "matrix.int8", "4500 TOP/s", "153.5 TOP/s"),
    ("b200", "matrix.int8", "155 TOP/s", "4500 TOP/s"),
    ("b200", "vector.float64", "40 TFLOP/s", "37 TFLOP/s"),
    ("b200", "vector.float32", "80 TFLOP/s", "75 TFLOP/s"),
    ("b300", "matrix.bfloat16", "3500 TFLOP/s", "2250 TFLOP/s"),
    ("b200", "integer.int32", "37.22 TOP/s", "18.61 TOP/s"),
    ("b300", "cores.sm", "160 SMs", "148 SMs"),
    ("v5p", "hbm.bandwidth", "2460 GB/s", "2765 GB/s"),
    ("v5e", "matrix.int8", "394 TOP/s", "393 TOP/s"),
    ("v6e", "matrix.bfloat16", "920 TFLOP/s", "918 TFLOP/s"),
    ("v6e", "link.bandwidth", "90 GB/s", "100 GB/s"),
    ("v5e", "link.bandwidth", "45 GB/s", "50 GB/s"),
    ("h200", "hbm.capacity", "141 GiB", "141 GB"),
    ("b200", "link.bandwidth", "100 GB/s", "50 GB/s"),
    ("l4", "vector.float32", "31.33 TFLOP/s", "30.29 TFLOP/s"),
    ("b200", "matrix.bfloat16", "2382 TFLOP/s", "2250 TFLOP/s"),
    ("rtx3050", "vector.float64", "4.549 TFLOP/s", "0.1422 TFLOP/s"),
]


@pytest.mark.parametrize(("name", "key", "other", "used"), CONFLICTS)
def test_conflicting_sources_are_kept(name: str, key: str, other: str, used: str) -> None:
    number = chip.load(name).numbers[key]
    assert number.text == used
    assert other in [c.text for c in number.conflicts]


def test_float8_on_v6e_is_not_a_speed_up() -> None:
    c = chip.load("v6e")
    float8, bfloat16 = c.rate("matrix", "float8_e4m3fn"), c.rate("matrix", "bfloat16")
    assert float8 and bfloat16 and float8.value == bfloat16.value
    assert "emulation" in float8.convention


def test_dtypes_without_a_unit_of_their_own() -> None:
    c = chip.load("h100")
    assert c.rate("matrix", "complex64") is c.numbers["matrix.float32"]
    assert c.rate("vector", "complex128") is c.numbers["vector.float64"]
    assert c.rate("matrix", "uint8") is c.numbers["matrix.int8"]
    assert c.rate("transcendental") is c.numbers["transcendental.float32"]
    assert c.rate("matrix", "int32") is None
    assert c.lacks("matrix", "int32") == "no int32 matrix rate on h100"


def test_a_missing_rate_says_why() -> None:
    v7x = chip.load("v7x")
    assert v7x.rate("vector", "float32") is None
    assert v7x.lacks("vector", "float32") == (
        "no float32 vector rate on v7x: 8x128 lanes a core are known, the ALUs a lane are not published"
    )


def test_rates_of_all_links_and_devices_per_chip() -> None:
    assert chip.load("v6e").link_bytes_per_s == 4 * 100 * 10**9
    assert chip.load("h100").link_bytes_per_s == 450 * 10**9
    assert chip.load("l4").link_bytes_per_s is None
    assert {n: chip.load(n).devices for n in ("v4", "v5e", "v5p", "v6e", "v7x")} == {
        "v4": 2, "v5e": 1, "v5p": 1, "v6e": 1, "v7x": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("alias", "name"),
    [("trillium", "v6e"), ("Ironwood", "v7x"), ("tpu7x", "v7x"), ("TPU v5 lite", "v5e"), ("H100", "h100"),
     ("NVIDIA B300 SXM6 AC", "b300"), ("RTX-3050", "rtx3050")],
)  # fmt: skip
def test_chips_have_other_names(alias: str, name: str) -> None:
    assert chip.load(alias).name == name


def test_no_name_means_two_chips() -> None:
    words = [{re.sub(r"[\s_-]+", "", w.lower()) for w in (n, *chip.load(n).aliases)} for n in SHIPPED]
    assert sum(map(len, words)) == len(set().union(*words))


def test_rows_of_a_chip_and_of_all() -> None:
    v6e = chip.load("v6e")
    rows = {r["key"]: r for r in v6e.rows()}
    assert rows["matrix.bfloat16"]["text"] == "918 TFLOP/s"
    assert rows["matrix.bfloat16"]["value"] == 918 * 10**12
    assert rows["matrix.bfloat16"]["conflicts"][0]["text"] == "920 TFLOP/s"
    assert rows["matrix.float64"]["value"] is None and "software" in rows["matrix.float64"]["convention"]
    table = chip.comparison([v6e, chip.load("l4")])
    assert [r["chip"] for r in table] == ["v6e", "l4"]
    assert table[0]["ridge_bfloat16"] == pytest.approx(918e12 / 1638e9)
    assert table[1]["link_bytes_per_s"] is None


# A user's own file

GOOD = """\
name = "mine"
title = "A chip of mine"
vendor = "Me"
kind = "gpu"

[sources]
sheet = { text = "data sheet, page 2", date = "2026-11" }

[matrix.bfloat16]
value = "100 TFLOP/s"
tag = "S"
source = "sheet"
convention = "dense, not sparse"

[hbm.bandwidth]
value = "1 TB/s"
tag = "M"
source = "my own run, read of 4 GB"
date = "2026-12-01"

[efficiency.bfloat16]
value = "60 TFLOP/s"
tag = "M"
source = "sheet"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_a_file_by_path(tmp_path: Path) -> None:
    mine = chip.load(str(write(tmp_path, GOOD)))
    assert mine.name == "mine"
    assert mine.numbers["matrix.bfloat16"].source == "data sheet, page 2"
    assert mine.numbers["efficiency.bfloat16"].value == 0.6


def test_a_file_in_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, GOOD)
    (tmp_path / "v6e.toml").write_text(GOOD.replace('"mine"', '"v6e"'))
    monkeypatch.setenv("COSTTRACE_CHIPS", str(tmp_path))
    assert "mine" in chip.names() and "l4" in chip.names()
    assert chip.load("mine").title == "A chip of mine"
    assert chip.load("v6e").title == "A chip of mine"  # the user's file goes first


def test_the_users_folder_where_nothing_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COSTTRACE_CHIPS")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert chip.user_folders() == [tmp_path / "costtrace" / "chips"]


# (what is written instead, where, the error's line, its message without the file)
PLANTED = [
    ('source = "sheet"\nconvention', "convention", 9, "matrix.bfloat16 has no source: add source ="),
    ('"100 TFLOP/s"', "100e12", 10, "matrix.bfloat16 has no unit: write it as text, like '918 TFLOP/s'"),
    ('"100 TFLOP/s"', '"100"', 10, "matrix.bfloat16: '100' has no unit: write it like '918 TFLOP/s'"),
    ('"100 TFLOP/s"', '"100 TB/s"', 10, "matrix.bfloat16: '100 TB/s' is not in FLOP/s: write it like"),
    ('"100 TFLOP/s"', '"-1 TFLOP/s"', 10, "matrix.bfloat16: '-1 TFLOP/s' is negative"),
    ('"100 TFLOP/s"', '"0 TFLOP/s"', 10, "matrix.bfloat16 is zero: leave it out and say why under [missing]"),
    ('"100 TFLOP/s"', '"200 TFLOP/s"\nsparse = "400 TFLOP/s"', 11, "matrix.bfloat16: key 'sparse' is a sparse rate"),
    ("dense, not sparse", "with 2:4 sparsity", 13, "matrix.bfloat16 is a sparse rate: give the dense one"),
    ("[matrix.bfloat16]", "[matrix.bfloat16_sparse]", 9, "matrix.bfloat16_sparse is a sparse rate: remove it"),
    ("[matrix.bfloat16]", "[matrix.bf16]", 9, "matrix.bf16 is not known: did you mean"),
    ("[matrix.bfloat16]", "[matrx.bfloat16]", 9, "the file: key 'matrx' is not known: did you mean matrix?"),
    ("convention =", "conventoin =", 13, "matrix.bfloat16: key 'conventoin' is not known: did you mean convention?"),
    ('tag = "S"\nsource = "sheet"\nc', 'source = "sheet"\nc', 9, "matrix.bfloat16 has no tag: add tag ="),
    ('tag = "S"', 'tag = "X"', 11, "matrix.bfloat16 has tag 'X': write tag ="),
    ('tag = "S"', 'tag = "D"', 11, "matrix.bfloat16 is derived, and not said how: add derivation ="),
    ('source = "sheet"\nc', 'source = "shet"\nc', 12, "has source 'shet', which is not in [sources]: did"),
    ('date = "2026-12-01"\n', "", 15, "hbm.bandwidth has no date: add date ="),
    ("[hbm.bandwidth]", "[matrix.bfloat16]", 15, "cannot declare ('matrix', 'bfloat16') twice: keep one of the two"),
    ("[hbm.bandwidth]", '[missing]\n"matrix.bfloat16" = "no"\n[hbm.bandwidth]', 16, "both given and missing: keep one"),
    ("[hbm.bandwidth]", '[missing]\n"matrix.bfloat61" = "no"\n[hbm.bandwidth]', 16, "did you mean matrix.bfloat16"),
    ("convention =", 'also = ["bfloat61"]\nconvention =', 13, "matrix.bfloat61 is not known: did you mean bfloat16"),
    ("convention =", 'also = ["int8"]\nconvention =', 13, "matrix.int8 is in OP/s: give it a table of its own"),
    ("convention =", 'conflicts = [{ value = "9 TB/s", source = "b", why = "c" }]\nconvention =', 13, "not in FLOP/s"),
    ("convention =", 'conflicts = [{ value = "9 TFLOP/s", source = "b" }]\nconvention =', 9, "conflicts has no why: a"),
    ('"60 TFLOP/s"', '"120 TFLOP/s"', 22, "efficiency.bfloat16 is 1.20 times the peak: it can be at most the peak"),
    ('kind = "gpu"', 'kind = "npu"', 4, "kind is 'npu': write kind = \"tpu\", \"gpu\" or \"cpu\""),
    ('title = "A chip of mine"\n', "", 1, 'the file has no title: add title = "Vendor and product"'),
    ('kind = "gpu"', "kind = gpu", 4, "invalid value: mend the TOML there"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "message"), PLANTED, ids=[str(n) for n in range(len(PLANTED))])
def test_a_bad_file_is_refused_with_line_and_fix(old: str, new: str, line: int, message: str, tmp_path: Path) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ChipError) as error:
        chip.load(str(path))
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_inline_tables_are_found_by_line_too(tmp_path: Path) -> None:
    text = GOOD[: GOOD.index("[matrix")] + '[hbm]\nbandwidth = { value = "1 TB/s", tag = "S", date = "2026-12" }\n'
    with pytest.raises(ChipError, match=r":10: hbm\.bandwidth has no source"):
        chip.load(str(write(tmp_path, text)))


def test_an_unknown_chip_is_answered_with_names() -> None:
    with pytest.raises(UsageError, match=r"no chip 'v6': did you mean .*v6e.*\? known are a100, b200, .*, or give the"):
        chip.load("v6")
    with pytest.raises(UsageError, match=r"no chip file '\./no\.toml': give the path of a TOML file, or a name: a100"):
        chip.load("./no.toml")
