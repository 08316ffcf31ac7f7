"""What one operation under test consists of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass
class Case:
    """One operation on objects of its own.

    ``run`` gives a value or raises what ``raises`` says, and ``check`` raises an AssertionError if that is not right.
    ``state`` describes the objects under test: a failed run must not change it. ``prepare`` comes before each run.
    """

    run: Callable[[], Any]
    check: Callable[[Any], None]
    state: Callable[[], Any] = lambda: None
    prepare: Callable[[], object] = lambda: None
    raises: type[Exception] | None = None
    watched: tuple[Any, ...] = ()  # whose reference counts must stay as they are
    allocates: bool = True
    keeps: bool = False  # what a run makes is kept: by jax for ever, or in the history of a function


OPERATIONS: dict[str, Callable[[], Case]] = {}


def operation(name: str, *, quick: bool = True) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    """Registers the maker of a case; those that take long are left out of quick runs, by `run.py`."""

    def register(make: Callable[[], Case]) -> Callable[[], Case]:
        assert name not in OPERATIONS, name
        OPERATIONS[name] = make
        return make

    return register


def operations(kind: str, makers: dict[str, Callable[[], Case]], *, quick: bool = True) -> None:
    """Registers the makers of several cases of one kind, each by what its name has beside that."""
    for name, make in makers.items():
        operation(f"{kind}: {name}", quick=quick)(make)
