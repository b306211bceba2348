"""Saved answers as sides of a diff and in budgets: what their depth leaves out, and how their pages name things."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jax
import pytest

from costtrace import budget, chip, diff, figure, subject
from costtrace.errors import UsageError
from costtrace.profiler import Profile, profile
from costtrace.report import diff as report
from costtrace.report.document import Grouping, document

M, K, N = 64, 128, 512
FLOPS = 2 * M * K * N
X, UP, DOWN = (jax.ShapeDtypeStruct(size, "bfloat16") for size in ((M, K), (K, N), (N, K)))


@pytest.fixture(scope="module")
def nested() -> Profile:
    def ffn(w: list[jax.Array], x: jax.Array) -> jax.Array:
        with jax.named_scope("ffn"):
            with jax.named_scope("up"):
                y = jax.nn.relu(x @ w[0])
            with jax.named_scope("down"):
                return y @ w[1]

    return profile(ffn, [UP, DOWN], X, weights=0)


@pytest.fixture(scope="module")
def wide() -> Profile:
    def ffn(w: jax.Array, x: jax.Array) -> jax.Array:
        with jax.named_scope("ffn"):
            return x @ w

    return profile(ffn, UP, X, weights=0)


def of(made: Profile) -> figure.Figures:
    return figure.of_profiles("mine", chip.load("v6e"), [("mine", 2, made)])


def saved(made: Profile, path: Path, depth: int) -> str:
    doc = document("mine", {}, chip.load("v6e"), [("mine", 2, made)], Grouping(depth=depth, merge=False))
    path.write_text(json.dumps(doc))
    return str(path)


def test_a_scope_below_a_saved_answers_rows_says_how_to_save_it(nested: Profile, tmp_path: Path) -> None:
    limit = budget.Limit("", "ffn/up", {"matmul_flops": budget.bound("matmul_flops", FLOPS, "==")})
    fix = "has no scope 'ffn/up': it has ffn: its rows go no deeper: save it with --depth 9, or by Profile.to_json"
    with pytest.raises(UsageError, match=fix):
        budget.checked(subject.opened(saved(nested, tmp_path / "one.json", 1)), [limit])
    for path in (saved(nested, tmp_path / "nine.json", 9), str(tmp_path / "profile.json")):
        (tmp_path / "profile.json").write_text(nested.to_json())
        assert [line.passed for line in budget.checked(subject.opened(path), [limit])] == [True]


def test_a_diff_of_other_depths_says_so(
    nested: Profile, tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    one, nine = saved(nested, tmp_path / "one.json", 1), saved(nested, tmp_path / "nine.json", 9)
    said = "one side has ffn as one row, the other its parts: give both the same --depth"
    for sides in ((one, nine), (nine, one)):
        assert said in run("diff", *sides)[1]
    assert said not in run("diff", nine, nine)[1]


def test_a_diffs_columns_name_the_quantity(nested: Profile, wide: Profile) -> None:
    sides = of(nested), of(wide)
    for quantity, head in (("floor_s", "before floor"), ("pessimistic_s", "after pessimistic"), ("flops", "before")):
        doc = report.document(*sides, diff.diff(*sides, quantity), diff.totals(*sides, quantity), quantity)
        assert head in " ".join(report.printed(doc, "md").split()) and ("floor" in head) == (quantity == "floor_s")
    one = diff.Change("mine", "up", diff.SAME, {})
    assert "\n1 scope is the same" in report.printed(report.document(*sides, [one], {}, "flops"), "text")


def test_a_check_of_several_programs_names_each_rows(
    nested: Profile, wide: Profile, tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    budgets = []
    for name, made in (("first", nested), ("second", wide)):
        program = saved(made, tmp_path / f"{name}.json", 1)
        limit = '[[limit]]\nstage = "mine"\nmatmul_flops = "== 16.8 MFLOP"'
        (tmp_path / f"{name}.toml").write_text(f'program = "{program}"\n{limit}\n')
        budgets += ["--budget", str(tmp_path / f"{name}.toml")]
    code, out, err = run("check", *budgets)
    rows = [line.split()[0] for line in out.splitlines() if line.endswith("broken")]
    assert (code, rows) == (1, ["first.json", "second.json"])
    assert f"matmul_flops is {2 * FLOPS:_} FLOP, the limit is == 16_800_000 FLOP" in err  # two products, every digit
    assert budget.bound("flops", f"{2 * FLOPS:_} FLOP", "<=").value == 2 * FLOPS
    assert run("check", *budgets[:2])[1].splitlines()[2].startswith("part ")


def test_a_diff_by_a_peak_is_refused_before_anything_is_traced(
    run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "opened", lambda *args: pytest.fail("traced"))
    code, _, err = run("diff", "klein", "klein", "--by", "peak_bytes")
    assert code == 2 and "--by peak_bytes: a peak is a whole stage's" in err
