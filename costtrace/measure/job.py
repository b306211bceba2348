"""What is measured and compared: the stages of a model, or a function, each an ordinary function with its program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from costtrace import model
from costtrace.arguments import closed_over, weight_argument
from costtrace.core import Trace
from costtrace.profiler import folded
from costtrace.summary import Profile
from costtrace.trace import trace

DEEPEST = 2
"""How deep a function's scopes are cut where nobody says."""


@dataclass(frozen=True, slots=True)
class Job:
    """One stage. `args` are abstract; `donated`: positions of those that it may overwrite; `depth`: how deep its table
    shows scopes; `weights`: the first of `args` are weights."""

    name: str
    calls: int
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    trace: Trace
    profile: Profile
    depth: int
    donated: tuple[int, ...] = ()
    weights: bool = True

    def rows(self, depth: int | None = None) -> list[str]:
        """The keys of the stage's rows by scope; none for a depth of 0."""
        depth = self.depth if depth is None else depth
        return [row.key for row in self.profile.rows(depth=depth, merge=False)] if depth else []

    def scopes(self, depth: int | None = None) -> list[str]:
        """The scopes that have a row, and those that hold them."""
        keys = [key.split("/") for key in self.rows(depth)]
        wanted: Collection[str] = {"/".join(names[:n]) for names in keys for n in range(1, len(names) + 1)}
        return [scope for scope in self.profile.by_scope if scope in wanted]


def of_model(found: model.Model, config: Any) -> list[Job]:
    """The stages of one configuration of a model."""
    out = []
    for stage in found.stages(config):
        fn, args = model.bind(stage)
        made = trace(fn, *args, weights=0)
        donated = tuple(position + 1 for position in stage.donated)
        out.append(Job(stage.name, stage.calls, fn, args, made, folded(made), stage.depth, donated))
    return out


def of_function(fn: Callable[..., Any], args: tuple[Any, ...], trips: Mapping[str, int] | None = None) -> list[Job]:
    """A function as the one stage; a container of arrays as first argument are its weights, as where it is traced."""
    made = trace(fn, *args, trips=trips)
    run, arrays = closed_over(fn, args, None)  # Python values among the arguments stay what they are
    return [Job(made.name, 1, run, tuple(arrays), made, folded(made), DEEPEST,
                weights=weight_argument(fn, args, None) == 0)]  # fmt: skip
