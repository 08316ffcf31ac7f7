"""A call as a program, its shapes, and Python functions that a program calls."""

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import jax
from jax.experimental import io_callback
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun  # pyright: ignore[reportPrivateImportUsage]
from jax.sharding import Sharding

from partax._pytree.filters import Filter, is_array
from partax._pytree.short_text import wrapper_text
from partax._transforms.objects import Objects
from partax._transforms.split import Split, first_difference, is_same, on_split, spread
from partax._transforms.wrapper import Transformed, check_callable, transformation, wrapped


class _Checkpoint(Transformed[..., Any]):
    _name = "filter_checkpoint"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        prevent_cse, policy = self._options
        objects = Objects.of_call(self._name, self.__wrapped__, args, kwargs, takes_fun=True)
        run = jax.checkpoint(on_split(objects.return_changes(operator.call)), prevent_cse=prevent_cse, policy=policy)
        return objects.apply_changes(run(Split.of(((self.__wrapped__, *args), kwargs))))


@transformation
def filter_checkpoint(
    fun: Callable[..., Any] | None = None, *, prevent_cse: bool = True, policy: Callable[..., Any] | None = None
) -> Any:
    """Compute intermediate values again for the gradient, to save memory. Same as `jax.checkpoint`, for any pytree.

    Example:
      >>> layer = partax.filter_checkpoint(lambda model, x: model["activation"](model["weight"] * x))
      >>> loss = lambda model, x: layer(model, x).sum()
      >>> partax.filter_grad(loss)({"weight": jnp.ones(2), "activation": jax.nn.relu}, jnp.array([1.0, 2.0]))
      {'activation': None, 'weight': Array([1., 2.], dtype=float32)}

    Args:
      fun: A function of any trees, with any result. Default: return a decorator.
      prevent_cse, policy: Same as in `jax.checkpoint`. Default: True, None.

    Returns:
      A function of the same arguments with the same result.

    See Also: The guide "Transformations of any tree".
    """
    return wrapped(_Checkpoint, _Checkpoint._name, (prevent_cse, policy), fun)


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
      *args, **kwargs: Its arguments; a `jax.ShapeDtypeStruct` represents an array.

    Returns:
      The result. Leaves that are not arrays are unchanged.

    See Also: The guide "Transformations of any tree".
    """
    check_callable(fun, "filter_eval_shape")
    objects = Objects.of_call("filter_eval_shape", fun, args, kwargs, takes_fun=True)
    call = Split.of(((fun, *args), kwargs), _described)
    return jax.eval_shape(on_split(objects.refuse_changes(operator.call)), call).tree


class _MakeJaxpr(Transformed[..., Any]):
    _name = "filter_make_jaxpr"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        jaxpr, out = _program_of(self._name, self.__wrapped__, args, kwargs)
        return jaxpr, out.build(out.leaves, lambda: out.values), out.build(out.rest.values, lambda: out.values)


def _program_of(
    name: str, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[ClosedJaxpr, Split]:
    fun = Objects.of_call(name, fun, args, kwargs).refuse_changes(fun)
    call, run = Split.of((args, kwargs), _described), on_split(fun)
    # jax gets the arrays alone: its caches would keep the static part of the call alive.
    return jax.make_jaxpr(lambda *leaves: run(call.replace(leaves)), return_shape=True)(*call.leaves.values())


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
      A function of the same arguments, or a `jax.ShapeDtypeStruct` for an array, that returns the program, the result
      with a `jax.ShapeDtypeStruct` for each array and None for other leaves, and the result with None for each array.
      If one of your nodes refuses None, a tree has all leaves.

    See Also: The guide "Transformations of any tree".
    """
    check_callable(fun, "filter_make_jaxpr")
    return _MakeJaxpr(fun)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(eq=False, repr=False)
