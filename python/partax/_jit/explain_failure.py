"""What a call that fails before its trace tells the user: the path of the argument that is to blame."""

from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._jit.forwarded_arrays import is_of_lost_arrays, name_lost_arrays
from partax._jit.options import Options
from partax._jit.parameters import option_names
from partax._jit.runtime_errors import as_equinox_raises, raised_at_run_time
from partax._jit.shardings import misplaced_leaf
from partax._pytree.paths import leaf_owners, leaf_paths


def explain_failure(
    error: BaseException, options: Options, values: tuple[Any, ...], traced: bool, in_body: bool
) -> BaseException:
    """The exception of a call that has failed, or one with the path of an argument. Called by the native wrapper.

    `traced` says whether the call has traced its function, `in_body` whether that has raised.
    """
    if not isinstance(error, TypeError) and not in_body and raised_at_run_time(error):
        return as_equinox_raises(error)
    if not in_body and is_of_lost_arrays(error):
        described, leaves = _core.describe_call()
        call = _core.call_shape()
        given_away = options.donated_values(option_names(call), call[-1])
        donated = [owner in given_away for owner in leaf_owners(described)[: len(leaves)]]
        name_lost_arrays(error, leaf_paths(described), leaves, donated)
        return error
    if isinstance(error, RuntimeError):
        return error
    kind = ValueError if isinstance(error, ValueError) else TypeError
    if (in_body or options.in_shardings is None) if kind is ValueError else traced:
        return error  # no argument is to blame, and none is read again, which may run code of the user's
    described, leaves = _core.describe_call()
    if isinstance(error, jax.errors.UnexpectedTracerError):
        paths = leaf_paths(described)
        tracers = [f"`{paths[i]}`" for i, leaf in enumerate(leaves) if isinstance(leaf, Tracer)]
        error.add_note(f"partax: the call had a tracer at {' '.join(tracers)}")
        return error
    found = misplaced_leaf(options, values, leaves, error) if isinstance(error, ValueError) else _untraceable(leaves)
    if found is None:
        return error
    index, text = found
    explained = kind(f"`{leaf_paths(described)[index]}`: {text}")
    explained.__cause__ = error
    return explained


def _untraceable(leaves: tuple[Any, ...]) -> tuple[int, str] | None:
    """The first NumPy array that jax cannot trace."""
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind in "OSUmM":
            return i, (
                f"found a NumPy array of dtype {leaf.dtype}, expected numbers or booleans, which jax can trace; "
                "convert it, or pass it as a tuple"
            )
    return None
