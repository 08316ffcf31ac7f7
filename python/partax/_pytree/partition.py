"""Splitting trees by filters and putting them together again."""

import types
from collections.abc import Callable
from typing import Any

import jax

from partax import _core
from partax._pytree.filters import Filter, FilterSpec, check_used
from partax._pytree.short_text import short_text

PyTree = Any


def partition(
    pytree: PyTree,
    *filters: FilterSpec,
    replace: Any = None,
    is_leaf: Callable[[Any], bool] | None = None,
    strict: bool = False,
) -> tuple[PyTree, ...]:
    """Splits a tree into parts by filters.

    Example:
      >>> model = {"weight": jnp.ones(2), "rate": 0.1, "name": "linear"}
      >>> arrays, rest = partax.partition(model, partax.is_array)
      >>> arrays
      {'name': None, 'rate': None, 'weight': Array([1., 1.], dtype=float32)}
      >>> rest
      {'name': 'linear', 'rate': 0.1, 'weight': None}

    A leaf goes to the filter that takes it nearest to the root (a type may take a whole subtree), and of several such
    to the first; to the last part, if no filter takes it.

    Args:
      pytree: any pytree.
      *filters: which leaves go to each part: a predicate on leaves; a bool; a type or a tuple of types, which takes
        the leaves of that type and whole subtrees under a node of it; `by_path(...)`; `a & b`, `a | b` and `~a` of
        filters; or a prefix of `pytree` with filters as its leaves. The built-in predicates run without a Python call.
      replace: put in each tree in place of the leaves that went into the others.
      is_leaf: a predicate on nodes; where it is true, the node counts as one leaf.
      strict: whether a filter that takes nothing is an error. A `by_path` that takes nothing is a warning otherwise.

    Returns:
      `len(filters) + 1` trees of the structure of `pytree`. The leaves are the same objects.

    Raises:
      ValueError: a leaf of a filter is none of the above, or its structure is not a prefix of `pytree`; or, with
        `strict`, a filter takes nothing.
      TypeError, RecursionError: `pytree` cannot be read; the message has the path.

    With one filter it is `equinox.partition`; types take subtrees as in `inox.tree.partition`.
    """
    for spec in filters[1:]:
        if not _is_filter(spec):
            raise TypeError(
                f"partition: found a `{type(spec).__name__}` among the filters, expected a bool, a function "
                "(leaf) -> bool, a type, by_path(...), or a tree of these; `replace=` and `is_leaf=` go by name"
            )
    parts, counts = _core.partition(pytree, filters, replace, is_leaf)
    if 0 in counts[:-1]:  # of the filters, without the rest
        check_used(pytree, filters, counts, is_leaf, strict)
    return parts


def _is_filter(argument: Any) -> bool:
    """Whether it is a filter or, as a node, may be a prefix tree of filters."""
    if callable(argument) or isinstance(argument, (bool, Filter, types.UnionType)):
        return True
    return argument is not None and not jax.tree_util.all_leaves([argument])


def filter(
    pytree: PyTree,
    filter_spec: FilterSpec,
    inverse: bool = False,
    replace: Any = None,
    is_leaf: Callable[[Any], bool] | None = None,
) -> PyTree:
    """Keeps the leaves that a filter takes, and puts `replace` for all others.

    Example:
      >>> partax.filter({"weight": jnp.ones(2), "name": "linear"}, partax.is_array)
      {'name': None, 'weight': Array([1., 1.], dtype=float32)}

    Args:
      pytree: any pytree.
      filter_spec: a filter as for `partition`.
      inverse: keep the leaves that the filter does not take.
      replace: put in place of the leaves that are not kept.
      is_leaf: a predicate on nodes; where it is true, the node counts as one leaf.

    Returns:
      A tree of the structure of `pytree`.

    Raises:
      ValueError: as for `partition`.
      TypeError: `inverse` is a filter.
    """
    if not isinstance(inverse, bool) and _is_filter(inverse):
        raise TypeError(
            f"filter: found a `{type(inverse).__name__}` as `inverse`, expected True or False; filters are combined by "
            "`&`, `|` and `~`"
        )
    kept, taken = _core.filter(pytree, filter_spec, bool(inverse), replace, is_leaf)
    if taken == 0:
        check_used(pytree, (filter_spec,), (0,), is_leaf, strict=False)
    return kept


def combine(*pytrees: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """Puts the parts of a tree together again.

    Example:
      >>> arrays, rest = partax.partition({"weight": jnp.ones(2), "name": "linear"}, partax.is_array)
      >>> partax.combine(rest, arrays)
      {'name': 'linear', 'weight': Array([1., 1.], dtype=float32)}

    Args:
      *pytrees: trees of one structure, in any order, with None for what another has.
      is_leaf: a predicate on nodes; where it is true, the node counts as one leaf.

    Returns:
      The tree whose leaves are, at each place, the first that is not None.

    Keys, static fields and aux data must be equal by `==`, as for `jax.tree.map`; the result has those of the first
    tree that is not None there.

    Raises:
      ValueError: the trees differ; the message names the argument and the path, and what either has there.
      TypeError: no tree was given; or the `==` of a static part raised.
    """
    if not pytrees:
        raise TypeError("combine: found no tree, expected one or more")
    return _core.combine(pytrees, is_leaf)


def apply_updates(model: PyTree, updates: PyTree) -> PyTree:
    """Adds updates to a model: `tree_map(lambda p, u: p + u, model, updates)`, where None changes nothing.

    Example:
      >>> model = {"weight": jnp.ones(2), "name": "linear"}
      >>> partax.apply_updates(model, {"weight": jnp.full(2, 0.5), "name": None})
      {'name': 'linear', 'weight': Array([1.5, 1.5], dtype=float32)}

    Args:
      model: any pytree.
      updates: a tree of the structure of `model`, or a prefix of it with None for what stays, such as the updates of an
        optax optimiser.

    Returns:
      The updated model. Leaves without an update are the same objects.

    Raises:
      ValueError: the structure of `updates` does not match `model`; the message has the path.
      TypeError: an update cannot be added to its part of the model; the message has the path.
    """
    try:
        return jax.tree.map(_updated, updates, model, is_leaf=is_none)
    except (TypeError, ValueError) as error:
        _explain_misfit(model, updates)
        raise error


def is_none(node: Any) -> bool:
    """Whether it is None, which is a leaf where this is `is_leaf`."""
    return node is None


def _updated(change: Any, part: PyTree) -> PyTree:
    return part if change is None else part + change


def _explain_misfit(model: PyTree, updates: PyTree) -> None:
    """Raises where updates do not fit a model, with the place in them."""
    try:
        _core.combine((model, updates), None)
    except ValueError as error:
        text = str(error).replace("pytrees[0]", "model").replace("pytrees[1]", "updates")
        raise ValueError(f"apply_updates: {text}") from None

    def check(path: tuple[Any, ...], change: Any, part: PyTree) -> None:
        try:
            _updated(change, part)
        except (TypeError, ValueError) as error:
            place = f"updates{jax.tree_util.keystr(path)}"
            raise type(error)(
                f"apply_updates: `{place}`: found {short_text(change)}, expected what can be added to "
                f"{short_text(part)}: {error}"
            ) from error

    jax.tree_util.tree_map_with_path(check, updates, model, is_leaf=is_none)
