"""Batches: taken from an iterator by value, and stacked, on the host where they are there."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from partax import _core
from partax._transforms.carry import ArrayType, Flat, first_difference
from partax._transforms.loops import Results


class Taken(NamedTuple):
    """Batches as they were when they were taken: for each leaf the values in one buffer, or jax's arrays."""

    size: int
    spec: _core.TreeSpec
    columns: list[Any]

    def first(self) -> dict[str, Any]:
        return self.spec.rebuild([it[0] if isinstance(it, list) else it[0, ...] for it in self.columns])

    def stacked(self, part: slice) -> dict[str, Any]:
        """Some of them as one tree whose arrays have one axis more."""
        columns = [it[part] for it in self.columns]
        on_device = iter(_each(jnp.stack, [tuple(it) for it in columns if isinstance(it, list)]))
        return self.spec.rebuild([next(on_device) if isinstance(it, list) else it for it in columns])


class Batches:
    def __init__(self, batches: Any, size: int, names: tuple[str, ...]) -> None:
        # What the iterator has raised, or what is wrong with a batch: nothing is taken after it.
        self.error: BaseException | None = None
        self._iterator: Iterator[Any] = iter(batches)
        self._size, self._names, self._taken = size, names, 0
        self._first: Flat | None = None
        self._other: list[Any] | None = None  # of a batch of other shapes, which is taken by itself

    def take(self) -> Taken | None:
        """The next batches; fewer at the end, or before an error or a batch of other shapes than the first, which comes
        by itself. None where there are none.
        """
        if self._other is not None and self._first is not None:
            columns, self._other = [[it] if isinstance(it, jax.Array) else it[None] for it in self._other], None
            return Taken(1, self._first.spec, columns)
        columns, count = list[Any](), 0
        while count < self._size and self.error is None:
            try:
                leaves, is_like_first = self._leaves(self._named(next(self._iterator)))
                if not is_like_first:
                    self._taken += 1
                    self._other = [it if isinstance(it, jax.Array) else np.array(it) for it in leaves]
                    break
                columns = columns or [
                    [] if isinstance(it, jax.Array) else np.empty((self._size, *np.shape(it)), it.dtype)
                    for it in leaves
                ]
                # At once: the iterator may put the next batch into the same arrays.
                for column, leaf in zip(columns, leaves, strict=True):
                    if isinstance(column, list):
                        column.append(leaf if isinstance(leaf, jax.Array) else np.array(leaf))
                    else:
                        column[count] = leaf
                count += 1
                self._taken += 1
            except StopIteration:
                self._iterator = iter(())  # an iterator may begin again after its end
                break
            except BaseException as error:
                self.error = error
        if not count and self._other is not None:
            return self.take()
        return None if not count or self._first is None else Taken(count, self._first.spec, columns)

    def _named(self, batch: Any) -> dict[str, Any]:
        if len(self._names) == 1:
            return {self._names[0]: batch}
        if type(batch) is tuple and len(batch) == len(self._names):
            return dict(zip(self._names, batch, strict=True))
        known = " and ".join(f"`{name}`" for name in self._names)
        fields = getattr(batch, "_fields", None)
        by_name = batch if fields is None else dict(zip(fields, batch, strict=True))
        if isinstance(by_name, Mapping) and (by_name is batch or not set(by_name).isdisjoint(self._names)):
            if set(by_name) != set(self._names):
                found = ", ".join(map(repr, by_name))
                raise TypeError(
                    f"batch {self._taken}: found the names {found or 'none'}, expected {known}, and no others"
                )
            return {name: by_name[name] for name in self._names}
        if not isinstance(batch, (tuple, list)) or len(batch) != len(self._names):
            count = f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
            raise TypeError(
                f"batch {self._taken}: found a `{type(batch).__name__}`{count}, expected a tuple of {len(self._names)}"
                f": the step takes {known}, which the call gives no values for"
            )
        return dict(zip(self._names, batch, strict=True))

    def _leaves(self, batch: dict[str, Any]) -> tuple[list[Any], bool]:
        """The arrays of a batch, and whether they have the shapes of those of the first."""
        expected = self._first
        leaves = None if expected is None else expected.spec.match(batch)
        if expected is None or leaves is None:
            leaves, spec = _core.flatten(batch, "batch")
            for i, leaf in enumerate(leaves):
                self._refuse_masked(i, leaf, spec)
            flat = Flat(spec, list(map(_type_of, leaves)))
            if expected is None:
                self._first = flat
                return leaves, True
            found = first_difference(expected, flat, "batch")
            told = "its static part" if found is None else f"`{found.path}`: found {found.second}"
            beside = "" if found is None else f", expected {found.first}, as in batch 0"
            raise TypeError(
                f"batch {self._taken}: {told}{beside}; batches are to differ in their arrays alone: make a number one, "
                "as `np.float32(1)`"
            )
        is_like_first = True
        for i, (leaf, first) in enumerate(zip(leaves, expected.arrays, strict=True)):
            if type(leaf) is np.ndarray and (leaf.shape, leaf.dtype, False) == first:
                continue
            self._refuse_masked(i, leaf, expected.spec)
            found = _type_of(leaf)
            if found._replace(shape=first.shape) != first:
                raise ValueError(
                    f"batch {self._taken}: `{expected.spec.dynamic_paths()[i]}`: found {found.text}, expected "
                    f"{first.text}, as in batch 0; batches may differ in their shapes alone"
                )
            is_like_first = is_like_first and found.shape == first.shape
        return leaves, is_like_first

    def _refuse_masked(self, i: int, leaf: Any, spec: _core.TreeSpec) -> None:
        if isinstance(leaf, np.ma.MaskedArray):
            raise TypeError(
                f"batch {self._taken}: `{spec.dynamic_paths()[i]}`: found a masked array, of which the mask would be "
                "lost, expected an array; give its `filled()`"
            )


def _type_of(leaf: Any) -> ArrayType:
    """As it is given, also where jax takes it for another dtype."""
    return ArrayType(np.shape(leaf), leaf.dtype, getattr(leaf, "weak_type", False))


@functools.partial(jax.jit, static_argnums=0)
def _each(combined: Any, columns: list[tuple[jax.Array, ...]]) -> list[jax.Array]:
    return [combined(column) for column in columns]


def joined_results(results: list[Any]) -> Any:
    """The results of several chunks as one: arrays one behind the other, all else as it is in each, or a TypeError."""
    joined = Results("result")
    return joined.rebuilt(_each(jnp.concatenate, list(zip(*map(joined.arrays, results), strict=True))))
