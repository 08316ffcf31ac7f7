"""Whether trees are equal."""

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._core import is_array


def equal(*pytrees: Any, typematch: bool = False, rtol: Any = 0.0, atol: Any = 0.0) -> bool | jax.Array:
    """Whether all trees have the same structure and equal leaves, as `equinox.tree_equal`.

    Example:
      >>> partax.tree.equal({"x": jnp.ones(2), "n": 1}, {"x": jnp.ones(2), "n": 1})
      True
      >>> partax.tree.equal({"x": jnp.ones(2), "n": 1}, {"x": jnp.ones(2), "n": 2})
      False

    Arrays are equal if their dtypes, shapes and values are; a NaN is equal to nothing. All else is compared by `==`.

    Args:
      *pytrees: one or more trees of any kind.
      typematch: whether leaves must also be of the same type, so that an array of JAX is not equal to one of NumPy, nor
        1 to 1.0.
      rtol: relative tolerance for inexact arrays, as of `jax.numpy.allclose`.
      atol: absolute tolerance, the same.

    Returns:
      A bool; a traced bool array where it depends on the values of traced arrays. `equal(...) is True` asks whether the
      trees are known to be equal.

    Raises:
      TypeError: no tree is given, or a static part or leaf refuses to be compared.
      TypeError, RecursionError: a tree cannot be read; the message has the path.
    """
    if not pytrees:
        raise TypeError("equal: found no trees, expected one or more")
    exact = isinstance(rtol, int | float) and isinstance(atol, int | float) and rtol == 0 and atol == 0
    first, structure = _core.tree_flatten(pytrees[0], None)
    unknown: list[Any] = []  # what only the devices, or the run of a program, can tell
    for tree in pytrees[1:]:
        leaves, other = _core.tree_flatten(tree, None)
        if structure != other:
            return False
        for a, b in zip(first, leaves, strict=True):
            if typematch and type(a) is not type(b):
                return False
            answer = _equal_leaves(a, b, exact, rtol, atol)
            if answer is False:
                return False
            if answer is not True:
                unknown.append(answer)
    if any(isinstance(answer, Tracer) for answer in unknown):
        return functools.reduce(operator.and_, unknown)
    return all(map(bool, unknown))


def _equal_leaves(a: Any, b: Any, exact: bool, rtol: Any, atol: Any) -> Any:
    """True, False, or an array that will tell."""
    at_hand = _core.equal_arrays(a, b)
    if at_hand is True or (at_hand is False and exact):
        return at_hand
    if not (is_array(a) and is_array(b)):
        return not (is_array(a) or is_array(b) or a != b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    of_numpy = all(isinstance(it, np.ndarray | np.generic) for it in (a, b))
    if exact or not jnp.issubdtype(a.dtype, jnp.inexact):
        return bool(np.all(a == b)) if of_numpy else _all_equal(a, b)
    if of_numpy:
        return bool(np.allclose(a, b, rtol=rtol, atol=atol))
    return jnp.allclose(a, b, rtol=rtol, atol=atol)


@jax.jit
def _all_equal(a: Any, b: Any) -> jax.Array:
    return jnp.all(a == b)
