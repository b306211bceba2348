"""Claims: what is refused, how they are found, what a hand count gives, quotes and shortcuts on a small model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from costtrace import claim, model
from costtrace.audit import audit
from costtrace.claim import Claim, Claims, Product, Quote, Shortcut, row
from costtrace.cli import main
from costtrace.errors import UsageError
from costtrace.quote import prints, unit_of

PAGE = Path(__file__).parent.parent / "docs" / "audit.md"
README = Path(__file__).parent.parent / "README.md"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The model and the claims of the page."""
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    path = tmp_path / "tiny.py"
    path.write_text(code)
    return path


def audited(path: Path, claims: Claims, **options: object):
    found = model.find(str(path))
    return audit(found, found.configure(**options), claims)


def verdicts(made) -> dict[tuple[str, str], str]:
    return {(line.row, line.quantity): line.verdict for line in made.lines}


def test_the_page_is_true(tiny, capsys) -> None:
    assert main(["audit", str(tiny)]) == 0
    page = " ".join(capsys.readouterr().out.split())
    said = re.findall(r"^    (forward: .*)$", PAGE.read_text(), re.MULTILINE)
    assert said and all(" ".join(line.split()) in page for line in said)
    assert "missing in the hand count" in page
    assert main(["audit", str(tiny), "--tokens", "64", "--fail-on", "differs"]) == 1


def test_the_readme_is_enough(tmp_path, capsys) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    path = tmp_path / "tiny.py"
    path.write_text(next(block for block in blocks if "CLAIMS" in block))
    assert main(["audit", str(path)]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "1.573 MB more claimed" in page and "forward: down: 0 claimed, traced 67.11 MFLOP of products" in page
    assert main(["audit", str(path), "--fail-on", "differs"]) == 1


def test_claims_are_found_in_the_file_beside_it_or_where_they_are_said_to_be(tiny, tmp_path) -> None:
    assert [c.label for c in claim.find(str(tiny)).claims] == ["up", "down"]
    text = 'from costtrace.claim import Claim, Claims\nCLAIMS = Claims([Claim("flops", "forward", "", "0", "me")])\n'
    (tmp_path / "tiny_claims.py").write_text(text)
    assert [c.label for c in claim.find(str(tiny)).claims] == ["forward"]
    assert claim.find("klein").claims and claim.find("sa3").claims


def test_the_audits_head_names_the_claims_own_sources(tiny, capsys) -> None:
    assert main(["audit", str(tiny)]) == 0
    page = capsys.readouterr().out
    assert "hand: our notes, page 1; our notes, page 2 [D]" in page and "no claims" not in page
    some = [Claim("flops", "forward", str(k), "0", f"page {k}") for k in range(5)]
    assert Claims(some).origin == "page 0; page 1; page 2 and 2 more"
    assert Claims(some, source="a book").origin == "a book"


def test_a_model_without_claims_is_still_held_against_xla(tiny, capsys) -> None:
    tiny.write_text(tiny.read_text().partition("CLAIMS")[0])
    assert main(["audit", str(tiny)]) == 0
    assert "hand: no claims" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Claims([Claim("work", "a", "b", "1", "me")]), "measures 'work': choose one of product_flops"),
        (lambda: Claims([Claim("flops", "a", "b", "1")]), "has no source"),
        (lambda: Claims([Claim("flops", "a", "b", "1", "me", tag="X")]), "has the tag 'X': use M"),
        (lambda: Claims([Claim("flops", "a", "b", "1", "me", tolerance=0.1)]), "a tolerance of 0.1 and no reason"),
        (lambda: Claims([Claim("flops", "a", "b", "1", "me")] * 2), "claims flops twice"),
        (
            lambda: Claims([Claim(q, "a", q, "1", "me", row="r") for q in ("flops", "bytes_fused")]),
            "share their scopes",
        ),
    ],
)
def test_what_is_no_claim_is_refused(make, said) -> None:
    with pytest.raises(UsageError, match=said):
        make()


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        (Claims([Claim("flops", "nosuch", "", "1", "me")]), "is about stage 'nosuch': there are forward"),
        (Claims([Claim("flops", "forward", "up", "2 * token", "me")]), "did you mean tokens"),
        (Claims(names={"n": "n + 1"}), "name 'n': 'n [+] 1' uses 'n'"),
        (Claims(quotes=(Quote("1 GFLOP", "flops('left')", "x"),)), "the claims have no row 'left'"),
        (Claims(quotes=(Quote("a sentence", "1 + 1", "x"),)), "quote 'a sentence' is no number"),
        (Claims(quotes=(Quote("3 apples", "1 + 1", "x"),)), "'apples' is no unit"),
        (Claims(about={"tokens": "64"}), "the claims are about tokens 64, not 128"),
    ],
)
def test_what_cannot_be_audited_is_said_in_one_line(tiny, claims, said) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        audited(tiny, claims)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CLAIMS = 3", "has no CLAIMS"),
        ("raise KeyError('x')", "failed while it was loaded: KeyError"),
        ("from costtrace.claim import *\nCLAIMS = Claims([Claim('work', '', '', '')])", "measures 'work'"),
    ],
)
def test_a_file_without_claims_is_refused(tmp_path, text, said) -> None:
    path = tmp_path / "some.py"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        claim.load(str(path))
    with pytest.raises(UsageError, match="no file"):
        claim.load(str(tmp_path / "none.py"))


