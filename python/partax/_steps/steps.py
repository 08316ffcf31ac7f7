"""`steps`: a compiled function as a loop of so many of its steps in one call."""

import dataclasses
import inspect
import math
import threading
import time
import types
import weakref
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from partax import _core
from partax._core import JitFunction
from partax._jit.lost_changes import make_changes, refuse_lost, watch_named
from partax._jit.methods import compile_call
from partax._pytree.call_site import call_site
from partax._pytree.short_text import short_text
from partax._report.explain import explaining, report_line
from partax._report.report import StepsReport
from partax._steps import places
from partax._steps.batches import Batches, Taken, joined_results
from partax._steps.places import Place, Places
from partax._transforms.carry import Arrays, in_place_of
from partax._transforms.loops import scan
from partax._transforms.on_arrays import joined, split


def steps(
    step: JitFunction[..., Any], size: int, *, carry: Sequence[str] | Mapping[str, Place] | None = None, unroll: int = 1
) -> "Steps":
    """So many steps of a compiled function in one call: for steps that are shorter than their dispatch.

    Example:
      >>> @partax.filter_jit
      ... def step(weight, x):
      ...     return {"w": weight["w"] - 0.5 * x}, (weight["w"] * x).sum()
      >>> run = partax.steps(step, 2)
      >>> for weight, losses in run({"w": jnp.ones(2)}, over=[jnp.ones(2)] * 4):
      ...     print(losses)
      [2. 1.]
      [ 0. -1.]

    Called with the arguments of a step but for the batch, and with the batches as `over`, it gives an iterator: of each
    chunk of steps the result that the last one has, in which what is not carried is stacked along a new leading axis.
    What does not fill a chunk at the end is run step by step, and a batch of other shapes than the first, as a short
    last one, by itself. The batches of a chunk are taken and stacked while the chunk before it runs, and count as they
    were when they were taken. If taking one raises, what has been taken is run and handed out first. A change of what
    the step holds, and its `clear_cache`, count from the next chunk on.

    What a step returns is carried, as that argument of the next step, if it and the argument have each other's
    structure and types and nothing else has, or if its key or field, beside all others like it, is the argument's name;
    any doubt is an error. An array alone that is no key, and scalars alone beside other arguments, need `carry`; a key
    that comes back is carried. All other arguments stay what they are, and so do Python numbers that no array is
    beside, unless `carry` names them; where a step returns another number for one of these, that is an error. The
    objects of Flax that `partax.nnx.jit` changes in place are changed once a chunk; a tree of Variables alone is
    carried where other Variables come back. Types settle as in `filter_scan`.

    Args:
      step: what `filter_jit` or `partax.nnx.jit` returned; its options, such as `donate`, are those of the chunk.
      size: how many steps make a chunk.
      carry: the names of the arguments that are carried; or, where these leave a doubt, a dictionary from the name to
        its place in the result: a position, a key, or a tuple of these. None to find them.
      unroll: as of `jax.lax.scan`.

    Returns:
      A function of the arguments of the first step.

    Raises:
      TypeError: `step` is no compiled function, or a method of an object of Flax. When called: a step takes more
        arguments than the call and a batch give; what is to be carried comes back with another structure, dtype or
        shape; batches differ in more than the values of their arrays, or hold objects of Flax or masked arrays; a
        result has one of the arguments; an argument is a `jax.Ref`. The message has the path.
      ValueError: `size` is not positive. When called: nothing is carried, or it could be one or the other; plain
        `filter_jit` would lose what a step changes in an object of Flax.
    """
    if not isinstance(step, JitFunction):
        raise TypeError(
            f"`step`: found a `{type(step).__name__}`, expected what `filter_jit` or `partax.nnx.jit` returned; what "
            "is bound to one goes with each call"
        )
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ValueError(f"`size`: found {short_text(size)}, expected a positive number of steps")
    if step._options.graph is not None:
        from partax._steps.objects import refuse_method

        refuse_method(step.__wrapped__)
    if step._options.in_shardings is not None or step._options.out_shardings is not None:
        raise ValueError(
            "`step`: found one with in_shardings or out_shardings, expected none; place its arguments by "
            "`filter_shard`, which the program keeps"
        )
    if isinstance(carry, str):
        carry = (carry,)
    are_names = isinstance(carry, Collection) and all(isinstance(it, str) for it in carry)
    if isinstance(carry, Mapping):
        keys = [key for it in carry.values() for key in (it if isinstance(it, (tuple, list)) else (it,))]
        are_names = are_names and all(isinstance(it, (int, str)) for it in keys)
    if carry is not None and not are_names:
        raise TypeError(
            f"`carry`: found {short_text(carry)}, expected names of arguments, or a dictionary from these to places, "
            "each a position, a key, or a tuple of these"
        )
    if not isinstance(unroll, int):
        raise TypeError(f"`unroll`: found {short_text(unroll)}, expected a positive number of steps")
    return Steps(step, size, carry, unroll)


