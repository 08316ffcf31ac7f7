"""The common base of the wrappers of all transformations, and the names of arguments."""

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast, overload

import jax

from partax import _core
from partax._functions.classes import READ_BY
from partax._jit.filter_jit import pickled_name
from partax._jit.options import ANY_SIGNATURE
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
    _name: str  # of the transformation; a subclass has it, and runs the calls
    _is_called_as_wrapped: ClassVar[bool] = True  # so `call_parameters` binds a call by the callable's own parameters
    _children: ClassVar[tuple[str, ...]] = ("__wrapped__",)  # attributes with what is wrapped

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_with_keys(cls, _with_keys, cls._unflatten)
        READ_BY[cls] = operator.attrgetter("__dict__")

    def __init__(self, fun: Callable[..., Any], *options: Any) -> None:
        self._options = options
        functools.update_wrapper(self, fun, updated=())
        for name in ("__name__", "__qualname__"):
            setattr(self, name, getattr(fun, name, getattr(type(fun), name)))

    @classmethod
    def _unflatten(cls, options: "_core.Static[tuple[Any, Any]]", children: Any) -> Self:
        leaves, structure = options.value
        return cls(*children, *jax.tree.unflatten(structure, leaves))

    def __call__(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        raise NotImplementedError

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
        parts = (getattr(self, name) for name in self._children)
        return (type(self), (*parts, *self._options)) if name is None else name


def _with_keys(wrapper: Transformed[..., Any]) -> Any:
    """The options are one value with a hash, whatever nodes the trees among them have. They may change at any time."""
    leaves, structure = jax.tree.flatten(wrapper._options)
    children = tuple((jax.tree_util.GetAttrKey(name), getattr(wrapper, name)) for name in wrapper._children)
    return children, _core.Static((tuple(leaves), structure))


def wrapped(cls: type[Transformed[..., Any]], name: str, options: tuple[Any, ...], fun: Any = None) -> Any:
    """Return the wrapper of a callable; without one, a decorator."""
    if fun is None:
        return functools.partial(wrapped, cls, name, options)
    check_callable(fun, name)
    return cls(fun, *options)


def check_first(wrapper: Transformed[..., Any], args: tuple[Any, ...]) -> None:
    if not args:
        raise TypeError(
            f"found no argument by position in a call of {wrapper.__name__}(). Functions wrapped with {wrapper._name} "
            "need one: the first is differentiated"
        )


class Transformation(Protocol[_O]):
    """A function that returns the wrapper of a callable, with the same result; without a callable, a decorator."""

    @overload
    def __call__(self, fun: Callable[_P, _R], *args: _O.args, **options: _O.kwargs) -> Transformed[_P, _R]: ...
    @overload
    def __call__(
        self, fun: None = None, *args: _O.args, **options: _O.kwargs
    ) -> Callable[[Callable[_P, _R]], Transformed[_P, _R]]: ...


def transformation(function: Callable[Concatenate[Any, _O], Any]) -> Transformation[_O]:
    return cast("Any", function)


class Derivation(Protocol[_O]):
    """A function that returns the wrapper of a callable, with another result; without a callable, a decorator."""

    @overload
    def __call__(self, fun: Callable[_P, Any], *args: _O.args, **options: _O.kwargs) -> Transformed[_P, Any]: ...
    @overload
    def __call__(
        self, fun: None = None, *args: _O.args, **options: _O.kwargs
    ) -> Callable[[Callable[_P, Any]], Transformed[_P, Any]]: ...


def derivation(function: Callable[Concatenate[Any, _O], Any]) -> Derivation[_O]:
    return cast("Any", function)


def check_callable(fun: Any, name: str) -> None:
    if not callable(fun):
        raise TypeError(f"{name}: found a `{type(fun).__name__}`, expected a callable")


def bind_call(fun: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
    """Bind arguments to parameters; to `*args` and `**kwargs` if the signature is missing or does not match."""
    try:
        return inspect.signature(fun).bind_partial(*args, **kwargs)
    except (TypeError, ValueError):
        return ANY_SIGNATURE.bind(*args, **kwargs)


def names_of_arguments(fun: Callable[..., Any], count: int) -> list[str]:
    """Return the names, in messages, of the first arguments of a function by position."""
    names: list[str] = []
    for name, value in bind_call(fun, range(count), {}).arguments.items():
        names += [name] if isinstance(value, int) else [f"{name}[{i}]" for i in range(len(value))]
    return names
