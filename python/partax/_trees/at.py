"""Replacing nodes of a tree that a function points at."""

import types
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from partax import _core

_T = TypeVar("_T")
_UNSET: Any = object()
_IsLeaf = Callable[[Any], bool]

_NOT_UNIQUE = (
    "`where` does not uniquely identify a single element of `pytree`. This usually occurs when trying to replace a "
    "`None` value:\n\n"
    "  >>> partax.tree.at(lambda t: t[0], (None, None, 1), True)\n\n"
    "for which the fix is to specify that `None`s should be treated as leaves:\n\n"
    "  >>> partax.tree.at(lambda t: t[0], (None, None, 1), True, is_leaf=lambda x: x is None)"
)


# A leaf as an object of its own: of small ints, strings or None, the same object may stand in many places.
_Wrapped = types.CellType


class _Places:
    """A tree in which nodes that `where` gave have been looked for, by identity.

    Attributes:
      leaves: of the tree; a node that was found is one of them.
      structure: of the tree with these leaves.
      nodes: those that `where` gave.
      found: for each leaf that is such a node, in order: its index, and the index of the node.
      is_single: whether `where` gave one node and no sequence of them.
    """

    def __init__(self, tree: Any, given: Any, is_leaf: _IsLeaf | None) -> None:
        several: tuple[Any, ...] = tuple(given) if isinstance(given, Sequence) else ()
        # Of one that is given twice the last is found, as in Equinox; what `where` gave itself comes before its items.
        self.leaves, self.structure, found = _core.tree_find(tree, (*several, given), is_leaf, False)
        self.is_single = any(node == len(several) for _, node in found)
        if not self.is_single and not isinstance(given, Sequence):
            several = (given,)  # which is nowhere in the tree
        self.nodes = (given,) if self.is_single else several
        self.found = [(leaf, 0) for leaf, node in found if node == len(several)] if self.is_single else found

    def count(self, node: Any) -> int:
        return sum(self.nodes[i] is node for _, i in self.found)


def at(
    where: Callable[[_T], Any],
    pytree: _T,
    replace: Any = _UNSET,
    replace_fn: Callable[[Any], Any] = _UNSET,
    is_leaf: _IsLeaf | None = None,
) -> _T:
    """The tree with other nodes where a function points at, as `equinox.tree_at`.

    Args:
      where: takes a tree of the structure of `pytree` and returns the node to replace, or a sequence of nodes: leaves
        or whole subtrees, found as they can be reached from the tree. It must not depend on what the leaves are, since
        it may be given a tree with others.
      pytree: any pytree; it is not changed.
      replace: what stands there instead; of a sequence of nodes a sequence of the same length.
      replace_fn: called with each node instead of that; what it returns stands there.
      is_leaf: a predicate on nodes; where it is true, the node counts as one leaf. `lambda x: x is None` lets Nones be
        replaced.

    Returns:
      A tree of the same nodes elsewhere. None is made by calling its class, as when jax makes one.

    Raises:
      ValueError: what `where` returns is not in the tree, or is there several times; or depends on the leaves; or there
        are more or fewer replacements than nodes; or not exactly one of `replace` and `replace_fn` is given.
      TypeError: `where` computes with leaves.
    """
    given = where(pytree)
    places = _Places(pytree, given, is_leaf)
    # Arrays and containers with something in them are what they are by identity: if each is found once, that is it.
    if not _are_unmistakable(places):
        places = _wrapped_places(where, pytree, given, is_leaf)
        new_nodes = _replacements(places, replace, replace_fn)
        _check_counts(places)
        new_leaves = [_value(leaf) for leaf in places.leaves]
    else:
        new_nodes = _replacements(places, replace, replace_fn)
        new_leaves = places.leaves
    for (leaf, _), new in zip(places.found, new_nodes, strict=True):
        new_leaves[leaf] = new
    return _core.tree_unflatten(places.structure, new_leaves)


def _are_unmistakable(places: _Places) -> bool:
    return len(places.found) == len({node for _, node in places.found}) == len(places.nodes) and all(
        isinstance(node, jax.Array | np.ndarray) or _has_children(node) for node in places.nodes
    )


def _has_children(node: Any) -> bool:
    return node is not None and jax.tree_util.is_tree_node(type(node)) and not _is_empty_tuple(node)


def _is_empty_tuple(node: Any) -> bool:
    return type(node) is tuple and not node


def _wrapped_places(where: Callable[[Any], Any], pytree: Any, given: Any, is_leaf: _IsLeaf | None) -> _Places:
    """The places in a tree of new nodes and wrapped leaves, where each is an object of its own."""
    leaves, structure, _ = _core.tree_find(pytree, (), is_leaf, True)
    tree = _core.tree_unflatten(structure, map(_Wrapped, leaves))
    given_anew = where(tree)
    expected, expected_structure, _ = _core.tree_find(given, (), is_leaf, True)
    found, found_structure, _ = _core.tree_find(given_anew, (), None, False)
    found = [_unwrapped(leaf) for leaf in found]
    if expected_structure != found_structure or any(a is not b for a, b in zip(expected, found, strict=True)):
        raise ValueError(
            "`where` must use just the PyTree structure of `pytree`. `where` must not depend on the leaves in `pytree`."
        )
    return _Places(tree, given_anew, None)


def _unwrapped(leaf: Any) -> Any:
    if not isinstance(leaf, _Wrapped):
        raise TypeError(f"Operation undefined, {leaf} is not a leaf of the pytree.")
    return leaf.cell_contents


def _check_counts(places: _Places) -> None:
    for node in places.nodes:
        count = places.count(node)
        if count == 0:
            raise ValueError("`where` does not specify an element or elements of `pytree`.")
        if count > 1:
            raise ValueError(_NOT_UNIQUE)


def _replacements(places: _Places, replace: Any, replace_fn: Any) -> list[Any]:
    """What stands in the place of each node that was found, in the order of the tree."""
    if (replace is _UNSET) == (replace_fn is _UNSET):
        raise ValueError("Precisely one of `replace` and `replace_fn` must be specified.")
    if replace is _UNSET:
        return [replace_fn(_core.tree_map(_value, (places.nodes[i],), None, False)) for _, i in places.found]
    new = (replace,) if places.is_single else replace
    if len(places.nodes) != len(new):
        raise ValueError("`where` must return a sequence of leaves of the same length as `replace`.")
    return [new[i] for _, i in places.found]


def _value(leaf: Any) -> Any:
    return leaf.cell_contents if isinstance(leaf, _Wrapped) else leaf
