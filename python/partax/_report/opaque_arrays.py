"""Arrays inside of static objects: constants of the program, whatever becomes of them."""

import warnings
from collections.abc import Iterable

from partax._guards.installed import is_installed
from partax._pytree.call_site import call_site
from partax._pytree.key_details import FIELD, VALUE, Detail
from partax._report.captured_arrays import arrays_in

_DEEPEST = 3

_warned: set[tuple[str, str, str]] = set()


def warn_of_arrays(described: Iterable[Detail]) -> None:
    """Warns once of each place in a call where an object of a user's class, known by identity, holds an array."""
    for path, kind, value in described:
        cls = type(value)
        if kind not in (VALUE, FIELD) or cls.__eq__ is not object.__eq__ or is_installed(cls.__module__):
            continue
        place = next((place for place, _ in arrays_in(path, value, _DEEPEST, libraries=False)), None)
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
