"""A pytest plugin: the tests of Flax's nnx run with `partax.nnx.jit` in the place of `nnx.jit`."""

from flax import nnx

import partax.nnx

nnx.jit = partax.nnx.jit
