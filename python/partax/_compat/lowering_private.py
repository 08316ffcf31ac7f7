"""The only file that looks at what jax lowers, by a name of jax's that is not public."""

from collections.abc import Callable, Sequence
from typing import Any

from partax._compat.jax_private import name_of as _name

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
