"""Derivatives with respect to the inexact arrays of the first argument: gradients, Jacobians and Hessians."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from partax._pytree.filters import FilterSpec, is_inexact_array_like
from partax._transforms.objects import Objects
from partax._transforms.split import Split, parts
from partax._transforms.tangents import differentiated, value_and_aux
from partax._transforms.wrapper import Transformed, check_first, derivation, wrapped


class _Derivative(Transformed[..., Any]):
    _is_called_as_wrapped = False  # the first argument is taken by position

    def __init__(self, fun: Callable[..., Any], name: str, *options: Any) -> None:
        self._name = name
        super().__init__(fun, name, *options)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name, has_aux, wrt, options = self._options
        check_first(self, args)
        first, *rest = args
        objects = Objects.of_call(name, self.__wrapped__, args, kwargs)
        split_aux = functools.partial(value_and_aux, has_aux=has_aux, function=self.__name__)

        def on_leaves(split: Split) -> Any:
            args, named = objects.copies((rest, kwargs))
            function = objects.return_changes(self.__wrapped__, lambda out: split_aux(out)[1])
            out, changes = function(split.tree, *args, **named)
            value, aux = split_aux(out)
            if "grad" not in name:
                value = jax.tree.map(lambda leaf: leaf if is_inexact_array_like(leaf) else None, value)
            elif isinstance(value, tuple):
                raise TypeError(
                    f"found a tuple of {len(value)} returned by {self.__name__}(), expected a scalar; if it is "
                    "(value, aux), pass has_aux=True"
                )
            return value, Split.of((aux, changes))

        derive = getattr(jax, name.removeprefix("filter_"))
        out = derive(on_leaves, has_aux=True, **options)(differentiated(first, wrt))
        if name == "filter_value_and_grad":
            (value, more), gradient = out
            aux = objects.apply_changes(more)
            return (value, aux) if has_aux else value, gradient.part
        aux = objects.apply_changes(out[1])
        derivative = parts(out[0])
        return (derivative, aux) if has_aux else derivative


def _derivative(name: str, fun: Any, has_aux: bool, wrt: FilterSpec, **options: bool) -> Any:
    return wrapped(_Derivative, name, (name, has_aux, wrt, options), fun)


@derivation
def filter_grad(
    fun: Callable[..., Any] | None = None,
    *,
    has_aux: bool = False,
    wrt: FilterSpec = None,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Any:
    """Compute the gradient of a function with respect to the inexact arrays of its first argument.

    Example:
      >>> def loss(model, x):
      ...     return jnp.sum(model["activation"](model["weight"] * x) ** 2)
      >>> model = {"weight": jnp.array([1.0, 2.0]), "activation": jax.nn.relu}
      >>> partax.filter_grad(loss)(model, 3.0)
      {'activation': None, 'weight': Array([18., 36.], dtype=float32)}

    Arrays that `wrt` does not match cost no backward pass, and a jitted step that returns them returns the same
    objects. An optimizer starts from `filter(model, is_inexact_array & wrt)`.

    Args:
      fun: A function that returns a real scalar, or `(scalar, aux)`. Default: return a decorator.
      has_aux: Whether `fun` returns `(scalar, aux)`; `aux` may be anything. Default: False.
      wrt: A filter, same as in `partition`, of the leaves of the first argument; the inexact arrays that it matches are
        differentiated. Default: None, for all floating and complex arrays of JAX and NumPy.
      holomorphic: Same as in `jax.grad`; then all inexact arrays that `wrt` matches have to be complex. Default: False.
      allow_int: Same as in `jax.grad`; as in Equinox, the gradient of an integer is None. Default: False.

    Returns:
      A function of the same arguments that returns the gradient, or `(gradient, aux)`. The gradient has the structure
      of the first argument, with None for everything that is not differentiated.

    Raises:
      TypeError: `fun` is not callable. When called: without a positional argument.
      ValueError: When called: `wrt` is not a filter.

    See Also:
      The guide "Gradients and freezing".
    """
    return _derivative("filter_grad", fun, has_aux, wrt, holomorphic=holomorphic, allow_int=allow_int)


@derivation
def filter_value_and_grad(
    fun: Callable[..., Any] | None = None,
    *,
    has_aux: bool = False,
    wrt: FilterSpec = None,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Any:
    """Compute the value of a function and the gradient with respect to the inexact arrays of its first argument.

    Example:
      >>> loss = lambda model, x: jnp.sum((model["weight"] * x) ** 2)
      >>> partax.filter_value_and_grad(loss)({"weight": jnp.array([1.0, 2.0]), "name": "linear"}, 3.0)
      (Array(45., dtype=float32), {'name': None, 'weight': Array([18., 36.], dtype=float32)})

    Args:
      fun, has_aux, wrt, holomorphic, allow_int: Same as in `filter_grad`.

    Returns:
      A function of the same arguments that returns `(value, gradient)`, or `((value, aux), gradient)`.

    Raises:
      ValueError, TypeError: Same as in `filter_grad`.

    See Also:
      The guide "Gradients and freezing".
    """
    return _derivative("filter_value_and_grad", fun, has_aux, wrt, holomorphic=holomorphic, allow_int=allow_int)


@derivation
def filter_jacfwd(
    fun: Callable[..., Any] | None = None, has_aux: bool = False, *, wrt: FilterSpec = None, holomorphic: bool = False
) -> Any:
    """Compute the Jacobian by the inexact arrays of the first argument. Same as `jax.jacfwd`, for any pytree.

    Example:
      >>> scale = lambda model, x: model["weight"] * x
      >>> partax.filter_jacfwd(scale)({"weight": jnp.float32(2), "name": "linear"}, jnp.array([1.0, 3.0]))
      {'name': None, 'weight': Array([1., 3.], dtype=float32)}

    Args:
      fun: A function of one or more arguments, with any result. Default: return a decorator.
      has_aux: Whether `fun` returns `(result, aux)`; `aux` may be anything. Default: False.
      wrt: Same as in `filter_grad`. Default: None.
      holomorphic: Same as in `jax.jacfwd`. Default: False.

    Returns:
      A function of the same arguments that returns the Jacobian, or `(jacobian, aux)`. The Jacobian is a tree like the
      result, with None for a leaf that is not a floating or complex array or number, and instead of each that is one, a
      tree like the first argument, with None for a leaf that is not differentiated.

    Raises:
      TypeError: `fun` is not callable. When called: without a positional argument, or `fun` returns no pair with
        `has_aux`.
      ValueError: When called: `wrt` is not a filter.

    See Also:
      The guide "Gradients and freezing".
    """
    return _derivative("filter_jacfwd", fun, has_aux, wrt, holomorphic=holomorphic)


@derivation
def filter_jacrev(
    fun: Callable[..., Any] | None = None, has_aux: bool = False, *, wrt: FilterSpec = None, holomorphic: bool = False
) -> Any:
    """Compute the Jacobian by the inexact arrays of the first argument. Same as `jax.jacrev`, for any pytree.

    Example:
      >>> total = lambda model, x: jnp.sum(model["weight"] * x)
      >>> partax.filter_jacrev(total)({"weight": jnp.array([2.0, 4.0]), "name": "linear"}, 3.0)
      {'name': None, 'weight': Array([3., 3.], dtype=float32)}

    Args:
      fun, has_aux, wrt, holomorphic: Same as in `filter_jacfwd`.

    Returns:
      Same as in `filter_jacfwd`.

    Raises:
      TypeError, ValueError: Same as in `filter_jacfwd`.

    See Also:
      The guide "Gradients and freezing".
    """
    return _derivative("filter_jacrev", fun, has_aux, wrt, holomorphic=holomorphic)


@derivation
def filter_hessian(
    fun: Callable[..., Any] | None = None, has_aux: bool = False, *, wrt: FilterSpec = None, holomorphic: bool = False
) -> Any:
    """Compute the Hessian by the inexact arrays of the first argument. Same as `jax.hessian`, for any pytree.

    Example:
      >>> cube = lambda model: model["x"] ** 3
      >>> partax.filter_hessian(cube)({"x": jnp.float32(2), "name": "a"})
      {'name': None, 'x': {'name': None, 'x': Array(12., dtype=float32)}}

    Args:
      fun, has_aux, wrt, holomorphic: Same as in `filter_jacfwd`.

    Returns:
      Same as in `filter_jacfwd`, with the Hessian: instead of each inexact leaf of the result, a tree like the first
      argument, of trees like it.

    Raises:
      TypeError, ValueError: Same as in `filter_jacfwd`.

    See Also:
      The guide "Gradients and freezing".
    """
    return _derivative("filter_hessian", fun, has_aux, wrt, holomorphic=holomorphic)
