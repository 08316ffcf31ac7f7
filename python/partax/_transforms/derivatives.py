"""Derivatives of functions: gradients, Jacobians and Hessians, along tangents, and of cotangents."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
from jax.custom_derivatives import SymbolicZero

from partax._core import is_inexact_array_like
from partax._pytree.filters import FilterSpec, is_inexact_array
from partax._transforms.objects import Objects
from partax._transforms.split import Split, parts
from partax._transforms.tangents import build_tangent, differentiated, tangents_by_path, value_and_aux, zeros_like
from partax._transforms.wrapper import Transformed, check_callable, check_first, derivation, wrapped

_R = TypeVar("_R")


class _Derivative(Transformed[..., Any]):
    _is_called_as_wrapped = False  # the first argument is taken by position

    def __init__(self, fun: Callable[..., Any], name: str, *options: Any) -> None:
        self._name = name
        super().__init__(fun, name, *options)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        name, has_aux, wrt, options = self._options
        check_first(self, args)
        first, *rest = args
        objects = Objects.of_call(name, self.__wrapped__, args, kwargs)
        constants = Split.of((rest, kwargs))
        split_aux = functools.partial(value_and_aux, has_aux=has_aux, function=self.__name__)

        def on_leaves(split: Split) -> Any:
            args, named = constants.tree  # objects in it are copies
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
      >>> loss = lambda model, x: jnp.sum(model["activation"](model["weight"] * x) ** 2)
      >>> model = {"weight": jnp.array([1.0, 2.0]), "activation": jax.nn.relu}
      >>> partax.filter_grad(loss)(model, 3.0)
      {'activation': None, 'weight': Array([18., 36.], dtype=float32)}

    Args:
      fun: A function that returns a real scalar, or `(scalar, aux)`. Default: return a decorator.
      has_aux: Whether `fun` returns `(scalar, aux)`; `aux` may be anything. Default: False.
      wrt: A filter, same as in `partition`, of the inexact arrays to differentiate. Default: None, for all of them.
      holomorphic: Same as in `jax.grad`; all arrays that are differentiated have to be complex. Default: False.
      allow_int: Same as in `jax.grad`; as in Equinox, the gradient of an integer is None. Default: False.

    Returns:
      A function that returns the gradient, or `(gradient, aux)`. The gradient is a tree like the first argument, with
      None for everything that is not differentiated.

    Raises:
      TypeError, ValueError: When called: without an argument by position, or `wrt` is not a filter.

    See Also: The guide "Gradients and freezing".
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
      A function that returns `(value, gradient)`, or `((value, aux), gradient)`.

    Raises: Same as in `filter_grad`.
    See Also: The guide "Gradients and freezing".
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
      A function that returns the Jacobian, or `(jacobian, aux)`: a tree like the result, with a tree like the first
      argument instead of each inexact array or number, and None for other leaves.

    Raises: Same as in `filter_grad`.
    See Also: The guide "Gradients and freezing".
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

    Raises: Same as in `filter_jacfwd`.
    See Also: The guide "Gradients and freezing".
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
      Same as in `filter_jacfwd`, but instead of each inexact leaf, a tree like the first argument, of trees like it.

    Raises: Same as in `filter_jacfwd`.
    See Also: The guide "Gradients and freezing".
    """
    return _derivative("filter_hessian", fun, has_aux, wrt, holomorphic=holomorphic)


