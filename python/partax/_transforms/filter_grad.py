"""Differentiation with respect to the inexact arrays of the first argument."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

import jax

from partax._pytree.filters import FilterSpec
from partax._transforms.on_arrays import joined, split
from partax._transforms.tangents import differentiated, value_and_aux
from partax._transforms.wrapper import Transformed, check_first, parameters_of, wrapped

_A = TypeVar("_A")
_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")


class _ValueAndGrad(Transformed[_P, _R]):
    """What `filter_value_and_grad` returns."""

    _name = "filter_value_and_grad"

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        has_aux, wrt, options = self._options
        check_first(self, args)
        first, *rest = args
        differentiable, whole = differentiated(first, wrt)

        def value_of(part: Any) -> tuple[Any, Any]:
            value, aux = value_and_aux(self.__wrapped__(whole(part), *rest, **kwargs), has_aux, self.__name__)
            if not has_aux and isinstance(value, tuple):
                raise TypeError(
                    f"Gradient only defined for scalar-output functions. {self.__name__}() returned a tuple of "
                    f"{len(value)}; if it is (value, aux), pass has_aux=True"
                )
            return value, split(aux)

        (value, aux), gradient = jax.value_and_grad(value_of, has_aux=True, **dict(options))(differentiable)
        return ((value, joined(aux)) if has_aux else value), gradient


class _Grad(_ValueAndGrad[_P, _R]):
    """What `filter_grad` returns."""

    _name = "filter_grad"

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value, gradient = super()._call(args, kwargs)
        return (gradient, value[1]) if self._options[0] else gradient


def _make(cls: Any, fun: Any, has_aux: bool, wrt: FilterSpec, options: dict[str, Any], **named: Any) -> Any:
    """Makes a wrapper with the options for jax; of those that `filter_grad` names, with what is not jax's default."""
    options |= {name: value for name, value in named.items() if value}
    if options.pop("argnums", None) is not None:
        raise ValueError(
            "found argnums, expected none: filter_grad differentiates the first argument; pack several values into one "
            "tuple instead"
        )
    for name in options:
        if name not in parameters_of(jax.value_and_grad):
            raise TypeError(f"got an unexpected keyword argument {name!r}")
    hashable = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    return wrapped(cls, (has_aux, wrt, tuple(sorted(hashable.items()))), fun)


class _Options(TypedDict, total=False):
    wrt: FilterSpec
    holomorphic: bool
    allow_int: bool
    reduce_axes: Sequence[Hashable]


@overload
def filter_grad(
    fun: Callable[Concatenate[_T, _P], object], *, has_aux: Literal[False] = False, **options: Unpack[_Options]
) -> Transformed[Concatenate[_T, _P], _T]: ...
@overload
def filter_grad(
    fun: None = None, *, has_aux: Literal[False] = False, **options: Unpack[_Options]
) -> Callable[[Callable[Concatenate[_T, _P], object]], Transformed[Concatenate[_T, _P], _T]]: ...
@overload
def filter_grad(
    fun: Callable[Concatenate[_T, _P], tuple[object, _A]], *, has_aux: Literal[True], **options: Unpack[_Options]
) -> Transformed[Concatenate[_T, _P], tuple[_T, _A]]: ...
@overload
def filter_grad(
    fun: None = None, *, has_aux: Literal[True], **options: Unpack[_Options]
) -> Callable[[Callable[Concatenate[_T, _P], tuple[object, _A]]], Transformed[Concatenate[_T, _P], tuple[_T, _A]]]: ...
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

    Example:
      >>> def loss(model, x):
      ...     return jnp.sum(model["activation"](model["weight"] * x) ** 2)
      >>> model = {"weight": jnp.array([1.0, 2.0]), "activation": jax.nn.relu}
      >>> partax.filter_grad(loss)(model, 3.0)
      {'activation': None, 'weight': Array([18., 36.], dtype=float32)}

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
    named = {"holomorphic": holomorphic, "allow_int": allow_int, "reduce_axes": reduce_axes}
    return _make(_Grad, fun, has_aux, wrt, options, **named)


@overload
def filter_value_and_grad(
    fun: Callable[Concatenate[_T, _P], _R], *, has_aux: Literal[False] = False, **options: Unpack[_Options]
) -> Transformed[Concatenate[_T, _P], tuple[_R, _T]]: ...
@overload
def filter_value_and_grad(
    fun: None = None, *, has_aux: Literal[False] = False, **options: Unpack[_Options]
) -> Callable[[Callable[Concatenate[_T, _P], _R]], Transformed[Concatenate[_T, _P], tuple[_R, _T]]]: ...
@overload
def filter_value_and_grad(
    fun: Callable[Concatenate[_T, _P], tuple[_R, _A]], *, has_aux: Literal[True], **options: Unpack[_Options]
) -> Transformed[Concatenate[_T, _P], tuple[tuple[_R, _A], _T]]: ...
@overload
def filter_value_and_grad(
    fun: None = None, *, has_aux: Literal[True], **options: Unpack[_Options]
) -> Callable[
    [Callable[Concatenate[_T, _P], tuple[_R, _A]]], Transformed[Concatenate[_T, _P], tuple[tuple[_R, _A], _T]]
]: ...
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

    Example:
      >>> loss = lambda model, x: jnp.sum((model["weight"] * x) ** 2)
      >>> partax.filter_value_and_grad(loss)({"weight": jnp.array([1.0, 2.0]), "name": "linear"}, 3.0)
      (Array(45., dtype=float32), {'name': None, 'weight': Array([18., 36.], dtype=float32)})

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
    named = {"holomorphic": holomorphic, "allow_int": allow_int, "reduce_axes": reduce_axes}
    return _make(_ValueAndGrad, fun, has_aux, wrt, options, **named)
