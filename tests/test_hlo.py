"""The HLO reader on text whose every number can be worked out by hand, and on what compilers really wrote."""

# ruff: noqa: E501  (a line of HLO is as long as it is)

from __future__ import annotations

import random
from pathlib import Path

import pytest

from costtrace.errors import FormatError
from costtrace.target import hlo, induction, kernel, opname, traffic, work
from costtrace.target.work import Window

DUMPS = Path(__file__).parent / "hlo"


def module(body: str, before: str = "", head: str = "") -> hlo.Module:
    lines = "\n".join(f"  {line.strip()}" for line in body.strip().splitlines())
    return hlo.parsed(f"HloModule m, is_scheduled=true{head}\n\n{before}\nENTRY %main () -> f32[] {{\n{lines}\n}}\n")


def only(body: str, name: str = "r", before: str = "") -> tuple[hlo.Module, hlo.Computation, hlo.Instruction]:
    m = module(body, before)
    return m, m.entry, m.entry.instructions[name]


# Shapes and lines -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nbytes", "padded", "space"),
    [
        ("f32[8,128]{1,0}", 8 * 128 * 4, 8 * 128 * 4, 0),
        ("bf16[3,5]{1,0:T(8,128)(2,1)}", 3 * 5 * 2, 8 * 128 * 2, 0),
        ("bf16[3,5]{0,1:T(8,128)(2,1)S(1)}", 3 * 5 * 2, 128 * 8 * 2, 1),
        ("f32[1,1536,24]{1,0,2:T(1,128)}", 1536 * 24 * 4, 1536 * 24 * 4, 0),
        ("s4[7]{0}", 4, 4, 0),
        ("pred[9]{0}", 9, 9, 0),
        ("f8e4m3fn[10]{0}", 10, 10, 0),
        ("c64[2,2]{1,0}", 32, 32, 0),
        ("f32[]", 4, 4, 0),
        ("token[]", 0, 0, 0),
    ],
)
def test_a_shape_has_its_bytes_in_its_layout(text: str, nbytes: int, padded: int, space: int) -> None:
    (shape,) = hlo.shapes(text)
    assert (shape.nbytes, shape.padded_nbytes, shape.space) == (nbytes, padded, space)


def test_a_line_is_read_whole() -> None:
    m, at, i = only(
        """%a = (bf16[2,3]{1,0:T(8,128)(2,1)S(1)}, /*index=1*/f32[4]{0}) parameter(0)
        ROOT %r = (f32[4]{0}, s32[]) custom-call(%a, /*index=1*/%a), custom_call_target="x(y)", window={size=3x3},
        """.replace(",\n", ', metadata={op_name="jit(f)/p[\\\'w\\\']/mul;jit(f)/q/add" stack_frame_id=2}, '
                    'backend_config={"a":{"b":"1"}}\n')
    )  # fmt: skip
    assert (i.opcode, i.operands) == ("custom-call", ("a", "a"))
    assert [str(s) for s in at.shapes_of(i)[0]] == ["bf16[2,3]", "f32[4]"]
    assert i.op_name == "jit(f)/p['w']/mul"
    assert i.attribute("window") == "size=3x3" and i.attribute("custom_call_target") == '"x(y)"'
    assert i.backend_config == {"a": {"b": "1"}}
    assert m.entry.root == "r" and [u.name for u in at.users["a"]] == ["r"]


@pytest.mark.parametrize("text", ["", "module @jit_f {}", "HloModule m\n\n%c () -> f32[] {\n}\n"])
def test_what_is_no_module_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(FormatError, match=r"HLO module") as e:
        hlo.parsed(text)
    assert "\n" not in str(e.value)


