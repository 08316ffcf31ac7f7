"""A chunk of steps that change objects of Flax nnx: these are carried as their state, and changed once."""

from collections.abc import Callable
from typing import Any

from flax import nnx

from partax._steps import places
from partax._steps.chunk import call, unnamed
from partax._steps.places import Skeleton
from partax._transforms.loops import scan


def holds_objects(value: Any) -> bool:
    """Whether an argument is, or has in it, an object or a Variable that a step may change in place."""
    return any(isinstance(it, (nnx.Object, nnx.Variable)) for _, it in nnx.iter_graph(value))


def function_of_objects(
    fun: Callable[..., Any],
    skeleton: Skeleton | None,
    objects: tuple[str, ...],
    batch: tuple[str, ...],
    size: int,
    unroll: int,
) -> Callable[[dict[str, Any]], Any]:
    """A chunk of a function that changes some of its arguments in place, and may return others that are carried.

    Args:
      skeleton: of its result; None where nothing of that is carried.
      objects: the names of those that it may change.
    """
    names = [] if skeleton is None else places.names_in(skeleton)

    def chunk(values: dict[str, Any]) -> Any:
        known = {*names, *objects, *batch}
        others = {name: it for name, it in values.items() if name not in known}
        held = {name: values[name] for name in objects}
        graph, state = nnx.split(held)

        def step(carry: tuple[Any, dict[str, Any]], one: dict[str, Any]) -> tuple[Any, Any]:
            state, carried = carry
            made = nnx.merge(graph, state)
            result = call(fun, {**others, **made, **carried, **one}, unnamed(fun))
            after, state = nnx.split(made)
            if after != graph:
                raise TypeError(
                    f"found a step that changes more of {', '.join(f'`{it}`' for it in objects)} than the values of "
                    "Variables, expected no other attributes, modules or numbers after it; call it step by step"
                )
            if skeleton is None:
                return (state, carried), [result]
            carried, rest = places.taken_apart(skeleton, result)
            return (state, carried), rest

        first, batches = {name: values[name] for name in names}, {name: values[name] for name in batch}
        (state, carried), rest = scan(step, (state, first), batches, length=size, unroll=unroll)
        nnx.update(held, state)
        return rest[0] if skeleton is None else places.put_together(skeleton, carried, rest)

    return chunk
