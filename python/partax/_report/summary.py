"""How many leaves, parameters and bytes are where in a tree."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import jax

from partax import _core
from partax._pytree.filters import FilterSpec, filter_name
from partax._pytree.flat_partition import labels
from partax._pytree.partition import PyTree, filter
from partax._pytree.short_text import record_text
from partax._report.table import Row, Table

_SHOWN = 100  # lines for subtrees in a printed table; the data have all
_HEADINGS = ("subtree", "group", "leaves", "parameters", "bytes")


@dataclasses.dataclass(frozen=True)
class SummaryRow:
    """What one group has in one subtree.

    Example:
      >>> partax.summary({"weight": jnp.ones((3, 2))}).rows[0]
      SummaryRow(path='weight', group='rest', leaves=1, parameters=6, bytes=24)

    Attributes:
      path: where the subtree is, as `by_path` reads it: `layers/0`. Empty for the whole tree.
      group: the name of the filter that took the leaves. Empty for all groups together.
      leaves: how many leaves, static ones too.
      parameters: how many elements the arrays among them have; a typed PRNG key is one element.
      bytes: the memory of these elements as JAX reports it (`nbytes`): a whole byte for an int4.
    """

    path: str
    group: str
    leaves: int
    parameters: int
    bytes: int

    __repr__ = record_text


@dataclasses.dataclass(frozen=True)
class Summary:
    """The table that `summary` makes; `print` shows it.

    Example:
      >>> counted = partax.summary({"weight": jnp.ones((3, 2)), "name": "linear"}, partax.is_array)
      >>> counted.total.parameters
      6
      >>> [(row.group, row.leaves) for row in counted.groups]
      [('is_array', 1), ('rest', 1)]

    Attributes:
      rows: one for each subtree and group with leaves in it, in the order of the tree; they add up to `groups`.
      groups: one for each filter, and the last for the rest; for the whole tree.
      total: all groups together.
    """

    rows: tuple[SummaryRow, ...]
    groups: tuple[SummaryRow, ...]
    total: SummaryRow

    def __repr__(self) -> str:
        total = self.total
        return (
            f"<partax.Summary: {total.leaves:,} leaves, {total.parameters:,} parameters, {total.bytes:,} bytes in "
            f"{len(self.rows):,} rows>"
        )

    def __str__(self) -> str:
        return str(_table(self))


Summary.__module__ = SummaryRow.__module__ = "partax"  # where users find them, and pickles too


def _table(summary: Summary) -> Table:
    grouped = len(summary.groups) > 1
    below = summary.rows if any(row.path for row in summary.rows) else ()
    left_out = len(below) - _SHOWN

    def cells(first: str, row: SummaryRow) -> tuple[str, ...]:
        group = (row.group,) if grouped else ()
        return (first, *group, f"{row.leaves:,}", f"{row.parameters:,}", f"{row.bytes:,}")

    subtrees: list[Row] = [cells(row.path, row) for row in below[:_SHOWN]]
    if left_out > 0:
        subtrees.append(f"... {left_out:,} more in `rows`")
    totals = tuple(cells("total", row) for row in (*(summary.groups if grouped else ()), summary.total))
    columns = _HEADINGS if grouped else (_HEADINGS[0], *_HEADINGS[2:])
    return Table(columns, (tuple(subtrees), totals), frozenset({0, 1} if grouped else {0}), ruled=True)


def _numbers(leaf: Any) -> tuple[int, int]:
    """Elements and bytes of an array, or of one that is yet to be made; nothing for other leaves."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf.size, leaf.size * leaf.dtype.itemsize
    return (int(leaf.size), int(leaf.nbytes)) if _core.is_array(leaf) else (0, 0)


def _row(path: str, group: str, leaves: Iterable[Any]) -> SummaryRow:
    counted = [_numbers(leaf) for leaf in leaves]
    return SummaryRow(path, group, len(counted), sum(n for n, _ in counted), sum(n for _, n in counted))


