"""Says which arguments are to blame where a call gets arrays that are deleted, or gives one away that it also uses."""

from collections.abc import Sequence
from typing import Any

import jax
from jax.core import Tracer

_SHOWN = 5
"""So many paths are named."""


def is_of_lost_arrays(error: BaseException) -> bool:
    """Whether jax has raised this for arrays that are deleted, or that one call donates and uses."""
    if not isinstance(error, (RuntimeError, ValueError)):
        return False
    text = str(error)
    names_none = "(`" not in text and not any(note.startswith("partax:") for note in getattr(error, "__notes__", ()))
    return names_none and ("deleted" in text or ("ttempt to " in text and "donate" in text))


def name_lost_arrays(
    error: BaseException, paths: Sequence[str], leaves: Sequence[Any], donated: Sequence[bool]
) -> None:
    """Notes at an error for which `is_of_lost_arrays` is true which of the call's array leaves it is about."""
    arrays = [
        (i, leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
    ]
    gone = [paths[i] for i, leaf in arrays if leaf.is_deleted()]
    if gone:
        are, them = ("is", "it") if len(gone) == 1 else ("are", "them")
        error.add_note(
            f"partax: {_listed(gone)} {are} deleted already, by an earlier call that donates {them} or by `delete()`"
        )
        return
    places: dict[Any, list[int]] = {}
    for i, leaf in arrays:
        places.setdefault(_buffer_of(leaf), []).append(i)
    for same in places.values():
        given_away = [paths[i] for i in same if donated[i]]
        if len(same) < 2 or not given_away:
            continue
        whole = "all of them" if len(same) > 2 else "both"
        where = whole if len(given_away) == len(same) else _listed(given_away)
        error.add_note(
            f"partax: {_listed([paths[i] for i in same])} are one array, and the call donates {where}: pass a copy "
            "(`jnp.copy`) in one of the places, or do not donate it"
        )


def _buffer_of(array: jax.Array) -> Any:
    """What two arrays have in common that are one for XLA."""
    try:
        pointer = array.addressable_data(0).unsafe_buffer_pointer()
    except Exception:  # of keys, and of backends that do not tell
        pointer = 0
    return pointer or ("id", id(array))


def _listed(paths: list[str]) -> str:
    """A few paths in words."""
    shown = [f"`{path}`" for path in paths[:_SHOWN]]
    if len(paths) > _SHOWN:
        shown.append(f"{len(paths) - _SHOWN:,} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
