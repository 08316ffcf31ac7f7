"""The arguments of a call with the axes or specs that an option has for their leaves."""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax

from partax import _core
from partax._pytree.methods import close_methods, open_methods
from partax._transforms.carry import Arrays
from partax._transforms.objects import Objects
from partax._transforms.wrapper import bind_call, names_of_arguments


class Arguments:
    """The arguments of a call, one for each parameter of a function, with the entry of a prefix for each leaf."""

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
        """Spread a prefix over the arguments of a call.

        The prefix is one entry for all arguments; a tuple or list of prefixes, one for each positional argument; or a
        dictionary from names of parameters to prefixes. Other arguments have the entry `default`. `is_entry` is true
        for nodes that are entries. A ValueError has the path at which the prefix does not fit.
        """
        self._fun = fun
        self._bound = bind_call(fun, args, kwargs)
        values = open_methods(list(self._bound.arguments.values()))
        self.leaves, self._structure = jax.tree.flatten(values)
        self.entries: list[Any] = []
        self._keys: list[tuple[str, str]] = []  # of each leaf: the parameter, and the path from it
        prefixes = self._prefixes(prefix, default, is_entry, option)
        for name, value in zip(self._bound.arguments, values, strict=True):
            pairs = _core.broadcast_prefix(prefixes.get(name, default), value, is_entry, option, name)
            self.entries += [entry for _, entry in pairs]
            leaves = jax.tree_util.tree_leaves_with_path(value)
            self._keys += [(name, jax.tree_util.keystr(path)) for path, _ in leaves]

    def _prefixes(self, prefix: Any, default: Any, is_entry: Callable[[Any], bool], option: str) -> dict[str, Any]:
        parameters = self._bound.signature.parameters
        if isinstance(prefix, dict):
            unknown = [name for name in prefix if name not in parameters]
            if unknown:
                raise ValueError(
                    f"{option}: found {', '.join(map(repr, unknown))}, expected names of arguments of `{self._name}` "
                    f"({', '.join(parameters) or 'none'})"
                )
            return prefix
        if not isinstance(prefix, (tuple, list)) or is_entry(prefix):
            return dict.fromkeys(parameters, prefix)
        count = len(self._bound.args)
        if len(prefix) != count:
            raise ValueError(
                f"{option}: found {len(prefix)} entries, expected one for each of the {count} arguments by "
                f"position of `{self._name}` ({', '.join(names_of_arguments(self._fun, count))})"
            )
        return self._bound.signature.bind_partial(*prefix).arguments

    @property
    def _name(self) -> str:
        return getattr(self._fun, "__name__", type(self._fun).__name__)

    def path(self, index: int) -> str:
        """The path of a leaf, such as `model.layers[0].weight`."""
        return "".join(self._keys[index])

    def nodes(self, values: Mapping[int, Any]) -> list[Arrays]:
        """Return for each argument a node of values for some of its leaves, by index among the leaves of all."""
        nodes: list[Arrays] = []
        for name in self._bound.arguments:
            own = [i for i in values if self._keys[i][0] == name]
            nodes.append(Arrays([values[i] for i in own], tuple(self._keys[i][1] for i in own)))
        return nodes

    def on_nodes(self, transformation: str, indices: Iterable[int]) -> Callable[..., Any]:
        """Return the call as a function of nodes with other values for these leaves. It has the name and the parameters
        of the user's function for JAX's messages, and raises a ValueError if it changes an nnx object.
        """
        objects = Objects.of_call(transformation, self._fun, self._bound.args, self._bound.kwargs)
        function = objects.refuse_changes(self._fun)

        def run(*nodes: Arrays) -> Any:
            leaves = list(self.leaves)
            for i, value in zip(indices, jax.tree.leaves(nodes), strict=True):
                leaves[i] = value
            values = close_methods(jax.tree.unflatten(self._structure, leaves))
            arguments = OrderedDict(zip(self._bound.arguments, values, strict=True))
            call = inspect.BoundArguments(self._bound.signature, arguments)
            return open_methods(function(*call.args, **call.kwargs))

        return run

    def describe_to_jax(self, function: Any) -> Any:
        """Set the name and parameters of a function of nodes, in JAX's messages, to those of the user's function."""
        names = self._bound.arguments
        kind = inspect.Parameter.POSITIONAL_ONLY
        function.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
        function.__name__ = self._name
        return function
