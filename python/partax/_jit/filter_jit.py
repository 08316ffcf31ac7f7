"""`filter_jit`, the counts of its cache, and how wrappers are pickled."""

import copyreg
import enum
import functools
import operator
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Literal, NamedTuple, Never, ParamSpec, Protocol, TypeVar, cast, overload

import jax

from partax import _core
from partax._core import JitFunction
from partax._functions.classes import READ_BY
from partax._jit import methods
from partax._jit.options import Options, check_names, resolve_donate
from partax._pytree.short_text import wrapper_text

_O = ParamSpec("_O")
_P = ParamSpec("_P")
_R = TypeVar("_R")


class CacheInfo(NamedTuple):
    """The number of static keys, traces and calls that the cache of a wrapper has counted.

    Example:
      >>> shift = partax.filter_jit(lambda x, by: x + by)
      >>> _ = shift(jnp.ones(3), 1), shift(jnp.ones(3), 1), shift(jnp.ones(3), 2)
      >>> shift.cache_info().hits
      1

    Attributes:
      static_keys: The number of static keys in the cache, each for other static values.
      traces: The number of traces since `clear_cache()`, including those of static keys that were dropped.
      hits: The number of calls that did not trace.
      misses: The number of calls that traced, or loaded a stored program instead.
      max_size: The largest number of static keys in the cache.
      loads: The number of programs of an earlier process that were loaded. Default: 0.
    """

    static_keys: int
    traces: int
    hits: int
    misses: int
    max_size: int
    loads: int = 0


CacheInfo.__module__ = "partax.stages"  # where users find it, and pickles too


def cache_info(self: JitFunction[..., Any]) -> CacheInfo:
    """Count the static keys and traces of the wrapper, and how many of its calls were hits.

    Example:
      >>> scale = partax.filter_jit(lambda x, by: by * x)
      >>> _ = scale(jnp.ones(3), 1), scale(jnp.ones(3), 1), scale(jnp.ones(3), 2)
      >>> scale.cache_info()
      CacheInfo(static_keys=2, traces=2, hits=1, misses=2, max_size=4096, loads=0)

    Returns:
      The `partax.stages.CacheInfo`, a named tuple.
    """
    return CacheInfo(*self._cache.counts)


def clear_cache(self: JitFunction[..., Any]) -> None:
    """Drop every static key, trace and executable of the wrapped callable, and of its earlier states.

    Example:
      >>> square = partax.filter_jit(lambda x: x**2)
      >>> square.clear_cache()
      >>> square.cache_info().traces
      0

    Wrappers of the same callable with the same options share them, so theirs are dropped too.
    """
    for cache in {self._cache, *_core.caches(self._function)}:
        if cache.options == self._options:
            cache.clear()
            if cache.history is not None:
                cache.history.cleared()


def _cache_size(self: JitFunction[..., Any]) -> int:
    """Count the programs, as the method of the same name of a `jax.jit` does."""
    info = cache_info(self)
    return info.traces + info.loads


def _reduce(wrapper: JitFunction[..., Any]) -> Any:
    """Pickle by name if there is one, else by content."""
    name = pickled_name(wrapper, sys._getframe(1).f_globals)
    return (wrapper_of, (wrapper._options, wrapper.__wrapped__)) if name is None else name


def pickled_name(wrapper: Any, caller: dict[str, Any]) -> str | None:
    """Return the qualified name by which its module has a wrapper, or None. `caller` is the globals of what pickles:
    cloudpickle pickles what is in `__main__` by content, as another process has another `__main__`.
    """
    module = sys.modules.get(getattr(wrapper, "__module__", None) or "")
    if module is sys.modules.get("__main__") and "cloudpickle" in caller.get("__name__", ""):
        module = None
    name = getattr(wrapper, "__qualname__", None)
    if module is None or not isinstance(name, str):
        return None
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return name if value is wrapper else None


class Compilation(Protocol[_O]):
    """A function that returns the compiled wrapper of a callable, or without one a decorator."""

    @overload
    def __call__(self, fun: Callable[_P, _R], *args: _O.args, **options: _O.kwargs) -> JitFunction[_P, _R]: ...
    @overload
    def __call__(
        self, fun: None = None, *args: _O.args, **options: _O.kwargs
    ) -> Callable[[Callable[_P, _R]], JitFunction[_P, _R]]: ...


def compilation(function: Callable[Concatenate[Any, _O], Any]) -> Compilation[_O]:
    return cast("Any", function)


_OF_JAX = {
    "static": "expected no such option: what is not an array is static already, wherever it is",
    "donate": "expected donate=('state',), the names of the arguments, or donate='all'",
}
"""What to do instead of options of jax.jit."""


