"""The options of filter_jit, checked and comparable; how a callable is called, and by which names options mean what."""

import dataclasses
import enum
import inspect
import itertools
import os
import types
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax

from partax import _core
from partax._families.equinox import is_module
from partax._families.objects import attribute_of, unwrapped
from partax._pytree.short_text import short_text

_MODES = ("none", "all", "all-except-first")


def is_traced_array(leaf: Any) -> bool:
    return _core.node_kind(leaf) == "dynamic_leaf" or isinstance(leaf, jax.ShapeDtypeStruct)


def is_of_nnx(value: Any) -> bool:
    return any(cls.__module__.startswith("flax.nnx") for cls in type(value).__mro__)


@dataclasses.dataclass(eq=False, repr=False)
class Options:
    """The options of one filter_jit, checked, and comparable by the rules of static values."""

    donate: Any = "none"
    inline: bool | enum.Enum = False
    keep_unused: bool = False
    compiler_options: dict[str, Any] | None = None
    in_shardings: Any = None
    out_shardings: Any = None
    cache_size: int = 4096
    reuse_equal_functions: bool = True
    dynamic: Any = None
    max_traces: int | None = None
    graph: Any = None  # a GraphMode: how objects in the arguments are changed in place, for `partax.nnx`; None: not
    donates_returned: bool = False  # whether an array that is donated and returned is another one then, as with jax.jit
    warns_of_donation: bool = True  # whether jax warns about donated arrays that it could not use; Equinox does not
    # Of `jit`: the static arguments, by name or position; all others consist of arrays and numbers. Else None.
    static_parameters: tuple[str | int, ...] | None = None
    store: Any = None  # the folder for its programs; False for none, None for that of `partax.store`

    def __post_init__(self) -> None:
        if not isinstance(self.cache_size, int) or self.cache_size < 1:
            raise ValueError(f"found cache_size={self.cache_size!r}, expected a positive number of static keys")
        check_max_traces(self.max_traces)
        if not isinstance(self.reuse_equal_functions, bool):
            raise TypeError(f"found reuse_equal_functions={self.reuse_equal_functions!r}, expected True or False")
        self.dynamic, self.store = _dynamic(self.dynamic), _folder(self.store)
        self.inline = self.inline if isinstance(self.inline, enum.Enum) else bool(self.inline)
        self.keep_unused, self.cache_size = bool(self.keep_unused), int(self.cache_size)
        self.compiler_options = None if self.compiler_options is None else dict(self.compiler_options)
        self.key = tuple(getattr(self, field.name) for field in dataclasses.fields(self))
        self._spec = _core.flat_partition(self.key, (), None, True, None, "options")[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self._spec == other._spec

    def __hash__(self) -> int:
        return hash(self._spec)

    @property
    def kind(self) -> str:
        return "nnx.jit" if self.graph else "filter_jit" if self.static_parameters is None else "jit"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Options, self.key)

    def traces(self, parameter: str, leaf: Any) -> bool:
        if is_traced_array(leaf):
            return True
        if self.static_parameters is not None:
            return _core.is_array_like(leaf)
        if isinstance(self.dynamic, tuple):
            return parameter in self.dynamic and _core.is_array_like(leaf)
        return self.dynamic is not None and bool(self.dynamic(leaf))

    def donated_values(self, call: "CallShape") -> set[int]:
        """Return the indices of the values of a call whose arrays are donated."""
        if self.donate == "none":
            return set()
        if isinstance(self.donate, tuple):
            return {i for i, is_meant in enumerate(values_meant(self.donate, call)) if is_meant}
        first = {int(call.has_callable)} if self.donate == "all-except-first" else set[int]()
        return {*range(len(call.value_parameters))} - first


def check_max_traces(max_traces: Any) -> None:
    if max_traces is not None and (not isinstance(max_traces, int) or max_traces < 0):
        raise ValueError(f"found max_traces={max_traces!r}, expected a number of traces, or None for any")


def _names(names: Any) -> tuple[str, ...] | None:
    """Return the names of arguments, one alone or several; None for any other value."""
    several = tuple(names) if isinstance(names, (tuple, list, set, frozenset)) else (names,)
    return several if all(isinstance(name, str) for name in several) else None


def resolve_donate(donate: Any) -> str | tuple[str, ...]:
    names = _names(donate)
    if names is None:
        raise ValueError(f"found donate={donate!r}, expected one of {_MODES} or names of arguments")
    return donate if isinstance(donate, str) and donate in _MODES else names


