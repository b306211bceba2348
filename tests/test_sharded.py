"""`--chips N --strategy NAME --compiled`: the program that is sent, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from costtrace import chip
from costtrace.cli import main
from costtrace.errors import UsageError
from costtrace.target import compiler, setup
from costtrace.target.program import lowered, sharded

MLP = """
import jax

def mlp(w, x):
    with jax.named_scope("up"):
        h = jax.nn.gelu(x @ w["up"])
    with jax.named_scope("down"):
        return h @ w["down"]

def args():
    s = jax.ShapeDtypeStruct
    return {"up": s((256, 1024), "bfloat16"), "down": s((1024, 256), "bfloat16")}, s((512, 256), "bfloat16")
"""


@pytest.fixture
def mlp(tmp_path: Path) -> str:
    (tmp_path / "mlp.py").write_text(MLP)
    return f"trace {tmp_path}/mlp.py:mlp --args args --chip v6e --compiled --format json --chips"


def test_arguments_lie_as_the_cuts_say() -> None:
    args = ({"w": jax.ShapeDtypeStruct((8, 6), "bfloat16")}, jax.ShapeDtypeStruct((4, 8), "bfloat16"))
    found = sharded(args, {"data": 2, "model": 4}, {"data": [None, 0], "model": [1, 0]})
    assert found[0]["w"].sharding.spec == PartitionSpec(None, None)  # 6 does not divide by 4
    assert found[1].sharding.spec == PartitionSpec("data", None)  # 4 rows are not 2 x 4 parts
    found = sharded(args, {"data": 2, "model": 4}, {"data": [None, 1], "model": [0, 1]})
    assert found[0]["w"].sharding.spec == PartitionSpec("model", None)
    assert found[1].sharding.spec == PartitionSpec(None, ("data", "model"))
    program = lowered(lambda w, x: jnp.tanh(x @ w["w"]), found, "tpu")
    assert program.mesh == {"data": 2, "model": 4}


@pytest.mark.parametrize(
    "words",
    [
        "8",
        "8 --strategy all",
        "8 --strategy tp,fsdp",
        "8 --strategy pipeline",
        "8 --strategy stream",
        "4,8 --strategy tp",
    ],
)
def test_one_strategy_that_cuts_arrays_is_compiled(mlp: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*mlp.split(), *words.split()]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "takes one number of chips and one strategy that cuts arrays" in err


def test_a_topology_is_of_as_many_devices_as_the_program() -> None:
    args = (jax.ShapeDtypeStruct((8, 8), "float32"),)
    eight = lowered(jnp.tanh, sharded(args, {"a": 8}, {"a": [0]}), "tpu")
    two = lowered(jnp.tanh, sharded(args, {"a": 2}, {"a": [0]}), "tpu")
    v6e = chip.load("v6e")
    for shape in ("4x4", "2x2"):
        with pytest.raises(
            UsageError, match=rf"^topology {shape} of v6e has \d+ devices, the program is for 8: give 2x4"
        ):
            compiler._fields(compiler.Question(eight, v6e, shape))
    assert compiler._fields(compiler.Question(two, v6e, "2x2"))["topology"] == "v6e:2x2"  # the least there is
    assert compiler._fields(compiler.Question(eight, v6e, "1x8"))["topology"] == "v6e:1x8"


@pytest.mark.slow
def test_a_strategy_as_it_is_compiled(mlp: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        setup.python("tpu")
    except UsageError as e:
        pytest.skip(str(e))
    assert main([*mlp.split(), "8", "--strategy", "tp"]) == 0
    (stage,) = json.loads(capsys.readouterr().out)["stages"]
    assert stage["compiled"]["matmul_flops"] == 2 * 2 * 512 * 256 * 1024 // 8  # one device's
    (each,) = stage["collectives"]
    assert (each["scope"], each["kind"], each["axis"]) == ("down", "all_reduce", "model")
    assert each["bytes_sent"] == 2 * 7 * 512 * 256 * 2 // 8  # a ring: twice 7/8 of the result
