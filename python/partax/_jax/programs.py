"""The only file that looks at programs while jax makes them, by names of jax's that are not public."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax

from partax._jax.private import attribute_of as _attribute
from partax._jax.private import name_of as _name

_context = _name("jax._src.core.trace_ctx")


def open_equations() -> list[Any] | None:
    """The equations so far of the program that this thread traces, also those that no result needs.

    None where this jax does not tell. The finished program has them too; to ask jax for it takes 3 microseconds for
    each of its arguments.
    """
    noted = _attribute(_attribute(_attribute(_context, "trace"), "frame"), "tracing_eqns")
    if not isinstance(noted, list):
        return None
    equations = [note() if isinstance(note, weakref.ref) else note for note in noted]
    found = [equation for equation in equations if equation is not None]
    return found if all(hasattr(equation, "params") for equation in found) else None


_FUNCTION = "lower_sharding_computation"


def watch_lowering(seen: Callable[[Any, str, Sequence[bool]], None]) -> bool:
    """Has `seen(jaxpr, name, donated)` called before each program of this process is lowered, from now on.

    Args:
      seen: gets the program, the function's name, and for each input whether it is donated.

    Returns:
      Whether this jax lets it. Without it, a script is examined by the traces of partax alone.
    """
    module = _name("jax._src.interpreters.pxla")
    lower = getattr(module, _FUNCTION, None)
    if lower is None:
        return False

    def watched(jaxpr: Any, api_name: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        donated = args[4] if len(args) > 4 else ()
        seen(jaxpr, str(name), donated)
        return lower(jaxpr, api_name, name, *args, **kwargs)

    setattr(module, _FUNCTION, watched)
    return True


def is_read_of_programs(name: str) -> bool:
    """Whether jax reads this attribute of a compiled program to serialize it."""
    return name in ("_executable", "_no_kwargs", "_params", "args_info", "in_tree", "out_tree")


def with_trees(compiled: Any, in_tree: Any, out_tree: Any) -> Any:
    """A compiled program that takes and returns its arrays in other trees with as many leaves.

    Args:
      compiled: a `jax.stages.Compiled`.
      in_tree: of the arguments.
      out_tree: of the result.

    Returns:
      Another `jax.stages.Compiled`; None where this jax makes none, and it is compiled once more.
    """
    executable = _attribute(compiled, "_executable")
    constants = _attribute(_attribute(compiled, "_params"), "const_args")
    if executable is None or constants is None:
        return None
    infos = in_tree.unflatten(jax.tree.leaves(compiled.args_info))
    try:
        return jax.stages.Compiled(executable, constants, infos, out_tree)
    except TypeError:
        return None
