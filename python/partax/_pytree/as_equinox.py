"""`equinox.tree_at` and `equinox.tree_equal` for any pytrees."""

import functools
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from types import CellType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._core import is_array
from partax._pytree.filters import IsLeaf
from partax._pytree.short_text import short_text

_T = TypeVar("_T")
_UNSET: Any = object()


def at(
    where: Callable[[_T], Any], pytree: _T, replace: Any = _UNSET, replace_fn: Any = _UNSET, is_leaf: IsLeaf = None
) -> _T:
    """Replace the nodes of a tree that a function returns. Same as in `equinox.tree_at`.

    Example:
      >>> model = {"layers": [{"weight": 1.0}, {"weight": 2.0}], "name": "mlp"}
      >>> partax.tree.at(lambda model: model["layers"][0]["weight"], model, 5.0)
      {'layers': [{'weight': 5.0}, {'weight': 2.0}], 'name': 'mlp'}

    Args:
      where: A function from a tree like `pytree` to a node to replace, a leaf or a subtree, or to a sequence of nodes.
        It is called twice, the second time with other leaves, and must not depend on these.
      pytree: Any pytree; it is not changed.
      replace: The new value; for a sequence of nodes, a sequence of the same length. Default: `replace_fn` is used.
      replace_fn: A function from each node to its new value. Default: `replace` is used.
      is_leaf: A predicate on nodes that count as one leaf. `lambda x: x is None` lets Nones be replaced. Default: None.

    Returns:
      A tree with the new nodes; all else is unchanged.

    Raises:
      ValueError: What `where` returns is not in the tree once, or depends on the leaves, or does not fit `replace`.
      TypeError: `where` is not callable, or computes with leaves.

    See Also: The guide "Tree utilities".
    """
    if not callable(where):
        raise TypeError(f"`where`: found a `{type(where).__name__}`, expected a function of the tree: at(where, tree)")
    if (replace is _UNSET) == (replace_fn is _UNSET):
        raise ValueError("Precisely one of `replace` and `replace_fn` must be specified.")
    # All empty tuples are one object, so each is a leaf too.
    is_leaf_too = _is_empty_tuple if is_leaf is None else lambda node: _is_empty_tuple(node) or is_leaf(node)
    leaves, structure = _core.tree_flatten(pytree, is_leaf_too)
    # Small ints, strings and None can be the same object in many places, so each leaf gets an object of its own.
    wrapped = _core.tree_unflatten(structure, list(map(CellType, leaves)))
    expected = where(pytree)
    try:
        selection: Any = where(wrapped)
    except (TypeError, AttributeError, IndexError) as error:
        raise TypeError(
            f"`where`: found that it computes with a leaf or looks into one ({error}), expected it to return leaves or "
            "subtrees of `pytree` as they stand there, as in `lambda tree: tree.layers[0].weight`"
        ) from error
    # An empty tuple of the tree is wrapped, so an empty tuple in the selection was created by `where`.
    leaves, structure = _core.tree_flatten(expected, is_leaf if _is_empty_tuple(selection) else is_leaf_too)
    selected_leaves, selected_structure = _core.tree_flatten(selection, None)
    are_same = list(map(id, leaves)) == [id(_unwrapped(leaf)) for leaf in selected_leaves]
    if not are_same or not _core.have_equal_structures(structure, selected_structure):
        raise ValueError("`where`: found that it depends on the leaves, expected on the structure of `pytree` only")
    nodes = list(selection) if isinstance(selection, Sequence) else []
    ids = {id(node) for node in (*nodes, selection)}
    leaves, structure = _core.tree_flatten(wrapped, lambda node: id(node) in ids)
    counts = Counter(map(id, leaves))
    if id(selection) in counts or not isinstance(selection, Sequence):
        nodes, replace = [selection], (replace if replace is _UNSET else [replace])
    if any(counts[id(node)] != 1 for node in nodes):
        raise ValueError("`where`: found nodes that are not once each in `pytree`; for Nones, pass `is_leaf`")
    values = replace if replace_fn is _UNSET else [replace_fn(jax.tree.map(_unwrapped, node)) for node in nodes]
    if len(nodes) != len(values):
        raise ValueError(f"`replace`: found {len(nodes)} nodes and {len(values)} replacements, expected as many")
    new_nodes = dict(zip(map(id, nodes), values, strict=True))
    return _core.tree_unflatten(structure, [new_nodes[id(x)] if id(x) in new_nodes else _unwrapped(x) for x in leaves])


