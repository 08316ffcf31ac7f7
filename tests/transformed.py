"""What the tests of transformations share: a comparison of trees that hold anything."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from trees import assert_close, bits


def assert_close_trees(actual: Any, expected: Any, terms: int = 64) -> None:
    """Equal structure (None included), static leaves the same, numbers equal but for rounding."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        if not eqx.is_array(b):
            assert a == b and type(a) is type(b)
        elif jnp.issubdtype(b.dtype, jnp.inexact):
            assert_close(a, b, terms)
        else:
            assert bits(a) == bits(b)


def arrays_of(tree: Any) -> Any:
    """The tree with None for all but its inexact arrays."""
    return eqx.filter(tree, eqx.is_inexact_array)
