"""The arguments of a call with the axes or specs that an option has for their leaves."""

import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from partax._pytree.methods import open_methods
from partax._transforms.objects import Objects
from partax._transforms.split import Split, spread
from partax._transforms.wrapper import bind_call, names_of_arguments


class Arguments:
    """The arguments of a call, one for each parameter of a function, and a prefix for each."""

    def __init__(
        self,
        fun: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        prefix: Any,
        default: Any,
        is_entry: Callable[[Any], bool],
        option: str,
    ):
        """The prefix is one entry for all arguments; a tuple or list of prefixes, one for each positional argument; or
        a dictionary from names of parameters to prefixes. Other arguments have the entry `default`. `is_entry` is true
        for nodes that are entries.
        """
        self._fun = fun
        self._name = getattr(fun, "__name__", type(fun).__name__)
        self._bound = bind_call(fun, args, kwargs)
        self._option, self._is_entry = option, is_entry
        prefixes = self._prefixes(prefix)
        self._prefix_of = {name: prefixes.get(name, default) for name in self._bound.arguments}

    def _prefixes(self, prefix: Any) -> dict[str, Any]:
        parameters, option = self._bound.signature.parameters, self._option
        if isinstance(prefix, dict):
            unknown = [name for name in prefix if name not in parameters]
            if unknown:
                raise ValueError(
                    f"{option}: found {', '.join(map(repr, unknown))}, expected names of arguments of `{self._name}` "
                    f"({', '.join(parameters) or 'none'})"
                )
            return prefix
        if not isinstance(prefix, (tuple, list)) or self._is_entry(prefix):
            return dict.fromkeys(parameters, prefix)
        count = len(self._bound.args)
        if len(prefix) != count:
            raise ValueError(
                f"{option}: found {len(prefix)} entries, expected one for each of the {count} arguments by "
                f"position of `{self._name}` ({', '.join(names_of_arguments(self._fun, count))})"
            )
        return self._bound.signature.bind_partial(*prefix).arguments

    def split(self, choose: Callable[[str, Any, Any], Any]) -> tuple[tuple[Split, ...], tuple[Split, ...]]:
        """Split each argument into the leaves for which `choose(path, leaf, entry)` is not None, and the rest; return
        these, and others with what was chosen instead of the leaves. A ValueError has the path at which a prefix does
        not fit.
        """
        splits: list[Split] = []
        choices: list[Split] = []
        for name, value in self._bound.arguments.items():
            pairs = spread(self._prefix_of[name], open_methods(value), self._is_entry, self._option, name)
            chosen = {path: choose(name + path, *pair) for path, pair in pairs.items()}
            chosen = {path: choice for path, choice in chosen.items() if choice is not None}
            splits.append(Split.of(value, True).only(chosen))
            choices.append(splits[-1].update(chosen))
        return tuple(splits), tuple(choices)

    def on_splits(self, transformation: str, finish: Callable[[Any], Any]) -> Callable[..., Any]:
        """Return the call as a function of splits of its arguments, which passes its result to `finish`. It has the
        name and the parameters of the user's function for JAX's messages, and raises a ValueError if it changes an nnx
        object.
        """
        objects = Objects.of_call(transformation, self._fun, self._bound.args, self._bound.kwargs)
        function = objects.refuse_changes(self._fun)

        def run(*splits: Split) -> Any:
            values = (split.tree for split in splits)
            arguments = OrderedDict(zip(self._bound.arguments, values, strict=True))
            call = inspect.BoundArguments(self._bound.signature, arguments)
            return finish(function(*call.args, **call.kwargs))

        kind = inspect.Parameter.POSITIONAL_ONLY
        run.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in self._bound.arguments])  # type: ignore[attr-defined]
        run.__name__ = self._name
        return run
