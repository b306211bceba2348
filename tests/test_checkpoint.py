"""Headers of safetensors files, written here as the format says, held against programs. No weight is ever read."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from costtrace import checkpoint, model
from costtrace.audit import weights
from costtrace.cli import main
from costtrace.errors import UsageError

Shapes = Mapping[str, tuple[int, ...]]


def write(path: Path, shapes: Shapes, dtype: str = "BF16", nbytes: int = 2) -> Path:
    """A file of that header and no data: eight bytes of length, then JSON with offsets as if the data followed."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        end = at + nbytes * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    return path


def klein_dit() -> dict[str, tuple[int, ...]]:
    """The published file: 149 tensors, matrices (out, in)."""
    hidden, inner = 3072, 9216
    out: dict[str, tuple[int, ...]] = {
        "img_in.weight": (hidden, 128),
        "txt_in.weight": (hidden, 7680),
        "time_in.in_layer.weight": (hidden, 256),
        "time_in.out_layer.weight": (hidden, hidden),
        "double_stream_modulation_img.lin.weight": (6 * hidden, hidden),
        "double_stream_modulation_txt.lin.weight": (6 * hidden, hidden),
        "single_stream_modulation.lin.weight": (3 * hidden, hidden),
        "final_layer.linear.weight": (128, hidden),
        "final_layer.adaLN_modulation.1.weight": (2 * hidden, hidden),
    }
    for i in range(5):
        for stream in ("img", "txt"):
            at = f"double_blocks.{i}.{stream}"
            out[f"{at}_attn.qkv.weight"] = (3 * hidden, hidden)
            out[f"{at}_attn.proj.weight"] = (hidden, hidden)
            out[f"{at}_attn.norm.query_norm.scale"] = out[f"{at}_attn.norm.key_norm.scale"] = (128,)
            out[f"{at}_mlp.0.weight"] = (2 * inner, hidden)
            out[f"{at}_mlp.2.weight"] = (hidden, inner)
    for i in range(20):
        at = f"single_blocks.{i}"
        out[f"{at}.linear1.weight"] = (3 * hidden + 2 * inner, hidden)
        out[f"{at}.linear2.weight"] = (hidden, hidden + inner)
        out[f"{at}.norm.query_norm.scale"] = out[f"{at}.norm.key_norm.scale"] = (128,)
    return out


def qwen3() -> dict[str, tuple[int, ...]]:
    """The whole published file: 36 layers, the embedding, the final norm."""
    out: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (151936, 2560), "model.norm.weight": (2560,)}
    for i in range(36):
        at = f"model.layers.{i}"
        out |= {f"{at}.self_attn.{p}_proj.weight": (n, 2560) for p, n in (("q", 4096), ("k", 1024), ("v", 1024))}
        out[f"{at}.self_attn.o_proj.weight"] = (2560, 4096)
        out |= {f"{at}.mlp.{p}_proj.weight": (9728, 2560) for p in ("gate", "up")}
        out[f"{at}.mlp.down_proj.weight"] = (2560, 9728)
        out |= {f"{at}.{p}_layernorm.weight": (2560,) for p in ("input", "post_attention")}
        out |= {f"{at}.self_attn.{p}_norm.weight": (128,) for p in "qk"}
    return out


def conv(at: str, ci: int, co: int, side: int = 3) -> dict[str, tuple[int, ...]]:
    return {f"{at}.weight": (co, ci, side, side), f"{at}.bias": (co,)}


def res(at: str, ci: int, co: int) -> dict[str, tuple[int, ...]]:
    out = {f"{at}.{n}.{p}": (c,) for n, c in (("norm1", ci), ("norm2", co)) for p in ("weight", "bias")}
    out |= conv(f"{at}.conv1", ci, co) | conv(f"{at}.conv2", co, co)
    return out | (conv(f"{at}.nin_shortcut", ci, co, 1) if ci != co else {})


