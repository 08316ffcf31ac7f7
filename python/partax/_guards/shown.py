"""What values of some classes show, where `==` hides part of it or there is nothing else to look at."""

import dataclasses
import functools
import inspect
import operator
import re
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from partax import _core
from partax._guards.pure import is_pure
from partax._jax.private import jit_parts

_Ask = Callable[[Any], Any]


def _treedef_parts(treedef: Any) -> tuple[Any, ...]:
    return treedef.node_data(), *treedef.children()


def _registered_method(caller: Any) -> str:
    """By which jax takes apart classes that are registered with methods of theirs: those are looked at."""
    name = caller.__reduce__()[1]
    if name not in (("tree_flatten",), ("tree_flatten_with_keys",)):
        raise TypeError("a caller of any method")
    return name


def _signature_parts(signature: inspect.Signature) -> tuple[Any, ...]:
    parameters = signature.parameters.values()
    if any(type(it) is not inspect.Parameter for it in parameters):
        raise TypeError("a parameter that may have more")
    return signature.return_annotation, *((it.name, it.kind.name, it.default, it.annotation) for it in parameters)


def fields_of(fields: Any) -> tuple[Any, ...]:
    """What is in the fields of a dataclass, but for their annotations, which code cannot read."""
    return tuple((name, *_FIELD(field), tuple(field.metadata.items())) for name, field in fields.items())


def set_by_hand(by_value: dict[Any, Any]) -> tuple[Any, ...]:
    """Where an enumeration finds members by other values than theirs, and flags that are joined on which somebody has
    set an attribute; the rest follows, and grows as they are joined.
    """
    return tuple(
        (value, member)
        for value, member in by_value.items()
        if member._value_ is not value or not vars(member).keys() <= _OF_FLAGS
    )


_OF_FLAGS = {"_value_", "_name_", "__objclass__", "_sort_order_", "_inverted_"}
_FIELD = operator.attrgetter(
    "_field_type.name", "name", "default", "default_factory", "init", "repr", "hash", "compare", "kw_only"
)
TOLD_BY: dict[str, _Ask] = {
    "__parameters__": repr,
    **dict.fromkeys(("__abstractmethods__", "__abstractvars__", "__abstractclassvars__"), sorted),
    "__dataclass_fields__": fields_of,
    "__dataclass_params__": operator.attrgetter(*vars(dataclasses)["_DataclassParams"].__slots__),
    "_value2member_map_": set_by_hand,
}
"""What tells of entries of classes that nobody else has, by their names; most of it runs no Python."""

# What wrappers have of the function inside, which is looked at there; Python 3.14 copies annotations by another name.
_OF_WRAPPERS = {*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "__annotations__"}
_READ_OF_WRAPPERS = "__name__", "__qualname__", "__wrapped__"
# What else objects of some classes have from the beginning, by the name of the class.
_OF_OTHERS = {
    "PjitFunction": {"_fun", "_jit_info"},
    "PRNGKeyArray": {"_impl", "_consumed", "_base_array"},
    "cached_property": {"func", "attrname", "lock"},
    "function": {"__beartype_args_lens", "__beartype_annotations", "__beartype_wrapper"},
    "_MetaAbstractArray": {"dtype", "array_type", "dim_str", "dtypes", "dims", "index_variadic"},
}
_OF_JIT = _OF_WRAPPERS | _OF_OTHERS["PjitFunction"]


def bare(it: Any) -> tuple[Any, ...]:
    """What code can read of a wrapper's attributes, and nothing of another object; raises where somebody has set any
    other attribute, or an array is deleted.
    """
    if isinstance(it, jax.Array) and it.is_deleted():
        raise TypeError("an array that is deleted")
    held = getattr(it, "__dict__", None)
    if not held:
        return ()
    if not held.keys() <= _OF_WRAPPERS | _OF_OTHERS.get(type(it).__name__, set()):
        raise TypeError("an attribute that somebody has set")
    return tuple(part for name in _READ_OF_WRAPPERS if name in held for part in (name, held[name]))


def nothing(_: Any) -> tuple[Any, ...]:
    return ()


def _of_jit(jitted: Any) -> tuple[Any, ...]:
    """Its options, what is inside, and its names where they are not those that are looked at there."""
    held, parts = jitted.__dict__, jit_parts(jitted)
    if not held.keys() <= _OF_JIT:
        raise TypeError("an attribute that somebody has set")
    inner, name, qualified = parts[0], held.get("__name__"), held.get("__qualname__")
    if type(inner) is types.FunctionType and name is inner.__name__ and qualified is inner.__qualname__:
        return parts
    return *parts, name, qualified


def of_wrapper(attributes: dict[str, Any]) -> tuple[Any, ...]:
    """What a function has whose maker copied the attributes of the one inside, as `jax.vmap` does those of a `jax.jit`:
    what is that one's own is looked at there.
    """
    inside = getattr(attributes["__wrapped__"], "__dict__", {})
    own = _OF_OTHERS["PjitFunction"]
    return tuple(
        part
        for name, value in attributes.items()
        for part in (name, (name in own and value is inside.get(name, attributes)) or value)
    )


