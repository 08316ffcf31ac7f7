"""The program of a call, traced from whatever kind of function, without running it or allocating its arrays."""

import contextlib
import dataclasses
import functools
import inspect
import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
from jax.tree_util import keystr, tree_flatten_with_path

from partax import _core
from partax._doctor.figures import bytes_of
from partax._doctor.lines import NOWHERE, Line
from partax._doctor.trace_profile import TraceProfile, profile_of, sampler
from partax._families import equinox_private
from partax._families.objects import unwrapped
from partax._jax.private import jit_options
from partax._jit.ahead_of_time import Traced
from partax._jit.filter_jit import filter_jit
from partax._pytree.short_text import one_line
from partax._transforms.wrapper import names_of_arguments

_LONGEST = 300  # characters of the message of an error
Kind = Literal["partax", "jax", "equinox", "nnx"]


def definition(function: Any) -> Line:
    """The first line of a function, that of its decorator if it has one."""
    plain = unwrapped(function)
    code = getattr(plain, "__code__", None) or getattr(getattr(type(plain), "__call__", None), "__code__", None)  # noqa: B004
    return NOWHERE if code is None else Line(code.co_filename, code.co_firstlineno, code.co_qualname)


def wrapper_kind(wrapper: Any) -> Kind:
    """Whose jit has compiled a function; partax's for one that none has."""
    if jit_options(wrapper) is not None:
        return "jax"
    equinox_jit = equinox_private.jit_class()
    if equinox_jit is not None and isinstance(wrapper, equinox_jit):
        return "equinox"
    return "nnx" if type(wrapper).__module__.startswith("flax.nnx") else "partax"


def names_text(names: Sequence[str]) -> str:
    """A tuple of names as it is written: `("model", "state")`."""
    return str(tuple(names)).replace("'", '"')


class Leaf(NamedTuple):
    path: str  # from the user's own argument, such as `model.layers[0].weight`
    aval: Any
    donated: bool

    @property
    def bytes(self) -> int:
        return bytes_of(self.aval)


@dataclasses.dataclass
class Program:
    name: str
    line: Line  # the first of the function, or that of a loop that is a program itself
    function: Any  # the user's, without the wrappers of jit
    kind: Kind  # whose jit compiles it
    jaxpr: Any  # a `ClosedJaxpr` whose inputs are `arguments` in order
    arguments: tuple[Leaf, ...]
    result_bytes: int  # with those of what partax returns unchanged, which is not an output of the jaxpr
    trace_seconds: float
    out_info: Any = None  # the result, with a `ShapeDtypeStruct` for each array
    traced: Any = None  # jax's or partax's traced call, to lower it; None of a script's program
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    memory_limit: int | None = None  # bytes that the program may take; None for those of the device
    compiled: Any = None
    trace_profile: TraceProfile | None = None

    def name_arguments(self, paths: Sequence[str]) -> None:
        if len(paths) == len(self.arguments):
            pairs = zip(self.arguments, paths, strict=True)
            self.arguments = tuple(leaf._replace(path=path) for leaf, path in pairs)

    @functools.cached_property
    def bound_arguments(self) -> dict[str, Any]:
        with contextlib.suppress(TypeError, ValueError):  # some callables lack a signature
            return dict(inspect.signature(self.function).bind(*self.args, **self.kwargs).arguments)
        return {"args": self.args, **self.kwargs}


def trace_program(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_sampled: bool) -> Program:
    if not callable(function):
        raise TypeError(f"partax.doctor: found {type(function).__name__}, expected a function")
    wrapper, plain = _traceable(function)
    name = getattr(plain, "__name__", type(plain).__name__)
    if is_sampled:
        sampler.begin()
    begin = time.perf_counter()
    try:
        traced = wrapper.trace(*args, **kwargs)
    except Exception as error:
        message = f"partax.doctor: `{name}` raised {type(error).__name__} when it was traced, as a call would: "
        raise TypeError(message + one_line(str(error), _LONGEST)) from error
    finally:
        samples = sampler.end() if is_sampled else []
    seconds = time.perf_counter() - begin
    arguments = _arguments(traced, wrapper, plain, len(args))
    result_bytes = sum(map(bytes_of, jax.tree.leaves(traced.out_info)))
    return Program(
        name, definition(plain), plain, wrapper_kind(function), traced.jaxpr, arguments, result_bytes, seconds,
        traced.out_info, traced, args, kwargs, trace_profile=profile_of(samples, seconds) if is_sampled else None,
    )  # fmt: skip


def _traceable(function: Any) -> tuple[Any, Any]:
    plain = inspect.unwrap(function)
    kind = wrapper_kind(function)
    # A `jax.custom_jvp` around one has attributes of it, but not this.
    if (kind == "jax" and hasattr(function, "trace")) or isinstance(function, _core.JitFunction):
        return function, plain
    if kind == "equinox":
        donate, *_ = equinox_private.jit_options(function) or ("none",)
        return filter_jit(plain, donate=donate.replace("warn", "all")), plain  # which only warns less
    if kind == "nnx":
        from partax._libraries.flax.options import wrapper_for_nnx  # it imports Flax

        flax_options = jit_options(getattr(function, "jitted_fn", None)) or {}
        options: dict[str, Any] = dict.fromkeys(("static_argnames", "donate_argnames", "in_shardings", "out_shardings"))
        options |= {name: flax_options.get(name) or None for name in ("static_argnums", "donate_argnums")}
        return wrapper_for_nnx(plain, None, None, donate="none", **options), plain
    return filter_jit(function), plain


def _arguments(traced: Any, wrapper: Any, function: Any, count: int) -> tuple[Leaf, ...]:
    infos = traced.args_info
    if not isinstance(traced, Traced):
        numbers = (jit_options(wrapper) or {}).get("static_argnums") or ()
        static = {at + count if at < 0 else at for at in numbers}  # some may be of arguments that are left out
        dynamic = [name for at, name in enumerate(names_of_arguments(function, count)) if at not in static]
        infos = {_path(dynamic, keys): info for keys, info in tree_flatten_with_path(infos)[0]}
    leaves = zip(infos.items(), traced.jaxpr.in_avals, strict=True)
    return tuple(Leaf(path, aval, bool(info.donated)) for (path, info), aval in leaves)


def _path(names: list[str], keys: tuple[Any, ...]) -> str:
    which, at, *inner = keys
    return (names[at.idx] if which.idx == 0 else str(at.key)) + keystr(tuple(inner))
