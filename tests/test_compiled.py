"""The chip's compiler as a witness: parts, sums and notes on what compilers really wrote; real compiles where they are
set up (marker slow)."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

import costtrace
from costtrace import chip, roofline
from costtrace.errors import FormatError, UsageError
from costtrace.evidence import dump, kernels, measured
from costtrace.evidence.compiled import Compiled, compiled, row_of
from costtrace.target import cache, compiler, gpu, opname, price, program, setup, tpu, worker
from costtrace.target.hlo import parsed
from costtrace.target.kernel import kernels as read

DUMPS = Path(__file__).parent / "hlo"
LAYERS, TOKENS, WIDTH, INNER = 6, 256, 512, 2048
shape = functools.partial(jax.ShapeDtypeStruct, dtype="bfloat16")
ARGS = ({"up": shape((LAYERS, WIDTH, INNER)), "down": shape((LAYERS, INNER, WIDTH))}, shape((TOKENS, WIDTH)))


def layer(x: Any, w: Any) -> Any:
    with jax.named_scope("norm"):
        y = x.astype("float32")
        y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)
    with jax.named_scope("mlp"):
        with jax.named_scope("up"):
            y = jax.nn.gelu(y.astype("bfloat16") @ w["up"])
        with jax.named_scope("down"):
            y = y @ w["down"]
    return x + y, None


def block(w: Any, x: Any) -> Any:
    """What tests/hlo holds the compiled forms of."""
    with jax.named_scope("embed"):
        x = jnp.tanh(x)
    return jax.lax.scan(layer, x, w)[0]


def unrolled(w: Any, x: Any) -> Any:
    with jax.named_scope("embed"):
        x = jnp.tanh(x)
    for n in range(LAYERS):
        x, _ = layer(x, {name: each[n] for name, each in w.items()})
    return x


@functools.cache
def profiled() -> Any:
    return costtrace.profile(block, *ARGS, weights=0)


def answer(name: str, text: str | None = None, mesh: dict[str, int] | None = None) -> compiler.Answer:
    text = text or (DUMPS / f"block.{name}.hlo").read_text()
    return compiler.Answer(chip.load(name), text, 1.0, {}, {}, name, True, mesh or {})


# Parts ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["v6e", "h100"])
@pytest.mark.parametrize("depth", [1, 2, None])
@pytest.mark.parametrize("merge", [False, True])
def test_each_kernel_is_in_one_row_and_rows_add_up(name: str, depth: int | None, merge: bool) -> None:
    found = compiled(answer(name), profiled())
    keys = {row.key for row in profiled().rows("scope", depth, merge)}
    rows = found.rows(row_of(keys))
    for field in ("flops", "hbm_bytes", "chip_bytes", "kernels"):
        assert sum(getattr(part, field) for part in rows.values()) == getattr(found.total, field)
    assert math.isclose(sum(part.time_s for part in rows.values()), found.total.time_s)
    assert set(rows) - keys <= {".", opname.COMPILER}


def test_the_contract_of_a_row() -> None:
    part = compiled(answer("v6e"), profiled()).total.to_dict()
    assert {"flops", "hbm_bytes", "time_s", "kernels", "estimated_by"} <= set(part)


@pytest.mark.parametrize("name", ["v6e", "h100"])
def test_a_prediction_is_between_the_floor_and_a_hundred_times_it(name: str) -> None:
    found = compiled(answer(name), profiled())
    floor = roofline.floor_s(profiled().total, chip.load(name))
    assert floor is not None
    assert floor < found.total.time_s < 100 * floor


def test_tpu_seconds_are_cycles_by_the_clock() -> None:
    found = compiled(answer("v6e"), profiled())
    some = [each for each in found.kernels if each.by == price.COMPILER]
    assert some
    for each in some:
        assert each.seconds == tpu.cycles(each.kernel.instruction) / chip.load("v6e").value("cores.clock")


def test_numbered_siblings_find_their_merged_row() -> None:
    def layers(x: Any) -> Any:
        for n in range(3):
            with jax.named_scope(f"layers_{n}"), jax.named_scope("mlp"):
                x = jnp.sin(x)
        return x

    found = costtrace.profile(layers, shape((8, 128)))

    def row(scope: str, depth: int | None, merge: bool) -> str:
        return row_of({row.key for row in found.rows("scope", depth, merge)})(scope)

    assert row("layers_1/mlp", 1, True) == "layers_*"
    assert row("layers_1/mlp", None, False) == "layers_1/mlp"
    assert row("layers_2", 1, False) == "layers_2"
    assert row("nowhere", 1, False) == "nowhere"


def gpu_kernel(estimate_us: float, model: str = "sol") -> Compiled:
    text = f"""HloModule m, is_scheduled=true

