"""A call's arguments as the arrays among them and what is fixed; and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from costtrace.module.parts import Parts


def array(x: Any) -> bool:
    """True for what jax traces as an array: abstract or not."""
    return hasattr(x, "shape") and hasattr(x, "dtype")


def arrays(out: Any) -> list[Any]:
    """The array leaves of a result."""
    import jax

    return [leaf for leaf in jax.tree.leaves(out) if array(leaf)]


class Inputs:
    """The arguments taken apart. `values`: their trees, positional and then by keyword, arrays only, None elsewhere.

    `parts` (a module -> its Parts, None for anything else) takes modules among the arguments apart too: then `weights`
    holds theirs, by argument, and `values` their state.
    """

    def __init__(
        self,
        args: tuple[Any, ...],
        keywords: Mapping[str, Any],
        parts: Callable[[Any], Parts | None] = lambda x: None,
    ) -> None:
        import jax

        self.names = list(keywords)
        self.count = len(args)
        found: dict[int, Parts] = {}

        def module(x: Any) -> bool:
            if id(x) not in found and (made := parts(x)) is not None:
                found[id(x)] = made
            return id(x) in found

        split = [jax.tree.flatten(arg, is_leaf=module) for arg in (*args, *keywords.values())]
        self.leaves = [[found.get(id(x), x) for x in leaves] for leaves, _ in split]
        self.trees: list[Any] = [tree for _, tree in split]
        self.weights = {
            f"{i}" if j == 0 else f"{i}.{j}": x.weights
            for i, leaves in enumerate(self.leaves)
            for j, x in enumerate(leaves)
            if isinstance(x, Parts) and jax.tree.leaves(x.weights)
        }
        self.values = tuple(
            tree.unflatten([x.state if isinstance(x, Parts) else x if array(x) else None for x in leaves])
            for leaves, tree in zip(self.leaves, self.trees, strict=True)
        )
        self.built: list[tuple[Parts, Any, Any]] = []
        """(parts, module, the arrays it was built on) of the modules of the last joined()."""

    @property
    def holds_modules(self) -> bool:
        return any(isinstance(x, Parts) for leaves in self.leaves for x in leaves)

    @property
    def all_arrays(self) -> bool:
        """True where nothing is fixed and no module is among the arguments."""
        return all(array(x) for leaves in self.leaves for x in leaves)

    def joined(
        self, values: tuple[Any, ...], weights: Mapping[str, Any] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, keywords) with these arrays, and what is fixed back in its place."""
        self.built = []
        whole = []
        for i, (value, leaves, tree) in enumerate(zip(values, self.leaves, self.trees, strict=True)):
            filled = []
            for j, (v, x) in enumerate(zip(tree.flatten_up_to(value), leaves, strict=True)):
                if isinstance(x, Parts):
                    assert x.build is not None and weights is not None
                    own = weights.get(f"{i}" if j == 0 else f"{i}.{j}", x.weights)  # there: without a leaf
                    module = x.build(own, v)
                    self.built.append((x, module, (own, v)))
                    filled.append(module)
                else:
                    filled.append(v if array(x) else x)
            whole.append(tree.unflatten(filled))
        return tuple(whole[: self.count]), dict(zip(self.names, whole[self.count :], strict=True))
