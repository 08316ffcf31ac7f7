"""The options of filter_jit, checked and comparable; how a callable is called, and by which names options mean what."""

import dataclasses
import enum
import functools
import inspect
import os
import types
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, cast

import jax

from partax import _core
from partax._families.equinox import is_module
from partax._pytree.short_text import short_text

DonateMode = Literal["none", "all", "all-except-first", "warn", "warn-except-first"]

_MODES = ("none", "all", "all-except-first", "warn", "warn-except-first")


def is_traced_array(leaf: Any) -> bool:
    return _core.node_kind(leaf) == "dynamic_leaf" or isinstance(leaf, jax.ShapeDtypeStruct)


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
    graph: str | None = None  # how objects in the arguments are changed in place, for `partax.nnx`; None: not
    donates_returned: bool = False  # whether an array that is donated and returned is another one then, as with jax.jit
    store: Any = None  # the folder for its programs; False for none, None for that of `partax.store`

    def __post_init__(self) -> None:
        if not isinstance(self.cache_size, int) or self.cache_size < 1:
            raise ValueError(f"found cache_size={self.cache_size!r}, expected a positive number of static keys")
        check_max_traces(self.max_traces)
        if not isinstance(self.reuse_equal_functions, bool):
            raise TypeError(f"found reuse_equal_functions={self.reuse_equal_functions!r}, expected True or False")
        self.donate, self.dynamic, self.store = _donated(self.donate), _dynamic(self.dynamic), _folder(self.store)
        self.inline = self.inline if isinstance(self.inline, enum.Enum) else bool(self.inline)
        self.keep_unused, self.cache_size = bool(self.keep_unused), int(self.cache_size)
        self.compiler_options = None if self.compiler_options is None else dict(self.compiler_options)
        self.key = tuple(getattr(self, field.name) for field in dataclasses.fields(self))
        self._spec = _core.flatten(self.key, "options")[1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self._spec == other._spec

    def __hash__(self) -> int:
        return hash(self._spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Options, self.key)

    @property
    def without_shardings(self) -> tuple[Any, ...]:
        """All that a program depends on but the shardings, which may hold what is known in this process alone."""
        return (*self.key[:4], *self.key[6:-1])

    @property
    def silences_warnings(self) -> bool:
        """Whether jax's warning about donated buffers that it could not use is kept from the user."""
        return self.donate not in ("none", "warn", "warn-except-first")

    def traces(self, names: set[str], leaf: Any) -> bool:
        """Whether a leaf is traced in a value that options may mean by these names."""
        if is_traced_array(leaf):
            return True
        if isinstance(self.dynamic, tuple):
            return not names.isdisjoint(self.dynamic) and _core.is_array_like(leaf)
        return self.dynamic is not None and bool(self.dynamic(leaf))

    def donated_values(self, names: list[set[str]], has_callable: bool) -> set[int]:
        """The indices of the values of a call whose arrays are donated, given by which names options may mean each."""
        everything = set(range(len(names)))
        first = 1 if has_callable else 0
        if self.donate == "none":
            return set()
        if self.donate in ("all", "warn"):
            return everything
        if self.donate in ("all-except-first", "warn-except-first"):
            return everything - {first}
        return {i for i, own in enumerate(names) if not own.isdisjoint(self.donate)}


def check_max_traces(max_traces: Any) -> None:
    if max_traces is not None and (not isinstance(max_traces, int) or max_traces < 0):
        raise ValueError(f"found max_traces={max_traces!r}, expected a number of traces, or None for any")


def _names(given: Any) -> tuple[str, ...] | None:
    """Names of arguments, one alone or several; None for what is none."""
    names = tuple(given) if isinstance(given, (tuple, list, set, frozenset)) else (given,)
    return names if all(isinstance(name, str) for name in names) else None


def _donated(donate: Any) -> str | tuple[str, ...]:
    modes = f"expected one of {', '.join(map(repr, _MODES))}"
    if isinstance(donate, str):
        if donate not in _MODES:
            raise ValueError(f"found donate={donate!r}, {modes}, or names of arguments: donate=({donate!r},)")
        return donate
    names = _names(donate)
    if names is None:
        raise ValueError(f"found donate={donate!r}, {modes} or a tuple of argument names")
    return names


def _folder(store: Any) -> str | Literal[False] | None:
    if store is None or store is False:
        return store
    if not isinstance(store, (str, os.PathLike)):
        raise TypeError(
            f"found store={short_text(store)}, expected a folder, False for none, or None for that of partax.store"
        )
    return os.path.abspath(os.path.expanduser(os.fspath(store)))


def _dynamic(dynamic: Any) -> Callable[[Any], bool] | tuple[str, ...] | None:
    if dynamic is None or callable(dynamic):
        return cast("Callable[[Any], bool] | None", dynamic)
    names = _names(dynamic) if isinstance(dynamic, (str, tuple, list)) else None
    if not names:
        raise ValueError(f"found dynamic={dynamic!r}, expected a predicate on leaves or a tuple of argument names")
    return names


class Shown(NamedTuple):
    """The names of what `*args` and `**kwargs` take, where the callable shows others (`functools.wraps`)."""

    all_positional: str  # what options call all values in `*args`; empty if another one has the name
    all_named: str
    positional: tuple[str, ...]  # of the values in `*args`, from the first; empty where it has no name
    var_positional: str  # of those after them, `var_positional[0]` and so on
    var_named: str  # of the values in `**kwargs` that are shown by no name


class CallParameters(NamedTuple):
    """The parameters by which a callable is really called, as the native binding of arguments takes them."""

    function: str
    names: tuple[str, ...]  # positional ones first, then keyword-only ones
    optional: tuple[bool, ...]
    num_positional_only: int
    num_positional: int
    var_positional: bool
    var_named: bool
    shown_named: tuple[str, ...]  # the names that the callable shows of the values in `**kwargs`, in order
    shown: Shown
    var_positional_name: str  # what `*args` is really called


CallShape = tuple[CallParameters, tuple[int, ...], int, tuple[str, ...], bool]
"""Which values a call has: the parameters, the indices of those that were left out, the number of values in `*args`,
the names of those in `**kwargs`, and whether the callable itself is the first value."""


ANY_SIGNATURE = inspect.signature(lambda *args, **kwargs: None)
_Kinds = inspect.Parameter
_POSITIONAL = (_Kinds.POSITIONAL_ONLY, _Kinds.POSITIONAL_OR_KEYWORD)


def _bare(fun: Any) -> Callable[..., Any] | None:
    """A callable with the parameters by which `fun` is really called, or None where nobody knows them. `__wrapped__`
    and `__signature__` only say what `fun` shows: a wrapper may add, drop, rename and reorder parameters.
    """
    if isinstance(fun, types.FunctionType):
        bare = types.FunctionType(fun.__code__, {}, fun.__name__, fun.__defaults__, fun.__closure__)
        bare.__kwdefaults__ = fun.__kwdefaults__
        return bare
    if isinstance(fun, _core.JitFunction) or _is_called_as_wrapped(fun):
        return _bare(fun.__wrapped__)
    # Equinox makes a module of a method that is looked up, which is called as the method is.
    is_of_module = is_module(type(fun)) and type(fun).__name__ == "BoundMethod" and hasattr(fun, "__func__")
    if isinstance(fun, types.MethodType) or is_of_module:
        return _bound(_bare(fun.__func__))
    if isinstance(fun, functools.partial):
        inner = _bare(fun.func) if type(fun).__call__ is functools.partial.__call__ else None
        return None if inner is None else functools.partial(inner, *fun.args, **fun.keywords)
    if isinstance(fun, type):
        plain = type(fun).__call__ is type.__call__ and fun.__new__ is object.__new__
        return _bound(_bare(fun.__init__)) if plain and isinstance(fun.__init__, types.FunctionType) else None
    call = _call_method(fun)
    return None if call is None else _bound(_bare(call))


def _is_called_as_wrapped(fun: Any) -> bool:
    """Whether `fun` is an object of partax that calls what it wraps with the arguments as they are."""
    return getattr(type(fun), "_is_called_as_wrapped", False) is True


def _call_method(obj: Any) -> Any:
    """The function that calling an object calls with the object as its first argument, or None."""
    if isinstance(inspect.getattr_static(type(obj), "__call__", None), (staticmethod, classmethod)):
        return None
    method = getattr(type(obj), "__call__", None)  # noqa: B004 - not whether there is one, but which
    known = isinstance(method, (types.FunctionType, _core.JitFunction)) or _is_called_as_wrapped(method)
    return method if known else None


def _bound(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    return None if function is None else types.MethodType(function, function)


def signature_of(fun: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(fun)
    except (TypeError, ValueError):
        return None


def call_parameters(fun: Any) -> CallParameters:
    """Describes how `fun` is called. Called by the native wrapper."""
    bare = _bare(fun)
    called_as = (None if bare is None else signature_of(bare)) or ANY_SIGNATURE
    real = called_as.parameters.values()
    shown = (signature_of(fun) or called_as).parameters.values()

    def name_of(parameters: Iterable[inspect.Parameter], kind: Any) -> str:
        return next((p.name for p in parameters if p.kind is kind), "")

    by_position, by_name = name_of(real, _Kinds.VAR_POSITIONAL), name_of(real, _Kinds.VAR_KEYWORD)
    own = [p for p in real if p.kind in _POSITIONAL]
    num_positional = len(own)
    own += [p for p in real if p.kind is _Kinds.KEYWORD_ONLY]
    names = tuple(p.name for p in own)
    # What options and messages call the values that `*args` and `**kwargs` take.
    positional = [p.name for p in shown if p.kind in _POSITIONAL][num_positional:] if by_position else []
    named = [p.name for p in shown if p.kind in (_Kinds.POSITIONAL_OR_KEYWORD, _Kinds.KEYWORD_ONLY)] if by_name else []
    return CallParameters(
        name if isinstance(name := getattr(fun, "__name__", None), str) else type(fun).__name__,
        names,
        tuple(p.default is not _Kinds.empty for p in own),
        sum(p.kind is _Kinds.POSITIONAL_ONLY for p in own),
        num_positional,
        bool(by_position),
        bool(by_name),
        tuple(named),
        Shown(
            "" if by_position in (*positional, *named) else by_position,
            "" if by_name in (*positional, *named) else by_name,
            tuple("" if name in names else name for name in positional),
            name_of(shown, _Kinds.VAR_POSITIONAL) if by_position else "",
            name_of(shown, _Kinds.VAR_KEYWORD) if by_name else "",
        ),
        by_position,
    )


def argument_names(fun: Any) -> tuple[list[str], bool]:
    """The names by which options may mean arguments of `fun`, and whether its `**kwargs` may have others."""
    found = call_parameters(fun)
    all_positional, all_named, positional, *of_others = found.shown
    known = dict.fromkeys((*found.names, *positional, *found.shown_named, *of_others, all_positional, all_named))
    return [name for name in known if name], found.var_named


def _name_in_all(parameters: CallParameters, i: int) -> str:
    """The name of a value in `*args`, by its place there: one of its own where it has one, or `args[0]`."""
    shown = parameters.shown
    more = i - len(shown.positional)
    if more < 0 and shown.positional[i]:
        return shown.positional[i]
    return f"{shown.var_positional}[{more}]" if more >= 0 and shown.var_positional else _hidden_name(parameters, i)


def _hidden_name(parameters: CallParameters, i: int) -> str:
    return f"{parameters.var_positional_name}[{i}]"


def name_at(parameters: CallParameters, position: int) -> str | None:
    """The name by which options mean the value at a position of a call; None where no call has one there."""
    if position < parameters.num_positional:
        return parameters.names[position]
    return _name_in_all(parameters, position - parameters.num_positional) if parameters.var_positional else None


def names_by_position(parameters: CallParameters, position: int) -> set[str]:
    i = position - parameters.num_positional
    if i < 0:
        return {parameters.names[position]}
    shown = parameters.shown
    own = shown.positional[i] if i < len(shown.positional) else shown.var_positional
    return {own, shown.all_positional, _name_in_all(parameters, i)}


def names_in_all(parameters: CallParameters, name: str) -> set[str]:
    """Of the value in `**kwargs` that has this name."""
    others = () if name in parameters.shown_named else (parameters.shown.var_named,)
    return {name, parameters.shown.all_named, *others}


def is_argument_name(fun: Any, name: str) -> bool:
    """Whether options may mean an argument of `fun` by this name, if not as one of its `**kwargs`."""
    if name in argument_names(fun)[0]:
        return True
    all_of_them, bracket, place = name.partition("[")
    if not bracket or not place.endswith("]") or not place[:-1].isdecimal():
        return False
    parameters = call_parameters(fun)
    known = parameters.shown.var_positional, parameters.var_positional_name
    return parameters.var_positional and all_of_them in known


def value_names(call: CallShape) -> tuple[str, ...]:
    """The root of each value's path in messages: `model`, `args[0]`, and what `**kwargs` takes by its own names."""
    parameters, left_out, num_extra, keywords, has_callable = call
    names = [parameters.function] if has_callable else []
    names += [name for i, name in enumerate(parameters.names) if i not in left_out]
    for i in range(num_extra):
        name = _name_in_all(parameters, i)
        names.append(_hidden_name(parameters, i) if name in keywords else name)
    return (*names, *keywords)


def option_names(call: CallShape) -> list[set[str]]:
    """By which names options may mean each value: `args` means each of `args[0]`, `args[1]`; the callable has none."""
    parameters, left_out, num_extra, keywords, has_callable = call
    names: list[set[str]] = [set()] if has_callable else []
    names += [{name} for i, name in enumerate(parameters.names) if i not in left_out]
    names += [names_by_position(parameters, parameters.num_positional + i) for i in range(num_extra)]
    names += [names_in_all(parameters, name) for name in keywords]
    return [own - {""} for own in names]


def values_meant(names: tuple[str, ...], call: CallShape) -> tuple[bool, ...]:
    """Whether an option with these names means each value of a call. Called by the native wrapper."""
    return tuple(not own.isdisjoint(names) for own in option_names(call))
