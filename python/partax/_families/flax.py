"""The classes of Flax: FrozenDict, and nnx's modules, variables and states."""

import inspect
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from partax._families.fields import Description, identical
from partax._jax.nodes import flatten_one_level, one_level

_Slots = tuple[types.MemberDescriptorType, ...]


class Layout(NamedTuple):
    """Where instances store their children and aux data."""

    # Returns the keys of the children in the dictionary, those of the static entries, and all static values.
    split_aux: Callable[[Any], tuple[Sequence[Any], Sequence[Any], Sequence[Any]]]
    # A slot, or the name of an attribute; True for the instance's own dictionary.
    dictionary: types.MemberDescriptorType | str | bool | None = None
    row: _Slots = ()  # of a list or tuple of the children, if there is one
    children: _Slots = ()
    statics: _Slots = ()
    made: _Slots = ()  # the slots of a new instance whose values `makers` create, once for each result
    makers: tuple[Callable[[], Any], ...] = ()
    is_object: bool = False  # whether it is an nnx object, which has an identity


def describe(obj: Any) -> Description | None:
    """A class of Flax, if its registered functions do what the native stages do."""
    layout = _layout(type(obj))
    return Description("entries", layout=layout) if layout is not None and _is_rebuilt_alike(obj, layout) else None


def _layout(cls: type) -> Layout | None:
    """The layout of a class of Flax; None for any other class. Raise if this version of Flax has another layout."""
    frozen: Any = sys.modules.get("flax.core.frozen_dict")
    if frozen is not None and cls is frozen.FrozenDict:
        dictionary, cached_hash = _slots(cls, "_dict", "_hash")
        return Layout(lambda aux: (aux, (), ()), dictionary, made=(cached_hash,), makers=(types.NoneType,))
    nnx: Any = sys.modules.get("flax.nnx")
    if nnx is None:
        return None
    if issubclass(cls, nnx.State):
        return Layout(lambda aux: (aux, (), ()), "_mapping")
    if cls is nnx.FlatState:
        return Layout(lambda aux: ((), (), (aux,)), row=_slots(cls, "_values"), statics=_slots(cls, "_keys"))
    if issubclass(cls, nnx.Pytree):
        return Layout(_split_attributes, True, is_object=True)
    makers = (nnx.tracers.TraceState,)
    if issubclass(cls, nnx.Variable):
        metadata, value, state = _slots(cls, "_var_metadata", "_raw_value", "_trace_state")
        places: Any = {"children": (value,), "made": (state,), "makers": makers}
        return Layout(lambda aux: ((), [*dict(aux)], [*dict(aux).values()]), metadata, **places, is_object=True)
    if issubclass(cls, nnx.pytreelib.PytreeState):
        statics, made = _slots(cls, "_initializing", "_is_setup"), _slots(cls, "_trace_state")
        return Layout(lambda aux: ((), (), aux), statics=statics, made=made, makers=makers)
    return None


def _split_attributes(aux: Any) -> tuple[Any, Any, Any]:
    *keys, static_values = aux
    # A number may name an attribute; `setattr` interns the string, and a hit compares keys by identity first.
    child_names, static_names = ([key if type(key) is str else sys.intern(str(key)) for key in row] for row in keys)
    return child_names, static_names, static_values


def _slots(cls: type, *names: str) -> _Slots:
    members = tuple([inspect.getattr_static(cls, name) for name in names])
    if not all(isinstance(member, types.MemberDescriptorType) for member in members):
        raise TypeError(f"an attribute of {names} of `{cls.__name__}` is not a slot")
    return members


def read_entries(obj: Any, layout: Layout, children: Any, aux: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """The keys of the dictionary, those of children first, and the static values. None if a reading by the layout gives
    other objects than these, which the registered functions returned. Called by C++.
    """
    try:
        entries = _entries(obj, layout)
        child_keys, static_keys, expected = layout.split_aux(aux)
        values = [entries[key] for key in child_keys]
        statics = [entries[key] for key in static_keys]
        values[:0] = [slot.__get__(obj) for slot in layout.children]
        statics[:0] = [slot.__get__(obj) for slot in layout.statics]
        if layout.row:
            values[:0] = layout.row[0].__get__(obj)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    keys = (*child_keys, *static_keys)
    is_same = len(keys) == len(entries) and identical(values, children) and identical(statics, expected)
    return (keys, tuple(statics)) if is_same else None


def _is_rebuilt_alike(obj: Any, layout: Layout) -> bool:
    """Whether unflattening puts the same objects into the same places, in the order of the native stages."""
    children, aux = flatten_one_level(obj)
    children = tuple(children)
    rebuilt = one_level(obj).unflatten(children)
    if type(rebuilt) is not type(obj) or type(object.__new__(type(obj))) is not type(obj):
        return False
    before, after = (read_entries(each, layout, children, aux) for each in (obj, rebuilt))
    if before is None or after is None or tuple(_entries(rebuilt, layout)) != after[0]:
        return False
    made = zip(layout.made, layout.makers, strict=True)
    return all(type(row.__get__(rebuilt)) is tuple for row in layout.row) and all(
        type(slot.__get__(rebuilt)) is type(maker()) for slot, maker in made
    )


def _entries(obj: Any, layout: Layout) -> dict[Any, Any]:
    if layout.dictionary is None:
        return {}
    if isinstance(layout.dictionary, types.MemberDescriptorType):
        return layout.dictionary.__get__(obj)
    own: dict[str, Any] = object.__getattribute__(obj, "__dict__")
    return own[layout.dictionary] if isinstance(layout.dictionary, str) else own
