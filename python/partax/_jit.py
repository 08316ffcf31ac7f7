"""filter_jit: its options, and the jax.jit target behind each static key."""

import copyreg
import functools
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, cast, overload

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import PartitionSpec, Sharding

from partax import _core, _stages
from partax._core import JitFunction
from partax._jax_private import is_committed

_P = ParamSpec("_P")
_R = TypeVar("_R")

DonateMode = Literal["none", "all", "all-except-first", "warn", "warn-except-first"]
_MODES = ("none", "all", "all-except-first", "warn", "warn-except-first")


class CacheInfo(NamedTuple):
    """What the cache of a wrapper holds, and what became of its calls."""

    static_keys: int
    traces: int
    hits: int
    misses: int
    max_size: int


class _Options:
    """The options of one filter_jit, comparable by the rules of static values."""

    def __init__(
        self,
        donate: str | tuple[str, ...],
        inline: bool,
        keep_unused: bool,
        compiler_options: dict[str, Any] | None,
        in_shardings: Any,
        out_shardings: Any,
        cache_size: int,
        callables: str,
        trace: Callable[[Any], bool] | tuple[str, ...] | None,
        max_traces: int | None,
    ):
        self.donate = donate
        self.inline = inline
        self.keep_unused = keep_unused
        self.compiler_options = compiler_options
        self.in_shardings = in_shardings
        self.out_shardings = out_shardings
        self.cache_size = cache_size
        self.callables = callables
        self.trace = trace
        self.max_traces = max_traces
        self.key = (
            *(donate, inline, keep_unused, compiler_options, in_shardings, out_shardings, cache_size, callables),
            *(trace, max_traces),
        )
        self._spec = _core.flatten(self.key, "options")[1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Options) and self._spec == other._spec

    def __hash__(self) -> int:
        return hash(self._spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Options, self.key)

    @property
    def silences_warnings(self) -> bool:
        """Whether jax's warning about donated buffers that it could not use is kept from the user."""
        return self.donate not in ("none", "warn", "warn-except-first")

    def traces(self, name: str, leaf: Any) -> bool:
        """Whether a leaf in the value called `name` is traced."""
        if _is_array(leaf):
            return True
        if isinstance(self.trace, tuple):
            return name.split("[")[0] in self.trace and _core.is_array_like(leaf)
        return self.trace is not None and bool(self.trace(leaf))

    def donated_values(self, names: Sequence[str], has_callable: bool) -> set[int]:
        """The indices of the values of a call whose arrays are donated."""
        everything = set(range(len(names)))
        first = 1 if has_callable else 0
        if self.donate == "none":
            return set()
        if self.donate in ("all", "warn"):
            return everything
        if self.donate in ("all-except-first", "warn-except-first"):
            return everything - {first}
        return {i for i, name in enumerate(names) if i >= first and name.split("[")[0] in self.donate}


def _is_sharding_leaf(prefix: Any) -> bool:
    return prefix is None or isinstance(prefix, (Sharding, PartitionSpec))


def _is_array(leaf: Any) -> bool:
    return _core.node_kind(leaf) == "dynamic_leaf" or isinstance(leaf, jax.ShapeDtypeStruct)


def array_shardings(
    prefix: Any, tree: Any, option: str, root: str, is_traced: Callable[[Any], bool] = _is_array
) -> list[Any]:
    """The sharding for each traced leaf of `tree`, from a prefix of it; None where there is none."""
    shardings = _core.broadcast_prefix(prefix, tree, _is_sharding_leaf, option, root)
    return [sharding for leaf, sharding in zip(jax.tree.leaves(tree), shardings, strict=True) if is_traced(leaf)]


