"""What loops and branches carry: arrays as jax sees them, the types that they settle to; where trees differ."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from partax import _core
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._pytree.short_text import array_text
from partax._pytree.spec_data import ARRAY, DICTS, FIELD, NODE, RUN, VALUE, alike, details, repr_text

NUMBERS = (bool, int, float, complex)
_LONGEST = 200


def is_number(leaf: Any) -> bool:
    """Whether it is a number of Python's own, which is static and may become an array."""
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
        return self.kind == VALUE and is_number(self.value)

    @property
    def text(self) -> str:
        if self.kind == ARRAY:
            return array_text(self.value)
        if self.kind != NODE:
            return repr_text(self.value, longest=_LONGEST)
        family, cls, arity = self.value
        return "None" if family == "none" else f"a `{cls.__name__}`" + ("" if arity is None else f" of {arity}")

    def has_fields_of(self, other: "_Entry") -> bool:
        """Whether it is an object of the class of another one, which has more fields or fewer."""
        are_objects = self.kind == other.kind == NODE and self.value[0] not in ("tuple", "list")
        return are_objects and self.value[:2] == other.value[:2] and self.value != other.value

    def same(self, other: "_Entry", numbers_settle: bool) -> bool:
        if numbers_settle and (self.settles or other.settles):
            return all(entry.settles or entry.kind == ARRAY for entry in (self, other))
        if self.kind != other.kind or self.kind in (ARRAY, NODE):
            return self.kind == other.kind and (self.kind == ARRAY or self.value == other.value)
        return _core.static_equal(self.value, other.value)


def _entries(flat: Flat, root: str) -> Iterator[tuple[str, _Entry]]:
    """All nodes, arrays and static values, each by its path; a node before what is in it."""
    arrays = iter(flat.arrays)
    # The placeholders have to be arrays; their values do not matter.
    tree = flat.spec.rebuild([np.False_] * len(flat.arrays))
    for path, kind, value in details(_core.describe_tree(tree, root)[0]):
        if kind == ARRAY:
            yield path, _Entry(ARRAY, next(arrays))
        elif kind == RUN:
            yield from ((f"{path}[{i}]", _Entry(VALUE, one)) for i, one in enumerate(value[1], value[0]))
        elif kind == NODE:
            family, cls, children = value
            yield path, _Entry(NODE, (family, cls, None if family in DICTS else children))
            if family == "ordered_dict":
                yield f"{path}.keys()", _Entry(FIELD, children)
        else:
            yield path, _Entry(kind, value)


def first_difference(first: Flat, second: Flat, root: str, numbers_settle: bool = False) -> Difference | None:
    """Where the static parts of two trees differ first, if they do; numbers may settle with numbers and arrays."""
    one, other = dict(_entries(first, root)), dict(_entries(second, root))
    for path, entry in one.items():
        other_entry = other.get(path)
        if other_entry is None:
            return Difference(path, entry.text, "nothing")
        if not entry.same(other_entry, numbers_settle):
            owner, _, name = path.rpartition(".")
            # What a library keeps of its fields, such as their number, says less than the field.
            object_path = path if entry.has_fields_of(other_entry) else owner if name.startswith("_") else None
            field = None if object_path is None else _field_of_one(object_path, one, other)
            return field or Difference(path, entry.text, other_entry.text, alike(entry.text, other_entry.text))
    return next((Difference(path, "nothing", entry.text) for path, entry in other.items() if path not in one), None)


def _field_of_one(path: str, one: Mapping[str, _Entry], other: Mapping[str, _Entry]) -> Difference | None:
    """The first field below a path that only one of two objects of a class has."""
    paths = (at for at in (*one, *other) if at.startswith((f"{path}.", f"{path}[")) and (at in one) != (at in other))
    below = next(paths, None)
    if below is None:
        return None
    return Difference(below, *(each[below].text if below in each else "nothing" for each in (one, other)))


class ArrayType(NamedTuple):
    """What an array is except its values; a Python number is one of weak type."""

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
    """A number as Python shows it, an array by its type."""
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
    """Has jax's messages name the user's function and its parameters for a function of `Arrays` of its arguments."""
    if inspect.isroutine(function):
        functools.update_wrapper(body, function, assigned=(), updated=())
    return body


