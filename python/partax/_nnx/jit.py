"""partax.nnx.jit: filter_jit of a function that changes the nnx objects in its arguments."""

import functools
import operator
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from flax import errors
from flax.nnx import graphlib

from partax._jit.filter_jit import CacheInfo
from partax._nnx.apply_changes import apply_changes
from partax._nnx.errors import note_argument
from partax._nnx.read_graph import KnownGraphs, read_graph
from partax._nnx.traced_function import TracedFunction
from partax._statics.asked_parts import read_by

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Error: Any = (errors.TraceContextError, TypeError, ValueError)


class NnxJit(Generic[_P, _R]):
    """What `partax.nnx.jit` returns."""

    def __init__(
        self, fun: Callable[..., Any], compiled: Any, first: tuple[Any, ...] = (), graphs: KnownGraphs | None = None
    ):
        """Makes a wrapper.

        Args:
          fun: the wrapped function.
          compiled: filter_jit of its `TracedFunction`.
          first: the arguments that come before those of a call: the instance, for a method.
          graphs: what is known of arguments.
        """
        functools.update_wrapper(self, fun, updated=())
        self.__wrapped__ = fun
        self._compiled = compiled
        self._first = first
        self._graphs = KnownGraphs() if graphs is None else graphs

    def __call__(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self._run(self._compiled, args, kwargs)

    def _run(self, compiled: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args = (*self._first, *args)
        try:
            read_args, read_kwargs, objects = self._graphs.read(args, kwargs)
            return apply_changes(compiled(*read_args, **read_kwargs), objects)
        except _Error as error:
            note_argument(error, self.__wrapped__, args, kwargs)
            raise

    def __get__(self, instance: Any, owner: Any = None) -> "NnxJit[..., _R]":
        return self if instance is None else self._bound(instance)

    def _bound(self, instance: Any) -> "NnxJit[..., _R]":
        return NnxJit(self.__wrapped__, self._compiled, (*self._first, instance), self._graphs)

    def __repr__(self) -> str:
        return f"<partax.nnx.jit of {getattr(self, '__qualname__', type(self.__wrapped__).__qualname__)}>"

    def eval_shape(self, /, *args: Any, **kwargs: Any) -> Any:
        """The result's shapes and dtypes, without computing it; objects in it are copies.

        Args:
          *args, **kwargs: as of the wrapped function.

        Returns:
          The result with a `jax.ShapeDtypeStruct` for each array.
        """
        args, kwargs = graphlib.clone(((*self._first, *args), kwargs), graph=True)
        return NnxJit(self.__wrapped__, self._compiled)._run(self._compiled.eval_shape, args, kwargs)

    def trace(self, /, *args: Any, **kwargs: Any) -> "Stage":
        """Traces the function for these arguments, which stay as they are.

        Args:
          *args, **kwargs: as of the wrapped function; `jax.ShapeDtypeStruct`s may stand for arrays.

        Returns:
          What `filter_jit(...).trace` returns.
        """
        read_args, read_kwargs, _ = read_graph((*self._first, *args), kwargs)
        return Stage(self, self._compiled.trace(*read_args, **read_kwargs))

    def lower(self, /, *args: Any, **kwargs: Any) -> "Stage":
        """Traces and lowers the function for these arguments, which stay as they are.

        Args:
          *args, **kwargs: as of the wrapped function; `jax.ShapeDtypeStruct`s may stand for arrays.

        Returns:
          What `filter_jit(...).lower` returns.
        """
        return self.trace(*args, **kwargs).lower()

    def cache_info(self) -> CacheInfo:
        """How many static keys and traces the function has, and how many of its calls were hits.

        Returns:
          As of `filter_jit`.
        """
        return self._compiled.cache_info()

    def clear_cache(self) -> None:
        """Drops every static key, trace and executable of the function."""
        self._compiled.clear_cache()
        self._graphs.clear()

    def report(self) -> Any:
        """What this function has cost: per static key and trace, the calls, the seconds, the size of the program.

        Returns:
          As of `filter_jit`.
        """
        return self._compiled.report()


class Stage:
    """A call taken apart: all that filter_jit's stage has, and where that runs or goes on, this does too."""

    def __init__(self, jitted: NnxJit[..., Any], stage: Any):
        self._jitted = jitted
        self._stage = stage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)

    def lower(self, **options: Any) -> "Stage":
        """Lowers a traced call; options as of `partax.Traced.lower`."""
        return Stage(self._jitted, self._stage.lower(**options))

    def compile(self, **options: Any) -> "Stage":
        """Compiles a lowered call; options as of `partax.Lowered.compile`."""
        return Stage(self._jitted, self._stage.compile(**options))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs a compiled call, and changes its arguments."""
        return self._jitted._run(self._stage, args, kwargs)


read_by(TracedFunction, operator.attrgetter("__wrapped__", "options"), (".__wrapped__", ".<options>"))