def _name(filter_spec: FilterSpec, position: int) -> str:
    is_tree = not isinstance(filter_spec, tuple) and not jax.tree_util.all_leaves([filter_spec])
    return f"filter {position}" if is_tree else filter_name(filter_spec)


def _names(filters: Sequence[FilterSpec], given: Sequence[str] | None) -> list[str]:
    """A name for each filter and for the rest, no two alike."""
    names: list[str] = []
    if given is None:
        for position, name in enumerate([*map(_name, filters, itertools.count(1)), "rest"], 1):
            names.append(name if name not in names else f"{name} ({position})")
        return names
    names = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"found names={given!r}, expected strings")
    if len(names) not in (len(filters), len(filters) + 1):
        raise ValueError(
            f"found {len(names)} names, expected {len(filters)}, one for each filter, or {len(filters) + 1}, one more "
            "for the rest"
        )
    if len(names) == len(filters):
        names.append("rest")
    if len(set(names)) < len(names):
        raise ValueError(f"found names={given!r}, expected names that differ from one another and from the rest's")
    return names


def summary(pytree: PyTree, *filters: FilterSpec, names: Sequence[str] | None = None, depth: int | None = 2) -> Summary:
    """Counts leaves, parameters and bytes, by group and by subtree.

    Example:
      >>> model = {"layers": [{"weight": jnp.ones((3, 2))}, {"weight": jnp.ones((2, 2))}]}
      >>> print(partax.summary(model))
      subtree   leaves  parameters  bytes
      -----------------------------------
      layers/0       1           6     24
      layers/1       1           4     16
      -----------------------------------
      total          2          10     40

    Args:
      pytree: any pytree. A `jax.ShapeDtypeStruct` counts as the array that it describes; an array that stands in two
        places counts in both.
      *filters: as for `partition`; each makes a group of the leaves that `partition` would give it. What none takes is
        the group "rest".
      names: of the groups, one for each filter, or one more for the rest. Without it they are called after the
        filters.
      depth: how many steps below the root the tree is cut into subtrees; a leaf nearer to the root is one of its own.
        0: totals alone; None: down to each leaf.

    Returns:
      The counts, as data and as a table to `print`. The totals are exact for any depth.

    Raises:
      ValueError: `names` are too few, too many or not distinct; `depth` is negative; a filter is none, as for
        `partition`.
      TypeError: a name is no string, or `depth` no int.
    """
    if depth is not None and not isinstance(depth, int):
        raise TypeError(f"found a `{type(depth).__name__}` as depth, expected an int or None")
    if depth is not None and depth < 0:
        raise ValueError(f"found depth={depth}, expected 0 or more, or None")
    *named, rest = _names(filters, names)
    groups = dict(zip(named, filters, strict=True))
    group_of_leaf = jax.tree.leaves(labels(pytree, groups, default=rest))
    # Rebuilt as the labels are: jax's order of keys that have none, such as NaN, follows that of the dictionary.
    leaves = jax.tree_util.tree_leaves_with_path(filter(pytree, True))
    rows: list[SummaryRow] = []
    pairs = list(zip(leaves, group_of_leaf, strict=True))
    # The leaves of one subtree follow one another.
    for path, part in itertools.groupby(pairs, lambda pair: tuple(pair[0][0][:depth])):
        of_group: dict[str, list[Any]] = {name: [] for name in (*named, rest)}
        for (_, leaf), group in part:
            of_group[group].append(leaf)
        text = jax.tree_util.keystr(path, simple=True, separator="/")
        rows += [_row(text, name, found) for name, found in of_group.items() if found]
    totals = [_row("", name, (leaf for (_, leaf), group in pairs if group == name)) for name in (*named, rest)]
    return Summary(tuple(rows), tuple(totals), _row("", "", (leaf for (_, leaf), _ in pairs)))
