"""What values of some classes show, where `==` hides part of it or there is nothing else to look at."""

import contextlib
import functools
import operator
import re
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from partax import _core
from partax._guards.bytecode import leads_anywhere
from partax._jax.private import jit_parts

_Ask = Callable[[Any], Any]


def _treedef_parts(treedef: Any) -> tuple[Any, ...]:
    return treedef.node_data(), *treedef.children()


def _method_called(caller: Any) -> tuple[Any, ...]:
    """The name of the method and its arguments; jax's own callers, of classes that are registered, have no keywords."""
    made_by, parts = caller.__reduce__()
    if made_by is not operator.methodcaller or parts[0].startswith("__") or leads_anywhere(parts[0]):
        raise TypeError("a caller of a method with keywords, or of one that may lead to anything")
    return parts


# Attributes that are of the function inside of a wrapper, where they are looked at, or are asked for anyway.
_OF_WRAPPERS = {
    *functools.WRAPPER_ASSIGNMENTS,
    *("__wrapped__", "__annotations__", "_fun", "_jit_info", "_options"),  # Python 3.14 copies them by another name
    *("gen", "func", "args", "kwds", "lock"),
}


def set_on(it: Any) -> tuple[Any, ...]:
    """The attributes that somebody has set on an object."""
    attributes = it.__dict__
    if attributes.keys() <= _OF_WRAPPERS:
        return ()
    return tuple(item for item in attributes.items() if item[0] not in _OF_WRAPPERS)


_KNOWN: dict[Any, tuple[_Ask, tuple[str, ...]]] = {
    range: (operator.attrgetter("start", "stop", "step"), (".start", ".stop", ".step")),
    slice: (operator.attrgetter("start", "stop", "step"), (".start", ".stop", ".step")),
    bytearray: (bytes, ("",)),
    re.Pattern: (operator.attrgetter("pattern", "flags"), (".pattern", ".flags")),
    types.UnionType: (operator.attrgetter("__args__"), ()),
    types.GenericAlias: (operator.attrgetter("__origin__", "__args__"), (".__origin__", ".__args__")),
    property: (operator.attrgetter("fget", "fset", "fdel"), (".fget", ".fset", ".fdel")),
    staticmethod: (operator.attrgetter("__func__"), (".__func__",)),
    classmethod: (operator.attrgetter("__func__"), (".__func__",)),
    functools.cached_property: (operator.attrgetter("func"), (".func",)),
    operator.methodcaller: (_method_called, ()),
    contextlib._GeneratorContextManager: (operator.attrgetter("func", "args", "kwds"), (".func", ".args", ".kwds")),
    jax.tree_util.PyTreeDef: (_treedef_parts, ()),
    _core.Static: (_core.roots_of, ()),
    _core.FlatSpec: (_core.roots_of, ()),
    type(jax.jit(len)): (jit_parts, (".__wrapped__", ".<options>")),
}
# Of libraries, by the module and the name of their class: nothing is imported here.
_OF_LIBRARIES: dict[tuple[str, str], tuple[_Ask, tuple[str, ...]]] = {
    ("flax.core.frozen_dict", "FrozenDict"): (operator.attrgetter("_dict"), ("",)),
    ("flax.typing", "HashableMapping"): (operator.attrgetter("_mapping"), ("",)),
    ("jax._src.source_info_util", "ExtendNameStackContextManager"): (operator.attrgetter("name"), (".name",)),
    ("jaxtyping._array_types", "_MetaAbstractArray"): (operator.attrgetter("dtype", "array_type", "dim_str"), ()),
}
_DTYPE: tuple[_Ask, tuple[str, ...]] = operator.methodcaller("__reduce__"), ()

_shown: dict[int, tuple[type, _Ask, tuple[str, ...]]] = {}


def shown_by(cls: type, ask: _Ask, segments: tuple[str, ...], *, is_open: bool = True) -> None:
    """Has instances of a class known by what a function tells of them.

    Args:
      cls: the class.
      ask: gives the parts of an instance as a tuple, or the only one.
      segments: where each part is, such as `.fget`; `.<options>` for a tuple of which most is constant. Empty where
        there are as many as there are.
      is_open: whether attributes that somebody may set on instances count too.
    """
    _shown[id(cls)] = cls, ask, segments
    if not is_open or cls.__dictoffset__ == 0:
        return

    def ask_both(it: Any) -> tuple[Any, ...]:
        parts = ask(it)
        return *(parts if type(parts) is tuple else (parts,)), set_on(it)

    _shown[id(cls)] = cls, ask_both, (*segments, ".<options>") if segments else ()


def how_shown(cls: type) -> tuple[_Ask, tuple[str, ...]] | None:
    """What is asked of an instance of a class, and where the parts are; None where there is nothing to ask."""
    found = _shown.get(id(cls))
    if found is not None:
        return found[1:]
    return _DTYPE if issubclass(cls, np.dtype) else _OF_LIBRARIES.get((cls.__module__, cls.__qualname__))


for _cls, _how in _KNOWN.items():
    shown_by(_cls, *_how)
