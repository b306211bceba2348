"""diff, check and assert_cost: what changed between two programs, and limits that hold or break."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costtrace import budget, chip, diff, figure, subject
from costtrace.budget import assert_cost
from costtrace.errors import FormatError, UsageError
from costtrace.profiler import Profile, profile
from costtrace.report import diff as report
from costtrace.report.document import Grouping, document
from costtrace.report.output import FORMATS

ROOT = Path(__file__).parent.parent
M, K, N = 64, 128, 512
FLOPS = 2 * M * K * N


def mlp(w: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    with jax.named_scope("up"):
        y = jax.nn.relu(x @ w["up"])
    with jax.named_scope("down"):
        return y @ w["down"]


def shape(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, "bfloat16")


ARGS = ({"up": shape(K, N), "down": shape(N, K)}, shape(M, K))


@pytest.fixture(scope="module")
def small() -> Profile:
    return profile(mlp, *ARGS, weights=0)


@pytest.fixture
def wide() -> Profile:
    return profile(mlp, {"up": shape(K, 3 * N), "down": shape(3 * N, K)}, shape(M, K), weights=0)


def figures(made: Profile) -> figure.Figures:
    return figure.of_profiles("mine", chip.load("v6e"), [("mine", 2, made)])


def test_a_change_counts_every_call(small: Profile, wide: Profile) -> None:
    first, *_ = diff.diff(figures(small), figures(wide), "flops")
    assert (first.scope, first.verdict) == ("up", diff.CHANGED)  # relu on top of the product
    assert first.delta("weight_bytes") == 2 * (3 - 1) * 2 * K * N  # 2 calls, 2 bytes each


def test_what_is_the_same_is_said_so(small: Profile) -> None:
    assert {c.verdict for c in diff.diff(figures(small), figures(small))} == {diff.SAME}


def test_a_scope_on_one_side_is_new_or_gone(small: Profile) -> None:
    def up(w: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        with jax.named_scope("up"):
            return jax.nn.relu(x @ w["up"])

    alone = profile(up, *ARGS, weights=0)
    there = {c.scope: c for c in diff.diff(figures(small), figures(alone))}
    back = {c.scope: c for c in diff.diff(figures(alone), figures(small))}
    assert (there["down"].verdict, back["down"].verdict) == (diff.REMOVED, diff.ADDED)
    assert there["down"].delta("flops") == -2 * FLOPS == -back["down"].delta("flops")


def test_klein_with_a_wider_mlp_names_it_first(tmp_path: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    text = (ROOT / "models_spec" / "klein.py").read_text()
    planted = text.replace('_mlp/0", y[stream], 2 * mlp)', '_mlp/0", y[stream], 6 * mlp)').replace(
        "silu(wide[..., :mlp]) * wide[..., mlp:]", "silu(wide[..., : 3 * mlp]) * wide[..., 3 * mlp :]"
    )
    assert planted.count("3 * mlp") == 2 and planted.count("6 * mlp") == 1
    (tmp_path / "wider.py").write_text(planted)
    code, out, err = run("diff", "klein", str(tmp_path / "wider.py"), "--format", "json")
    assert (code, err) == (0, "")
    first = json.loads(out)["rows"][0]
    assert (first["stage"], first["scope"]) == ("dit", "double/mlp")
    mlp_flops = 2 * 1536 * 3072 * 9216 * 3  # tokens, width, MLP; up is twice as wide as down
    products = first["flops"]["after"] - first["flops"]["before"]
    assert products == pytest.approx(4 * 5 * 2 * mlp_flops, rel=1e-3)  # 4 steps, 5 blocks, silu beside it


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_prints_both_pages(form: str, small: Profile, wide: Profile) -> None:
    sides = figures(small), figures(wide)
    doc = report.document(*sides, diff.diff(*sides), diff.totals(*sides), "pessimistic_s")
    assert "up" in report.printed(doc, form)
    lines = budget.checked(sides[1], [budget.Limit("mine", "up", {"flops": budget.bound("flops", FLOPS, "<=")})])
    assert "flops" in report.check_printed(report.check_document([(sides[1], lines)]), form)


# Sides


def test_a_saved_document_and_a_saved_profile_are_sides(tmp_path: Path, small: Profile, wide: Profile) -> None:
    doc = document("mine", {"n": 3}, chip.load("v6e"), [("mine", 1, small)], Grouping())
    (tmp_path / "doc.json").write_text(json.dumps(doc))
    small.name = wide.name = "mine"
    (tmp_path / "profile.json").write_text(wide.to_json())
    sides = subject.opened(str(tmp_path / "doc.json")), subject.opened(str(tmp_path / "profile.json"))
    assert diff.diff(*sides)[0].verdict == diff.CHANGED
    assert sides[0].of("floor_s") == pytest.approx(doc["floor_s"])
    assert sides[0].of("pessimistic_s") == pytest.approx(doc["pessimistic_s"])
    assert sides[0].of("flops") == doc["total"]["flops"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("klein:res", "no model 'klein:res': did you mean klein"),
        ("klein:res=512x512,steps", "option 'steps' has no value: write klein:NAME=VALUE"),
        ("nothing.json", "No such file or directory: give a saved JSON file, or a model"),
        ("klein:size=3", "klein has no option 'size'"),
    ],
)
def test_a_side_that_is_not_there(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        subject.opened(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no", "is not JSON"),
        ("[]", "is no document of a model or a profile"),
        ('{"schema": "costtrace/1", "runs": []}', "several runs: save them apart"),
        ('{"schema": "costtrace.profile/0"}', "is no document"),
        ('{"schema": "costtrace/1", "by": "dtype", "stages": []}', "save it with --by scope"),
    ],
)
def test_a_file_that_is_something_else(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "it.json").write_text(text)
    with pytest.raises(FormatError, match=said):
        subject.opened(str(tmp_path / "it.json"))


# Budgets

BUDGET = """
program = "klein"
chip = "v6e"

