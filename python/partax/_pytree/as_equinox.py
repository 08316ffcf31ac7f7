"""What Equinox's tree_at and tree_equal do, for any trees."""

import functools
import operator
import types
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._core import is_array
from partax._pytree.short_text import short_text

_T = TypeVar("_T")
_UNSET: Any = object()
_IsLeaf = Callable[[Any], bool]

# A leaf as an object of its own: of small ints, strings or None, the same object may stand in many places.
_Wrapped = types.CellType


def at(
    where: Callable[[_T], Any],
    pytree: _T,
    replace: Any = _UNSET,
    replace_fn: Callable[[Any], Any] = _UNSET,
    is_leaf: _IsLeaf | None = None,
) -> _T:
    """The tree with other nodes where a function points at, as `equinox.tree_at`.

    Example:
      >>> model = {"layers": [{"weight": 1.0}, {"weight": 2.0}], "name": "mlp"}
      >>> partax.tree.at(lambda model: model["layers"][0]["weight"], model, 5.0)
      {'layers': [{'weight': 5.0}, {'weight': 2.0}], 'name': 'mlp'}
      >>> partax.tree.at(lambda model: model["layers"], model, replace_fn=len)
      {'layers': 2, 'name': 'mlp'}

    Args:
      where: takes a tree of the structure of `pytree` and returns the node to replace, or a sequence of nodes: leaves
        or whole subtrees. It is called twice, the second time with a tree of other leaves, and must not depend on what
        these are.
      pytree: any pytree; it is not changed.
      replace: the new value; for a sequence of nodes, a sequence of the same length.
      replace_fn: instead of `replace`, called with each node for its new value.
      is_leaf: a predicate on nodes; where it is true, the node counts as one leaf. `lambda x: x is None` lets Nones be
        replaced.

    Returns:
      A tree of the same structure elsewhere, with the same leaves there.

    Raises:
      ValueError: what `where` returns is not in the tree, or is there several times; or depends on the leaves; or there
        are more or fewer replacements than nodes; or not exactly one of `replace` and `replace_fn` is given.
      TypeError: `where` computes with leaves.
    """
    if not callable(where):
        raise TypeError(f"`where`: found a `{type(where).__name__}`, expected a function of the tree: at(where, tree)")
    leaves, structure, _ = _core.tree_find(pytree, (), is_leaf, True)
    wrapped = _core.tree_unflatten(structure, list(map(_Wrapped, leaves)))
    expected, given = where(pytree), _pointed(where, wrapped)
    _check_independence(expected, given, is_leaf)
    several: tuple[Any, ...] = tuple(given) if isinstance(given, Sequence) else ()
    # Of a node that is given twice the last is found, as in Equinox; what `where` gave itself comes before its items.
    new_leaves, structure, found = _core.tree_find(wrapped, (*several, given), None, False)
    if not isinstance(given, Sequence) or any(node == len(several) for _, node in found):
        nodes, replace = (given,), (replace if replace is _UNSET else (replace,))
        found = [(leaf, 0) for leaf, node in found if node == len(several)]
    else:
        nodes = several
    new_nodes = _replacements(nodes, found, replace, replace_fn)
    _check_counts(nodes, found)
    new_leaves = [leaf.cell_contents if type(leaf) is _Wrapped else leaf for leaf in new_leaves]
    for (leaf, _), new in zip(found, new_nodes, strict=True):
        new_leaves[leaf] = new
    return _core.tree_unflatten(structure, new_leaves)


def _pointed(where: Callable[[Any], Any], wrapped: Any) -> Any:
    """What `where` gives of a tree whose leaves nothing can be computed with."""
    try:
        return where(wrapped)
    except (TypeError, AttributeError, IndexError) as error:
        raise TypeError(
            f"`where`: found that it computes with a leaf or looks into one ({error}), expected it to return leaves or "
            "subtrees of `pytree` as they stand there, as in `lambda tree: tree.layers[0].weight`"
        ) from error


def _check_independence(expected: Any, given: Any, is_leaf: _IsLeaf | None) -> None:
    """Raises where `where` gave other nodes of the tree itself than of the one with wrapped leaves."""
    # An empty tuple of the tree is wrapped; one that is there now has been made by `where`.
    points_at_none = type(given) is tuple and not given
    leaves, structure, _ = _core.tree_find(expected, (), is_leaf, not points_at_none)
    found, found_structure, _ = _core.tree_find(given, (), None, False)
    found = [_unwrapped(leaf) for leaf in found]
    if structure != found_structure or any(a is not b for a, b in zip(leaves, found, strict=True)):
        raise ValueError(
            "`where` must use just the PyTree structure of `pytree`. `where` must not depend on the leaves in `pytree`."
        )


def _replacements(nodes: tuple[Any, ...], found: list[tuple[int, int]], replace: Any, replace_fn: Any) -> list[Any]:
    """The new value of each node, in the order of the tree."""
    if (replace is _UNSET) == (replace_fn is _UNSET):
        raise ValueError("Precisely one of `replace` and `replace_fn` must be specified.")
    if replace is _UNSET:
        return [replace_fn(jax.tree.map(_unwrapped, nodes[i])) for _, i in found]
    if len(nodes) != len(replace):
        raise ValueError(
            "`where` must return a sequence of leaves of the same length as `replace`: found "
            f"{len(nodes)} nodes and {len(replace)} in `replace`."
        )
    return [replace[i] for _, i in found]


def _check_counts(nodes: tuple[Any, ...], found: list[tuple[int, int]]) -> None:
    counts = Counter(id(nodes[i]) for _, i in found)
    for node in nodes:
        if counts[id(node)] == 0:
            raise ValueError("`where` does not specify an element or elements of `pytree`.")
        if counts[id(node)] > 1:
            raise ValueError(
                "`where` does not uniquely identify a single element of `pytree`; to replace a None, give "
                "`is_leaf=lambda x: x is None`, as of (None, None, 1)"
            )


def _unwrapped(leaf: Any) -> Any:
    if type(leaf) is not _Wrapped:
        raise TypeError(
            f"Operation undefined, {short_text(leaf)} is not a leaf of the pytree: `where` is to return leaves or "
            "subtrees of the tree that it is given."
        )
    return leaf.cell_contents


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
      rtol: relative tolerance for inexact arrays, as in `jax.numpy.allclose`.
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
    first, structure, _ = _core.tree_find(pytrees[0], (), None, False)
    unknown: list[Any] = []  # what only the devices, or the run of a program, can tell
    for tree in pytrees[1:]:
        leaves, other, _ = _core.tree_find(tree, (), None, False)
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
    return bool(np.allclose(a, b, rtol=rtol, atol=atol)) if of_numpy else jnp.allclose(a, b, rtol=rtol, atol=atol)


@jax.jit
def _all_equal(a: Any, b: Any) -> jax.Array:
    return jnp.all(a == b)
