"""The package as a stranger meets it: what `import costtrace` gives and costs, and the README's own words."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import costtrace

ROOT = Path(__file__).parent.parent


def python(code: str, *args: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_is_sorted_and_is_what_can_be_had() -> None:
    assert costtrace.__all__ == sorted(costtrace.__all__)
    assert dir(costtrace) == costtrace.__all__
    for name in costtrace.__all__:
        assert getattr(costtrace, name) is not None


def test_a_type_checker_sees_the_same_names() -> None:
    tree = ast.parse(inspect.getsource(costtrace))
    seen = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("costtrace")
        for alias in node.names
    }
    assert seen == set(costtrace.__all__)


def test_no_public_name_is_a_module_too() -> None:
    """Importing a submodule puts the module in the place of a name that it shares."""
    modules = {p.stem for p in (ROOT / "costtrace").iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    assert not modules & set(costtrace.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'costtrace' has no attribute 'profle'"):
        costtrace.profle  # noqa: B018


NO_JAX = {
    "import": "import costtrace",
    "every name but the model layer's": "import costtrace; [getattr(costtrace, n) for n in costtrace.__all__]",
    "rules": "import costtrace.rules",
    "help": "import costtrace.cli; costtrace.cli.main(['--help'])",
    "chips": "import costtrace.cli; costtrace.cli.main(['chips'])",
    "one chip": "import costtrace.cli; costtrace.cli.main(['chips', 'v6e'])",
    "models": "import costtrace.cli; costtrace.cli.main(['models'])",
}


@pytest.mark.parametrize("code", NO_JAX.values(), ids=NO_JAX)
def test_needs_no_jax(code: str) -> None:
    assert python(f"import sys\n{code}\nprint('jax' in sys.modules)").splitlines()[-1] == "False"


def test_a_saved_profile_is_read_without_jax(tmp_path: Path) -> None:
    saved = tmp_path / "profile.json"
    python(
        "import sys, jax, costtrace, pathlib; x = jax.ShapeDtypeStruct((4, 8), 'float32');"
        "pathlib.Path(sys.argv[1]).write_text(costtrace.profile(lambda x: x @ x.T, x).to_json())",
        str(saved),
    )
    read = (
        "import sys, costtrace, pathlib; p = costtrace.Profile.from_json(pathlib.Path(sys.argv[1]).read_text());"
        "print(p.total.matmul_flops, len(p.rows()), 'jax' in sys.modules)"
    )
    assert python(read, str(saved)) == f"{2 * 4 * 8 * 4} 1 False\n"


def costtrace_prints(*args: str, cwd: Path = ROOT) -> str:
    run = [sys.executable, "-m", "costtrace", *args]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


README = (ROOT / "README.md").read_text()
SHOWN = re.findall(r"```console\n\$ costtrace ([^\n]*)\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_readme_shows_what_the_command_prints(
    command: str, output: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    printed = costtrace_prints(*command.split(), cwd=tmp_path)
    if request.config.getoption("--update-golden"):
        head = f"$ costtrace {command}\n"
        (ROOT / "README.md").write_text(README.replace(head + output, head + printed))
    else:
        assert printed == output, "if it should differ: pytest --update-golden, then read the diff"


def test_the_readme_shows_the_command_first() -> None:
    assert [command for command, _ in SHOWN] == ["klein --res 1360x768"]
    assert README.index("```console") < README.index("```sh")


@pytest.mark.slow
def test_the_readme_names_options_that_there_are() -> None:
    named = set(re.findall(r"(?<=[ `])--[a-z][a-z-]*", README))
    some = ("klein", "trace", "audit klein", "compare klein", "sweep sa3", "advise klein", "check")
    pages = [words.split() for words in some]
    assert named <= set(re.findall(r"--[a-z-]+", "".join(costtrace_prints(*page, "--help") for page in pages)))


def told(page: str) -> str:
    """The Python of a page as one program: `expression  # 12 ...` is an assertion where the comment is a value."""
    found = re.findall(r"^( *)```python\n(.*?)^ *```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    lines = "\n".join(inspect.cleandoc(indent + code) for indent, code in found).splitlines()
    value = re.compile(r'(\S.*?)\s+# (\d[\d_]*|"[^"]*"|True|False)(?=[\s,.;]|$)')
    hits = [(line, value.match(line)) for line in lines]
    return "\n".join(f"assert ({m[1]}) == {m[2]}, {m[1]}" if m else line for line, m in hits)


def test_the_python_of_the_pages_is_true() -> None:
    pages = ["README.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
    programs = {page: told(page) for page in pages if told(page)}
    assert len(programs) > 4
    # one process, because each would import jax; to each page names of its own
    python(f"for page, program in {programs!r}.items():\n    exec(compile(program, page, 'exec'), {{}})")


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_kind_of_note_is_explained() -> None:
    page = (ROOT / "docs/conventions.md").read_text()
    code = "\n".join(p.read_text() for p in (ROOT / "costtrace").rglob("*.py"))
    kinds = set(re.findall(r'[nN]ote\(\s*"([a-z-]+)"', code)) | set(
        re.findall(r'\("((?:kernel|unknown)-[a-z]+)", f"', code)
    )
    listed = set(re.findall(r"^\| `([a-z-]+)` \|", page.partition("| kind | says |")[2], re.MULTILINE))
    assert kinds == listed
