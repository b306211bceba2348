"""`costtrace trace FILE.py:FUNCTION --arg ...`: a function of the user's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import click

from costtrace.cli import argument, source
from costtrace.cli.argument import Array
from costtrace.cli.shared import OPTIONS, Run, show
from costtrace.errors import UsageError

OWN = (
    click.Argument(["target"], metavar="FILE.py:FUNCTION"),
    click.Option(["--arg", "given"], multiple=True, metavar="[NAME=]DTYPE[SIZE,...]",
                 help="An argument, in order or by name: x=bf16[1024,3072], f32[8,8], i32[]. NAME=VALUE fixes a Python "
                 "value: heads=8. Dtypes are jax's short names or numpy's long ones."),
    click.Option(["--args", "maker"], metavar="FUNCTION",
                 help="A function in the file that returns the tuple of arguments, pytrees of jax.ShapeDtypeStruct."),
    click.Option(["--dim"], multiple=True, metavar="NAME=N",
                 help="The value of a size that --arg names: f32[n,n] with --dim n=64."),
    click.Option(["--trips"], multiple=True, metavar="SCOPE=N", help="Trips of a loop whose count depends on data."),
    click.Option(["--weights"], metavar="NAME|N",
                 help="The argument that holds the parameters: by default the first, if it is a container of arrays."),
)  # fmt: skip

WIDE = ("float64", "int64", "uint64", "complex128")


def callback(
    target: str, given: tuple[str, ...], maker: str | None, dim: tuple[str, ...], trips: tuple[str, ...],
    weights: str | None, **options: Any,
) -> None:  # fmt: skip
    """What a function of yours costs, from the shapes of its arguments.

    costtrace trace model.py:forward --arg 'x=bf16[1024,3072]' --arg 'w=bf16[3072,9216]'
    """
    from costtrace.profiler import profile  # numpy and the rules, which --help does not need

    fn, found = source.function(target)
    if maker is not None:
        if given:
            raise UsageError("--args and --arg: give one of the two")
        args = source.member(found, target.rpartition(":")[0], maker)()
        args = args if isinstance(args, tuple) else (args,)
        config: Mapping[str, Any] = {"args": maker}
    else:
        dims = argument.pairs("--dim", dim)
        fn, args, config = bound(fn, [argument.parse(text, dims) for text in given], target)
    where: int | str | None = int(weights) if weights and weights.isdecimal() else weights
    made = profile(fn, *args, trips=argument.pairs("--trips", trips), weights=where, strict=options["strict"])
    show([Run(made.name, {"function": target, **config}, [(made.name, 1, made)], {})], options)


command = click.Command("trace", params=[*OWN, *OPTIONS], callback=callback, help=callback.__doc__)


def bound(
    fn: Callable[..., Any], given: list[tuple[str | None, Any]], target: str
) -> tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]:
    """(function of arrays only, its abstract arguments, {name: what was given}): Python values are fixed.

    Raises UsageError where the arguments do not fit the function's signature.
    """
    named = {name: value for name, value in given if name is not None}
    if len(named) < sum(name is not None for name, _ in given):
        raise UsageError(f"{target}: an argument is given twice: use each --arg name once")
    ordered = [value for name, value in given if name is None]
    try:
        signature = inspect.signature(fn)
    except ValueError:  # some built-in functions have none: arguments in order only
        return fn, tuple(abstract(value) for value in ordered), {f"arg{k}": str(v) for k, v in enumerate(ordered)}
    keywords = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    if unknown := [name for name in named if name not in signature.parameters and not keywords]:
        raise UsageError(f"{target}: no argument {unknown[0]!r}: it takes {signature}")
    free = [name for name, p in signature.parameters.items() if name not in named and p.kind is p.POSITIONAL_OR_KEYWORD]
    named = dict(zip(free, ordered, strict=False)) | named
    ordered = ordered[len(free) :]
    try:
        taken = signature.bind(*ordered, **named)
    except TypeError as e:
        raise UsageError(f"{target}: {e}: it takes {signature}; add or mend --arg") from None
    names = list(taken.arguments)
    config = {name: str(value) if isinstance(value, Array) else value for name, value in taken.arguments.items()}
    if not taken.kwargs and all(isinstance(value, Array) for value in taken.args):
        return fn, tuple(map(abstract, taken.args)), config
    arrays = {name: value for name, value in taken.arguments.items() if isinstance(value, Array)}

    def call(*values: Any) -> Any:
        taken.arguments.update(zip(arrays, values, strict=True))
        return fn(*taken.args, **taken.kwargs)

    call.__name__ = getattr(fn, "__name__", names[0] if names else "call")
    order = inspect.Parameter.POSITIONAL_ONLY
    call.__signature__ = inspect.Signature([inspect.Parameter(n, order) for n in arrays])  # type: ignore[attr-defined]
    return call, tuple(map(abstract, arrays.values())), config


def abstract(array: Array) -> Any:
    """The jax.ShapeDtypeStruct. Raises UsageError for a dtype that jax does not have, or has only in 64-bit mode."""
    import jax

    try:
        made = jax.ShapeDtypeStruct(array.shape, array.dtype)
    except TypeError:
        raise UsageError(f"--arg {array}: no dtype {array.dtype!r}: try bf16, f32, i32, u8, bool, f8_e4m3fn") from None
    if made.dtype.name in WIDE and not jax.config.read("jax_enable_x64"):
        raise UsageError(f"--arg {array}: jax narrows {array.dtype} to 32 bits: set JAX_ENABLE_X64=1, or give 32 bits")
    return made