ENTRY %main (a: bf16[4096,4096], b: bf16[4096,4096]) -> bf16[4096,4096] {{
  %a = bf16[4096,4096] parameter(0)
  %b = bf16[4096,4096] parameter(1)
  ROOT %c = bf16[4096,4096] custom-call(%a, %b), custom_call_target="__cublas$lt$matmul", metadata={{op_name="jit(f)/mlp/dot"}}, backend_config={{"gemm_backend_config":{{"dot_dimension_numbers":{{"lhs_contracting_dimensions":["1"]}}}},"reification_cost":[{{"exec_time_us":{estimate_us},"name":"{model}"}}]}}
}}
"""  # noqa: E501
    return compiled(answer("h100", text))


def test_an_absurd_estimate_is_replaced_marked_and_noted() -> None:
    roofline_s = (
        2 * 4096**3 / (chip.load("h100").value("matrix.bfloat16") * chip.load("h100").value("efficiency.bfloat16"))
    )
    (sound,) = gpu_kernel(176).kernels
    assert sound.by == price.COMPILER and sound.seconds == pytest.approx(176e-6)
    found = gpu_kernel(40000)
    (absurd,) = found.kernels
    assert absurd.by == price.REPLACED and absurd.seconds == pytest.approx(roofline_s)
    assert [note.kind for note in found.notes] == ["replaced-estimate"] and "mlp" in found.notes[0].scope
    (missing,) = gpu_kernel(0).kernels
    assert missing.by == price.ROOFLINE and missing.seconds == pytest.approx(roofline_s)


@pytest.mark.parametrize(
    ("line", "kind", "sent"),
    [
        ("all-reduce(%x), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%plus", "all-reduce", 2 * 64 * 4 * 3 // 4),
        ("all-reduce(%x), replica_groups=[2,4]<=[8], to_apply=%plus", "all-reduce", 2 * 64 * 4 * 3 // 4),
        ("all-reduce(%x), replica_groups=mesh['a'=2,'b'=4] {'b'}, to_apply=%plus", "all-reduce", 2 * 64 * 4 * 3 // 4),
        ("all-to-all(%x), replica_groups={{0,1}}, dimensions={0}", "all-to-all", 64 * 4 // 2),
        ("collective-permute(%x), source_target_pairs={{0,1}}", "collective-permute", 64 * 4),
    ],
)  # fmt: skip
def test_what_a_collective_sends(line: str, kind: str, sent: int) -> None:
    plus = "%plus (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n  ROOT %s = f32[] add(%a, %b)\n}\n"  # noqa: E501
    text = f"HloModule m\n\n{plus}\nENTRY %main (x: f32[64]) -> f32[64] {{\n  %x = f32[64] parameter(0)\n  ROOT %r = f32[64] {line}\n}}\n"  # noqa: E501
    (found,) = read(parsed(text)).all
    assert (found.collective, price.wire_bytes(found, 8)) == (kind, sent)
    (row,) = kernels.collectives(compiled(answer("v6e", text, {"x": 8})))
    assert row["bytes_sent"] == sent and row["time_s"] == pytest.approx(sent / 400e9)


def test_what_was_read_is_remembered_and_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, one = cache.Answers(tmp_path / "c"), answer("h100")
    one.key = "known"
    first = compiled(one, profiled(), kept)
    again = answer("h100")
    again.key = "known"
    monkeypatch.setattr("costtrace.evidence.compiled.timed", None)  # reading would fail now
    second = compiled(again, profiled(), kept)
    assert second.parts == first.parts and second.notes == first.notes
    other = costtrace.profile(lambda x: x, shape((4,)))
    with pytest.raises(TypeError):
        compiled(again, other, kept)  # other scopes are another reading


# Views ----------------------------------------------------------------------------------------------------------------


def test_slowest_kernels_say_what_binds_and_why() -> None:
    found = compiled(answer("v6e"), profiled())
    rows = kernels.slowest(found.answer.module, found, 3)
    assert [row["all_s"] for row in rows] == sorted((row["all_s"] for row in rows), reverse=True)
    assert rows[0]["scope"] == "mlp/down" and rows[0]["runs"] == LAYERS
    assert all(row["why"] and row["bound"] for row in rows[:1])


def test_fusion_sets_four_counts_of_bytes_side_by_side() -> None:
    found = compiled(answer("v6e"), profiled())
    rows = kernels.fusion(profiled().rows("scope", 1, True), found)
    assert sum(row["bytes_compiled"] for row in rows) == found.total.hbm_bytes
    assert all(
        r["bytes_fused"] <= r["bytes_scoped"] <= r["bytes_unfused"] for r in rows if r["bytes_fused"] is not None
    )


@pytest.mark.parametrize("rows", [1, 64, 256])
def test_the_rows_of_a_product(rows: int) -> None:
    text = f"""HloModule m

