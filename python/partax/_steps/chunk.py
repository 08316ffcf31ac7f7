"""The function of a chunk: a loop of steps, which is called as the step is."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from partax._steps import places
from partax._steps.places import Places
from partax._transforms.loops import scan

VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def arguments(signature: inspect.Signature, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Values by name as the arguments of a call: by position as far as it goes, as options mean that too."""
    known = {
        name: values[name] for name, it in signature.parameters.items() if name in values and it.kind not in VARIABLE
    }
    bound = inspect.BoundArguments(signature, known)  # type: ignore[arg-type]
    more = {name: values[name] for name in sorted(values.keys() - known.keys())}  # as a wrapper has them
    return bound.args, {**bound.kwargs, **more}


def function_of_chunk(
    fun: Callable[..., Any], carried: Places, objects: tuple[str, ...], batch: tuple[str, ...], size: int, unroll: int
) -> Callable[..., Any]:
    """A chunk of a function: of the first step's arguments, of which it may change `objects` in place, and of stacked
    batches. It holds the step in a cell: a wrapper sees there that it has changed.
    """
    signature = inspect.signature(fun)

    def chunk(*args: Any, **kwargs: Any) -> Any:
        values = dict(zip(signature.parameters, args, strict=False)) | kwargs
        carry, batches = {name: values[name] for name in carried.values()}, {name: values[name] for name in batch}
        held: Any = None
        if objects:
            from partax._steps.objects import Held

            held = Held({name: values[name] for name in objects})
            carry[objects[0]] = held.state  # in the place of them all

        def step(carry: dict[str, Any], one: dict[str, Any]) -> tuple[dict[str, Any], Any]:
            made = held.made(carry[objects[0]]) if objects else {}
            by_position, by_name = arguments(signature, {**values, **carry, **made, **one})
            after, rest = places.taken_apart(carried, fun(*by_position, **by_name))
            return {**after, objects[0]: held.state_of(made, rest)} if objects else after, rest

        carry, rest = scan(step, carry, batches, length=size, unroll=unroll)
        if objects:
            held.update(carry[objects[0]])
        return places.put_together(carried, carry, rest)

    chunk.__name__ = chunk.__qualname__ = f"{getattr(fun, '__name__', 'step')}_steps"
    chunk.__module__ = getattr(fun, "__module__", __name__)
    # Options, such as `donate`, and messages mean arguments by these names.
    shown = [inspect.Parameter(it.name, it.kind) for it in signature.parameters.values()]
    chunk.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return chunk
