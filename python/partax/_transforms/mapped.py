"""One program for many values along an axis, or on many devices: filter_vmap and filter_shard_map."""

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Hashable
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from partax._pytree.filters import is_array, is_array_like
from partax._pytree.partition import combine, is_none, partition
from partax._transforms.objects import Objects
from partax._transforms.split import Split, leaf_text, spread
from partax._transforms.wrapper import Transformed, bind_call, names_of_arguments, transformation, wrapped


def _first_axis(leaf: Any) -> int | None:
    return 0 if is_array(leaf) else None


class _Mapped(Transformed[..., Any]):
    """A transformation with an option that has an entry for each leaf of the arguments, such as an axis."""

    _option: ClassVar[str]
    _default: ClassVar[Any] = None  # the entry of other arguments
    _is_entry: ClassVar[Any]  # a predicate on nodes of the option

    def _split_call(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        prefix: Any,
        choose: Callable[[str, Any, Any], Any],
        finish: Callable[[Any], Any],
    ) -> tuple[Callable[..., Any], tuple[Split, ...], tuple[Split, ...]]:
        """Split each argument into the leaves for which `choose(path, leaf, entry)` is not None, and the rest.

        Return the call as a function of these, which passes its result to `finish` and for JAX's messages has the name
        and the parameters of the user's; the splits; and others with what was chosen instead of leaves.
        """
        bound = bind_call(self.__wrapped__, args, kwargs)
        prefixes = self._prefixes(bound, prefix)
        splits: list[Split] = []
        choices: list[Split] = []
        for name, value in bound.arguments.items():
            entry = prefixes.get(name, self._default)
            pairs = spread(entry, value, self._is_entry, self._option, name)
            chosen = {path: choose(name + path, *pair) for path, pair in pairs.items()}
            chosen = {path: choice for path, choice in chosen.items() if choice is not None}
            splits.append(Split.of(value, True).only(chosen))
            choices.append(splits[-1].update(chosen))
        objects = Objects.of_call(self._name, self.__wrapped__, bound.args, bound.kwargs)
        function = objects.refuse_changes(self.__wrapped__)

        def run(*splits: Split) -> Any:
            values = (split.tree for split in splits)
            call = inspect.BoundArguments(bound.signature, OrderedDict(zip(bound.arguments, values, strict=True)))
            return finish(function(*call.args, **call.kwargs))

        on_splits: Any = run
        kind = inspect.Parameter.POSITIONAL_ONLY
        on_splits.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in bound.arguments])
        on_splits.__name__ = self.__name__
        return on_splits, tuple(splits), tuple(choices)

    def _prefixes(self, bound: inspect.BoundArguments, prefix: Any) -> dict[str, Any]:
        parameters = bound.signature.parameters
        if isinstance(prefix, dict):
            if unknown := [repr(name) for name in prefix if name not in parameters]:
                raise ValueError(
                    f"{self._option}: found {', '.join(unknown)}, expected names of arguments of `{self.__name__}` "
                    f"({', '.join(parameters) or 'none'})"
                )
            return prefix
        if not isinstance(prefix, (tuple, list)) or self._is_entry(prefix):
            return dict.fromkeys(parameters, prefix)
        count = len(bound.args)
        if len(prefix) != count:
            raise ValueError(
                f"{self._option}: found {len(prefix)} entries, expected one for each of the {count} arguments by "
                f"position of `{self.__name__}` ({', '.join(names_of_arguments(self.__wrapped__, count))})"
            )
        return bound.signature.bind_partial(*prefix).arguments


class _Vmap(_Mapped):
    _name = "filter_vmap"
    _option = "in_axes"
    _default = staticmethod(_first_axis)
    _is_entry = staticmethod(is_none)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        in_axes, out_axes, options = self._options

        def axis_of(path: str, leaf: Any, entry: Any) -> int | None:
            return _axis_of(leaf, entry, np.ndim(leaf) if is_array(leaf) else 0, path, "in_axes")

        finish = functools.partial(_split_by_axis, out_axes=out_axes)
        run, splits, axes = self._split_call(args, kwargs, in_axes, axis_of, finish)
        stacked, rest = jax.vmap(run, in_axes=axes, out_axes=(0, None), **dict(options))(*splits)
        moved = {path: jnp.moveaxis(leaf, 0, axis) for axis, of in stacked.items() for path, leaf in of.items()}
        return rest.update(moved).tree


def _split_by_axis(out: Any, out_axes: Any) -> tuple[dict[int, dict[str, Any]], Split]:
    """The leaves of a result by the axis that they get, and all others."""
    stacked: dict[int, dict[str, Any]] = {}
    rest = Split.of(out)
    for path, (leaf, entry) in spread(out_axes, out, is_none, "out_axes", "the result").items():
        ndim = jnp.ndim(leaf) + 1 if is_array_like(leaf) else 0
        axis = _axis_of(leaf, entry, ndim, f"the result{path}", "out_axes")
        if axis is not None:
            stacked.setdefault(axis, {})[path] = leaf
            rest.leaves[path] = 0
    return stacked, rest


