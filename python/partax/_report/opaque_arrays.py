"""Arrays inside of static objects: constants of the program, whatever becomes of them."""

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np

from partax._guards.installed import is_installed
from partax._guards.user_objects import read
from partax._pytree.call_site import call_site
from partax._pytree.key_details import FIELD, VALUE, Detail

_MAX_DEPTH = 3
_MAX_ITEMS = 100

_warned: set[tuple[str, str, str]] = set()


def warn_of_arrays(described: Iterable[Detail]) -> None:
    """Warns once of each place where an object of a user's class, known by identity, holds an array.

    Args:
      described: the details of a call that is traced.
    """
    for path, kind, value in described:
        cls = type(value)
        if kind not in (VALUE, FIELD) or cls.__eq__ is not object.__eq__ or is_installed(cls.__module__):
            continue
        place = next(_arrays(path, value, 0), None)
        key = (cls.__module__, cls.__qualname__, place or "")
        if place is None or key in _warned:
            continue
        _warned.add(key)
        warnings.warn_explicit(
            f"`{place}` is an array in a static `{cls.__qualname__}`: it is a constant of the program, and another "
            f"array there later is not seen. Make `{cls.__qualname__}` a pytree, as an Equinox module or with "
            "jax.tree_util.register_dataclass, or pass the array as an argument",
            UserWarning,
            *call_site(),
        )


def _arrays(path: str, value: Any, depth: int) -> Iterator[str]:
    if issubclass(type(value), (jax.Array, np.ndarray)):
        yield path
    elif depth < _MAX_DEPTH:
        for segment, item in _items(value, depth):
            yield from _arrays(path + segment, item, depth + 1)


def _items(value: Any, depth: int) -> list[tuple[str, Any]]:
    cls = type(value)
    if cls is dict:
        return [(f"[{key!r}]", item) for key, item in list(value.items())[:_MAX_ITEMS] if isinstance(key, (str, int))]
    if cls in (list, tuple):
        return [(f"[{i}]", item) for i, item in enumerate(value[:_MAX_ITEMS])]
    if depth > 0 and is_installed(cls.__module__):
        return []
    attributes = read(value, "__dict__")
    return [(f".{name}", item) for name, item in attributes.copy().items()] if type(attributes) is dict else []
