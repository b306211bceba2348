"""Checkpoints' headers as abstract weights: two formats, names spelled another way, and every reason to refuse one."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn

import costtrace
from costtrace import header
from costtrace.checkpoint import BITS
from costtrace.cli import main
from costtrace.errors import ShapeError, UsageError

S = jax.ShapeDtypeStruct


def safetensors(path: Path, tensors: dict[str, tuple[str, tuple[int, ...]]]) -> Path:
    """A file with this header and no tensor at all: whoever reads one fails."""
    entries, at = {}, 0
    for name, (dtype, shape) in tensors.items():
        end = at + math.prod(shape) * BITS.get(dtype, 0) // 8
        entries[name], at = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}, end
    text = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    return path


class Net(nn.Module):
    width: int = 16

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for i in range(2):
            x = nn.Dense(self.width, name=f"layer_{i}")(x)
        return x


GOOD = {
    "layer_0.kernel": ("BF16", (8, 16)), "layer_0.bias": ("F32", (16,)),
    "layer_1.kernel": ("BF16", (16, 16)), "layer_1.bias": ("F32", (16,)),
}  # fmt: skip
FILE = """
from flax import linen as nn
from test_header import Net
net = Net()
def forward(params, x):
    return x @ params["layer_0.kernel"] + params["layer_0.bias"]
def nested(params, x):
    return x @ params["layers"][0]["w"]
def grouped(params, x):
    return x @ params["a"]["w"].astype("float32")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.py").write_text(FILE)
    safetensors(tmp_path / "good.safetensors", GOOD)
    safetensors(tmp_path / "paths.safetensors", {"a/w": ("F8_E4M3", (8, 4))})
    safetensors(tmp_path / "wide.safetensors", {**GOOD, "layer_1.kernel": ("BF16", (16, 32))})
    safetensors(tmp_path / "short.safetensors", {n: t for n, t in GOOD.items() if "layer_1" not in n})
    safetensors(tmp_path / "odd.safetensors", {"w": ("Q3_K", (8, 8))})
    (tmp_path / "not.safetensors").write_bytes(b"\x80\x02}q\x00")
    (tmp_path / "folder").mkdir()
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_safetensors_as_a_function_is_given_them(here: Path) -> None:
    found = header.weights("good.safetensors")
    assert found["layer_0.kernel"] == S((8, 16), jnp.bfloat16)
    assert header.weights("paths.safetensors") == {"a": {"w": S((8, 4), jnp.float8_e4m3fn)}}
    assert header.split(found)["layer_1"]["bias"] == S((16,), jnp.float32)
    assert header.elements(found) == 8 * 16 + 16 + 16 * 16 + 16


def test_orbax_metadata_is_the_tree(tmp_path: Path) -> None:
    orbax = pytest.importorskip("orbax.checkpoint")
    tree = {"layers": [{"w": jnp.zeros((8, 4), jnp.bfloat16)}, {"w": jnp.zeros((4, 2))}]}
    saver = orbax.StandardCheckpointer()
    saver.save(tmp_path / "step", tree)
    saver.wait_until_finished()
    saver.close()
    found = header.weights(str(tmp_path / "step"))
    assert found == jax.tree.map(lambda x: S(x.shape, x.dtype), tree)
    assert header.tensors(str(tmp_path / "step"))["layers/0/w"].dtype == "BF16"


def test_a_module_takes_the_dtypes_of_its_checkpoint(here: Path) -> None:
    x = S((2, 8), "float32")
    weights = jax.eval_shape(Net().init, jax.random.key(0), x)["params"]
    fitted = header.fitted("good.safetensors", weights, "Net")
    assert fitted["layer_0"] == {"kernel": S((8, 16), jnp.bfloat16), "bias": S((16,), jnp.float32)}
    found = costtrace.profile(lambda p, x: Net().apply({"params": p}, x), fitted, x)
    assert found.total.weight_bytes == 2 * (8 * 16 + 16 * 16) + 4 * (16 + 16)


def test_differences_are_a_table(here: Path) -> None:
    weights = jax.eval_shape(Net(width=24).init, jax.random.key(0), S((2, 8), "float32"))["params"]
    with pytest.raises(ShapeError) as caught:
        header.fitted("good.safetensors", weights, "Net")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("good.safetensors does not fit Net: 4 of 4 weights differ, as ")
    assert isinstance(caught.value, header.Contradiction)
    assert ("layer_0/kernel", "[8,24]", "layer_0.kernel", "[8,16]") in caught.value.table


RUNS = {
    "net.py:net --arg f32[2,8] --checkpoint good.safetensors": 2 * 2 * (8 * 16 + 16 * 16),
    "net.py:forward --arg f32[2,8] --checkpoint good.safetensors": 2 * 2 * 8 * 16,
    "net.py:grouped --arg x=f32[2,8] --checkpoint paths.safetensors": 2 * 2 * 8 * 4,
}


@pytest.mark.parametrize("command", list(RUNS))
def test_the_command_line(here: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", *command.split(), "--format", "json"]) == 0
    doc = json.loads(capsys.readouterr().out)
    assert doc["total"]["matmul_flops"] == RUNS[command]
    assert doc["config"]["checkpoint"] == command.rpartition(" ")[2]


ERRORS = {
    "net --checkpoint wide.safetensors": "wide.safetensors does not fit net.py:net: 1 of 4 weights differ, as "
    "layer_1/kernel: [16,16] in the function, [16,32] in the file (layer_1.kernel); give",
    "net --checkpoint short.safetensors": "short.safetensors does not fit net.py:net: 2 of 4 weights differ, as ",
    "net --checkpoint not.safetensors": "not.safetensors is no safetensors file",
    "net --checkpoint nowhere": "no file nowhere: give a .safetensors file",
    "net --checkpoint folder": "folder is no orbax checkpoint: no _METADATA in it; give the folder of one step's item",
    "forward --checkpoint odd.safetensors": "odd.safetensors: tensor 'w' has dtype Q3_K: known are BOOL, ",
    "forward --checkpoint paths.safetensors": "forward failed while jax traced it: KeyError: 'layer_0.kernel'",
}


@pytest.mark.parametrize("command", list(ERRORS))
def test_what_does_not_fit(here: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--arg", "f32[2,8]", *f"net.py:{command}".split()]) == 2
    *table, error = capsys.readouterr().err.splitlines()
    assert error.startswith(f"costtrace: error: {ERRORS[command]}")
    assert bool(table) == ("does not fit" in error)


def test_names_that_clash(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "clash.safetensors", {"a": ("F32", (1,)), "a/b": ("F32", (1,))})
    with pytest.raises(UsageError, match="tensor 'a/b' lies under 'a', which is a tensor too"):
        header.weights(str(path))