def _leaf_in_shardings(options: _Options, names: Sequence[str], values: Sequence[Any], has_callable: bool) -> list[Any]:
    """The explicit sharding of each input leaf of a call, or None."""
    prefix = options.in_shardings
    first = 1 if has_callable else 0
    per_value: list[Any] = [None] * len(values)
    if isinstance(prefix, tuple) and not _is_sharding_leaf(prefix):
        given = list(prefix)
        if len(given) > len(values) - first:
            raise ValueError(
                f"in_shardings has {len(given)} entries, expected at most one for each argument "
                f"({', '.join(names[first:])})"
            )
        per_value[first : first + len(given)] = given
        for name, value in list(zip(names, values, strict=True))[first + len(given) :]:
            if any(options.traces(name, leaf) for leaf in jax.tree.leaves(value)):
                raise ValueError(
                    f"in_shardings has {len(given)} entries and none for the arrays of `{name}`; use None to leave it "
                    "to jax"
                )
    else:
        per_value[first:] = [prefix] * (len(values) - first)
    shardings: list[Any] = []
    for name, value, part in zip(names, values, per_value, strict=True):
        is_traced = functools.partial(options.traces, name)
        shardings += array_shardings(part, value, "in_shardings", name, is_traced)
    return shardings


def _out_shardings(options: _Options, result: Any) -> tuple[Any, ...] | None:
    """The explicit sharding of each array of a result, or None if there are no out_shardings."""
    if options.out_shardings is None:
        return None
    return tuple(array_shardings(options.out_shardings, result, "out_shardings", "the result"))


def _silence_donation_warnings() -> None:
    """Until the call ends: jax compiles, and so warns, after the trace, when none of our Python runs."""
    catcher = warnings.catch_warnings()
    if _core.on_call_exit(lambda: catcher.__exit__(None, None, None)):
        catcher.__enter__()
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")


def _names(fun: Any) -> tuple[str, str]:
    """The names of what a callable wraps."""
    for _ in range(100):
        if isinstance(fun, functools.partial):
            fun = fun.func
        elif hasattr(fun, "__wrapped__"):
            fun = fun.__wrapped__
        else:
            break
    named = fun if isinstance(getattr(fun, "__name__", None), str) else type(fun)
    return named.__name__, getattr(named, "__qualname__", named.__name__)


class _Path(str):
    """A path as the name of a parameter, which `inspect` would else refuse."""

    __slots__ = ()

    def isidentifier(self) -> bool:
        return True


def _source_of(fun: Any) -> Callable[..., Any] | None:
    """A function that is `fun` only by name and place: jax names them in its errors."""
    fun = inspect.unwrap(fun)
    while isinstance(fun, functools.partial):
        fun = inspect.unwrap(fun.func)
    call = fun if hasattr(fun, "__code__") else type(fun).__call__
    code = getattr(call, "__code__", None)
    if not isinstance(code, types.CodeType):
        return None
    closure = tuple(types.CellType() for _ in code.co_freevars)
    return types.FunctionType(code, {}, _names(fun)[0], None, closure)


def _new_target_function(fun: Any, silent: bool, paths: Sequence[str]) -> Callable[..., Any]:
    def target(*leaves: Any) -> Any:
        if silent:
            _silence_donation_warnings()
        return _core.trace(*leaves)

    # It keeps nothing of the user's: the arguments and the function come from the call that is under way.
    target.__name__, target.__qualname__ = _names(fun)
    # jax's errors name the arguments by the signature and the function by what it wraps.
    only = inspect.Parameter.POSITIONAL_ONLY
    target.__signature__ = inspect.Signature([inspect.Parameter(_Path(path), only) for path in paths])  # type: ignore[attr-defined]
    source = _source_of(fun)
    if source is not None:
        target.__wrapped__ = source  # type: ignore[attr-defined]
    return target


_Draft = tuple[Callable[..., Any], dict[str, Any]]