UP, DOWN = 2 * 128 * 256 * 1024, 2 * 128 * 1024 * 256
RIGHT = (
    ("product_flops", "up", "2 * tokens * 256 * 1024"),
    ("vector_flops", "down", "0"),
    ("flops", "", "2 * 2 * tokens * 256 * 1024 + tokens * 1024"),
    ("weight_bytes", "up", "2 * 256 * 1024"),
    ("bytes_fused", "up", "2 * (256 * 1024 + tokens * (256 + 1024))"),
    ("bytes_scoped", "", "2 * (2 * 256 * 1024 + tokens * (2 * 256 + 2 * 1024))"),
    ("bytes_unfused", "down", "2 * (1024 * 256 + tokens * (1024 + 256))"),
    ("transcendentals", "up", "0"),
    ("parameters", "up", "256 * 1024"),
    ("parameters", "", "2 * 256 * 1024"),
)


@pytest.mark.parametrize(("measures", "scope", "text"), RIGHT)
def test_a_right_claim_is_not_flagged_and_a_planted_error_is(tiny, measures, scope, text) -> None:
    for formula, wanted in ((text, {"equal"}), (f"{text} + 1", {"differs", "convention"})):
        made = audited(tiny, Claims([Claim(measures, "forward", scope, formula, "me", row="it")]))
        verdict = verdicts(made)["it", measures]
        assert verdict in wanted, (formula, verdict)
        said = [f.text for f in made.findings + made.conventions if "it:" in f.text]
        assert bool(said) == (wanted != {"equal"})


def test_elementwise_counting_is_a_convention_and_products_are_not(tiny) -> None:
    products, vector = "2 * tokens * 256 * 1024", "4 * tokens * 1024"
    made = audited(tiny, Claims(row("up", "forward", "up", products=(Product("tokens", "256", "1024"),), vector=vector,
                                    source="me")))  # fmt: skip
    line = next(line for line in made.lines if (line.row, line.quantity) == ("up", "flops"))
    assert line.verdict == "convention" and line.parts == {"products": 0, "convention": 3 * 128 * 1024}
    both = Claims([Claim("product_flops", "forward", "up", f"{products} + 2", "me"),
                   Claim("vector_flops", "forward", "up", vector, "me")])  # fmt: skip
    line = next(line for line in audited(tiny, both).lines if (line.row, line.quantity) == ("up", "flops"))
    assert line.verdict == "differs" and line.parts == {"products": 2, "convention": 3 * 128 * 1024}


def test_a_tolerance_with_its_reason_is_kept(tiny) -> None:
    rough = Claim("product_flops", "forward", "up", "67e6", "me", tolerance=0.01, reason="printed with two digits")
    assert verdicts(audited(tiny, Claims([rough])))["up", "product_flops"] == "equal"


def test_what_no_claim_covers_and_what_the_program_has_not(tiny) -> None:
    made = audited(tiny, Claims([Claim("product_flops", "forward", "up", "2 * tokens * 256 * 1024", "me"),
                                 Claim("product_flops", "forward", "side", "5", "me")]))  # fmt: skip
    found = verdicts(made)
    assert found["down", "product_flops"] == "missing in the hand count"
    assert found["side", "product_flops"] == "missing in the program"
    said = " ".join(f.text for f in made.findings)
    assert "forward: down: 0 claimed, traced 67.11 MFLOP of products" in said
    assert "forward: side: products: 5 FLOP claimed, but the program has no part side" in said