def filter_jvp(fn: Callable[..., _R], primals: Sequence[Any], tangents: Sequence[Any], **kwargs: Any) -> tuple[_R, _R]:
    """Compute the result of a function and its derivative along tangents. Same as `jax.jvp`, for any pytree.

    Example:
      >>> scale = lambda model, x: model["weight"] * x
      >>> model = {"weight": jnp.array([1.0, 2.0]), "name": "linear"}
      >>> partax.filter_jvp(scale, (model, 3.0), ({"weight": jnp.ones(2), "name": None}, None))
      (Array([3., 6.], dtype=float32), Array([3., 3.], dtype=float32))

    Args:
      fn: A function of any trees, with any result.
      primals: A tuple or list of its arguments by position.
      tangents: For each argument a tree like it, with None for a leaf without a tangent or a whole part of the tree.
      **kwargs: Its arguments by name, which have no tangent.

    Returns:
      `(result, tangent)`, two trees alike. A leaf that depends on no primal with a tangent has None instead of one, or
      zeros, if one of your nodes refuses None.

    Raises:
      TypeError, ValueError: `tangents` are not like `primals`; the message has the path.

    See Also: The guide "Transformations of any tree".
    """
    check_callable(fn, "filter_jvp")
    for values in (primals, tangents):
        if not isinstance(values, (tuple, list)):
            raise TypeError(f"filter_jvp: found a `{type(values).__name__}`, expected tuples of primals and tangents")
    objects = Objects.of_call("filter_jvp", fn, primals, kwargs)
    tangent_leaves = tangents_by_path(tuple(tangents), tuple(primals), "primals", "tangent")
    split = Split.of(tuple(primals), True).only(tangent_leaves)
    constants = Split.of(kwargs)

    def on_leaves(split: Split) -> Any:
        out, changes = objects.return_changes(fn)(*split.tree, **constants.tree)  # objects in it are copies
        result = Split.of(out)
        dependent = _dependent_leaves(split, result)
        return dependent, (result.update(dict.fromkeys(dependent, 0)), Split.of((None, changes)))

    values, slopes, (rest, changes) = jax.jvp(on_leaves, [split], [split.update(tangent_leaves)], has_aux=True)
    objects.apply_changes(changes)
    result = rest.update(values)
    return result.tree, build_tangent(result, slopes)


def _dependent_leaves(inputs: Split, result: Split) -> dict[str, Any]:
    """Return the leaves of a result that have a tangent with respect to inputs, which all have one. The rule of a
    custom derivative of them reports it.
    """
    leaves = {path: leaf for path, leaf in result.values.items() if is_inexact_array_like(leaf)}
    dependent: list[str] = []
    ask: Any = jax.custom_jvp(lambda *values: values)

    def rule(values: Any, tangents: Any) -> Any:
        dependent.extend(path for path, tangent in tangents[1].items() if not isinstance(tangent, SymbolicZero))
        return values, values  # not used by anyone

    ask.defjvp(rule, symbolic_zeros=True)
    ask(list(inputs.leaves.values()), leaves)
    return {path: leaves[path] for path in dependent}


def filter_vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, wrt: FilterSpec = None) -> Any:
    """Compute the result of a function and return its pullback of cotangents. Same as `jax.vjp`, for any pytree.

    Example:
      >>> scale = lambda model, x: model["weight"] * x
      >>> model = {"weight": jnp.array([1.0, 2.0]), "name": "linear"}
      >>> result, pull = partax.filter_vjp(scale, model, jnp.float32(3))
      >>> pull(jnp.ones(2))
      ({'name': None, 'weight': Array([3., 3.], dtype=float32)}, Array(3., dtype=float32))

    Args:
      fun, *primals: A function of any trees, with any result, and its arguments.
      has_aux: Whether `fun` returns `(result, aux)`; `aux` may be anything. Default: False.
      wrt: Same as in `filter_grad`, of the tuple of arguments. Default: None.

    Returns:
      `(result, pull)`, or `(result, pull, aux)`. The argument of `pull` is a tree like the result, with None for zeros
      and for other leaves than inexact arrays. It returns a tuple of trees like the arguments, with None for a leaf
      that is not differentiated, and is a pytree of the arrays that it needs.

    Raises:
      TypeError, ValueError: `wrt` is not a filter, or, for `pull`, the cotangent is not like the result.

    See Also: The guide "Transformations of any tree".
    """
    check_callable(fun, "filter_vjp")
    objects = Objects.of_call("filter_vjp", fun, primals, {})

    def on_leaves(split: Split) -> Any:
        out, changes = objects.return_changes(fun)(*split.tree)
        value, aux = value_and_aux(out, has_aux, getattr(fun, "__name__", "the function"))
        return Split.of(value, is_inexact_array).leaves, Split.of(((value, aux), changes))

    arrays, pull, rest = jax.vjp(on_leaves, differentiated(primals, wrt), has_aux=True)
    value, aux = objects.apply_changes(rest)
    structs = Split.of(value, is_inexact_array).build(jax.eval_shape(lambda: arrays))
    pull_back = jax.tree_util.Partial(_pull, pull, Split.of(structs, False))
    return (value, pull_back, aux) if has_aux else (value, pull_back)


def _pull(pull: Any, structs: Split, cotangents: Any) -> Any:
    zeros = {path: zeros_like(struct) for path, struct in structs.values.items()}
    (result,) = pull(zeros | tangents_by_path(cotangents, structs.build(zeros), "the result", "cotangent"))
    return result.part
