"""Split trees by filters and combine the parts."""

from typing import Any

import jax

from partax import _core
from partax._pytree.filters import FilterSpec, IsLeaf, check_used
from partax._pytree.short_text import short_text

PyTree = Any


def partition(
    pytree: PyTree, *filters: FilterSpec, replace: Any = None, is_leaf: IsLeaf = None, strict: bool = False
) -> tuple[PyTree, ...]:
    """Split a tree into parts by filters.

    Example:
      >>> model = {"weight": jnp.ones(2), "rate": 0.1, "name": "linear"}
      >>> arrays, rest = partax.partition(model, partax.is_array)
      >>> arrays
      {'name': None, 'rate': None, 'weight': Array([1., 1.], dtype=float32)}
      >>> rest
      {'name': 'linear', 'rate': 0.1, 'weight': None}

    A leaf goes to the filter that matches nearest to the root (a type can match a whole subtree), and among several
    to the first; if none matches, to the last part. With one filter this is `equinox.partition`.

    Args:
      pytree: Any pytree.
      *filters: Which leaves go to each part: a predicate on leaves; a bool; a type or a tuple of types, which matches
        leaves of that type and whole subtrees under a node of it; `by_path(...)`; `a & b`, `a | b` and `~a` of
        filters; or a prefix of `pytree` with filters as its leaves.
      replace: The value in each part for the leaves that are in another part. Default: None.
      is_leaf: A predicate on nodes; if it is true, the node counts as one leaf. Default: None, for no such nodes.
      strict: Whether a filter without a match is an error; if not, one by path is a warning. Default: False.

    Returns:
      A tuple of `len(filters) + 1` trees of the structure of `pytree`. The leaves are the same objects.

    Raises:
      ValueError: A filter is none of the above, or not a prefix of `pytree`; or, with `strict`, it has no match.
      TypeError, RecursionError: `pytree` cannot be read; the message has the path. Or a later filter is None.

    See Also: The guide "Partition and combine trees".
    """
    if any(spec is None for spec in filters[1:]):
        raise TypeError("partition: found None among the filters; `replace=` and `is_leaf=` go by name")
    parts, counts = _core.partition(pytree, filters, replace, is_leaf, -1)
    if 0 in counts[:-1]:  # the last count is that of the rest
        check_used(pytree, filters, counts, is_leaf, strict)
    return parts


def filter(
    pytree: PyTree, filter_spec: FilterSpec, inverse: bool = False, replace: Any = None, is_leaf: IsLeaf = None
) -> PyTree:
    """Keep the leaves that a filter matches, and replace all others.

    Example:
      >>> partax.filter({"weight": jnp.ones(2), "name": "linear"}, partax.is_array)
      {'name': None, 'weight': Array([1., 1.], dtype=float32)}

    Args:
      pytree: Any pytree.
      filter_spec: A filter. Same as in `partition`.
      inverse: Whether to keep the leaves that the filter does not match instead. Default: False.
      replace, is_leaf: Same as in `partition`. Default: None.

    Returns:
      A tree of the structure of `pytree`.

    Raises:
      ValueError, TypeError: Same as in `partition`; or `inverse` is not a bool.

    See Also: The guide "Partition and combine trees".
    """
    if not isinstance(inverse, bool):
        raise TypeError(f"`inverse`: found {short_text(inverse)}, expected a bool; `&`, `|` and `~` combine filters")
    (result,), counts = _core.partition(pytree, (filter_spec,), replace, is_leaf, int(inverse))
    if counts[0] == 0:
        check_used(pytree, (filter_spec,), counts, is_leaf)
    return result


def combine(*pytrees: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """Combine the parts of a tree.

    Example:
      >>> arrays, rest = partax.partition({"weight": jnp.ones(2), "name": "linear"}, partax.is_array)
      >>> partax.combine(rest, arrays)
      {'name': 'linear', 'weight': Array([1., 1.], dtype=float32)}

    Keys, static fields and aux data must be equal by `==`; the result has those of the first tree that is not None.

    Args:
      *pytrees: One or more trees of one structure, in any order, with None for the leaves of another part.
      is_leaf: Same as in `partition`. Default: None.

    Returns:
      The tree with the first leaf that is not None at each path.

    Raises:
      ValueError: The trees differ; the message has the argument, the path, and what both trees have there.
      TypeError: No tree is passed, or the `==` of a static part raised.

    See Also: The guide "Partition and combine trees".
    """
    if not pytrees:
        raise TypeError("combine: found no tree, expected one or more")
    return _core.combine(pytrees, is_leaf)


def apply_updates(model: PyTree, updates: PyTree) -> PyTree:
    """Add updates to a model: `tree_map(lambda p, u: p + u, model, updates)`, where None changes nothing.

    Example:
      >>> model = {"weight": jnp.ones(2), "name": "linear"}
      >>> partax.apply_updates(model, {"weight": jnp.full(2, 0.5), "name": None})
      {'name': 'linear', 'weight': Array([1.5, 1.5], dtype=float32)}

    Args:
      model: Any pytree.
      updates: A tree of the structure of `model`, or a prefix of it, with None for unchanged parts.

    Returns:
      The updated model. Leaves without an update are the same objects.

    Raises:
      ValueError, TypeError: `updates` does not match `model`, or cannot be added to it; the message has the path.

    See Also: The guide "Gradients and freezing".
    """

    def add(path: tuple[Any, ...], change: Any, part: PyTree) -> PyTree:
        try:
            return part if change is None else part + change
        except (TypeError, ValueError) as error:
            found = f"`updates{jax.tree_util.keystr(path)}`: found {short_text(change)}"
            raise type(error)(f"{found}, expected what can be added to {short_text(part)}: {error}") from error

    _core.broadcast_prefix(updates, model, is_none, "updates", "model")  # raises if they differ, with the path
    return jax.tree_util.tree_map_with_path(add, updates, model, is_leaf=is_none)


def is_none(node: Any) -> bool:
    return node is None
