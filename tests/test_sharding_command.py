"""`--chips`: whole answers, errors, and the formula behind a number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costtrace import units
from costtrace.cli import main


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["klein", *argv])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_ranks_strategies(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--chips", "8", "--strategy", "ulysses,data,tp", "--format", "json")
    doc = json.loads(out)
    assert code == 0
    assert [s["name"] for s in doc["strategies"]] == ["tp", "ulysses", "data"]
    first = doc["strategies"][0]
    assert first["collective_s"] == pytest.approx(sum(c["time_s"] for c in first["collectives"]))
    assert first["floor_s"] == pytest.approx(max(first["work_s"], first["collective_s"]))
    assert first["serial_s"] == pytest.approx(first["work_s"] + first["collective_s"])
    assert first["mesh"] == {"model": 8}
    assert doc["strategies"][2]["problems"][0].startswith("text: batch 1 does not divide by 8")


@pytest.mark.parametrize(("argv", "work", "wanted"), [
    (("klein",), 6.22, {"ulysses": (0.26, 6.48), "fsdp": (16.96, 23.17), "tp": (1.45, 7.66)}),
    (("klein", "--res", "1360x768"), 20.47, {"ulysses": (0.77, 21.24), "fsdp": (16.96, 37.42), "tp": (4.32, 24.79)}),
    (("sa3",), 8.61, {"ulysses": (0.34, 8.95), "fsdp": (6.36, 14.96)}),
])  # fmt: skip
def test_the_hand_column_is_what_the_report_prints(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], work: float, wanted: dict[str, tuple[float, float]]
) -> None:
    """The report's section 5 and 8, each collective once an image."""
    assert main([*argv, "--chips", "8", "--strategy", ",".join(wanted), "--format", "json"]) == 0
    for s in json.loads(capsys.readouterr().out)["strategies"]:
        hand = s["hand"]
        assert hand["source"].startswith("Roofline and communication cost")
        found = [1000 * hand[key] for key in ("compute_s", "collective_s", "floor_s")]
        assert found == pytest.approx([work, *wanted[s["name"]]], abs=0.006)


@pytest.mark.parametrize(
    "argv", [("--chips", "4"), ("--chips", "8", "--chip", "v5p"), ("--chips", "8", "--batch", "2")]
)
def test_what_was_not_published_is_not_said_to_be(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]) -> None:
    _, out, _ = run(capsys, *argv, "--strategy", "ulysses", "--format", "json")
    assert [s["hand"]["source"] for s in json.loads(out)["strategies"]] == [None]


def test_padding_to_a_kernels_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--res", "1360x768", "--chips", "8", "--strategy", "ulysses")
    assert "dit: tokens 4080 = 8 x 510\n" in out
    assert "dit: tokens 4080 padded to 4096 (blocks of 128): +0.392%" in out
    assert "dit: tokens 4592 = 8 x 574\n" in out
    assert "dit: tokens 4592 padded to 4608 (blocks of 128): +0.348%, attention +0.698%" in out


@pytest.mark.parametrize(("argv", "said"), [
    (["--chips", "8", "--mesh", "data=2,model=2", "--strategy", "tp"], "--chips says 8"),
    (["--chips", "8", "--mesh", "a=8"], "no one strategy knows the axes a"),
    (["--chips", "0"], "write numbers of chips"),
    (["--strategy", "tp"], "say how many chips"),
    (["--chips", "2", "--chip", "rtx3050"], "has no links"),
    (["--chips", "8", "--strategy", "tp", "--explain", "dit"], "it takes a strategy: tp"),
])  # fmt: skip
def test_the_command_refuses_in_one_line(capsys: pytest.CaptureFixture[str], argv: list[str], said: str) -> None:
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_explain_shows_formula_values_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--chips", "8", "--strategy", "tp", "--explain", "tp")
    told = " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 100 and "scale_out" not in out  # all within one pod
    assert "2 (N-1)/N S on 8 chips (4 x 2): 16.52 MB / (2 links x 100 GB/s) + 8 hops x 1 us = 90.58 us" in told
    assert "by hand: 2 (N-1)/N S = 16.52 MB / 400 GB/s (all links, one ring) = 41.29 us" in told
    assert "v6e link.bandwidth = 100 GB/s [D: " in out
    assert "How to Scale Your Model" in out