def _is_empty_tuple(node: Any) -> bool:
    return type(node) is tuple and not node


def _unwrapped(leaf: Any) -> Any:
    if type(leaf) is not CellType:
        raise TypeError(
            f"`where`: {short_text(leaf)} is not a leaf of `pytree`; return leaves or subtrees of its argument"
        )
    return leaf.cell_contents


def equal(*pytrees: Any, typematch: bool = False, rtol: Any = 0.0, atol: Any = 0.0) -> bool | jax.Array:
    """Return whether all trees have the same structure and equal leaves. Same as in `equinox.tree_equal`.

    Example:
      >>> partax.tree.equal({"x": jnp.ones(2), "n": 1}, {"x": jnp.ones(2), "n": 1})
      True
      >>> partax.tree.equal({"x": jnp.ones(2), "n": 1}, {"x": jnp.ones(2), "n": 2})
      False

    Arrays are equal if their dtypes, shapes and values are; a NaN is not equal to itself. All else is compared by `==`.

    Args:
      *pytrees: One or more trees of any kind.
      typematch: Whether leaves must also have the same type, as 1 and 1.0 do not. Default: False.
      rtol, atol: The tolerances for inexact arrays. Same as in `jax.numpy.allclose`. Default: 0.

    Returns:
      A bool, or a traced bool array if the result depends on the values of traced arrays.

    Raises:
      TypeError, RecursionError: No tree is passed, or one cannot be read or compared; the message has the path.

    See Also: The guide "Tree utilities".
    """
    if not pytrees:
        raise TypeError("equal: found no trees, expected one or more")
    is_exact = all(isinstance(tolerance, int | float) and tolerance == 0 for tolerance in (rtol, atol))
    first, structure = _core.tree_flatten(pytrees[0], None)
    pending: list[Any] = []  # results that are on a device, or traced
    for tree in pytrees[1:]:
        leaves, other_structure = _core.tree_flatten(tree, None)
        if not _core.have_equal_structures(structure, other_structure):
            return False
        for a, b in zip(first, leaves, strict=True):
            if typematch and type(a) is not type(b):
                return False
            if not (is_array(a) and is_array(b)):
                result: Any = not (is_array(a) or is_array(b) or a != b)
            elif a.shape != b.shape or a.dtype != b.dtype:
                return False
            elif is_exact or not jnp.issubdtype(a.dtype, jnp.inexact):
                result = (np if _is_on_host(a) and _is_on_host(b) else jnp).array_equal(a, b)
            else:
                library: Any = jnp if isinstance(a, jax.Array) or isinstance(b, jax.Array) else np
                result = library.allclose(a, b, rtol=rtol, atol=atol)
            if result is False:
                return False
            if result is not True:
                pending.append(result)
    if any(isinstance(result, Tracer) for result in pending):
        return functools.reduce(operator.and_, pending)
    return all(map(bool, pending))


def _is_on_host(array: Any) -> bool:
    """Whether NumPy reads an array without a copy; it is much faster than a program of JAX for small arrays."""
    is_jax = isinstance(array, jax.Array)
    return not is_jax or (not isinstance(array, Tracer) and _is_host_memory(array.dtype, array.sharding))


@functools.lru_cache
def _is_host_memory(dtype: Any, sharding: Any) -> bool:
    is_cpu = all(device.platform == "cpu" for device in sharding.device_set)
    return is_cpu and sharding.is_fully_addressable and not jnp.issubdtype(dtype, jax.dtypes.extended)
