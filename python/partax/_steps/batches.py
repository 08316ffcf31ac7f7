"""Batches: taken from an iterator, and stacked, on the host where they are there."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from partax import _core
from partax._pytree.array_text import array_text
from partax._transforms.loops import Results
from partax._transforms.tree_differences import Flat, first_difference


class Batches:
    """Takes so many batches at a time.

    Attributes:
      error: what the iterator has raised, or what is wrong with a batch, once that was met: nothing is taken after it.
    """

    def __init__(self, batches: Any, size: int, names: tuple[str, ...]) -> None:
        self.error: BaseException | None = None
        self._iterator: Iterator[Any] = iter(batches)
        self._size = size
        self._names = names
        self._spec: _core.TreeSpec | None = None
        self._first: list[Any] = []
        self._taken = 0

    def take(self) -> list[dict[str, Any]]:
        """The next batches, each as arguments by name; fewer at the end, or before an error."""
        taken: list[dict[str, Any]] = []
        self._rows: list[list[Any]] = []
        while len(taken) < self._size and self.error is None:
            try:
                batch = self._named(next(self._iterator))
                self._rows.append(self._leaves(batch))
                taken.append(batch)
                self._taken += 1
            except StopIteration:
                break
            except BaseException as error:
                self.error = error
        return taken

    def stacked(self) -> dict[str, Any]:
        """Those that were taken last, as one tree whose arrays have one axis more."""
        assert self._spec is not None
        columns = list(zip(*self._rows, strict=True))
        on_device = [i for i, column in enumerate(columns) if isinstance(column[0], jax.Array)]
        stacked: list[Any] = [None if isinstance(it[0], jax.Array) else np.stack(it) for it in columns]
        for i, array in zip(on_device, _stacked([columns[i] for i in on_device]), strict=True):
            stacked[i] = array
        self._rows = []
        return self._spec.rebuild(stacked)

    def _named(self, batch: Any) -> dict[str, Any]:
        if len(self._names) == 1:
            return {self._names[0]: batch}
        known = " and ".join(f"`{name}`" for name in self._names)
        if isinstance(batch, Mapping) and set(batch) == set(self._names):
            return {name: batch[name] for name in self._names}
        if not isinstance(batch, (tuple, list)) or len(batch) != len(self._names):
            raise TypeError(
                f"batch {self._taken}: found a `{type(batch).__name__}`, expected a tuple of {len(self._names)}: the "
                f"step takes {known}, which the call gives no values for"
            )
        return dict(zip(self._names, batch, strict=True))

    def _leaves(self, batch: dict[str, Any]) -> list[Any]:
        if self._spec is None:
            self._first, self._spec = _core.flatten(batch, "batch")
            return self._first
        leaves = self._spec.match(batch)
        if leaves is None:
            leaves, spec = _core.flatten(batch, "batch")
            found = first_difference(Flat(self._spec, self._first), Flat(spec, leaves), "batch")
            told = "its static part" if found is None else f"`{found.path}`: found {found.second}"
            expected = "" if found is None else f", expected {found.first}, as in batch 0"
            raise TypeError(f"batch {self._taken}: {told}{expected}; batches are to differ in their arrays alone")
        for i, (leaf, first) in enumerate(zip(leaves, self._first, strict=True)):
            if np.shape(leaf) != np.shape(first) or leaf.dtype != first.dtype:
                path = self._spec.dynamic_paths()[i]
                raise ValueError(
                    f"batch {self._taken}: `{path}`: found {array_text(leaf)}, expected {array_text(first)}, as in "
                    f"batch 0; leave a smaller one out, or give it to the step itself"
                )
        return leaves


@jax.jit
def _stacked(columns: list[tuple[jax.Array, ...]]) -> list[jax.Array]:
    return [jnp.stack(column) for column in columns]


def stacked_results(results: list[list[Any]]) -> list[Any]:
    """The results of several steps as one: arrays stacked, all else as it is in each.

    Raises:
      TypeError: what is no array differs.
    """
    stacked = Results("result")
    rows = [stacked.arrays(result) for result in results]
    return stacked.rebuilt(_stacked([tuple(map(jnp.asarray, column)) for column in zip(*rows, strict=True)]))
