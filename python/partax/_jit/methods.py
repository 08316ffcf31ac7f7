"""The methods of a wrapper that trace or compile calls without running them, or bind arguments."""

import functools
import inspect
import operator
import os
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from partax import _core
from partax._core import BoundFunction, JitFunction
from partax._families.describe import is_frozen
from partax._jax.nodes import flatten_one_level, one_level
from partax._jax.private import configuration, every_setting, mesh_of_call
from partax._jit.options import is_of_nnx, signature_of
from partax._pytree.call_site import call_site, run_for
from partax._pytree.short_text import short_text
from partax._pytree.spec_data import leaf_paths

if TYPE_CHECKING:
    from partax._jit.ahead_of_time import Lowered, Traced


def trace(self: Any, /, *args: Any, **kwargs: Any) -> "Traced":
    """Trace the function for some arguments. Same as `trace` of `jax.jit`, for any pytree.

    Example:
      >>> scale = partax.filter_jit(lambda x, by: x * by)
      >>> scale.trace(jax.ShapeDtypeStruct((3,), "float32"), 2.0).jaxpr
      { lambda ; a:f32[3]. let b:f32[3] = mul a 2.0:f32[] in (b,) }

    Args:
      *args, **kwargs: Same as in a call of the wrapped function. A `jax.ShapeDtypeStruct` may replace an array.

    Returns:
      The `Traced` call.

    See Also:
      The guide "Ahead-of-time compilation and export".
    """
    from partax._jit import ahead_of_time, jax_options  # which few programs need

    if self._options.static_parameters is not None:
        return jax_options.jax_jit_of(self).trace(*args, **kwargs)
    return ahead_of_time.trace(self, args, kwargs)


def lower(self: Any, /, *args: Any, **kwargs: Any) -> "Lowered":
    """Trace and lower the function for some arguments. Same as `lower` of `jax.jit`, for any pytree.

    Example:
      >>> scale = partax.filter_jit(lambda x, by: x * by)
      >>> scale.lower(jax.ShapeDtypeStruct((3,), "float32"), 2.0).compile()(jnp.ones(3), 2.0)
      Array([2., 2., 2.], dtype=float32)

    Args:
      *args, **kwargs: Same as in `trace`.

    Returns:
      The `Lowered` program.
    """
    return trace(self, *args, **kwargs).lower()


