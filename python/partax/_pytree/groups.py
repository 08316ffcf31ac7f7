"""Groups of the leaves of a tree: a label for each leaf, and counts of leaves, parameters and bytes."""

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import jax

from partax import _core
from partax._pytree.filters import FilterSpec, filter_name
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._pytree.partition import PyTree
from partax._pytree.table import table_lines

_SHOWN_PATHS = 5  # in a message


def labels(
    pytree: PyTree,
    groups: Mapping[Any, FilterSpec],
    default: Hashable = None,
    is_leaf: Callable[[Any], bool] | None = None,
) -> PyTree:
    """Return the tree of labels for `optax.multi_transform`: for each leaf, the name of its group.

    Example:
      >>> model = {"head": {"weight": 1.0, "bias": 2.0}, "body": {"weight": 3.0}}
      >>> partax.tree.labels(model, {"fast": partax.by_path("head/**")}, default="frozen")
      {'body': {'weight': 'frozen'}, 'head': {'bias': 'fast', 'weight': 'fast'}}

    A leaf belongs to the same group as in `partition`. optax calls callable labels, so if the model has a `__call__`,
    pass a function: `optax.multi_transform(transforms, lambda _: label_tree)`.

    Args:
      pytree: Any pytree. Its static leaves get labels too, which optax ignores if the parameters have None there.
      groups: A mapping from each label to a filter. Same as in `partition`. Under a jit, optax sorts the labels.
      default: The label of the leaves that no group matches. Default: None, which is an error if there are any.
      is_leaf: Same as in `partition`. Default: None.

    Returns:
      A tree like `pytree` with labels for leaves.

    Raises:
      TypeError: `groups` is not a mapping.
      ValueError: A leaf has no group and no `default`; a label is not a hashable leaf; or same as in `partition`.

    See Also:
      The guide "Gradients and freezing".
    """
    if not isinstance(groups, Mapping):
        raise TypeError(f"found a `{type(groups).__name__}` as groups, expected a mapping from labels to filters")
    for label in groups if default is None else (*groups, default):
        # A tuple or None would be a node of the tree of labels instead of a leaf.
        if not jax.tree_util.all_leaves([label]) or not isinstance(label, Hashable):
            raise ValueError(f"found {label!r} as a label, expected a hashable leaf of pytrees, such as a string")
    spec, *parts, rest = flat_partition(pytree, *groups.values(), is_leaf=is_leaf)
    if rest and default is None:
        places = ", ".join(f"`pytree{path}`" for path in list(rest)[:_SHOWN_PATHS])
        more = f" and {len(rest) - _SHOWN_PATHS:,} more" if len(rest) > _SHOWN_PATHS else ""
        raise ValueError(f"no group takes {places}{more}; widen a filter, or give `default`, the label for the rest")
    labeled_parts = zip((*groups, default), (*parts, rest), strict=True)
    return flat_combine(spec, *(dict.fromkeys(part, label) for label, part in labeled_parts))


@dataclasses.dataclass(frozen=True)
class SummaryRow:
    """The counts of one group in one subtree.

    Example:
      >>> partax.tree.summary({"weight": jnp.ones((3, 2))}).rows[0]
      SummaryRow(path='weight', group='rest', leaves=1, parameters=6, bytes=24)

    Attributes:
      path: The path of the subtree in the form of `by_path`: `layers/0`. Empty for the whole tree.
      group: The name of the filter that matches the leaves. Empty for all groups together.
      leaves: The number of leaves, static ones included.
      parameters: The number of elements of the arrays among them; a typed PRNG key is one element.
      bytes: The memory of these elements as JAX reports it (`nbytes`): a whole byte for an int4.
    """

    path: str
    group: str
    leaves: int
    parameters: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Summary:
    """The result of `summary`; `print` displays it as a table.

    Example:
      >>> partax.tree.summary({"weight": jnp.ones((3, 2)), "name": "linear"}, partax.is_array).total.parameters
      6

    Attributes:
      rows: One row for each subtree and group with leaves in it, in the order of the tree; they add up to `groups`.
      groups: One row for each filter, and the last for the rest; for the whole tree.
      total: The row of all groups together.

    See Also:
      The guide "Partition and combine trees".
    """

    rows: tuple[SummaryRow, ...]
    groups: tuple[SummaryRow, ...]
    total: SummaryRow

    def __repr__(self) -> str:
        total = self.total
        counts = f"{total.leaves:,} leaves, {total.parameters:,} parameters, {total.bytes:,} bytes"
        return f"<partax.tree.Summary: {counts} in {len(self.rows):,} rows>"

    def __str__(self) -> str:
        rows = [(row.path, row) for row in self.rows if row.path]
        totals = (
            [("total", row) for row in (*self.groups, self.total)] if len(self.groups) > 1 else [("total", self.total)]
        )
        cells = [["subtree", "group", "leaves", "parameters", "bytes"]]
        for name, row in rows + totals:
            cells.append([name, row.group, *(f"{count:,}" for count in (row.leaves, row.parameters, row.bytes))])
        if len(totals) == 1:
            cells = [[name, *counts] for name, _, *counts in cells]
        heading, *lines = table_lines(cells, left=range(len(cells[0]) - 3))
        rule = "-" * max(map(len, (heading, *lines)))
        return "\n".join([heading, rule, *lines[: len(rows)], *([rule] if rows else ()), *lines[len(rows) :]])


