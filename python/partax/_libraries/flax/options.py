"""The options of `nnx.jit` in the terms of filter_jit."""

import functools
import inspect
import types
from collections.abc import Iterable, Sequence
from typing import Any

from flax.nnx import Module, extract, graphlib

from partax._core import JitFunction
from partax._jit.filter_jit import check_names, wrapper_of
from partax._jit.options import Options, call_parameters, parameter_at
from partax._libraries.flax.graph import Pytree
from partax._libraries.flax.graph_call import GraphMode, Outcome, prefix_of

_Positions = int | Sequence[int] | None
_Names = str | Iterable[str] | None


def wrapper_for_nnx(
    fun: Any,
    graph: bool | None,
    graph_updates: bool | None,
    *,
    static_argnums: _Positions,
    static_argnames: _Names,
    donate_argnums: _Positions,
    donate_argnames: _Names,
    donate: Any,
    in_shardings: Any,
    out_shardings: Any,
    **options: Any,
) -> JitFunction[..., Any]:
    """Return the wrapper for `partax.nnx.jit`; the shardings omit the arguments that are declared static."""
    is_argument = isinstance(fun, Pytree)  # itself, whether jax knows it as a tree or not
    if is_argument:
        fun = types.MethodType(type(fun).__call__, fun)
    else:
        _refuse_bound_method(fun)
    static_positions, static_names = _chosen(fun, "static", static_argnums, static_argnames)
    positions, names = _chosen(fun, "donate", donate_argnums, donate_argnames)
    if isinstance(in_shardings, (tuple, list)) and not hasattr(in_shardings, "_fields"):
        by_position = _by_position(fun, static_positions, static_names, list(in_shardings))
        in_shardings = (None, *by_position) if is_argument else by_position  # the object itself has none in nnx
    names += _names_at(fun, positions)
    graph = graphlib.set_graph_mode.current_value() if graph is None else graph
    graph_updates = graphlib.set_graph_updates.current_value() if graph_updates is None else graph_updates
    mode = GraphMode.TREE if not graph else GraphMode.GRAPH if graph_updates else GraphMode.VARIABLES
    for option, shardings in (("in_shardings", in_shardings), ("out_shardings", out_shardings)):
        extract.check_prefix(shardings, option, "jit", mode is not GraphMode.TREE, mode is GraphMode.GRAPH)
    in_shardings = prefix_of(in_shardings)
    if out_shardings is not None:
        out_shardings = Outcome._make((prefix_of(out_shardings), *[None] * (len(Outcome._fields) - 1)))
    donate = tuple(dict.fromkeys(names)) or donate
    made = Options(donate=donate, in_shardings=in_shardings, out_shardings=out_shardings, graph=mode, **options)
    return wrapper_of(made, fun)


def _refuse_bound_method(fun: Any) -> None:
    while isinstance(fun, functools.partial):
        fun = fun.func
    if inspect.ismethod(fun) and isinstance(fun.__self__, Module):
        name = f"{type(fun.__self__).__name__}.{fun.__name__}"
        raise ValueError(
            f"nnx.jit does not support bound methods: found one of `{name}`, whose module would be no argument; "
            f"decorate the method in the class, or call `jit({name})(module, ...)`"
        )


def _chosen(fun: Any, option: str, numbers: Any, names: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    names = (names,) if isinstance(names, str) else tuple(names or ())
    numbers = (numbers,) if isinstance(numbers, int) else tuple(numbers or ())
    check_names(fun, f"{option}_argnames", names)
    parameters = call_parameters(fun)
    count = parameters.num_positional
    for number in numbers:
        if not parameters.var_positional and not -count <= number < count:
            raise ValueError(
                f"found {number} in {option}_argnums, expected positions of arguments: "
                f"{', '.join(parameters.names[:count])}"
            )
    return numbers, names


def _names_at(fun: Any, positions: tuple[int, ...]) -> tuple[str, ...]:
    """Return the names of the arguments at some positions; with an `*args`, none from the end, as in jax."""
    parameters = call_parameters(fun)
    if not parameters.var_positional:
        positions = tuple([p % parameters.num_positional for p in positions])
    names = tuple([parameter_at(parameters, p) for p in positions if p >= 0])
    if parameters.var_names[0] in names:
        raise ValueError(
            f"found {positions} in donate_argnums, where `*{parameters.var_names[0]}` takes several arguments, "
            f"expected positions of others; donate_argnames={parameters.var_names[0]!r} donates all of them"
        )
    return names


def _by_position(
    fun: Any, static_positions: tuple[int, ...], static_names: tuple[str, ...], shardings: list[Any]
) -> tuple[Any, ...]:
    """Return the shardings of all arguments; nnx omits those of arguments that are declared static."""
    parameters = call_parameters(fun)
    # Those from the end of an `*args` are counted in a call with as many arguments as there are shardings for.
    count = len(shardings) + len(static_positions) if parameters.var_positional else parameters.num_positional
    in_order = [*parameters.names, *parameters.shown_positional]
    static = {position if position >= 0 else count + position for position in static_positions}
    static |= {in_order.index(name) for name in static_names if name in in_order}
    for i in sorted(static):
        if i <= len(shardings):
            shardings.insert(i, None)
    return tuple(shardings)