NOT_ALIKE = (
    "claims (7, 256) @ (256, 5) 1 times, which the program has not; "
    "the program has (128, 256) @ (256, 1024) 1 times, which is not claimed"
)


@pytest.mark.parametrize(
    ("product", "said"),
    [
        (Product("tokens", "W", "8 * W", name="up"), "claims up 8 * W wide, the program has 4 * W (1024)"),
        (Product("2 * tokens", "W", "4 * W"), "claims 2 * tokens rows, the program has tokens (128)"),
        (Product("tokens", "W + 1", "4 * W"), "claims W + 1 deep, the program has W (256)"),
        (Product("7", "W", "5"), NOT_ALIKE),
    ],
)  # fmt: skip
def test_a_difference_is_told_by_shape(tiny, product, said) -> None:
    made = audited(tiny, Claims(row("it", "forward", "up", products=(product,), source="me"), {"W": "256"}))
    assert any(f.text.endswith(said) for f in made.findings), [f.text for f in made.findings]


def test_a_scope_of_several_that_is_not_there_is_named(tiny) -> None:
    made = audited(tiny, Claims([Claim("product_flops", "forward", ("up", "side"), "1", "me", row="it")]))
    assert verdicts(made)["it", "product_flops"] == "differs"
    assert any("(the program has no part side)" in f.text for f in made.findings)


def hand(**more: str) -> tuple[Claim, ...]:
    formulas = {"up": "2 * tokens * 256 * 1024", "down": "2 * tokens * 1024 * 256"} | more
    return tuple(Claim("product_flops", "forward", scope, text, "me") for scope, text in formulas.items())


@pytest.mark.parametrize(
    ("quoted", "formula", "claims", "verdict"),
    [
        ("67.1 MFLOP", "products('up')", hand(), "equal"),
        ("67.2 MFLOP", "products('up')", hand(), "does not follow"),
        ("134 MFLOP", "products('up')", hand(up="4 * tokens * 256 * 1024"), "differs"),
        ("50 %", "products('up') / products('forward')", hand(), "equal"),
        ("50 %", "products('up') / products('forward')", hand(up="1", down="1"), "cancels"),
        ("134.2 MFLOP", "products('up', 'down')", hand(up=str(UP + 10**6), down=str(DOWN - 10**6)), "cancels"),
        ("0.13 GFLOP", "products('*')", hand(), "equal"),
        ("13", "26 / 2", hand(), "arithmetic"),
        ("14", "26 / 2", hand(), "does not follow"),
        ("up is half", "products('up') == products('down')", hand(), "equal"),
        ("up is more", "products('up') > products('down')", hand(), "does not follow"),
        ("up is more", "products('up') > products('down')", hand(up=str(2 * UP)), "differs"),
    ],
)
def test_a_quote_is_derived_twice(tiny, quoted, formula, claims, verdict) -> None:
    made = audited(tiny, Claims(claims, quotes=(Quote(quoted, formula, "it"),)))
    assert made.answers[0].verdict == verdict
    assert any("(it)" in f.text for f in made.findings) == (verdict not in ("equal", "arithmetic"))


def test_a_quote_may_be_right_by_convention(tiny) -> None:
    claims = (*hand(), Claim("vector_flops", "forward", "up", "64 * tokens * 1024", "me"))
    made = audited(tiny, Claims(claims, quotes=(Quote("75.5 MFLOP", "flops('up')", "it"),)))
    assert made.answers[0].verdict == "convention"  # 67.1 + 64 x 128 x 1024 elementwise


def test_a_quote_against_its_authors_own_rule(tiny) -> None:
    checks = (("products('up') / 2", "one half of it"), ("products('down')", "the other row"))
    made = audited(tiny, Claims(hand(), quotes=(Quote("67.1 MFLOP", "products('up')", "it", checks=checks),)))
    assert made.answers[0].verdict == "does not follow"
    assert made.findings[-1].text == '"67.1 MFLOP" (it) does not follow: one half of it: 33.554 MFLOP'


def test_a_quote_has_options_of_its_own(tiny) -> None:
    made = audited(tiny, Claims(hand(), quotes=(Quote("33.6 MFLOP", "products('up')", "it", config={"tokens": "64"}),)))
    assert made.answers[0].verdict == "equal"


