"""The options of `nnx.jit` in the terms of filter_jit."""

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flax.nnx import Module, extract, graphlib

from partax._core import JitFunction
from partax._jit.filter_jit import wrapping
from partax._nnx.apply_changes import Outcome
from partax._nnx.graph import REGISTERED
from partax._nnx.graph_call import GRAPH, TREE, VARIABLES
from partax._nnx.shardings import prefix_of

_Chosen = tuple[int | Sequence[int] | None, str | Iterable[str] | None]
"""Arguments by position and by name."""


def made_jit(
    fun: Any,
    graph: bool | None,
    graph_updates: bool | None,
    *,
    static: _Chosen,
    donated: _Chosen,
    donate: Any,
    in_shardings: Any,
    out_shardings: Any,
    **options: Any,
) -> JitFunction[..., Any]:
    """Makes what `partax.nnx.jit` returns.

    Args:
      fun: what to compile.
      graph: whether objects may be in two places.
      graph_updates: whether all changes are done to the caller's objects, and not only those of Variables.
      static: the arguments that are said to be static.
      donated: the arguments to donate.
      donate: what else filter_jit is to donate.
      in_shardings: of the arguments that are not said to be static.
      out_shardings: of the result.
      **options: of filter_jit.

    Returns:
      The wrapper.
    """
    function = fun
    if type(fun) in REGISTERED:  # as an argument, whether jax knows it as a tree or not
        function, fun = type(fun).__call__, types.MethodType(type(fun).__call__, fun)
    else:
        _refuse_bound_method(fun)
    static_names = _names(function, "static", *static)
    names = _names(function, "donate", *donated)
    if isinstance(in_shardings, (tuple, list)) and not hasattr(in_shardings, "_fields"):
        in_shardings = _by_position(function, static_names, list(in_shardings))
    mode = _mode(graph, graph_updates)
    for option, shardings in (("in_shardings", in_shardings), ("out_shardings", out_shardings)):
        extract.check_prefix(shardings, option, "jit", mode != TREE, mode == GRAPH)
    in_shardings = prefix_of(in_shardings)
    if out_shardings is not None:
        out_shardings = Outcome._make((prefix_of(out_shardings), *[None] * (len(Outcome._fields) - 1)))
    wrap = wrapping(
        donate=names or donate,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        graph=mode,
        **options,
    )
    return wrap(fun)


def _refuse_bound_method(fun: Any) -> None:
    while isinstance(fun, functools.partial):
        fun = fun.func
    if inspect.ismethod(fun) and isinstance(fun.__self__, Module):
        name = f"{type(fun.__self__).__name__}.{fun.__name__}"
        raise ValueError(
            f"nnx.jit does not support bound methods: found one of `{name}`, whose module would be no argument; "
            f"decorate the method in the class, or call `jit({name})(module, ...)`"
        )


def _mode(graph: bool | None, graph_updates: bool | None) -> str:
    if graph is None:
        graph = graphlib.set_graph_mode.current_value()
    if graph_updates is None:
        graph_updates = graphlib.set_graph_updates.current_value()
    return TREE if not graph else GRAPH if graph_updates else VARIABLES


def _parameters(fun: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return []


def _names(fun: Any, option: str, numbers: Any, names: Any) -> tuple[str, ...]:
    """The names of the arguments that an option means."""
    chosen = (names,) if isinstance(names, str) else tuple(names or ())
    parameters = _parameters(fun)
    known = [p.name for p in parameters]
    takes_any = any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters)
    for name in chosen:
        if name not in known and not takes_any:
            raise ValueError(f"found {name!r} in {option}_argnames, expected names of arguments: {', '.join(known)}")
    by_position = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_position += [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    for number in (numbers,) if isinstance(numbers, int) else tuple(numbers or ()):
        if not -len(by_position) <= number < len(by_position):
            raise ValueError(
                f"found {number} in {option}_argnums, expected positions of arguments: {', '.join(by_position)}"
            )
        chosen += (by_position[number],)
    return tuple(dict.fromkeys(chosen))


def _by_position(fun: Any, static: tuple[str, ...], shardings: list[Any]) -> tuple[Any, ...]:
    """The shardings of all arguments, of which nnx leaves out those that are said to be static."""
    for i, parameter in enumerate(_parameters(fun)):
        if parameter.name in static and i <= len(shardings):
            shardings.insert(i, None)
    return tuple(shardings)
