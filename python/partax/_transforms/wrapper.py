"""What the wrappers of all transformations have in common; arguments, each leaf with what an option says."""

import functools
import inspect
import operator
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast, overload

import jax

from partax import _core
from partax._functions.by_type import register_parts
from partax._jit.filter_jit import pickled_name
from partax._jit.options import signature_of
from partax._pytree.methods import close_methods, open_methods
from partax._pytree.short_text import wrapper_text

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_O = ParamSpec("_O")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_S = TypeVar("_S")
_T = TypeVar("_T")


class Transformed(Generic[_P, _R_co]):
    """A callable under a transformation: a pytree of the callable, with the options as its static part."""

    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]
    _name: ClassVar[str]  # of the transformation; a subclass has it, and runs the calls
    _is_called_as_wrapped: ClassVar[bool] = True  # so `call_parameters` binds a call by the callable's own parameters
    _children: ClassVar[tuple[str, ...]] = ()  # attributes with more of what is wrapped

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_with_keys(cls, _with_keys, cls._unflatten)
        register_parts(cls, operator.attrgetter("__dict__"))

    def __init__(self, fun: Callable[..., Any], *options: Any) -> None:
        self._options = options
        functools.update_wrapper(self, fun, updated=())
        for name in ("__name__", "__qualname__"):
            setattr(self, name, getattr(fun, name, getattr(type(fun), name)))

    @classmethod
    def _unflatten(cls, options: "_core.Static[tuple[Any, Any]]", children: Any) -> Self:
        leaves, structure = options.value
        return cls(*children, *jax.tree.unflatten(structure, leaves))

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def __call__(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        return self._call(args, kwargs)

    def __repr__(self) -> str:
        return wrapper_text(self._name, self)

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None, /) -> Self: ...
    @overload
    def __get__(
        self: "Transformed[Concatenate[_S, _Q], _T]", instance: _S, owner: type[Any] | None = None, /
    ) -> Callable[_Q, _T]: ...
    def __get__(self, instance: Any, owner: Any = None, /) -> Any:
        return self if instance is None else jax.tree_util.Partial(self, instance)

    def __reduce__(self) -> Any:
        name = pickled_name(self, sys._getframe(1).f_globals)
        return (type(self), (*_parts(self), *self._options)) if name is None else name


def _parts(wrapper: Transformed[..., Any]) -> tuple[Any, ...]:
    return (wrapper.__wrapped__, *(getattr(wrapper, name) for name in wrapper._children))


def _with_keys(wrapper: Transformed[..., Any]) -> Any:
    """The options are one value with a hash, whatever nodes the trees among them have. They may change at any time."""
    leaves, structure = jax.tree.flatten(wrapper._options)
    keys = map(jax.tree_util.GetAttrKey, ("__wrapped__", *wrapper._children))
    return tuple(zip(keys, _parts(wrapper), strict=True)), _core.Static((tuple(leaves), structure))


def wrapped(cls: type[Transformed[..., Any]], options: tuple[Any, ...], fun: Callable[..., Any] | None = None) -> Any:
    """The wrapper of a callable; a decorator, where there is none."""
    if fun is None:
        return functools.partial(wrapped, cls, options)
    check_callable(fun, cls._name)
    return cls(fun, *options)


def check_first(wrapper: Transformed[..., Any], args: tuple[Any, ...]) -> None:
    """Raises a TypeError without a first argument to differentiate."""
    if not args:
        raise TypeError(
            f"found no argument by position in a call of {wrapper.__name__}(). Functions wrapped with {wrapper._name} "
            "need one: the first is differentiated"
        )


class Transformation(Protocol[_O]):
    """A function that gives the wrapper of a callable, with the same result; without one, a decorator."""

    @overload
    def __call__(self, fun: Callable[_P, _R], *args: _O.args, **options: _O.kwargs) -> Transformed[_P, _R]: ...
    @overload
    def __call__(
        self, fun: None = None, *args: _O.args, **options: _O.kwargs
    ) -> Callable[[Callable[_P, _R]], Transformed[_P, _R]]: ...


def transformation(function: Callable[Concatenate[Any, _O], Any]) -> Transformation[_O]:
    """The function itself, for type checkers one that takes a callable or none."""
    return cast("Any", function)


class Derivation(Protocol[_O]):
    """A function that gives the wrapper of a callable, with another result; without one, a decorator."""

    @overload
    def __call__(self, fun: Callable[_P, Any], *args: _O.args, **options: _O.kwargs) -> Transformed[_P, Any]: ...
    @overload
    def __call__(
        self, fun: None = None, *args: _O.args, **options: _O.kwargs
    ) -> Callable[[Callable[_P, Any]], Transformed[_P, Any]]: ...


def derivation(function: Callable[Concatenate[Any, _O], Any]) -> Derivation[_O]:
    """The function itself, for type checkers one that takes a callable or none."""
    return cast("Any", function)


