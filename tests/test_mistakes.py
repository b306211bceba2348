"""Every mistake of a user is said in one line on stderr that names the thing, the place and the fix; exit code 2."""

from __future__ import annotations

from pathlib import Path

import authored
import jax
import pytest
from jax import export

import costtrace
from costtrace.cli import main
from costtrace.errors import UsageError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return authored.folder(tmp_path, monkeypatch)


ERRORS = {
    "klien": 'unknown model "klien": did you mean klein? costtrace models lists them',
    "small": 'unknown model "small": did you mean ./small.py? costtrace models lists them',
    "swep": 'no command "swep": did you mean sweep? costtrace --help lists them',
    "nothing-like-it": 'unknown model "nothing-like-it": costtrace models lists them',
    "klein --chip v9": "no chip 'v9': known are ",
    "klein --chip nofile.toml": "no chip file 'nofile.toml': give the path of a TOML file, or a name: ",
    "klein --rez 512x512": "no such option '--rez'. Did you mean '--res'? (costtrace klein --help)",
    "klein --res 512": "res 512: must be WIDTHxHEIGHT in pixels: try 1360x768",
    "klein --res 500x512": "res 500x512: each side must be a multiple of 16: try 496x512",
    "klein --res 512x512,500x512": "res 500x512: each side must be a multiple of 16: try 496x512",
    "klein --steps 0": "steps 0: must be a whole number, 1 or more",
    "klein --dtype int99": "dtype int99: must be one of bfloat16, float16, float32",
    "klein --by part": "invalid value for '--by': 'part' is not one of 'scope', ",
    "klein --depth none": "invalid value for '--depth': 'none' is not a valid integer range (costtrace klein --help)",
    "klein --sort size": "--sort size: the table by scope has no such column: it has part, flops, useful, ",
    "klein --explain sinlge/gate": "--explain sinlge/gate: no such row: did you mean single/gate",
    "klein extra": "got unexpected extra argument (extra) (costtrace klein --help)",
    "chips v9": "no chip 'v9': known are ",
    "trace": "missing argument 'FILE.py:FUNCTION|MODULE.hlo' (costtrace trace --help)",
    "trace mine.py": "mine.py: name the function too, as in mine.py:forward",
    "trace nofile.py:f": "no file nofile.py: give the path of a Python file, as in model.py:forward",
    "trace no.such:f": "no module no.such: give FILE.py:FUNCTION, or MODULE:FUNCTION",
    "trace mine.py:plian": "mine.py has no function 'plian': did you mean plain?",
    "trace mine.py:SIZE": "mine.py: SIZE is a int, not a function",
    "trace bad.py:f": "bad.py failed while it was loaded: No module named 'nothing_of_that_name': install it, or mend",
    "trace wrong.py:f": "wrong.py failed while it was loaded: SyntaxError: ",
    "trace mine.py:broken --arg f32[2]": "broken failed while jax traced it: ValueError: the sizes do not fit (at ",
    "trace mine.py:plain --arg f32[2,3]": "mine.py:plain: missing a required argument: 'w': it takes (x, w); add",
    "trace mine.py:plain --arg x=f32[2] --arg x=f32[2]": "mine.py:plain: an argument is given twice: use each",
    "trace mine.py:plain --arg y=f32[2]": "mine.py:plain: no argument 'y': it takes (x, w)",
    "trace mine.py:plain --arg x=f32(2)": "--arg 'x=f32(2)': write NAME=DTYPE[SIZE,...], as in 'x=bf16[1024,3072]', or",
    "trace mine.py:plain --arg x=f32[2;3]": "--arg 'x=f32[2;3]': '2;3' is not a size: write NAME=DTYPE[SIZE,...]",
    "trace mine.py:plain --arg f32[n,3]": "--arg 'f32[n,3]': the size 'n' has no value: add --dim n=8",
    "trace mine.py:plain --arg f32[] --dim n": "--dim 'n': write --dim NAME=NUMBER",
    "trace mine.py:plain --arg x=f99[2] --arg f32[2]": "--arg float99[2]: no dtype 'float99': try bf16, f32, i32, u8",
    "trace mine.py:plain --arg i64[2] --arg i64[2]": "--arg int64[2]: jax narrows int64 to 32 bits: set JAX_ENABLE",
    "trace mine.py:with_tree --args arguments --arg f32[2]": "--args and --arg: give one of the two",
    "trace mine.py:with_tree --args argument": "mine.py has no function 'argument': did you mean arguments?",
    "trace mine.py:search --arg f32[8,8] --strict": "search: at scope search",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --trips a=3": "trips names the scope 'a', where no loop",
    "trace priced.py:no_cost --arg f32[4]": "the rule for 'test_cli_no_cost' (",
    "trace priced.py:negative --arg f32[4]": "the rule for 'test_cli_negative' (",
    "trace priced.py:fraction --arg f32[4]": "the rule for 'test_cli_fraction' (",
    "trace priced.py:failing --arg f32[4]": "the rule for 'test_cli_failing' failed at ",
    "mine.py:plain": "mine.py:plain is a function: write costtrace trace mine.py:plain",
    "alone.py": "alone.py:14: stages() returns a Stage: return a list of Stages",
    "undecorated.py": "undecorated.py:8: Config is no dataclass: write @dataclass(frozen=True) above class Config",
    "plain.py": "plain.py:9: the field 'tokens' is no option: write tokens: ... = option(8, help=",
    "raising.py": "raising.py:14: stages() failed: AttributeError: 'Config' object has no attribute 'width'",
    "klein --resolution 512x512": "no such option '--resolution'. Did you mean '--res'? (costtrace klein --help)",
    "klein --res 512x512,,1360x768": "res: a value is empty: write --res 512x512",
    "klein --res 0x0": "res 0x0: each side must be 16 or more: try 16x16",
    "klein --sort pessimistic": "--sort pessimistic: the table by scope has no such column: it has part, ",
    "klein --by primitive --sort floor": "--sort floor: the table by primitive has no such column: it has part, ",
    "klein --explain single/gate --format csv": "--explain with --format csv: an explanation is text or json",
    "small.py --strict --chip slow.toml": "--strict: no hbm rate on v6e: give a chip file that has it",
    "trace mine.py:plain --arg f16[2,2] --arg f16[2,2] --strict": "--strict: no float16 matrix rate on v6e: ",
    "trace mine.py:plain --arg f32[n,2] --arg f32[2,2] --dim m=3": "--dim m=3: no --arg has a size of that name: they",
    "trace mine.py:with_tree --args arguments --dim n=3": "dims names 'n', but no argument has such a symbolic dim",
    "trace mine.py:plain --args tree": "--args tree: it takes (s), so it cannot make the arguments of mine.py:plain",
    "trace mine.py:plain --args failing": "--args failing failed at mine.py:",
    "trace mine.py:search --args arguments": "mine.py:search: too many positional arguments: it takes (x), --args",
    "trace mine.py:plain --arg f32(2) --checkpoint no.safetensors": "no file no.safetensors: give a ",
    "nofile.py": "no file nofile.py",
    "mine.py": "mine.py has no MODEL",
    "clash.py": "model small: its option 'depth' is costtrace's own: give the field another name",
}  # fmt: skip


