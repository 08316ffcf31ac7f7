"""The target of a static key on the devices of jax.jit, where an array that comes back unchanged decides on them.

An array that a call gives back unchanged is not an output of the target. If only such arrays are committed, the target
would not know where to run; and if the target is committed, jax.jit returns an uncommitted array as a committed one.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax

from partax import _core
from partax._jax.private import mesh_of_call
from partax._jax.programs import chosen, runs_compiled, used_inputs
from partax._jit.at_work import at_work, during


def placed_target(function: Callable[..., Any], keywords: dict[str, Any], takes_tuple: bool, shards: bool) -> Any:
    """Return the jax.jit of a function with an output node, on the devices of a jax.jit with the whole result."""
    choice = _Choice(function, keywords, takes_tuple, shards)

    @contextlib.contextmanager
    def working() -> Generator[None]:
        hides = not function.warns_of_donation  # type: ignore[attr-defined]
        program: _core.Program = function.program  # type: ignore[attr-defined]
        with during(at_work, program.running_call), warnings.catch_warnings() if hides else contextlib.nullcontext():
            if hides:
                warnings.filterwarnings("ignore", "Some donated buffers were not usable")
            yield

    return chosen(choice.plain, choice, working)


def default_device() -> Any:
    """Where an uncommitted program runs."""
    default: Any = jax.config.jax_default_device  # type: ignore[attr-defined]
    return jax.local_devices(backend=default)[0] if default is None or isinstance(default, str) else default


class _Choice:
    """A function that returns the jax.jit for a call: that of the function, or one that also returns some leaves."""

    def __init__(self, function: Callable[..., Any], keywords: dict[str, Any], takes_tuple: bool, shards: bool) -> None:
        self.plain = jax.jit(function, **keywords)
        self._function = function
        self._keywords = keywords
        self._takes_tuple = takes_tuple
        self._shards = shards  # until the first call, which sets the shardings
        self._others: dict[tuple[tuple[int, ...], int | None], Any] = {}

    def __call__(self, arguments: tuple[Any, ...]) -> Any:
        if self._shards:
            node = self.plain.trace(*arguments).out_info
            _, out_shardings, _ = _core.output_info(node)
            if out_shardings is not None:
                self._keywords = dict(self._keywords, out_shardings=_core.with_children(node, out_shardings))
                self.plain = jax.jit(self._function, **self._keywords)
            self._shards = False
        leaves: Sequence[Any] = arguments[0] if self._takes_tuple else arguments
        if not runs_compiled(leaves):
            return self.plain  # the program that it is called in decides
        # Of committed arrays, and of what an array is described by.
        shardings: list[Any] = [getattr(x, "sharding", None) if getattr(x, "committed", True) else None for x in leaves]
        has_mesh = mesh_of_call() is not None
        if jax.device_count() == 1 and not has_mesh and not any(shardings):
            return self.plain
        traced = self.plain.trace(*arguments)
        forwarded, out_shardings, _ = _core.output_info(traced.out_info)
        if not forwarded:
            return self.plain
        used, is_placed = used_inputs(traced)
        is_placed |= has_mesh or "in_shardings" in self._keywords or out_shardings is not None
        keeps_all = "keep_unused" in self._keywords
        is_placed |= any(at is not None and (uses or keeps_all) for at, uses in zip(shardings, used, strict=True))
        committed = [i for i in forwarded if shardings[i] is not None]
        # Where these are on different devices, they do not decide.
        decide = not is_placed and len({frozenset(shardings[i].device_set) for i in committed}) == 1
        uncommitted = [(i, leaves[i]) for i in forwarded if shardings[i] is None]
        here = {default_device()}  # where an uncommitted program runs
        elsewhere = [i for i, leaf in uncommitted if isinstance(leaf, jax.Array) and leaf.sharding.device_set != here]
        through = tuple([i for i, _ in uncommitted] if is_placed or decide else elsewhere)
        has_outputs = bool(through or traced.jaxpr.out_avals)
        decisive = committed[0] if decide and has_outputs else None
        if not through and decisive is None:
            return self.plain
        if (through, decisive) not in self._others:
            keywords: dict[str, Any] = dict(self._keywords)
            if out_shardings is not None:
                every = (*out_shardings, *[None] * len(through))
                keywords["out_shardings"] = _core.with_children(traced.out_info, every)
            function = _with_leaves(self._function, through, decisive, self._takes_tuple)
            self._others[through, decisive] = jax.jit(function, **keywords)
        return self._others[through, decisive]


def _with_leaves(
    function: Callable[..., Any], through: tuple[int, ...], decisive: int | None, takes_tuple: bool
) -> Callable[..., Any]:
    """Return the same traced function, which also returns the leaves `through` and uses `decisive`."""
    inner = jax.jit(function, inline=True)  # it has the same trace: jax keeps them by function

    @functools.wraps(function)
    def with_leaves(*arguments: Any) -> Any:
        leaves = arguments[0] if takes_tuple else arguments
        node = inner(*arguments)
        results = [*jax.tree.leaves(node), *(leaves[i] for i in through)]
        if decisive is not None:  # which costs nothing when it runs
            results[0], _ = jax.lax.optimization_barrier((results[0], leaves[decisive]))
        return _core.with_leaves_through(node, tuple(results), through)

    return with_leaves