def test_explain_of_streaming_has_the_hosts_link_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--chips", "8", "--strategy", "stream", "--explain", "stream")
    dit = 3_875_544_576 * 2 / 32e9  # parameters, bytes each, the host's bytes a second
    assert f"dit: 4 x host: 7.751 GB / 32 GB/s = {1e3 * dit:.4g} ms; other units: compute 11.08 ms" in " ".join(
        out.split()
    )
    assert "v6e host.bandwidth = 32 GB/s [S: " in out
    assert "link." not in out and "scale_out" not in out and "formulas" not in out


def test_explain_shows_the_work_of_each_stage(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--chips", "8", "--strategy", "pipeline", "--explain", "pipeline")
    assert "vae: 1 x compute: 2.499 TFLOP bfloat16 / 918 TFLOP/s = 2.723 ms" in out
    assert "text: 1 x memory: 809 MB / 1638 GB/s x 8 (bubble) = 3.951 ms" in out  # 8 x 0.4939


# -- a program of the user's own

OWN = """
import jax
from flax import linen

def layer(w, x):
    return jax.nn.silu(x @ w["up"]) @ w["down"]

def args():
    s = lambda *dims: jax.ShapeDtypeStruct(dims, "bfloat16")
    return {"up": s(256, 1024), "down": s(1024, 256)}, s(8, 64, 256)

def plain(x, up, down):
    return jax.nn.silu(x @ up) @ down

class Module(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(256, use_bias=False)(jax.nn.silu(linen.Dense(1024, use_bias=False)(x)))

def cut(x):
    mesh = jax.sharding.AbstractMesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("d")
    return jax.shard_map(lambda x: jax.lax.psum(x, "d"), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(x)
"""


def own(capsys: pytest.CaptureFixture[str], folder: Path, name: str, *argv: str) -> tuple[int, str, str]:
    (folder / "own.py").write_text(OWN)
    code = main(["trace", f"{folder / 'own.py'}:{name}", *argv])
    said = capsys.readouterr()
    return code, said.out, said.err


REDUCED = 2 * 8 * 64 * 256 * 2 * 7 // 8
"""One all-reduce of the layer's result."""


@pytest.mark.parametrize(("name", "argv", "dtype"), [
    ("layer", ("--args", "args"), 2), ("Module", ("--arg", "f32[8,64,256]"), 4),
])  # fmt: skip
def test_a_function_or_a_module_gets_strategies(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, argv: tuple[str, ...], dtype: int
) -> None:
    code, out, _ = own(capsys, tmp_path, name, *argv, "--chips", "8", "--strategy", "tp,data", "--format", "json")
    assert code == 0
    found = {s["name"]: s for s in json.loads(out)["strategies"]}
    assert [(c["kind"], c["bytes_sent"]) for c in found["tp"]["collectives"]] == [("all_reduce", REDUCED * dtype // 2)]
    assert found["data"]["collectives"] == []
    assert {s["cost_per_chip"]["matmul_flops"] for s in found.values()} == {4 * 8 * 64 * 256 * 1024 // 8}


def test_a_functions_training_step_gets_strategies(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    more = ("--args", "args", "--optimizer", "adam", "--chips", "8", "--strategy", "data", "--format", "json")
    _, out, _ = own(capsys, tmp_path, "layer", *more)
    (data,) = json.loads(out)["strategies"]
    assert sum(c["bytes_sent"] for c in data["collectives"]) == 2 * 2 * 256 * 1024 * 2 * 7 // 8


@pytest.mark.parametrize(("name", "argv", "said"), [
    ("cut", ("--arg", "f32[64]", "--chips", "8"), "says itself how it lies over devices"),
    ("layer", ("--args", "args", "--strategy", "tp"), "say how many chips"),
    ("layer", ("--args", "args", "--chips", "8", "--plot", "x.svg"), "there is a table, and --html"),
    ("layer", ("--args", "args", "--chips", "8", "--mesh", "model=4"), "has 4 chips, --chips says 8"),
])  # fmt: skip
def test_a_function_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, argv: tuple[str, ...], said: str
) -> None:
    code, _, err = own(capsys, tmp_path, name, *argv)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_parameters_that_nobody_named_are_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arrays = [part for shape in ("64,256", "256,1024", "1024,256") for part in ("--arg", f"bf16[{shape}]")]
    _, out, _ = own(capsys, tmp_path, "plain", *arrays, "--chips", "8", "--strategy", "fsdp,tp")
    assert out.count("no argument is known to hold parameters: --weights NAME") == 2


BLOCK = """
import jax

def block(p, x):
    q = x @ p["q"]
    with jax.named_scope("attention"):
        x = jax.nn.dot_product_attention(q, q, q)
    with jax.named_scope("out"):
        return x @ p["o"]

def args():
    s = lambda *dims: jax.ShapeDtypeStruct(dims, "bfloat16")
    return {"q": s(64, 64), "o": s(64, 64)}, s(4, 1024, 8, 64)
"""


def block(capsys: pytest.CaptureFixture[str], folder: Path, *argv: str) -> str:
    (folder / "block.py").write_text(BLOCK)
    assert main(["trace", f"{folder / 'block.py'}:block", "--args", "args", "--chips", "8", *argv]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_page_of_parts_says_what_links_take_on_the_slice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (found,) = json.loads(block(capsys, tmp_path, "--strategy", "ulysses", "--format", "json"))["strategies"]
    out = block(capsys, tmp_path, "--strategy", "ulysses", "--sort", "floor")
    link, floor = (units.text(found[key], "s") for key in ("collective_s", "floor_s"))
    assert f"a slice of 2x4 has them, all calls send for {link}, and the floor is {floor}, as on the page" in out
    assert "all 4 links of a chip busy" in out
    assert "note links" not in block(capsys, tmp_path, "--strategy", "data", "--sort", "floor")  # nothing is sent


def test_a_batch_that_shares_a_factor_with_the_chips_is_cut_beside_another(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Four sequences on eight chips: the batch over four, the rest over two."""
    doc = json.loads(block(capsys, tmp_path, "--format", "json"))
    found = {s["name"]: s for s in doc["strategies"]}
    assert found["data+ulysses"]["mesh"] == {"data": 4, "seq": 2}
    assert found["data+ulysses"]["collective_s"] < found["ulysses"]["collective_s"] and found["data"]["blocked"]
    assert doc["strategies"][0]["name"].startswith("data+")
    out = block(capsys, tmp_path, "--strategy", "data,tp")
    assert "data x8: a factor of 8 divides the batch: try --strategy data+tp --mesh data=4,model=2" in out
    assert "data=4, seq=2 on a slice of 2x4" in block(capsys, tmp_path, "--explain", "data+ulysses")


def test_the_page_says_why_the_first_is_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    doc = json.loads(block(capsys, tmp_path, "--strategy", "tp,ulysses", "--format", "json"))
    first, second = doc["strategies"]
    more = units.text(second["collective_s"] - first["collective_s"], "s", 3)
    out = block(capsys, tmp_path, "--strategy", "tp,ulysses")
    assert (
        f"ranked by time in turn: {first['name']} {units.text(first['serial_s'], 's')}; {second['name']}, next" in out
    )
    assert f"{more} more links" in out


def test_a_functions_strategies_stand_on_its_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    block(capsys, tmp_path, "--html", str(tmp_path / "page.html"), "--chip", "v6e,h100")
    text = (tmp_path / "page.html").read_text()
    assert text.count("Time by strategy, all calls") == 2 and "data+ulysses" in text and "attention" in text
