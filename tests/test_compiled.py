"""The chip's compiler as a witness: parts, sums, notes and views of what compilers really wrote."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from block import ARGS, DUMPS, INNER, LAYERS, TOKENS, WIDTH, answer, block, profiled, shape

import costtrace
from costtrace import chip, roofline
from costtrace.cli import compiled as asking
from costtrace.errors import FormatError, UsageError
from costtrace.evidence import dump, kernels
from costtrace.evidence.compiled import Compiled, compiled, row_of
from costtrace.report import compiled as report
from costtrace.report.document import Grouping, document
from costtrace.target import cache, opname, price, tpu
from costtrace.target.hlo import parsed
from costtrace.target.kernel import kernels as read

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
    assert found.collective == kind
    (row,) = compiled(answer("v6e", text, {"x": 8})).collectives
    assert row["kind"] in kind.replace("-", "_") and row["bytes_sent"] == sent and row["estimated_by"] == price.NETWORK


def asynchronous(between: str) -> str:
    """An all-gather of 8 MB among eight that is waited for after `between`."""
    return f"""HloModule m, is_scheduled=true

ENTRY %main (x: bf16[512,1024], y: f32[3072,4096]) -> bf16[4096,1024] {{
  %x = bf16[512,1024] parameter(0)
  %y = f32[3072,4096] parameter(1)
  %s = (bf16[512,1024], bf16[4096,1024]) all-gather-start(%x), replica_groups=[1,8]<=[8], dimensions={{0}}, metadata={{op_name="jit(f)/mlp/x"}}
  %t = (bf16[512,1024], bf16[4096,1024]) all-gather-start(%x), replica_groups=[1,8]<=[8], dimensions={{0}}, metadata={{op_name="jit(f)/mlp/x"}}
{between}
  %u = bf16[4096,1024] all-gather-done(%t)
  ROOT %d = bf16[4096,1024] all-gather-done(%s)
}}
"""  # noqa: E501


def test_what_hides_one_collective_hides_no_other() -> None:
    (none,) = compiled(answer("v6e", asynchronous(""), {"x": 8})).collectives
    # the corner of 2x4 has 2 of its 4 links; 1 us for each of 1 + 3 hops
    sent = 2 * 7 * 512 * 1024 * 2
    assert (none["count"], none["bytes_sent"], none["hidden_s"]) == (2, sent, 0)
    assert none["network_s"] == none["time_s"] == pytest.approx(sent / 200e9 + 2 * 4e-6)
    found = compiled(answer("v6e", asynchronous("  %a = f32[3072,4096] negate(%y)"), {"x": 8}))
    (row,), busy = found.collectives, 2 * 3072 * 4096 * 4 / 1638e9
    assert row["time_s"] / 2 < busy < row["time_s"] and row["hidden_s"] == pytest.approx(busy)
    assert found.total.time_s == pytest.approx(row["time_s"])


def test_a_collective_inside_a_fusion_and_one_of_unknown_links() -> None:
    text = """HloModule m

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%scatter (q: f32[64,32]) -> f32[8,32] {
  %q = f32[64,32] parameter(0)
  %t = f32[64,32] all-reduce(%q), replica_groups=[1,8]<=[8], to_apply=%add
  %z = u32[] constant(0)
  ROOT %d = f32[8,32] dynamic-slice(%t, %z, %z), dynamic_slice_sizes={8,32}
}

ENTRY %main (p: f32[64,32]) -> f32[8,32] {
  %p = f32[64,32] parameter(0)
  ROOT %f = f32[8,32] fusion(%p), kind=kCustom, calls=%scatter, metadata={op_name="jit(f)/mlp/x"}
}
"""
    (row,) = compiled(answer("v6e", text, {"x": 8})).collectives
    assert (row["kind"], row["scope"], row["bytes_sent"]) == ("reduce_scatter", "mlp", 7 * 64 * 32 * 4 // 8)
    reduced = text.replace(
        "fusion(%p), kind=kCustom, calls=%scatter", "all-reduce(%p), replica_groups={}, to_apply=%add"
    )
    reduced = reduced.replace("f32[8,32] all", "f32[64,32] all").replace(
        "-> f32[8,32] {\n  %p", "-> f32[64,32] {\n  %p"
    )
    alone = compiled(answer("rtx3050", reduced, {"x": 8}))
    assert [n.kind for n in alone.notes] == ["unknown-network"]
    assert alone.collectives[0]["network_s"] is None


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


@pytest.mark.parametrize(("made", "why"), [
    ("%i = s32[512,512] iota(), iota_dimension=0\n  ROOT %r = pred[512,512] compare(%i, %p), direction=GE",
     "no FLOPs: compare, iota"),  # a mask is made, not moved
    ("%t = s32[512,512] transpose(%p), dimensions={1,0}\n  ROOT %r = s32[512,512] copy(%t)", "layout copy"),
])  # fmt: skip
def test_a_kernel_without_flops_says_what_it_does(made: str, why: str) -> None:
    kind = "pred" if "pred" in made else "s32"
    text = f"""HloModule m