def vae() -> dict[str, tuple[int, ...]]:
    """Decoder and encoder with names alike below their first word, and the batch norm's buffers."""
    out: dict[str, tuple[int, ...]] = {"bn.running_mean": (128,), "bn.running_var": (128,)}
    out["bn.num_batches_tracked"] = ()
    for half in ("encoder", "decoder"):
        out |= res(f"{half}.mid.block_1", 512, 512) | res(f"{half}.mid.block_2", 512, 512)
        out |= {f"{half}.mid.attn_1.norm.{p}": (512,) for p in ("weight", "bias")}
        for part in ("q", "k", "v", "proj_out"):
            out |= conv(f"{half}.mid.attn_1.{part}", 512, 512, 1)
        top = 128 if half == "decoder" else 512
        out |= {f"{half}.norm_out.{p}": (top,) for p in ("weight", "bias")}
    out |= conv("decoder.post_quant_conv", 32, 32, 1) | conv("decoder.conv_in", 32, 512)
    out |= conv("decoder.conv_out", 128, 3) | conv("encoder.conv_in", 3, 128) | conv("encoder.conv_out", 512, 64)
    out |= conv("encoder.quant_conv", 64, 64, 1)
    for level, ci, co in ((3, 512, 512), (2, 512, 512), (1, 512, 256), (0, 256, 128)):
        for j in range(3):
            out |= res(f"decoder.up.{level}.block.{j}", ci if j == 0 else co, co)
        if level:
            out |= conv(f"decoder.up.{level}.upsample.conv", co, co)
    for level, ci, co in ((0, 128, 128), (1, 128, 256), (2, 256, 512), (3, 512, 512)):
        for j in range(2):
            out |= res(f"encoder.down.{level}.block.{j}", ci if j == 0 else co, co)
        if level < 3:
            out |= conv(f"encoder.down.{level}.downsample.conv", co, co)
    return out


@pytest.fixture(scope="module")
def wanted() -> dict[str, dict[str, tuple[int, ...]]]:
    found = model.find("klein")
    return {stage.name: weights(stage) for stage in found.stages(found.configure())}


def compared(tmp_path: Path, shapes: Shapes, wanted: Shapes, **more: object) -> checkpoint.Comparison:
    return checkpoint.compare("f", checkpoint.read(str(write(tmp_path / "a.safetensors", shapes))), "s", wanted, **more)


def test_kleins_transformer_is_all_there(tmp_path, wanted) -> None:
    found = compared(tmp_path, klein_dit(), wanted["dit"])
    assert (found.tensors, found.elements, found.nbytes) == (149, 3875544576, 2 * 3875544576)
    assert found.agrees and found.unused == [] and found.by_name == 149
    assert found.matched["double/3/txt_mlp/2"] == ("double_blocks.3.txt_mlp.2.weight",)
    assert found.matched["final_layer/adaLN_modulation"] == ("final_layer.adaLN_modulation.1.weight",)


def test_nine_layers_and_the_norm_of_the_text_encoder_never_run(tmp_path, wanted) -> None:
    found = compared(tmp_path, qwen3(), wanted["text"])
    assert found.agrees and found.matched_elements == 27 * 100930816 + 151936 * 2560
    assert found.elements == 36 * 100930816 + 151936 * 2560 + 2560  # the 4.02 B of the file
    assert [(g.name, g.tensors, g.elements) for g in found.unused] == [
        ("model.layers.27-35", 9 * 11, 9 * 100930816),
        ("model.norm", 1, 2560),
    ]
    assert found.matched["layers/26/self_attn/q_norm"] == ("model.layers.26.self_attn.q_norm.weight",)


def test_the_decoder_is_told_from_the_encoder_beside_it(tmp_path, wanted) -> None:
    found = compared(tmp_path, vae(), wanted["vae"])
    assert found.agrees and found.matched_elements == 49620259
    assert all(name.startswith("decoder.") for names in found.matched.values() for name in names)
    left = {group.name.partition(".")[0]: 0 for group in found.unused}
    for group in found.unused:
        left[group.name.partition(".")[0]] += group.elements
    assert left == {"encoder": found.elements - 49620259 - 257, "bn": 257}
    assert round(left["encoder"] / 1e6, 1) == 34.4  # with quant_conv


def test_what_the_program_wants_and_the_file_lacks(tmp_path, wanted) -> None:
    shapes = {k: s for k, s in klein_dit().items() if not k.startswith("single_blocks.19.")}
    found = compared(tmp_path, shapes, wanted["dit"])
    assert not found.agrees
    assert [(g.name, g.tensors, g.elements) for g in found.lacking] == [("single/19", 4, 122683648)]


def test_a_tensor_of_another_shape_is_named(tmp_path, wanted) -> None:
    shapes = klein_dit() | {"single_blocks.4.linear2.weight": (3072, 12289)}
    found = compared(tmp_path, shapes, wanted["dit"])
    assert found.unlike == [
        ("single/4/linear2", (12288, 3072), "single_blocks.4.linear2.weight", (3072, 12289))
    ]  # fmt: skip
    assert not found.agrees and not found.lacking and not found.unused


