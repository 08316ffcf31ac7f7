"""What a loop carries from step to step: a tree whose static part stays, and whose types settle."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import jax

from partax import _core
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._transforms.carry_types import ArrayType, Unsettled, array_type, converted, joined, value_text
from partax._transforms.loop_arrays import Arrays
from partax._transforms.tree_differences import Difference, Flat, first_difference, is_number, unsteady

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
        """The carry with other arrays."""
        return self._spec.rebuild(arrays.leaves)

    def settled(self, after: Any) -> Arrays:
        """The arrays of the carry that a step has made, of the types that it had before.

        Raises:
          TypeError: its static part, a dtype or a shape differs; the message has the path and both.
          Unsettled: it has to begin with other types, for `until_settled`.
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
            if _stays_static(value, now[path]):
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
        """The carry with other types at some paths."""
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


def _stays_static(before: Any, after: Any) -> bool:
    if _core.is_array(before) or _core.is_array(after):
        return False
    return not is_number(before) or _core.static_equal(before, after)


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
