"""Bound methods as nodes whose children are the objects, since jax reads a method as a leaf."""

import dataclasses
import types
from typing import Any

import jax

from partax import _core


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class _Opened:
    __self__: Any
    function: Any = dataclasses.field(metadata={"static": True})


def _is_method(leaf: Any) -> bool:
    return type(leaf) is types.MethodType and _core.node_kind(leaf) != "static_leaf"


def _is_opened(node: Any) -> bool:
    return type(node) is _Opened


def open_methods(tree: Any) -> Any:
    """Replace each method of a node by a node; returns the same object if there are none."""
    leaves, structure = jax.tree.flatten(tree)
    if not any(map(_is_method, leaves)):
        return tree
    return structure.unflatten([_Opened(open_methods(x.__self__), x.__func__) if _is_method(x) else x for x in leaves])


def close_methods(tree: Any) -> Any:
    """The inverse of `open_methods`; returns the same object if it has nothing to restore."""
    leaves, structure = jax.tree.flatten(tree, is_leaf=_is_opened)
    if not any(map(_is_opened, leaves)):
        return tree
    methods = [types.MethodType(x.function, close_methods(x.__self__)) if _is_opened(x) else x for x in leaves]
    return structure.unflatten(methods)
