"""One operation under test, and how its results are compared with an earlier one."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from reference import assert_exact


@dataclasses.dataclass
class Case:
    """One operation on objects of its own.

    ``run`` returns a value or raises what ``raises`` says, and ``check`` raises an AssertionError if that is wrong.
    ``state`` describes the objects under test, which a failed run must not change. ``prepare`` runs before each run.
    """

    run: Callable[[], Any]
    check: Callable[[Any], None]
    state: Callable[[], Any] = lambda: None
    prepare: Callable[[], object] = lambda: None
    raises: type[Exception] | None = None
    watched: tuple[Any, ...] = ()  # their reference counts must not change
    allocates: bool = True
    keeps_memory: bool = False  # jax keeps what a run creates, or the history of a function does


OPERATIONS: dict[str, Callable[[], Case]] = {}


def operation(make: Callable[[], Case]) -> Callable[[], Case]:
    """Registers the function that creates a case, by its name."""
    name = make.__name__.replace("_", " ")
    assert name not in OPERATIONS, name
    OPERATIONS[name] = make
    return make


def equals(expected: Any) -> Callable[[Any], None]:
    """A check for a tree of the same structure, with the same objects as leaves, or equal ones."""
    expected_leaves, structure = jax.tree.flatten(expected)

    def check(value: Any) -> None:
        leaves, actual_structure = jax.tree.flatten(value)
        assert actual_structure == structure, f"{value!r} is not {expected!r}"
        for leaf, other in zip(leaves, expected_leaves, strict=True):
            if isinstance(other, jax.Array):
                assert_exact(leaf, other)
            else:
                assert leaf is other or (type(leaf) is type(other) and leaf == other), f"{leaf!r} is not {other!r}"

    return check


def returning(run: Callable[[], Any], *watched: Any, **more: Any) -> Case:
    """An operation that returns the same each time."""
    return Case(run, equals(run()), watched=watched, **more)


def raising(kind: type[Exception], text: str, run: Callable[[], Any], *watched: Any, **more: Any) -> Case:
    """An operation that raises each time, with this text in the message."""

    def check(error: Any) -> None:
        message = "\n".join([str(error), *getattr(error, "__notes__", [])])
        assert text in message, f"{text!r} not in {message!r}"

    return Case(run, check, raises=kind, watched=watched, **more)
