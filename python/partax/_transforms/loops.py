"""Loops that carry any tree: `jax.lax`'s own, around which the static parts pass."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from partax import _core
from partax._transforms.carry import (
    Arrays,
    Carry,
    Flat,
    array_type,
    first_difference,
    in_place_of,
    run_with_promoted_carry,
)
from partax._transforms.objects import Objects

_Carry = TypeVar("_Carry")
_X = TypeVar("_X")
_Y = TypeVar("_Y")


def filter_scan(
    f: Callable[[_Carry, _X], tuple[_Carry, _Y]],
    init: _Carry,
    xs: _X | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[_Carry, _Y]:
    """Loop over the leading axis of arrays. Same as `jax.lax.scan`, for any pytree: arrays are carried, scanned and
    stacked, everything else is static.

    Example:
      >>> def step(carry, x):
      ...     carry = {**carry, "total": carry["total"] + x}
      ...     return carry, carry["total"]
      >>> partax.filter_scan(step, {"total": 0.0, "name": "sum"}, jnp.arange(4.0))
      ({'name': 'sum', 'total': Array(6., dtype=float32)}, Array([0., 1., 3., 6.], dtype=float32))

    The static part of the carry may not change. Python numbers that a step changes or makes arrays become arrays, and
    weak types become the types that a step returns; all other dtypes, and all shapes, stay. `f` is traced once; if
    `init` has Python numbers or weak types, also before, until no type changes. Outside of jit, each call is compiled
    again.

    Args:
      f: A function `(carry, x) -> (carry, y)`. It is differentiated through what it captures or, as a module, holds.
      init: The carry of the first step.
      xs: A tree: each step gets one entry of each array's leading axis, and the static part unchanged. Default: None.
      length: The number of steps; needed if `xs` has no array. Default: the length of the leading axis.
      reverse: Same as in `jax.lax.scan`. Default: False.
      unroll: Same as in `jax.lax.scan`. Default: 1.

    Returns:
      The last carry, and the `y`s of the steps: arrays stacked along a new leading axis, everything else once.

    Raises:
      TypeError: `f` does not return a pair; or the carry that it returns has another static part, dtype or shape, by
        its path with both: `carry.layers[0].rate`.
      ValueError: The arrays of `xs` have no leading axis of one length.

    See Also:
      The guide "Loops, branches and layers".
    """
    objects = Objects("filter_scan", [("carry", init), ("xs", xs)])
    return scan(objects.refuse_changes(f), init, xs, length=length, reverse=reverse, unroll=unroll)


def scan(
    f: Callable[[Any, Any], Any],
    init: Any,
    xs: Any,
    *,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    around: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda body: body,
    **words: str,
) -> tuple[Any, Any]:
    """`filter_scan` with a transformation of the step, of arrays; `words` as in `run_with_promoted_carry`."""
    entries, xs_spec = _scanned(xs, length)

    def run(carry: Carry) -> tuple[Any, Any]:
        specs: list[_core.TreeSpec] = []

        def body(arrays: Arrays, x: Arrays) -> tuple[Arrays, list[Any]]:
            out: Any = f(carry.rebuild(arrays), xs_spec.rebuild(x.leaves))
            if not isinstance(out, (tuple, list)) or len(out) != 2:
                raise TypeError(f"found a `{type(out).__name__}` as the result of a step, expected (carry, y)")
            y, spec = _core.flatten(out[1], "ys")
            specs.append(spec)
            return carry.arrays_after(out[0], arrays), y

        on_arrays = around(in_place_of(f, body))
        last, stacked = jax.lax.scan(on_arrays, carry.arrays, entries, length, reverse, unroll)
        return carry.rebuild(last), _common_spec(specs, "ys").rebuild(stacked)

    return run_with_promoted_carry(init, run, **words)


def filter_while_loop(
    cond_fun: Callable[[_Carry], Any], body_fun: Callable[[_Carry], _Carry], init_val: _Carry
) -> _Carry:
    """Loop while a condition is true. Same as `jax.lax.while_loop`, for any pytree: arrays are carried.

    Example:
      >>> double = lambda carry: {**carry, "x": carry["x"] * 2}
      >>> partax.filter_while_loop(lambda carry: carry["x"] < 100, double, {"x": jnp.int32(3), "name": "a"})
      {'name': 'a', 'x': Array(192, dtype=int32)}

    Args:
      cond_fun: A function of the carry that returns a bool; the loop ends when it is False.
      body_fun: A function `carry -> carry`.
      init_val: The first carry, which changes as in `filter_scan`.

    Returns:
      The last carry.

    Raises:
      TypeError: Same as in `filter_scan`.

    See Also:
      The guide "Loops, branches and layers".
    """
    objects = Objects("filter_while_loop", [("carry", init_val)])
    condition, step = objects.refuse_changes(cond_fun), objects.refuse_changes(body_fun)

    def run(carry: Carry) -> Any:
        def goes_on(arrays: Arrays) -> Any:
            return condition(carry.rebuild(arrays))

        def body(arrays: Arrays) -> Arrays:
            return carry.arrays_after(step(carry.rebuild(arrays)), arrays)

        functions = in_place_of(cond_fun, goes_on), in_place_of(body_fun, body)
        return carry.rebuild(jax.lax.while_loop(*functions, carry.arrays))

    return run_with_promoted_carry(init_val, run)


def filter_fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, _Carry], _Carry],
    init_val: _Carry,
    *,
    unroll: int | bool | None = None,
) -> _Carry:
    """Loop over a range of indices. Same as `jax.lax.fori_loop`, for any pytree: arrays are carried.

    Example:
      >>> add = lambda i, carry: {**carry, "x": carry["x"] + i}
      >>> partax.filter_fori_loop(0, 5, add, {"x": jnp.int32(0), "name": "a"})
      {'name': 'a', 'x': Array(10, dtype=int32)}

    Args:
      lower: The first index.
      upper: The index after the last. If both are Python numbers, the loop can be differentiated in reverse.
      body_fun: A function `(index, carry) -> carry`.
      init_val: The first carry, which changes as in `filter_scan`.
      unroll: Same as in `jax.lax.fori_loop`. Default: None.

    Returns:
      The last carry.

    Raises:
      TypeError: Same as in `filter_scan`.

    See Also:
      The guide "Loops, branches and layers".
    """
    step = Objects("filter_fori_loop", [("index", lower), ("carry", init_val)]).refuse_changes(body_fun)

    def run(carry: Carry) -> Any:
        def body(index: Any, arrays: Arrays) -> Arrays:
            return carry.arrays_after(step(index, carry.rebuild(arrays)), arrays)

        on_arrays = in_place_of(body_fun, body)
        return carry.rebuild(jax.lax.fori_loop(lower, upper, on_arrays, carry.arrays, unroll=unroll))

    return run_with_promoted_carry(init_val, run)


def filter_map(f: Callable[[_X], _Y], xs: _X, *, batch_size: int | None = None) -> _Y:
    """Call a function for each entry of the leading axis of arrays. Same as `jax.lax.map`, for any pytree.

    Example:
      >>> norm = lambda tree: {"norm": jnp.sum(tree["x"] ** 2), "name": tree["name"]}
      >>> partax.filter_map(norm, {"x": jnp.array([[3.0, 4.0], [0.0, 2.0]]), "name": "a"})
      {'name': 'a', 'norm': Array([25.,  4.], dtype=float32)}

    Args:
      f: A function of a tree like `xs`, whose arrays are without their leading axis.
      xs: Any tree; `f` gets its static part unchanged.
      batch_size: The number of entries that are computed at once. Same as in `jax.lax.map`. Default: None, for one.

    Returns:
      The results: arrays stacked along a new leading axis, everything else once, from the trace of `f`.

    Raises:
      ValueError: The arrays of `xs` have no leading axis of one length.

    See Also:
      The guide "Loops, branches and layers".
    """
    function = Objects("filter_map", [("xs", xs)]).refuse_changes(f)
    entries, xs_spec = _scanned(xs, None)
    specs: list[_core.TreeSpec] = []

    def body(x: Arrays) -> list[Any]:
        leaves, spec = _core.flatten(function(xs_spec.rebuild(x.leaves)), "result")
        specs.append(spec)
        return leaves

    mapped = jax.lax.map(in_place_of(f, body), entries, batch_size=batch_size)
    return _common_spec(specs, "result").rebuild(mapped)


def _scanned(xs: Any, length: int | None) -> tuple[Arrays, _core.TreeSpec]:
    """The arrays to be scanned, which have one length, and their static part."""
    leaves, spec = _core.flatten(xs, "xs")
    check_leading_axis(leaves, spec, length)
    if not leaves and length is None:
        raise ValueError("`xs`: found no array, expected one or more, or the number of steps as `length`")
    return Arrays.of(leaves, spec, "xs"), spec


def check_leading_axis(
    leaves: Sequence[Any], spec: _core.TreeSpec, length: int | None = None, whose: str = "`length` says"
) -> None:
    """Raise a ValueError unless arrays have a leading axis of one length: `length`, else that of the first."""
    shapes = [np.shape(leaf) for leaf in leaves]
    for i, shape in enumerate(shapes):
        if not shape or shape[0] != (shapes[0][0] if length is None else length):
            paths = spec.dynamic_paths()
            message_start = f"`{paths[i]}`: found {array_type(leaves[i]).text}, expected "
            if not shape:
                raise ValueError(f"{message_start}an array with a leading axis")
            wanted = f"{length}, as {whose}" if length is not None else f"{shapes[0][0]}, as `{paths[0]}` has"
            raise ValueError(f"{message_start}a leading axis of length {wanted}")


def _common_spec(specs: Sequence[_core.TreeSpec], root: str) -> _core.TreeSpec:
    """Return the static part of each step's result, which can differ only if JAX does not compile the loop."""
    first, *rest = [Flat(spec, [array_type(False)] * spec.num_dynamic) for spec in specs]
    for flat in rest:
        difference = None if flat.spec == first.spec else first_difference(first, flat, root)
        if difference is not None:
            raise TypeError(
                f"`{difference.path}`: {difference.first} of one step, {difference.second} of another"
                f"{difference.note}; what is not an array must be the same in each"
            )
    return specs[-1]
