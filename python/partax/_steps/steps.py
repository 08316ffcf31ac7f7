"""`scan_steps`: several steps of a compiled function in one call."""

import dataclasses
import inspect
import math
import weakref
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from partax import _core
from partax._core import JitFunction
from partax._pytree.short_text import short_text
from partax._steps.batches import Batches
from partax._steps.chunk import VARIABLE, Settings, bind_arguments, chunk_of
from partax._steps.places import Place, Places, with_parts


def scan_steps(
    step: JitFunction[..., Any], size: int, *, carry: Mapping[str, Place] | None = None, unroll: int = 1
) -> "Steps":
    """Run several steps of a compiled function in one call, for steps that are shorter than their dispatch.

    Example:
      >>> @partax.filter_jit
      ... def step(weight, x):
      ...     return {"w": weight["w"] - 0.5 * x}, (weight["w"] * x).sum()
      >>> run = partax.scan_steps(step, 2)
      >>> [losses.tolist() for _, losses in run({"w": jnp.ones(2)}, over=[jnp.ones(2)] * 4)]
      [[2.0, 1.0], [0.0, -1.0]]

    Each argument with arrays or numbers is carried: from the one part of the result that has its structure and types,
    by itself or in tuples, lists and dicts. Else, as if one stays the same or is a single array next to others, pass
    `carry=`. Flax objects that `partax.nnx.jit` changes in place are updated once per chunk. A batch of another shape
    runs by itself. If `over` raises, the batches already read run first.

    Args:
      step: The result of `filter_jit` or `nnx.jit`. Its options apply, and its `clear_cache` clears the chunks.
      size: The number of steps in a chunk, at least 1.
      carry: For each carried argument, its place in the result: a position, a key, or a tuple of these. Default: None,
        for the one part of the result that matches each.
      unroll: Same as in `jax.lax.scan`. Default: 1.

    Returns:
      A function of the arguments of the first step except the batch, and of `over`, an iterable of batches: an iterator
      over chunks, each the result of its last step, with everything that is not carried stacked.

    Raises:
      TypeError: `step` is not a compiled function, or is a method of an object of Flax. When called: batches, or what
        is carried, differ in structure or dtype; the message has the path.
      ValueError: `size` is not positive, or the step has shardings. When called: the carry is ambiguous or missing.

    See Also: The guide "Bind arguments and batch steps".
    """
    if not isinstance(step, JitFunction):
        raise TypeError(f"`step`: found a `{type(step).__name__}`, expected what `filter_jit` or `nnx.jit` returned")
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ValueError(f"`size`: found {short_text(size)}, expected a positive number of steps")
    if step._options.graph is not None:
        from partax._steps.objects import refuse_method

        refuse_method(step.__wrapped__)
    if step._options.in_shardings is not None or step._options.out_shardings is not None:
        raise ValueError("`step`: found in_shardings or out_shardings; place its arguments by filter_shard instead")
    if carry is None:
        return Steps(step, size, None, unroll)
    if not isinstance(carry, Mapping):
        raise TypeError(f"`carry`: found {short_text(carry)}, expected a dictionary from names to places in the result")
    places = ((tuple(at) if isinstance(at, (tuple, list)) else (at,), name) for name, at in carry.items())
    return Steps(step, size, tuple(places), unroll)


class Steps:
    def __init__(self, step: JitFunction[..., Any], size: int, carry: Places | None, unroll: int) -> None:
        self._step, self._size, self._carry, self._unroll = step, size, carry, unroll
        self._signature = inspect.signature(step.__wrapped__)
        self._chunks: dict[tuple[Any, ...], JitFunction[..., Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Steps, (self._step, self._size, self._carry, self._unroll)

    def __repr__(self) -> str:
        return f"<partax.scan_steps of {self._size} of {self._step!r}>"

    def __call__(self, /, *args: Any, over: Any, **kwargs: Any) -> "Run":
        """Begin with the arguments of the first step. `over` has the others for each step: one, a tuple of them, or a
        dictionary by their names. The iterator has a length if `over` has one.
        """
        if isinstance(over, (Mapping, str, bytes)):
            raise TypeError(f"`over`: found a `{type(over).__name__}`, expected an iterable with a batch for each step")
        parameters = self._signature.parameters.values()
        values = dict(self._signature.bind_partial(*args, **kwargs).arguments)
        for name in [one.name for one in parameters if one.kind is one.VAR_KEYWORD and one.name in values]:
            values = dict(**values.pop(name), **values)
        required = [one for one in parameters if one.kind not in VARIABLE and one.default is one.empty]
        names = tuple(one.name for one in required if one.name not in values)
        if not names:
            raise TypeError(f"found a value for each parameter of {self._step.__name__}, expected one for the batch")
        return Run(self._results(values, names, Batches(over, self._size, names)), over, self._size)

    def _results(self, values: dict[str, Any], names: tuple[str, ...], batches: Batches) -> Generator[Any]:
        next_batches, program = batches.take(), None
        while next_batches is not None:
            size, batch = next_batches
            args, kwargs = bind_arguments(self._signature, values | batch)
            if program is None or program() is None:
                program = self._program(args, kwargs)
            has_graph = self._step._options.graph is not None
            settings = Settings(self._carry, names, size, self._unroll, has_graph)
            chunk = self._chunks.get((program, settings))
            if chunk is None:  # of two threads the first one counts
                chunk = self._chunks.setdefault((program, settings), chunk_of(self._step, settings))
            places, carried, rest = chunk(*args, **kwargs)
            values |= carried
            next_batches = batches.take()  # while the chunk runs
            yield with_parts(rest, {path: carried[name] for path, name in places})
        if batches.error is not None:
            raise batches.error

    def _program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "weakref.ref[Any]":
        """Return a reference to the target of the call, which ends, with its chunks, after `clear_cache`."""
        program = weakref.ref(_core.prepare_call(self._step, args, kwargs, True).run(lambda target, _: target))
        for key in list(self._chunks):
            if key[0]() is None and (chunk := self._chunks.pop(key, None)) is not None:
                chunk.clear_cache()
        return program


@dataclasses.dataclass(eq=False)
class Run(Iterator[Any]):
    """A loop of steps: an iterator over its chunks, for one use."""

    results: Generator[Any]
    over: Any
    size: int

    def __len__(self) -> int:
        return math.ceil(len(self.over) / self.size)

    def __next__(self) -> Any:
        return next(self.results)
