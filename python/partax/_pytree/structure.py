"""What the native functions of trees ask of Python: jax's paths, its answer for unlike trees, and pickles."""

from collections.abc import Callable
from typing import Any

import jax

from partax import _core

_IsLeaf = Callable[[Any], bool]


def key_paths(tree: Any, is_leaf: _IsLeaf | None) -> list[tuple[Any, ...]]:
    """The path of each leaf: a tuple of jax's keys."""
    return [path for path, _ in jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_leaf)[0]]


def leaf_path(tree: Any, is_leaf: _IsLeaf | None, index: int) -> str:
    """The path of one leaf as a text."""
    return jax.tree_util.keystr(key_paths(tree, is_leaf)[index])


def leaves_up_to(tree: Any, other: Any, is_leaf: _IsLeaf | None, name: str) -> list[Any] | str:
    """What `other`, called `name`, has where `tree` has leaves, by jax; or the words for why they are not alike."""
    try:
        return jax.tree.structure(tree, is_leaf=is_leaf).flatten_up_to(other)
    except (ValueError, RecursionError) as error:  # as it prints a tree that is very deep
        jax_message = str(error)

    def is_end(node: Any) -> bool:
        return node is None or (is_leaf is not None and bool(is_leaf(node)))

    try:
        _core.broadcast_prefix(tree, other, is_end, "tree", name)
    except ValueError as error:
        return str(error)
    # What stands beside a None.
    pairs, structure = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_end)
    for (path, node), found in zip(pairs, structure.flatten_up_to(other), strict=True):
        if node is None and found is not None and not (is_leaf is not None and is_leaf(None)):
            place, kind = name + jax.tree_util.keystr(path), type(found).__qualname__
            return f"`{place}`: found a `{kind}`, expected None, as tree has here; make both alike"
    return f"`{name}`: {jax_message}"


def reduced(structure: Any) -> tuple[Any, ...]:
    """As `__reduce__` gives it: by a tree of that structure, each of whose leaves is a number."""
    return structure_of, (_core.tree_unflatten(structure, [0] * structure.num_leaves),)


def structure_of(tree: Any) -> Any:
    """The structure of a tree."""
    return _core.tree_structure(tree, None)
