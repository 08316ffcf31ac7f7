"""Arrays that a call returns unchanged, and the errors if one is deleted or donated."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._jax.private import runs_without_jit, under_trace

_USED = "use a buffer that was previously donated in the same call to Execute()"
_TWICE = "donate the same buffer twice in Execute()"


def to_device(value: Any) -> jax.Array:
    """A forwarded NumPy input as an uncommitted array: where jax.jit would commit it, it goes through XLA. Called by
    the native wrapper.
    """
    if isinstance(value, (int, float, complex)) and not isinstance(value, np.generic):
        return jax.numpy.asarray(value)  # of a weak type
    return jax.numpy.asarray(np.array(value))  # a copy: on the CPU jax would share the user's memory, which may change


def refuse_lost_arrays(
    target: Any, leaves: tuple[Any, ...], donated: bytes, index: int | None, was_there: bool
) -> None:
    """Raise if a call returns an array that is deleted or donated. Called by the native wrapper: before the program
    runs, or after that for the leaf at `index`, which is deleted now; `was_there` says that it was not before.
    """
    if runs_without_jit():
        return
    if index is None:
        refuse_lost_in(target.trace(*leaves).out_info, target, leaves, donated)
        return
    is_donated = (was_there and any(donated)) or _donation_of(leaves, donated, index) is not None
    raise _donation_error(target, leaves, donated, index) if is_donated else _deleted(target, leaves, index)


def refuse_lost_in(node: _core.OutputNode, target: Any, leaves: tuple[Any, ...], donated: bytes) -> None:
    """The same by the result that the program has."""
    for i in sorted(_core.output_info(node)[0]):
        if isinstance(leaves[i], Tracer) or not isinstance(leaves[i], jax.Array):
            continue
        if leaves[i].is_deleted():
            raise _deleted(target, leaves, i)
        if _donation_of(leaves, donated, i) is not None and not under_trace():
            raise _donation_error(target, leaves, donated, i)


def _donation_of(leaves: tuple[Any, ...], donated: bytes, index: int) -> int | None:
    """The donated leaf that is the same array."""
    return next((i for i, leaf in enumerate(leaves) if donated[i : i + 1] == b"\1" and leaf is leaves[index]), None)


def _path(target: Any, index: int) -> str:
    return target.__wrapped__.__signature__.names[index]


def _deleted(target: Any, leaves: tuple[Any, ...], index: int) -> Exception:
    error = RuntimeError(f"Array has been deleted with shape={jax.typeof(leaves[index]).str_short()}.")
    error.add_note(f"partax: it is `{_path(target, index)}`, which the function returns")
    vars(error)[_NAMES_ARRAYS] = True
    return error


def _donation_error(target: Any, leaves: tuple[Any, ...], donated: bytes, index: int) -> Exception:
    first = _donation_of(leaves, donated, index)
    places = f"`{_path(target, index)}`" + (f", first use: `{_path(target, first)}`" if first is not None else "")
    if index in target.__wrapped__.to_donate:
        what, example = _TWICE, "f(donate(a), donate(a))"
    else:
        what, example = _USED, "f(donate(a), a)"
    error = jax.errors.JaxRuntimeError(
        f"INVALID_ARGUMENT: Attempt to {what} ({places}). Toy example for this bug: `{example}`."
    )
    vars(error)[_NAMES_ARRAYS] = True
    return error


_SHOWN = 5  # paths that are named

_NAMES_ARRAYS = "names_arrays"
"""The attribute of an error whose text or notes have the paths."""


def is_of_lost_arrays(error: BaseException) -> bool:
    """Return whether JAX has raised this for arrays that are deleted, or that one call donates and uses."""
    if not isinstance(error, (RuntimeError, ValueError)) or _NAMES_ARRAYS in vars(error):
        return False
    # jax and XLA have no classes or codes for these two: the types are those of errors of callbacks and of shardings.
    # What is deleted now does not tell either, as a program that has failed has donated its arrays.
    text = str(error)
    return "deleted" in text or ("ttempt to " in text and "donate" in text)


def name_lost_arrays(
    error: BaseException, paths: Sequence[str], leaves: Sequence[Any], donated: Sequence[bool]
) -> None:
    """Notes at an error for which `is_of_lost_arrays` is true which of the call's array leaves it is about."""
    vars(error)[_NAMES_ARRAYS] = True
    arrays = [
        (i, leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
    ]
    gone = [paths[i] for i, leaf in arrays if leaf.is_deleted()]
    if gone:
        are, them = ("is", "it") if len(gone) == 1 else ("are", "them")
        error.add_note(
            f"partax: {listed(gone)} {are} deleted already, by an earlier call that donates {them} or by `delete()`"
        )
        return
    shared = [same for same in arrays_in_several_places(leaves) if any(donated[i] for i in same)]
    if not shared:
        return
    same, *more_leaves = shared
    donated_paths = [paths[i] for i in same if donated[i]]
    whole = "all of them" if len(same) > 2 else "both"
    where = whole if len(donated_paths) == len(same) else listed(donated_paths)
    num_more = f"{len(more_leaves):,} more arrays" if len(more_leaves) > 1 else "one more array"
    error.add_note(
        f"partax: {listed([paths[i] for i in same])} are one array, and the call donates {where}: pass a copy "
        f"(`jnp.copy`) in one of the places, or do not donate it{f'; so it is with {num_more}' if more_leaves else ''}"
    )


def arrays_in_several_places(leaves: Sequence[Any]) -> list[list[int]]:
    """The indices of leaves that are one array for XLA, those of each such array together."""
    places: dict[Any, list[int]] = {}
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer) and not leaf.is_deleted():
            places.setdefault(_buffer_of(leaf), []).append(i)
    return [same for same in places.values() if len(same) > 1]


def _buffer_of(array: jax.Array) -> Any:
    """Return a value that two arrays share if they are one for XLA."""
    try:
        pointer = array.addressable_data(0).unsafe_buffer_pointer()
    except Exception:  # of keys, and of backends that do not tell
        pointer = 0
    return pointer or ("id", id(array))


def listed(paths: Sequence[str]) -> str:
    """Paths in a sentence, the first few of many."""
    displayed = [f"`{path}`" for path in paths[:_SHOWN]]
    if len(paths) > _SHOWN:
        displayed.append(f"{len(paths) - _SHOWN:,} more")
    return displayed[0] if len(displayed) == 1 else f"{', '.join(displayed[:-1])} and {displayed[-1]}"
