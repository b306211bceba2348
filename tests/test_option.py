"""Options of a model: read from text or values, and errors that say the fix."""

from __future__ import annotations

import dataclasses

import pytest

from costtrace.errors import ShapeError, UsageError
from costtrace.model import DTYPE, Model, Size, choice, option, size
from costtrace.option import count, positive, scale, scaled


@dataclasses.dataclass(frozen=True)
class Config:
    res: Size = option("64x32", help="image size", parse=size(16), metavar="WxH")  # noqa: RUF009  # a field
    text_tokens: int = option(77, help="prompt tokens")
    seconds: float = option(1.5, help="length")
    dtype: str = option("bf16", help="of weights", parse=DTYPE)
    preset: str = option("small", help="variant", parse=choice("small", "medium"))
    label: str = option("x", help="any text")


MODEL = Model("toy", Config, lambda config: [], "a toy")


def test_options_are_the_fields_of_the_config() -> None:
    options = MODEL.options()
    assert list(options) == ["res", "text_tokens", "seconds", "dtype", "preset", "label"]
    assert [str(o.default) for o in options.values()] == ["64x32", "77", "1.5", "bfloat16", "small", "x"]
    assert [o.metadata["metavar"] for o in options.values()] == ["WxH", "N", "X", "DTYPE", "TEXT", "TEXT"]
    assert options["res"].metadata["help"] == "image size"


def test_options_are_read_from_text_or_values() -> None:
    config = MODEL.configure(res="1360x768", text_tokens="512", seconds=3, dtype="f32", preset=None)
    assert config == Config(Size(1360, 768), 512, 3.0, "float32", "small", "x")
    assert MODEL.configure(res=Size(32, 16)).res.width == 32
    assert MODEL.configure() == Config()


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ({"res": "500x300"}, ShapeError, "res 500x300: each side must be a multiple of 16: try 496x304"),
        ({"res": "0x16"}, ShapeError, "res 0x16: each side must be 16 or more: try 16x16"),
        ({"res": "512"}, UsageError, "res 512: must be WIDTHxHEIGHT in pixels: try 1360x768"),
        ({"res": "-16x16"}, UsageError, "res -16x16: must be WIDTHxHEIGHT in pixels: try 1360x768"),
        ({"text_tokens": "0"}, UsageError, "text-tokens 0: must be a whole number, 1 or more"),
        ({"text_tokens": "4.5"}, UsageError, "text-tokens 4.5: must be a whole number, 1 or more"),
        ({"text_tokens": -3}, UsageError, "text-tokens -3: must be a whole number, 1 or more"),
        ({"seconds": "nan"}, UsageError, "seconds nan: must be a number above 0, such as 30 or 380.4"),
        ({"seconds": "0"}, UsageError, "seconds 0: must be a number above 0, such as 30 or 380.4"),
        ({"dtype": "int8"}, UsageError, "dtype int8: must be one of bfloat16, float16, float32"),
        ({"preset": "large"}, UsageError, "preset large: must be one of small, medium"),
        (
            {"size": "1"},
            UsageError,
            "toy has no option 'size': it takes res, text_tokens, seconds, dtype, preset, label",
        ),
    ],
)
def test_an_option_that_does_not_fit(values, kind, message) -> None:
    with pytest.raises(UsageError) as caught:
        MODEL.configure(**values)
    assert (type(caught.value), str(caught.value)) == (kind, message)


def test_readers() -> None:
    assert [count("1"), positive(".5"), positive("30")] == [1, 0.5, 30.0]
    assert size(1)("7x5") == Size(7, 5)
    assert str(Size(7, 5)) == "7x5"


@pytest.mark.parametrize(
    ("n", "by", "multiple", "found"),
    [
        (24, 0.125, 1, 3),
        (5, 0.125, 1, 1),  # 0.6, and never none
        (20, 0.125, 1, 2),  # 2.5 is rounded to even
        (9728, 0.125, 64, 19 * 64),
        (128, 0.125, 32, 32),  # 16 would not be one group of a norm
        (3072, 1.0, 128, 3072),
    ],
)
def test_a_scaled_size_is_a_whole_multiple_and_never_none(n: int, by: float, multiple: int, found: int) -> None:
    assert scaled(n, by, multiple) == found


@dataclasses.dataclass(frozen=True)
class Smaller:
    tokens: int = option(77, help="prompt tokens")
    scale: float = scale()


def test_a_quiet_option_is_shown_only_where_it_is_not_the_default() -> None:
    model = Model("toy", Smaller, lambda config: [], "a toy")
    assert model.shown(model.configure()) == {"tokens": 77}
    assert model.shown(model.configure(scale="0.25")) == {"tokens": 77, "scale": 0.25}
