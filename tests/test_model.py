"""Where specs are found: in models_spec, by path, from an installed package; and what every one of them keeps."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import costtrace
from costtrace import model
from costtrace.cli import main
from costtrace.errors import UsageError
from costtrace.model import bind

TINY = '''\
"""A small language model: a table, blocks of attention and feed-forward, the table again."""

from dataclasses import dataclass

import jax

from costtrace.model import Model, Stage, option, param, scope, stack


@dataclass(frozen=True)
class Config:
    tokens: int = option(1024, help="tokens in the context")
    width: int = option(512, help="features of a token")
    blocks: int = option(6, help="blocks of attention and feed-forward")


def block(x):
    tokens, width = x.shape
    with scope("attention"):
        q, k, v = ((x @ param(name, (width, width))).reshape(tokens, -1, 64) for name in "qkv")
        x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ param("out", (width, width))
    with scope("mlp"):
        return x + jax.nn.gelu(x @ param("up", (width, 4 * width))) @ param("down", (4 * width, width))


def stages(config):
    def forward(ids):
        table = param("table", (50257, config.width))
        with scope("embed"):
            x = table[ids]
        x = stack(config.blocks, block, x, name="block")
        with scope("head"):
            return x @ table.T

    return [Stage("forward", forward, (jax.ShapeDtypeStruct((config.tokens,), "int32"),))]


MODEL = Model("tiny", Config, stages)
'''


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "tiny.py"
    path.write_text(TINY)
    return path


def test_a_spec_is_found_by_its_path(tiny) -> None:
    found = model.find(str(tiny))
    assert (found.name, found.title) == ("tiny", TINY.splitlines()[0].strip('"'))
    (stage,) = found.stages(found.configure(tokens="128", width=256))
    w, t, layers, vocab = 256, 128, 6, 50257
    assert model.parameters(stage) == vocab * w + layers * (4 * w * w + 2 * 4 * w * w)
    fn, args = bind(stage)
    profile = costtrace.profile(fn, *args, weights=0)
    # Per block q, k, v, out; scores and their product with v over the full square; up and down. Then the head.
    block = 2 * t * w * w * 4 + 2 * 2 * t * t * w + 2 * t * w * 4 * w * 2
    assert profile.total.matmul_flops == layers * block + 2 * t * w * vocab
    assert set(profile.scopes()) >= {"embed", "block/attention", "block/mlp", "head"}


def test_a_spec_may_import_what_lies_beside_it(tiny) -> None:
    (tiny.parent / "beside_tiny.py").write_text("WIDTH = 3\n")
    tiny.write_text("import beside_tiny\n" + TINY)
    assert model.find(str(tiny)).name == "tiny"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", r"has no MODEL: end it with MODEL = Model\(name, config, stages\)"),
        ("MODEL = 3\n", "has no MODEL"),
        ("\n\ndef f(:\n", r"tiny.py:3 failed while it was loaded: SyntaxError: .*: mend it there"),
        ("\nimport nowhere_at_all\n", r"tiny.py:2 failed while it was loaded: ModuleNotFoundError: No module named"),
        ("x = 1\nx.y\n", r"tiny.py:2 failed while it was loaded: AttributeError: "),
    ],
)
def test_a_spec_that_does_not_load(tiny, text, message) -> None:
    tiny.write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        model.find(str(tiny))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "kline",
            r"^no model 'kline': did you mean klein\? There are .*klein.*; or give the path of a file with a MODEL",
        ),
        ("zzz", r"^no model 'zzz': there are "),
        (
            "block.py:block",
            r"^block\.py:block names a function, .*: put a MODEL around it in block\.py \(docs/add-a-model",
        ),
        ("./nowhere.py", r"^no file nowhere\.py: give the path of a Python file with a MODEL in it$"),
        ("models_spec/", r"^no file models_spec: give the path of a Python file"),
    ],
)
def test_a_model_that_is_not_there(name, message) -> None:
    with pytest.raises(UsageError, match=message):
        model.find(name)


def test_models_of_installed_packages(tiny, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(tiny.parent))
    offered = [
        metadata.EntryPoint("theirs", "tiny:MODEL", model.GROUP),
        metadata.EntryPoint("broken", "tiny:NOTHING", model.GROUP),
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: offered if group == model.GROUP else [])
    assert model.names()["theirs"] == "from tiny:MODEL"
    listed = model.listed()
    assert listed["theirs"].title and listed["klein"].options["res"] == "512x512"
    assert list(listed["theirs"].options) == list(model.find("theirs").options())
    assert model.find("theirs").name == "tiny"
    with pytest.raises(UsageError, match=r"broken \(tiny:NOTHING\) failed while it was loaded: AttributeError"):
        model.find("broken")


def test_names_are_listed_without_jax() -> None:
    program = "import sys, costtrace.model as m; print(m.names()['klein']); assert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("FLUX.2 klein-4B: text to image")


def test_one_import_name_in_a_checkout_and_when_installed() -> None:
    program = (
        "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p or not p]; "
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f).lower()]; "
        "import importlib.util, costtrace.model; "
        "print(importlib.util.find_spec('costtrace.models_spec.klein').origin)"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root)
    assert Path(done.stdout.strip()) == root / "models_spec" / "klein.py"


@pytest.mark.parametrize("name", sorted(model.names()))
def test_every_model_has_a_title_options_with_help_and_stages(name) -> None:
    found = model.find(name)
    assert found.name == name
    assert found.title == model.names()[name]
    assert 20 < len(found.title) < 120
    assert all(o.metadata["help"] for o in found.options().values())
    stages = found.stages(found.configure())
    assert len({stage.name for stage in stages}) == len(stages) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(model.names()))
def test_every_model_counts_the_same_unrolled(name) -> None:
    found = model.find(name)
    for stage in found.stages(found.configure()):
        (fn, args), (other, apart) = bind(stage), bind(stage, unroll=True)
        one, two = costtrace.profile(fn, *args, weights=0).total, costtrace.profile(other, *apart, weights=0).total
        assert (one.flops, one.by_dtype, one.weight_bytes) == (two.flops, two.by_dtype, two.weight_bytes)
        assert one.flops > 0


@pytest.mark.parametrize("name", sorted(model.names()))
def test_options_are_listed_as_they_are(name) -> None:
    """What the source says is what the model has."""
    found, listed = model.find(name), model.listed()[name]
    assert listed.title == found.title
    assert list(listed.options) == list(found.options())


def test_the_pages_function_becomes_a_model(tmp_path, monkeypatch, capsys) -> None:
    page = (Path(__file__).parent.parent / "docs" / "add-a-model.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page.partition("## A function that you have already")[2], re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    Path("block.py").write_text(code)
    limit = 'weight_bytes = "== 4194304 B"'  # two matrices of 512 x 2048, two bytes an element
    Path("budget.toml").write_text(f'program = "./block.py"\n[[limit]]\n{limit}\n')
    assert main(["check", "--budget", "budget.toml"]) == 0
    assert main(["./block.py", "--what-if", "int8:mlp"]) == 0
    capsys.readouterr()
    assert main(["advise", "block.py:block"]) == 2
    assert "block.py:block names a function" in capsys.readouterr().err
