"""Bound methods as nodes whose children are the objects, since jax reads a method as a leaf."""

import types
from typing import Any

import jax

from partax import _core


class _Opened:
    def __init__(self, function: Any, owner: Any) -> None:
        self.function, self.owner = function, owner


jax.tree_util.register_pytree_with_keys(
    _Opened,
    lambda node: (((jax.tree_util.GetAttrKey("__self__"), node.owner),), node.function),
    lambda function, children: _Opened(function, *children),
)


def _is_method(leaf: Any) -> bool:
    return type(leaf) is types.MethodType and _core.node_kind(leaf) != "static_leaf"


def open_methods(tree: Any) -> Any:
    """Replace each method of a node by a node; returns the same object if there are none."""
    leaves, structure = jax.tree.flatten(tree)
    if not any(map(_is_method, leaves)):
        return tree
    return structure.unflatten([_Opened(x.__func__, open_methods(x.__self__)) if _is_method(x) else x for x in leaves])


def close_methods(tree: Any) -> Any:
    """The inverse of `open_methods`; returns the same object if it has nothing to restore."""
    leaves, structure = jax.tree.flatten(tree, is_leaf=_is_opened)
    if not any(map(_is_opened, leaves)):
        return tree
    methods = [types.MethodType(x.function, close_methods(x.owner)) if _is_opened(x) else x for x in leaves]
    return structure.unflatten(methods)


def _is_opened(node: Any) -> bool:
    return type(node) is _Opened
