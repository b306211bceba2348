"""`costtrace trace FILE.py:FUNCTION --arg ...`: a function or a module of the user's own, or its training step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from costtrace.arguments import filled, name_of, weight_argument
from costtrace.cli import argument, compiled, files, sharded, source, strategies
from costtrace.cli.argument import Array
from costtrace.cli.number import Number
from costtrace.cli.shared import OPTIONS, Run, show
from costtrace.cli.waiting import working
from costtrace.core import MODELLED, Note
from costtrace.errors import UsageError

if TYPE_CHECKING:
    from costtrace.chip import Chip
    from costtrace.summary import Profile
    from costtrace.target.program import Program

OWN = (
    click.Argument(["target"], metavar="FILE.py:FUNCTION|MODULE.hlo"),
    click.Option(["--arg", "given"], multiple=True, metavar="[NAME=]DTYPE[SIZE,...]",
                 help="An argument, in order or by name: x=bf16[1024,3072], f32[8,8], i32[], key[]. NAME=VALUE fixes a "
                 "Python value: heads=8. Dtypes are jax's short names or numpy's long ones."),
    click.Option(["--args", "maker"], metavar="FUNCTION",
                 help="A function in the file that returns the tuple of arguments, pytrees of jax.ShapeDtypeStruct."),
    click.Option(["--checkpoint"], metavar="PATH",
                 help="The weights' shapes and dtypes from the header of a .safetensors file, its index, or an orbax "
                 "folder: the first argument of a function; a module's own weights are held against it."),
    click.Option(["--dim"], multiple=True, metavar="NAME=N",
                 help="The value of a size that --arg names: f32[n,n] with --dim n=64."),
    click.Option(["--trips"], multiple=True, metavar="SCOPE=N", help="Trips of a loop whose count depends on data."),
    click.Option(["--weights"], metavar="NAME|N",
                 help="The argument that holds the parameters: by default the first, if it is a container of arrays."),
    click.Option(["--grad"], is_flag=True, help="The gradient by the argument of --weights (a module's weights)."),
    click.Option(["--optimizer"], metavar="NAME",
                 help="The training step with its update by optax: sgd, momentum, adam or adamw. Means --grad."),
    click.Option(["--step-time", "step_time"], type=Number(0, min_open=True), metavar="SECONDS",
                 help="A measured step, for MFU and HFU. Means --grad."),
)  # fmt: skip

WIDE = ("int64", "uint64")


def callback(
    target: str, given: tuple[str, ...], maker: str | None, checkpoint: str | None, dim: tuple[str, ...],
    trips: tuple[str, ...], weights: str | None, grad: bool, optimizer: str | None, step_time: float | None,
    **options: Any,
) -> None:  # fmt: skip
    """What a function of yours costs, from the shapes of its arguments.

    Or a module of flax (linen, nnx), equinox or haiku, or a function that makes one; or a jax.export artifact on disk.

    costtrace trace model.py:forward --arg 'x=bf16[1024,3072]' --arg 'w=bf16[3072,9216]'
    """
    from costtrace.profiler import folded, profile  # numpy and the rules, which --help does not need

    files.checked(options)
    if optimizer:
        from costtrace import training

        training.known(optimizer)
    many = strategies.wanted(options)
    if many:
        files.refused(options, "with --chips there is a table, and --html", but="html")
    if target.endswith(compiled.DUMPS) and not source.exported(target):
        if many:
            raise UsageError(f"{target} is a compiled program, cut already: --chips takes a function or an artifact")
        click.echo(compiled.dumped(target, options))
        return
    if source.artifact(target):
        if given or maker or checkpoint:
            raise UsageError(f"{target} is an artifact, with arguments of its own: give only --dim for its sizes")
        fn, args, config, notes = _artifact(target, dim)
    else:
        fn, args, config, notes = sourced(target, given, maker, checkpoint, dim)
    where: int | str | None = int(weights) if weights and weights.isdecimal() else weights
    jit, extra = None, _nothing
    if grad or optimizer or step_time is not None:
        fn, args, told = _by_weights(fn, args, where)
        fn, args, jit, extra = _training(fn, args, optimizer, step_time)
        where, notes = 0, [*notes, *told]
    loops = argument.pairs("--trips", trips)
    if many:
        from costtrace.trace import trace

        whole = trace(fn, *args, jit=jit, trips=loops, weights=where)
        parts = strategies.of_trace(whole.name, config, whole)
        if compiled.wanted(options) or options["sort"]:
            step = {"train": jit, **options}
            sharded.compile_and_show(whole.name, [(config, [(whole.name, 1, fn, args, None)])], step, where)
        else:
            documents = strategies.show(whole.name, parts, options)
            if options["html"]:
                _page(_noted(folded(whole), notes), config, documents, options)
        return
    with working(f"tracing {target}"):
        made = profile(fn, *args, jit=jit, trips=loops, weights=where, strict=options["strict"])
    _noted(made, notes)

    def programs(platform: str) -> list[Program]:
        from costtrace.target.program import lowered

        return [lowered(fn, args, platform, jit)]

    run = Run(made.name, config, [(made.name, 1, made)], {}, lambda chip, _: extra(made, chip), programs)
    show([run], options)


def _noted(made: Profile, notes: list[Note]) -> Profile:
    """The profile, with what is to be known of how its program was read."""
    from costtrace.summary import worst

    made.notes.extend(notes)
    if any(note.kind == "dense" for note in notes):
        made.status = worst((made.status, MODELLED))
    return made


def _page(made: Profile, config: Mapping[str, Any], documents: list[dict[str, Any]], options: dict[str, Any]) -> None:
    """The page of the function on each chip, with the strategies that were compared."""
    from costtrace import chip
    from costtrace.report.document import Answer

    names = options["chip"].split(",")
    files.write([Answer(made.name, config, [(made.name, 1, made)], options["depth"], chip.load(name),
                        strategies=doc["strategies"])
                 for name, doc in zip(names, documents, strict=True)], options)  # fmt: skip


command = click.Command("trace", params=[*OWN, *OPTIONS, *strategies.OPTIONS], callback=callback, help=callback.__doc__)


def sourced(
    target: str, given: tuple[str, ...], maker: str | None, checkpoint: str | None, dim: tuple[str, ...]
) -> tuple[Any, tuple[Any, ...], dict[str, Any], list[Any]]:
    """(function, abstract arguments, config, notes) of what a file or a package names."""
    from costtrace import header
    from costtrace.module.call import constructed, library

    if checkpoint is not None:
        header.tensors(checkpoint)
    fn, found = source.function(target)
    dims = argument.pairs("--dim", dim)
    if maker is not None:
        if given:
            raise UsageError("--args and --arg: give one of the two")
        args = filled(source.arguments(found, target, maker), dims)
        fn = constructed(fn, args)
        source.fits(fn, args, target, maker, checkpoint is not None and library(fn) is None)
        keywords: dict[str, Any] = {}
        config: Mapping[str, Any] = {"args": maker}
    else:
        named = argument.sizes(given)
        if unused := [name for name in dims if name not in named]:
            known = f"they name {', '.join(named)}" if named else "they name none"
            raise UsageError(f"--dim {unused[0]}={dims[unused[0]]}: no --arg has a size of that name: {known}")
        some = [argument.parse(text, dims) for text in given]
        fn = constructed(fn, tuple(some))
        args, keywords, config = bound(fn, some, target, checkpoint is not None)
    fn, args = weighed(fn, args, keywords, checkpoint, target)
    return fn, args, {"function": target, **config, **({"checkpoint": checkpoint} if checkpoint else {})}, []


def _artifact(target: str, dim: tuple[str, ...]) -> tuple[Any, tuple[Any, ...], dict[str, Any], list[Any]]:
    """The same of a jax.export artifact, with a note that it is read as lowered."""
    from costtrace.evidence import exported

    fn, args, notes = exported.opened(target, argument.pairs("--dim", dim))
    return fn, args, {"artifact": target, **({"dims": ",".join(dim)} if dim else {})}, notes


def _nothing(profile: Profile, chip: Chip) -> dict[str, Any]:
    return {}


def _by_weights(fn: Any, args: tuple[Any, ...], where: int | str | None) -> tuple[Any, tuple[Any, ...], list[Note]]:
    """(function, arguments, notes): the argument that holds the weights comes first, for the gradient is by it. A note
    says which one it is where nobody named one and the first is no container of weights."""
    from costtrace.module.call import signature

    at = weight_argument(fn, args, where)
    taken = signature(fn)
    names = [*(taken.parameters if taken else ()), *(f"arg{k}" for k in range(len(args)))]
    if at is None and args:
        text = (
            f"the gradient is by the first argument, {names[0]}, no container of weights: --weights NAME names another"
        )
        return fn, args, [Note("gradient", "", text)]
    if not at:
        return fn, args, []

    def moved(weights: Any, *others: Any) -> Any:
        return fn(*others[:at], weights, *others[at:])

    kind = inspect.Parameter.POSITIONAL_ONLY
    order = [at, *(k for k in range(len(args)) if k != at)]
    moved.__name__ = name_of(fn)
    moved.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # jax names arguments by it
        [inspect.Parameter(names[k], kind) for k in order]
    )
    return moved, tuple(args[k] for k in order), []


def _training(fn: Any, args: tuple[Any, ...], optimizer: str | None, step_time: float | None) -> tuple[Any, ...]:
    """(step, its arguments, jit's keywords, what its profile adds to the document)."""
    from costtrace.training import step, training

    made = step(fn, args, optimizer)
    return (
        made.fn,
        made.args,
        made.jit,
        lambda profile, chip: {"training": training(profile, made.state_bytes, chip, step_time).to_dict()},
    )


def weighed(
    fn: Any, args: tuple[Any, ...], keywords: Mapping[str, Any], checkpoint: str | None, target: str
) -> tuple[Any, tuple[Any, ...]]:
    """(ordinary function, abstract arguments), with the weights that a checkpoint's header tells.

    Raises Contradiction, its table printed, where the checkpoint and a module's own weights differ.
    """
    from costtrace import header
    from costtrace.module.call import library, opened
    from costtrace.report.training import differences

    if checkpoint is None:
        return opened(fn, args, keywords)
    if library(fn) is None:
        return opened(fn, (header.weights(checkpoint), *args), keywords)
    fn, args = opened(fn, args, keywords)
    try:
        return fn, (header.fitted(checkpoint, args[0], target), *args[1:])
    except header.Contradiction as e:
        click.echo(differences(e.table), err=True)
        raise


def bound(
    fn: Callable[..., Any], given: list[tuple[str | None, Any]], target: str, weights_first: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any], Mapping[str, Any]]:
    """(positional arguments, keywords, {name: what was given}): arrays abstract, Python values as they are.

    weights_first: a plain function's first argument comes from elsewhere. Raises UsageError where the arguments do not
    fit the signature.
    """
    from costtrace.module.call import library, signature

    named = {name: value for name, value in given if name is not None}
    if len(named) < sum(name is not None for name, _ in given):
        raise UsageError(f"{target}: an argument is given twice: use each --arg name once")
    ordered = [value for name, value in given if name is None]
    taken = signature(fn)
    if taken is None:  # some built-in functions have none: arguments in order only
        return tuple(map(abstract, ordered)), {}, {f"arg{k}": str(v) for k, v in enumerate(ordered)}
    parameters = list(taken.parameters.values())
    if weights_first and library(fn) is None:
        taken = taken.replace(parameters=parameters[1:])
    keywords = any(p.kind is p.VAR_KEYWORD for p in taken.parameters.values())
    if unknown := [name for name in named if name not in taken.parameters and not keywords]:
        raise UsageError(f"{target}: no argument {unknown[0]!r}: it takes {taken}")
    free = [name for name, p in taken.parameters.items() if name not in named and p.kind is p.POSITIONAL_OR_KEYWORD]
    named = dict(zip(free, ordered, strict=False)) | named
    more = any(p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY) for p in taken.parameters.values())
    if len(ordered) > len(free) and not more:
        raise UsageError(f"{target}: {len(given)} arguments are too many: it takes {taken}")
    try:
        fits = taken.bind(*ordered[len(free) :], **named)
    except TypeError as e:
        raise UsageError(f"{target}: {e}: it takes {taken}; add or mend --arg") from None
    config = {name: str(value) if isinstance(value, Array) else value for name, value in fits.arguments.items()}
    return tuple(map(abstract, fits.args)), {name: abstract(value) for name, value in fits.kwargs.items()}, config


def abstract(value: Any) -> Any:
    """The jax.ShapeDtypeStruct of an Array; any other value as it is.

    Raises UsageError for a dtype that jax does not have, or has only in 64-bit mode.
    """
    if not isinstance(value, Array):
        return value
    import jax

    if value.dtype == "key":
        return jax.ShapeDtypeStruct(value.shape, jax.eval_shape(lambda: jax.random.key(0)).dtype)
    try:
        made = jax.ShapeDtypeStruct(value.shape, value.dtype)
    except TypeError:
        raise UsageError(f"--arg {value}: no dtype {value.dtype!r}: try bf16, f32, i32, u8, bool, f8_e4m3fn") from None
    if made.dtype.name in WIDE and not jax.config.read("jax_enable_x64"):
        raise UsageError(f"--arg {value}: jax narrows {value.dtype} to 32 bits: set JAX_ENABLE_X64=1, or give 32 bits")
    return made
