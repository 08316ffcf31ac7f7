"""Static values that a program can tell apart: each differs from all others, and equals itself made anew.

No set has two texts: in which order these come is chance.
"""

import enum
import math
import struct
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import jax.numpy as jnp
import numpy as np

from trees import Colour, Config, Pair, double


class Number(enum.IntEnum):
    ONE = 1


class Word(str):
    pass


def nan(payload: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0000 | payload))[0]


def _numbers() -> list[Any]:
    values: list[Any] = [int("1"), True, float("1"), 1 + 0j, Number.ONE, 0, False, 0.0, -0.0, 10**30, 2**62, 2**64]
    values += [float(2**62), -(2**62), nan(0), nan(1), -nan(0), nan(12345), math.inf, -math.inf]
    values += [complex(0, 0), complex(-0.0, 0), complex(0, -0.0), complex(-0.0, -0.0)]
    return [*values, complex(nan(0), 0), complex(0, nan(0)), complex(nan(1), 0)]


def _texts() -> list[Any]:
    return ["".join("1"), b"1", None, "", b"", "".join("sta"), Word("sta"), b"sta", "STA", bytes([1, 2, 3])]


def _others() -> list[Any]:
    sets = [frozenset(items) for items in ([1], [True], [1.0], [1, 2], ["".join("a")])]
    values = [Colour(1), Colour.BLUE, range(3), PurePosixPath("a/b"), np.dtype("float32"), double]
    return [*values, int, bool, float, np.float32, jnp.float32, *sets]


def _of_numpy() -> list[Any]:
    ones = [np.int64(1), np.int32(1), np.float64(1), np.bool_(True)]
    return [*ones, np.float32(0), np.float32(-0.0), np.float64(0), np.float64(-0.0), np.float64("nan")]


def _containers() -> list[Any]:
    tuples = [(int("1"),), (1, 2), (True, 2), (1.0, 2), (1, 2.0), (1, (2,)), (), (1, (2.0, nan(0)), "x")]
    lists: list[Any] = [[1], [1.0], [0.0], [-0.0], [0], [False], [None], [[]], [1, [2, (3,)], {"k": [4]}]]
    dicts = [{"a": 1}, {"a": True}, {"a": 1.0}, {"b": 1}, {}, {1: "x"}, {True: "x"}, {"a": [1], "b": {2, 3}}]
    sets = [{1}, {True}, {1.0}, set[int](), {"three"}, bytearray(b"1"), bytearray(b"abc")]
    pairs = [Pair(1, 2), Pair(True, 2), Pair(1, [2])]
    return [*tuples, *lists, *dicts, *sets, *pairs, Config(1), Config(True), Config(nan(0)), Config([1], Config())]


def _of(*makers: Callable[[], list[Any]]) -> dict[str, Callable[[], Any]]:
    values: dict[str, Callable[[], Any]] = {}
    for make in makers:
        for i, value in enumerate(make()):
            values[f"{type(value).__name__} {value!r}, {make.__name__} {i}"] = lambda make=make, i=i: make()[i]
    return values


LEAVES = _of(_numbers, _texts, _others)
"""By name what makes one anew."""
IN_AUX = LEAVES | _of(_of_numpy, _containers)
"""With those that are nodes or arrays where they are no aux data."""