%inner (p: s32[512,512]) -> {kind}[512,512] {{
  %p = s32[512,512] parameter(0)
  {made}
}}

ENTRY %main (a: s32[512,512]) -> {kind}[512,512] {{
  %a = s32[512,512] parameter(0)
  ROOT %f = {kind}[512,512] fusion(%a), kind=kLoop, calls=%inner
}}
"""
    found = compiled(answer("v6e", text))
    (row,) = kernels.slowest(found.answer.module, found)
    assert row["why"].startswith(why)


def documented(name: str, depth: int | None = 1) -> tuple[Any, Any, Grouping]:
    grouping = Grouping(depth=depth, merge=True)
    found = {"block": (profiled(), compiled(answer(name), profiled()))}
    return document("block", {}, chip.load(name), [("block", 3, profiled())], grouping), found, grouping


@pytest.mark.parametrize("depth", [1, 2, None])
def test_a_document_takes_the_compilers_answer(depth: int | None) -> None:
    doc, found, _ = documented("v6e", depth)
    (stage,) = report.attached(doc, found, chip.load("v6e"))["stages"]
    rows = [*stage["rows"], *stage["compiled_rows"]]
    assert math.isclose(sum(r["compiled"]["time_s"] for r in rows if r["compiled"]), stage["compiled_s"])
    assert {"compiled_s", "compiled_peak_bytes", "compile_s"} <= set(stage)
    assert doc["compiled_s"] == 3 * stage["compiled_s"]
    assert stage["band"]["platform"] == "tpu" and stage["band"]["kind"] == "products"
    assert all((r["band"] is None) == (r["cost"]["matmul_flops"] == 0) for r in stage["rows"])
    text = report.page(doc)
    assert "band " in text and "v6e-klein-dit" in text
    assert "predicted" in text and "whole stage" in text and max(map(len, text.splitlines())) < 120
    assert json.loads(report.pages([doc], "json"))["compiled_s"] == doc["compiled_s"]
    assert len(report.pages([doc], "csv").splitlines()) == 1 + len(rows)


def test_half_a_chip_is_said() -> None:
    doc, found, _ = documented("v6e")
    v7x = chip.load("v7x")
    noted = report.attached(doc, found, v7x)
    assert [n["kind"] for n in noted["notes"]].count("part-of-a-chip") == 1 and "2 devices" in report.page(noted)
    assert noted["stages"][0]["compiled_capacity_bytes"] is None  # a dump says no peak


def test_a_page_has_collectives_by_scope() -> None:
    found = {"block": (profiled(), compiled(answer("v6e", asynchronous(""), {"x": 8})))}
    doc = document("block", {}, chip.load("v6e"), [("block", 1, profiled())], Grouping(depth=1, merge=True))
    text = report.page(report.attached(doc, found, chip.load("v6e")))
    assert "all-gather" in text and "by the links of this topology" in text


@pytest.mark.parametrize("name", ["kernels", "fusion"])
@pytest.mark.parametrize("form", ["text", "json", "csv", "md"])
def test_views_in_every_form(name: str, form: str) -> None:
    doc, found, grouping = documented("h100")
    text = report.view(name, doc, found, grouping, 3, form)
    assert (form in ("text", "md") and name == "fusion") == ("excess: compiled beyond fused" in text)
    assert "mlp" in text
    if form == "json":
        assert len(json.loads(text)["rows"]) == 3


def test_a_dump_has_a_page_and_data() -> None:
    made = compiled(dump.answer(DUMPS / "block.h100.hlo", chip.load("h100")))
    assert "mlp/up" in report.dumped(made, "block", "text", 2)
    assert json.loads(report.dumped(made, "block", "json"))["total"]["kernels"] == made.total.kernels


def test_options_of_a_compile() -> None:
    given = {"compiled": False, "view": None, "by": "scope", "compiler_options": (), "topology": None}
    assert not asking.wanted(given) and asking.wanted({**given, "view": "kernels"})
    with pytest.raises(UsageError, match="--by dtype"):
        asking.wanted({**given, "compiled": True, "by": "dtype"})
    with pytest.raises(UsageError, match="add it"):
        asking.wanted({**given, "topology": "2x4"})
    assert asking._passed(["a=true", "b=12", "c=x=y"]) == {"a": True, "b": 12, "c": "x=y"}
    with pytest.raises(UsageError, match="NAME=VALUE"):
        asking._passed(["a"])


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
