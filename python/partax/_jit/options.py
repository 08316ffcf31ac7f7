"""The options of filter_jit, checked and comparable."""

import enum
import os
from collections.abc import Callable
from typing import Any, Literal, cast

import jax

from partax import _core

DonateMode = Literal["none", "all", "all-except-first", "warn", "warn-except-first"]

_MODES = ("none", "all", "all-except-first", "warn", "warn-except-first")


def is_traced_array(leaf: Any) -> bool:
    return _core.node_kind(leaf) == "dynamic_leaf" or isinstance(leaf, jax.ShapeDtypeStruct)


class Options:
    """The options of one filter_jit, comparable by the rules of static values."""

    def __init__(
        self,
        donate: str | tuple[str, ...],
        inline: bool | enum.Enum,
        keep_unused: bool,
        compiler_options: dict[str, Any] | None,
        in_shardings: Any,
        out_shardings: Any,
        cache_size: int,
        callables: str,
        trace: Callable[[Any], bool] | tuple[str, ...] | None,
        max_traces: int | None,
        graph: str | None,
        donates_returned: bool = False,
        store: str | Literal[False] | None = None,
    ):
        self.donate = donate
        self.inline = inline
        self.keep_unused = keep_unused
        self.compiler_options = compiler_options
        self.in_shardings = in_shardings
        self.out_shardings = out_shardings
        self.cache_size = cache_size
        self.callables = callables
        self.trace = trace
        self.max_traces = max_traces
        self.graph = graph
        """How objects in the arguments are changed in place, for `partax.nnx`; None if they are not."""
        self.donates_returned = donates_returned
        """Whether an array that is donated and returned as it came is another array then, as with jax.jit."""
        self.store: str | Literal[False] | None = store
        """The folder for its programs; False for none, None for that of `partax.store`."""
        self.key = (
            *(donate, inline, keep_unused, compiler_options, in_shardings, out_shardings, cache_size, callables),
            *(trace, max_traces, graph, donates_returned, store),
        )
        self._spec = _core.flatten(self.key, "options")[1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self._spec == other._spec

    def __hash__(self) -> int:
        return hash(self._spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Options, self.key)

    def without_compiler_options(self) -> "Options":
        """The same for a wrapper that is called while jax traces, where it takes none."""
        key: list[Any] = [None if value is self.compiler_options else value for value in self.key]
        return Options(*key)

    @property
    def without_shardings(self) -> tuple[Any, ...]:
        """All that a program depends on but the shardings, which may hold what is known in this process alone."""
        return (*self.key[:4], *self.key[6:-1])

    @property
    def silences_warnings(self) -> bool:
        """Whether jax's warning about donated buffers that it could not use is kept from the user."""
        return self.donate not in ("none", "warn", "warn-except-first")

    def traces(self, names: set[str], leaf: Any) -> bool:
        """Whether a leaf is traced in a value that options may mean by these names."""
        if is_traced_array(leaf):
            return True
        if isinstance(self.trace, tuple):
            return not names.isdisjoint(self.trace) and _core.is_array_like(leaf)
        return self.trace is not None and bool(self.trace(leaf))

    def donated_values(self, names: list[set[str]], has_callable: bool) -> set[int]:
        """The indices of the values of a call whose arrays are donated, given by which names options may mean each."""
        everything = set(range(len(names)))
        first = 1 if has_callable else 0
        if self.donate == "none":
            return set()
        if self.donate in ("all", "warn"):
            return everything
        if self.donate in ("all-except-first", "warn-except-first"):
            return everything - {first}
        return {i for i, own in enumerate(names) if not own.isdisjoint(self.donate)}


def check_donate(donate: Any) -> str | tuple[str, ...]:
    if isinstance(donate, str):
        if donate not in _MODES:
            raise ValueError(
                f"found donate={donate!r}, expected one of {', '.join(map(repr, _MODES))}, or names of arguments: "
                f"donate=({donate!r},)"
            )
        return donate
    names = tuple(donate) if isinstance(donate, (tuple, list, set, frozenset)) else (donate,)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"found donate={donate!r}, expected one of {', '.join(map(repr, _MODES))} or a tuple of argument names"
        )
    return names


def check_store(store: Any) -> str | Literal[False] | None:
    if store is None or store is False:
        return store
    if not isinstance(store, (str, os.PathLike)):
        raise TypeError(f"found store={store!r}, expected a folder, False for none, or None for that of partax.store")
    return os.path.abspath(os.path.expanduser(os.fspath(store)))


def check_trace(trace: Any) -> Callable[[Any], bool] | tuple[str, ...] | None:
    if trace is None or callable(trace):
        return cast("Callable[[Any], bool] | None", trace)
    names: tuple[Any, ...] = (trace,) if isinstance(trace, str) else ()
    if isinstance(trace, (tuple, list)):
        names = tuple(trace)
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"found trace={trace!r}, expected a predicate on leaves or a tuple of argument names")
    return names
