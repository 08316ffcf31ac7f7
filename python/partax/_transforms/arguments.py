"""The arguments of a call with what an option says of each of their leaves."""

import inspect
from collections.abc import Callable
from typing import Any

import jax

from partax import _core

_Kinds = inspect.Parameter


class Arguments:
    """The arguments of one call, flat, with the entry of a prefix for each leaf. One by position or by name has the
    same entry either way.
    """

    def __init__(
        self,
        fun: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        prefix: Any,
        default: Any,
        is_entry: Callable[[Any], bool],
        option: str,
    ):
        """Spreads a prefix over the arguments of a call.

        The prefix is one entry for all arguments; a tuple or list of prefixes, one for each positional argument; or a
        dictionary from names of arguments to prefixes. What it says nothing of has the entry `default`; `is_entry`
        tells entries from other nodes. A ValueError, with the path, says where it does not fit.
        """
        signature = _signature(fun)
        by_name = isinstance(prefix, dict)
        if by_name and signature is None:
            raise ValueError(
                f"{option}: found names of arguments, but `{_name(fun)}` does not tell what its arguments are called; "
                "expected a tuple"
            )
        if signature is not None and (kwargs or by_name):
            bound = signature.bind(*args, **kwargs)
            args, kwargs = bound.args, bound.kwargs
        names = [*_positional_names(signature, len(args)), *kwargs]
        if signature is not None and isinstance(prefix, dict):
            of_kind = {one.kind: one.name for one in signature.parameters.values()}
            more, named = (of_kind.get(kind) for kind in (_Kinds.VAR_POSITIONAL, _Kinds.VAR_KEYWORD))  # one name each
            own = signature.parameters.keys() - {more, named}
            keys = [
                name if name in own or name in prefix else more if i < len(args) else named
                for i, name in enumerate(names)
            ]
            entries = [prefix.get(key, default) for key in keys]
            unknown = [name for name in prefix if name not in keys]
            if unknown:
                raise ValueError(
                    f"{option}: found {', '.join(map(repr, unknown))}, expected names of arguments that this call of "
                    f"`{_name(fun)}` has ({', '.join(names) or 'none'})"
                )
        elif isinstance(prefix, (tuple, list)) and not is_entry(prefix):
            if len(prefix) != len(args):
                raise ValueError(
                    f"{option}: found {len(prefix)} entries, expected one for each of the {len(args)} arguments by "
                    f"position of `{_name(fun)}` ({', '.join(names[: len(args)])})"
                )
            entries = [*prefix, *[default] * len(kwargs)]
        else:
            entries = [prefix] * len(names)
        self._names = names  # what messages call them; those that are given by name come last
        self._values = [*args, *kwargs.values()]
        self._num_positional = len(args)
        self.leaves, self._structure = jax.tree.flatten(self._values)
        self.entries: list[Any] = []
        for name, value, entry in zip(names, self._values, entries, strict=True):
            self.entries += [each for _, each in _core.broadcast_prefix(entry, value, is_entry, option, name)]

    def call(self, fun: Callable[..., Any], places: list[int], arrays: list[Any]) -> Any:
        """What a function returns for the arguments with these arrays for the leaves at these places."""
        leaves = list(self.leaves)
        for i, array in zip(places, arrays, strict=True):
            leaves[i] = array
        values = jax.tree.unflatten(self._structure, leaves)
        named = dict(zip(self._names[self._num_positional :], values[self._num_positional :], strict=True))
        return fun(*values[: self._num_positional], **named)

    def path(self, index: int) -> str:
        """The path of a leaf, such as `model.layers[0].weight`."""
        paths = [
            name + jax.tree_util.keystr(path)
            for name, value in zip(self._names, self._values, strict=True)
            for path, _ in jax.tree_util.tree_leaves_with_path(value)
        ]
        return paths[index]


def names_of_arguments(fun: Any, count: int) -> list[str]:
    """What messages call the first arguments of a function by position."""
    return _positional_names(_signature(fun), count)


def _signature(fun: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(fun)
    except (TypeError, ValueError):
        return None


def _positional_names(signature: inspect.Signature | None, count: int) -> list[str]:
    names: list[str] = []
    for one in signature.parameters.values() if signature is not None else ():
        if one.kind < _Kinds.VAR_POSITIONAL:
            names.append(one.name)
        elif one.kind is _Kinds.VAR_POSITIONAL:
            names += [f"{one.name}[{i}]" for i in range(count - len(names))]
    names += [f"args[{i}]" for i in range(len(names), count)]
    return names[:count]


def _name(fun: Any) -> str:
    return getattr(fun, "__name__", type(fun).__name__)
