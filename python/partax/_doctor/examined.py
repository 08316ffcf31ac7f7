"""The program of a call, traced from whatever kind of function, without running it or allocating its arrays."""

import dataclasses
import functools
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax

from partax import _core
from partax._doctor.definition import definition, wrapper_kind
from partax._doctor.equations import Equations, bytes_of
from partax._families import equinox_private
from partax._jax.private import jit_options
from partax._jit.ahead_of_time import Traced
from partax._jit.filter_jit import filter_jit

Read = TypeVar("Read")


@dataclasses.dataclass(frozen=True)
class Leaf:
    """An array of the arguments or of the result.

    Attributes:
      path: from the user's own argument, such as `model.layers[0].weight`; of the result `result[0]`.
      aval: its dtype, shape and weak type.
      donated: whether its buffer is given away; False of results.
      value: the array that was passed; None where a `ShapeDtypeStruct` stood for it, and of results.
    """

    path: str
    aval: Any
    donated: bool = False
    value: Any = None

    @property
    def bytes(self) -> int:
        return bytes_of(self.aval)


@dataclasses.dataclass
class Examined:
    """A traced program, and what is known of it.

    Attributes:
      name: the function's name.
      defined: where it is defined, such as `train.py:12`.
      function: the user's function, without the wrappers of jit.
      wrapper: what was given to the doctor.
      jaxpr: the program, a `ClosedJaxpr` whose inputs are `arguments` in order.
      arguments: the arrays that came in, one for each input of the jaxpr.
      results: the arrays of the result, as `out_info` has them. The jaxpr may have fewer outputs: what partax returns
        as it came in is none.
      statics: the static values that came in, by path.
      out_info: the result, with a `ShapeDtypeStruct` for each array.
      trace_seconds: how long tracing took.
      traced: jax's or partax's traced call, to lower it.
      args: the arguments as they were given.
      kwargs: those by name.
      memory_limit: bytes that the program may take, or None for those of the device.
      measure: whether finders may compile and run small programs to measure what their advice gains.
      calls: how often a script has called the function, where that is known.
      compiled: the compiled program, or None.
      lower_seconds, compile_seconds: how long those took, or None.
      read: what finders have read of it, by the function that did.
    """

    name: str
    defined: str
    function: Any
    wrapper: Any
    jaxpr: Any
    arguments: tuple[Leaf, ...]
    results: tuple[Leaf, ...]
    trace_seconds: float
    statics: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    out_info: Any = None
    traced: Any = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    memory_limit: int | None = None
    measure: bool = False
    calls: int = 0
    compiled: Any = None
    lower_seconds: float | None = None
    compile_seconds: float | None = None
    read: dict[Any, Any] = dataclasses.field(default_factory=dict[Any, Any], init=False, repr=False)

    @functools.cached_property
    def bound_arguments(self) -> dict[str, Any]:
        """The arguments of the call by name, without those that it leaves to their defaults."""
        try:
            return dict(inspect.signature(self.function).bind(*self.args, **self.kwargs).arguments)
        except (TypeError, ValueError):  # no signature is known
            return {"args": self.args, **self.kwargs}

    @property
    def forwarded(self) -> Sequence[int]:
        """The indices of the arguments that partax returns as they came: they are none of the program's results."""
        if not isinstance(self.traced, Traced):
            return ()
        return _core.output_info(self.traced._of_jax.out_info)[0]

    @functools.cached_property
    def equations(self) -> Equations:
        """All equations, those of inner programs included, in order."""
        return Equations(self.jaxpr.jaxpr)


def kept(read: Callable[[Examined], Read]) -> Callable[[Examined], Read]:
    """Keeps what was read of a program as long as that lives: several finders ask for the same."""

    @functools.wraps(read)
    def once(examined: Examined) -> Read:
        if read not in examined.read:
            examined.read[read] = read(examined)
        return examined.read[read]

    return once