# Work -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "flops"),
    [
        ("""%a = f32[4,8,16] parameter(0)
            %b = f32[4,16,32] parameter(1)
            ROOT %r = f32[4,8,32] dot(%a, %b), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},
            """.replace(",\n", ", rhs_contracting_dims={1}\n"), 2 * 4 * 8 * 32 * 16),
        ("""%a = c64[8,16] parameter(0)
            %b = c64[16,32] parameter(1)
            ROOT %r = c64[8,32] dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}""", 8 * 8 * 32 * 16),
        # 16x16, 3x3, same padding: each border row meets two of three kernel rows: 3 * 16 - 2 pairs a dimension
        ("""%a = bf16[2,16,16,8] parameter(0)
            %b = bf16[3,3,8,4] parameter(1)
            ROOT %r = bf16[2,16,16,4] convolution(%a, %b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f""",
         2 * 2 * 4 * 8 * 46 * 46),
        # depthwise: 8 groups of one channel
        ("""%a = bf16[1,16,8] parameter(0)
            %b = bf16[3,1,8] parameter(1)
            ROOT %r = bf16[1,14,8] convolution(%a, %b), window={size=3}, dim_labels=b0f_0io->b0f, feature_group_count=8""",
         2 * 8 * 14 * 3),
        # a batched product as the TPU writes it: of 24 x 24 positions only the diagonal meets a value
        ("""%a = bf16[24,64,128] parameter(0)
            %b = bf16[24,128,32] parameter(1)
            ROOT %r = bf16[24,64,32] convolution(%a, %b), window={size=24 stride=23 lhs_dilate=24}, dim_labels=0bf_0io->0bf""",
         2 * 64 * 32 * 128 * 24),
        ("""%a = bf16[512,1024] parameter(0)
            %b = bf16[1024,64] parameter(1)
            ROOT %r = (bf16[512,64], s8[4096]) custom-call(%a, %b), custom_call_target="__cublas$lt$matmul", backend_config={
            """.replace("{\n", '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}\n'),
         2 * 512 * 64 * 1024),
        ("""%a = f32[64,64] parameter(0)
            ROOT %r = f32[64,64] exponential(%a)""", 0),
        ("""%a = f32[64,64] parameter(0)
            ROOT %r = f32[64,64] add(%a, %a)""", 64 * 64),
        ("""%a = s32[64] parameter(0)
            ROOT %r = s32[64] add(%a, %a)""", 0),
    ],
)  # fmt: skip
def test_flops_of_an_instruction(body: str, flops: int) -> None:
    assert work.of(*only(body)).flops == flops


ADD = """%plus (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}
"""


@pytest.mark.parametrize(
    ("line", "flops"),
    [
        ("reduce(%a, %zero), dimensions={1}, to_apply=%plus", 8 * (32 - 1)),
        ("reduce-window(%a, %zero), window={size=1x4 stride=1x4}, to_apply=%plus", 8 * 8 * (4 - 1)),
        # a window that holds the whole row wherever it lies: one sum a row
        ("reduce-window(%a, %zero), window={size=1x63 pad=0_0x31_31}, to_apply=%plus", 8 * (32 - 1)),
    ],
)
def test_a_reduction_applies_its_computation_once_less_than_it_has_values(line: str, flops: int) -> None:
    result = {"reduce(": "f32[8]", "size=1x4": "f32[8,8]", "size=1x63": "f32[8,32]"}
    shape = next(s for key, s in result.items() if key in line)
    body = f"%a = f32[8,32] parameter(0)\n%zero = f32[] constant(0)\nROOT %r = {shape} {line}"
    assert work.of(*only(body, before=ADD)).flops == flops


def test_positions_of_a_window_against_counting_them() -> None:
    def counted(inputs: int, outputs: int, w: Window) -> int:
        positions = (o * w.stride + k * w.spread - w.low for o in range(outputs) for k in range(w.size))
        return sum(0 <= p <= (inputs - 1) * w.dilated and p % w.dilated == 0 for p in positions)

    draw = random.Random(1)
    for _ in range(3000):
        w = Window(draw.randint(1, 6), draw.randint(1, 5), draw.randint(-3, 6), draw.randint(1, 5), draw.randint(1, 4))
        inputs, outputs = draw.randint(1, 9), draw.randint(1, 12)
        assert work.met(inputs, outputs, w) == counted(inputs, outputs, w)


