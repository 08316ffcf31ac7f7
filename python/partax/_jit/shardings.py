"""Shardings of a call's arrays, from prefixes of the user's own trees."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from partax import _core
from partax._jit.options import Options, is_traced_array
from partax._jit.parameters import CallShape, option_names, value_names
from partax._pytree.array_text import array_text


def is_sharding_leaf(prefix: Any) -> bool:
    """Whether a part of a prefix is one sharding, for all that stands there."""
    return prefix is None or isinstance(prefix, (Sharding, PartitionSpec))


def sharding_of(device: Any, backend: str | None, *shardings: Any) -> Sharding:
    """The sharding of jax's deprecated options `device` and `backend`, in the place of `shardings`. Warns of them."""
    if device is not None and backend is not None:
        raise ValueError(f"found both device={device!r} and backend={backend!r}, expected one of them")
    if shardings != (None,) * len(shardings):
        raise ValueError("found device or backend beside in_shardings or out_shardings, expected one of them")
    where = device if device is not None else jax.local_devices(backend=backend)[0]
    warnings.warn(
        "the options device and backend are deprecated, as they are of jax.jit: give in_shardings and out_shardings, "
        "jax.sharding.SingleDeviceSharding(device), or put the arguments there by jax.device_put",
        DeprecationWarning,
        stacklevel=3,
    )
    return SingleDeviceSharding(where)


class PrefixOfValue:
    """A prefix that is made from the value that it is for."""

    def of(self, value: Any) -> Any:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class NoEntry(PrefixOfValue):
    """What stands in `in_shardings` for an argument that the user gives no entry for, and messages do not count."""

    def of(self, value: Any) -> Any:
        return None


def prefix_for(prefix: Any, tree: Any) -> Any:
    """A prefix of a tree in which each `PrefixOfValue` has made its part. Where it is no prefix, the other parts are
    left, by which `broadcast_prefix` says so.
    """
    leaves, structure = jax.tree.flatten(
        prefix, is_leaf=lambda it: is_sharding_leaf(it) or isinstance(it, PrefixOfValue)
    )
    made = [isinstance(leaf, PrefixOfValue) for leaf in leaves]
    if not any(made):
        return prefix
    try:
        values = structure.flatten_up_to(tree)
    except ValueError:
        return structure.unflatten([None if is_made else leaf for is_made, leaf in zip(made, leaves, strict=True)])
    parts = zip(made, leaves, values, strict=True)
    return structure.unflatten([leaf.of(value) if is_made else leaf for is_made, leaf, value in parts])


def array_shardings(
    prefix: Any, tree: Any, option: str, root: str, is_traced: Callable[[Any], bool] = is_traced_array
) -> list[Any]:
    """The sharding for each traced leaf of `tree`, from a prefix of it; None where there is none."""
    pairs = _core.broadcast_prefix(prefix_for(prefix, tree), tree, is_sharding_leaf, option, root)
    return [sharding for leaf, sharding in pairs if is_traced(leaf)]


def _given(prefix: tuple[Any, ...], call: CallShape) -> list[Any]:
    """The parts of `in_shardings` for the values of a call, from the first."""
    parameters, left_out, num_extra, keywords, _ = call
    given = list(prefix)
    while len(given) > len(parameters.names) + num_extra + len(keywords) and isinstance(given[-1], NoEntry):
        given.pop()
    return [part for i, part in enumerate(given) if i not in left_out]  # a default that was left out is no argument


def leaf_in_shardings(options: Options, values: Sequence[Any]) -> list[Any]:
    """The explicit sharding of each input leaf of the call under way, or None."""
    prefix = options.in_shardings
    call = _core.call_shape()
    names, first = value_names(call), int(call[-1])  # where there is one, the callable comes first
    traces = [functools.partial(options.traces, own) for own in option_names(call)]
    per_value: list[Any] = [None] * len(values)
    if isinstance(prefix, tuple) and not is_sharding_leaf(prefix):
        given = _given(prefix, call)
        num_entries = sum(not isinstance(part, NoEntry) for part in prefix)
        has_entries = f"in_shardings has {num_entries} {'entry' if num_entries == 1 else 'entries'}"
        if len(given) > len(values) - first:
            every = value_names((call[0], (), *call[2:4], False))  # also those that a call leaves out
            takers = [name for name, part in zip_longest(every, prefix) if name and not isinstance(part, NoEntry)]
            raise ValueError(f"{has_entries}, expected at most one for each argument ({', '.join(takers)})")
        per_value[first : first + len(given)] = given
        for name, value, is_traced in list(zip(names, values, traces, strict=True))[first + len(given) :]:
            if array_shardings(None, value, "in_shardings", name, is_traced):
                raise ValueError(f"{has_entries} and none for the arrays of `{name}`; use None to leave it to jax")
    else:
        per_value[first:] = [prefix] * (len(values) - first)
    shardings: list[Any] = []
    for name, value, part, is_traced in zip(names, values, per_value, traces, strict=True):
        shardings += array_shardings(part, value, "in_shardings", name, is_traced)
    return shardings


def misplaced_leaf(
    options: Options, values: Sequence[Any], leaves: Sequence[Any], error: ValueError
) -> tuple[int, str] | None:
    """The first leaf of the call under way that `in_shardings` do not fit, and in what; None if all fit."""
    if options.in_shardings is None:
        return None
    shardings = leaf_in_shardings(options, values)
    for i, (leaf, sharding) in enumerate(zip(leaves, shardings, strict=True)):
        array = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)  # a Python number, which `trace` asks for
        if isinstance(sharding, Sharding) and not _fits(array, sharding):
            return i, (
                f"found {array_text(array)}, expected an array that can have the sharding {sharding} of in_shardings; "
                f"place it by `filter_shard`, or give in_shardings another one there. JAX says: {error}"
            )
    return None


def _fits(leaf: Any, sharding: Sharding) -> bool:
    if isinstance(sharding, NamedSharding) and len(sharding.spec) > leaf.ndim:
        return False
    try:
        sharding.shard_shape(leaf.shape)
    except ValueError:
        return False
    if isinstance(leaf, Tracer) or not isinstance(leaf, jax.Array) or not leaf.committed:
        return True
    return leaf.sharding.is_equivalent_to(sharding, leaf.ndim)


def leaf_out_shardings(options: Options, result: Any) -> tuple[Any, ...] | None:
    """The explicit sharding of each array of a result, or None if there are no out_shardings."""
    prefix = options.out_shardings
    if prefix is None:
        return None
    # Of an object that is changed in place, the result is a field of what the program returns.
    pairs = [(prefix, result)] if options.graph is None else list(zip(prefix, result, strict=True))
    own, value = pairs[0]
    if isinstance(own, (tuple, list)) and len(own) == 1 and not is_sharding_leaf(own) and is_traced_array(value):
        raise ValueError(
            f"`the result`: found {array_text(value)}, expected the structure of out_shardings, which has a "
            f"`{type(own).__name__}` with 1 child here; give its sharding without the `{type(own).__name__}`"
        )
    every = [array_shardings(part, value, "out_shardings", "the result") for part, value in pairs]
    return tuple(chain.from_iterable(every))