def draft_target(
    options: _Options,
    fun: Any,
    names: tuple[str, ...],
    values: tuple[Any, ...],
    leaves: tuple[Any, ...],
    has_callable: bool,
    paths: list[str],
) -> tuple[_Draft, bytes]:
    """Makes what the jax.jit target of a new static key is made of. Called by the native wrapper, in the first call.

    Args:
      options: the wrapper's.
      fun: the wrapped callable.
      names: the name of each value of the call: parameters, `args[i]`, keywords.
      values: the values; the first is the callable itself if `has_callable`.
      leaves: the array leaves.
      has_callable: whether the callable is a tree whose arrays are traced.
      paths: the paths of the array leaves, from the user's arguments.

    Returns:
      The function of the leaves with options of jax.jit, and for each leaf a byte that is 1 where it must not be
      forwarded.
    """
    function = _new_target_function(fun, options.silences_warnings, paths)
    keywords: dict[str, Any] = {}
    if options.inline:
        keywords["inline"] = True
    if options.keep_unused:
        keywords["keep_unused"] = True
    if options.compiler_options is not None:
        keywords["compiler_options"] = options.compiler_options
    pinned = bytearray(len(leaves))
    if options.in_shardings is not None:
        shardings = _leaf_in_shardings(options, names, values, has_callable)
        keywords["in_shardings"] = tuple(shardings)
        for i, sharding in enumerate(shardings):
            pinned[i] = sharding is not None
    return (function, keywords), bytes(pinned)


def build_target(
    options: _Options,
    draft: _Draft,
    names: tuple[str, ...],
    owners: list[int],
    leaves: tuple[Any, ...],
    has_callable: bool,
    kept: bytes,
) -> tuple[Callable[..., Any], bytes]:
    """Makes the jax.jit target of a new static key. Called by the native wrapper, maybe by several threads at once.

    Args:
      options: the wrapper's.
      draft: what `draft_target` has made; all threads have the same one, so that jax traces it once.
      names: the name of each value of the call.
      owners: for each array leaf, the index of its value.
      leaves: the array leaves.
      has_callable: whether the callable is a tree whose arrays are traced.
      kept: for each leaf, 1 where some thread has traced that it is returned as it came.

    Returns:
      The jitted function of the leaves, and for each leaf a byte that is 1 where it is donated.
    """
    function, keywords = draft[0], dict(draft[1])
    pinned = bytearray(len(leaves))
    donated_values = options.donated_values(names, has_callable)
    donated = {i for i, owner in enumerate(owners) if owner in donated_values}
    if not donated and options.out_shardings is None:
        return jax.jit(function, **keywords), bytes(pinned)

    # What to donate and how the outputs are sharded depends on the result; jax shares this trace with the target below,
    # because it is a trace of the same function object.
    node = jax.jit(function, **keywords).trace(*leaves).out_info
    forwarded, out_shardings = _core.output_info(node)
    donated -= {*forwarded, *(i for i, keep in enumerate(kept) if keep)}
    if donated:
        keywords["donate_argnums"] = tuple(sorted(donated))
        for i in donated:
            pinned[i] = True
    if out_shardings is not None:
        keywords["out_shardings"] = _core.with_children(node, out_shardings)
    return jax.jit(function, **keywords), bytes(pinned)


def _to_device(value: Any, inputs: tuple[Any, ...]) -> jax.Array:
    """A forwarded NumPy input as jax.jit would return it: on the devices of the call's committed arrays."""
    if isinstance(value, (int, float, complex)) and not isinstance(value, np.generic):
        value = jax.numpy.asarray(value)  # of a weak type
    else:
        value = np.array(value)  # a copy: on the CPU jax would share the user's memory, which may change later
    for array in inputs:
        if isinstance(array, Tracer) or not isinstance(array, jax.Array) or not is_committed(array):
            continue
        sharding = array.sharding
        if isinstance(sharding, jax.sharding.NamedSharding):
            sharding = jax.sharding.NamedSharding(sharding.mesh, PartitionSpec())
        elif len(sharding.device_set) > 1:
            continue
        return jax.device_put(value, sharding)
    return jax.numpy.asarray(value)


def _cache_info(self: JitFunction[..., Any]) -> CacheInfo:
    """How many static keys and traces the wrapper has, and how many of its calls were hits.

    Returns:
      `(static_keys, traces, hits, misses, max_size)`. A hit is a call that did not trace.
    """
    return CacheInfo(*self._cache_info())


