"""A tree as the leaves that jax sees, by path, and the rest; and where two trees differ."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from partax import _core
from partax._pytree.filters import FilterSpec, is_array
from partax._pytree.short_text import array_text, short_text
from partax._pytree.spec_data import ARRAY, FIELD, KEY, NODE, VALUE, alike, details

_LONGEST = 200
_Entry = tuple[int, Any]  # the kind of a detail and its value


@dataclasses.dataclass(eq=False, slots=True)
class Rest:
    """The structure of a tree, and its leaves that are not in a `Split`. They need no hash to be compared."""

    structure: _core.FlatSpec
    values: dict[str, Any]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rest):
            return NotImplemented
        if self is other:
            return True
        try:
            has_one_structure = self.structure == other.structure and self.values.keys() == other.values.keys()
            return has_one_structure and all(is_same(value, other.values[path]) for path, value in self.values.items())
        except TypeError:  # a static field that cannot be compared
            return False

    def __hash__(self) -> int:
        return hash(Rest)  # few are ever compared


@dataclasses.dataclass(eq=False, slots=True)
class Split:
    """A tree as a node whose children are some of its leaves, by path; jax shows the paths in its messages."""

    rest: Rest
    leaves: dict[str, Any]

    @classmethod
    def of(cls, tree: Any, which: FilterSpec = is_array, root: str = "tree") -> "Split":
        structure, leaves, rest = _core.flat_partition(tree, (which,), None, False, None, root)
        return cls(Rest(structure, rest), leaves)

    @property
    def values(self) -> dict[str, Any]:
        """All leaves of the tree, in its order."""
        values = self.rest.values | self.leaves
        return {path: values[path] for path in self.rest.structure.paths}

    @property
    def tree(self) -> Any:
        return self.build(self.values)

    @property
    def part(self) -> Any:
        """The tree with None for the rest. Splits among the leaves, as in a Hessian, become parts too."""
        return self.build({path: parts(leaf) for path, leaf in self.leaves.items()})

    def build(self, values: Mapping[str, Any], otherwise: Callable[[], Mapping[str, Any]] | None = None) -> Any:
        """Build the tree with these leaves, and None for others; if a user's node refuses them, with `otherwise`."""
        structure = self.rest.structure
        try:
            return _core.tree_unflatten(structure, [values.get(path) for path in structure.paths])
        except Exception:  # whatever a user's constructor raises
            if otherwise is None:
                raise
            return self.build(otherwise())

    def only(self, paths: Iterable[str]) -> "Split":
        """Split the tree into the leaves at these paths, and the rest."""
        values, kept = self.values, dict.fromkeys(paths)
        rest = {path: value for path, value in values.items() if path not in kept}
        return Split(Rest(self.rest.structure, rest), {path: values[path] for path in kept})

    def update(self, leaves: Mapping[str, Any]) -> "Split":
        return Split(self.rest, self.leaves | dict(leaves))

    def replace(self, leaves: Iterable[Any]) -> "Split":
        return Split(self.rest, dict(zip(self.leaves, leaves, strict=True)))


def on_split(fun: Callable[..., Any]) -> Callable[[Split], Split]:
    """Return the function of a call that was split, as `(args, kwargs)`."""

    def run(call: Split) -> Split:
        args, kwargs = call.tree
        return Split.of(fun(*args, **kwargs))

    return run


jax.tree_util.register_pytree_with_keys(
    Split,
    lambda split: (tuple(split.leaves.items()), (split.rest, tuple(split.leaves))),
    lambda rest, leaves: Split(rest[0], dict(zip(rest[1], leaves, strict=True))),
)


def parts(tree: Any) -> Any:
    return jax.tree.map(
        lambda node: node.part if isinstance(node, Split) else node, tree, is_leaf=lambda node: type(node) is Split
    )


