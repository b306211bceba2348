"""The house rules that a machine can hold: size, order of imports, names, doors to jax, units, what is shipped."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINES = 400

# Top to bottom: a file may import what stands above it, never what stands below. "rules/*" is every file of a folder.
ORDER = """
    version errors authored disk units formula core coverage offload rules/table rules/*
    region access storage doors dce fold kernel arguments flow walk trace lines
    fusion memory static useful summary grouping module/* profiler
    grid chipfile chip roofline launch shape capacity scheme demand emulation publication
    option weight model training serving checkpoint header claim
    routing dimension classes local layout transfer placement plan mesh pipeline sharding
    figure diff subject revision budget timeline dataflow schema hoist whatif scenario
    target/* partition forced measure/* installation
    evidence/* compare verdict quote shortcut finding audit advice sweep
    report/* cli/* __main__
""".split()
UPWARD = {  # methods by which a Profile shows itself; what profile() hands over where it must ask the compiler
    ("summary", "grouping"), ("summary", "report/notebook"), ("profiler", "partition"),
}  # fmt: skip
JAX = {
    "arguments",
    "doors",
    "lines",
    "trace",
    "weight",
    "model",
    "module/*",
    "training",
    "header",
    "evidence/*",
    "measure/*",
}
JAX_FILES = {"cli/trace", "cli/emulate", "target/program", "target/identity", "target/child", "target/replay",
             "target/translation", "partition", "forced"}  # fmt: skip
"""Arrays of --arg; what a compiler is sent; what the partitioner is asked."""
PRIVATE = {"doors", "evidence/*"}
BANNED = {"utils", "helpers", "common", "base", "types", "misc", "manager"}

PACKAGE = sorted((ROOT / "costtrace").rglob("*.py"))
MODELS = sorted((ROOT / "models_spec").glob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
EVERY = [*PACKAGE, *MODELS, *TESTS, *sorted((ROOT / "benchmarks").glob("*.py"))]


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module(path: Path) -> str:
    """costtrace/rules/linalg.py -> "rules/linalg"; a folder's __init__ is the folder: "rules/__init__"."""
    return str(path.relative_to(ROOT / "costtrace").with_suffix(""))


def entry(name: str) -> str:
    """The line of ORDER that a module stands under."""
    if name in ORDER or name == "__init__":
        return name
    folder = f"{name.partition('/')[0]}/*"
    assert folder in ORDER, f"{name} has no place in ORDER: give it a line in tests/test_layout.py"
    return folder


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """(dotted module, line) of every import in the file, those inside functions too; not those for a type checker."""
    tree = ast.parse(path.read_text())
    unseen = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in unseen:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{label(path)}:{node.lineno}: a relative import"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def target(dotted: str) -> str | None:
    """The module of costtrace that an import reaches, as `module` names it; None where it is another package's."""
    parts = dotted.split(".")
    if parts[0] != "costtrace":
        return None
    for end in range(len(parts), 1, -1):
        at = ROOT.joinpath(*parts[:end])
        if at.with_suffix(".py").is_file():
            return module(at.with_suffix(".py"))
        if (at / "__init__.py").is_file():
            return module(at / "__init__.py")
    return "version" if parts[1:] == ["__version__"] else "__init__"


@pytest.mark.parametrize("path", EVERY, ids=label)
def test_no_file_outgrows_its_reader(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= LINES, f"{label(path)} has {lines} lines: split it by noun"


@pytest.mark.parametrize("path", [*PACKAGE, *MODELS], ids=label)
def test_files_are_named_for_what_they_own(path: Path) -> None:
    assert not BANNED & set(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("path", [p for p in PACKAGE if module(p) != "__init__"], ids=label)
def test_imports_go_one_way(path: Path) -> None:
    own = ORDER.index(entry(module(path)))
    for dotted, line in imported(path):
        name = target(dotted)
        if name is None or (module(path), name) in UPWARD:
            continue
        assert name != "__init__", f"{label(path)}:{line} imports costtrace itself: name the module"
        other = ORDER.index(entry(name))
        same_folder = other == own and ORDER[own].endswith("/*")
        assert other < own or same_folder, f"{label(path)}:{line} imports {name}, which stands below it"


def test_files_of_one_folder_do_not_import_in_a_circle() -> None:
    edges = {
        (own := module(p)): {t for d, _ in imported(p) if (t := target(d)) and (own, t) not in UPWARD} - {own}
        for p in PACKAGE
    }
    edges = {name: {t for t in after if t in edges} for name, after in edges.items() if name != "__init__"}
    while free := [name for name, after in edges.items() if not after & edges.keys()]:
        for name in free:
            del edges[name]
    assert not edges, f"imports in a circle among {sorted(edges)}"


@pytest.mark.parametrize("path", PACKAGE, ids=label)
def test_jax_is_imported_only_where_programs_are_made(path: Path) -> None:
    if entry(module(path)) in JAX or module(path) in JAX_FILES:
        return
    for dotted, line in imported(path):
        assert dotted.split(".")[0] not in ("jax", "jaxlib"), f"{label(path)}:{line} imports {dotted}"


@pytest.mark.parametrize("path", PACKAGE, ids=label)
def test_private_parts_of_jax_have_few_doors(path: Path) -> None:
    if entry(module(path)) in PRIVATE:
        return
    for dotted, line in imported(path):
        assert not dotted.startswith("jaxlib"), f"{label(path)}:{line} imports {dotted}: see doors.py"
    for node in ast.walk(ast.parse(path.read_text())):
        named = isinstance(node, ast.Constant) and re.fullmatch(r"jax\._src[\w.]*|jaxlib\.[\w.]+", str(node.value))
        reached = isinstance(node, ast.Attribute) and node.attr == "_src"
        assert not named and not reached, f"{label(path)}:{node.lineno} reaches into jax: see doors.py"
    assert not [d for d, _ in imported(path) if "_src" in d.split(".")]


@pytest.mark.parametrize("path", MODELS, ids=label)
def test_a_model_needs_only_the_model_layer_and_jax(path: Path) -> None:
    allowed = {
        "costtrace.model",
        "costtrace.claim",
        "jax",
        "numpy",
        "__future__",
        "dataclasses",
        "math",
        "collections",
        "functools",
    }
    for dotted, line in imported(path):
        assert any(dotted == a or dotted.startswith(a + ".") for a in allowed), f"{label(path)}:{line}: {dotted}"


def test_models_have_one_import_name() -> None:
    for path in EVERY:
        for dotted, line in imported(path):
            assert dotted.split(".")[0] not in ("models_spec", "chips"), f"{label(path)}:{line}: costtrace.{dotted}"


@pytest.mark.parametrize("path", [p for p in PACKAGE if module(p) != "units"], ids=label)
def test_powers_of_ten_stand_in_units(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            assert node.value not in (10**9, 10**12, 10**15, 2**30), f"{label(path)}:{node.lineno}: ask units.py"
        if isinstance(node, ast.BinOp) and ast.unparse(node) in ("2 ** 30", "1 << 30", "10 ** 9", "10 ** 12"):
            pytest.fail(f"{label(path)}:{node.lineno}: {ast.unparse(node)}; ask units.py")


@pytest.mark.parametrize("path", PACKAGE, ids=label)
def test_no_handler_catches_everything(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            caught = "everything" if node.type is None else ast.unparse(node.type)
            assert caught not in ("everything", "BaseException"), f"{label(path)}:{node.lineno} catches {caught}"


def test_no_path_of_one_machine_in_the_project() -> None:
    # Written in pieces so that this file does not find itself.
    places = ["/" + "work/", r"\.\./" + "shared", "/" + "root/", "/" + r"tmp/[a-z]", r"\." + "library"]
    pattern = re.compile("|".join(places))
    texts = [p for kind in ("*.py", "*.md", "*.toml") for p in ROOT.glob(kind)]
    for folder in ("costtrace", "models_spec", "chips", "tests", "docs", "benchmarks", ".ci"):
        texts += [p for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    for path in texts:
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            assert not pattern.search(line), f"{label(path)}:{number}: {line.strip()[:80]}"


def test_every_folder_is_shipped_with_its_data() -> None:
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    inside = {p.parent for kind in ("*.py", "*.toml") for p in (ROOT / "costtrace").rglob(kind)}
    folders = {".".join(p.relative_to(ROOT).parts): p for p in inside}
    folders |= {f"costtrace.{name}": ROOT / name for name in ("chips", "models_spec")}
    assert set(setup["packages"]) == set(folders)
    with_data = {name for name, folder in folders.items() if list(folder.glob("*.toml"))}
    assert with_data == {name for name, kinds in setup["package-data"].items() if "*.toml" in kinds}


def test_the_top_level_is_the_agreed_one() -> None:
    for name in ("costtrace", "models_spec", "chips", "tests", "docs", "benchmarks", "pyproject.toml", "README.md"):
        assert (ROOT / name).exists(), name
    assert MODELS
    assert sorted((ROOT / "chips").glob("*.toml"))
    assert not list(ROOT.glob("*.py"))


def test_the_architecture_page_names_every_file() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`(\w+\.py)`", page))
    assert {p.name for p in PACKAGE} - {"__init__.py", "__main__.py"} - named == set()
    assert named - {p.name for p in EVERY} == set(), "named and not there"
