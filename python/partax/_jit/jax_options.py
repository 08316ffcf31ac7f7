"""The options of jax.jit in the terms of `Options`, and back."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax

from partax._core import JitFunction
from partax._jit.options import call_parameters, check_names, parameter_at


def chosen_arguments(
    fun: Any, option: str, positions: int | Sequence[int] | None, names: str | Iterable[str] | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the positions and names as tuples; raise a ValueError if `fun` has no such argument."""
    names = (names,) if isinstance(names, str) else tuple(names or ())
    positions = (positions,) if isinstance(positions, int) else tuple(positions or ())
    parameters = call_parameters(fun)
    if not parameters.var_named:
        check_names(fun, f"{option}_argnames", names)
    count = parameters.num_positional
    for position in positions:
        if not parameters.var_positional and not -count <= position < count:
            raise ValueError(
                f"found {position} in {option}_argnums, expected positions of arguments: "
                f"{', '.join(parameters.names[:count])}"
            )
    return positions, names


def names_at(fun: Any, positions: tuple[int, ...]) -> tuple[str | int, ...]:
    """Return the names of the arguments at some positions, or the position itself if it is in an `*args`; there, jax
    ignores positions from the end.
    """
    parameters = call_parameters(fun)
    if not parameters.var_positional:
        positions = tuple([position % parameters.num_positional for position in positions])
    names = {position: parameter_at(parameters, position) for position in positions if position >= 0}
    return tuple([position if name == parameters.var_names[0] else name for position, name in names.items()])


def all_shardings(
    fun: Any, positions: tuple[int, ...], names: tuple[str, ...], shardings: Sequence[Any]
) -> tuple[Any, ...]:
    """Return the `in_shardings` for all arguments from those for the arguments that are not static."""
    parameters = call_parameters(fun)
    entries = list(shardings)
    # Those from the end of an `*args` are counted in a call with as many arguments as there are shardings for.
    count = len(entries) + len(positions) if parameters.var_positional else parameters.num_positional
    in_order = [*parameters.names, *parameters.shown_positional]
    static = {position if position >= 0 else count + position for position in positions}
    static |= {in_order.index(name) for name in names if name in in_order}
    for i in sorted(static):
        if i <= len(entries):
            entries.insert(i, None)
    return tuple(entries)


def jax_jit_of(wrapper: JitFunction[..., Any]) -> Any:
    """Return the `jax.jit` of the function of a wrapper of `jit`, for the stages of jax: lowering, export."""
    fun, options = wrapper.__wrapped__, wrapper._options
    keywords: dict[str, Any] = {"out_shardings": options.out_shardings}
    for option, chosen in (("static", options.static_parameters), ("donate", options.donate)):
        keywords |= _chosen_as_in_jax(fun, option, () if isinstance(chosen, str) else chosen)
    shardings = options.in_shardings
    if isinstance(shardings, tuple):
        static = keywords["static_argnums"]
        shardings = tuple(entry for i, entry in enumerate(shardings) if i not in static)
    keywords["in_shardings"] = shardings
    keywords |= {name: getattr(options, name) for name in ("keep_unused", "inline", "compiler_options")}
    return jax.jit(fun, **{name: value for name, value in keywords.items() if value is not None})


def _chosen_as_in_jax(fun: Any, option: str, chosen: tuple[str | int, ...]) -> dict[str, Any]:
    parameters = call_parameters(fun)
    positions = [i for i, name in enumerate(parameters.names[: parameters.num_positional]) if name in chosen]
    positions += [position for position in chosen if isinstance(position, int)]
    names = [name for name in chosen if isinstance(name, str)]
    return {f"{option}_argnums": tuple(positions), f"{option}_argnames": tuple(names)}