# Traffic --------------------------------------------------------------------------------------------------------------

SLICED = """%fused (p: bf16[20,64,64], n: s32[], x: bf16[64,64]) -> bf16[64,64] {
  %p = bf16[20,64,64] parameter(0)
  %n = s32[] parameter(1)
  %zero = s32[] constant(0)
  %x = bf16[64,64] parameter(2)
  %part = bf16[1,64,64] dynamic-slice(%p, %n, %zero, %zero), dynamic_slice_sizes={1,64,64}
  %flat = bf16[64,64] bitcast(%part)
  ROOT %sum = bf16[64,64] multiply(%flat, %x)
}
"""
UPDATED = """%fused (p: f32[20,64], n: s32[], x: f32[1,64]) -> f32[20,64] {
  %p = f32[20,64] parameter(0)
  %n = s32[] parameter(1)
  %zero = s32[] constant(0)
  %x = f32[1,64] parameter(2)
  ROOT %new = f32[20,64] dynamic-update-slice(%p, %x, %n, %zero)
}
"""


@pytest.mark.parametrize(
    ("body", "before", "hbm", "chip"),
    [
        ("%a = f32[64] parameter(0)\nROOT %r = f32[64] add(%a, %a)", "", 2 * 64 * 4, 0),
        ("%a = f32[64]{0:T(128)S(1)} parameter(0)\nROOT %r = f32[64]{0:T(128)} negate(%a)", "", 128 * 4, 128 * 4),
        # a prefetch reads HBM once and writes the chip once; waiting for it moves nothing
        ("""%a = f32[256]{0} parameter(0)
            %r = (f32[256]{0:S(1)}, f32[256]{0}, u32[]{:S(2)}) copy-start(%a)
            ROOT %d = f32[256]{0:S(1)} copy-done(%r)""", "", 256 * 4, 256 * 4),
        ("""%a = s8[4096]{0} parameter(0)
            %r = ((s8[4096]{0}), s8[1024]{0:S(1)}, s32[]{:S(2)}) slice-start(%a), slice={[0:1024]}
            ROOT %d = s8[1024]{0:S(1)} slice-done(%r)""", "", 1024, 1024),
        ("""%p = bf16[20,64,64] parameter(0)
            %n = s32[] parameter(1)
            %x = bf16[64,64] parameter(2)
            ROOT %r = bf16[64,64] fusion(%p, %n, %x), kind=kLoop, calls=%fused""", SLICED, 3 * 64 * 64 * 2 + 4, 0),
        ("""%p = f32[20,64] parameter(0)
            %n = s32[] parameter(1)
            %x = f32[1,64] parameter(2)
            ROOT %r = f32[20,64] fusion(%p, %n, %x), kind=kLoop, calls=%fused""", UPDATED, 2 * 64 * 4 + 4, 0),
        ("%a = f32[64] parameter(0)\nROOT %r = f32[8,8] bitcast(%a)", "", 0, 0),
        ("""%a = f32[100,8] parameter(0)
            %i = s32[4,1] parameter(1)
            ROOT %r = f32[4,8] gather(%a, %i), offset_dims={1}""", "", 2 * 4 * 8 * 4 + 4 * 4, 0),
    ],
)  # fmt: skip
def test_bytes_are_those_touched_by_memory_space(body: str, before: str, hbm: int, chip: int) -> None:
    moved = traffic.of(*only(body, before=before))
    assert (moved.hbm, moved.chip) == (hbm, chip)


