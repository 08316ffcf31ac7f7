"""Names for groups of leaves, as optax's multi_transform takes them."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax

from partax._pytree.filters import FilterSpec
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._pytree.partition import PyTree

_SHOWN = 5  # paths in a message


def labels(
    pytree: PyTree,
    groups: Mapping[Any, FilterSpec],
    default: Hashable = None,
    is_leaf: Callable[[Any], bool] | None = None,
) -> PyTree:
    """The tree of labels that `optax.multi_transform` takes: for each leaf, the name of its group.

    Example:
      >>> model = {"head": {"weight": 1.0, "bias": 2.0}, "body": {"weight": 3.0}}
      >>> partax.labels(model, {"fast": partax.by_path("head/**")}, default="frozen")
      {'body': {'weight': 'frozen'}, 'head': {'bias': 'fast', 'weight': 'fast'}}

    Args:
      pytree: any pytree. Its static leaves get labels too, which optax ignores where the parameters have None.
      groups: a filter, as `partition` takes them, for each label. A leaf belongs to the group that `partition` would
        give it to: as a rule, the first that takes it. A label may be whatever is hashable and a leaf of pytrees; but
        optax's state is a dict by label, so under a jit the labels must sort among one another, as strings do.
      default: the label of the leaves that no group takes. Needed where there are such leaves.
      is_leaf: a predicate on nodes; where it is true, the node counts as one leaf and gets one label.

    Returns:
      A tree of the structure of `pytree` with labels for leaves.

    Raises:
      TypeError: `groups` is no mapping, or `default` cannot be hashed.
      ValueError: no group takes some leaf and there is no default; the message has the paths. A label is no leaf of
        pytrees. A filter is none; as for `partition`.

    optax calls what is callable. So where the model has a `__call__`, give optax a function that returns its labels:
    `optax.multi_transform(transforms, lambda _: label_tree)`.
    """
    if not isinstance(groups, Mapping):
        raise TypeError(f"found a `{type(groups).__name__}` as groups, expected a mapping from labels to filters")
    named: list[tuple[Any, str]] = [(label, "a label") for label in groups]
    for label, what in named if default is None else [*named, (default, "the default label")]:
        # A tuple or None would be a node of the tree of labels, not a leaf of it.
        if not jax.tree_util.all_leaves([label]):
            raise ValueError(
                f"found {label!r} as {what}, expected a value that is a leaf of pytrees, such as a string or an int"
            )
        try:
            hash(label)
        except TypeError as error:
            raise TypeError(
                f"found a `{type(label).__name__}` as {what}, expected a value that can be hashed"
            ) from error
    spec, *taken, rest = flat_partition(pytree, *groups.values(), is_leaf=is_leaf)
    if rest and default is None:
        places = [f"`pytree{path}`" for path in list(rest)[:_SHOWN]]
        more = f" and {len(rest) - _SHOWN:,} more" if len(rest) > _SHOWN else ""
        raise ValueError(
            f"no group takes {', '.join(places)}{more}; widen a filter, or give `default`, the label for what no group "
            "takes"
        )
    parts = zip((*groups, default), (*taken, rest), strict=True)
    return flat_combine(spec, *(dict.fromkeys(part, label) for label, part in parts))