_T = TypeVar("_T")


class Carry:
    """A carry with the types that its arrays have in this trace of a loop."""

    def __init__(self, tree: Any, root: str, step: str, changed_numbers: tuple[str, ...] = ()):
        self._tree = tree
        self._root = root
        self._step = step
        self._changed_numbers = changed_numbers
        leaves, self._spec = _core.flatten(tree, root)
        self._types = list(map(array_type, leaves))
        self.arrays = Arrays.of(leaves, self._spec, root)
        self.promotions: dict[str, ArrayType] = {}  # the types that a step makes of leaves, where they are others

    def has_promotable_leaves(self) -> bool:
        """Whether it has Python numbers or arrays of weak type, which a step may turn into arrays of other types."""
        return any(type.weak for type in self._types) or any(
            map(is_number, flat_partition(self._tree, True)[1].values())
        )

    def rebuilt(self, arrays: Arrays) -> Any:
        return self._spec.rebuild(arrays.leaves)

    def arrays_after(self, after: Any, before: Arrays) -> Arrays:
        """The arrays that a step has made of those before, of the same types; those before where there are
        promotions.
        """
        leaves, spec = _core.flatten(after, self._root)
        if spec == self._spec and self._types == list(map(array_type, leaves)):
            return Arrays(leaves, self.arrays.paths)
        difference = first_difference(Flat(self._spec, self._types), Flat(spec, leaves), self._root, True)
        if difference is not None:
            self._fail(difference)
        old = flat_partition(self._tree, True)[1]
        spec, new, _ = flat_partition(after, True)
        self.promotions = {}
        for path, value in old.items():
            is_static = not (_core.is_array(value) or _core.is_array(new[path]))
            if is_static and (not is_number(value) or _core.static_equal(value, new[path])):
                continue
            type = joined(array_type(value), array_type(new[path]))
            if type is None:
                self._fail(Difference(self._root + path, value_text(value), value_text(new[path])))
            if is_number(value) or array_type(value) != type:
                self.promotions[path] = type
            elif is_number(new[path]) or array_type(new[path]) != type:
                new[path] = converted(new[path], type)
        if self.promotions:
            return before
        return Arrays(_core.flatten(flat_combine(spec, new), self._root)[0], self.arrays.paths)

    def promoted(self) -> "Carry":
        spec, leaves, _ = flat_partition(self._tree, True)
        numbers = tuple(self._root + path for path in self.promotions if is_number(leaves[path]))
        leaves |= {path: converted(leaves[path], type) for path, type in self.promotions.items()}
        return Carry(flat_combine(spec, leaves), self._root, self._step, self._changed_numbers + numbers)

    def explain(self, error: BaseException) -> None:
        """Adds to an error of a step which Python numbers are arrays in it."""
        if self._changed_numbers:
            paths = ", ".join(f"`{path}`" for path in self._changed_numbers)
            error.add_note(f"partax: {paths}: a Python number that {self._step} changes, and so an array in it")

    def _fail(self, difference: Difference) -> NoReturn:
        raise TypeError(
            f"`{difference.path}`: {difference.first} before {self._step}, {difference.second} after it"
            f"{difference.note}; only the values of arrays may change from one step to the next"
        )


def run_with_promoted_carry(init: Any, run: Callable[[Carry], _T], root: str = "carry", step: str = "the step") -> _T:
    """Runs a loop with a carry whose types a step gives back. Where the carry has Python numbers or weak types, the
    loop is traced without running it first, until no type is promoted: each trace makes one leaf more an array, its
    dtype a wider one, or its type strong, so it ends. Messages call a step `step`, and paths into the carry begin with
    `root`.
    """
    carry = Carry(init, root, step)
    try:
        while carry.has_promotable_leaves():
            with jax.disable_jit(False):  # else a loop would really run
                jax.eval_shape(functools.partial(_run_without_result, run, carry))
            if not carry.promotions:
                break
            carry = carry.promoted()
        return run(carry)
    except jax.errors.ConcretizationTypeError as error:
        carry.explain(error)
        raise


def _run_without_result(run: Callable[[Carry], Any], carry: Carry) -> None:
    run(carry)