def examine(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Examined:
    """Traces a call of what `partax.doctor` takes, without running it; a `ShapeDtypeStruct` stands for an array.

    Raises:
      TypeError: there is no program; the cause is the function's own exception, if there is one.
    """
    if not callable(function):
        raise TypeError(f"partax.doctor: found {type(function).__name__}, expected a function")
    wrapper, plain = _traceable(function)
    name = getattr(plain, "__name__", type(plain).__name__)
    begin = time.perf_counter()
    try:
        traced = wrapper.trace(*args, **kwargs)
    except Exception as error:
        raise TypeError(
            f"partax.doctor: `{name}` raised {type(error).__name__} when it was traced (its message is above); mend "
            f"that first: with the same arguments, `partax.filter_jit({name})` or `jax.jit({name})` would raise it too"
        ) from error
    seconds = time.perf_counter() - begin
    arguments, statics = _arguments(traced, wrapper, plain, args, kwargs)
    return Examined(
        name=name,
        defined=definition(plain).place,
        function=plain,
        wrapper=function,
        jaxpr=traced.jaxpr,
        arguments=arguments,
        results=_results(traced.out_info),
        statics=statics,
        out_info=traced.out_info,
        trace_seconds=seconds,
        traced=traced,
        args=args,
        kwargs=kwargs,
    )


def _traceable(function: Any) -> tuple[Any, Any]:
    """What traces a function as its own jit would, and the function itself."""
    plain = inspect.unwrap(function)
    kind = wrapper_kind(function)
    # A `jax.custom_jvp` around one has attributes of it, but not this.
    if (kind == "jax" and hasattr(function, "trace")) or isinstance(function, _core.JitFunction):
        return function, plain
    if kind == "equinox":
        of_equinox = equinox_private.jit_options(function)
        return filter_jit(plain, donate=of_equinox[0] if of_equinox is not None else "none"), plain
    if kind == "nnx":
        from partax._libraries.flax.options import made_jit  # it imports Flax

        given = jit_options(getattr(function, "jitted_fn", None)) or {}
        static, donated = ((given.get(f"{name}_argnums") or None, None) for name in ("static", "donate"))
        options: dict[str, Any] = {"donate": "none", "in_shardings": None, "out_shardings": None}
        return made_jit(plain, None, None, static=static, donated=donated, **options), plain
    return filter_jit(function), plain


def _arguments(
    traced: Any, wrapper: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Leaf, ...], dict[str, Any]]:
    """The arrays that came in, and the static values by path."""
    known = dict(_arrays(function, args, kwargs))
    if isinstance(traced, Traced):
        infos, statics = traced.args_info, traced.statics
    else:
        pairs, _ = jax.tree_util.tree_flatten_with_path(traced.args_info)
        names = _names(function, len(args))
        given = (jit_options(wrapper) or {}).get("static_argnums") or ()
        static = {at + len(args) if at < 0 else at for at in given}  # some may be of arguments that are left out
        dynamic = [name for at, name in enumerate(names) if at not in static]
        infos = {_path(dynamic, keys): info for keys, info in pairs}
        statics = {name: value for name, value in _bound(names, args, kwargs) if not _holds(infos, name)}
    leaves = zip(infos.items(), traced.jaxpr.in_avals, strict=True)
    return tuple(Leaf(path, aval, bool(info.donated), known.get(path)) for (path, info), aval in leaves), statics


def _names(function: Any, count: int) -> list[str]:
    """How the parameters are called that so many arguments by position are for."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [f"args[{i}]" for i in range(count)]
    named = [it.name for it in parameters if it.kind in (it.POSITIONAL_ONLY, it.POSITIONAL_OR_KEYWORD)]
    rest = next((it.name for it in parameters if it.kind is it.VAR_POSITIONAL), "args")
    return [*named[:count], *(f"{rest}[{i}]" for i in range(count - len(named)))]


def _bound(names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    return [*zip(names, args, strict=True), *kwargs.items()]


def _arrays(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in _bound(_names(function, len(args)), args, kwargs):
        leaves, spec = _core.flatten(value, name)
        yield from zip(spec.dynamic_paths(), leaves, strict=True)


def _path(names: list[str], keys: tuple[Any, ...]) -> str:
    """The path of an array of `jax.jit`'s `(args, kwargs)`."""
    which, at, *inner = keys
    return (names[at.idx] if which.idx == 0 else str(at.key)) + jax.tree_util.keystr(tuple(inner))


def _holds(infos: dict[str, Any], name: str) -> bool:
    return any(path == name or path.startswith((name + ".", name + "[")) for path in infos)


def _results(out_info: Any) -> tuple[Leaf, ...]:
    pairs, _ = jax.tree_util.tree_flatten_with_path(out_info)
    return tuple(
        Leaf("result" + jax.tree_util.keystr(keys), it) for keys, it in pairs if isinstance(it, jax.ShapeDtypeStruct)
    )