def test_the_next_runs_prefetch_is_not_counted_again() -> None:
    """libtpu ends a program with the copy that the next run begins with."""
    m = module("""%a = f32[256]{0} parameter(0)
        %now = (f32[256]{0:S(1)}, f32[256]{0}, u32[]{:S(2)}) copy-start(%a), cross_program_prefetch_index=0
        %here = f32[256]{0:S(1)} copy-done(%now)
        %next = (f32[256]{0:S(1)}, f32[256]{0}, u32[]{:S(2)}) copy-start(%a)
        ROOT %r = f32[256]{0} negate(%here)
        %there = f32[256]{0:S(1)} copy-done(%next)""")
    assert [k.name for k in kernel.kernels(m).all] == ["now", "r"]


# Loops ----------------------------------------------------------------------------------------------------------------

LOOP = """%body (t: (s32[], f32[4], s32[])) -> (s32[], f32[4], s32[]) {{
  %t = (s32[], f32[4], s32[]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[4] get-tuple-element(%t), index=1
  %bound = s32[] get-tuple-element(%t), index=2
  %c = s32[] copy(%i)
  %step = s32[] constant({step})
  %next = s32[] add(%c, %step)
  %y = f32[4] add(%x, %x), metadata={{op_name="jit(f)/while/body/closed_call/block/add"}}
  ROOT %out = (s32[], f32[4], s32[]) tuple(%next, %y, %bound)
}}

%test (t: (s32[], f32[4], s32[])) -> pred[] {{
  %t = (s32[], f32[4], s32[]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %n = {bound}
  ROOT %go = pred[] compare(%i, %n), direction={direction}
}}
"""
RUN = """%start = s32[] constant(2)
%limit = s32[] constant(12)
%x = f32[4] parameter(0)
%in = (s32[], f32[4], s32[]) tuple(%start, %x, %limit)
ROOT %r = (s32[], f32[4], s32[]) while(%in), condition=%test, body=%body{known}"""
CARRIED = "s32[] get-tuple-element(%t), index=2"


@pytest.mark.parametrize(
    ("step", "bound", "direction", "known", "trips"),
    [
        (1, "s32[] constant(12)", "LT", "", 10),
        (3, "s32[] constant(12)", "LT", "", 4),
        (5, "s32[] constant(12)", "LE", "", 3),
        (1, CARRIED, "LT", "", 10),  # the bound goes round unchanged
        (2, "s32[] constant(12)", "NE", "", 5),
        (-1, "s32[] constant(0)", "GT", "", 2),
        (1, "s32[] constant(1)", "LT", "", 0),
        (1, "s32[] constant(12)", "LT", ', backend_config={"known_trip_count":{"n":"7"}}', 7),
        (1, "s32[] parameter(1)", "LT", "", None),
    ],
)
def test_trip_counts(step: int, bound: str, direction: str, known: str, trips: int | None) -> None:
    m = module(RUN.format(known=known), LOOP.format(step=step, bound=bound, direction=direction))
    assert induction.trips(m, m.entry, m.entry.instructions["r"]) == trips
    adds = [k for k in kernel.kernels(m).all if k.name == "y"]
    assert [k.repeat for k in adds] == [1 if trips is None else trips]
    assert bool(kernel.kernels(m).notes) == (trips is None)


# Names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("jit(dit)/single/while/body/closed_call/linear1/dot_general", "single/linear1"),
        ("jit(call)/call_exported/jit(dit)/while/body/closed_call/double/norm/img/add", "double/norm/img"),
        ("jit(f)/transpose(jvp(attn))/qkv/dot_general", "attn/qkv"),
        ("jit(f)/attn/hqd,hkd->hqk/dot_general", "attn"),
        ("jit(f)/checkpoint/rematted_computation/mlp/jit(silu)/logistic", "mlp"),
        ("jit(f)/branch_1_fun/a/mul", "a"),
        ("jit(dit)/while/body/closed_call/double/(mlp/down/dot_general:proj/dot_general)", "double/mlp/down"),
        ("jit(f)/mul", ""),
        ("", ""),
    ],
)
def test_an_op_name_says_its_scope(name: str, scope: str) -> None:
    assert opname.scope_of(name) == scope


