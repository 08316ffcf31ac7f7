"""Where something is that code reads, in words: `self.lr through closure cell 'self'`."""

import types
from collections.abc import Callable
from typing import Any


def place(places: list[tuple[int, str | int]], at: int) -> str:
    """Where a value is, as `self.lr through closure cell 'self'`.

    Attributes and items belong to the variable before them; from one variable to the next it is "through".
    """
    path, first = list[str](), ""
    while at >= 0:
        at, segment = places[at]
        segment = f"[{segment}]" if isinstance(segment, int) else segment
        if segment.startswith((".", "[")):
            path += [] if first else [segment]
        elif segment:
            _, quote, named = segment.partition("'")
            if not first:
                path.append(named.rpartition("'")[0] if path and quote else segment)
            first = segment
    text = "".join(reversed(path))
    return f"{text} through {first}" if first and first != text else text


# Past the attributes that a subclass of modules makes up.
_globals_of: Callable[[types.ModuleType], dict[str, Any]] = vars(types.ModuleType)["__dict__"].__get__


def attribute(name: Any) -> str:
    return f".{name}" if type(name) is str else ".?"


def followed(chain: tuple[str, ...], module_globals: dict[str, Any], builtins: Any) -> str:
    """As much of a name and its attributes as lead through modules."""
    scope, length = module_globals if chain[0] in module_globals else builtins, 0
    for name in chain:
        if name not in scope:
            break
        length += 1
        if not issubclass(type(scope[name]), types.ModuleType):
            break
        scope = _globals_of(scope[name])
    return ".".join(chain[: max(length, 1)])
