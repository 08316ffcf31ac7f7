"""`steps`: a compiled function as a loop of so many of its steps in one call."""

import inspect
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from partax import _core
from partax._core import JitFunction
from partax._jit.donation_warnings import donation_warnings
from partax._pytree.call_site import call_site
from partax._report.explain import explaining, report_line
from partax._report.report import StepsReport
from partax._steps import places
from partax._steps.batches import Batches, Taken, stacked_results
from partax._steps.chunk import call, function_of_values, unnamed, with_parameters
from partax._steps.places import Place, Skeleton

_KINDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def steps(
    step: JitFunction[..., Any],
    size: int,
    *,
    carry: Sequence[str] | Mapping[str, Place] | None = None,
    unroll: int = 1,
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
    What does not fill a chunk at the end is run step by step. The batches of a chunk are taken and stacked while the
    chunk before it runs, and count as they were when they were taken. If taking one raises, what has been taken is run
    and handed out first.

    What a step returns in the structure in which an argument went in is carried: it is that argument of the next step.
    All other arguments stay what they are, and so do Python numbers that no array is beside, unless `carry` names them.
    The objects of Flax that `partax.nnx.jit` changes in place are changed once a chunk. Types settle as in
    `filter_scan`.

    Args:
      step: what `filter_jit` or `partax.nnx.jit` returned; its options, such as `donate`, are those of the chunk.
      size: how many steps make a chunk.
      carry: the names of the arguments that are carried; or, where more than one part of the result has that structure,
        a dictionary from the name to its place there: a position, a key, or a tuple of these. None to find them.
      unroll: as of `jax.lax.scan`.

    Returns:
      A function of the arguments of the first step.

    Raises:
      TypeError: `step` is no compiled function. When called: a step takes more arguments than the call and a batch
        give; what is to be carried comes back with another structure, dtype or shape; batches differ in more than the
        values of their arrays. The message has the path.
      ValueError: `size` is not positive. When called: nothing is carried, or it could be one or the other.
    """
    if not isinstance(step, JitFunction):
        raise TypeError(
            f"`step`: found a `{type(step).__name__}`, expected what `filter_jit` or `partax.nnx.jit` returned"
        )
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"`size`: found {size!r}, expected a positive number of steps")
    if step._options.in_shardings is not None or step._options.out_shardings is not None:
        raise ValueError(
            "`step`: found one with in_shardings or out_shardings, expected none; place its arguments by "
            "`filter_shard`, which the program keeps"
        )
    if isinstance(carry, str):
        carry = (carry,)
    return Steps(step, size, carry, unroll)


class Steps:
    """What `steps` returns."""

    def __init__(self, step: JitFunction[..., Any], size: int, carry: Any, unroll: int) -> None:
        self._step = step
        self._size = size
        self._carry = carry
        self._unroll = unroll
        self.unnamed = unnamed(step.__wrapped__)
        self._made: dict[Any, JitFunction[..., Any]] = {}
        self._known: tuple[_core.TreeSpec, list[Any], tuple[Skeleton | None, tuple[str, ...]]] | None = None

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
        if isinstance(over, Mapping) or not is_iterable:
            found = type(over).__name__
            raise TypeError(f"`over`: found a `{found}`, expected an iterable with a batch for each step")
        return Run(self, *self._bound(args, kwargs), over)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The arguments that are given by name, and the names of those that a batch gives."""
        name, signature = self._step.__name__, inspect.signature(self._step.__wrapped__)
        try:
            given = dict(signature.bind_partial(*args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError(f"{name}{signature} cannot be called so: {error}") from None
        for parameter in signature.parameters.values():
            if parameter.kind not in _KINDS or parameter.name not in given:
                continue
            more = given.pop(parameter.name)
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise TypeError(f"found {len(more)} arguments for `*{parameter.name}`, expected arguments with names")
            given.update(more)
        batch = tuple(
            it.name
            for it in signature.parameters.values()
            if it.kind not in _KINDS and it.default is it.empty and it.name not in given
        )
        if not batch:
            raise TypeError(f"found a value for each parameter of {name}{signature}, expected one left for the batch")
        order = [*signature.parameters, *given]
        return {it: given[it] for it in sorted(given, key=order.index)}, batch

    def find(self, values: dict[str, Any], batch: dict[str, Any]) -> tuple[Skeleton | None, tuple[str, ...]]:
        """What is carried: of the result, if anything, and the arguments that are changed in place.

        It takes a trace, which single steps have in common; for arguments like the last ones it is known.
        """
        arguments = values, batch
        if self._known is not None:
            spec, types, found = self._known
            leaves = spec.match(arguments)
            if leaves is not None and list(map(_type_of, leaves)) == types:
                return found
        leaves, spec = _core.flatten(arguments, "arguments")
        found = self._found(values, batch)
        self._known = spec, list(map(_type_of, leaves)), found
        return found

    def _found(self, values: dict[str, Any], batch: dict[str, Any]) -> tuple[Skeleton | None, tuple[str, ...]]:
        objects: tuple[str, ...] = ()
        if self._step._options.graph is not None:
            from partax._steps.objects import holds_objects

            objects = tuple(name for name, value in values.items() if holds_objects(value))
        result = call(self._step.eval_shape, {**values, **batch}, self.unnamed)
        try:
            return places.find(
                {name: values[name] for name in values if name not in objects}, result, self._carry
            ), objects
        except ValueError:
            if not objects or self._carry is not None:
                raise
        return None, objects

    def chunk(self, names: tuple[str, ...], skeleton: Skeleton | None, objects: tuple[str, ...], batch: Any) -> Any:
        """The compiled function of a chunk."""
        key = names, skeleton, objects, batch
        if key not in self._made:
            fun, shared = self._step.__wrapped__, (batch, self._size, self._unroll)
            if objects:
                from partax._steps.objects import function_of_objects

                of_values = function_of_objects(fun, skeleton, objects, *shared)
            else:
                assert skeleton is not None
                of_values = function_of_values(fun, skeleton, *shared)
            made = with_parameters(of_values, fun, (*names, *batch))
            self._made[key] = _core.make_jit_function(made, self._step._options)
        return self._made[key]


def _type_of(leaf: Any) -> tuple[Any, Any]:
    return np.shape(leaf), leaf.dtype


class Run:
    """A loop of steps: an iterator over its chunks, for one use."""

    def __init__(self, steps: Steps, values: dict[str, Any], batch: tuple[str, ...], over: Any) -> None:
        self._steps = steps
        self._values = values
        self._batch = batch
        self._over = over
        self._skeleton: Skeleton | None = None
        self._objects: tuple[str, ...] = ()
        self._iterator = self._chunks()

    def __len__(self) -> int:
        return math.ceil(len(self._over) / self._steps._size)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)

    def _chunks(self) -> Iterator[Any]:
        size = self._steps._size
        batches = Batches(self._over, size, self._batch)
        taken = batches.take()
        if taken is not None:
            self._skeleton, self._objects = self._steps.find(self._values, taken.one(0))
        timing = _Timing(self._steps._step, size) if explaining() and size > 1 else None
        while taken is not None and taken.size == size:
            if timing is not None and timing.single is None:
                result = self._one_by_one(taken, timing)
            else:
                result = self._together(taken.stacked(), timing)
            taken = batches.take()  # beside the chunk
            yield result
        if taken is not None:
            yield self._one_by_one(taken)
        if batches.error is not None:
            raise batches.error

    def _together(self, batches: dict[str, Any], timing: "_Timing | None") -> Any:
        values = {**self._values, **batches}
        chunk = self._steps.chunk(tuple(self._values), self._skeleton, self._objects, self._batch)
        result = chunk(*values.values()) if timing is None or timing.is_told else timing.of_a_chunk(chunk, values)
        if self._skeleton is not None:
            self._values |= places.taken_apart(self._skeleton, result)[0]
        return result

    def _one_by_one(self, taken: Taken, timing: "_Timing | None" = None) -> Any:
        step = self._steps._step
        rest: list[list[Any]] = []
        begin = 0.0
        for i in range(taken.size):
            # It has been traced, so that the call itself, which compiles it, would warn of what it donates in vain.
            with donation_warnings.silenced(step._options.silences_warnings and not rest):
                result = call(step, {**self._values, **taken.one(i)}, self._steps.unnamed)
            if timing is not None and not rest:
                _wait_for(result)
                begin = time.perf_counter()  # of all but the first, which may be compiled
            carried, others = ({}, [result]) if self._skeleton is None else places.taken_apart(self._skeleton, result)
            self._values |= carried
            rest.append(others)
        if timing is not None:
            _wait_for((self._values, rest))
            timing.single = (time.perf_counter() - begin) / (taken.size - 1)
        stacked = stacked_results(rest)
        return stacked[0] if self._skeleton is None else places.put_together(self._skeleton, self._values, stacked)


class _Timing:
    """Compares a chunk with as many single steps, once: the first chunk is run step by step, the second as one."""

    def __init__(self, step: JitFunction[..., Any], size: int) -> None:
        self.single: float | None = None
        self.is_told = False
        self._step = step
        self._size = size

    def of_a_chunk(self, chunk: JitFunction[..., Any], values: dict[str, Any]) -> Any:
        """Runs it, and tells."""
        chunk.precompile(values)
        begin = time.perf_counter()
        result = chunk(*values.values())
        _wait_for(result)
        self.is_told = True
        measured = StepsReport(self._size, (time.perf_counter() - begin) / self._size, self.single or 0.0)
        report_line(call_site(), f"{self._step.__name__}: {measured}")
        history = self._step._cache.history
        if history is not None:
            history.steps.append(measured)
        return result


def _wait_for(result: Any) -> None:
    jax.block_until_ready([it for it in jax.tree.leaves(result) if isinstance(it, jax.Array)])
