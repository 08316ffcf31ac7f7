"""A call as a function of its arrays alone, which is what jax can take."""

from collections.abc import Callable
from typing import Any

from partax import _core
from partax._partition.filters import FilterSpec, is_array
from partax._partition.partition import combine, partition

# The arrays of a result, and the rest of it as a node without leaves.
Split = tuple[Any, "_core.Static[Any]"]


def on_arrays(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], taken: FilterSpec = is_array
) -> tuple[Callable[[Any], Split], Any]:
    """A call as a function of its arrays.

    Args:
      fun: what is called; its own arrays are those of the call too.
      args: the positional arguments.
      kwargs: the named arguments.
      taken: the filter of what becomes an argument.

    Returns:
      The function, which returns a `Split`, and its argument.
    """
    arrays, static = partition((fun, args, kwargs), taken)

    def run(arrays: Any) -> Split:
        function, positional, named = combine(arrays, static)
        return split(function(*positional, **named))

    return run, arrays


def split(value: Any) -> Split:
    """The arrays of a value, and the rest of it."""
    arrays, static = partition(value, is_array)
    return arrays, _core.Static(static)


def joined(result: Split) -> Any:
    """What was split."""
    return combine(result[0], result[1].value)