def _folder(store: Any) -> str | Literal[False] | None:
    if store is None or store is False:
        return store
    if not isinstance(store, (str, os.PathLike)):
        raise TypeError(
            f"found store={short_text(store)}, expected a folder, False for none, or None for that of partax.store"
        )
    text = os.fspath(store)
    return text if "://" in text else os.path.abspath(os.path.expanduser(text))  # the address of a bucket


def _dynamic(dynamic: Any) -> Any:
    if dynamic is None or callable(dynamic):
        return dynamic
    names = _names(dynamic) if isinstance(dynamic, (str, tuple, list)) else None
    if not names:
        raise ValueError(f"found dynamic={dynamic!r}, expected a predicate on leaves or a tuple of argument names")
    return names


class CallParameters(NamedTuple):
    """The parameters by which a callable is really called, as the native binding of arguments reads them."""

    function: str
    names: tuple[str, ...]  # positional ones first, then keyword-only ones
    optional: tuple[bool, ...]
    num_positional_only: int
    num_positional: int
    var_positional: bool
    var_named: bool
    # What `*args` and `**kwargs` take has the names that the callable shows, if these are others (`functools.wraps`).
    shown_named: tuple[str, ...]  # of values in `**kwargs`, in order
    shown_positional: tuple[str, ...]  # of the values in `*args`, from the first; empty where it has no name
    var_names: tuple[str, str]  # what takes the others of both; empty where nothing is shown

    def shape_of_call(
        self, left_out: tuple[int, ...], num_extra: int, keywords: tuple[str, ...], has_callable: bool
    ) -> "CallShape":
        """Called by the native wrapper."""
        return CallShape(self, left_out, num_extra, keywords, has_callable)


class CallShape(NamedTuple):
    """Which values a call has."""

    parameters: CallParameters
    left_out: tuple[int, ...]  # the indices of the parameters without a value
    num_extra: int  # the number of values in `*args`
    keywords: tuple[str, ...]  # the names of those in `**kwargs`
    has_callable: bool  # whether the callable itself is the first value

    def _first_names(self, function: str) -> list[str]:
        names = [name for i, name in enumerate(self.parameters.names) if i not in self.left_out]
        return [function, *names] if self.has_callable else names

    @property
    def value_names(self) -> tuple[str, ...]:
        """The root of each value's path in messages: `model`, `args[0]`, and items of `**kwargs` by their own names."""
        parameters, names = self.parameters, self._first_names(self.parameters.function)
        rest = parameters.var_names[0] or "args"
        displayed = [name or f"{rest}[{i}]" for i, name in enumerate(parameters.shown_positional)]
        unnamed = [f"{rest}[{i}]" for i in range(self.num_extra - len(displayed))]
        return (*names, *displayed[: self.num_extra], *unnamed, *self.keywords)

    def call(self, function: Callable[..., Any], values: Sequence[Any]) -> Any:
        parameters, rest = self.parameters, iter(values)
        named = {name: next(rest) for name in self._first_names("")}
        named.pop("", None)  # the callable
        first_named = min((parameters.num_positional, *self.left_out))
        args = [named.pop(name) for name in parameters.names[:first_named]]
        args += itertools.islice(rest, self.num_extra)
        return function(*args, **named, **dict(zip(self.keywords, rest, strict=True)))

    @property
    def value_parameters(self) -> list[str]:
        """The parameter of each value, by which options mean it; the callable has none."""
        parameters, names = self.parameters, self._first_names("")
        names += [parameter_at(parameters, parameters.num_positional + i) for i in range(self.num_extra)]
        return names + [name if name in parameters.shown_named else parameters.var_names[1] for name in self.keywords]


ANY_SIGNATURE = inspect.signature(lambda *args, **kwargs: None)
_Kinds = inspect.Parameter
_POSITIONAL = (_Kinds.POSITIONAL_ONLY, _Kinds.POSITIONAL_OR_KEYWORD)
_VARIABLE = (_Kinds.VAR_POSITIONAL, _Kinds.VAR_KEYWORD)
_NAMED = (_Kinds.POSITIONAL_OR_KEYWORD, _Kinds.KEYWORD_ONLY)


