"""A call as `jax.export` and `jax.experimental.serialize_executable` accept it: a function of the arrays alone, in
the trees of the user's own arguments and result, in which None represents all that is static.
"""

import dataclasses
import inspect
import sys
import types
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._families.fields import identical
from partax._jax.programs import with_trees
from partax._jit.options import Options, call_parameters, is_traced_array, names_of, parameter_at, parameter_of_keyword


def _abstract(leaf: Any) -> Any:
    """A new object for each array; other leaves as they are."""
    if isinstance(leaf, Tracer) or not isinstance(leaf, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)):
        return leaf
    is_placed = not isinstance(leaf, jax.Array) or leaf.committed
    sharding = getattr(leaf, "sharding", None) if is_placed else None
    weak_type = bool(getattr(leaf, "weak_type", False))
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=weak_type)


def _arrays_of(result: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf if is_traced_array(leaf) else None, result)


class ArrayCall:
    """A call of a wrapper as a function of its arrays: its static part, with shapes instead of arrays."""

    def __init__(self, wrapper: Any, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self._wrapper = wrapper
        options: Options = wrapper._options
        self._parameters = _parameters_of(wrapper, args, kwargs)
        leaves, self._tree = jax.tree.flatten((args, kwargs))
        in_order = [*enumerate(args), *sorted(kwargs.items())]  # as jax flattens them
        of_leaves = [self._parameters[place] for place, value in in_order for _ in jax.tree.leaves(value)]
        self._traced = [options.traces(parameter, leaf) for parameter, leaf in zip(of_leaves, leaves, strict=True)]
        self._leaves = [_abstract(leaf) if traced else leaf for leaf, traced in zip(leaves, self._traced, strict=True)]

    def _shapes(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with shapes for their arrays, and None for each static leaf."""
        pairs = zip(self._leaves, self._traced, strict=True)
        return self._tree.unflatten([leaf if traced else None for leaf, traced in pairs])

    def trace(self) -> Any:
        options: Options = self._wrapper._options
        _refuse_objects(self._wrapper)
        places = [*self._parameters]
        donated = [places[i] for i in options.donated_values([*self._parameters.values()], False)]
        call = self._wrapper
        if options.compiler_options is not None:  # it is called while jax traces, where it may have none
            call = _core.make_jit_function(call.__wrapped__, dataclasses.replace(options, compiler_options=None))

        def of_arrays(*args: Any, **kwargs: Any) -> Any:
            arrays = iter(jax.tree.leaves((args, kwargs)))
            pairs = zip(self._leaves, self._traced, strict=True)
            args, kwargs = self._tree.unflatten([next(arrays) if traced else leaf for leaf, traced in pairs])
            return _arrays_of(call(*args, **kwargs))

        of_arrays.__name__, of_arrays.__qualname__ = names_of(self._wrapper)
        jitted = jax.jit(
            of_arrays,
            donate_argnums=tuple([place for place in donated if isinstance(place, int)]),
            donate_argnames=tuple([place for place in donated if isinstance(place, str)]),
            keep_unused=options.keep_unused,
        )
        args, kwargs = self._shapes()
        return jitted.trace(*args, **kwargs)

    def compiled(self, compiled: Any, compiler_options: Any) -> Any:
        """Return the program of this call as a `jax.stages.Compiled`: that of its target, if its inputs and outputs are
        all arrays in the order of the user's trees; else one that is compiled for them.
        """
        _refuse_objects(self._wrapper)
        trees = self._same_trees(compiled)
        if trees is not None and (program := with_trees(compiled, *trees)) is not None:
            return program
        options = {**(self._wrapper._options.compiler_options or {}), **(compiler_options or {})}
        return self.trace().lower().compile(compiler_options=options or None)

    def _same_trees(self, compiled: Any) -> tuple[Any, Any] | None:
        """The trees of the arguments and of the result, if the leaves of both are those of a program, in its order."""
        args, kwargs = self._tree.unflatten(self._leaves)
        again = _core.PreparedCall(self._wrapper, args, kwargs, True)
        shapes = self._shapes()
        if not identical(again.leaves, jax.tree.leaves(shapes)):
            return None
        outputs = compiled.out_info
        result = _arrays_of(again.result(outputs, again.leaves))
        if not identical(jax.tree.leaves(result), jax.tree.leaves(outputs)):
            return None
        return jax.tree.structure(shapes), jax.tree.structure(result)


def _parameters_of(wrapper: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int | str, str]:
    """Return the parameter of each argument, by position or name, in the order of the signature."""
    is_method = isinstance(wrapper._function, types.MethodType)  # whose parameters are without the object
    is_bound = isinstance(wrapper, _core.BoundJitFunction) and not is_method
    parameters = call_parameters(wrapper._function)
    own = parameters.names[parameters.num_positional_only :]
    takers: dict[int | str, str] = {i: parameter_at(parameters, i + is_bound) for i in range(len(args))}
    takers |= {name: name for name in own if name in kwargs}
    return takers | {name: parameter_of_keyword(parameters, name) for name in kwargs if name not in own}


def _refuse_objects(wrapper: Any) -> None:
    if wrapper._options.graph is not None:
        raise TypeError(
            f"found `{names_of(wrapper)[1]}` of partax.nnx.jit, which changes its arguments in place, as no exported "
            "or serialized program can, expected a function of `filter_jit` that takes and returns `nnx.split` states"
        )


def asked_by_export(caller: dict[str, Any]) -> bool:
    """Return whether `jax.export` asks for a trace, by the globals of the caller. If JAX has moved that, it gets the
    trace that the user gets, and cannot export it.
    """
    export = getattr(sys.modules.get("jax.export"), "export", None)
    return export is not None and caller is getattr(inspect.unwrap(export), "__globals__", None)