def eval_shape(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Compute the shapes and dtypes of the result, and run nothing. Same as `jax.eval_shape`, for any pytree.

    Example:
      >>> named = partax.filter_jit(lambda x, name: {name: x.sum()})
      >>> named.eval_shape(jax.ShapeDtypeStruct((3,), "float32"), "total")
      {'total': ShapeDtypeStruct(shape=(), dtype=float32)}

    Args:
      *args, **kwargs: Same as in `trace`.

    Returns:
      The result with a `jax.ShapeDtypeStruct` for each array. Other leaves are returned unchanged.
    """
    return trace(self, *args, **kwargs).out_info


def precompile(self: Any, /, *calls: tuple[Any, ...] | dict[str, Any], threads: int | None = None) -> None:
    """Compile some calls, or load them from the store, so that they neither trace nor compile. Runs nothing.

    Example:
      >>> scale = partax.filter_jit(lambda x, by: x * by)
      >>> scale.precompile((jax.ShapeDtypeStruct((2,), "float32"), 3), {"x": jnp.ones(4), "by": 3}, threads=2)
      >>> scale(jnp.ones(2), 3), scale.cache_info().misses
      (Array([3., 3.], dtype=float32), 0)

    Args:
      *calls: A tuple of positional arguments for each call, or a dictionary of arguments by name, as in `trace`.
      threads: The number of calls that are compiled at once. With settings of this thread alone, as within
        `with jax.enable_x64():`, all calls are compiled in it. Default: None, for the number of processors.

    Raises:
      TypeError: A call is neither a tuple nor a dictionary. What the function raises has a note that names the call;
        the other calls are compiled nevertheless.
      ValueError: `threads` is not positive.
    """
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise ValueError(f"found threads={short_text(threads)}, expected a positive number of threads")
    for i, call in enumerate(calls):
        if not isinstance(call, (tuple, dict)):
            raise TypeError(
                f"found a `{type(call).__name__}` as call {i + 1}, expected a tuple or a dictionary of its arguments"
            )
    import concurrent.futures  # which few programs need

    with concurrent.futures.ThreadPoolExecutor(threads or os.cpu_count(), "partax precompile") as pool:
        # The settings of `with` statements hold in their thread alone.
        each = pool.map if pool.submit(_settings).result() == _settings() else map
        errors = list(each(functools.partial(run_for, call_site(), _error_of, self), calls))
    for i, error in enumerate(errors):
        if error is not None:
            error.add_note(f"partax: of call {i + 1} of {len(calls)} that were to be compiled")
            raise error


def _settings() -> tuple[Any, ...]:
    return configuration(), every_setting(), mesh_of_call()


def _error_of(wrapper: Any, call: Any) -> BaseException | None:
    """Compile or load what a call needs, and run nothing; return the exception that this raises."""

    def compile_or_load(target: Any, arguments: tuple[Any, ...]) -> None:
        stored = prepared.stored
        if stored is None or stored.choose(arguments) is stored.target:  # it has no stored program
            target.trace(*arguments).lower().compile()

    args, kwargs = (call, {}) if isinstance(call, tuple) else ((), call)
    try:
        prepared = _core.prepare_call(wrapper, args, kwargs, True)
        prepared.run(compile_or_load)
    except Exception as error:
        return error
    return None


def bind(self: JitFunction[..., Any], /, *args: Any, **kwargs: Any) -> BoundFunction[Any]:
    """Read, check and keep some arguments once, for calls that pass the others.

    Example:
      >>> predict = partax.filter_jit(lambda model, x: model["weight"] * x)
      >>> serve = predict.bind({"weight": jnp.full(2, 3.0)})
      >>> serve(jnp.ones(2))
      Array([3., 3.], dtype=float32)

    A call reads only the free arguments. Bound trees and arrays keep the state in which they were bound. Of the Flax
    objects that `partax.nnx.jit` changes in place, each call reads the arrays of the Variables; after you set another
    attribute, as `model.eval()` does, bind again. The result can be pickled.

    Args:
      args, kwargs: The leading arguments, and others by name.

    Returns:
      A `partax.stages.Bound`, which is called with the remaining arguments. Its `rebind` replaces bound ones.

    Raises:
      TypeError: The function does not have these arguments. When called: an argument is already bound.
      ValueError: When called: `donate` would donate a bound array.
      RuntimeError: When called: a bound array has been deleted.

    See Also:
      The guide "Bind arguments and batch steps".
    """
    signature = signature_of(self.__wrapped__)
    try:
        signature.bind_partial(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{self.__name__}{signature} cannot be bound so: {error}") from None
    changes_objects = self._options.graph is not None
    args = tuple(_as_now(value, changes_objects) for value in args)
    kwargs = {name: _as_now(value, changes_objects) for name, value in kwargs.items()}
    # If a callable may change, each call reads it.
    keeps_callable = all(_as_now(part, changes_objects) is part for part in (self._function, self.__self__))
    return _core.make_bound_function(self, args, kwargs, keeps_callable)


def _as_now(value: Any, changes_objects: bool) -> Any:
    """Return a tree with objects of its own for those that may be changed, except by the function itself."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) is dict:  # jax would sort its keys
        return {key: _as_now(child, changes_objects) for key, child in value.items()}
    if type(value) is list:
        return [_as_now(child, changes_objects) for child in value]
    level = None if changes_objects and is_of_nnx(value) else flatten_one_level(value)
    if level is None:
        return value
    children = [_as_now(child, changes_objects) for child in level[0]]
    is_same = all(map(operator.is_, children, level[0]))
    if is_same and (value is None or is_frozen(type(value))):
        return value
    return one_level(value).unflatten(children)


def rebind(self: BoundFunction[Any], /, *args: Any, **kwargs: Any) -> BoundFunction[Any]:
    """Return a copy of the function with other values for some bound arguments.

    Example:
      >>> scale = partax.filter_jit(lambda by, x: by * x).bind(jnp.ones(2))
      >>> scale.rebind(by=jnp.full(2, 4.0))(jnp.ones(2))
      Array([4., 4.], dtype=float32)

    If the static part is the same, it does not retrace.

    Args:
      args, kwargs: Values that replace the leading ones, and values by name for any that are bound.

    Returns:
      Another `partax.stages.Bound`; this one is unchanged.

    Raises:
      TypeError: A name, or one of `args`, is not a bound argument, or an argument has two values.
    """
    bound, keywords = list(self.args), self.keywords
    if len(args) > len(bound):
        raise TypeError(f"found {len(args)} arguments, expected at most {len(bound)}, as many as are bound")
    bound[: len(args)] = args
    signature = signature_of(self.func.__wrapped__)
    names = [p.name for p in signature.parameters.values() if p.kind <= p.POSITIONAL_OR_KEYWORD][: len(bound)]
    for name, value in kwargs.items():
        if name in names[: len(args)]:
            raise TypeError(f"found {name!r} by name and by position, expected one of both")
        if name in keywords:
            keywords[name] = value
        elif name in names:
            bound[names.index(name)] = value
        else:
            bound_names = ", ".join(f"`{bound_name}`" for bound_name in (*names, *keywords)) or "none"
            raise TypeError(f"found {name!r}, expected the name of an argument that is bound: {bound_names}")
    return bind(self.func, *bound, **keywords)


def bound_text(self: BoundFunction[Any]) -> str:
    texts = [short_text(value) for value in self.args]
    texts += [f"{name}={short_text(value)}" for name, value in self.keywords.items()]
    return f"{self.func!r}.bind({', '.join(texts)})"


def bound_signature(self: BoundFunction[Any]) -> inspect.Signature:
    bound = inspect.signature(functools.partial(self.func.__wrapped__, *self.args, **self.keywords))
    free = [p for p in bound.parameters.values() if p.kind != p.KEYWORD_ONLY or p.name not in self.keywords]
    return bound.replace(parameters=free)


def reduced(self: BoundFunction[Any]) -> Any:
    return functools.partial(bind, self.func, *self.args, **self.keywords), ()


def direct_run(target: Any, stored: Any, takes_tuple: bool, leaves: tuple[Any, ...], free: tuple[int, ...]) -> Any:
    """Return the `programs.direct_run` of a call's program. Called by the native wrapper after it has run."""
    from partax._jax import programs

    if not programs.runs_compiled(leaves):
        return None
    arguments = (leaves,) if takes_tuple else leaves
    try:
        program = target.trace(*arguments).lower().compile() if stored is None else stored.choose(arguments)
    except RuntimeError:  # jax has run a program of other types, as for one that knew an unpickled array of weak type
        return None
    return programs.direct_run(program, leaves, free)


def refuse_donated(call: _core.Call, index: int) -> NoReturn:
    """Raise for a call that would donate a bound array, by its index. Called by the native wrapper before it."""
    described, _ = call.describe()
    raise ValueError(
        f"`{leaf_paths(described)[index]}`: found an array that is bound and that the call would donate, expected "
        "options that donate what is free alone; name it in `donate`"
    )
