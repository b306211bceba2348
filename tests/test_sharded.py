"""`--chips N --strategy NAME --compiled`: the program that is sent, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from costtrace.target.program import lowered, sharded


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