[[limit]]
stage = "dit"
scope = "double/mlp"
flops = "{flops}"

[[limit]]
stage = "dit"
peak_bytes = "32 GB"

[[limit]]
floor_s = "60 ms"
"""


def test_a_budget_that_holds_and_one_that_breaks(tmp_path: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    path = tmp_path / "budget.toml"
    path.write_text(BUDGET.format(flops="3 TFLOP"))
    code, out, err = run("check", "--budget", str(path), "--format", "md")
    assert (code, err) == (0, "")
    assert out.startswith("**costtrace: all 3 limits hold** for klein on v6e\n\n| part")
    path.write_text(BUDGET.format(flops="1 TFLOP"))
    code, out, err = run("check", "--budget", str(path), "--format", "json")
    assert code == 1
    # 5 blocks x 2 x 1536 tokens x 3072 x 3 x 9216, and silu
    assert err == "costtrace: dit: double/mlp: flops is 1.305 TFLOP, the limit is <= 1 TFLOP\n"
    doc = json.loads(out)
    assert doc["passed"] is False
    assert [row["passed"] for row in doc["rows"]] == [False, True, True]
    assert doc["rows"][0]["limit"] == 10**12
    _, out, _ = run("check", "--budget", str(path), "--format", "md")
    assert out.startswith("**costtrace: 1 of 3 limits do not hold**")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = ", "a budget has program, chip and"),
        ("limits = []", "a budget has program, chip and"),
        ('limit = [{scope = "up"}]', "limit 1 limits nothing: add a quantity: flops,"),
        ('limit = [{flop = "3 FLOP"}]', "limit 1: no quantity 'flop': there are flops,"),
        ('limit = [{flops = "3 GB"}]', "flops = '3 GB': '3 GB' is not in FLOP"),
        ("limit = [{flops = true}]", "flops = True: write a limit with its unit, like "),
    ],
)
def test_a_budget_that_is_wrong(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "budget.toml").write_text(text)
    with pytest.raises(UsageError, match=said):
        budget.load(tmp_path / "budget.toml")


def test_a_scope_that_is_not_there_is_an_error(small: Profile) -> None:
    limit = budget.Limit("", "upp", {"flops": budget.bound("flops", 3, "<=")})
    with pytest.raises(UsageError, match="mine has no scope 'upp': it has up"):
        budget.checked(figures(small), [limit])


def test_an_unknown_price_is_no_pass() -> None:
    def search(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda c: jnp.sum(c) < 3, lambda c: c * c, x)

    made = profile(search, shape(8, 8))
    assert made.status == "unknown"
    with pytest.raises(AssertionError, match="a part of the program has no price"):
        assert_cost(made, flops="<= 1 TFLOP")


# assert_cost


def test_assert_cost_gives_the_profile() -> None:
    made = assert_cost(mlp, *ARGS, scope="down", flops=FLOPS, bytes_fused="<= 1 MB", floor_s="1 ms")
    assert made.total.matmul_flops == 2 * FLOPS


def test_a_diff_says_which_side_is_a_lower_bound(small: Profile) -> None:
    def search(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda c: jnp.sum(c) < 3, lambda c: c * c, x)

    sides = figures(small), figures(profile(search, shape(8, 8)))
    doc = report.document(*sides, diff.diff(*sides), diff.totals(*sides), "pessimistic_s")
    assert (doc["before"]["status"], doc["after"]["status"]) == ("exact", "unknown")
    text = " ".join(report.printed(doc, "text").split())
    assert "after: a part of the program has no price" in text and "before: a part" not in text


def test_assert_cost_takes_numpys_numbers() -> None:
    assert_cost(mlp, *ARGS, scope="down", matmul_flops=np.prod(np.array([2, M, K, N])), floor_s=">= 0 s")
    with pytest.raises(AssertionError, match="down: matmul_flops is "):
        assert_cost(mlp, *ARGS, scope="down", matmul_flops=np.float64(FLOPS + 1))


def test_assert_cost_names_the_scope_and_both_numbers() -> None:
    with pytest.raises(AssertionError) as e:
        assert_cost(mlp, *ARGS, scope="down", flops=FLOPS - 1)
    assert str(e.value) == "mlp: down: flops is 8_388_608 FLOP, the limit is == 8_388_607 FLOP"


def test_assert_cost_needs_a_limit(small: Profile) -> None:
    with pytest.raises(UsageError, match="asserts nothing: add a quantity"):
        assert_cost(small)
    with pytest.raises(UsageError, match="no quantity 'flop'"):
        assert_cost(small, flop=3)
    with pytest.raises(UsageError, match="a peak is a whole stage's"):
        assert_cost(small, scope="up", peak_bytes="1 GB")


SAMPLE = """
import jax
from costtrace.budget import assert_cost

