"""A traced program -> a text that is equal only for programs which are lowered alike, without lowering it.

So that what a compiler said once is found again at the cost of a walk over the equations. What goes into a lowered
program is told in full: equations, scopes, constants by value, jax's settings. Whatever is not surely known here (a
kernel, a callback, a sharding, another package's primitive) makes the whole program unknown: None, and then the lowered
program itself is what it is known by.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from costtrace.doors import settings
from costtrace.rules import FLOW, RULES

FORM = 1
"""Raised where what is told changes."""
UNREAD = {"custom_jvp_call": {"jvp_jaxpr_fun"}, "custom_vjp_call": {"fwd_jaxpr_thunk", "bwd"}, "remat2": {"policy"}}
"""Parameters that lowering does not read: what a derivative is, or keeps, which are functions."""
SLOTTED = ("ShapedArray", "JaxprEqnContext", "ManualAxisType")
"""Classes of jax that are their slots, but for these:"""
ASIDE = ("__weakref__", "configs", "_stripped_weak_type")
UNSAID = ("UnspecifiedValue", "AutoLayoutSingleton")
"""Classes of jax with one value: nothing is asked for."""


class _Unsure(Exception):
    """Something that is not surely known."""


def identity(jitted: Any, args: tuple[Any, ...]) -> str | None:
    """That of a jitted function of abstract arguments; None where it is not known, or an argument has a sharding."""
    import jax

    leaves, tree = jax.tree.flatten(args)
    if not all(hasattr(leaf, "dtype") and getattr(leaf, "sharding", None) is None for leaf in leaves):
        return None  # a static argument, or one that lies somewhere
    closed, results = jax.make_jaxpr(jitted, return_shape=True)(*args)
    under = settings()
    if under is None:
        return None
    try:
        return _Told().digest((FORM, jax.__version__, under, str(tree), str(jax.tree.structure(results)), closed))
    except _Unsure:
        return None


class _Told:
    """Values as nested tuples of plain ones, whose text is their identity."""

    def __init__(self) -> None:
        self.seen: dict[int, Any] = {}
        self.keep: list[Any] = []  # what the ids point to

    def digest(self, value: Any) -> str:
        return hashlib.sha256(repr(self.of(value)).encode()).hexdigest()

    def of(self, value: Any) -> Any:
        """`value` told by its type. Raises _Unsure for a type that is none of these."""
        name = type(value).__name__
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            return name, repr(value)
        if isinstance(value, np.dtype):
            return name, str(value)
        if hasattr(value, "dtype") and hasattr(value, "shape") and name not in SLOTTED:
            return self.array(value)
        if isinstance(value, (type, types.FunctionType)):
            return self.named(value)
        if isinstance(value, enum.Enum):
            return self.named(type(value)), value.name
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self.named(type(value)), [self.of(part) for part in value]
        if isinstance(value, (tuple, list)):
            return name, [self.of(part) for part in value]
        if isinstance(value, dict):
            return name, [(self.of(key), self.of(part)) for key, part in value.items()]
        if isinstance(value, (set, frozenset)):
            return name, sorted(repr(self.of(part)) for part in value)
        return self.of_jax(value, name)

    def of_jax(self, value: Any, name: str) -> Any:
        if not type(value).__module__.startswith("jax"):
            raise _Unsure(name)
        if hasattr(value, "eqns") or hasattr(value, "jaxpr"):
            return name, self.once(value, self.program)
        if name in SLOTTED:
            return self.once(value, self.slotted)
        if name in UNSAID:
            return name
        if name == "PyTreeDef":
            return name, str(value)
        if name == "KeyTy" or "FlatTree" in [base.__name__ for base in type(value).__mro__]:
            return name, [self.of(part) for part in vars(value).values()]  # random keys; jax 0.12's nested carries
        if getattr(getattr(value, "mesh", value), "empty", False) is True:
            return "no mesh"
        if dataclasses.is_dataclass(value):
            return self.named(type(value)), [self.of(getattr(value, f.name)) for f in dataclasses.fields(value)]
        raise _Unsure(name)

    def named(self, value: Any) -> Any:
        """A class or function that its name finds again, of packages that are the same for the same version."""
        module, name = value.__module__, value.__qualname__
        if module.partition(".")[0] not in ("builtins", "numpy", "ml_dtypes", "jax") or "<" in name:
            raise _Unsure(name)
        return module, name

    def array(self, value: Any) -> Any:
        """By its elements; one over several devices, or of keys, is not known."""
        if not isinstance(value, (np.ndarray, np.generic)):
            if len(value.devices()) > 1 or type(value.dtype).__module__.startswith("jax"):
                raise _Unsure("array")
            value = np.asarray(value)
        if value.dtype.hasobject:
            raise _Unsure("array")
        return type(value).__name__, str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).hexdigest()

    def once(self, value: Any, told: Callable[[Any], str]) -> Any:
        """`told(value)`; of what stands in several places it is asked once."""
        if id(value) not in self.seen:
            self.keep.append(value)
            self.seen[id(value)] = told(value)
        return self.seen[id(value)]

    def slotted(self, value: Any) -> str:
        slots = [slot for slot in type(value).__slots__ if slot not in ASIDE]
        return repr((type(value).__name__, [(slot, self.of(getattr(value, slot))) for slot in slots]))

    def program(self, value: Any) -> str:
        """The digest of a jaxpr, closed or open."""
        inner, consts = getattr(value, "jaxpr", value), getattr(value, "consts", ())
        whole = (self.body(inner), [self.of(const) for const in consts])
        return hashlib.sha256(repr(whole).encode()).hexdigest()

    def body(self, jaxpr: Any) -> Any:
        if jaxpr.effects:
            raise _Unsure("effects")
        numbers: dict[Any, int] = {}

        def atoms(some: Any) -> list[Any]:
            return [("literal", self.of(v.val), self.of(v.aval)) if hasattr(v, "val") else numbers[v] for v in some]

        def bound(some: Any) -> list[Any]:
            out = []
            for v in some:
                numbers[v] = len(numbers)
                out.append(self.of(v.aval))
            return out

        info = jaxpr.debug_info
        names = (info.func_src_info.split(" ")[0], self.of(info.arg_names))
        taken = bound(jaxpr.constvars), bound(jaxpr.invars)
        eqns = [(self.equation(eqn), atoms(eqn.invars), bound(eqn.outvars)) for eqn in jaxpr.eqns]
        return names, taken, eqns, atoms(jaxpr.outvars)

    def equation(self, eqn: Any) -> Any:
        name = eqn.primitive.name
        known = RULES[name].own if name in RULES else name in FLOW
        if not known:
            raise _Unsure(name)
        skipped = UNREAD.get(name, set())
        params = [(key, self.of(value)) for key, value in eqn.params.items() if key not in skipped]
        return name, self.once(eqn.source_info.name_stack, str), params, self.of(eqn.ctx)
