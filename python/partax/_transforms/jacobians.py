"""filter_jacfwd, filter_jacrev and filter_hessian: derivatives of each number by each number."""

from collections.abc import Callable
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

import jax

from partax._pytree.filters import FilterSpec, is_inexact_array_like
from partax._transforms.on_arrays import joined, split
from partax._transforms.tangents import differentiated, value_and_aux
from partax._transforms.wrapper import Transformed, check_first, wrapped

_A = TypeVar("_A")
_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")


class _Jacobian(Transformed[_P, _R]):
    """What the functions of this file return."""

    _of_jax: Callable[..., Any]

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        check_first(self, args)
        return self._derivative(*args, **kwargs)

    def _derivative(self, first: Any, /, *rest: Any, **kwargs: Any) -> Any:
        has_aux, wrt, holomorphic = self._options
        differentiable, whole = differentiated(first, wrt)

        def on_arrays(part: Any) -> Any:
            out = self.__wrapped__(whole(part), *rest, **kwargs)
            value, aux = value_and_aux(out, has_aux, self.__name__)
            return jax.tree.map(lambda leaf: leaf if is_inexact_array_like(leaf) else None, value), split(aux)

        jacobian, rest_of_result = type(self)._of_jax(on_arrays, has_aux=True, holomorphic=holomorphic)(differentiable)
        return (jacobian, joined(rest_of_result)) if has_aux else jacobian


class _Forward(_Jacobian[_P, _R]):
    _name = "filter_jacfwd"
    _of_jax = staticmethod(jax.jacfwd)


class _Reverse(_Jacobian[_P, _R]):
    _name = "filter_jacrev"
    _of_jax = staticmethod(jax.jacrev)


class _Hessian(_Jacobian[_P, _R]):
    _name = "filter_hessian"

    def _derivative(self, first: Any, /, *rest: Any, **kwargs: Any) -> Any:
        inner: Any = _Reverse(self.__wrapped__, *self._options)
        return _Forward(inner, *self._options)(first, *rest, **kwargs)


class _Options(TypedDict, total=False):
    wrt: FilterSpec
    holomorphic: bool


class _Jacobians(Protocol):
    """How the functions of this file are called."""

    @overload
    def __call__(
        self, fun: Callable[Concatenate[_T, _P], object], has_aux: Literal[False] = False, **options: Unpack[_Options]
    ) -> Transformed[Concatenate[_T, _P], Any]: ...
    @overload
    def __call__(
        self, fun: None = None, has_aux: Literal[False] = False, **options: Unpack[_Options]
    ) -> Callable[[Callable[Concatenate[_T, _P], object]], Transformed[Concatenate[_T, _P], Any]]: ...
    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[_T, _P], tuple[object, _A]],
        *,
        has_aux: Literal[True],
        **options: Unpack[_Options],
    ) -> Transformed[Concatenate[_T, _P], tuple[Any, _A]]: ...
    @overload
    def __call__(
        self, fun: None = None, *, has_aux: Literal[True], **options: Unpack[_Options]
    ) -> Callable[
        [Callable[Concatenate[_T, _P], tuple[object, _A]]], Transformed[Concatenate[_T, _P], tuple[Any, _A]]
    ]: ...


def _typed(function: Any) -> _Jacobians:
    return function


@_typed
def filter_jacfwd(
    fun: Callable[..., Any] | None = None, has_aux: bool = False, *, wrt: FilterSpec = None, holomorphic: bool = False
) -> Any:
    """The Jacobian by the inexact arrays of the first argument, for any trees, column by column as `jax.jacfwd`.

    Example:
      >>> scale = lambda model, x: model["weight"] * x
      >>> partax.filter_jacfwd(scale)({"weight": jnp.float32(2), "name": "linear"}, jnp.array([1.0, 3.0]))
      {'name': None, 'weight': Array([1., 3.], dtype=float32)}

    Args:
      fun: a function of one or more arguments, with any result.
      has_aux: whether `fun` returns `(result, aux)`; `aux` may be anything.
      wrt: as of `filter_grad`.
      holomorphic: as of `jax.grad`.

    Returns:
      A function of the same arguments that returns the Jacobian, or `(jacobian, aux)`. The Jacobian is a tree like the
      result, with None for what is no floating or complex array or number there, and in place of each that is one, a
      tree like the first argument, with None for what is not differentiated. Without `fun`, a decorator.

    Raises:
      TypeError: `fun` is not callable. When called: without a positional argument, or `fun` did not return a pair
        though `has_aux` says so.
      ValueError: when called, `wrt` is no filter.
    """
    return wrapped(_Forward, (has_aux, wrt, holomorphic), fun)


@_typed
def filter_jacrev(
    fun: Callable[..., Any] | None = None, has_aux: bool = False, *, wrt: FilterSpec = None, holomorphic: bool = False
) -> Any:
    """The Jacobian by the inexact arrays of the first argument, for any trees, row by row as `jax.jacrev`.

    Example:
      >>> total = lambda model, x: jnp.sum(model["weight"] * x)
      >>> partax.filter_jacrev(total)({"weight": jnp.array([2.0, 4.0]), "name": "linear"}, 3.0)
      {'name': None, 'weight': Array([3., 3.], dtype=float32)}

    Args:
      fun: as for `filter_jacfwd`.
      has_aux: as for `filter_jacfwd`.
      wrt: as for `filter_jacfwd`.
      holomorphic: as for `filter_jacfwd`.

    Returns:
      The same as `filter_jacfwd`.

    Raises:
      TypeError, ValueError: as for `filter_jacfwd`.
    """
    return wrapped(_Reverse, (has_aux, wrt, holomorphic), fun)


@_typed
def filter_hessian(
    fun: Callable[..., Any] | None = None, has_aux: bool = False, *, wrt: FilterSpec = None, holomorphic: bool = False
) -> Any:
    """The second derivatives by the inexact arrays of the first argument, for any trees.

    Example:
      >>> cube = lambda model: model["x"] ** 3
      >>> partax.filter_hessian(cube)({"x": jnp.float32(2), "name": "a"})
      {'name': None, 'x': {'name': None, 'x': Array(12., dtype=float32)}}

    Args:
      fun: as for `filter_jacfwd`.
      has_aux: as for `filter_jacfwd`.
      wrt: as for `filter_jacfwd`.
      holomorphic: as for `filter_jacfwd`.

    Returns:
      A function of the same arguments that returns the Hessian, or `(hessian, aux)`. The Hessian is a tree like the
      result, with None for what is no floating or complex array or number there, and in place of each that is one, a
      tree like the first argument of trees like it, with None for what is not differentiated. Without `fun`, a
      decorator.

    Raises:
      TypeError, ValueError: as for `filter_jacfwd`.
    """
    return wrapped(_Hessian, (has_aux, wrt, holomorphic), fun)
