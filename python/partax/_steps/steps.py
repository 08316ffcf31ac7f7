"""`steps`: a compiled function as a loop of so many of its steps in one call."""

import inspect
import math
import weakref
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from partax import _core
from partax._core import JitFunction
from partax._pytree.short_text import short_text
from partax._steps.batches import Batches, Group, join_results
from partax._steps.chunk import VARIABLE, Settings, bind_arguments, chunk_of
from partax._steps.places import Place, Places, with_parts


def scan_steps(
    step: JitFunction[..., Any], size: int, *, carry: Mapping[str, Place] | None = None, unroll: int = 1
) -> "Steps":
    """So many steps of a compiled function in one call: for steps that are shorter than their dispatch.

    Example:
      >>> @partax.filter_jit
      ... def step(weight, x):
      ...     return {"w": weight["w"] - 0.5 * x}, (weight["w"] * x).sum()
      >>> run = partax.scan_steps(step, 2)
      >>> for weight, losses in run({"w": jnp.ones(2)}, over=[jnp.ones(2)] * 4):
      ...     print(losses)
      [2. 1.]
      [ 0. -1.]

    Called with the arguments of a step except the batch, and with the batches as `over`, it gives an iterator over
    chunks of steps. Of each it gives what the last step returned, with all that is not carried stacked.

    A returned value is carried to the argument that has its structure and types if there is exactly one such argument
    and no other result has them; otherwise pass `carry=`. An array or scalars alone, next to other arguments, may be
    metrics and need `carry=` too; a random key does not. Returned values are the result and what is in its tuples,
    lists, dicts and named tuples. Types settle as in `filter_scan`. Python numbers alone are carried only if `carry`
    names them. The objects of Flax that `partax.nnx.jit` changes in place are changed once a chunk.

    What fills no chunk at the end runs step by step, and a batch of another shape than the first by itself. If taking a
    batch raises, what has been taken is run and handed out first.

    Args:
      step: what `filter_jit` or `partax.nnx.jit` returned; its options, such as `donate`, are those of the chunk, and
        its `clear_cache` clears the chunks too.
      size: how many steps make a chunk.
      carry: for each argument that is carried its place in the result: a position, a key, or a tuple of these.
      unroll: as of `jax.lax.scan`.

    Returns:
      A function of the arguments of the first step.
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
            "`step`: found in_shardings or out_shardings, expected none; place its arguments by filter_shard"
        )
    return Steps(step, size, None if carry is None else _places_of(carry), unroll)


def _places_of(carry: Mapping[str, Place]) -> Places:
    if isinstance(carry, Mapping):
        places = tuple(
            (tuple(place) if isinstance(place, (tuple, list)) else (place,), name) for name, place in carry.items()
        )
        if all(isinstance(name, str) and all(isinstance(key, (int, str)) for key in path) for path, name in places):
            return places
    raise TypeError(
        f"`carry`: found {short_text(carry)}, expected a dictionary from names of arguments to their places in the "
        "result of a step: a position, a key, or a tuple of these"
    )


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
        """Begins with the arguments of the first step; `over` gives the others for each step: one, a tuple of them, or
        a dictionary by their names. The iterator has a length where `over` has one.
        """
        if isinstance(over, (Mapping, str, bytes)):
            raise TypeError(f"`over`: found a `{type(over).__name__}`, expected an iterable with a batch for each step")
        parameters = self._signature.parameters.values()
        values = dict(self._signature.bind_partial(*args, **kwargs).arguments)
        for name in [it.name for it in parameters if it.kind is it.VAR_KEYWORD and it.name in values]:
            values = dict(**values.pop(name), **values)
        required = [it for it in parameters if it.kind not in VARIABLE and it.default is it.empty]
        names = tuple(it.name for it in required if it.name not in values)
        if not names:
            raise TypeError(f"found a value for each parameter of {self._step.__name__}, expected one for the batch")
        return Run(self._results(values, names, Batches(over, self._size, names)), over, self._size)

    def _results(self, values: dict[str, Any], names: tuple[str, ...], batches: Batches) -> Generator[Any]:
        taken, program = batches.take(), None
        while taken is not None:
            if program is None or program() is None:
                program = self._program({**values, **taken.spec.rebuild(taken.rows[0])})
            size = self._size if len(taken.rows) == self._size else 1
            settings = Settings(self._carry, names, size, self._unroll, self._step._options.graph is not None)
            chunk = self._chunks.get((program, settings))
            if chunk is None:  # of two threads the first one counts
                chunk = self._chunks.setdefault((program, settings), chunk_of(self._step, settings))
            result = self._run(chunk, values, taken, size)
            taken = batches.take()  # while the chunk runs
            yield result
        if batches.error is not None:
            raise batches.error

    def _run(self, chunk: JitFunction[..., Any], values: dict[str, Any], taken: Group, size: int) -> Any:
        """Runs batches in calls of `size` steps. Updates `values`, which are carried."""
        rests, places = list[Any](), Places()
        for start in range(0, len(taken.rows), size):
            args, kwargs = bind_arguments(self._signature, {**values, **taken.stacked(slice(start, start + size))})
            places, carried, rest = chunk(*args, **kwargs)
            values |= carried
            rests.append(rest)
        rest = rests[0] if len(rests) == 1 else join_results(rests)
        return with_parts(rest, {path: values[name] for path, name in places})

    def _program(self, values: dict[str, Any]) -> "weakref.ref[Any]":
        """Refers to what the step's wrapper calls for these arguments. It is gone after `clear_cache`; so are the
        chunks that were made for it.
        """
        args, kwargs = bind_arguments(self._signature, values)
        program = weakref.ref(_core.PreparedCall(self._step, args, kwargs, True).run(lambda target, _: target))
        for key in list(self._chunks):
            if key[0]() is None and (chunk := self._chunks.pop(key, None)) is not None:
                chunk.clear_cache()
        return program


class Run(Iterator[Any]):
    """A loop of steps: an iterator over its chunks, for one use. `close` ends it."""

    def __init__(self, results: Generator[Any], over: Any, size: int) -> None:
        self._results, self._over, self._size = results, over, size

    def __len__(self) -> int:
        return math.ceil(len(self._over) / self._size)

    def __bool__(self) -> bool:
        return True  # also where it has no length

    def __next__(self) -> Any:
        return next(self._results)

    def close(self) -> None:
        self._results.close()