def test_a_call_in_a_rematerialised_function_is_named_once() -> None:
    """jax 0.12 says its scopes twice; where nothing was rematerialised, a scope in one of its name is the author's."""
    body = "jit(f)/jvp(stack)/while/body/eval_jaxpr"
    assert opname.scope_of(f"{body}/mlp/mlp/jit(relu)/max") == "stack/mlp"
    assert opname.scope_of(f"{body}/a/b/a/b/jit(relu)/max") == "stack/a/b"
    assert opname.scope_of(f"{body}/mlp/jit(relu)/max") == "stack/mlp"
    assert opname.scope_of("jit(f)/mlp/mlp/jit(relu)/max") == "mlp/mlp"


def test_known_scopes_decide_what_a_name_passes_through() -> None:
    name = "jit(f)/while/body/cond/mul"
    assert opname.scope_of(name) == ""
    assert opname.scope_of(name, {"body", "body/cond"}) == "body/cond"  # the author's own words
    assert opname.scope_of("jit(f)/jit(helper)/a/b/mul", {"a"}) == "a"


CALLED = """%inner (x: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  ROOT %y = f32[4] logistic(%x), metadata={op_name="silu/logistic"}
}

%fused (x: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  %small = f32[] constant(1), metadata={op_name="jit(f)/a/const"}
  ROOT %heavy = f32[4] negate(%x), metadata={op_name="jit(f)/b/neg"}
}
"""
NAMELESS = """%x = f32[4] parameter(0)
%start = (f32[4]{0:S(1)}, f32[4], u32[]) copy-start(%x)
%done = f32[4]{0:S(1)} copy-done(%start)
%named = f32[4] add(%done, %x), metadata={op_name="jit(f)/c/add"}
%inside = f32[4] fusion(%named), kind=kLoop, calls=%fused
%last = f32[4] copy(%named)
%call = f32[4] call(%inside), to_apply=%inner, metadata={op_name="jit(f)/d/jit(silu)"}
ROOT %r = (f32[4], f32[4]) tuple(%call, %last)"""


def test_the_nameless_belong_where_the_rule_says() -> None:
    found = {k.name: (k.op_name, k.named_by) for k in kernel.kernels(module(NAMELESS, CALLED)).all}
    assert found == {
        "start": ("jit(f)/c/add", "consumer"),
        "named": ("jit(f)/c/add", "own"),
        "inside": ("jit(f)/b/neg", "inside"),
        "last": ("jit(f)/c/add", "producer"),
        "y": ("jit(f)/d/jit(silu)/silu/logistic", "own"),  # relative to its call
    }


# What compilers wrote -------------------------------------------------------------------------------------------------

WEIGHTS = 6 * 2 * 512 * 2048 * 2
EDGES = 2 * 256 * 512 * 2
PRODUCTS = 6 * 2 * 2 * 256 * 512 * 2048


@pytest.mark.parametrize("path", sorted(DUMPS.glob("*.hlo")), ids=lambda p: p.stem)
def test_a_scanned_block_in_three_forms(path: Path) -> None:
    """Six layers of norm, up, gelu, down: the same products in each form; HBM at least the weights and both ends."""
    found = kernel.kernels(hlo.parsed(path.read_text()))
    assert not found.notes
    assert sum(k.work.matmul_flops * k.repeat for k in found.all) == PRODUCTS
    assert sum(k.traffic.hbm * k.repeat for k in found.all) >= WEIGHTS + EDGES
    scopes = {opname.scope_of(k.op_name) for k in found.all if k.work.matmul_flops}
    assert scopes <= {"mlp/up", "mlp/down"}


def test_vmem_keeps_a_tpu_program_at_its_weights() -> None:
    found = kernel.kernels(hlo.parsed((DUMPS / "block.v6e.hlo").read_text()))
    assert sum(k.traffic.hbm * k.repeat for k in found.all) == pytest.approx(WEIGHTS + EDGES, rel=0.01)
