"""Differentiation with respect to the inexact arrays of the first argument."""

import functools
import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any, overload

import jax

from partax import _core
from partax._partition.filters import FilterSpec, all_of
from partax._partition.partition import combine, partition


@jax.tree_util.register_pytree_with_keys_class
class _GradFunction:
    """What `filter_grad` and `filter_value_and_grad` return; a pytree of the wrapped callable."""

    def __init__(
        self,
        fun: Callable[..., Any],
        has_aux: bool,
        with_value: bool,
        wrt: FilterSpec,
        options: tuple[tuple[str, Any], ...],
    ):
        self._fun = fun
        self._has_aux = has_aux
        self._with_value = with_value
        self._wrt = wrt
        self._options = options  # of jax.value_and_grad
        functools.update_wrapper(self, fun, updated=())

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        key = jax.tree_util.GetAttrKey("__wrapped__")
        return ((key, self._fun),), (self._has_aux, self._with_value, self._wrt, self._options)

    @classmethod
    def tree_unflatten(cls, aux: tuple[Any, ...], children: tuple[Any, ...]) -> "_GradFunction":
        return cls(children[0], *aux)

    def __getattr__(self, name: str) -> Any:
        if name in ("__name__", "__qualname__"):
            return getattr(type(self._fun), name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        name = "filter_value_and_grad" if self._with_value else "filter_grad"
        return f"<partax.{name} of {self.__qualname__}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        return jax.tree_util.Partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not args:
            raise TypeError(
                f"{self.__name__}() under {'filter_value_and_grad' if self._with_value else 'filter_grad'} needs its "
                "first argument by position: it is the one that is differentiated"
            )
        first, *rest = args
        wrt = True if self._wrt is None else self._wrt
        differentiable, fixed = partition(first, all_of(_core.is_inexact_array, wrt))
        other: list[Any] = []  # what the function returned beside arrays, kept out of jax's way

        def value_of(part: Any) -> tuple[Any, Any]:
            out = self._fun(combine(part, fixed), *rest, **kwargs)
            if not self._has_aux:
                return out, None
            if not isinstance(out, (tuple, list)) or len(out) != 2:
                raise TypeError(
                    f"{self.__name__}() was to return (value, aux), as has_aux=True says, but returned a "
                    f"`{type(out).__name__}`"
                )
            value, aux = out
            arrays, static = partition(aux, _core.is_array)
            other[:] = [static]
            return value, arrays

        (value, arrays), gradient = jax.value_and_grad(value_of, has_aux=True, **dict(self._options))(differentiable)
        if not self._has_aux:
            return (value, gradient) if self._with_value else gradient
        aux = combine(arrays, other[0])
        return ((value, aux), gradient) if self._with_value else (gradient, aux)


def _given(
    options: dict[str, Any], holomorphic: bool, allow_int: bool, reduce_axes: Sequence[Hashable]
) -> dict[str, Any]:
    """The options that are not jax's defaults."""
    named = {"holomorphic": holomorphic, "allow_int": allow_int, "reduce_axes": reduce_axes}
    return options | {name: value for name, value in named.items() if value}


def _make(
    fun: Callable[..., Any] | None, has_aux: bool, with_value: bool, wrt: FilterSpec, options: dict[str, Any]
) -> Any:
    if options.pop("argnums", None) is not None:
        raise ValueError(
            "found argnums, expected none: filter_grad differentiates the first argument; pack several values into one "
            "tuple instead"
        )
    for name in options:
        if name not in _options_of_jax():
            raise TypeError(f"got an unexpected keyword argument {name!r}")
    if fun is None:
        return functools.partial(_make, has_aux=has_aux, with_value=with_value, wrt=wrt, options=options)
    hashable = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    return _GradFunction(fun, has_aux, with_value, wrt, tuple(sorted(hashable.items())))


@functools.cache
def _options_of_jax() -> frozenset[str]:
    return frozenset(inspect.signature(jax.value_and_grad).parameters) - {"fun", "argnums", "has_aux"}


@overload
def filter_grad(
    fun: Callable[..., Any],
    *,
    has_aux: bool = False,
    wrt: FilterSpec = None,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Hashable] = (),
) -> Callable[..., Any]: ...
@overload
def filter_grad(
    fun: None = None,
    *,
    has_aux: bool = False,
    wrt: FilterSpec = None,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Hashable] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
def filter_grad(
    fun: Callable[..., Any] | None = None,
    *,
    has_aux: bool = False,
    wrt: FilterSpec = None,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Hashable] = (),
    **options: Any,
) -> Any:
    """The gradient with respect to the inexact arrays of the first argument.

    Args:
      fun: a function of one or more arguments that returns a real scalar, or `(scalar, aux)`.
      has_aux: whether `fun` returns `(scalar, aux)`; `aux` may be anything.
      wrt: a filter, as `partition` takes them, of what to differentiate in the first argument: of what it takes, the
        inexact arrays. All other arrays are constants: they cost no backward pass, and a jitted step that returns them
        returns the very same objects. An optimiser starts from the same part of the model,
        `filter(model, all_of(is_inexact_array, wrt))`. None: all inexact arrays.
      holomorphic: as of `jax.grad`; all floating and complex arrays that `wrt` takes have to be complex then.
      allow_int: as of `jax.grad`; as in Equinox, integers have gradient None all the same.
      reduce_axes: as of `jax.grad`, where this jax has it.

    Returns:
      A function of the same arguments that returns the gradient, or `(gradient, aux)`. The gradient has the structure
      of the first argument, with None for everything that `wrt` does not take or that is not a floating or complex
      array of JAX or NumPy. Without `fun`, a decorator.

    Raises:
      ValueError: `argnums` was given. When called: `wrt` is no filter.
      TypeError: an option is unknown; or the returned function is called without a positional argument.
    """
    return _make(fun, has_aux, False, wrt, _given(options, holomorphic, allow_int, reduce_axes))


@overload
def filter_value_and_grad(
    fun: Callable[..., Any],
    *,
    has_aux: bool = False,
    wrt: FilterSpec = None,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Hashable] = (),
) -> Callable[..., Any]: ...
@overload
def filter_value_and_grad(
    fun: None = None,
    *,
    has_aux: bool = False,
    wrt: FilterSpec = None,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Hashable] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
def filter_value_and_grad(
    fun: Callable[..., Any] | None = None,
    *,
    has_aux: bool = False,
    wrt: FilterSpec = None,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Hashable] = (),
    **options: Any,
) -> Any:
    """The value and the gradient with respect to the inexact arrays of the first argument.

    Args:
      fun: as for `filter_grad`.
      has_aux: as for `filter_grad`.
      wrt: as for `filter_grad`.
      holomorphic: as for `filter_grad`.
      allow_int: as for `filter_grad`.
      reduce_axes: as for `filter_grad`.

    Returns:
      A function of the same arguments that returns `(value, gradient)`, or `((value, aux), gradient)`. Without `fun`, a
      decorator.

    Raises:
      ValueError, TypeError: as for `filter_grad`.
    """
    return _make(fun, has_aux, True, wrt, _given(options, holomorphic, allow_int, reduce_axes))