@compilation
def filter_jit(
    fun: Any = None,
    *,
    donate: str | Sequence[str] = "none",
    inline: bool | enum.Enum = False,
    keep_unused: bool = False,
    compiler_options: dict[str, Any] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    cache_size: int = 4096,
    reuse_equal_functions: bool = True,
    dynamic: Callable[[Any], bool] | Sequence[str] | None = None,
    max_traces: int | None = None,
    store: str | os.PathLike[str] | Literal[False] | None = None,
    **of_jax: Never,
) -> Any:
    """Compile a function. Same as `jax.jit`, for any pytree: arrays are traced, everything else is static.

    Example:
      >>> @partax.filter_jit
      ... def predict(model, x):
      ...     return model["activation"](model["weight"] * x)
      >>> predict({"weight": jnp.ones(2), "activation": jnp.tanh}, jnp.zeros(2))
      Array([0., 0.], dtype=float32)

    Another static value, shape or dtype retraces. Results that are not arrays are returned unchanged, and arrays that
    are inputs as the same objects. A wrapper is a pytree of its callable and shares its traces with every wrapper of an
    equal callable with equal options.

    Args:
      fun: A function, method, partial, transformed function, or callable module, whose arrays are traced. Its arguments
        may be any pytrees. Default: None, which returns a decorator.
      donate: The arguments whose buffers a call may reuse: `"none"`; `"all"`, including the arrays of `fun` itself;
        `"all-except-first"`; or one or several names of parameters, as `inspect.signature` shows them: `"args"` means
        all values of an `*args`, and `("all",)` a parameter of that name. An array that is returned unchanged is not
        donated. Default: `"none"`.
      inline, keep_unused, compiler_options: Same as in `jax.jit`. Default: False, False, None.
      in_shardings: One sharding, or a tuple with a pytree prefix for each argument in the order of the signature. It
        applies to array leaves, and None leaves them to JAX. Default: None.
      out_shardings: A pytree prefix of the result, with the same entries. Default: None.
      cache_size: The largest number of static keys; the least recently used one is dropped first. Default: 4096.
      reuse_equal_functions: Whether a re-created function, `fun` itself or one in the arguments, hits the program of an
        earlier one with the same code if everything that its code can read is provably unchanged. With False, functions
        are compared by identity alone, as in `jax.jit`. Default: True.
      dynamic: The leaves other than arrays that are traced, as arrays of a weak type: those for which a predicate such
        as `is_array_like` is true, or all numbers in the arguments with these names. Default: None, for no leaves.
      max_traces: The largest number of traces of `fun` since `clear_cache()`. Default: None, for any number.
      store: The directory for compiled programs, or False for none. Default: None, for the setting of `partax.store`.
      of_jax: Not accepted: the error names what replaces an option of `jax.jit`.

    Returns:
      A `partax.stages.Wrapper`, which is called like `fun`.

    Raises:
      ValueError: An option has a wrong value, or names an argument that `fun` does not have.
      TypeError: `fun` is not callable, `store` is not a directory, or an option is unknown. When called: a static value
        cannot be hashed or compared; the message has its path.
      RetraceError: When called: `fun` would be traced more than `max_traces` times; the message says what is new.
      RuntimeError: When called: an array that is returned unchanged is deleted already; a `jax.errors.JaxRuntimeError`
        if this call would donate it as another argument.
      RecursionError: When called: an argument is nested too deeply or contains itself.

    See Also:
      The guide "`filter_jit` and what is static".
    """
    for name, value in of_jax.items():
        expected = _OF_JAX.get(name.partition("_arg")[0], f"expected one of {', '.join(_DEFAULTS)}")
        raise TypeError(f"filter_jit: found {name}={value!r}, {expected}")
    of_program = donate, inline, keep_unused, compiler_options, in_shardings, out_shardings
    values = *of_program, cache_size, reuse_equal_functions, dynamic, max_traces, store
    is_plain = all(map(operator.is_, values, _DEFAULTS.values()))  # quick: it may be called in each step of a loop
    options = _PLAIN if is_plain else Options(resolve_donate(donate), *values[1:-1], store=store)
    return functools.partial(wrapper_of, options) if fun is None else wrapper_of(options, fun)


_PLAIN, _DEFAULTS = Options(), cast("dict[str, Any]", cast("Any", filter_jit).__kwdefaults__)


def wrapper_of(options: Options, fun: Any) -> JitFunction[..., Any]:
    if not callable(fun):
        raise TypeError(f"found a `{type(fun).__name__}`, expected a callable to compile: `filter_jit(f)(x)`")
    check_names(fun, "donate", options.donate)
    check_names(fun, "dynamic", options.dynamic)
    return _core.make_jit_function(fun, options)


def install() -> None:
    """Connect the native wrapper with JAX. Called once, when partax is imported."""
    parts = operator.attrgetter("_function", "__self__", "_options.key")
    jax.tree_util.register_pytree_node(_core.OutputNode, _core._flatten_output, _core._unflatten_output)
    of_wrappers = methods.lower, methods.trace, methods.eval_shape, methods.precompile, methods.bind
    for method in (*of_wrappers, cache_info, clear_cache, _cache_size):
        setattr(JitFunction, method.__name__, method)
    for cls, name, value in (
        (JitFunction, "__repr__", lambda self: wrapper_text(self._options.kind, self)),
        (_core.BoundFunction, "rebind", methods.rebind),
        (_core.BoundFunction, "__repr__", methods.bound_text),
        (_core.BoundFunction, "__signature__", property(methods.bound_signature)),
    ):
        setattr(cls, name, value)
    copyreg.pickle(_core.BoundFunction, methods.reduced)
    READ_BY[Options] = operator.attrgetter("key")
    for cls in (JitFunction, _core.BoundJitFunction):
        READ_BY[cls] = parts
        jax.tree_util.register_pytree_node(cls, _core._flatten_jit, _core._unflatten_jit)
        copyreg.pickle(cls, _reduce)