def _axis_of(leaf: Any, entry: Any, ndim: int, path: str, option: str) -> int | None:
    axis = entry(leaf) if callable(entry) else entry
    if axis is None:
        return None
    if not isinstance(axis, int) or isinstance(axis, bool):
        what = "an axis" if axis is entry else "a function that returned"
        raise ValueError(
            f"`{path}`: found {what} `{axis!r}` in {option}, expected None, an int, or a function (leaf) -> None or int"
        )
    if not -ndim <= axis < ndim:
        kind = ValueError if is_array_like(leaf) else TypeError
        raise kind(
            f"`{path}`: found {leaf_text(leaf)}, expected an array that can have the axis {axis} of {option}; give "
            "None there, or a function of the leaf that returns it"
        )
    return axis


@transformation
def filter_vmap(
    fun: Callable[..., Any] | None = None,
    *,
    in_axes: Any = _first_axis,
    out_axes: Any = _first_axis,
    axis_name: Hashable = None,
    axis_size: int | None = None,
    spmd_axis_name: Hashable = None,
) -> Any:
    """Map a function over an axis of arrays. Same as `jax.vmap`, for any pytree: everything else is passed unchanged.

    Example:
      >>> predict = lambda model, x: model["activation"](model["weight"] @ x)
      >>> model = {"weight": jnp.ones((2, 3)), "activation": jax.nn.relu}
      >>> batched = partax.filter_vmap(predict, in_axes={"model": None, "x": 0})
      >>> batched(model, jnp.ones((5, 3))).shape
      (5, 2)

    Args:
      fun: A function of any trees. Arrays that it holds, as a module does, have no axis. Default: return a decorator.
      in_axes: One axis for all arguments, an int, None, or a function `(leaf) -> int or None`; a tuple of axes, or of
        prefixes of the arguments, one for each by position; or a dictionary from names of arguments to these, where
        `*args` and `**kwargs` are one argument each. Default, also for names left out: 0 for arrays, None for others.
      out_axes: The axis in the result, or a tree of axes that is a prefix of the result. Default: 0 for arrays.
      axis_name, axis_size, spmd_axis_name: Same as in `jax.vmap`. Default: None.

    Returns:
      A function of the same arguments, by position or by name. Leaves of the result that are not arrays are unchanged.

    Raises:
      TypeError, ValueError: When called: axes do not fit the arguments or the result; the message has the path.

    See Also: The guide "Transformations of any tree".
    """
    options = ("axis_name", axis_name), ("axis_size", axis_size), ("spmd_axis_name", spmd_axis_name)
    return wrapped(_Vmap, _Vmap._name, (in_axes, out_axes, options), fun)


def _is_spec(node: Any) -> bool:
    return node is None or isinstance(node, PartitionSpec)


def _spec_or_whole(entry: Any) -> Any:
    return PartitionSpec() if entry is None else entry


class _ShardMap(_Mapped):
    _name = "filter_shard_map"
    _option = "in_specs"
    _is_entry = staticmethod(_is_spec)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        in_specs, out_specs, options = self._options
        rest: Any = None

        def spec_of(path: str, leaf: Any, entry: Any) -> Any:
            return _spec_or_whole(entry) if is_array(leaf) else None

        def arrays_of(out: Any) -> Any:
            nonlocal rest
            if all(map(is_array, jax.tree.leaves(out))):  # a user's node may refuse None
                return out
            arrays, rest = partition(out, is_array)
            return arrays

        run, splits, specs = self._split_call(args, kwargs, None if in_specs is ... else in_specs, spec_of, arrays_of)
        more: dict[str, Any] = dict(options) | ({} if in_specs is ... else {"in_specs": specs})
        out_specs = jax.tree.map(_spec_or_whole, out_specs, is_leaf=_is_spec)
        out = jax.shard_map(run, out_specs=out_specs, **more)(*splits)
        return out if rest is None else combine(out, rest)


@transformation
def filter_shard_map(
    fun: Callable[..., Any] | None = None,
    *,
    mesh: Mesh | AbstractMesh | None = None,
    in_specs: Any = ...,
    out_specs: Any,
    axis_names: AbstractSet[Hashable] = frozenset(),
    check_vma: bool = True,
) -> Any:
    """Run a function on each device's part of the arrays. Same as `jax.shard_map`, for any pytree.

    Example:
      >>> mesh = jax.sharding.Mesh(jax.devices(), ("data",))
      >>> total = lambda batch, scale: jax.lax.psum(batch["x"].sum() * scale, "data")
      >>> summed = partax.filter_shard_map(total, mesh=mesh, in_specs=(jax.P("data"), None), out_specs=jax.P())
      >>> summed({"x": jnp.ones(8), "name": "train"}, 0.5)
      Array(4., dtype=float32)

    Args:
      fun: A function of any trees. Each device has all arrays that it holds, as a module. Default: return a decorator.
      mesh: The devices. Default: those of `jax.set_mesh`.
      in_specs: `jax.sharding.PartitionSpec`s for the arguments, given as `in_axes` of `filter_vmap`. With None, or
        without an entry, each device has all of an argument. Default: those of the arrays, over `Explicit` axes.
      out_specs: The same for the result: a prefix of it.
      axis_names, check_vma: Same as in `jax.shard_map`. Default: none, True.

    Returns:
      A function of the same arguments, by position or by name. Leaves of the result that are not arrays are unchanged.

    Raises:
      TypeError, ValueError: When called: specs do not fit the arguments or the result; the message has the path.

    See Also: The guide "Several devices and processes".
    """
    options = ("mesh", mesh), ("axis_names", frozenset(axis_names)), ("check_vma", check_vma)
    return wrapped(_ShardMap, _ShardMap._name, (in_specs, out_specs, options), fun)