ENTRY %main () -> f32[] {{
  %a = bf16[{rows},512] parameter(0)
  %b = bf16[512,2048] parameter(1)
  ROOT %r = bf16[{rows},2048] dot(%a, %b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
    found = compiled(answer("v6e", text))
    module = found.answer.module
    assert kernels.product_rows(module, module.entry, module.entry.instructions["r"]) == rows
    (row,) = kernels.slowest(module, found)
    assert ("small m" in row["why"]) == (rows < kernels.SMALL)


# A user's dump --------------------------------------------------------------------------------------------------------


def test_a_dump_as_text_and_as_proto_is_one_module(tmp_path: Path) -> None:
    lowered = jax.jit(block).lower(*ARGS).compiler_ir("hlo").as_hlo_module()
    proto = lowered.as_serialized_hlo_module_proto()
    n, head = len(proto), b""
    while n >= 128:
        n, head = n >> 7, head + bytes([n & 127 | 128])
    files = {"a.txt": lowered.to_string().encode(), "b.pb": proto, "c.hlo.pb": b"\n" + head + bytes([n]) + proto}
    found = []
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        found.append(read(dump.read(tmp_path / name)).all)
    products = {sum(k.work.matmul_flops * k.repeat for k in each) for each in found}
    assert products == {LAYERS * 2 * 2 * TOKENS * WIDTH * INNER}


@pytest.mark.parametrize(
    ("data", "message"),
    [(None, "give the path of an HLO dump"), (b"hello", "not an HLO module"), (b"\x0a\x03abc", "no HLO proto")],
)
def test_what_is_no_dump_is_refused(tmp_path: Path, data: bytes | None, message: str) -> None:
    path = tmp_path / "dump"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises((FormatError, UsageError), match=message) as e:
        dump.read(path)
    assert "dump" in str(e.value) and "\n" not in str(e.value)


# Lowered programs -----------------------------------------------------------------------------------------------------


def test_a_program_is_the_same_from_wherever_it_is_lowered() -> None:
    one = program.lowered(block, ARGS, "tpu")
    other = (lambda: program.lowered(block, ARGS, "tpu"))()
    assert one.digest == other.digest
    assert one.digest != program.lowered(block, ARGS, "cuda").digest
    assert one.digest != program.lowered(unrolled, ARGS, "tpu").digest
    assert program.lowered(block, ARGS, "tpu", jit={"donate_argnums": 1}).donated == (2,)


def test_a_function_that_fails_is_one_line() -> None:
    with pytest.raises(costtrace.TraceError, match=r"^bad cannot be lowered for tpu: ") as e:
        program.lowered(bad, (shape((4,)),), "tpu")
    assert "\n" not in str(e.value)


def bad(x: Any) -> Any:
    return x + jnp.zeros((3, 5))


# Measurements ---------------------------------------------------------------------------------------------------------


def test_measurements_load_with_source_and_derivation() -> None:
    rows = measured.measurements()
    assert {row.id for row in rows} >= {"v6e-klein-dit", "v6e-klein-vae", "v6e-klein-text", "l4-klein-dit"}
    assert all(row.source and row.derivation and row.date and row.formulation for row in rows)
    assert all(chip.load(row.chip) for row in rows)


def test_errors_weigh_twice_and_half_the_same() -> None:
    assert measured.error(2.0, 1.0) == measured.error(0.5, 1.0) == pytest.approx(math.log(2))
    rows = measured.measurements()
    device = [measured.Validation(r, r.measured_s / 4, r.measured_s * 2) for r in rows if r.device]
    other = [measured.Validation(r, r.measured_s / 99, None) for r in rows if not r.device]
    found = measured.document(device + other, {"schema": "s", "costtrace": "v"})
    assert found["mean_error_floor"] == pytest.approx(math.log(4))
    assert found["mean_error_predicted"] == pytest.approx(math.log(2))
    assert {"id", "chip", "stage", "measured_s", "floor_s", "predicted_s", "source"} <= set(found["rows"][0])
    assert all(band["low"] == 0.5 and band["high"] == 1.0 for band in found["bands"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('time = "39.41 ms"', 'time = "39.41"'), "no unit"),
        (('tag = "M"', 'tag = "D"'), "a measurement has M"),
        (('source = "report"', 'source = "memory"'), "does not name"),
        (("device = true", "device = false"), "`why`"),
        (("[[row]]", "[[row]]\nextra = 1"), "unknown field"),
    ],
)
def test_a_measurement_without_its_source_does_not_load(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    text = (measured.folder() / "klein.toml").read_text()
    (tmp_path / "x.toml").write_text(text.replace(*change, 1))
    with pytest.raises(FormatError, match=message) as e:
        measured.load(tmp_path / "x.toml")
    assert "measurements/x.toml" in str(e.value)


# Real compiles --------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path) -> cache.Answers:
    return cache.Answers(tmp_path / "answers")


def asked(fn: Any, args: Any, name: str, kept: cache.Answers, **more: Any) -> compiler.Answer:
    on = chip.load(name)
    try:
        setup.python(on.kind)
    except UsageError as e:
        pytest.skip(str(e))
    lowered = program.lowered(fn, args, compiler.platform(on))
    (found,) = compiler.ask([compiler.Question(lowered, on, **more)], kept)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", [*tpu.GENERATIONS, *gpu.CAPABILITIES])
def test_every_target_compiles_and_is_read(name: str, kept: cache.Answers) -> None:
    found = asked(block, ARGS, name, kept)
    read_ = compiled(found, profiled())
    assert not found.cached and not [n for n in read_.notes if n.kind not in ("replaced-estimate", "loop")]
    assert read_.total.matmul_flops == LAYERS * 2 * 2 * TOKENS * WIDTH * INNER
    assert read_.total.time_s > 0 and found.peak_bytes >= sum(
        math.prod(x.shape) * 2 for x in jax.tree.leaves(ARGS))  # fmt: skip
    again = asked(block, ARGS, name, kept)
    assert again.cached and again.text == found.text


@pytest.mark.slow
def test_scanned_and_unrolled_agree_or_the_note_says_why(kept: cache.Answers) -> None:
    scanned, flat = (compiled(asked(fn, ARGS, "v6e", kept), profiled()) for fn in (block, unrolled))
    agree = scanned.total.time_s == pytest.approx(flat.total.time_s, rel=0.10)
    assert agree or ([note.kind for note in scanned.notes] == ["loop"] and not flat.notes)
    assert scanned.total.matmul_flops == flat.total.matmul_flops
    assert scanned.total.hbm_bytes == pytest.approx(flat.total.hbm_bytes, rel=0.10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v6e", "h100"])
def test_a_sharded_gradient_has_its_collectives_by_scope(name: str, kept: cache.Answers) -> None:
    mesh = AbstractMesh((2, 4), ("data", "model"))

    def on(x: Any, *spec: Any) -> Any:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, PartitionSpec(*spec)))

    w, x = ARGS
    args = ({"up": on(w["up"], None, None, "model"), "down": on(w["down"], None, "model")}, on(x, "data"))
    answer_ = asked(block, args, name, kept)
    assert answer_.mesh == {"data": 2, "model": 4}
    found = compiled(answer_, profiled())
    rows = kernels.collectives(found)
    assert {row["scope"] for row in rows} == {"mlp/down"} and sum(row["count"] for row in rows) == LAYERS
    assert found.total.matmul_flops == LAYERS * 2 * 2 * TOKENS * WIDTH * INNER // 8


@pytest.mark.slow
def test_what_a_compiler_refuses_is_one_line(kept: cache.Answers) -> None:
    big = (shape((100_000, 1_000_000)), shape((1_000_000, 8)))  # 200 GB
    with pytest.raises(worker.CompileError, match=r"does not fit") as e:
        asked(lambda a, b: a @ b, big, "v6e", kept)
    assert "\n" not in str(e.value)
    with pytest.raises(worker.CompileError, match=r"no topology 'v6e:3x5'"):
        asked(block, ARGS, "v6e", kept, topology="3x5")
    with pytest.raises(worker.CompileError, match=r"xla_no_such_option"):
        asked(block, ARGS, "v6e", kept, options={"xla_no_such_option": True})
