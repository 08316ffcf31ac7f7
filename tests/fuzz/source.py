"""Choices read from a fuzzer's bytes, and the check that an operation ends as it may."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")


class Source:
    """Reads choices from bytes; after the last one, each choice is the first."""

    nodes = 0  # that have been made of it

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def below(self, limit: int) -> int:
        return self.byte() % limit

    def yes(self) -> bool:
        return self.byte() % 2 == 1

    def pick(self, choices: Sequence[_T]) -> _T:
        return choices[self.below(len(choices))]

    def take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at].ljust(count, b"\0")

    def text(self, alphabet: str, most: int) -> str:
        return "".join(self.pick(alphabet) for _ in range(self.below(most + 1)))

    def rest(self) -> bytes:
        return self._data[self._at :]


def patched(source: Source) -> tuple[bytes, bytes]:
    """What is left of the bytes, and the same with up to three of them changed: two inputs near to each other."""
    changes = [(source.byte(), source.byte()) for _ in range(source.below(4))]
    first = source.rest()
    second = bytearray(first)
    for place, value in changes:
        if second:
            second[place % len(second)] = value
    return first, bytes(second)


class Broke(Exception):
    """What hostile objects raise."""


# What partax may raise for an input that is wrong; hostile objects may raise more, which passes through.
REFUSALS = (TypeError, ValueError, RecursionError)
# A container that changed meanwhile, a combination of parts that lacks a path, an attribute that is gone.
UPSETS = (*REFUSALS, Broke, GeneratorExit, RuntimeError, KeyError, AttributeError)


def outcome(do: Callable[[], Any], allowed: tuple[type[BaseException], ...] = UPSETS) -> Any:
    """The result of an operation, or the exception, which must be an allowed one."""
    try:
        return do()
    except allowed as error:
        assert type(error) is not RuntimeError or "C++" not in str(error), error
        return error
