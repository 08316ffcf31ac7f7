"""A call as a program: filter_checkpoint, filter_eval_shape, filter_make_jaxpr and filter_closure_convert."""

import dataclasses
import functools
import operator
import types
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from partax import _core
from partax._pytree.filters import Filter, is_array
from partax._pytree.partition import combine
from partax._pytree.short_text import wrapper_text
from partax._transforms.carry import Difference, Flat, first_difference
from partax._transforms.objects import Objects
from partax._transforms.on_arrays import Rest, Split, joined, on_split, split, structs_of, tree_of
from partax._transforms.wrapper import Transformed, check_callable, transformation, wrapped


class _Checkpoint(Transformed[..., Any]):
    _name = "filter_checkpoint"

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        prevent_cse, policy = self._options
        objects = Objects.of_call(self._name, self.__wrapped__, args, kwargs, takes_fun=True)
        arrays, rest = split(((self.__wrapped__, *args), kwargs))
        run = on_split(objects.return_changes(operator.call), rest)
        return objects.apply_changes(jax.checkpoint(run, prevent_cse=prevent_cse, policy=policy)(arrays))


@transformation
def filter_checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    prevent_cse: bool = True,
    policy: Callable[..., Any] | None = None,
) -> Any:
    """Compute intermediate values again for the gradient, to save memory. Same as `jax.checkpoint`, for any pytree.

    Example:
      >>> @partax.filter_checkpoint
      ... def layer(model, x):
      ...     return model["activation"](model["weight"] * x)
      >>> loss = lambda model, x: layer(model, x).sum()
      >>> partax.filter_grad(loss)({"weight": jnp.ones(2), "activation": jax.nn.relu}, jnp.array([1.0, 2.0]))
      {'activation': None, 'weight': Array([1., 2.], dtype=float32)}

    Args:
      fun: A function of any trees, with any result. Default: return a decorator.
      prevent_cse: Same as in `jax.checkpoint`; False is enough inside a scan. Default: True.
      policy: One of `jax.checkpoint_policies`, which selects the values to keep. Default: None, to keep none.

    Returns:
      A function of the same arguments with the same result.

    Raises:
      TypeError: `fun` is not callable.

    See Also:
      The guide "Transformations of any tree".
    """
    return wrapped(_Checkpoint, (prevent_cse, policy), fun)


_P = ParamSpec("_P")
_R = TypeVar("_R")

_described: Filter = is_array | jax.ShapeDtypeStruct


def filter_eval_shape(fun: Callable[..., _R], *args: Any, **kwargs: Any) -> _R:
    """Compute a result with a `jax.ShapeDtypeStruct` for each array. Same as `jax.eval_shape`, for any pytree.

    Example:
      >>> init = lambda key, size: {"weight": jax.random.normal(key, (size, size)), "name": "linear"}
      >>> partax.filter_eval_shape(init, jax.random.key(0), 3)
      {'name': 'linear', 'weight': ShapeDtypeStruct(shape=(3, 3), dtype=float32)}

    Args:
      fun: A function of any trees, with any result.
      *args: Its arguments; a `jax.ShapeDtypeStruct` represents an array.
      **kwargs: Its arguments by name.

    Returns:
      The result. Leaves that are not arrays are unchanged.

    Raises:
      TypeError: `fun` is not callable.

    See Also:
      The guide "Transformations of any tree".
    """
    check_callable(fun, "filter_eval_shape")
    objects = Objects.of_call("filter_eval_shape", fun, args, kwargs, takes_fun=True)
    arrays, rest = split(((fun, *args), kwargs), _described)
    return joined(jax.eval_shape(on_split(objects.refuse_changes(operator.call), rest), arrays))


class _MakeJaxpr(Transformed[..., Any]):
    _name = "filter_make_jaxpr"

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        jaxpr, (structs, rest) = _program_of(self._name, self.__wrapped__, args, kwargs)
        static, structure = rest.value
        whole = combine(structs, static)
        return jaxpr, tree_of(structure, structs, whole), tree_of(structure, static, whole)


