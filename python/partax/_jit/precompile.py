"""Compiling for many calls before the first of them, in threads."""

import concurrent.futures  # which imports its threads once they are asked for
import functools
import os
from typing import Any

from partax import _core
from partax._families.settings import of_libraries
from partax._jax.private import configuration, mesh_of_call
from partax._jax.settings import every_setting
from partax._jit.ahead_of_time import quiet
from partax._pytree.short_text import short_text


def precompile(self: Any, /, *calls: tuple[Any, ...] | dict[str, Any], threads: int | None = None) -> None:
    """Compiles, or loads from the store, what these calls need, so that they neither trace nor compile. Runs nothing.

    Example:
      >>> scale = partax.filter_jit(lambda x, by: x * by)
      >>> scale.precompile((jax.ShapeDtypeStruct((2,), "float32"), 3), {"x": jnp.ones(4), "by": 3}, threads=2)
      >>> scale(jnp.ones(2), 3), scale.cache_info().misses
      (Array([3., 3.], dtype=float32), 0)

    Args:
      *calls: of each call the positional arguments, a tuple, or the arguments by name, a dictionary.
        `jax.ShapeDtypeStruct`s may stand for arrays.
      threads: how many calls are worked for at once; as many as there are processors by default. Python traces in one
        thread at a time; XLA compiles in all of them. Where this thread has settings of its own, as within
        `with jax.enable_x64():`, it works for one call after the other, and the others for none.

    Raises:
      TypeError: one of the calls is neither of the two; or as the call would. What the function raises when it is
        traced comes as it is, with a note that tells which call it was; the others are compiled all the same.
      ValueError: `threads` is not positive.
    """
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise ValueError(f"found threads={short_text(threads)}, expected a positive number of threads")
    for i, call in enumerate(calls):
        if not isinstance(call, (tuple, dict)):
            raise TypeError(
                f"found a `{type(call).__name__}` as call {i + 1}, expected a tuple of its arguments, or a dictionary "
                f"of them by name"
            )
    with concurrent.futures.ThreadPoolExecutor(threads or os.cpu_count(), "partax precompile") as pool:
        each = pool.map if pool.submit(_in_force).result() == _in_force() else map
        errors = list(each(functools.partial(_error_of, self), calls))
    for i, error in enumerate(errors):
        if error is not None:
            error.add_note(f"partax: of call {i + 1} of {len(calls)} that were to be compiled")
            raise error


def _in_force() -> tuple[Any, ...]:
    """The settings that are in force in this thread: what `with` statements have set holds in their thread alone."""
    return configuration(), every_setting(), of_libraries(), mesh_of_call()


def _error_of(wrapper: Any, call: Any) -> BaseException | None:
    """Compiles or loads what a call needs; gives what that raises."""
    args, kwargs = (call, {}) if isinstance(call, tuple) else ((), call)

    def compile_or_load(target: Any, arguments: tuple[Any, ...]) -> None:
        stored = prepared.stored
        if stored is None or stored.choose(arguments) is stored.target:  # it has no stored program
            target.trace(*arguments).lower().compile()

    try:
        with quiet(wrapper):
            prepared = _core.PreparedCall(wrapper, args, kwargs, True)
            prepared.run(compile_or_load)
    except Exception as error:
        return error
    return None
