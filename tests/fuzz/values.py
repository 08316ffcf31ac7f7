"""Static values from a fuzzer's bytes: those with a meaning, and those that break the rules."""

import functools
import gc
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fuzz.source import Broke, Source
from partax import _core
from trees import Colour, Config, Pair, add_one, double

FLOATS = [0.0, -0.0, 1.0, 2.5, float("inf"), float("nan"), -float("nan"), 5e-324]
FUNCTIONS = [double, len, jnp.tanh, int, add_one]
TEXTS = ["", "a", "1", "True", "\u00e9", "\ud800", "\0", "a" * 100]
SCALARS = [np.int64, np.int32, np.uint8, np.float32, np.float64, np.bool_]
ARRAYS = [jnp.ones(2), np.ones(2), jnp.zeros(()), np.zeros((0, 3), np.int8)]
MAX_DEPTH = 4
HARMLESS = 6  # an `Evil` that does nothing


def make_closure(value: Any) -> Callable[[Any], Any]:
    def closure(x: Any) -> Any:
        return x, value

    return closure


class NoHash:
    """Can be compared, not hashed."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoHash)

    __hash__ = None  # type: ignore[assignment]


class World:
    """What one input has built: hostile objects reach into it."""

    def __init__(self) -> None:
        self.containers: list[Any] = []
        self.root: Any = None
        self.hostile = False
        self.entered = 0

    def disturb(self, how: int) -> None:
        """Does to the containers what user code may do at any moment."""
        self.entered += 1
        if self.entered > 20:
            return
        match how % 5:
            case 0:
                for container in self.containers:
                    container.clear()
            case 1:
                for container in self.containers:
                    if isinstance(container, list):
                        container.extend([1] * 9)
                    elif isinstance(container, dict):
                        container.update({str(i): i for i in range(9)})
                    elif isinstance(container, set):
                        container.update(range(9))
            case 2:
                gc.collect(0)
            case 3:
                _core.flatten(self.root)
            case 4:
                for container in self.containers:
                    if isinstance(container, list) and container:
                        container[0] = None
                    elif isinstance(container, dict) and container:
                        container.pop(next(iter(container)))


class Evil:
    """Does something when it is hashed or compared."""

    def __init__(self, world: World, how: int) -> None:
        self.world, self.how = world, how

    def _act(self, answer: Any, when: int) -> Any:
        how = self.how // 2
        if self.how % 2 == when:
            if how == 0:
                raise Broke
            if how == 1:
                return np.array([True, False])
            if how == 2:
                return NotImplemented
            if how > 3:
                self.world.disturb(how)
        return answer

    def __eq__(self, other: object) -> Any:
        return self._act(type(other) is Evil, 0)

    def __hash__(self) -> int:
        return self._act(7, 1)


def hashable(source: Source, world: World, depth: int) -> Any:
    """A value that can be in a set."""
    kinds = 10 if depth >= MAX_DEPTH else 16
    match source.below(kinds):
        case 0:
            return source.below(4) - 1
        case 1:
            return source.yes()
        case 2:
            return source.pick(FLOATS)
        case 3:
            return struct.unpack("<d", source.take(8))[0]
        case 4:
            return complex(source.pick(FLOATS), source.pick(FLOATS))
        case 5:
            return source.pick(TEXTS)
        case 6:
            return None if source.yes() else source.pick([b"", b"a", ..., 10**30, -(2**63)])
        case 7:
            return source.pick(list(Colour))
        case 8:
            return source.pick(FUNCTIONS)
        case 9:
            return source.pick(SCALARS)(source.below(3))
        case 10 | 11:
            return tuple(hashable(source, world, depth + 1) for _ in range(source.below(4)))
        case 12:
            return Pair(hashable(source, world, depth + 1), hashable(source, world, depth + 1))
        case 13:
            return Config(hashable(source, world, depth + 1), hashable(source, world, depth + 1))
        case _:
            return frozenset(hashable(source, world, depth + 1) for _ in range(source.below(4)))


def static(source: Source, world: World, depth: int = 0) -> Any:
    """Any value that can be aux data, and some that cannot."""
    inner: Callable[[], Any] = lambda: static(source, world, depth + 1)
    if depth >= MAX_DEPTH:
        return hashable(source, world, depth)
    match source.below(16):
        case 0 | 1 | 2:
            return hashable(source, world, depth)
        case 3:
            return remembered(world, [inner() for _ in range(source.below(4))])
        case 4:
            keys = [hashable(source, world, depth + 1) for _ in range(source.below(4))]
            return remembered(world, source.pick([dict, dict, OrderedDict])((key, inner()) for key in keys))
        case 5:
            return remembered(world, {hashable(source, world, depth + 1) for _ in range(source.below(4))})
        case 6:
            return remembered(world, bytearray(source.take(source.below(4))))
        case 7:
            return tuple(inner() for _ in range(source.below(4)))
        case 8:
            return Config(inner(), inner())
        case 9:
            return Pair(inner(), inner())
        case 10 | 11:
            world.hostile = True  # what counts of a function is told by tests/functions
            return source.pick([make_closure, functools.partial(functools.partial, double)])(inner())
        case 12:
            return NoHash() if source.yes() else source.pick(ARRAYS)
        case 13:
            return jax.tree.structure(source.pick([(1, [2]), {"a": 1}, [], 1]))
        case 14:
            world.hostile = True
            return Evil(world, source.below(18))
        case _:
            world.hostile = True
            if source.yes() and world.containers:
                found = source.pick(world.containers)  # one container twice, or one that will contain itself
                if isinstance(found, list) and source.below(4) == 3:
                    found.append(found)
                return [found, found]
            evil = Evil(world, HARMLESS)
            made = source.pick(
                [lambda: {evil}, lambda: {evil: 1}, lambda: frozenset({evil, 1}), lambda: Config(evil)]
            )()
            evil.how = source.below(18)
            return made


def remembered(world: World, container: Any) -> Any:
    world.containers.append(container)
    return container


def change(value: Any) -> bool:
    """Changes the first mutable container inside, if there is one."""
    if type(value) is list:
        value.append(None)
    elif isinstance(value, dict):
        value["more"] = None
    elif type(value) is set:
        value.add("more")
    elif type(value) is bytearray:
        value.append(0)
    else:
        return any(map(change, value if isinstance(value, tuple) else ()))
    return True
