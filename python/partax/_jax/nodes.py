"""The nodes of trees as jax knows them: which classes there are, how one is taken apart, how it is built again."""

import functools
import types
from collections.abc import Callable
from typing import Any

import jax

from partax._jax.private import _attribute, _name


def registered_nodes() -> dict[type, Any] | None:
    """jax's dictionary of registered node types, whose length shows later registrations. Without it, each call asks
    `is_tree_node` about each class of leaves, and nodes are read and rebuilt by jax: some 30 microseconds a node.
    """
    registered = _name("jax._src.tree_util._registry")
    return registered if isinstance(registered, dict) else None


is_tree_node: Callable[[type], bool] = jax.tree_util.is_tree_node


def _first_only() -> Callable[[Any], bool]:
    """As `is_leaf` of a flatten: everything is a leaf but the root, which is asked about first."""
    is_root = iter((True,))
    return lambda _: not next(is_root, False)


# (children, aux data) of a node, None of a leaf.
flatten_one_level: Callable[[Any], Any] = jax.tree_util.default_registry.flatten_one_level


def flatten_one_level_with_keys(node: Any) -> Any:
    """The same with pairs of a key and a child. Not by jax's registry, which gives each field of a NamedTuple the key
    of the first one.
    """
    if not is_tree_node(type(node)):
        return None
    pairs, treedef = jax.tree_util.tree_flatten_with_path(node, is_leaf=_first_only())
    return [(path[0], child) for path, child in pairs], treedef.node_data()[1]


def child_keys(node: Any) -> tuple[Any, ...]:
    """The keys of the children of a node, as jax has them, or none. Called by the native walks."""
    if isinstance(node, types.MethodType):
        return (jax.tree_util.GetAttrKey("__self__"),)
    try:
        return tuple(key for key, _ in flatten_one_level_with_keys(node)[0])
    except MemoryError:
        raise
    except Exception:  # of the user's functions
        return ()


def one_level(node: Any) -> Any:
    return jax.tree.structure(node, is_leaf=_first_only())


def registered_functions(cls: type) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What a class was registered with: (node) -> (children, aux data) and (aux data, children) -> node. jax's own
    functions where it does not tell, and for classes of `register_dataclass`, where they are faster.
    """
    functions = tree_rules(cls)
    if all(map(callable, functions)) and not is_registered_dataclass(cls):
        return functions
    return flatten_one_level, functools.partial(_unflatten_node, cls)


def tree_rules(cls: type) -> tuple[Any, Any]:
    """The functions that a class was registered with; None for each if it was not, or jax does not tell."""
    entry = (registered_nodes() or {}).get(cls)
    return _attribute(entry, "to_iter"), _attribute(entry, "from_iter")


def is_registered_dataclass(cls: type) -> bool:
    """Whether a class was registered by `jax.tree_util.register_dataclass`; False where jax does not tell."""
    return getattr(tree_rules(cls)[0], "__qualname__", "").lstrip("_").startswith("register_dataclass.<locals>.")


def _unflatten_node(cls: type, aux: Any, children: tuple[Any, ...]) -> Any:
    """Rebuilds a node whose functions jax does not tell."""
    if aux is None and issubclass(cls, tuple):  # jax would not see that a NamedTuple is registered
        like: Any = cls
        return one_level(like._make(children)).unflatten(children)
    registry, leaves = jax.tree_util.default_registry, (_LEAF,) * len(children)
    return jax.tree_util.PyTreeDef.from_node_data_and_children(registry, (cls, aux), leaves).unflatten(children)


_LEAF = jax.tree.structure(0)
