"""The nnx objects in the arguments of a transformation: its function gets copies, and its changes are not lost.

Inside `partax.nnx.jit` the change is made where the transformation can return it; anywhere else it is an error.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

from partax._jit.lost_changes import (
    Seen,
    can_make,
    changes,
    make_change,
    makes_changes,
    nnx_objects,
    refuse_lost,
    watch_named,
)
from partax._transforms.split import Split
from partax._transforms.wrapper import names_of_arguments

_IN_JIT = "call it in a function of `partax.nnx.jit`, which makes the change, or return the object"
_OTHERWISE = "use the transformation of `flax.nnx` for it, if there is one, or return the object"


def _same(out: Any) -> Any:
    return out


class Objects:
    """Those of one call of the transformation `name`, whose values have names; a ValueError for one in two places."""

    def __init__(self, name: str, values: Iterable[tuple[str, Any]]):
        self._function = f"the function under {name}"
        pairs = list(values)
        self._names = [name for name, _ in pairs]
        self._originals = [value for _, value in nnx_objects(pairs, name)]

    @classmethod
    def of_call(
        cls, name: str, fun: Any, args: Iterable[Any], kwargs: dict[str, Any], takes_fun: bool = False
    ) -> "Objects":
        """Return the objects of the arguments of a function; with `takes_fun`, also of the function itself."""
        values = tuple(args)
        positional = list(zip(names_of_arguments(fun, len(values)), values, strict=True))
        if takes_fun:
            positional.insert(0, (getattr(fun, "__name__", type(fun).__name__), fun))
        return cls(name, [*positional, *sorted(kwargs.items())])

    def refuse_changes(self, fun: Callable[..., Any], returned: Callable[[Any], Any] = _same) -> Callable[..., Any]:
        """Return a function of copies that raises a ValueError if it changes one that is not in `returned(result)`."""
        if not self._originals:
            return fun

        @functools.wraps(fun, updated=())
        def watched(*args: Any, **kwargs: Any) -> Any:
            out, seen = self._run(fun, args, kwargs)
            refuse_lost(seen, returned(out), self._function, _OTHERWISE)
            return out

        return watched

    def return_changes(self, fun: Callable[..., Any], returned: Callable[[Any], Any] = _same) -> Callable[..., Any]:
        """Return a function of copies that returns its result and the changes for `apply_changes`, or raises."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            out, seen = self._run(fun, args, kwargs)
            every = list(changes(seen))
            if not (makes_changes.get() and all(can_make(change, seen) for change in every)):
                refuse_lost(seen, returned(out), self._function, _OTHERWISE if makes_changes.get() else _IN_JIT)
                every = []
            return out, [(one.number, one.name, one.value) for one in every]

        return watched

    def apply_changes(self, result: Split) -> Any:
        """Change the caller's objects by the second value of a pair that was split, and return the first."""
        value, every = result.tree
        for number, name, new in every:
            make_change(self._originals[number], name, new)
        return value

    def _run(self, fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Seen]]:
        named = [*zip(self._names, args, strict=False), *sorted(kwargs.items())] if self._originals else []
        seen = watch_named(named)
        return fun(*args, **kwargs), seen
