"""Programs cut at their scopes, random arrays for them, what is refused, and (slow) real runs with sanity only."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest
from jax import lax
from traced_toy import toy

import costtrace.cli as cli
from costtrace import model
from costtrace.errors import UsageError
from costtrace.measure import cut, job, random, run, stage
from costtrace.measure.clock import Effort
from costtrace.report import measure as report
from costtrace.report.schema import SCHEMAS

QUICK = Effort(budget_s=0.01, sample_s=0.0, least=2, most=3)


def shape(*dims: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


WEIGHTS = {"up": shape(3, 64, 256), "down": shape(3, 256, 64)}
X = shape(128, 64)


def run_pieces(pieces: list[cut.Piece]) -> list[Any]:
    source = random.Source()
    return [piece.fn(*(source.array(spec) for spec in piece.args)) for piece in pieces]


# -- cutting


def test_a_scope_in_a_loop_is_one_piece_run_as_often_as_the_loop() -> None:
    found = cut.pieces(jax.make_jaxpr(toy)(WEIGHTS, X), ["block", "block/up", "block/norm", "block/down", "out"])
    assert {scope: [piece.times for piece in some] for scope, some in found.items()} == {
        "block": [3], "block/up": [3], "block/norm": [3], "block/down": [3], "out": [1],
    }  # fmt: skip
    assert [arg.shape for arg in found["block/up"][0].args] == [(128, 64), (64, 256)]
    assert [out.shape for out in run_pieces(found["block/up"])[0]] == [(128, 256)]


def test_pieces_compute_what_the_whole_computes() -> None:
    rng = np.random.default_rng(1)
    w = {name: jnp.asarray(rng.standard_normal(spec.shape), "float32") / 16 for name, spec in WEIGHTS.items()}
    x = jnp.asarray(rng.standard_normal(X.shape), "float32")
    found = cut.pieces(jax.make_jaxpr(toy)(WEIGHTS, X), ["block", "out"])
    (block,), (out,) = found["block"], found["out"]
    y = x
    for i in range(3):
        leaves = {(64, 256): w["up"][i], (256, 64): w["down"][i], (128, 64): y}
        (y,) = block.fn(*(leaves[arg.shape] for arg in block.args))
    (z,) = out.fn(y)
    assert np.allclose(z, toy(w, x), atol=1e-5)


def test_a_scope_used_twice_beside_itself_is_one_piece_and_equal_ones_elsewhere_are_one() -> None:
    def twice(x: Any) -> Any:
        for _ in range(2):
            with jax.named_scope("norm"):
                x = x / (1 + jnp.sum(x))
            with jax.named_scope("act"):
                x = jnp.tanh(x)
        return x

    def unrolled(x: Any) -> Any:
        return jax.jit(twice)(jax.jit(twice)(x))

    (piece,) = cut.pieces(jax.make_jaxpr(twice)(X), ["norm"])["norm"]
    assert piece.times == 1 and len(piece.args) == 2  # the two norms side by side
    (piece,) = cut.pieces(jax.make_jaxpr(unrolled)(X), ["norm"])["norm"]
    assert piece.times == 2  # one in each call of one program


def test_what_runs_as_often_as_data_say_is_not_cut() -> None:
    def f(x: Any) -> Any:
        def body(x: Any) -> Any:
            with jax.named_scope("inside"):
                return x * 2

        with jax.named_scope("before"):
            x = x + 1
        return lax.while_loop(lambda x: x.sum() < 9, body, x)

    assert list(cut.pieces(jax.make_jaxpr(f)(X), ["before", "inside"])) == ["before"]


def test_the_scopes_of_every_model_can_be_cut() -> None:
    found = model.find("sa3")
    for one in job.of_model(found, found.configure(scale="0.125", seconds="6", preset="small-music")):
        scopes = one.scopes()
        assert scopes and set(cut.pieces(jax.make_jaxpr(one.fn)(*one.args), scopes)) == set(scopes)


# -- random arrays


def test_whole_numbers_stay_below_the_fewest_rows_that_are_looked_up() -> None:
    def f(table: Any, ids: Any) -> Any:
        return table[ids]

    closed = jax.make_jaxpr(f)(shape(7, 4), shape(5, dtype="int32"))
    assert random.rows(closed) == 7
    ids = random.Source(7).array(shape(1000, dtype="int32"))
    assert ids.min() >= 1 and ids.max() <= 6 and len(set(ids.tolist())) == 6
    assert random.rows(jax.make_jaxpr(lambda x: x + 1)(X)) == random.MOST


def test_random_arrays_have_the_shape_and_dtype_and_are_the_same_in_every_run() -> None:
    one, two = random.Source(), random.Source()
    for spec in (shape(3, 5, dtype="bfloat16"), shape(dtype="int8"), shape(4, dtype="bool"), shape(2, 2)):
        a, b = one.array(spec), two.array(spec)
        assert a.shape == spec.shape and a.dtype == spec.dtype and (a == b).all()
    positive = one.array(shape(random.POOL + 10))  # more than the pool holds
    assert positive.min() >= 0.1 and positive.max() <= 1
    assert abs(float(one.array(shape(256, 64), weight=True).std()) - 1 / 16) < 0.01


def test_finite_sees_what_is_no_number() -> None:
    assert random.finite({"a": jnp.ones(3), "b": jnp.ones(3, "int32")})
    assert not random.finite([jnp.asarray([1.0, jnp.nan])])
    assert not random.finite(jnp.asarray([jnp.inf], "bfloat16"))


# -- what does not fit


def jobs_of(scale: float) -> list[job.Job]:
    found = model.find("klein")
    return job.of_model(found, found.configure(scale=scale))[1:2]


@pytest.mark.slow
def test_a_model_too_big_is_refused_with_the_size_that_fits() -> None:
    whole, half, quarter = jobs_of(1), jobs_of(0.5), jobs_of(0.25)
    need = [run.needed(some) for some in (whole, half, quarter)]
    assert need[0] == round(run.ROOM * whole[0].profile.peak.nbytes) and need[0] > need[1] > need[2]
    run.refused(whole, lambda: iter(()), need[0])  # it fits
    smaller = [("--scale 0.5", half), ("--scale 0.25", quarter)]
    with pytest.raises(UsageError, match=r"^dit needs .* free: --scale 0.25 fits"):
        run.refused(whole, lambda: iter(smaller), need[1] - 1)
    with pytest.raises(UsageError, match="no size tried fits"):
        run.refused(whole, lambda: iter(smaller), 1000)


def test_the_machine_says_how_much_room_it_has() -> None:
    assert run.room() > 2**26


# -- the command


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["klein", "--stage", "decoder"], "--stage decoder: no such stage: there are text, dit, vae"),
        (["klein", "--scale", "0"], "scale 0: must be a number above 0"),
        (["klein", "--out", "nowhere/x.json"], "--out nowhere/x.json: No such file or directory: give the path"),
        (["kline"], "did you mean klein?"),
        (["./none.py:f"], "no file ./none.py"),
    ],
)
def test_command_lines_that_cannot_be_measured(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["measure", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_measured_function_has_its_parts_and_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = job.of_function(toy, (WEIGHTS, X))
    doc = run.measured(jobs, {"schema": "costtrace/1", "costtrace": "0", "model": "toy", "config": {}}, None, QUICK,
                       lambda text: None, tmp_path)  # fmt: skip
    jsonschema.validate(doc, SCHEMAS["measure"])
    (one,) = doc["stages"]
    assert one["finite"] and one["measured_s"] > 0 and one["compile_s"] > 0
    assert one["weight_bytes"] == 4 * (3 * 64 * 256 + 3 * 256 * 64)
    assert one["peak_bytes"] >= one["weight_bytes"]
    parts = {part["scope"]: part for part in one["parts"]}
    assert {scope: part["runs"] for scope, part in parts.items()} == {
        "block": 3, "block/up": 3, "block/norm": 3, "block/down": 3, "out": 1,
    }  # fmt: skip
    assert list((tmp_path / "toy").glob("*.hlo")) and list((tmp_path / "toy").rglob("*.xplane.pb"))
    assert "block/norm" in report.printed(doc, "text") and len(report.printed(doc, "csv").splitlines()) == 1 + 1 + 5
    assert json.loads(report.printed(doc, "json")) == doc


def test_a_stage_that_takes_minutes_says_so_and_what_to_do() -> None:
    """A timing is two calls, three samples and a look at the results; so is each of two depths of scopes."""
    effort = Effort(budget_s=1.0)
    text = stage.estimate("block", 30.0, 0, ["attn", "mlp", "mlp/up"], effort)
    assert text.startswith(
        f"block: a call takes 30 s: up to {6 * 30 * (1 + 2) // 60} min and compiles for this stage: "
    )
    assert "--depth 0 leaves out its 3 parts (then 3 min), a smaller size takes less" in text
    steps = (6 * 5 + 3 * 6 * 4 * 5) / 60  # alone, and 4 steps as a loop and twice apart
    assert f"up to {steps:.0f} min" in stage.estimate("dit", 5.0, 4, [], effort)
    assert "--depth" not in stage.estimate("dit", 30.0, 0, [], effort)
    assert stage.estimate("block", 1.0, 0, ["attn"], effort) == ""


def test_a_measurement_says_what_it_is_at_where_no_terminal_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("costtrace.cli.waiting.LINE_EVERY_S", 0.02)
    monkeypatch.setattr("costtrace.measure.stage.LONG_S", 0.0)
    (tmp_path / "mine.py").write_text(
        "import jax\ndef f(x):\n with jax.named_scope('up'):\n  y = x @ x\n return y.sum()\n"
    )
    monkeypatch.chdir(tmp_path)
    assert cli.main(["measure", "mine.py:f", "--arg", "f32[256,256]", "--seconds-each", "0.2"]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"^\d+ s: .*f: .*timing the whole$", err, re.MULTILINE), err
    assert len(re.findall(r"f: a call takes .*: --depth 0 leaves out its 1 part ", err)) == 1
    assert "up" in out and "timing" not in out


@pytest.mark.parametrize(("fn", "args"), [(lambda: jnp.ones(4), ()), (lambda x: x + 1, (shape(8, 64),))])
def test_a_function_without_weights_is_measured(fn: Any, args: tuple[Any, ...]) -> None:
    """Without arguments, or with an array as the first: what the trace calls no weight is staged as none."""
    jobs = job.of_function(fn, args)
    head = {"schema": "costtrace/1", "costtrace": "0", "model": "mine", "config": {}}
    doc = run.measured(jobs, head, 0, QUICK, lambda text: None)
    jsonschema.validate(doc, SCHEMAS["measure"])
    assert doc["stages"][0]["weight_bytes"] == 0 and doc["stages"][0]["measured_s"] > 0
    assert "no weights; peak " in report.printed(doc, "text")


@pytest.mark.slow
def test_steps_are_timed_as_a_loop_and_apart() -> None:
    def step(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w)

    program = stage.Program("step", step, (shape(64, 64), shape(8, 64)))
    loop = stage.measured(program, 4, [], QUICK, lambda text: None).loop
    assert loop is not None and loop.steps == 4 and loop.dispatch_s is not None
    assert loop.scanned is not None and loop.scanned.median_s > 0
    program = stage.Program("sums", lambda w, x: (x @ w).sum(), (shape(64, 64), shape(8, 64)))
    loop = stage.measured(program, 4, [], QUICK, lambda text: None).loop
    assert loop is not None and loop.scanned is None and "no argument's shape" in loop.why


@pytest.mark.slow
def test_a_donated_argument_is_replaced_by_what_the_stage_returns() -> None:
    def decode(w: Any, cache: Any) -> Any:
        return (cache @ w).sum(), cache.at[0].add(1)

    program = stage.Program("decode", decode, (shape(8, 8), shape(4, 8)), donated=(1,))
    first = np.asarray(program.args[1]).copy()
    program.run()
    program.run()
    assert np.allclose(program.args[1][0], first[0] + 2)
