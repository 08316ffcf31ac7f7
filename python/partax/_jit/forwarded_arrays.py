"""Arrays that a call returns unchanged, and the errors if one is deleted or donated."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._jax.private import runs_without_jit, under_trace
from partax._pytree.short_text import listed

_NAMES_ARRAYS = "names_arrays"
"""The attribute of an error whose text or notes have the paths."""


def to_device(value: Any) -> jax.Array:
    """A forwarded NumPy input as an uncommitted array. Called by the native wrapper."""
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
    first = _donation_of(leaves, donated, index)
    raise _lost_array(target, leaves, index, first, first is not None or (was_there and any(donated)))


def refuse_lost_in(node: _core.OutputNode, target: Any, leaves: tuple[Any, ...], donated: bytes) -> None:
    """The same by the result that the program has."""
    for i in sorted(_core.output_info(node)[0]):
        if not _is_concrete(leaves[i]):
            continue
        first = None if leaves[i].is_deleted() or under_trace() else _donation_of(leaves, donated, i)
        if first is not None or leaves[i].is_deleted():
            raise _lost_array(target, leaves, i, first, first is not None)


def _donation_of(leaves: tuple[Any, ...], donated: bytes, index: int) -> int | None:
    return next((i for i, leaf in enumerate(leaves) if donated[i : i + 1] == b"\1" and leaf is leaves[index]), None)


def _lost_array(target: Any, leaves: tuple[Any, ...], index: int, first: int | None, is_donated: bool) -> Exception:
    function = target.__wrapped__
    path = f"`{function.__signature__.names[index]}`"
    if is_donated:
        twice = "donate the same buffer twice in Execute()"
        used = "use a buffer that was previously donated in the same call to Execute()"
        place = path if first is None else f"{path}, first use: `{function.__signature__.names[first]}`"
        what = twice if index in function.to_donate else used
        error: Exception = jax.errors.JaxRuntimeError(f"INVALID_ARGUMENT: Attempt to {what} ({place})")
    else:
        error = RuntimeError(f"Array has been deleted with shape={jax.typeof(leaves[index]).str_short()}.")
        error.add_note(f"partax: it is {path}, which the function returns")
    vars(error)[_NAMES_ARRAYS] = True
    return error


def is_of_lost_arrays(error: BaseException) -> bool:
    """Return whether a RuntimeError or ValueError is about arrays that are deleted, or that a call donates and uses."""
    if _NAMES_ARRAYS in vars(error):
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
    gone = [path for path, leaf in zip(paths, leaves, strict=False) if _is_concrete(leaf) and leaf.is_deleted()]
    shared = [same for same in arrays_in_several_places(leaves) if any(donated[i] for i in same)]
    if gone:
        are, them = ("is", "it") if len(gone) == 1 else ("are", "them")
        error.add_note(
            f"partax: {listed(gone)} {are} deleted already, by an earlier call that donates {them} or by `delete()`"
        )
    elif shared:
        error.add_note(
            f"partax: {listed([paths[i] for i in shared[0]])} are one array, and the call donates "
            f"{listed([paths[i] for i in shared[0] if donated[i]])}: pass a copy (`jnp.copy`) in one of the places, or "
            "do not donate it"
        )


def _is_concrete(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)


def arrays_in_several_places(leaves: Sequence[Any]) -> list[list[int]]:
    """The indices of leaves that are one array for XLA, those of each such array together."""
    places: dict[Any, list[int]] = {}
    for i, leaf in enumerate(leaves):
        if _is_concrete(leaf) and not leaf.is_deleted():
            try:
                pointer = leaf.addressable_data(0).unsafe_buffer_pointer()
            except Exception:  # of keys, and of backends that do not tell
                pointer = 0
            places.setdefault(pointer or ("id", id(leaf)), []).append(i)
    return [same for same in places.values() if len(same) > 1]
