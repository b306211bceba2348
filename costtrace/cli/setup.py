"""`costtrace setup tpu|gpu`: a private environment that holds a chip's compiler."""

from __future__ import annotations

import click


@click.command()
@click.argument("kind", type=click.Choice(["tpu", "gpu"]))
@click.option("--codegen", is_flag=True, help="gpu: NVIDIA's own code generators too (their licence, 300 MB more).")
def command(kind: str, codegen: bool) -> None:
    """Makes a private environment with the compiler for TPU or GPU, of your jax's version; nothing else changes.

    Without --codegen the GPU compiler stops before machine code; what costtrace reads is the same.
    """
    from costtrace.target import setup

    click.echo(str(setup.make(kind, lambda text: click.echo(text, err=True), codegen)))
