"""What loops and branches carry: arrays as jax sees them, the types that they settle to, and the static part."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from partax import _core
from partax._pytree.array_text import array_text
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._transforms.tree_differences import Difference, Flat, first_difference, is_number, unsteady


class ArrayType(NamedTuple):
    """What an array is but for its values; a Python number is one of weak type."""

    shape: tuple[int, ...]
    dtype: Any
    weak: bool

    @property
    def text(self) -> str:
        return f"{array_text(self)}{' of weak type' if self.weak else ''}"


class Unsettled(Exception):
    """The leaves at these paths have to have other types, and what `owner` belongs to is traced with them again."""

    def __init__(self, owner: Any, types: Mapping[str, ArrayType]):
        self.owner = owner
        self.types = types


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
    lambda it: (list(zip(it.paths, it.leaves, strict=True)), it.paths),
    lambda paths, leaves: Arrays(list(leaves), paths),
)


def in_place_of(function: Callable[..., Any], body: _F) -> _F:
    """Has jax's messages name the user's function and its parameters for a function of `Arrays` of its arguments."""
    if inspect.isroutine(function):
        functools.update_wrapper(body, function, assigned=(), updated=())
    return body


_T = TypeVar("_T")


class Carry:
    """A carry with the types that it has in this attempt."""

    def __init__(self, tree: Any, root: str, step: str, changed_numbers: tuple[str, ...] = ()):
        self._tree = tree
        self._root = root
        self._step = step
        self._changed_numbers = changed_numbers
        leaves, self._spec = _core.flatten(tree, root)
        self._types = list(map(array_type, leaves))
        self.arrays = Arrays.of(leaves, self._spec, root)

    def rebuilt(self, arrays: Arrays) -> Any:
        return self._spec.rebuild(arrays.leaves)

    def settled(self, after: Any) -> Arrays:
        """The arrays that a step has made of the carry, of the types that it had before. Raises `Unsettled` where it
        has to begin with others.
        """
        leaves, spec = _core.flatten(after, self._root)
        if spec == self._spec and self._types == list(map(array_type, leaves)):
            return Arrays(leaves, self.arrays.paths)
        difference = first_difference(Flat(self._spec, self._types), Flat(spec, leaves), self._root, True)
        if difference is not None:
            self._fail(difference)
        return Arrays(self._with_types(after), self.arrays.paths)

    def _with_types(self, after: Any) -> list[Any]:
        before = flat_partition(self._tree, True)[1]
        spec, now, _ = flat_partition(after, True)
        other: dict[str, ArrayType] = {}
        for path, value in before.items():
            is_static = not (_core.is_array(value) or _core.is_array(now[path]))
            if is_static and (not is_number(value) or _core.static_equal(value, now[path])):
                continue
            together = joined(array_type(value), array_type(now[path]))
            if together is None:
                self._fail(Difference(self._root + path, value_text(value), value_text(now[path])))
            if is_number(value) or array_type(value) != together:
                other[path] = together
            elif is_number(now[path]) or array_type(now[path]) != together:
                now[path] = converted(now[path], together)
        if other:
            raise Unsettled(self, other)
        leaves, made = _core.flatten(flat_combine(spec, now), self._root)
        if made != self._spec:
            self._fail(unsteady(self._root))
        return leaves

    def promoted(self, types: Mapping[str, ArrayType]) -> "Carry":
        spec, leaves, _ = flat_partition(self._tree, True)
        numbers = tuple(self._root + path for path in types if is_number(leaves[path]))
        leaves |= {path: converted(leaves[path], type) for path, type in types.items()}
        return Carry(flat_combine(spec, leaves), self._root, self._step, self._changed_numbers + numbers)

    def explain(self, error: BaseException) -> None:
        """Adds to an error of a step which Python numbers are arrays in it."""
        if self._changed_numbers:
            paths = ", ".join(f"`{path}`" for path in self._changed_numbers)
            error.add_note(f"partax: {paths}: a Python number that {self._step} changes, and so an array in it")

    def _fail(self, found: Difference) -> NoReturn:
        raise TypeError(
            f"`{found.path}`: {found.first} before {self._step}, {found.second} after it{found.note}; only the values "
            "of arrays may change from one step to the next"
        )


def until_settled(init: Any, run: Callable[[Carry], _T], root: str = "carry", step: str = "the step") -> _T:
    """Runs a loop with a carry whose types are promoted until a step gives them back.

    Each attempt makes one leaf more an array, its dtype a wider one, or its type strong, so it ends. Messages call a
    step `step`, and paths into the carry begin with `root`.
    """
    carry = Carry(init, root, step)
    while True:
        try:
            return run(carry)
        except Unsettled as unsettled:
            if unsettled.owner is not carry:
                raise
            types = unsettled.types
        except jax.errors.ConcretizationTypeError as error:
            carry.explain(error)
            raise
        carry = carry.promoted(types)