def _program_of(
    name: str, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[ClosedJaxpr, Split]:
    """The program of a call, for the transformation `name`, and its result with a `jax.ShapeDtypeStruct` for each
    array.
    """
    fun = Objects.of_call(name, fun, args, kwargs).refuse_changes(fun)
    arrays, rest = split((args, kwargs), _described)
    return jax.make_jaxpr(on_split(fun, rest), return_shape=True)(arrays)


def filter_make_jaxpr(fun: Callable[_P, _R]) -> Transformed[..., tuple[ClosedJaxpr, _R, _R]]:
    """Return the program of a call. Same as `jax.make_jaxpr`, for any pytree.

    Example:
      >>> scale = lambda model, x: model["weight"] * x
      >>> jaxpr, structs, static = partax.filter_make_jaxpr(scale)({"weight": jnp.ones(2), "name": "linear"}, 3.0)
      >>> jaxpr
      { lambda ; a:f32[2]. let b:f32[2] = mul a 3.0:f32[] in (b,) }
      >>> structs
      ShapeDtypeStruct(shape=(2,), dtype=float32)

    Args:
      fun: A function of any trees, with any result. Arrays that it holds itself are constants of the program.

    Returns:
      A function of the same arguments, in which a `jax.ShapeDtypeStruct` can represent an array. It returns
      `(jaxpr, structs, static)`: the program, whose arguments and results are the arrays in the order of the trees; the
      result with a `jax.ShapeDtypeStruct` for each array and None for other leaves; and the result with None for each
      array. A tree in which one of your nodes refuses None has all leaves.

    Raises:
      TypeError: `fun` is not callable.

    See Also:
      The guide "Transformations of any tree".
    """
    check_callable(fun, "filter_make_jaxpr")
    return _MakeJaxpr(fun)


@functools.partial(jax.tree_util.register_dataclass, data_fields=("jaxpr", "consts"), meta_fields=("_known",))
@dataclasses.dataclass(eq=False, repr=False)
class ClosureConverted(Generic[_P, _R]):
    """The result of `filter_closure_convert`: a pytree of the arrays that the function has closed over."""

    jaxpr: Any  # or a function that can hold no arrays, and is called as it is
    consts: list[Any]
    _known: Rest  # its name; the arguments that it was made for; what `split` gives of a program's result, or None

    @property
    def __name__(self) -> str:
        return self._known.value[0]

    @property
    def in_struct(self) -> Any:
        """`(args, kwargs)` of the conversion, with a `jax.ShapeDtypeStruct` for each array."""
        return joined(self._known.value[1])

    @property
    def out_struct(self) -> Any:
        """The result, with a `jax.ShapeDtypeStruct` for each array."""
        if (result := self._known.value[2]) is not None:
            return joined(result)
        args, kwargs = self.in_struct
        return filter_eval_shape(self.jaxpr, *args, **kwargs)

    def __repr__(self) -> str:
        return wrapper_text("filter_closure_convert", self)

    def __call__(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        arrays, rest = split((args, kwargs))
        name, expected, result = self._known.value
        _check_arguments(name, expected, (structs_of(arrays), rest))
        if result is None:
            return self.jaxpr(*args, **kwargs)
        structs, rest = result
        out: Any = jaxpr_as_fun(ClosedJaxpr(self.jaxpr, self.consts))(*jax.tree.leaves(arrays))
        return joined((jax.tree.unflatten(jax.tree.structure(structs), out), rest))


def _check_arguments(name: str, expected: Split, actual: Split) -> None:
    if actual == expected:
        return
    root = "(args, kwargs)"
    first, second = (Flat(_core.flatten(joined(arguments), root)[1], ()) for arguments in (actual, expected))
    difference = first_difference(first, second, root) or Difference(root, "another tree", "an equal one")
    raise ValueError(
        f"`{difference.path}`: found {difference.first}, expected {difference.second}{difference.note}, which {name}() "
        "was converted for by filter_closure_convert"
    )


def filter_closure_convert(fn: Callable[_P, _R], *args: Any, **kwargs: Any) -> ClosureConverted[_P, _R]:
    """Convert a function to a pytree of the arrays that it captures. Same as `jax.closure_convert`, for any pytree.

    Example:
      >>> def scaler(weight):
      ...     return lambda x: weight * x
      >>> scale = partax.filter_closure_convert(scaler(jnp.array([1.0, 2.0])), 3.0)
      >>> scale.consts
      [Array([1., 2.], dtype=float32)]
      >>> scale(3.0)
      Array([3., 6.], dtype=float32)

    With it, a function that holds values under a transformation can cross a boundary, such as that of a custom
    derivative. It is traced for the arguments, not run. A plain function without closure and defaults can hold no
    arrays; it is called directly.

    Args:
      fn: A function of any trees, with any result.
      *args: Arguments like those of later calls; a `jax.ShapeDtypeStruct` represents an array.
      **kwargs: Its arguments by name.

    Returns:
      A function of arguments of these types and of a pytree of the arrays, `consts`. It has `in_struct` and
      `out_struct`, with a `jax.ShapeDtypeStruct` for each array.

    Raises:
      TypeError: `fn` is not callable.
      ValueError: When called: the arguments differ from those of the conversion; the message has the path.

    See Also:
      The guide "Transformations of any tree".
    """
    check_callable(fn, "filter_closure_convert")
    arguments = split((args, kwargs), _described)
    converted_for = (structs_of(arguments[0]), arguments[1])
    name = getattr(fn, "__name__", type(fn).__name__)
    if isinstance(fn, types.FunctionType) and not (fn.__closure__ or fn.__defaults__ or fn.__kwdefaults__):
        return ClosureConverted(fn, [], Rest((name, converted_for, None)))
    jaxpr, out = _program_of("filter_closure_convert", fn, args, kwargs)
    return ClosureConverted(jaxpr.jaxpr, jaxpr.consts, Rest((name, converted_for, out)))
