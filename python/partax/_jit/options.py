"""The options of filter_jit, checked and comparable."""

import dataclasses
import enum
import os
from collections.abc import Callable
from typing import Any, Literal, cast

import jax

from partax import _core
from partax._pytree.short_text import short_text

DonateMode = Literal["none", "all", "all-except-first", "warn", "warn-except-first"]

_MODES = ("none", "all", "all-except-first", "warn", "warn-except-first")


def is_traced_array(leaf: Any) -> bool:
    return _core.node_kind(leaf) == "dynamic_leaf" or isinstance(leaf, jax.ShapeDtypeStruct)


@dataclasses.dataclass(eq=False, repr=False)
class Options:
    """The options of one filter_jit, checked, and comparable by the rules of static values."""

    donate: Any = "none"
    inline: bool | enum.Enum = False
    keep_unused: bool = False
    compiler_options: dict[str, Any] | None = None
    in_shardings: Any = None
    out_shardings: Any = None
    cache_size: int = 4096
    callables: str = "structure"
    trace: Any = None
    max_traces: int | None = None
    graph: str | None = None  # how objects in the arguments are changed in place, for `partax.nnx`; None: not
    donates_returned: bool = False  # whether an array that is donated and returned is another one then, as with jax.jit
    store: Any = None  # the folder for its programs; False for none, None for that of `partax.store`

    def __post_init__(self) -> None:
        if not isinstance(self.cache_size, int) or self.cache_size < 1:
            raise ValueError(f"found cache_size={self.cache_size!r}, expected a positive number of static keys")
        check_max_traces(self.max_traces)
        if self.callables not in ("structure", "identity"):
            raise ValueError(f"found callables={self.callables!r}, expected 'structure' or 'identity'")
        self.donate, self.trace, self.store = _donated(self.donate), _traced(self.trace), _folder(self.store)
        self.inline = self.inline if isinstance(self.inline, enum.Enum) else bool(self.inline)
        self.keep_unused, self.cache_size = bool(self.keep_unused), int(self.cache_size)
        self.compiler_options = None if self.compiler_options is None else dict(self.compiler_options)
        self.key = tuple(getattr(self, field.name) for field in dataclasses.fields(self))
        self._spec = _core.flatten(self.key, "options")[1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self._spec == other._spec

    def __hash__(self) -> int:
        return hash(self._spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Options, self.key)

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


def check_max_traces(max_traces: Any) -> None:
    if max_traces is not None and (not isinstance(max_traces, int) or max_traces < 0):
        raise ValueError(f"found max_traces={max_traces!r}, expected a number of traces, or None for any")


def _names(given: Any) -> tuple[str, ...] | None:
    """Names of arguments, one alone or several; None for what is none."""
    names = tuple(given) if isinstance(given, (tuple, list, set, frozenset)) else (given,)
    return names if all(isinstance(name, str) for name in names) else None


def _donated(donate: Any) -> str | tuple[str, ...]:
    modes = f"expected one of {', '.join(map(repr, _MODES))}"
    if isinstance(donate, str):
        if donate not in _MODES:
            raise ValueError(f"found donate={donate!r}, {modes}, or names of arguments: donate=({donate!r},)")
        return donate
    names = _names(donate)
    if names is None:
        raise ValueError(f"found donate={donate!r}, {modes} or a tuple of argument names")
    return names


def _folder(store: Any) -> str | Literal[False] | None:
    if store is None or store is False:
        return store
    if not isinstance(store, (str, os.PathLike)):
        raise TypeError(
            f"found store={short_text(store)}, expected a folder, False for none, or None for that of partax.store"
        )
    return os.path.abspath(os.path.expanduser(os.fspath(store)))


def _traced(trace: Any) -> Callable[[Any], bool] | tuple[str, ...] | None:
    if trace is None or callable(trace):
        return cast("Callable[[Any], bool] | None", trace)
    names = _names(trace) if isinstance(trace, (str, tuple, list)) else None
    if not names:
        raise ValueError(f"found trace={trace!r}, expected a predicate on leaves or a tuple of argument names")
    return names
