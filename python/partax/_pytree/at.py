"""Replacing nodes of a tree that a function points at."""

import types
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from partax import _core
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
      replace: what stands there instead; of a sequence of nodes a sequence of the same length.
      replace_fn: called with each node instead of that; what it returns stands there.
      is_leaf: a predicate on nodes; where it is true, the node counts as one leaf. `lambda x: x is None` lets Nones be
        replaced.

    Returns:
      A tree of the same structure elsewhere, with the same leaves there.

    Raises:
      ValueError: what `where` returns is not in the tree, or is there several times; or depends on the leaves; or there
        are more or fewer replacements than nodes; or not exactly one of `replace` and `replace_fn` is given.
      TypeError: `where` computes with leaves.
    """
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
    """What stands in the place of each node that was found, in the order of the tree."""
    if (replace is _UNSET) == (replace_fn is _UNSET):
        raise ValueError("Precisely one of `replace` and `replace_fn` must be specified.")
    if replace is _UNSET:
        return [replace_fn(_core.tree_map(_unwrapped, (nodes[i],), None, False)) for _, i in found]
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