def _real_signature(fun: Any) -> inspect.Signature:
    """The parameters by which `fun` is really called: a wrapper may have others than its `__wrapped__` shows."""
    # Other objects of partax that pass their arguments to a wrapped function have this attribute.
    while isinstance(fun, _core.JitFunction) or getattr(type(fun), "_is_called_as_wrapped", False) is True:
        fun = fun.__wrapped__
    if is_module(type(fun)) and type(fun).__name__ == "BoundMethod":  # Equinox makes a module of a method
        fun = types.MethodType(fun.__func__, fun.__self__)
    method = inspect.getattr_static(type(fun), "__call__", None)
    if isinstance(method, staticmethod):  # which `inspect` reads wrongly before Python 3.13
        return ANY_SIGNATURE
    if isinstance(method, types.FunctionType):
        fun = types.MethodType(method, fun)
    if isinstance(fun, types.FunctionType):
        defaults = fun.__kwdefaults__
        fun = types.FunctionType(fun.__code__, {}, fun.__name__, fun.__defaults__, fun.__closure__)
        fun.__kwdefaults__ = defaults
    return signature_of(fun, follow_wrapped=False)


def names_of(fun: Any) -> tuple[str, str]:
    """The name and the qualified name of a callable, or of its class."""
    fun = unwrapped(fun)
    named = fun if isinstance(attribute_of(fun, "__name__"), str) else type(fun)
    return named.__name__, attribute_of(named, "__qualname__", named.__name__)


def signature_of(fun: Any, **options: Any) -> inspect.Signature:
    try:
        return inspect.signature(fun, **options)
    except (TypeError, ValueError):
        return ANY_SIGNATURE


def call_parameters(fun: Any) -> CallParameters:
    """Describe how `fun` is called. Called by the native wrapper."""
    real, public = _real_signature(fun).parameters.values(), signature_of(fun).parameters.values()
    positional = [p for p in real if p.kind in _POSITIONAL]
    by_name = positional + [p for p in real if p.kind is _Kinds.KEYWORD_ONLY]
    names = tuple(p.name for p in by_name)
    has_args, has_kwargs = (any(p.kind is kind for p in real) for kind in _VARIABLE)
    public_positional = [p.name for p in public if p.kind in _POSITIONAL][len(positional) :]
    rest = {p.kind: p.name for p in public}
    return CallParameters(
        function=name if isinstance(name := getattr(fun, "__name__", None), str) else type(fun).__name__,
        names=names,
        optional=tuple(p.default is not _Kinds.empty for p in by_name),
        num_positional_only=sum(p.kind is _Kinds.POSITIONAL_ONLY for p in positional),
        num_positional=len(positional),
        var_positional=has_args,
        var_named=has_kwargs,
        shown_named=tuple(p.name for p in public if p.kind in _NAMED) if has_kwargs else (),
        shown_positional=tuple("" if name in names else name for name in public_positional) if has_args else (),
        var_names=(has_args * rest.get(_VARIABLE[0], ""), has_kwargs * rest.get(_VARIABLE[1], "")),
    )


def check_names(fun: Any, option: str, names: Any) -> None:
    """Raise a ValueError if an option names an argument that a callable does not have."""
    if not isinstance(names, tuple) or not names:
        return
    parameters = call_parameters(fun)
    shown = (*parameters.names, *parameters.shown_positional, *parameters.shown_named, *parameters.var_names)
    expected = [expected_name for expected_name in dict.fromkeys(shown) if expected_name]
    for name in names:
        if name not in expected:
            of_function = f"names of arguments of `{names_of(fun)[1]}`: {', '.join(expected)}"
            raise ValueError(f"found {name!r} in {option}, expected {of_function}")


def parameter_at(parameters: CallParameters, position: int) -> str:
    i = position - parameters.num_positional
    if i < 0:
        return parameters.names[position]
    displayed = parameters.shown_positional
    return (displayed[i] if i < len(displayed) else "") or parameters.var_names[0]


def values_meant(chosen: tuple[str | int, ...], call: CallShape) -> tuple[bool, ...]:
    """Return whether an option with these names and positions means each value of a call. Called by the native wrapper.
    A position is that of a value in `*args`, and a value in `**kwargs` also has its own name.
    """
    parameters, first = call.value_parameters, len(call.value_parameters) - len(call.keywords) - call.num_extra
    own: list[str | int] = [*parameters[:first]]
    own += range(call.parameters.num_positional, call.parameters.num_positional + call.num_extra)
    own += call.keywords
    return tuple(parameter in chosen or name in chosen for parameter, name in zip(parameters, own, strict=True))
