"""The files that README.md, docs/*.md and the examples of --help speak of, and the commands that they show."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from costtrace import chip
from costtrace.cli import main, manual
from costtrace.cli.group import COMMANDS

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
FUNCTIONS = """
import jax

def mlp(x, w):
    with jax.named_scope("up"):
        return jax.nn.silu(x @ w)

forward = mlp

def shapes():
    return jax.ShapeDtypeStruct((64, 256), "bfloat16"), jax.ShapeDtypeStruct((256, 1024), "bfloat16")

def step(a, x):
    with jax.named_scope("product"):
        return a @ x

def mamba(ids):
    with jax.named_scope("scan"):
        return jax.lax.associative_scan(lambda a, b: a + b, ids.astype("float32"), axis=1)
"""
MODEL = 'MODEL = Model("tiny"'
BUDGET = """
program = "tiny.py"
chip = "v6e"

[[limit]]
flops = "1 TFLOP"
"""
LONG = (
    r"audit|setup|validate|--compiled|advise klein|sweep (klein|sa3)|--chips|klein:chip|emulate|--view|calibrate|"
    r"measure|compare|predict|gallery|@"
)
"""What takes many seconds: these run where tests marked slow do."""
NEVER = r"^setup|--compiled|--view|^validate|^audit klein --checkpoint|^calibrate|^measure|^compare|^predict"
"""What needs a compiler, a network or a device; tests of their own do."""


def folder(path: Path, page: str) -> Path:
    """The files in a folder. tiny.py is the page's own; where it has none, README's."""
    for name in ("mine", "model", "my_model", "fns", "net", "solver"):
        (path / f"{name}.py").write_text(FUNCTIONS)
    models = [code for p in (page, "README.md") for code in blocks((ROOT / p).read_text(), "python") if MODEL in code]
    (path / "tiny.py").write_text(models[0])
    (path / "budget.toml").write_text(BUDGET)
    (path / "my.toml").write_text((chip.folder() / "v6e.toml").read_text())
    (path / "module.hlo").write_text((ROOT / "tests/hlo/block.v6e.hlo").read_text())
    header = json.dumps({"up": {"dtype": "BF16", "shape": [256, 1024], "data_offsets": [0, 524288]}}).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    committed(path)
    return path


def committed(path: Path) -> None:
    """All files of a folder as the one commit of a repository, on its branch main; nothing where there is no git."""
    if shutil.which("git") is None:
        return
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*who, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", "-C", str(path), *words], check=True, capture_output=True)


def saved(path: Path, out: str) -> None:
    """before.json and after.json, from what `costtrace tiny.py --format json` printed."""
    for name in ("before.json", "after.json"):
        (path / name).write_text(out)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def commands(page: str) -> Iterator[str]:
    """What follows `costtrace` in the lines of a page's blocks that begin with it."""
    text = (ROOT / page).read_text()
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            for part in line.removeprefix("$ ").split("&&"):
                found = re.match(r"\s*costtrace (.*?)( {2,}.*)?$", part)
                if found:
                    yield found[1].partition(" > ")[0].strip()


def shown() -> Iterator[tuple[str, str]]:
    """(page, command) of every page; the examples of --help are README's."""
    for page in PAGES:
        yield from ((page, command) for command in commands(page))
    yield from (("README.md", command) for command in examples())


def examples() -> Iterator[str]:
    """What follows `costtrace` in the examples of every command's --help, and of a model's."""
    pages = {name: page for name, page in manual.PAGES.items() if name in COMMANDS}
    for name, page in (*pages.items(), ("hpc", manual.MODEL)):
        for line, _ in page.examples:
            yield line.format(name=name)


def words(command: str) -> list[str]:
    return shlex.split(command, comments=True)


def run(command: str) -> int:
    return main(words(command))
