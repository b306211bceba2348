"""A forward function -> its training step, and a step's profile -> its phases, model and hardware FLOPs, MFU and HFU.

The gradient is a vector-Jacobian product: a function with a scalar result is a loss; of any other the gradient of its
results is an argument, as the rest of a network would hand it back. An optimizer's update stands in a scope of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from costtrace.arguments import name_of
from costtrace.core import BACKWARD, FORWARD, RECOMPUTE, Cost
from costtrace.errors import UsageError
from costtrace.trace import jaxpr_of

if TYPE_CHECKING:
    from costtrace.chip import Chip
    from costtrace.summary import Profile

OPTIMIZER = "optimizer"
"""The scope of the update, and the name of its phase."""
PHASES = (FORWARD, BACKWARD, RECOMPUTE, OPTIMIZER)
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda optax: optax.sgd(1e-3),
    "momentum": lambda optax: optax.sgd(1e-3, momentum=0.9),
    "adam": lambda optax: optax.adam(1e-3),
    "adamw": lambda optax: optax.adamw(1e-3),
}
"""Name -> optax's optimizer of that name; rates do not change what a step costs."""


@dataclass(frozen=True, slots=True)
class Step:
    """A training step as an ordinary function. `jit`: keyword arguments as for jax.jit, which donate what the step
    replaces. `state_bytes`: the optimizer's state."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    jit: Mapping[str, Any]
    state_bytes: int = 0


def step(fn: Callable[..., Any], args: tuple[Any, ...], optimizer: Any = None) -> Step:
    """The gradient of fn with respect to its first argument, and with an optimizer (a name in OPTIMIZERS, or an
    optax.GradientTransformation) the update of that argument, in place.

    Raises UsageError where the first argument has no floating-point arrays or the function no floating-point result.
    """
    import jax

    if not args or not any(map(_floating, jax.tree.leaves(args[0]))):
        raise UsageError(f"{name_of(fn)}: no floating-point arrays in its first argument, so there is nothing to train")
    results = _results(fn, args)
    wanted = [spec for spec in results if _floating(spec)]
    if not wanted:
        raise UsageError(f"{name_of(fn)}: none of its results is floating-point, so it has no gradient")
    scalar = len(wanted) == 1 and wanted[0].shape == ()
    update = None if optimizer is None else _optimizer(optimizer)
    trained = [leaf for leaf in jax.tree.leaves(args[0]) if _floating(leaf)]
    state = None if update is None else jax.eval_shape(update.init, trained)
    names = _names(fn, len(args))

    def gradient(params: Any, rest: tuple[Any, ...], back: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        leaves, tree = jax.tree.flatten(params)
        mine = [leaf for leaf in leaves if _floating(leaf)]

        def forward(mine: list[Any]) -> tuple[list[Any], list[Any]]:
            given = iter(mine)
            whole = jax.tree.unflatten(tree, [next(given) if _floating(leaf) else leaf for leaf in leaves])
            out = [x for x in jax.tree.leaves(fn(whole, *rest)) if hasattr(x, "dtype")]
            return [x for x in out if _floating(x)], [x for x in out if not _floating(x)]

        out, pull, other = jax.vjp(forward, mine, has_aux=True)
        (grads,) = pull([jax.numpy.ones((), out[0].dtype)] if scalar else back)
        return mine, grads, [*out, *other]

    def whole(params: Any, *arguments: Any) -> Any:
        left = list(arguments)
        held = left.pop(0) if update is not None else None
        back = [] if scalar else left.pop()
        mine, grads, out = gradient(params, tuple(left), back)
        if update is None:
            return grads, out
        with jax.named_scope(OPTIMIZER):
            changes, held = update.update(grads, held, mine)
            return [p + u.astype(p.dtype) for p, u in zip(mine, changes, strict=True)], held, out

    tail = () if scalar else (wanted,)
    middle = () if update is None else (state,)
    whole.__name__ = f"{name_of(fn)} {'step' if update is not None else 'gradient'}"
    kind = inspect.Parameter.POSITIONAL_ONLY
    words = [
        names[0],
        *(["optimizer_state"] if update is not None else []),
        *names[1:],
        *([] if scalar else ["gradient"]),
    ]
    whole.__signature__ = inspect.Signature([inspect.Parameter(w, kind) for w in words])  # type: ignore[attr-defined]
    return Step(
        whole,
        (args[0], *middle, *args[1:], *tail),
        {} if update is None else {"donate_argnums": (0, 1)},
        sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)),
    )


def _floating(x: Any) -> bool:
    import jax.numpy as jnp

    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.inexact)


def _results(fn: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
    import jax

    return [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in jaxpr_of(fn, args).out_avals]


def _names(fn: Callable[..., Any], count: int) -> list[str]:
    try:
        known = [p.name for p in inspect.signature(fn).parameters.values() if p.kind is not p.VAR_POSITIONAL]
    except (TypeError, ValueError):
        known = []
    return [known[i] if i < len(known) else f"arg{i}" for i in range(count)]


def known(optimizer: str) -> None:
    """Raises UsageError where no optimizer has that name."""
    if optimizer not in OPTIMIZERS:
        raise UsageError(f"optimizer {optimizer!r}: choose one of {', '.join(OPTIMIZERS)}")


def _optimizer(wanted: Any) -> Any:
    if not isinstance(wanted, str):
        return wanted
    known(wanted)
    import importlib

    try:
        return OPTIMIZERS[wanted](importlib.import_module("optax"))
    except ImportError:
        raise UsageError(f"optimizer {wanted!r} is optax's: pip install optax") from None


@dataclass(frozen=True, slots=True)
class Training:
    """A step's parts. model_flops: forward and backward; hardware_flops: recompute too; both of matmuls and
    convolutions. mfu and hfu: those FLOPs over what the chip's matrix unit could do in a given step time (fractions of
    1), at the peak of the dtype that most of them are in, as the field has it."""

    phases: dict[str, Cost]
    state_bytes: int
    model_flops: int
    hardware_flops: int
    step_time_s: float | None = None
    mfu: float | None = None
    hfu: float | None = None
    peak: str = ""
    """The rate that mfu and hfu are of, with its dtype."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "phases": {name: _phase(name, cost) for name, cost in self.phases.items()}, "state_bytes": self.state_bytes,
            "model_flops": self.model_flops, "hardware_flops": self.hardware_flops, "step_time_s": self.step_time_s,
            "mfu": self.mfu, "hfu": self.hfu, "peak": self.peak,
        }  # fmt: skip