def check_callable(fun: Any, name: str) -> None:
    if not callable(fun):
        raise TypeError(f"{name}: found a `{type(fun).__name__}`, expected a callable")


_Kinds = inspect.Parameter


class Arguments:
    """The arguments of one call, flat, with the entry of a prefix for each leaf. One by position or by name has the
    same entry either way.
    """

    def __init__(
        self,
        fun: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        prefix: Any,
        default: Any,
        is_entry: Callable[[Any], bool],
        option: str,
    ):
        """Spreads a prefix over the arguments of a call.

        The prefix is one entry for all arguments; a tuple or list of prefixes, one for each positional argument; or a
        dictionary from names of arguments to prefixes. What it says nothing of has the entry `default`; `is_entry`
        tells entries from other nodes. A ValueError, with the path, says where it does not fit.
        """
        signature = signature_of(fun)
        by_name = isinstance(prefix, dict)
        if by_name and signature is None:
            raise ValueError(
                f"{option}: found names of arguments, but `{_name(fun)}` does not tell what its arguments are called; "
                "expected a tuple"
            )
        if signature is not None and (kwargs or by_name):
            bound = signature.bind(*args, **kwargs)
            args, kwargs = bound.args, bound.kwargs
        names = [*_positional_names(signature, len(args)), *kwargs]
        if signature is not None and isinstance(prefix, dict):
            unknown = [name for name in prefix if name not in signature.parameters]
            if unknown:
                raise ValueError(
                    f"{option}: found {', '.join(map(repr, unknown))}, expected names of arguments of `{_name(fun)}` "
                    f"({', '.join(signature.parameters) or 'none'})"
                )
            entries = [prefix.get(name, default) for name in _parameters(signature, len(args), kwargs)]
        elif isinstance(prefix, (tuple, list)) and not is_entry(prefix):
            if len(prefix) != len(args):
                raise ValueError(
                    f"{option}: found {len(prefix)} entries, expected one for each of the {len(args)} arguments by "
                    f"position of `{_name(fun)}` ({', '.join(names[: len(args)])})"
                )
            entries = [*prefix, *[default] * len(kwargs)]
        else:
            entries = [prefix] * len(names)
        self.names = names  # what messages call them; those that are given by name come last
        self.values = open_methods([*args, *kwargs.values()])
        self._num_positional = len(args)
        self.leaves, self._structure = jax.tree.flatten(self.values)
        self.entries: list[Any] = []
        for name, value, entry in zip(names, self.values, entries, strict=True):
            self.entries += [each for _, each in _core.broadcast_prefix(entry, value, is_entry, option, name)]

    def call(self, fun: Callable[..., Any], places: list[int], arrays: list[Any]) -> Any:
        """What a function returns for the arguments with these arrays for the leaves at these places."""
        leaves = list(self.leaves)
        for i, array in zip(places, arrays, strict=True):
            leaves[i] = array
        values = close_methods(jax.tree.unflatten(self._structure, leaves))
        named = dict(zip(self.names[self._num_positional :], values[self._num_positional :], strict=True))
        return open_methods(fun(*values[: self._num_positional], **named))

    def path(self, index: int) -> str:
        """The path of a leaf, such as `model.layers[0].weight`."""
        paths = [
            name + jax.tree_util.keystr(path)
            for name, value in zip(self.names, self.values, strict=True)
            for path, _ in jax.tree_util.tree_leaves_with_path(value)
        ]
        return paths[index]


def names_of_arguments(fun: Any, count: int) -> list[str]:
    """What messages call the first arguments of a function by position."""
    return _positional_names(signature_of(fun), count)


def _positional_names(signature: inspect.Signature | None, count: int) -> list[str]:
    names: list[str] = []
    for one in signature.parameters.values() if signature is not None else ():
        if one.kind < _Kinds.VAR_POSITIONAL:
            names.append(one.name)
        elif one.kind is _Kinds.VAR_POSITIONAL:
            names += [f"{one.name}[{i}]" for i in range(count - len(names))]
    names += [f"args[{i}]" for i in range(len(names), count)]
    return names[:count]


def _parameters(signature: inspect.Signature, num_positional: int, kwargs: dict[str, Any]) -> list[str]:
    """The parameter that takes each argument, those by position first."""
    of_kind = {one.kind: one.name for one in signature.parameters.values()}
    positional = [one.name for one in signature.parameters.values() if one.kind < _Kinds.VAR_POSITIONAL]
    positional += [of_kind.get(_Kinds.VAR_POSITIONAL, "")] * (num_positional - len(positional))
    named = [name if name in signature.parameters else of_kind[_Kinds.VAR_KEYWORD] for name in kwargs]
    return positional[:num_positional] + named


def _name(fun: Any) -> str:
    return getattr(fun, "__name__", type(fun).__name__)
