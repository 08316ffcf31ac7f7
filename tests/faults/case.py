"""What one operation under test consists of, and how what comes of it is compared with what came before."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from reference import assert_exact


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


def as_before(expected: Any) -> Callable[[Any], None]:
    """The value is such a tree: of the same structure, with the same objects for leaves, or equal ones."""
    wanted, structure = jax.tree.flatten(expected)

    def check(value: Any) -> None:
        leaves, found = jax.tree.flatten(value)
        assert found == structure, f"{value!r} is not {expected!r}"
        for leaf, other in zip(leaves, wanted, strict=True):
            if isinstance(other, jax.Array):
                assert_exact(leaf, other)
            else:
                assert leaf is other or (type(leaf) is type(other) and leaf == other), f"{leaf!r} is not {other!r}"

    return check


def unfailing(run: Callable[[], Any], *watched: Any, **more: Any) -> Case:
    """An operation that gives the same each time."""
    return Case(run, as_before(run()), watched=watched, **more)


def says(*words: str) -> Callable[[Any], None]:
    """The exception's text has these."""

    def check(error: Any) -> None:
        text = "\n".join([str(error), *getattr(error, "__notes__", [])])
        missing = [word for word in words if word not in text]
        assert not missing, f"{missing} not in {text!r}"

    return check


def refused(run: Callable[[], Any], told: str, kind: type[Exception], *watched: Any, **more: Any) -> Case:
    """An operation that raises each time."""
    return Case(run, says(told), raises=kind, watched=watched, **more)