def spread(prefix: Any, tree: Any, is_entry: Callable[[Any], bool], option: str, root: str) -> dict[str, Any]:
    """Return for each leaf of a tree, by path, the leaf and its entry of a prefix."""
    pairs = _core.broadcast_prefix(prefix, tree, is_entry, option, root)
    structure, _ = _core.flat_partition(tree, (), None, False, None, root)
    return dict(zip(structure.paths, pairs, strict=True))


class ArrayType(NamedTuple):
    """The shape, dtype and weak type of an array; a Python number has a weak type."""

    shape: tuple[int, ...]
    dtype: Any
    weak: bool

    @property
    def text(self) -> str:
        return f"{array_text(self)}{' of weak type' if self.weak else ''}"


def array_type(value: Any) -> ArrayType:
    aval: Any = value if isinstance(value, jax.ShapeDtypeStruct) else jax.typeof(value)
    return ArrayType(aval.shape, aval.dtype, is_number(value) or bool(aval.weak_type))


def is_number(leaf: Any) -> bool:
    return type(leaf) in (bool, int, float, complex)


def is_typed(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct) or is_array(leaf)


def is_same(leaf: Any, other: Any) -> bool:
    """Return whether two leaves are arrays of one shape and dtype, or equal static values."""
    if is_typed(leaf) and is_typed(other):
        return leaf is other or array_type(leaf)[:2] == array_type(other)[:2]
    try:
        return leaf is other or _core.static_equal(leaf, other)
    except TypeError:  # one of them cannot be compared
        return False


def leaf_text(leaf: Any) -> str:
    return array_type(leaf).text if is_typed(leaf) else short_text(leaf, _LONGEST)


class Difference(NamedTuple):
    """The first place where two trees differ, and what each has there in words."""

    path: str
    first: str
    second: str
    note: str = ""


def first_difference(
    first: Split, other: Split, root: str, is_same: Callable[[Any, Any], bool] = is_same
) -> Difference | None:
    """Return the first place where two trees differ, whose leaves `is_same` compares."""
    has_one_structure = first.rest.structure == other.rest.structure
    if has_one_structure and all(map(is_same, first.values.values(), other.values.values())):
        return None
    entries, other_entries = dict(_entries(first, root)), dict(_entries(other, root))
    every = entries | other_entries
    paths = [path for path in every if not _equal(entries.get(path), other_entries.get(path), is_same)]
    if not paths:
        return None
    # What a library keeps of the fields of an object, such as their number, says less than the field.
    path = min(paths, key=lambda path: path.rpartition(".")[2].startswith("_"))
    text, other_text = (_text(*each[path]) if path in each else "nothing" for each in (entries, other_entries))
    return Difference(path, text, other_text, alike(text, other_text))


def _entries(split: Split, root: str) -> Iterator[tuple[str, _Entry]]:
    """All nodes, leaves and static fields, each by its path with its kind; a node before its children."""
    leaves = iter(split.leaves.values())
    # The placeholders have to be arrays; their values do not matter.
    tree = split.update(dict.fromkeys(split.leaves, np.False_)).tree
    for path, kind, value in details(_core.describe_tree(tree, root)[0]):
        if kind == ARRAY:
            yield path, (VALUE, next(leaves))
        elif kind == NODE and value[0] == "ordered_dict":
            yield path, (NODE, (*value[:2], None))
            yield f"{path}.keys()", (FIELD, value[2])
        elif kind != KEY:
            yield path, (kind, value)


def _equal(entry: _Entry | None, other: _Entry | None, is_same: Callable[[Any, Any], bool]) -> bool:
    if entry is None or other is None:
        return False
    (kind, value), (other_kind, other_value) = entry, other
    if kind == other_kind == NODE:
        return value[:2] == other_value[:2]  # children have entries too
    return kind == other_kind and (is_same if kind == VALUE else _core.static_equal)(value, other_value)


def _text(kind: int, value: Any) -> str:
    if kind != NODE:
        return leaf_text(value) if kind == VALUE else short_text(value, _LONGEST)
    family, cls, arity = value
    return "None" if family == "none" else f"a `{cls.__name__}`" + ("" if arity is None else f" of {arity}")
