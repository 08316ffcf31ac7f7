"""What jax.tree does with the leaves of any tree, in C++: the same results, leaf order and kinds of errors."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar, overload

import jax

from partax import _core
from partax._core import Structure

_R = TypeVar("_R")
_X = TypeVar("_X")
_K = TypeVar("_K", bound=Hashable)
_Leaf = jax.Array | bool | int | float | complex | str | bytes
_L = TypeVar("_L", bound=_Leaf)
_IsLeaf = Callable[[Any], bool]


@overload
def map(f: Callable[..., _R], tree: _Leaf, *rest: Any, is_leaf: _IsLeaf | None = None) -> _R: ...
@overload
def map(f: Callable[..., _R], tree: list[_L], *rest: Any, is_leaf: None = None) -> list[_R]: ...
@overload
def map(f: Callable[..., _R], tree: dict[_K, _L], *rest: Any, is_leaf: None = None) -> dict[_K, _R]: ...
@overload
def map(f: Callable[..., Any], tree: list[Any], *rest: Any, is_leaf: None = None) -> list[Any]: ...
@overload
def map(f: Callable[..., Any], tree: dict[_K, Any], *rest: Any, is_leaf: None = None) -> dict[_K, Any]: ...
@overload
def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: _IsLeaf | None = None) -> Any: ...
def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: _IsLeaf | None = None) -> Any:
    """The tree with `f(leaf)` in the place of each leaf, as `jax.tree.map`.

    Example:
      >>> partax.tree.map(lambda x, y: x + y, {"a": 1, "b": [2, 3]}, {"a": 10, "b": [20, 30]})
      {'a': 11, 'b': [22, 33]}

    Args:
      f: called with each leaf, and with what each tree of `rest` has in its place.
      tree: any pytree.
      *rest: trees of which the structure of `tree` is a prefix.
      is_leaf: a predicate on nodes of `tree`; where it is true, the node counts as one leaf.

    Returns:
      A tree of the structure of `tree`.

    Raises:
      ValueError: a tree of `rest` has another structure; the message has the path and both sides.
      TypeError, RecursionError: a tree cannot be read; the message has the path.

    What `f` raises has a note with the path of the leaf.
    """
    return _core.tree_map(f, (tree, *rest), is_leaf, False)


def map_with_path(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: _IsLeaf | None = None) -> Any:
    """The tree with `f(path, leaf)` in the place of each leaf, as `jax.tree.map_with_path`.

    Example:
      >>> partax.tree.map_with_path(lambda path, x: jax.tree_util.keystr(path), {"a": 1, "b": [2, 3]})
      {'a': "['a']", 'b': ["['b'][0]", "['b'][1]"]}

    Args:
      f: called with the path of each leaf, a tuple of jax's keys (`jax.tree_util.keystr` writes it as text), then as by
        `map`.
      tree: any pytree.
      *rest: trees of which the structure of `tree` is a prefix.
      is_leaf: a predicate on nodes of `tree`; where it is true, the node counts as one leaf.

    Returns:
      A tree of the structure of `tree`.

    Raises:
      ValueError: a tree of `rest` has another structure; the message has the path and both sides.
      TypeError, RecursionError: a tree cannot be read; the message has the path.
    """
    return _core.tree_map(f, (tree, *rest), is_leaf, True)


def leaves(tree: Any, is_leaf: _IsLeaf | None = None) -> list[Any]:
    """The leaves of a tree, as `jax.tree.leaves`.

    Example:
      >>> partax.tree.leaves({"b": [2, None, 3], "a": 1})
      [1, 2, 3]

    Args:
      tree: any pytree. None is a node without leaves.
      is_leaf: a predicate on nodes; where it is true, the node counts as one leaf.

    Returns:
      The leaves in jax's order: those of dicts by sorted key.

    Raises:
      TypeError, RecursionError: the tree cannot be read; the message has the path.
    """
    return _core.tree_leaves(tree, is_leaf)


def flatten(tree: Any, is_leaf: _IsLeaf | None = None) -> tuple[list[Any], Structure]:
    """The leaves of a tree and its structure, as `jax.tree.flatten`.

    Example:
      >>> leaves, structure = partax.tree.flatten({"a": 1, "b": [2, 3]})
      >>> leaves
      [1, 2, 3]
      >>> partax.tree.unflatten(structure, "xyz")
      {'a': 'x', 'b': ['y', 'z']}

    Args:
      tree: any pytree. None is a node without leaves.
      is_leaf: a predicate on nodes; where it is true, the node counts as one leaf.

    Returns:
      The leaves, and the structure, from which `unflatten` makes the tree again.

    Raises:
      TypeError, RecursionError: the tree cannot be read; the message has the path.
    """
    return _core.tree_flatten(tree, is_leaf)


def structure(tree: Any, is_leaf: _IsLeaf | None = None) -> Structure:
    """The structure of a tree, as `jax.tree.structure`.

    Example:
      >>> structure = partax.tree.structure({"a": 1, "b": [2, 3]})
      >>> structure.num_leaves
      3
      >>> structure == partax.tree.structure({"a": "x", "b": ["y", "z"]})
      True
      >>> structure
      Structure({'a': *, 'b': [*, *]})

    Args:
      tree: any pytree. None is a node without leaves.
      is_leaf: a predicate on nodes; where it is true, the node counts as one leaf.

    Returns:
      An immutable, hashable object that tells `num_leaves`. Two are equal if the nodes of the trees are, and their
      keys, static fields and aux data by `==`.

    Raises:
      TypeError, RecursionError: the tree cannot be read; the message has the path.
    """
    return _core.tree_flatten(tree, is_leaf)[1]


def unflatten(structure: Structure | Any, leaves: Iterable[Any]) -> Any:
    """The tree of this structure with these leaves, as `jax.tree.unflatten`.

    Example:
      >>> structure = partax.tree.structure({"a": 1, "b": [2, 3]})
      >>> partax.tree.unflatten(structure, [10, 20, 30])
      {'a': 10, 'b': [20, 30]}

    Args:
      structure: what `structure` or `flatten` returned, or a PyTreeDef of jax.
      leaves: any iterable; each is taken as it is, also a None or a tree.

    Returns:
      The tree.

    Raises:
      ValueError: there are more or fewer leaves than the structure has.
      TypeError: `structure` is none, or `leaves` cannot be iterated over.
    """
    if isinstance(structure, Structure):
        return _core.tree_unflatten(structure, leaves)
    if isinstance(structure, jax.tree_util.PyTreeDef):
        return jax.tree.unflatten(structure, leaves)
    found = type(structure).__qualname__
    raise TypeError(f"`structure`: found a `{found}`, expected what `structure` or `flatten` returned, or a PyTreeDef")
