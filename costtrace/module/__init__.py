"""Modules of flax (linen, nnx), equinox and haiku as ordinary JAX functions, with no change to them."""