X = jax.ShapeDtypeStruct((8, 16), "float32")

def test_holds():
    assert_cost(lambda x: x @ x.T, X, flops=2 * 8 * 16 * 8)

def test_breaks():
    assert_cost(lambda x: x @ x.T, X, flops="<= 1 kFLOP")
"""


@pytest.mark.slow
def test_assert_cost_in_a_project_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "1 failed, 1 passed" in done.stdout
    assert "AssertionError: <lambda>: flops is 2.048 kFLOP, the limit is <= 1 kFLOP" in done.stdout
    assert "budget.py" not in done.stdout.replace("costtrace.budget", "")


@pytest.mark.parametrize("limit", [float("nan"), float("inf"), -1, -0.5])
def test_a_limit_is_a_finite_number(limit: float) -> None:
    """nan holds nothing, inf everything: a guard that guards nothing is none."""
    with pytest.raises(UsageError, match="a limit is a finite number, 0 or more"):
        budget.bound("floor_s", limit, budget.AT_MOST)


def test_a_diff_is_by_any_quantity_but_a_peak(small: Profile, wide: Profile) -> None:
    for quantity in figure.QUANTITIES:
        if quantity == "peak_bytes":
            with pytest.raises(UsageError, match="a peak is a whole stage's"):
                diff.diff(figures(small), figures(wide), quantity)
            continue
        there = diff.diff(figures(small), figures(wide), quantity)
        back = diff.diff(figures(wide), figures(small), quantity)
        assert [c.scope for c in there] == [c.scope for c in back]
        assert [c.delta(quantity) for c in there] == [-(c.delta(quantity) or 0) for c in back]
        sides = figures(small), figures(wide)
        doc = report.document(*sides, there, diff.totals(*sides, quantity), quantity)
        assert all(quantity in report.printed(doc, form) for form in ("json", "csv"))


def test_seconds_that_leave_work_out_are_no_pass_and_said() -> None:
    """v6e has no float64 rate: what is known of its seconds is a lower bound."""
    with jax.enable_x64(True):
        made = profile(mlp, *(jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, "float64"), ARGS)))
    with pytest.raises(AssertionError, match="no float64 matrix rate on v6e"):
        assert_cost(made, floor_s="<= 1 s")
    assert_cost(made, floor_s="<= 1 s", chip="h100")
    sides = [figure.of_profiles("mine", chip.load(name), [("mine", 1, made)]) for name in ("h100", "v6e")]
    doc = report.document(*sides, diff.diff(*sides), diff.totals(*sides), "pessimistic_s")
    assert doc["before"]["missing"] == [] and doc["after"]["missing"]
    assert "no float64 matrix rate on v6e" in " ".join(report.printed(doc, "text").split())


def test_seconds_without_a_memory_rate_are_not_known(small: Profile) -> None:
    v6e = chip.load("v6e")
    bare = dataclasses.replace(v6e, numbers={k: n for k, n in v6e.numbers.items() if k != "hbm.bandwidth"})
    sides = [figure.of_profiles("mine", on, [("mine", 1, small)]) for on in (v6e, bare)]
    assert all(c.delta("pessimistic_s") is None and c.values["floor_s"][1] is None for c in diff.diff(*sides))
    doc = report.document(*sides, diff.diff(*sides), diff.totals(*sides), "pessimistic_s")
    assert "to ?" in report.printed(doc, "text")
