"""The function of a chunk: a loop of steps, which is called as the step is."""

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from partax._steps import places
from partax._steps.places import Skeleton
from partax._transforms.loops import scan

VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Layout(NamedTuple):
    """Which arguments a step is called with by position, and which by name, in its own order: options mean that too."""

    by_position: tuple[str, ...]
    by_name: tuple[str, ...]

    @classmethod
    def of(cls, fun: Callable[..., Any], names: Iterable[str]) -> "Layout":
        """That of a call with these arguments."""
        given = set(names)
        parameters = [it for it in inspect.signature(fun).parameters.values() if it.kind not in VARIABLE]
        positional = [it.name for it in parameters if it.kind is not it.KEYWORD_ONLY]
        by_position = tuple(itertools.takewhile(given.__contains__, positional))
        known = [it.name for it in parameters]
        in_order = [*(it for it in known if it in given), *sorted(given.difference(known))]  # as a wrapper has them
        return cls(by_position, tuple(in_order[len(by_position) :]))

    def arguments(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Values by name as the arguments of a call."""
        return tuple(values[it] for it in self.by_position), {it: values[it] for it in self.by_name}

    def call(self, fun: Callable[..., Any], values: Mapping[str, Any]) -> Any:
        """Calls a function with these values."""
        args, kwargs = self.arguments(values)
        return fun(*args, **kwargs)


def function_of_chunk(
    fun: Callable[..., Any],
    layout: Layout,
    skeleton: Skeleton,
    objects: tuple[str, ...],
    batch: tuple[str, ...],
    size: int,
    unroll: int,
) -> Callable[..., Any]:
    """A chunk of a function: of the first step's arguments, and of stacked batches.

    Args:
      fun: the step, which the chunk holds in a cell: a wrapper sees there that it has changed.
      layout: of a call of it, and so of the chunk.
      skeleton: of its result.
      objects: the names of the arguments that it may change in place.
      batch: the names of those that a batch gives.
      size, unroll: as of `steps`.
    """
    names = places.names_in(skeleton)

    def chunk(*args: Any, **kwargs: Any) -> Any:
        values = {**dict(zip(layout.by_position, args, strict=True)), **kwargs}
        carry, batches = {name: values[name] for name in names}, {name: values[name] for name in batch}
        held: Any = None
        if objects:
            from partax._steps.objects import Held

            held = Held({name: values[name] for name in objects})
            carry[objects[0]] = held.state  # in the place of them all

        def step(carry: dict[str, Any], one: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
            made = held.made(carry[objects[0]]) if objects else {}
            carried, rest = places.taken_apart(skeleton, layout.call(fun, {**values, **carry, **made, **one}))
            return {**carried, objects[0]: held.state_of(made)} if objects else carried, rest

        carry, rest = scan(step, carry, batches, length=size, unroll=unroll)
        if objects:
            held.update(carry[objects[0]])
        return places.put_together(skeleton, carry, rest)

    chunk.__name__ = chunk.__qualname__ = f"{getattr(fun, '__name__', 'step')}_steps"
    chunk.__module__ = getattr(fun, "__module__", __name__)
    # Options, such as `donate`, and messages mean arguments by these names.
    shown = [inspect.Parameter(it.name, it.kind) for it in inspect.signature(fun).parameters.values()]
    chunk.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return chunk
