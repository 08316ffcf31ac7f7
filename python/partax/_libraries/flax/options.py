"""The options of `nnx.jit` in the terms of filter_jit."""

import functools
import inspect
import types
from typing import Any

from flax.nnx import Module, extract, graphlib

from partax._core import JitFunction
from partax._jit.filter_jit import wrapper_of
from partax._jit.jax_options import all_shardings, chosen_arguments
from partax._jit.options import Options, call_parameters, resolve_donate
from partax._libraries.flax.graph import Pytree
from partax._libraries.flax.graph_call import GraphMode, Outcome, prefix_of


def wrapper_for_nnx(
    fun: Any,
    graph: bool | None,
    graph_updates: bool | None,
    *,
    static_argnums: Any,
    static_argnames: Any,
    donate_argnums: Any,
    donate_argnames: Any,
    donate: Any,
    in_shardings: Any,
    out_shardings: Any,
    **options: Any,
) -> JitFunction[..., Any]:
    """Return the wrapper for `partax.nnx.jit`; the shardings omit the arguments that are declared static."""
    method = fun
    while isinstance(method, functools.partial):
        method = method.func
    if inspect.ismethod(method) and isinstance(method.__self__, Module):
        raise ValueError(
            f"nnx.jit does not support bound methods: found `{method.__qualname__}` of a module; decorate it in the "
            "class, or compile the function of the class and pass the module"
        )
    is_argument = isinstance(fun, Pytree)  # itself, whether jax knows it as a tree or not
    if is_argument:
        fun = types.MethodType(type(fun).__call__, fun)
    static = chosen_arguments(fun, "static", static_argnums, static_argnames)
    donated_names = chosen_arguments(fun, "donate", donate_argnums, donate_argnames)
    if isinstance(in_shardings, (tuple, list)) and not hasattr(in_shardings, "_fields"):
        by_position = all_shardings(fun, static, in_shardings)
        in_shardings = (None, *by_position) if is_argument else by_position  # the object itself has none in nnx
    if not all(isinstance(name, str) for name in donated_names):
        raise ValueError(
            f"found {donate_argnums} in donate_argnums, where `*{call_parameters(fun).var_names[0]}` takes several "
            "arguments, expected positions of others; donate_argnames donates all of them"
        )
    graph = graphlib.set_graph_mode.current_value() if graph is None else graph
    graph_updates = graphlib.set_graph_updates.current_value() if graph_updates is None else graph_updates
    mode = GraphMode.TREE if not graph else GraphMode.GRAPH if graph_updates else GraphMode.VARIABLES
    for option, shardings in (("in_shardings", in_shardings), ("out_shardings", out_shardings)):
        extract.check_prefix(shardings, option, "jit", mode is not GraphMode.TREE, mode is GraphMode.GRAPH)
    options.update(donate=donated_names or resolve_donate(donate), in_shardings=prefix_of(in_shardings), graph=mode)
    if out_shardings is not None:
        options["out_shardings"] = Outcome._make((prefix_of(out_shardings), *[None] * (len(Outcome._fields) - 1)))
    return wrapper_of(Options(**options), fun)
