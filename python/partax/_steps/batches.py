"""Batches: copied from an iterator, and stacked: on the host if they are there."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from partax._pytree.short_text import short_text
from partax._transforms.split import Split, array_type, first_difference, is_same, is_typed


class Batches:
    def __init__(self, batches: Any, size: int, names: tuple[str, ...]) -> None:
        self.error: BaseException | None = None  # after which no more batches are taken
        self._iterator: Iterator[Any] = iter(batches)
        self._size, self._names, self._count = size, names, 0
        self._first: Split | None = None
        self._odd: list[Any] | None = None  # the leaves of a batch of other shapes, which is a group of its own

    def take(self) -> tuple[int, dict[str, Any]] | None:
        """Return the number of next batches, and these as one tree whose arrays have a new leading axis: fewer at the
        end, and before an error or a batch of other shapes. None if none are left.
        """
        rows = list[list[Any]]()
        while len(rows) < self._size and self._odd is None and self.error is None:
            try:
                leaves, is_like_first = self._leaves(self._by_name(next(self._iterator)))
                # A copy: the iterator may put the next batch into the same arrays.
                leaves = [leaf if isinstance(leaf, jax.Array) else np.array(leaf) for leaf in leaves]
                self._count += 1
                if is_like_first:
                    rows.append(leaves)
                else:
                    self._odd = leaves
            except StopIteration:
                self._iterator = iter(())  # an iterator may begin again after its end
                break
            except BaseException as error:
                self.error = error
        if not rows and self._odd is not None:
            rows, self._odd = [self._odd], None
        if not rows or self._first is None:
            return None
        columns = list(zip(*rows, strict=True))
        on_device = iter(_stack_each([column for column in columns if isinstance(column[0], jax.Array)]))
        arrays = [next(on_device) if isinstance(column[0], jax.Array) else np.stack(column) for column in columns]
        return len(rows), self._first.replace(arrays).tree

    def _by_name(self, batch: Any) -> dict[str, Any]:
        if len(self._names) == 1:
            return {self._names[0]: batch}
        by_name = batch._asdict() if hasattr(batch, "_asdict") else batch
        if isinstance(by_name, (tuple, list)) and len(by_name) == len(self._names):
            by_name = dict(zip(self._names, by_name, strict=True))
        if isinstance(by_name, Mapping) and set(by_name) == set(self._names):
            return {name: by_name[name] for name in self._names}
        names = " and ".join(f"`{name}`" for name in self._names)
        raise TypeError(f"batch {self._count}: found {short_text(by_name)}, expected {names}, in a tuple or by name")

    def _leaves(self, batch: dict[str, Any]) -> tuple[list[Any], bool]:
        """Return the arrays of a batch, and whether they have the shapes of those of the first."""
        split = Split.of(batch, root="batch")
        first = self._first = self._first or split
        if difference := first_difference(first, split, "batch", _is_alike):
            raise TypeError(
                f"batch {self._count}: `{difference.path}`: found {difference.second}, expected {difference.first}, as "
                "in batch 0; make arrays of numbers, as shapes of arrays are all that may differ"
            )
        leaves = list(split.leaves.values())
        return leaves, list(map(np.shape, leaves)) == list(map(np.shape, first.leaves.values()))


def _is_alike(leaf: Any, other: Any) -> bool:
    """Return whether two leaves are arrays that differ only in their shapes, or equal static values."""
    if is_typed(leaf) and is_typed(other):
        return array_type(leaf)[1:] == array_type(other)[1:]
    return is_same(leaf, other)


@jax.jit
def _stack_each(columns: list[tuple[jax.Array, ...]]) -> list[jax.Array]:
    return [jnp.stack(column) for column in columns]