def training(
    profile: Profile, state_bytes: int = 0, chip: Chip | None = None, step_time_s: float | None = None
) -> Training:
    """The parts of a step's profile. Bytes of a phase are unfused: a phase is no kernel; the optimizer, a scope, has
    all three. Raises UsageError for a step time that is not positive or that the chip could not reach."""
    phases = {name: Cost() for name in PHASES}
    for r in profile.records:
        mine = r.scope == OPTIMIZER or r.scope.startswith(f"{OPTIMIZER}/")
        name = OPTIMIZER if mine else r.phase
        phases[name] = phases[name] + r.cost
    if OPTIMIZER in profile.by_scope:
        whole = profile.by_scope[OPTIMIZER]
        phases[OPTIMIZER] = whole
    model = phases[FORWARD] + phases[BACKWARD]
    hardware = model + phases[RECOMPUTE]
    products = [cost.matmul_flops + cost.conv_flops for cost in (model, hardware)]
    mfu = hfu = None
    peak = ""
    if step_time_s is not None and chip is not None:
        if step_time_s <= 0:
            raise UsageError(f"step time {step_time_s}: give seconds above 0, as in --step-time 0.350")
        dtype = max(model.by_dtype, key=model.by_dtype.__getitem__, default="bfloat16")
        rate = chip.rate("matrix", dtype)
        if rate is not None:
            mfu, hfu = (n / (step_time_s * rate.value) for n in products)
            peak = f"{rate.text} {dtype}"
    return Training(phases, state_bytes, products[0], products[1], step_time_s, mfu, hfu, peak)


def _phase(name: str, cost: Cost) -> dict[str, Any]:
    """A phase is no kernel: of its bytes only the unfused ones are known. The optimizer is a scope, and has all."""
    whole = name == OPTIMIZER or not cost.bytes_unfused
    return cost.to_dict() | ({} if whole else {"bytes_fused": None, "bytes_scoped": None})
