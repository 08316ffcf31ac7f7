"""Batches: copied from an iterator as they are given, and stacked, on the host where they are there."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from partax import _core
from partax._transforms.carry import ArrayType, Flat, first_difference
from partax._transforms.loops import Results


class Group(NamedTuple):
    """Some batches of equal shapes: the leaves of each."""

    spec: _core.TreeSpec
    rows: list[list[Any]]

    def stacked(self, part: slice) -> dict[str, Any]:
        """Some of them as one tree whose arrays have a new leading axis."""
        columns = list(zip(*self.rows[part], strict=True))
        on_device = iter(_combine_each(jnp.stack, [it for it in columns if isinstance(it[0], jax.Array)]))
        return self.spec.rebuild([next(on_device) if isinstance(it[0], jax.Array) else np.stack(it) for it in columns])


class Batches:
    def __init__(self, batches: Any, size: int, names: tuple[str, ...]) -> None:
        self.error: BaseException | None = None  # after which no more batches are taken
        self._iterator: Iterator[Any] = iter(batches)
        self._size, self._names, self._count = size, names, 0
        self._first: Flat | None = None
        self._odd: list[Any] | None = None  # the leaves of a batch of other shapes, which is a group of its own

    def take(self) -> Group | None:
        """The next batches; fewer at the end, and before an error or a batch of other shapes. None if none are left."""
        rows = list[list[Any]]()
        while len(rows) < self._size and self._odd is None and self.error is None:
            try:
                leaves, is_like_first = self._leaves(self._by_name(next(self._iterator)))
                # A copy: the iterator may put the next batch into the same arrays.
                leaves = [it if isinstance(it, jax.Array) else np.array(it) for it in leaves]
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
        return Group(self._first.spec, rows) if rows and self._first is not None else None

    def _by_name(self, batch: Any) -> dict[str, Any]:
        if len(self._names) == 1:
            return {self._names[0]: batch}
        by_name = batch._asdict() if hasattr(batch, "_asdict") else batch
        expected = " and ".join(f"`{name}`" for name in self._names)
        if isinstance(by_name, Mapping):
            if set(by_name) != set(self._names):
                names = ", ".join(map(repr, by_name)) or "none"
                raise TypeError(f"batch {self._count}: found the names {names}, expected {expected}, and no others")
            return {name: by_name[name] for name in self._names}
        if not isinstance(batch, (tuple, list)) or len(batch) != len(self._names):
            count = f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
            raise TypeError(
                f"batch {self._count}: found a `{type(batch).__name__}`{count}, expected a tuple of "
                f"{len(self._names)}, for {expected}, which the call gives no values for"
            )
        return dict(zip(self._names, batch, strict=True))

    def _leaves(self, batch: dict[str, Any]) -> tuple[list[Any], bool]:
        """The arrays of a batch, and whether they have the shapes of those of the first."""
        leaves, spec = _core.flatten(batch, "batch")
        flat = Flat(spec, list(map(_type_of, leaves)))
        first = self._first = self._first or flat
        difference = None if spec == first.spec else first_difference(first, flat, "batch")
        if difference is not None:
            raise TypeError(
                f"batch {self._count}: `{difference.path}`: found {difference.second}, expected {difference.first}, as "
                "in batch 0; batches may differ in their arrays alone: make a number one, as `np.float32(1)`"
            )
        for path, type, expected in zip(spec.dynamic_paths(), flat.arrays, first.arrays, strict=True):
            if type._replace(shape=expected.shape) != expected:
                raise ValueError(
                    f"batch {self._count}: `{path}`: found {type.text}, expected {expected.text}, as in batch 0; "
                    "batches may differ in their shapes alone"
                )
        return leaves, flat.arrays == first.arrays


def _type_of(leaf: Any) -> ArrayType:
    """As it is given, also where jax takes it for another dtype."""
    if isinstance(leaf, np.ma.MaskedArray):
        raise TypeError("found a masked array in a batch, expected an array without a mask; give its `filled()`")
    return ArrayType(np.shape(leaf), leaf.dtype, getattr(leaf, "weak_type", False))


@functools.partial(jax.jit, static_argnums=0)
def _combine_each(combine: Any, columns: list[tuple[jax.Array, ...]]) -> list[jax.Array]:
    return [combine(column) for column in columns]


def join_results(results: list[Any]) -> Any:
    """The results of several chunks as one: arrays concatenated, all else as it is in each, or a TypeError."""
    joined = Results("result")
    return joined.rebuilt(_combine_each(jnp.concatenate, list(zip(*map(joined.arrays, results), strict=True))))
