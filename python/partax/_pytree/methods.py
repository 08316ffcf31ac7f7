"""Methods of nodes in trees for jax, which has them for leaves: in their places are nodes, whose children are the
objects.
"""

import types
from typing import Any

import jax

from partax import _core


class _Opened:
    def __init__(self, function: Any, owner: Any) -> None:
        self.function, self.owner = function, owner


jax.tree_util.register_pytree_with_keys(
    _Opened,
    lambda it: (((jax.tree_util.GetAttrKey("__self__"), it.owner),), it.function),
    lambda function, children: _Opened(function, *children),
)


def _is_method(leaf: Any) -> bool:
    return type(leaf) is types.MethodType and _core.node_kind(leaf) != "static_leaf"


def open_methods(tree: Any) -> Any:
    """The tree with a node for each method of a node; the same object where it has none."""
    leaves, structure = jax.tree.flatten(tree)
    if not any(map(_is_method, leaves)):
        return tree
    opened = [_Opened(it.__func__, open_methods(it.__self__)) if _is_method(it) else it for it in leaves]
    return structure.unflatten(opened)


def close_methods(tree: Any) -> Any:
    """The tree with methods again instead of such nodes; the same object where it has none."""
    leaves, structure = jax.tree.flatten(tree, is_leaf=_is_opened)
    if not any(map(_is_opened, leaves)):
        return tree
    closed = [types.MethodType(it.function, close_methods(it.owner)) if _is_opened(it) else it for it in leaves]
    return structure.unflatten(closed)


def _is_opened(node: Any) -> bool:
    return type(node) is _Opened