def is_nan(it: Any) -> bool:
    """Whether a number is equal to no other and not to itself: a container finds the same object in it, and no equal
    one.
    """
    return isinstance(it, (float, complex, np.generic)) and bool(it != it)


def bits_of(number: Any) -> tuple[str, bytes]:
    array = np.asarray(number)
    return array.dtype.str, array.tobytes()


def _array_parts(array: Any) -> tuple[Any, ...]:
    """Its numbers, or the array that it is a view of and where in that one it begins."""
    base: Any = array.base
    if array.dtype.hasobject or array.nbytes > _LARGEST_ARRAY:
        raise TypeError("an array that is large, or of objects")
    of = base if type(base) in (types.NoneType, bytes, np.ndarray) else _jax_owner(base)
    held = array.ctypes.data - base.ctypes.data if type(base) is np.ndarray else array.tobytes()
    return array.dtype, array.shape, array.strides, array.flags.num, of, held


def _jax_owner(base: Any) -> str:
    """What holds the numbers of an array that jax has given; those of anything else may be written by another name."""
    is_of_jax = isinstance(base.obj, jax.Array) if type(base) is memoryview else repr(base).startswith(_CAPSULE)
    if not is_of_jax:
        raise TypeError("a view of what is no array")
    return type(base).__name__


def is_linen_module(cls: type) -> bool:
    return any(base.__module__ == "flax.linen.module" and base.__qualname__ == "Module" for base in cls.__mro__)


def _annotation_parts(annotation: Any) -> tuple[Any, ...]:
    shown = annotation.dtype, annotation.array_type, annotation.dim_str
    return *bare(annotation), *shown, annotation.dtypes, annotation.dims


_CAPSULE = "<capsule object NULL"  # that of DLPack, which anything may give, has a name
_LARGEST_ARRAY = 1 << 20  # bytes: they are compared at each call of a function made anew
_KNOWN: dict[Any, _Ask] = {
    np.ndarray: _array_parts,
    **dict.fromkeys((range, slice), operator.attrgetter("start", "stop", "step")),
    re.Pattern: operator.attrgetter("pattern", "flags"),
    types.UnionType: operator.attrgetter("__args__"),
    types.GenericAlias: operator.attrgetter("__origin__", "__args__", "__unpacked__"),
    types.MemberDescriptorType: operator.attrgetter("__objclass__", "__name__"),  # its class holds it, and nobody else
    property: operator.attrgetter("fget", "fset", "fdel"),
    **dict.fromkeys((staticmethod, classmethod), operator.attrgetter("__func__")),
    functools.cached_property: operator.attrgetter("func", "attrname"),
    inspect.Signature: _signature_parts,
    operator.itemgetter: lambda getter: getter.__reduce__()[1],
    operator.methodcaller: _registered_method,
    jax.tree_util.PyTreeDef: _treedef_parts,
    **dict.fromkeys((_core.Static, _core.FlatSpec), _core.roots_of),
}
# Of libraries, by the module and the name of their class: nothing is imported here.
_OF_LIBRARIES: dict[tuple[str, str], _Ask] = {
    ("flax.core.frozen_dict", "FrozenDict"): operator.attrgetter("_dict"),
    ("flax.ids", "FlaxId"): operator.attrgetter("__class__"),  # each has a number of its own
    ("flax.typing", "HashableMapping"): operator.attrgetter("_mapping"),
    ("jaxtyping._array_types", "_MetaAbstractArray"): _annotation_parts,
}
_OF_DTYPE = operator.methodcaller("__reduce__")

_shown: dict[int, tuple[type, _Ask]] = {}


def shown_by(cls: type, ask: _Ask, *, is_open: bool = True) -> None:
    """Has instances of a class known by the parts that `ask` gives of one, a tuple, or the only one. Where the class
    `is_open`, one on which somebody has set an attribute is not proven.
    """

    def ask_bare(it: Any) -> Any:
        more, told = bare(it), ask(it)
        return told if not more else (*more, *(told if type(told) is tuple else (told,)))

    _shown[id(cls)] = cls, ask_bare if is_open and cls.__dictoffset__ else ask


def how_shown(cls: type) -> _Ask | None:
    """What is asked of an instance of a class; None where there is nothing to ask."""
    found = _shown.get(id(cls))
    if found is not None:
        return found[1]
    if issubclass(cls, np.dtype):
        return _OF_DTYPE
    known = _OF_LIBRARIES.get((cls.__module__, cls.__qualname__))
    return known if known is not None and is_pure(cls) else None


for _cls, _ask in _KNOWN.items():
    shown_by(_cls, _ask)
shown_by(type(jax.jit(len)), _of_jit, is_open=False)