def _reduce(wrapper: JitFunction[..., Any]) -> Any:
    """Pickles by name where the name leads to the wrapper itself, as of a decorated function; else by content."""
    module = sys.modules.get(getattr(wrapper, "__module__", None) or "")
    name = getattr(wrapper, "__qualname__", None)
    if module is not None and isinstance(name, str):
        found: Any = module
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is wrapper:
            return name
    return (_restore, (wrapper.__wrapped__, wrapper._options))


def _restore(fun: Any, options: _Options) -> Any:
    return _core.make_jit_function(fun, options)


def _check_donate(donate: Any) -> str | tuple[str, ...]:
    if isinstance(donate, str):
        if donate not in _MODES:
            raise ValueError(
                f"found donate={donate!r}, expected one of {', '.join(map(repr, _MODES))} or a tuple of argument names"
            )
        return donate
    names = tuple(donate) if isinstance(donate, (tuple, list, set, frozenset)) else (donate,)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"found donate={donate!r}, expected one of {', '.join(map(repr, _MODES))} or a tuple of argument names"
        )
    return names


def _check_trace(trace: Any) -> Callable[[Any], bool] | tuple[str, ...] | None:
    if trace is None or callable(trace):
        return cast("Callable[[Any], bool] | None", trace)
    names: tuple[Any, ...] = (trace,) if isinstance(trace, str) else ()
    if isinstance(trace, (tuple, list)):
        names = tuple(trace)
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"found trace={trace!r}, expected a predicate on leaves or a tuple of argument names")
    return names


def _check_names(fun: Any, option: str, names: tuple[str, ...]) -> None:
    try:
        parameters = inspect.signature(fun).parameters
    except (TypeError, ValueError):
        return
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    for name in names:
        if name not in parameters:
            raise ValueError(
                f"found {name!r} in {option}, expected names of arguments of `{_names(fun)[1]}`: "
                f"{', '.join(parameters)}"
            )


