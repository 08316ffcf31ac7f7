"""What is refused, as nnx refuses it, and where in the user's trees it is."""

import inspect
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from flax.nnx import graphlib

from partax._libraries.flax.graph import is_object


def note_argument(error: Exception, values: dict[str, Any]) -> None:
    """Adds to an error on an nnx object where in the values of a call, given by name, that object is."""
    _note(error, lambda: values)


def note_held(error: Exception, fun: Callable[..., Any]) -> None:
    """Adds to an error on an nnx object that a function holds, and was not given, what the function calls it."""
    users = error.__traceback__ and error.__traceback__.tb_next  # the first frame is the one that asks
    name = getattr(fun, "__qualname__", type(fun).__qualname__)
    _note(error, lambda: _held(users, fun), f", which is no argument of `{name}`: pass it as one")


def _note(error: Exception, roots: Callable[[], dict[str, Any]], more: str = "") -> None:
    refused = _refused(error)
    path = None if refused is None else _path_of(refused, roots())
    if path is not None:
        error.add_note(f"partax: it is `{path}`{more}")


def _frames(traceback: TracebackType | None) -> Iterator[dict[str, Any]]:
    while traceback is not None:
        yield traceback.tb_frame.f_locals
        traceback = traceback.tb_next


def _refused(error: Exception) -> Any:
    """The object that a refusal is of: what the innermost function was at work on, as this file and nnx call it."""
    found = None
    if "trace level" not in str(error) and "hijax" not in str(error):
        return found
    for variables in _frames(error.__traceback__):
        found = next((variables[name] for name in ("self", "value") if is_object(variables.get(name))), found)
    return found


def _held(traceback: TracebackType | None, fun: Any) -> dict[str, Any]:
    """What a function, and those in which it failed, can name: the closest first."""
    held: dict[str, Any] = {}
    try:
        variables = inspect.getclosurevars(fun)
        held.update({**variables.globals, **variables.nonlocals})
    except (TypeError, ValueError):
        pass
    for variables in _frames(traceback):
        held.update({name: value for name, value in variables.items() if name not in ("self", "value")})
    return held


def _path_of(target: Any, roots: dict[str, Any]) -> str | None:
    for name, root in roots.items():
        if not is_object(root) and not isinstance(root, (list, tuple, dict)):
            continue
        places = list(graphlib.iter_graph(root, graph=True))
        path = next((path for path, value in places if value is target), None)
        if path is not None:
            nodes = {at for at, value in places if is_object(value)}
            return name + "".join(_step(part, path[:i] in nodes) for i, part in enumerate(path))
    return None


def _step(part: Any, is_attribute: bool) -> str:
    return f".{part}" if is_attribute and isinstance(part, str) else f"[{part!r}]"
