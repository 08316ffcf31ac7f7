"""A label for each leaf of a tree, and counts of leaves, parameters and bytes."""

import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import jax

from partax import _core
from partax._pytree.filters import FilterSpec, IsLeaf
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._pytree.partition import PyTree
from partax._pytree.short_text import listed, record_text, table_lines


def labels(
    pytree: PyTree, groups: Mapping[Any, FilterSpec], default: Hashable = None, is_leaf: IsLeaf = None
) -> PyTree:
    """Return the tree of labels for `optax.multi_transform`: for each leaf, the name of its group.

    Example:
      >>> model = {"head": {"weight": 1.0, "bias": 2.0}, "body": {"weight": 3.0}}
      >>> partax.tree.labels(model, {"fast": partax.by_path("head/**")}, default="frozen")
      {'body': {'weight': 'frozen'}, 'head': {'bias': 'fast', 'weight': 'fast'}}

    optax calls a tree with a `__call__`; for such a model pass `lambda _: label_tree`.

    Args:
      pytree: Any pytree. Its static leaves get labels too, which optax ignores if the parameters have None there.
      groups: A mapping from each label to a filter, as in `partition`. Under a jit, optax sorts the labels.
      default: The label of the leaves that no group matches. Default: None, which is an error if there are any.
      is_leaf: Same as in `partition`. Default: None.

    Returns:
      A tree like `pytree` with labels for leaves.

    Raises:
      ValueError: A leaf has no group and no `default`; a label is not a hashable leaf; or same as in `partition`.

    See Also: The guide "Gradients and freezing".
    """
    if not isinstance(groups, Mapping):
        raise TypeError(f"found a `{type(groups).__name__}` as groups, expected a mapping from labels to filters")
    for label in groups if default is None else (*groups, default):
        if not jax.tree_util.all_leaves([label]) or not isinstance(label, Hashable):
            raise ValueError(f"found {label!r} as a label, expected a hashable leaf of pytrees, such as a string")
    spec, *parts, rest = flat_partition(pytree, *groups.values(), is_leaf=is_leaf)
    if rest and default is None:
        places = listed([f"pytree{path}" for path in rest])
        raise ValueError(f"no group takes {places}; widen a filter, or give `default`, the label for the rest")
    labeled_parts = zip((*groups, default), (*parts, rest), strict=True)
    return flat_combine(spec, *(dict.fromkeys(part, label) for label, part in labeled_parts))


class SummaryRow(NamedTuple):
    """The counts of one subtree.

    Example:
      >>> partax.tree.summary({"weight": jnp.ones((3, 2))}).rows[0]
      SummaryRow(path='weight', leaves=1, parameters=6, bytes=24)

    Attributes:
      path: The path of the subtree in the form of `by_path`: `layers/0`. Empty for the whole tree.
      leaves: The number of leaves, static ones included.
      parameters: The number of elements of the arrays among them; a typed PRNG key is one element.
      bytes: The memory of these elements, with a whole byte for an int4.
    """

    path: str
    leaves: int
    parameters: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Summary:
    """The result of `summary`; `print` displays it as a table.

    Example:
      >>> partax.tree.summary({"weight": jnp.ones((3, 2)), "name": "linear"}).total.parameters
      6

    Attributes:
      rows: One row for each subtree, in the order of the tree.
      total: The row of the whole tree.
    """

    rows: tuple[SummaryRow, ...]
    total: SummaryRow

    __repr__ = record_text

    def __str__(self) -> str:
        rows = [*(row for row in self.rows if row.path), self.total._replace(path="total")]
        cells = [[path, *(f"{count:,}" for count in counts)] for path, *counts in rows]
        heading, *lines = table_lines([["subtree", *SummaryRow._fields[1:]], *cells], left=(0,))
        rule = "-" * max(map(len, (heading, *lines)))
        return "\n".join([heading, rule, *lines[:-1], *[rule] * (len(rows) > 1), lines[-1]])


Summary.__module__ = SummaryRow.__module__ = "partax.tree"  # the public module, which pickles also name


def summary(pytree: PyTree, *, depth: int | None = 2) -> Summary:
    """Count leaves, parameters and bytes, by subtree.

    Example:
      >>> model = {"layers": [{"weight": jnp.ones((3, 2))}, {"weight": jnp.ones((2, 2))}]}
      >>> print(partax.tree.summary(model))
      subtree   leaves  parameters  bytes
      -----------------------------------
      layers/0       1           6     24
      layers/1       1           4     16
      -----------------------------------
      total          2          10     40

    Args:
      pytree: Any pytree. A `jax.ShapeDtypeStruct` counts as an array, and an array in two places counts twice.
      depth: The depth of the subtrees. 0: only the total; None: each leaf is a subtree. Default: 2.

    Returns:
      The counts, as data and as a table to `print`.

    Raises:
      ValueError: `depth` is negative.

    See Also: The guide "Partition and combine trees".
    """
    if depth is not None and depth < 0:
        raise ValueError(f"found depth={depth}, expected 0 or more, or None")
    leaves = [(path, _counts(leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(pytree)]
    # The leaves of a subtree are consecutive.
    subtrees = itertools.groupby(leaves, lambda leaf: jax.tree_util.keystr(leaf[0][:depth], simple=True, separator="/"))
    return Summary(tuple(_row(path, subtree) for path, subtree in subtrees), _row("", leaves))


def _row(path: str, leaves: Iterable[tuple[Any, tuple[int, int, int]]]) -> SummaryRow:
    return SummaryRow(path, *map(sum, zip((0, 0, 0), *(counts for _, counts in leaves), strict=True)))


def _counts(leaf: Any) -> tuple[int, int, int]:
    has_elements = isinstance(leaf, jax.ShapeDtypeStruct) or _core.is_array(leaf)
    return (1, leaf.size, leaf.size * leaf.dtype.itemsize) if has_elements else (1, 0, 0)