class ClosureConverted(Generic[_P, _R]):
    """The result of `filter_closure_convert`: a pytree of the arrays that the function has closed over."""

    jaxpr: Any
    consts: list[Any]
    _call: Split  # `(args, kwargs)` of the conversion, with a `jax.ShapeDtypeStruct` for each array, as the rest
    _result: Split
    __name__: str = dataclasses.field(metadata={"static": True})

    @property
    def in_struct(self) -> Any:
        """`(args, kwargs)` of the conversion, with a `jax.ShapeDtypeStruct` for each array."""
        return self._call.tree

    @property
    def out_struct(self) -> Any:
        """The result, with a `jax.ShapeDtypeStruct` for each array."""
        return self._result.tree

    def __repr__(self) -> str:
        return wrapper_text("filter_closure_convert", self)

    def __call__(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        call = Split.of((args, kwargs))
        if difference := first_difference(call, self._call, "(args, kwargs)"):
            raise ValueError(
                f"`{difference.path}`: found {difference.first}, expected {difference.second}{difference.note}, which "
                f"{self.__name__}() was converted for by filter_closure_convert"
            )
        out = jaxpr_as_fun(ClosedJaxpr(self.jaxpr, self.consts))(*jax.tree.leaves(call))
        return Split.of(self.out_struct, jax.ShapeDtypeStruct).replace(out).tree


def filter_closure_convert(fn: Callable[_P, _R], *args: Any, **kwargs: Any) -> ClosureConverted[_P, _R]:
    """Convert a function to a pytree of the arrays that it captures. Same as `jax.closure_convert`, for any pytree.

    Example:
      >>> scaler = lambda weight: lambda x: weight * x
      >>> scale = partax.filter_closure_convert(scaler(jnp.array([1.0, 2.0])), 3.0)
      >>> scale.consts
      [Array([1., 2.], dtype=float32)]
      >>> scale(3.0)
      Array([3., 6.], dtype=float32)

    Args:
      fn: A function of any trees, with any result.
      *args, **kwargs: Arguments like those of later calls; a `jax.ShapeDtypeStruct` represents an array.

    Returns:
      A function of arguments of these types, and a pytree of its arrays, `consts`.

    Raises:
      ValueError: When called: the arguments differ from those of the conversion.

    See Also: The guide "Transformations of any tree".
    """
    check_callable(fn, "filter_closure_convert")
    jaxpr, out = _program_of("filter_closure_convert", fn, args, kwargs)
    call = Split.of((args, kwargs), _described)
    structs = jax.eval_shape(lambda *leaves: leaves, *call.leaves.values())
    name = getattr(fn, "__name__", type(fn).__name__)
    return ClosureConverted(jaxpr.jaxpr, jaxpr.consts, call.replace(structs).only(()), out.only(()), name)


def filter_pure_callback(
    callback: Callable[..., Any],
    *args: Any,
    result_shape_dtypes: Any,
    sharding: Sharding | None = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """Call a Python function without side effects from a program. Same as `jax.pure_callback`, for any pytree.

    Example:
      >>> on_host = lambda tree: {"x": tree["x"] * 2, "name": tree["name"]}
      >>> like = {"x": jax.ShapeDtypeStruct((2,), "float32"), "name": "a"}
      >>> step = partax.filter_jit(lambda tree: partax.filter_pure_callback(on_host, tree, result_shape_dtypes=like))
      >>> step({"x": jnp.ones(2), "name": "a"})
      {'name': 'a', 'x': Array([2., 2.], dtype=float32)}

    Args:
      callback, *args: The function, and its arguments: arrays as arrays, everything else unchanged.
      result_shape_dtypes: A tree like its result, with a `jax.ShapeDtypeStruct` (or anything with a shape and a dtype)
        for each array. Other leaves are equal to those that the function returns.
      sharding, vmap_method: Same as in `jax.pure_callback`. Default: None.
      **kwargs: Its arguments by name.

    Returns:
      The result of `callback`.

    Raises:
      ValueError: When the program runs, inside jax's own error: the result is not like `result_shape_dtypes`.

    See Also: The guide "Transformations of any tree".
    """
    call = functools.partial(jax.pure_callback, sharding=sharding, vmap_method=vmap_method)
    return _call_back("filter_pure_callback", call, callback, args, kwargs, result_shape_dtypes)


def filter_io_callback(
    callback: Callable[..., Any],
    *args: Any,
    result_shape_dtypes: Any = None,
    sharding: Sharding | None = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a Python function with side effects from a program. Same as `jax.experimental.io_callback`, for any pytree.

    Example:
      >>> seen = []
      >>> step = partax.filter_jit(lambda x: (partax.filter_io_callback(seen.append, x), x + 1))
      >>> _ = step(jnp.float32(2))
      >>> jax.effects_barrier()
      >>> seen[0].item()
      2.0

    Args:
      callback, *args: Same as in `filter_pure_callback`.
      result_shape_dtypes: Same as in `filter_pure_callback`. Default: None, for a function that returns None.
      sharding, ordered: Same as in `jax.experimental.io_callback`. Default: None, False.
      **kwargs: Its arguments by name.

    Returns:
      The result of `callback`.

    Raises: Same as in `filter_pure_callback`.
    See Also: The guide "Transformations of any tree".
    """
    call = functools.partial(io_callback, sharding=sharding, ordered=ordered)
    return _call_back("filter_io_callback", call, callback, args, kwargs, result_shape_dtypes)


def _call_back(
    transformation: str,
    call: Callable[..., Any],
    callback: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    expected: Any,
) -> Any:
    check_callable(callback, transformation)
    function = Objects.of_call(transformation, callback, args, kwargs).refuse_changes(callback)
    result = Split.of(expected, _is_struct)

    def run(split: Split) -> dict[str, Any]:
        positional, named = split.tree
        pairs = spread(expected, function(*positional, **named), _is_struct, "result_shape_dtypes", "the result")
        for leaf, entry in pairs.values():
            if not _is_struct(entry) and not is_same(leaf, entry):
                raise ValueError(
                    f"the result of the callback `{getattr(callback, '__name__', callback)}` is not what "
                    f"result_shape_dtypes says apart from arrays: found {leaf!r}, expected {entry!r}"
                )
        return {path: leaf for path, (leaf, entry) in pairs.items() if _is_struct(entry)}

    return result.update(call(run, result.leaves, Split.of((args, kwargs)))).tree


def _is_struct(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")