class Steps:
    def __init__(self, step: JitFunction[..., Any], size: int, carry: Any, unroll: int) -> None:
        self._step, self._size, self._carry, self._unroll = step, size, carry, unroll
        self._plans: dict[tuple[Any, ...], _Plan] = {}
        self._lock = threading.Lock()  # of the plans, and what they hold

    def __reduce__(self) -> tuple[Any, ...]:
        return Steps, (self._step, self._size, self._carry, self._unroll)

    def __repr__(self) -> str:
        return f"<partax.steps of {self._size} of {self._step!r}>"

    def __call__(self, /, *args: Any, over: Any, **kwargs: Any) -> "Run":
        """Begins.

        Args:
          args, kwargs: the arguments of the first step, but for the batch.
          over: the batches, any iterable of trees of equal structures, dtypes and shapes. Where the step takes several
            arguments that are not given, a batch is a tuple of these, or a dictionary by their names.

        Returns:
          An iterator over the chunks; it has a length where `over` has one.

        Raises:
          TypeError: `over` is no iterable, or a dictionary, of which the keys would be the batches.
        """
        is_iterable = any(hasattr(type(over), name) for name in ("__iter__", "__getitem__"))
        if isinstance(over, (Mapping, str, bytes)) or not is_iterable:
            raise TypeError(f"`over`: found a `{type(over).__name__}`, expected an iterable with a batch for each step")
        return Run(self, *self._bound(args, kwargs), over)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The arguments that are given by name, and the names of those that a batch gives."""
        name, signature = self._step.__name__, inspect.signature(self._step.__wrapped__)
        try:
            given = dict(signature.bind_partial(*args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError(f"{name}{signature} cannot be called so: {error}") from None
        parameters = signature.parameters
        for it in [it for it in parameters.values() if it.kind in VARIABLE and it.name in given]:
            more = given.pop(it.name)
            if it.kind is it.VAR_POSITIONAL:
                raise TypeError(f"found {len(more)} arguments for `*{it.name}`, expected arguments with names")
            for twice in more.keys() & parameters.keys() - {it.name}:
                raise TypeError(f"found {twice!r} by name, which {name}{signature} takes by position too")
            given.update(more)
        required = [it for it in parameters.values() if it.kind not in VARIABLE and it.default is it.empty]
        batch = tuple(it.name for it in required if it.name not in given)
        if not batch:
            raise TypeError(f"found a value for each parameter of {name}{signature}, expected one left for the batch")
        return given, batch

    def plan(self, values: dict[str, Any], batch: dict[str, Any]) -> "_Plan":
        """How steps with these arguments go together; for arguments like earlier ones it is known."""
        args, kwargs = arguments(inspect.signature(self._step.__wrapped__), {**values, **batch})
        call = _core.PreparedCall(self._step, args, kwargs, True)
        # It is another one where the step has changed what it holds, and after `clear_cache`.
        target = weakref.ref(call.run(lambda target, _: target))
        types = tuple((np.shape(it), getattr(it, "dtype", type(it))) for it in call.leaves)
        key = target, types, tuple(values), tuple(batch)
        with self._lock:
            if key not in self._plans:
                for gone in [it for it in self._plans if it[0]() is None]:
                    for chunk in self._plans.pop(gone).chunks.values():
                        chunk.clear_cache()
                self._plans[key] = self._new_plan(target, values, batch)
            return self._plans[key]

    def _new_plan(self, target: "weakref.ref[Any]", values: dict[str, Any], batch: dict[str, Any]) -> "_Plan":
        for name, value in values.items():
            leaves, spec = _core.flatten(value, name)
            for path, leaf in zip(spec.dynamic_paths(), leaves, strict=True):
                if isinstance(leaf, jax.Ref):
                    raise TypeError(f"`{path}`: found a `jax.Ref`, expected an array; return what the step makes of it")
        objects, others = tuple[str, ...](), values
        if self._step._options.graph is not None:
            from partax._steps.objects import are_variables_alone, objects_in, refuse_objects

            refuse_objects(batch)
            objects = tuple(name for name, value in values.items() if objects_in(value))
            others = {name: it for name, it in values.items() if name not in objects or are_variables_alone(it)}
        return _Plan(target, tuple(others), objects, tuple(batch))

    def chunk(self, plan: "_Plan", size: int) -> JitFunction[..., Any]:
        with self._lock:
            if size not in plan.chunks:
                named = plan.others, self._carry, plan.objects, plan.batch
                made = function_of_chunk(self._step.__wrapped__, *named, size, self._unroll)
                plan.chunks[size] = _core.make_jit_function(made, self._step._options)
            return plan.chunks[size]


@dataclasses.dataclass
class _Plan:
    program: "weakref.ref[Any]"  # refers to what the step's wrapper calls; it is gone after `clear_cache`
    others: tuple[str, ...]  # the names of arguments that are not only changed in place
    objects: tuple[str, ...]  # the names of the arguments that are changed in place
    batch: tuple[str, ...]  # the names of those that a batch gives
    chunks: dict[int, JitFunction[..., Any]] = dataclasses.field(default_factory=dict)  # by the number of steps


class Run(Iterator[Any]):
    """A loop of steps: an iterator over its chunks, for one use. `close` ends it."""

    def __init__(self, steps: Steps, values: dict[str, Any], batch: tuple[str, ...], over: Any) -> None:
        self._size, self._over = steps._size, over
        # It does not refer to this object: both are gone with the last reference, as after a `break`.
        self._iterator = _Loop(steps, values).chunks(over, batch)

    def __len__(self) -> int:
        return math.ceil(len(self._over) / self._size)

    def __bool__(self) -> bool:
        return True  # also where it has no length

    def __next__(self) -> Any:
        return next(self._iterator)

    def close(self) -> None:
        self._iterator.close()


class _Loop:
    def __init__(self, steps: Steps, values: dict[str, Any]) -> None:
        self._steps, self._values = steps, values

    def chunks(self, over: Any, names: tuple[str, ...]) -> Generator[Any]:
        size = self._steps._size
        batches = Batches(over, size, names)
        taken = batches.take()
        plan: _Plan | None = None
        # A chunk is compared with as many single steps once: the first is run step by step, the second as one.
        is_measured, single = explaining() and size > 1, 0.0
        while taken is not None:
            if plan is None or plan.program() is None:
                plan = self._steps.plan(self._values, taken.first())
            if taken.size < size or (is_measured and not single):
                result, single = self._one_by_one(plan, taken, is_measured)
            else:
                _, result = self._together(plan, taken.stacked(slice(None)), size, single if is_measured else 0.0)
                is_measured = False
            taken = batches.take()  # beside the chunk
            yield result
        if batches.error is not None:
            raise batches.error

    def _together(self, plan: _Plan, batches: dict[str, Any], size: int, single: float = 0.0) -> tuple[Places, Any]:
        """Runs a chunk; what is carried of its result, and the result."""
        chunk = self._steps.chunk(plan, size)
        args, kwargs = arguments(inspect.signature(chunk.__wrapped__), {**self._values, **batches})
        if single:
            compile_call(chunk, args, kwargs)
        begin = time.perf_counter()
        found, result = chunk(*args, **kwargs)
        if single:
            jax.block_until_ready(result)
            step, measured = self._steps._step, StepsReport(size, (time.perf_counter() - begin) / size, single)
            report_line(call_site(), f"{step.__name__}: {measured}")
            if step._cache.history is not None:
                step._cache.history.steps.append(measured)
        carried = dict(found)
        self._values |= places.taken_apart(carried, result)[0]
        return carried, result

    def _one_by_one(self, plan: _Plan, taken: Taken, is_measured: bool) -> tuple[Any, float]:
        """Chunks of one step, in which numbers settle as in the others, and the seconds of one."""
        carried, rest, begin = dict[Any, str](), list[Any](), 0.0
        warm = min(2, taken.size - 1)  # each of two may be compiled: the second has numbers that have settled
        for i in range(taken.size):
            if is_measured and i == warm:
                jax.block_until_ready((self._values, rest))
                begin = time.perf_counter()
            carried, result = self._together(plan, taken.stacked(slice(i, i + 1)), 1)
            rest.append(places.taken_apart(carried, result)[1])
        if is_measured:
            jax.block_until_ready((self._values, rest))
        seconds = (time.perf_counter() - begin) / (taken.size - warm)
        return places.put_together(carried, self._values, joined_results(rest)), seconds


HELD = "objects of Flax"  # the name of the state of all objects in a carry, which is that of no argument
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
    fun: Callable[..., Any], others: tuple[str, ...], carry: Any, objects: tuple[str, ...],
    batch: tuple[str, ...], size: int, unroll: int,
) -> Callable[..., Any]:  # fmt: skip
    """A chunk of a function: of the first step's arguments, of which it may change `objects` in place, and of stacked
    batches. It gives the places of what is carried, by path, and the result. It holds the step in a cell, where a
    wrapper sees that it has changed; or, where the step is an object with arrays or a method of one, so is the chunk:
    a wrapper takes the arrays anew for each call.
    """

    def of_step(fun: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        signature = inspect.signature(fun)
        values = dict(zip(signature.parameters, args, strict=False)) | kwargs
        batches = {name: values[name] for name in batch}
        leaves, spec = _core.flatten({name: it for name, it in values.items() if name not in (*objects, *batch)})
        held: Any = None
        if objects:
            from partax._steps.objects import Held

            held = Held({name: values[name] for name in objects})

        def called(carry: dict[str, Any], one: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            """The result of a step, and the state of `objects` after it."""
            made = held.made(carry[HELD]) if held else {}
            # Flax's Variables have to be of the trace that they are used in.
            given = {**spec.rebuild(leaves), **one, **{name: it for name, it in carry.items() if name != HELD}}
            seen = watch_named(given.items())
            by_position, by_name = arguments(signature, {**given, **made})
            with make_changes():
                result = fun(*by_position, **by_name)
            refuse_lost(seen, result)
            return result, {HELD: held.state_of(made, result)} if held else {}

        stacked, batch_spec = _core.flatten(batches, "batch")
        for path, leaf in zip(batch_spec.dynamic_paths(), stacked, strict=True):
            if not np.shape(leaf):
                raise TypeError(f"`{path}`: found a number that `trace` makes an array, expected an array in a batch")

        state = {HELD: held.state} if held else {}
        begun, held_spec = _core.flatten(state, "state")

        def first(state: Arrays, batch: Arrays) -> Any:
            return split(called(held_spec.rebuild(state.leaves), batch_spec.rebuild([it[0] for it in batch.leaves]))[0])

        first.__signature__ = inspect.signature(first)  # type: ignore[attr-defined] - where jax shows the step for it
        given = Arrays.of(begun, held_spec, "state"), Arrays.of(stacked, batch_spec, "batch")
        found = joined(jax.eval_shape(in_place_of(fun, first), *given))
        carried = places.find({name: values[name] for name in others}, found, carry, is_needed=not objects)
        if held:  # Variables in the place of which others come back are values
            held = held.without(carried.values())
            state = {HELD: held.state} if held else {}

        def step(carry: dict[str, Any], one: dict[str, Any]) -> tuple[dict[str, Any], Any]:
            result, state = called(carry, one)
            after, rest = places.taken_apart(carried, result)
            return {**after, **state}, rest

        begin = {**{name: values[name] for name in carried.values()}, **state}
        last, rest = scan(step, begin, batches, length=size, unroll=unroll)
        if held:
            held.update(last[HELD])
        return tuple(carried.items()), places.put_together(carried, last, rest)

    def chunk(*args: Any, **kwargs: Any) -> Any:
        return of_step(fun, *args, **kwargs)

    # Options, such as `donate`, and messages mean arguments by these names.
    shown = [inspect.Parameter(it.name, it.kind) for it in inspect.signature(fun).parameters.values()]
    made: Any = chunk
    if inspect.ismethod(fun):
        function = fun.__func__

        def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            return of_step(types.MethodType(function, self), *args, **kwargs)

        made = method
        shown.insert(0, inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY))
    elif _core.node_kind(fun) != "static_leaf":
        made = _OfObject(fun, of_step)
    made.__name__ = made.__qualname__ = f"{getattr(fun, '__name__', 'step')}_steps"
    made.__module__ = getattr(fun, "__module__", __name__)
    made.__signature__ = inspect.Signature(shown)
    return types.MethodType(made, fun.__self__) if inspect.ismethod(fun) else made


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class _OfObject:
    """A chunk of a step that is an object with arrays."""

    step: Callable[..., Any]
    chunk: Callable[..., Any] = dataclasses.field(metadata={"static": True})

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.chunk(self.step, *args, **kwargs)