Summary.__module__ = SummaryRow.__module__ = "partax.tree"  # the public module, which pickles also name


def summary(pytree: PyTree, *filters: FilterSpec, names: Sequence[str] | None = None, depth: int | None = 2) -> Summary:
    """Count leaves, parameters and bytes, by group and by subtree.

    Example:
      >>> model = {"layers": [{"weight": jnp.ones((3, 2))}, {"weight": jnp.ones((2, 2))}]}
      >>> print(partax.tree.summary(model))
      subtree   leaves  parameters  bytes
      -----------------------------------
      layers/0       1           6     24
      layers/1       1           4     16
      -----------------------------------
      total          2          10     40

    A `jax.ShapeDtypeStruct` counts as the array that it describes; an array in two places counts twice.

    Args:
      pytree: Any pytree.
      *filters: Same as in `partition`; each is a group. All other leaves are the group "rest".
      names: The names of the groups, one for each filter, and optionally one for the rest. Default: the filters'.
      depth: The depth of the subtrees. 0: only totals; None: each leaf is a subtree. Default: 2.

    Returns:
      The counts, as data and as a table to `print`.

    Raises:
      ValueError: `names` are too few, too many or not distinct; `depth` is negative; or same as in `partition`.

    See Also:
      The guide "Partition and combine trees".
    """
    if depth is not None and depth < 0:
        raise ValueError(f"found depth={depth}, expected 0 or more, or None")
    group_names = _names(filters, names)
    group_of_leaf = jax.tree.leaves(labels(pytree, dict(zip(group_names, filters, strict=False)), group_names[-1]))
    leaves = jax.tree_util.tree_leaves_with_path(pytree)
    pairs = [(path, leaf, group) for (path, leaf), group in zip(leaves, group_of_leaf, strict=True)]
    rows: list[SummaryRow] = []
    # The leaves of a subtree are consecutive.
    for path, part in itertools.groupby(pairs, lambda pair: tuple(pair[0][:depth])):
        text, below = jax.tree_util.keystr(path, simple=True, separator="/"), list(part)
        group_rows = (_row(text, name, [leaf for _, leaf, group in below if group == name]) for name in group_names)
        rows += [row for row in group_rows if row.leaves]
    totals = [_row("", name, [leaf for _, leaf, group in pairs if group == name]) for name in group_names]
    return Summary(tuple(rows), tuple(totals), _row("", "", (leaf for _, leaf, _ in pairs)))


def _names(filters: Sequence[FilterSpec], names: Sequence[str] | None) -> list[str]:
    """Distinct names for the filters and for the rest."""
    chosen = list(names or ())
    if names is None:
        for name in map(filter_name, filters):
            chosen.append(f"{name} ({len(chosen) + 1})" if name in (*chosen, "rest") else name)
    chosen += ["rest"] * (len(chosen) == len(filters))
    if len(chosen) != len(filters) + 1 or len(set(chosen)) < len(chosen):
        raise ValueError(f"found names={names!r}, expected {len(filters)} that differ, or one more for the rest")
    return chosen


def _row(path: str, group: str, leaves: Iterable[Any]) -> SummaryRow:
    counts = [_size(leaf) for leaf in leaves]
    return SummaryRow(path, group, len(counts), sum(n for n, _ in counts), sum(n for _, n in counts))


def _size(leaf: Any) -> tuple[int, int]:
    """The elements and bytes of an array or of a `jax.ShapeDtypeStruct`; zeros for other leaves."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf.size, leaf.size * leaf.dtype.itemsize
    return (int(leaf.size), int(leaf.nbytes)) if _core.is_array(leaf) else (0, 0)
