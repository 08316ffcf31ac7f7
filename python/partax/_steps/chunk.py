"""The function of a chunk: a loop of steps, with parameters of the step's own names."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from partax._steps import places
from partax._steps.places import Skeleton
from partax._transforms.loops import scan

Body = Callable[[dict[str, Any], dict[str, Any]], tuple[dict[str, Any], list[Any]]]
"""From what is carried and the other arguments of a step, by name, to what is carried and the rest of the result."""


def unnamed(fun: Callable[..., Any]) -> tuple[str, ...]:
    """The parameters of a function that take an argument by its position alone."""
    return tuple(it.name for it in inspect.signature(fun).parameters.values() if it.kind is it.POSITIONAL_ONLY)


def call(fun: Callable[..., Any], values: Mapping[str, Any], by_position: tuple[str, ...]) -> Any:
    """Calls a function with its arguments by name, but for those that are `unnamed`."""
    given = [values[it] for it in by_position if it in values]
    return fun(*given, **{it: values[it] for it in values if it not in by_position})


def with_parameters(fun: Callable[[dict[str, Any]], Any], named: Callable[..., Any], names: tuple[str, ...]) -> Any:
    """A function with these parameters, by position, that calls `fun` with them by name; else like `named`.

    The options of a wrapper, such as `donate`, mean parameters by their names and their order.
    """
    space: dict[str, Any] = {"__run__": fun, "__name__": getattr(named, "__module__", __name__)}
    given = ", ".join(f"{name!r}: {name}" for name in names)
    exec(f"def chunk({', '.join(names)}):\n    return __run__({{{given}}})", space)
    made = space["chunk"]
    made.__name__ = made.__qualname__ = f"{getattr(named, '__name__', 'step')}_steps"
    return made


def function_of_values(
    fun: Callable[..., Any], skeleton: Skeleton, batch: tuple[str, ...], size: int, unroll: int
) -> Callable[[dict[str, Any]], Any]:
    """A chunk of a function that returns what is carried: of the first step's arguments, and of stacked batches."""
    names = places.names_in(skeleton)

    def chunk(values: dict[str, Any]) -> Any:
        others = {name: it for name, it in values.items() if name not in names and name not in batch}

        def step(carried: dict[str, Any], one: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
            return places.taken_apart(skeleton, call(fun, {**others, **carried, **one}, unnamed(fun)))

        first, batches = {name: values[name] for name in names}, {name: values[name] for name in batch}
        carried, rest = scan(step, first, batches, length=size, unroll=unroll)
        return places.put_together(skeleton, carried, rest)

    return chunk
