"""The arrays of a tree as jax sees them inside a loop or a branch: in a row, each with its path in the tree."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax

from partax import _core

_F = TypeVar("_F", bound=Callable[..., Any])


@jax.tree_util.register_pytree_with_keys_class
class Arrays:
    """A node of arrays whose paths jax shows where an argument is meant."""

    def __init__(self, leaves: Sequence[Any], paths: tuple[str, ...]):
        self.leaves = leaves
        self.paths = paths

    @classmethod
    def of(cls, leaves: Sequence[Any], spec: _core.TreeSpec, root: str) -> "Arrays":
        """The arrays of a tree that was flattened as `root`."""
        return cls(leaves, tuple(path.removeprefix(root) for path in spec.dynamic_paths()))

    def tree_flatten_with_keys(self) -> tuple[Any, tuple[str, ...]]:
        return list(zip(self.paths, self.leaves, strict=True)), self.paths

    @classmethod
    def tree_unflatten(cls, paths: tuple[str, ...], leaves: Sequence[Any]) -> "Arrays":
        return cls(leaves, paths)


def in_place_of(function: Callable[..., Any], body: _F) -> _F:
    """Has jax's messages name the user's function and its parameters for a function of `Arrays` of its arguments."""
    if inspect.isroutine(function):
        functools.update_wrapper(body, function, assigned=(), updated=())
    return body
