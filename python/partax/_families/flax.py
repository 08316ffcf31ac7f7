"""The classes of Flax: FrozenDict, and nnx's modules, variables and states."""

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from partax._families.fields import Description, fall_back, identical
from partax._jax.nodes import flatten_one_level, one_level

_ENTRIES: Description = ("entries", (), ())
_Slots = tuple[types.MemberDescriptorType, ...]


class Layout(NamedTuple):
    """Where instances store their children and aux data."""

    # What the aux data consists of: the "keys" of the dictionary; its "items"; keys and values of the static
    # "attributes"; the values of the static "slots"; or the value of the only "slot".
    aux: str
    # Where the entries are: in a slot, or in an attribute by its name; True for the instance's own dictionary.
    dictionary: types.MemberDescriptorType | str | bool | None = None
    required: str | None = None  # the key of the static entry that lists which entries are children, if there is one
    row: _Slots = ()  # of a list or tuple of the children, if there is one
    children: _Slots = ()
    statics: _Slots = ()
    made: _Slots = ()  # the slots of a new instance whose values `makers` create, once for each result
    makers: tuple[Callable[[], Any], ...] = ()


def describe(obj: Any) -> Description | None:
    """A class of Flax, if its registered functions do what the native stages do."""
    cls = type(obj)
    try:
        class_layout = layout(cls)
        if class_layout is None:
            return None
        reason = "" if _is_rebuilt_alike(obj, class_layout) else "unflattening makes another object"
    except MemoryError:
        raise
    except Exception as error:  # another version of Flax, or a class that overrides its methods
        reason = repr(error)
    if not reason:
        return _ENTRIES
    if any(base.__module__.partition(".")[0] == "flax" for base in cls.__mro__):
        fall_back(cls, reason)
    return None


def knows(cls: type) -> bool:
    try:
        return layout(cls) is not None
    except (AttributeError, TypeError):
        return False


def layout(cls: type) -> Layout | None:
    """The layout of a class of Flax; None for any other class. Raises an AttributeError or a TypeError if the installed
    version of Flax has another layout.
    """
    frozen: Any = sys.modules.get("flax.core.frozen_dict")
    if frozen is not None and cls is frozen.FrozenDict:
        return Layout("keys", _slot(cls, "_dict"), made=(_slot(cls, "_hash"),), makers=(types.NoneType,))
    nnx: Any = sys.modules.get("flax.nnx")
    if nnx is None:
        return None
    if issubclass(cls, nnx.State):
        return Layout("keys", "_mapping")
    if cls is nnx.FlatState:
        return Layout("slot", row=_slots(cls, "_values"), statics=_slots(cls, "_keys"))
    traced: Any = nnx.tracers.TraceState
    if issubclass(cls, nnx.Variable):
        made = (_slot(cls, "_trace_state"),)
        children = (_slot(cls, "_raw_value"),)
        return Layout("items", _slot(cls, "_var_metadata"), children=children, made=made, makers=(traced,))
    if issubclass(cls, nnx.pytreelib.PytreeState):
        made = (_slot(cls, "_trace_state"),)
        return Layout("slots", statics=_slots(cls, "_initializing", "_is_setup"), made=made, makers=(traced,))
    if issubclass(cls, nnx.Pytree):
        return Layout("attributes", True, "_pytree__nodes")
    return None


def _slot(cls: type, name: str) -> types.MemberDescriptorType:
    member = inspect.getattr_static(cls, name)
    if not isinstance(member, types.MemberDescriptorType):
        raise TypeError(f"`{name}` of `{cls.__name__}` is not a slot")
    return member


def _slots(cls: type, *names: str) -> _Slots:
    return tuple(_slot(cls, name) for name in names)


def _is_rebuilt_alike(obj: Any, class_layout: Layout) -> bool:
    """Whether unflattening puts the same objects into the same places, in the order of the native stages."""
    children, aux = flatten_one_level(obj)
    again = one_level(obj).unflatten(children)
    if type(again) is not type(obj) or type(object.__new__(type(obj))) is not type(obj):
        return False
    if class_layout.row:
        (row,) = class_layout.row
        made = row.__get__(again)
        if type(made) is not tuple or not identical(made, row.__get__(obj)):
            return False
    if not all(slot.__get__(again) is slot.__get__(obj) for slot in (*class_layout.children, *class_layout.statics)):
        return False
    if not all(
        type(slot.__get__(again)) is type(maker())
        for slot, maker in zip(class_layout.made, class_layout.makers, strict=True)
    ):
        return False
    if class_layout.dictionary is None:
        return True
    before, after = _entries(obj, class_layout), _entries(again, class_layout)
    ordered = {
        "keys": lambda: aux,
        "items": lambda: [key for key, _ in aux],
        "attributes": lambda: [str(key) for key in (*aux[0], *aux[1])],
    }
    same_keys = list(after) == list(ordered[class_layout.aux]())
    return same_keys and len(before) == len(after) and all(after[key] is value for key, value in before.items())


def _entries(obj: Any, class_layout: Layout) -> dict[Any, Any]:
    if isinstance(class_layout.dictionary, types.MemberDescriptorType):
        return class_layout.dictionary.__get__(obj)
    own: dict[str, Any] = object.__getattribute__(obj, "__dict__")
    return own[class_layout.dictionary] if isinstance(class_layout.dictionary, str) else own