@pytest.mark.parametrize("command", ERRORS)
def test_an_error_is_one_line_that_names_thing_place_and_fix(
    command: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(command.split())
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith(f"costtrace: error: {ERRORS[command]}")
    assert err.count("\n") == 1 and err.endswith("\n")


def test_a_functions_failure_names_its_own_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["trace", "mine.py:broken", "--arg", "f32[2]"])
    line = authored.MINE.splitlines().index('    raise ValueError("the sizes do not fit")') + 1
    assert capsys.readouterr().err.rstrip().endswith(f"mine.py:{line})")


def test_from_python_too() -> None:
    x = jax.ShapeDtypeStruct((4, 4), "float32")
    with pytest.raises(UsageError, match=r"^a int cannot be traced: give a function"):
        costtrace.profile(5, x)  # type: ignore[arg-type]
    n = jax.ShapeDtypeStruct(export.symbolic_shape("n,2*n"), "float32")
    assert costtrace.profile(lambda a: a @ a.T, n, dims={"n": 4}).total.matmul_flops == 2 * 4 * 8 * 4
    with pytest.raises(UsageError, match="dims names 'm', but no argument has such a symbolic dimension: they have n"):
        costtrace.profile(lambda a: a @ a.T, n, dims={"n": 4, "m": 2})
    with pytest.raises(UsageError, match=r"no value: pass dims=\{'n': 8\}, or --dim n=8"):
        costtrace.profile(lambda a: a @ a.T, n)
