"""The options of jax.jit in the terms of `Options`, and back."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax

from partax._core import JitFunction
from partax._jit.options import call_parameters, check_names, parameter_at


def chosen_arguments(
    fun: Any, option: str, positions: int | Sequence[int] | None, names: str | Iterable[str] | None
) -> tuple[str | int, ...]:
    """Return the names of arguments, or the position of one in an `*args`. Raise a ValueError if `fun` has no such
    argument.
    """
    chosen: dict[str | int, None] = dict.fromkeys((names,) if isinstance(names, str) else names or ())
    parameters = call_parameters(fun)
    if not parameters.var_named:
        check_names(fun, f"{option}_argnames", tuple(chosen))
    count = parameters.num_positional
    for position in (positions,) if isinstance(positions, int) else positions or ():
        if not parameters.var_positional and not -count <= position < count:
            raise ValueError(
                f"found {position} in {option}_argnums, expected positions of arguments: "
                f"{', '.join(parameters.names[:count])}"
            )
        index = position if parameters.var_positional else position % count
        name = parameter_at(parameters, index) if index >= 0 else ""
        chosen[index if name in ("", parameters.var_names[0]) else name] = None
    return tuple(chosen)


def all_shardings(fun: Any, static: tuple[str | int, ...], shardings: Sequence[Any]) -> tuple[Any, ...]:
    """Return the `in_shardings` for all arguments from those for the arguments that are not static."""
    parameters, entries = call_parameters(fun), list(shardings)
    in_order: list[str | int] = [*parameters.names, *parameters.shown_positional]
    count = len(entries) + len(static)  # those from the end of an `*args` are counted in a call without others
    positions = {in_order.index(name) if name in in_order else name for name in static}
    for i in sorted(i + count * (i < 0) for i in positions if isinstance(i, int)):
        if i <= len(entries):
            entries.insert(i, None)
    return tuple(entries)


def jax_jit_of(wrapper: JitFunction[..., Any]) -> Any:
    """Return the `jax.jit` of the function of a wrapper of `jit`, for the stages of jax: lowering, export."""
    fun, options = wrapper.__wrapped__, wrapper._options
    parameters = call_parameters(fun)
    positional = parameters.names[: parameters.num_positional]
    names = "keep_unused", "inline", "compiler_options", "in_shardings", "out_shardings"
    keywords: dict[str, Any] = {name: getattr(options, name) for name in names}
    for option, chosen in (("static", options.static_parameters), ("donate", options.donate)):
        chosen = () if isinstance(chosen, str) else chosen
        positions = [i for i, name in enumerate(positional) if name in chosen]
        keywords[f"{option}_argnums"] = (*positions, *[name for name in chosen if isinstance(name, int)])
        keywords[f"{option}_argnames"] = tuple(name for name in chosen if isinstance(name, str))
    if isinstance(options.in_shardings, tuple):
        static = keywords["static_argnums"]
        keywords["in_shardings"] = tuple(entry for i, entry in enumerate(options.in_shardings) if i not in static)
    return jax.jit(fun, **{name: value for name, value in keywords.items() if value is not None})
