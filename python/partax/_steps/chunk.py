"""A chunk: a function of a step's arguments and of stacked batches that scans the step."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from partax import _core
from partax._core import JitFunction
from partax._jit.at_work import during
from partax._jit.lost_changes import makes_changes, refuse_lost, watch_named
from partax._steps.places import Places, find_carry, part_at, with_parts
from partax._transforms.carry import in_place_of
from partax._transforms.loops import scan

VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_OBJECTS = "objects of Flax"  # the name of their state in the carry of the scan; no argument can have it


def bind_arguments(signature: inspect.Signature, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return values by name as arguments of a call: by position if possible, as options may mean positions."""
    names = [one.name for one in signature.parameters.values() if one.name in values and one.kind not in VARIABLE]
    bound = inspect.BoundArguments(signature, {name: values[name] for name in names})  # type: ignore[arg-type]
    return bound.args, {**bound.kwargs, **{name: values[name] for name in sorted(values.keys() - set(names))}}


class Settings(NamedTuple):
    carry: Places | None
    batch_names: tuple[str, ...]
    size: int
    unroll: int
    has_graph: bool  # of objects of Flax, which steps change in place


def chunk_of(step: JitFunction[..., Any], settings: Settings) -> JitFunction[..., Any]:
    function = step.__wrapped__
    chunk: Any = _Chunk(function, settings)
    # Options, such as `donate`, and messages mean arguments by these names.
    parameters = inspect.signature(function).parameters.values()
    chunk.__signature__ = inspect.Signature([inspect.Parameter(one.name, one.kind) for one in parameters])
    chunk.__name__ = chunk.__qualname__ = f"{getattr(function, '__name__', 'step')}_steps"
    chunk.__module__ = getattr(function, "__module__", __name__)
    return _core.make_jit_function(chunk, step._options)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class _Chunk:
    """A tree, so that the arrays of a step that is a tree or a method of one are read at each call."""

    step: Callable[..., Any]
    settings: Settings = dataclasses.field(metadata={"static": True})

    def __call__(self, /, *args: Any, **kwargs: Any) -> tuple[Places, dict[str, Any], Any]:
        """Return the carried places, their values after the last step, and the rest of the results, stacked."""
        signature = inspect.signature(self.step)
        values = dict(zip(signature.parameters, args, strict=False)) | kwargs
        batches = {name: values.pop(name) for name in self.settings.batch_names}
        objects, candidates = None, values
        if self.settings.has_graph:
            from partax._steps.objects import split_arguments

            objects, candidates = split_arguments(values, batches)
        fixed = {name: value for name, value in values.items() if name in candidates}
        leaves, structure = _core.tree_flatten(fixed, None)
        places = Places()

        def call_step(carry: dict[str, Any], batch: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            """Return the result of a step, and the state of the objects after it."""
            carried = dict(carry)
            copies = objects.copies(carried.pop(_OBJECTS)) if objects else {}
            # Flax's Variables have to be of the trace that they are used in.
            arguments = {**_core.tree_unflatten(structure, leaves), **batch, **carried}
            contents = watch_named(arguments.items())
            by_position, by_name = bind_arguments(signature, {**arguments, **copies})
            with during(makes_changes, True):
                result = self.step(*by_position, **by_name)
            refuse_lost(contents, result)
            return result, {_OBJECTS: objects.state_after(copies, result)} if objects else {}

        def infer(state: dict[str, Any], batch: dict[str, Any]) -> tuple[dict[str, Any], None]:
            nonlocal places
            result, state = call_step(state, batch)
            places = find_carry(candidates, result, self.settings.carry, objects.names if objects else ())
            return state, None

        def scan_step(carry: dict[str, Any], batch: dict[str, Any]) -> tuple[dict[str, Any], Any]:
            result, state = call_step(carry, batch)
            carried = {name: part_at(result, path) for path, name in places}
            return {**carried, **state}, with_parts(result, {path: None for path, _ in places})

        bodies: tuple[Any, Any] = infer, scan_step
        for body in bodies:  # which jax's messages call the step, with the names of the body's arguments
            body.__signature__ = inspect.signature(body)
            in_place_of(self.step, body)
        run = functools.partial(scan, xs=batches, length=self.settings.size)
        jax.eval_shape(lambda: run(infer, {_OBJECTS: objects.state} if objects else {}))
        if objects:  # Variables that are carried are not changed in place
            objects = objects.without({name for _, name in places})
        begin = {name: values[name] for _, name in places} | ({_OBJECTS: objects.state} if objects else {})
        last, rest = run(scan_step, begin, unroll=self.settings.unroll)
        if objects:
            objects.update(last.pop(_OBJECTS))
        return places, last, rest
