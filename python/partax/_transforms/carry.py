"""The carries of loops and branches: where trees differ, and the types that arrays and numbers settle to."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from partax import _core
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._pytree.short_text import array_text
from partax._pytree.spec_data import ARRAY, FIELD, KEY, NODE, RUN, VALUE, alike, details, repr_text

NUMBERS = (bool, int, float, complex)
_LONGEST = 200


def is_number(leaf: Any) -> bool:
    """Return whether a leaf is a Python number, which is static and may become an array."""
    return type(leaf) in NUMBERS


class Flat(NamedTuple):
    """A tree as its static part and, for each array, whatever has its dtype and shape."""

    spec: _core.TreeSpec
    arrays: Sequence[Any]


class Difference(NamedTuple):
    """The first place where two trees differ, what each has there in words, and what a message adds to both."""

    path: str
    first: str
    second: str
    note: str = ""


class _Entry(NamedTuple):
    kind: int
    value: Any

    @property
    def settles(self) -> bool:
        return self.kind == ARRAY or (self.kind == VALUE and is_number(self.value))

    @property
    def text(self) -> str:
        if self.kind == ARRAY:
            return array_text(self.value)
        if self.kind != NODE:
            return repr_text(self.value, longest=_LONGEST)
        family, cls, arity = self.value
        return "None" if family == "none" else f"a `{cls.__name__}`" + ("" if arity is None else f" of {arity}")

    def equals(self, other: "_Entry", numbers_settle: bool) -> bool:
        if numbers_settle and (self.settles or other.settles):
            return self.settles and other.settles
        if self.kind == other.kind == NODE:
            return self.value[:2] == other.value[:2]  # children have entries too
        return self.kind == other.kind and (self.kind == ARRAY or _core.static_equal(self.value, other.value))


def _entries(flat: Flat, root: str) -> Iterator[tuple[str, _Entry]]:
    """All nodes, arrays and static values, each by its path; a node before its children."""
    arrays = iter(flat.arrays)
    # The placeholders have to be arrays; their values do not matter.
    tree = flat.spec.rebuild([np.False_] * len(flat.arrays))
    for path, kind, value in details(_core.describe_tree(tree, root)[0]):
        if kind == ARRAY:
            yield path, _Entry(ARRAY, next(arrays))
        elif kind == RUN:
            yield from ((f"{path}[{i}]", _Entry(VALUE, one)) for i, one in enumerate(value[1], value[0]))
        elif kind == NODE and value[0] == "ordered_dict":
            yield path, _Entry(NODE, (*value[:2], None))
            yield f"{path}.keys()", _Entry(FIELD, value[2])
        elif kind != KEY:
            yield path, _Entry(kind, value)


def first_difference(first: Flat, second: Flat, root: str, numbers_settle: bool = False) -> Difference | None:
    """The first place where the static parts of two trees differ; numbers may settle with numbers and arrays."""
    one, other = dict(_entries(first, root)), dict(_entries(second, root))
    paths = [
        path
        for path in one | other
        if path not in one or path not in other or not one[path].equals(other[path], numbers_settle)
    ]
    if not paths:
        return None
    # What a library keeps of the fields of an object, such as their number, says less than the field.
    path = min(paths, key=lambda path: path.rpartition(".")[2].startswith("_"))
    text, other_text = (entries[path].text if path in entries else "nothing" for entries in (one, other))
    return Difference(path, text, other_text, alike(text, other_text))


class ArrayType(NamedTuple):
    """The shape, dtype and weak type of an array; a Python number has a weak type."""

    shape: tuple[int, ...]
    dtype: Any
    weak: bool

    @property
    def text(self) -> str:
        return f"{array_text(self)}{' of weak type' if self.weak else ''}"


def array_type(value: Any) -> ArrayType:
    """The type of an array or a Python number; a type is its own."""
    if isinstance(value, ArrayType):
        return value
    aval: Any = jax.typeof(value)
    return ArrayType(aval.shape, aval.dtype, is_number(value) or aval.weak_type)


def _as_number(dtype: Any) -> bool | int | float | complex:
    """A Python number of the kind of a weak type, whose dtype promotion does not look at."""
    return {"b": False, "i": 0, "u": 0, "c": 0j}.get(np.dtype(dtype).kind, 0.0)


def joined(one: ArrayType, other: ArrayType) -> ArrayType | None:
    """The type of two arrays in one place; None if there is none: strong dtypes never change, nor do shapes."""
    weak = one.weak and other.weak
    if one.shape != other.shape:
        return None
    if one.dtype == other.dtype:
        return one._replace(weak=weak)
    if any(jnp.issubdtype(dtype, jax.dtypes.extended) for dtype in (one.dtype, other.dtype)):
        return None
    dtype = jnp.result_type(*(_as_number(each.dtype) if each.weak else each.dtype for each in (one, other)))
    fits = all(each.weak or each.dtype == dtype for each in (one, other))
    return ArrayType(one.shape, dtype, weak) if fits else None


def converted(value: Any, target: ArrayType) -> jax.Array:
    """A value as an array of a type that it has been joined to."""
    if target.weak:
        # Promotion with a Python number is the public way to an array of weak type.
        weak: jax.Array = jnp.where(True, value, _as_number(target.dtype))
        if weak.dtype == target.dtype:
            return weak
    return jax.lax.convert_element_type(value, target.dtype)


def value_text(value: Any) -> str:
    """Return the repr of a number, or the type of an array."""
    return repr(value) if is_number(value) else array_type(value).text


_F = TypeVar("_F", bound=Callable[..., Any])


@dataclasses.dataclass(eq=False, slots=True)
class Arrays:
    """A node of arrays whose paths jax shows where an argument is meant."""

    leaves: Sequence[Any]
    paths: tuple[str, ...]

    @classmethod
    def of(cls, leaves: Sequence[Any], spec: _core.TreeSpec, root: str) -> "Arrays":
        """The arrays of a tree that was flattened as `root`."""
        return cls(leaves, tuple(path.removeprefix(root) for path in spec.dynamic_paths()))


jax.tree_util.register_pytree_with_keys(
    Arrays,
    lambda arrays: (list(zip(arrays.paths, arrays.leaves, strict=True)), arrays.paths),
    lambda paths, leaves: Arrays(list(leaves), paths),
)


def in_place_of(function: Callable[..., Any], body: _F) -> _F:
    """Set the name and parameters of a function of `Arrays`, in jax's messages, to those of the user's function."""
    if inspect.isroutine(function):
        functools.update_wrapper(body, function, assigned=(), updated=())
    return body


class Leaves(NamedTuple):
    """A tree as its structure and its leaves by path, and the words that messages add to what is in it."""

    words: str
    flat: Flat
    structure: _core.FlatSpec
    values: dict[str, Any]  # arrays or their types, and static values

    @classmethod
    def of(cls, words: str, tree: Any, root: str) -> "Leaves":
        arrays, spec = _core.flatten(tree, root)
        structure, values, _ = flat_partition(tree, True)
        return cls(words, Flat(spec, list(map(array_type, arrays))), structure, values)

    @property
    def arrays(self) -> Arrays:
        arrays = {path: value for path, value in self.values.items() if _is_array(value)}
        return Arrays(list(arrays.values()), tuple(arrays))

    def without_arrays(self) -> "Leaves":
        types = {path: array_type(value) if _is_array(value) else value for path, value in self.values.items()}
        return self._replace(values=types)

    def convert(self, types: Mapping[str, ArrayType]) -> list[Any]:
        """The values at the paths of types that they are joined to, as arrays of these."""
        pairs = [(self.values[path], type) for path, type in types.items()]
        return [
            value if _is_array(value) and array_type(value) == type else converted(value, type) for value, type in pairs
        ]

    def rebuild(self, changes: Mapping[str, Any]) -> Any:
        return flat_combine(self.structure, self.values | dict(changes))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, ArrayType) or _core.is_array(leaf)


def common_types(trees: Sequence[Leaves], root: str, rule: str) -> dict[str, ArrayType]:
    """The types of the arrays of trees by path, and of the numbers that are not equal in all. A TypeError with a `rule`
    if the trees differ in anything else.
    """
    first, *rest = trees
    types: dict[str, ArrayType] = {}

    def fail(difference: Difference, other: Leaves) -> None:
        path, text, other_text, note = difference
        raise TypeError(f"`{path}`: {text} {first.words}, {other_text} {other.words}{note}; {rule}")

    for other in rest:
        if other.flat.spec != first.flat.spec:
            difference = first_difference(first.flat, other.flat, root, True)
            if difference is not None:
                fail(difference, other)
    for path, leaf in first.values.items():
        leaves = [other.values[path] for other in rest]
        if not _is_array(leaf) and all(not _is_array(one) and _core.static_equal(leaf, one) for one in leaves):
            continue
        type, text = array_type(leaf), value_text(leaf)
        for other, one in zip(rest, leaves, strict=True):
            common = joined(type, array_type(one))
            if common is None:
                fail(Difference(root + path, text, value_text(one)), other)
            elif common != type:
                type, text = common, common.text
        types[path] = type
    return types


_T = TypeVar("_T")


class Carry:
    """A carry with the types that its arrays have in this trace of a loop."""

    def __init__(self, tree: Any, root: str, step: str):
        self._root = root
        self._step = step
        self._leaves = Leaves.of(f"before {step}", tree, root)
        self.arrays = self._leaves.arrays
        self.promotions: dict[str, ArrayType] = {}  # the types that a step computes for leaves, if they are different

    def has_promotable_leaves(self) -> bool:
        """Return whether it has Python numbers or arrays of weak type, which a step may promote."""
        return any(
            is_number(leaf) or (_is_array(leaf) and array_type(leaf).weak) for leaf in self._leaves.values.values()
        )

    def rebuild(self, arrays: Arrays) -> Any:
        return self._leaves.flat.spec.rebuild(arrays.leaves)

    def arrays_after(self, after: Any, before: Arrays) -> Arrays:
        """The arrays that a step returns, with the types of the carry; those before it if there are promotions."""
        result = Leaves.of("after it", after, self._root)
        types = common_types((self._leaves, result), self._root, "only the values of arrays may change between steps")
        values = self._leaves.values
        self.promotions = {
            path: type
            for path, type in types.items()
            if not _is_array(values[path]) or array_type(values[path]) != type
        }
        return before if self.promotions else Arrays(result.convert(types), self.arrays.paths)

    def promote(self) -> "Carry":
        converted = zip(self.promotions, self._leaves.convert(self.promotions), strict=True)
        return Carry(self._leaves.rebuild(dict(converted)), self._root, self._step)


def run_with_promoted_carry(init: Any, run: Callable[[Carry], _T], root: str = "carry", step: str = "the step") -> _T:
    """Run a loop with a carry of the types that a step returns. If the carry has Python numbers or weak types, the loop
    is traced without running it first, until no type is promoted: each trace makes a leaf an array, its dtype wider or
    its type strong, so it ends. Messages call a step `step`, and paths into the carry begin with `root`.
    """
    carry = Carry(init, root, step)
    while carry.has_promotable_leaves():
        with jax.disable_jit(False):  # else a loop would really run
            jax.eval_shape(functools.partial(_run_without_result, run, carry))
        if not carry.promotions:
            break
        carry = carry.promote()
    return run(carry)


def _run_without_result(run: Callable[[Carry], Any], carry: Carry) -> None:
    run(carry)