def test_other_names_are_paired_by_shape_and_order(tmp_path, wanted) -> None:
    shapes = {f"t{i}.w": shape for i, shape in enumerate(wanted["dit"].values())}
    found = compared(tmp_path, shapes, wanted["dit"])
    assert found.agrees and (found.by_name, found.by_order) == (0, 149)


def test_a_mapping_joins_what_the_file_splits(tmp_path, wanted) -> None:
    """Another packaging of klein: q, k and v of the double blocks apart, 169 tensors of the same parameters."""
    shapes = klein_dit()
    mapping = {}
    for stream in ("img", "txt"):
        for i in range(5):
            del shapes[f"double_blocks.{i}.{stream}_attn.qkv.weight"]
            shapes |= {f"transformer_blocks.{i}.{stream}.to_{p}.weight": (3072, 3072) for p in "qkv"}
        names = [f"transformer_blocks.{{n}}.{stream}.to_{p}.weight" for p in "qkv"]
        mapping[f"double/{{n}}/{stream}_attn/qkv"] = names
    found = compared(tmp_path, shapes, wanted["dit"], mapping=mapping)
    assert len(shapes) == 169 and found.agrees and not found.unused
    assert (found.by_map, found.by_name) == (10, 139)


def test_a_sharded_checkpoint_is_read_through_its_index(tmp_path) -> None:
    write(tmp_path / "a-1.safetensors", {"x": (2, 3)})
    write(tmp_path / "a-2.safetensors", {"y": (4,)}, "F32", 4)
    index = tmp_path / "a.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a-1.safetensors", "y": "a-2.safetensors"}}))
    found = checkpoint.read(str(index))
    assert {n: (t.shape, t.nbytes) for n, t in found.items()} == {"x": ((2, 3), 12), "y": ((4,), 16)}
    index.write_text(json.dumps({"weight_map": {"x": "a-1.safetensors", "z": "a-2.safetensors"}}))
    with pytest.raises(UsageError, match=r"names 'z', which a-2.safetensors does not hold"):
        checkpoint.read(str(index))
    index.write_text(json.dumps({"weight_map": {"x": "a-3.safetensors"}}))
    with pytest.raises(UsageError, match=r"names a-3.safetensors, which is not beside it"):
        checkpoint.read(str(index))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "first eight bytes"),
        (b"\x00" * 16, "first eight bytes"),
        (struct.pack("<Q", 2**60) + b"{}", "first eight bytes"),
        (struct.pack("<Q", 5) + b"[1,2]", "not the JSON"),
        (struct.pack("<Q", 14) + b'{"x": {"a": 1}}', "not the JSON"),
    ],
)
def test_what_is_no_safetensors_file_is_refused(tmp_path, content, said) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=said):
        checkpoint.read(str(path))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"no file nowhere\.safetensors: give"):
        checkpoint.read("nowhere.safetensors")


@pytest.mark.slow
def test_the_command_finds_the_stage_and_says_what_never_runs(tmp_path, capsys) -> None:
    path = write(tmp_path / "qwen3.safetensors", qwen3())
    assert main(["audit", "klein", "--checkpoint", str(path), "--fail-on", "missing in the program"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "4,022,468,096 parameters, 8.045 GB [S]" in page
    assert "text wants 298 tensors, 3,114,088,192 parameters [D]: 298 found" in page
    assert "in the file, never runs: model.layers.27-35: 99 tensors, 908,377,344 parameters" in page


@pytest.mark.slow
def test_a_checkpoint_that_lacks_something_fails_where_asked(tmp_path, capsys) -> None:
    shapes = {k: s for k, s in klein_dit().items() if not k.startswith("single_blocks.19.")}
    path = write(tmp_path / "dit.safetensors", shapes)
    claims = tmp_path / "none.py"
    claims.write_text("from costtrace.claim import Claims\n\nCLAIMS = Claims()\n")
    line = ["audit", "klein", "--claims", str(claims), "--checkpoint", f"dit={path}", "--fail-on", "differs"]
    assert main(line) == 1
    assert "wanted, not in the file: single/19: 4 tensors, 122,683,648 parameters" in capsys.readouterr().out
    assert main([*line[:5], f"nosuch={path}"]) == 2
    assert "no stage 'nosuch': there are text, dit, vae" in capsys.readouterr().err
