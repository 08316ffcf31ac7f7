"""`flat_partition` and `flat_combine`: a tree as a structure and dictionaries from path to leaf."""

import copyreg
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax

from partax import _core
from partax._core import FlatSpec, Static
from partax._functions.classes import READ_BY
from partax._pytree.filters import FilterSpec, IsLeaf, check_used, nearest_paths
from partax._pytree.partition import PyTree

_SHOWN_KEYS = 100
_MOST_COMPARED = 10


def flat_partition(
    pytree: PyTree,
    *filters: FilterSpec,
    separator: str | None = None,
    rest: Literal["dict", "static"] = "dict",
    is_leaf: IsLeaf = None,
    strict: bool = False,
) -> tuple[Any, ...]:
    """Split a tree into its structure and dictionaries from path to leaf.

    Example:
      >>> model = {"layers": [{"weight": 1.0}, {"weight": 2.0}], "name": "mlp"}
      >>> spec, weights, rest = partax.flat_partition(model, float, separator="/")
      >>> weights
      {'layers/0/weight': 1.0, 'layers/1/weight': 2.0}
      >>> rest
      {'name': 'mlp'}

    The dictionaries hold only their own leaves, in tree order. Keys and order are those of `inox.tree.partition`.

    Args:
      pytree: Any pytree.
      *filters: Which leaves go to each dictionary. Same as in `partition`.
      separator: The string between the segments of a path, as in `layers/0/weight`. Default: None, for the paths of
        `jax.tree_util.keystr`, as in `.layers[0].weight`. The later ones of equal paths end in `#2`, `#3` and so on.
      rest: `"static"` to keep the leaves that no filter matches in the structure. Default: `"dict"`, for a last
        dictionary with these leaves.
      is_leaf, strict: Same as in `partition`. Default: None and False.

    Returns:
      A `FlatSpec`, which is a pytree without leaves, and a dict for each filter and for the rest unless it is static.

    Raises:
      ValueError, TypeError, RecursionError: Same as in `partition`; or `rest` or `separator` is none of the above.

    See Also: The guide "Partition and combine trees".
    """
    if rest not in ("dict", "static"):
        raise ValueError(f"`rest`: found {rest!r}, expected 'dict' or 'static'")
    if separator is not None and not isinstance(separator, str):
        raise TypeError(f"`separator`: found a `{type(separator).__name__}`, expected a str or None")
    result = _core.flat_partition(pytree, filters, separator, rest == "static", is_leaf, "pytree")
    if not all(result[1 : len(filters) + 1]):
        check_used(pytree, filters, [len(part) for part in result[1:]], is_leaf, strict)
    return result


def flat_combine(spec: FlatSpec, *dicts: Mapping[str, Any]) -> PyTree:
    """Rebuild the tree that `flat_partition` split.

    Example:
      >>> spec, weights, rest = partax.flat_partition({"weight": 1.0, "name": "mlp"}, float, separator="/")
      >>> partax.flat_combine(spec, rest, {"weight": 2.0})
      {'name': 'mlp', 'weight': 2.0}

    Args:
      spec: The `FlatSpec` that `flat_partition` returned.
      *dicts: Dictionaries from path to leaf, in any order, with each path of `spec` once. The leaves may be others.

    Returns:
      The tree.

    Raises:
      KeyError: Paths are missing, unexpected or in several dictionaries; the message lists them.
      TypeError: `spec` is not a `FlatSpec`, or an argument is not a mapping.

    See Also: The guide "Partition and combine trees".
    """
    if not isinstance(spec, FlatSpec):
        raise TypeError(f"`spec`: found a `{type(spec).__name__}`, expected the FlatSpec that flat_partition returned")
    leaves: dict[str, Any] = {}
    for i, part in enumerate(dicts):
        if not isinstance(part, Mapping):
            raise TypeError(f"`dicts[{i}]`: found a `{type(part).__name__}`, expected a dictionary from path to leaf")
        leaves.update(part)
    if len(spec.paths) != sum(map(len, dicts)) or not all(map(leaves.__contains__, spec.paths)):
        raise _wrong_keys(spec.paths, dicts)
    return _core.tree_unflatten(spec, [leaves[path] for path in spec.paths])


class _Verbatim(str):  # since `KeyError` prints the `repr` of its argument
    __repr__ = str.__str__


def _wrong_keys(paths: tuple[str, ...], dicts: Sequence[Mapping[str, Any]]) -> KeyError:
    counts, expected = Counter(key for part in dicts for key in part), set(paths)
    missing = [path for path in paths if path not in counts]
    unexpected = [key for key in counts if key not in expected]
    compared = [key for key in unexpected[:_MOST_COMPARED] if isinstance(key, str)]
    nearest = {key: path for key in compared for path in nearest_paths(key, missing or paths)[:1]}
    notes = {key: f" (the nearest path is {path!r})" for key, path in nearest.items()}
    lines = [f"  unexpected: {key!r}{notes.get(key, '')}" for key in unexpected]
    lines += [f"  duplicate, in several dictionaries: {key!r}" for key, count in counts.items() if count > 1]
    lines += [f"  missing: {path!r}" for path in missing]
    if len(lines) > _SHOWN_KEYS:
        lines[_SHOWN_KEYS:] = [f"  ... and {len(lines) - _SHOWN_KEYS:,} more"]
    return KeyError(_Verbatim("\n".join(["the dictionaries do not have the keys of `spec`:", *lines])))


class _Place:
    """A placeholder for a leaf in a pickled structure."""


def _restore(pytree: PyTree, separator: str | None) -> FlatSpec:
    return flat_partition(pytree, _Place, separator=separator, rest="static")[0]


def _reduce_spec(spec: FlatSpec) -> tuple[Any, ...]:
    return _restore, (_core.tree_unflatten(spec, [_Place() for _ in spec.paths]), spec.separator)


for _cls in (FlatSpec, Static):
    jax.tree_util.register_pytree_node(_cls, lambda node: ((), node), lambda node, _: node)
READ_BY[FlatSpec], READ_BY[Static] = _reduce_spec, ("value",)
copyreg.pickle(FlatSpec, _reduce_spec)  # pyright: ignore[reportArgumentType] - the stub accepts fewer types
copyreg.pickle(Static, lambda static: (Static, (static.value,)))
