"""Classes whose instances tell what they consist of only if they are asked by a function of ours."""

import functools
import operator
import types
from collections.abc import Callable
from typing import Any

import jax

from partax._compat.jax_private import jit_parts

_Ask = Callable[[Any], Any]

_BUILT_IN: tuple[tuple[Any, _Ask, tuple[str, ...]], ...] = (
    (set, lambda it: (frozenset(it),), ("",)),
    (bytearray, lambda it: (bytes(it),), ("",)),
    (types.MappingProxyType, lambda it: (dict(it),), ("",)),
    (property, operator.attrgetter("fget", "fset", "fdel"), (".fget", ".fset", ".fdel")),
    (staticmethod, lambda it: (it.__func__,), (".__func__",)),
    (classmethod, lambda it: (it.__func__,), (".__func__",)),
    (functools.cached_property, lambda it: (it.func,), (".func",)),
    (type(jax.jit(len)), jit_parts, (".__wrapped__", ".<options>")),
)

ASKED_PARTS: dict[int, tuple[tuple[type, _Ask], tuple[str, ...]]] = {}
"""By the id of a class: it and the function, and where each part is."""


def read_by(cls: type, ask: _Ask, segments: tuple[str, ...]) -> None:
    """Has the parts of instances of a class read by a function that gives them as a tuple.

    Args:
      cls: the class.
      ask: the function of an instance.
      segments: where each part is, such as `.fget`; `.<options>` for a tuple of which most is constant.
    """
    ASKED_PARTS[id(cls)] = (cls, ask), segments


for _known in _BUILT_IN:
    read_by(*_known)
