"""Splitting trees by predicates and putting them together again."""

from collections.abc import Callable
from typing import Any

import jax

from partax import _core

PyTree = Any
FilterSpec = Any  # a bool, a predicate on leaves, or a prefix pytree of both


def partition(
    pytree: PyTree,
    filter_spec: FilterSpec,
    *,
    replace: Any = None,
    is_leaf: Callable[[Any], bool] | None = None,
) -> tuple[PyTree, PyTree]:
    """Splits a tree in two by a filter.

    Args:
      pytree: any pytree.
      filter_spec: which leaves to take: a predicate on leaves, a bool, or a prefix of `pytree` with predicates and
        bools as its leaves. The built-in predicates run without a Python call.
      replace: what stands in each tree for the leaves that went into the other.
      is_leaf: a predicate on nodes; where it is true, the node counts as one leaf.

    Returns:
      `(taken, rest)`, two trees of the structure of `pytree`. The leaves are the same objects.

    Raises:
      ValueError: a leaf of `filter_spec` is neither a bool nor a function, or its structure is no prefix of `pytree`.
      TypeError, RecursionError: `pytree` cannot be read; the message has the path.

    `partition(tree, f)` is `(filter(tree, f), filter(tree, f, inverse=True))`, after `equinox.partition`.
    """
    return _core.partition(pytree, filter_spec, replace, is_leaf)


def filter(
    pytree: PyTree,
    filter_spec: FilterSpec,
    *,
    inverse: bool = False,
    replace: Any = None,
    is_leaf: Callable[[Any], bool] | None = None,
) -> PyTree:
    """Keeps the leaves that a filter takes, and puts `replace` for all others.

    Args:
      pytree: any pytree.
      filter_spec: as for `partition`.
      inverse: keep the leaves that the filter does not take.
      replace: what stands for the leaves that are not kept.
      is_leaf: a predicate on nodes; where it is true, the node counts as one leaf.

    Returns:
      A tree of the structure of `pytree`.

    Raises:
      ValueError: as for `partition`.
    """
    return _core.filter(pytree, filter_spec, bool(inverse), replace, is_leaf)


def combine(*pytrees: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """Puts the parts of a tree together again.

    Args:
      *pytrees: trees of one structure, in which None stands for what another has.
      is_leaf: a predicate on nodes; where it is true, the node counts as one leaf.

    Returns:
      The tree whose leaves are, at each place, the first that is not None.

    Raises:
      ValueError: the structures differ; the message has the path.
    """
    return _core.combine(pytrees, is_leaf)


def apply_updates(model: PyTree, updates: PyTree) -> PyTree:
    """Adds updates to a model: `tree_map(lambda p, u: p + u, model, updates)`, where None changes nothing.

    Args:
      model: any pytree.
      updates: a tree of the structure of `model`, or a prefix of it with None for what stays, such as the updates of an
        optax optimiser.

    Returns:
      The updated model. Leaves without an update are the same objects.

    Raises:
      ValueError: the structure of `updates` does not match `model`.
    """

    def update(change: Any, part: PyTree) -> PyTree:
        return part if change is None else part + change

    return jax.tree.map(update, updates, model, is_leaf=lambda change: change is None)