@overload
def filter_jit(
    fun: Callable[_P, _R],
    *,
    donate: DonateMode | Sequence[str] = "none",
    inline: bool = False,
    keep_unused: bool = False,
    compiler_options: dict[str, Any] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    cache_size: int = 4096,
    callables: Literal["structure", "identity"] = "structure",
    trace: Callable[[Any], bool] | Sequence[str] | None = None,
    max_traces: int | None = None,
) -> JitFunction[_P, _R]: ...
@overload
def filter_jit(
    fun: None = None,
    *,
    donate: DonateMode | Sequence[str] = "none",
    inline: bool = False,
    keep_unused: bool = False,
    compiler_options: dict[str, Any] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    cache_size: int = 4096,
    callables: Literal["structure", "identity"] = "structure",
    trace: Callable[[Any], bool] | Sequence[str] | None = None,
    max_traces: int | None = None,
) -> Callable[[Callable[_P, _R]], JitFunction[_P, _R]]: ...
def filter_jit(
    fun: Any = None,
    *,
    donate: DonateMode | Sequence[str] = "none",
    inline: bool = False,
    keep_unused: bool = False,
    compiler_options: dict[str, Any] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    cache_size: int = 4096,
    callables: Literal["structure", "identity"] = "structure",
    trace: Callable[[Any], bool] | Sequence[str] | None = None,
    max_traces: int | None = None,
) -> Any:
    """`jax.jit` for any pytree: arrays are traced, everything else is static.

    Args:
      fun: what to compile: a function, method, callable module (its arrays are traced), partial or transformed
        function. Its arguments may be any pytrees. Without it, a decorator.
      donate: whose arrays' buffers the call may reuse. `"none"`; `"all"`, also those of `fun` itself;
        `"all-except-first"`; or names of arguments. `"warn"` and `"warn-except-first"` are as `"all…"`, but let jax
        warn about donated buffers that it could not use. An array that is returned as it came is not donated.
      inline: whether the traced program is inlined where it is called inside another one, as in `jax.jit`.
      keep_unused: whether arrays that the program does not need are passed to it all the same, as in `jax.jit`.
      compiler_options: options of the XLA compiler, as in `jax.jit`.
      in_shardings: one sharding, or a tuple with a pytree prefix for each argument in the order of the signature; it
        applies to array leaves, and None leaves them to jax.
      out_shardings: a pytree prefix of the result, likewise.
      cache_size: how many static keys to keep; the least recently used goes first.
      callables: when two callables are one static value, also for `fun` itself. `"structure"`: if they have the same
        code and globals, and equal closures, defaults and attributes, so that one made anew does not retrace; what
        holds an array is equal to itself alone. `"identity"`: if they are one object, whatever happens to it.
      trace: which leaves are traced beside arrays: those for which a predicate is true, as `is_array_like` is for
        Python numbers, or all numbers in the arguments with these names. They are arrays of a weak type in `fun`, and
        another number of the same type does not retrace.
      max_traces: how often `fun` may be traced; None for any number. `clear_cache` begins anew.

    Returns:
      A wrapper that is called as `fun` is. It returns as soon as the work is dispatched. Results that are not arrays
      come back as they are, and arrays that are inputs are the very same objects. It shares its traces with every
      wrapper of an equal callable with equal options, and is a pytree of the callable.

    Raises:
      ValueError: `donate` is none of the modes, or names an argument that `fun` does not have; `cache_size` is not
        positive, or `max_traces` is negative; `callables` is neither of the two; `trace` names an argument that `fun`
        does not have.
      RetraceError: when called, it would be traced more than `max_traces` times; the message says what is new.
      TypeError: `fun` is not callable. When called: a static value cannot be hashed or compared; the message has its
        path.
      RecursionError: when called, an argument is nested too deeply or contains itself.
    """
    if not isinstance(cache_size, int) or cache_size < 1:
        raise ValueError(f"found cache_size={cache_size!r}, expected a positive number of static keys")
    if max_traces is not None and (not isinstance(max_traces, int) or max_traces < 0):
        raise ValueError(f"found max_traces={max_traces!r}, expected a number of traces, or None for any")
    if callables not in ("structure", "identity"):
        raise ValueError(f"found callables={callables!r}, expected 'structure' or 'identity'")
    options = _Options(
        _check_donate(donate),
        bool(inline),
        bool(keep_unused),
        None if compiler_options is None else dict(compiler_options),
        in_shardings,
        out_shardings,
        int(cache_size),
        callables,
        _check_trace(trace),
        max_traces,
    )

    def wrap(function: Any) -> Any:
        if not callable(function):
            raise TypeError(f"found a `{type(function).__name__}`, expected a callable to compile")
        for option, names in (("donate", options.donate), ("trace", options.trace)):
            if isinstance(names, tuple):
                _check_names(function, option, names)
        return _core.make_jit_function(function, options)

    return wrap if fun is None else wrap(fun)


# What only a trace or a report needs is imported then: `import partax` is to be quick.


def _new_history(*arguments: Any) -> Any:
    from partax import _records

    _core.configure(new_history=_records.new_history, begin_trace=_records.begin_trace, end_trace=_records.end_trace)
    return _records.new_history(*arguments)


def _report(self: JitFunction[..., Any]) -> Any:
    """What this function has cost: per static key and trace, the calls, the seconds, the size of the program.

    Wrappers of the same callable with the same options share their traces, and so the report.

    Returns:
      A `FunctionReport`, which prints as a table.
    """
    from partax._report import function_report

    return function_report(self)


def install() -> None:
    """Connects the native wrapper with jax. Called once, when partax is imported."""
    _core.configure(
        draft_target=draft_target,
        build_target=build_target,
        to_device=_to_device,
        out_shardings=_out_shardings,
        wrapper_type=JitFunction,
        new_history=_new_history,
    )
    jax.tree_util.register_pytree_node(_core.OutputNode, _core._flatten_output, _core._unflatten_output)
    jax.tree_util.register_pytree_node(JitFunction, _core._flatten_jit, _core._unflatten_jit)
    for name, method in (
        ("lower", _stages.lower),
        ("trace", _stages.trace),
        ("eval_shape", _stages.eval_shape),
        ("cache_info", _cache_info),
        ("report", _report),
    ):
        setattr(JitFunction, name, method)
    copyreg.pickle(JitFunction, _reduce)
