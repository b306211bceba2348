"""Every private part of jax that costtrace leans on: where it is used, that it is there, what is said if it moves.

When a newer jax fails here, the message names the door and the file to mend; nothing else should need a look.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from costtrace import dce, doors
from costtrace.core import RECOMPUTE
from costtrace.errors import PrivateDoorError
from costtrace.evidence import dump, exported, xla
from costtrace.trace import trace

PACKAGE = Path(doors.__file__).parent

DOORS = {
    "jax._src.cudnn.fused_attention_stablehlo.check_cudnn_version": "doors.py",
    "jax._src.core.get_opaque_trace_state": "doors.py",
    "jax._src.source_info_util.transform_name_stack": "doors.py",
    "jax._src.pjit._infer_params": "doors.py",
    "jax._src.lax.control_flow.loops.scan": "doors.py",  # a function inside it is looked for on the stack
    "jax._src.interpreters.mlir.make_ir_context": "evidence/exported.py",
    "jaxlib._hlo.HloModule": "evidence/dump.py",
    "jaxlib._hlo.HloPrintOptions": "evidence/xla.py",
    "jaxlib._hlo.hlo_module_from_text": "evidence/xla.py",
    "jaxlib._jax.hlo_module_cost_analysis": "evidence/xla.py",
    "jaxlib._jax.mlir.mlir_module_to_xla_computation": "evidence/exported.py",
    "jaxlib.mlir.dialects.stablehlo.register_stablehlo_passes": "evidence/exported.py",
    "jaxlib.mlir.passmanager.PassManager": "evidence/exported.py",
    "jaxlib.mlir.ir.MLIRError": "evidence/exported.py",
    "jax.extend.mlir.refine_polymorphic_shapes": "evidence/exported.py",
}
"""Private names of jax and jaxlib, each with the file that reaches for it."""


@pytest.mark.parametrize("name", DOORS)
def test_a_door_is_there(name: str) -> None:
    module, _, last = name.rpartition(".")
    try:
        owner: Any = importlib.import_module(module)
    except ImportError:
        outer, _, inner = module.rpartition(".")
        owner = getattr(importlib.import_module(outer), inner, None)
    assert hasattr(owner, last), f"jax {jax.__version__} has moved {name}: mend costtrace/{DOORS[name]}"


def test_no_door_is_missing_from_the_list() -> None:
    private = re.compile(r"jax\._src[\w.]*|jaxlib\.\w+|jaxlib\._\w+")
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("jaxlib", "jax._src")):
                text = f"{node.module}"
            for name in private.findall(text) if " " not in text.strip() else ():
                known = [door for door in DOORS if door.startswith(name)]
                assert known, f"{path.name}:{node.lineno} reaches for {name}: give it a line in DOORS"


# ---- what is said when one moves


def test_xlas_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib._hlo", None)
    with pytest.raises(
        PrivateDoorError, match=r"jaxlib\._hlo\.HloPrintOptions is not in the jaxlib .*mend costtrace/ev"
    ):
        xla.lowered(jnp.matmul, (jax.ShapeDtypeStruct((2, 2), "float32"),) * 2)


def test_a_dumped_proto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib._hlo", None)
    with pytest.raises(
        PrivateDoorError, match=r"jaxlib\._hlo\.HloModule is not in this jaxlib.*dump the module as text"
    ):
        dump.text_of(b"", Path("module.pb"))


def test_an_exported_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from jax import export

    x = jax.ShapeDtypeStruct((2, 2), "float32")
    program = jax.jit(export.export(jax.jit(jnp.tanh))(x).call).lower(x).compiler_ir("stablehlo")
    monkeypatch.setitem(sys.modules, "jaxlib._hlo", None)
    with pytest.raises(PrivateDoorError, match=r"no way from StableHLO to HLO .*mend costtrace/evidence/exported\.py"):
        exported._module(program, False)


def test_cudnns_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, doors.CUDNN, None)
    with doors.cudnn_traceable():
        pass  # jax's own error stands


def test_the_trace_state_has_a_public_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    here = doors.trace_state()
    monkeypatch.setitem(sys.modules, "jax._src.core", None)
    assert doors.trace_state() == here


# ---- forms that jax does not promise: parameters and classes that are told by their names


def equation(name: str, fn: Callable[..., Any], *args: Any) -> Any:
    found = [e for e in jax.make_jaxpr(fn)(*args).jaxpr.eqns if e.primitive.name == name]
    assert found, f"jax {jax.__version__} calls {name!r} otherwise: mend costtrace/rules/unreachable.py"
    return found[0]


X = jnp.zeros((3,))
FORMS: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "scan": (lambda x: lax.scan(lambda c, _: (c + 1, None), x, None, length=2), ("jaxpr", "length", "reverse")),
    "while": (
        lambda x: lax.while_loop(lambda c: c[0] < 2, lambda c: c + 1, x),
        ("cond_jaxpr", "body_jaxpr", "cond_nconsts", "body_nconsts"),
    ),
    "cond": (lambda x: lax.cond(x[0] > 0, lambda: x, lambda: -x), ("branches",)),
    "jit": (lambda x: jax.jit(lambda y: -y)(x), ("jaxpr", "donated_invars")),
    "remat2": (lambda x: jax.checkpoint(lambda y: -y)(x), ("jaxpr",)),
    "dot_general": (lambda x: x @ x, ("dimension_numbers", "preferred_element_type")),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_primitives_parameters(name: str) -> None:
    fn, wanted = FORMS[name]
    missing = [key for key in wanted if key not in equation(name, fn, X).params]
    assert not missing, (
        f"jax {jax.__version__} names {missing} of {name!r} otherwise: mend costtrace/flow.py and dce.py"
    )


def test_constants_and_carries_of_a_scan() -> None:
    def fn(x: Any) -> Any:
        return lax.scan(lambda c, row: ((c[0] + x, c[1] * row), row), (x, x), jnp.zeros((2, 3)))

    counts = dce.scan_counts(equation("scan", fn, X).params)
    assert counts == (1, 2), (
        f"jax {jax.__version__} tells a scan's carries otherwise: mend scan_counts in costtrace/dce.py"
    )


def test_the_name_stack_tells_scopes_and_transformations() -> None:
    def fn(x: Any) -> Any:
        with jax.named_scope("a"):
            return jnp.sum(jnp.sin(x) ** 2)

    stack = equation("sin", fn, X).source_info.name_stack.stack
    kinds = [(type(part).__name__, part.name) for part in stack]
    assert kinds == [("Scope", "a")], (
        f"jax {jax.__version__} writes name stacks otherwise: mend _place in costtrace/walk.py"
    )
    phases = {(op.scope, op.phase) for op in trace(jax.grad(fn), X).ops}
    assert phases >= {("a", "forward"), ("a", "backward")}, (
        f"jax {jax.__version__}: the phase of an op, costtrace/walk.py"
    )
    again = {op.phase for op in trace(jax.grad(jax.checkpoint(fn)), X).ops}
    assert RECOMPUTE in again, (
        f"jax {jax.__version__} marks rematerialised work otherwise: mend _place in costtrace/walk.py"
    )


def test_effects_are_told_by_their_class() -> None:
    eqn = equation("debug_callback", lambda x: jax.debug.callback(lambda v: None, x), X)
    assert dce._side_effect(eqn), f"jax {jax.__version__}: effects of an equation, costtrace/dce.py"