@pytest.mark.parametrize(
    ("value", "quoted", "holds"),
    [
        (10.1905e12, "10.191 TFLOP", True),  # half a unit of the last digit
        (10.19049e12, "10.191 TFLOP", False),
        (0.2587, "26 %", True),
        (23086, "23,086", True),
        (2.725e9, "2.725 G", True),
        (848.4, "848 FLOP/B", True),
        (848.6, "848 FLOP/B", False),
        (5.042e-3, "5.0 ms", True),
        (3.55, "3.6 x", True),
    ],
)
def test_digits_as_printed(value, quoted, holds) -> None:
    assert prints(value, quoted) is holds


def test_units_of_quotes() -> None:
    assert [unit_of(q) for q in ("1 TFLOP", "2 GB", "3 ms", "4 %", "5 x", "6 M", "7", "words")] == [
        "FLOP", "B", "s", "1", "1", "", "", ""]  # fmt: skip


THREE = """
from dataclasses import dataclass

import jax

from costtrace.model import Model, Stage, option, param


@dataclass(frozen=True)
class Config:
    tokens: int = option(32, help="tokens")


def forward(ids):
    x = param("table", (100, 8))[ids]
    x = x @ param("body/w", (8, 8)) + param("body/b", (8,))
    return x[:1] @ param("head/w", (8, 5))


MODEL = Model("three", Config, lambda c: [Stage("f", forward, (jax.ShapeDtypeStruct((c.tokens,), "int32"),))])
"""


def test_a_shortcut_is_cut_by_weight(tmp_path) -> None:
    """An embedding and a bias that no product reads, a head that one row meets: 2 N tokens counts them all in full."""
    path = tmp_path / "three.py"
    path.write_text(THREE)
    (cut,) = audited(path, Claims(shortcuts=(Shortcut("f", "tokens", source="me"),))).shortcuts
    assert cut.claimed == 2 * (100 * 8 + 8 * 8 + 8 + 8 * 5) * 32
    assert cut.traced == 2 * (8 * 8 * 32 + 8 * 5) and cut.other == 0
    assert {s.weights: (s.elements, s.tokens) for s in cut.shares} == {
        "table": (800, 0), "body/w": (64, 32), "body/b": (8, 0), "head/w": (40, 1)}  # fmt: skip
    assert sum(s.difference for s in cut.shares) == cut.claimed - cut.traced


def test_claims_in_toml_are_the_same_claims_as_data(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        'source = "them"\nabout = {preset = "medium"}\nnames = {wide = "4 * width"}\n'
        '[[claim]]\nmeasures = "product_flops"\nstage = "dit"\nscopes = ["a", "b"]\nformula = "2 * wide"\n'
        'tolerance = 0.1\nreason = "rounded"\nproducts = [{m = "1", k = "wide", n = "2"}]\n'
        '[[quote]]\nquoted = "1 FLOP"\nformula = "flops()"\nabout = "all"\nchecks = [["1", "why"]]\nconfig = {n = 3}\n'
        '[[shortcut]]\nstage = "dit"\ntokens = "S"\n'
    )
    assert claim.load(str(tmp_path / "c.toml")) == Claims(
        [Claim("product_flops", "dit", ("a", "b"), "2 * wide", tolerance=0.1, reason="rounded",
               products=(Product("1", "wide", "2"),))],
        {"wide": "4 * width"},
        (Quote("1 FLOP", "flops()", "all", config={"n": 3}, checks=(("1", "why"),)),),
        (Shortcut("dit", "S"),),
        "them",
        {"preset": "medium"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[claim]]\ntolerence = 1\n", r"a \[\[claim\]\] has no 'tolerence': it has measures, stage, "),
        ("[[claim]]\nproducts = [{q = 1}]\n", r"a \[\[products\]\] has no 'q': it has m, k, n, "),
        ("[[claim]]\nmeasures = 'flops'\n", r"missing required field `stage`"),
        ("claims = 1\n", r"unknown field `claims`"),
        ("[[claim]]\nmeasures='flops'\nstage='f'\nscopes=''\nformula='1'\n", r"claim 'f' of f has no source"),
        ("[[claim\n", r"c\.toml: "),
    ],
)
def test_claims_in_toml_that_must_not_load(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        claim.load(str(tmp_path / "c.toml"))
