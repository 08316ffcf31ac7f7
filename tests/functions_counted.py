"""Counts the traces of a program as partax and as Equinox run it."""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import pytest

import partax
from counting import TraceCounter
from trees import assert_same

Tick = Callable[[], None]
"""Called in the bodies that are counted; it reads nothing that changes."""
Program = Callable[[Any, Tick], Any]
"""Gets a `jit` and a tick; gives the results of its calls."""


class Pattern(NamedTuple):
    """A program as users write it, with the number of its traces."""

    program: Program
    ours: int
    theirs: int


class Patterns(dict[str, Any]):
    """The programs of a file, by name, as parameters of a test."""

    def add(self, *, ours: int = 1, theirs: int) -> Callable[[Program], Program]:
        def register(program: Program) -> Program:
            self[program.__name__] = Pattern(program, ours, theirs)
            return program

        return register

    def each(self) -> pytest.MarkDecorator:
        return pytest.mark.parametrize("pattern", list(self.values()), ids=list(self))


def assert_counts(pattern: Pattern) -> None:
    """Runs a program with both, and compares results and numbers of traces."""
    ours, theirs = TraceCounter(), TraceCounter()
    expected = pattern.program(eqx.filter_jit, theirs.tick)
    actual = pattern.program(partax.filter_jit, ours.tick)
    assert_same(actual, expected)
    counts = ours.count, theirs.count
    assert counts == (pattern.ours, pattern.theirs), f"{counts} traces"


class Applied:
    """A compiled function that applies others, as a model's or an optimizer's, and why it was traced again."""

    def __init__(self) -> None:
        self.traces = TraceCounter()
        self._compiled = partax.filter_jit(self._body())

    def _body(self) -> Callable[..., Any]:
        traces = self.traces

        def step(fn: Any, x: Any) -> Any:
            traces.tick()
            return fn(x)

        return step

    def __call__(self, fn: Any, x: Any) -> Any:
        return self._compiled(fn, x)

    @property
    def reason(self) -> str:
        """Of the latest trace."""
        return self._compiled.report().traces[-1].reason


def assert_sees_change(make: Callable[[], Any], change: Callable[[], Any], x: jax.Array, *culprits: str) -> None:
    """A re-created function is the same until a change of what it reads; then it is traced, and its reason says why."""
    step = Applied()
    for traces in (1, 2):
        expected = jax.jit(make())(x)
        for _ in range(2):
            assert_same(step(make(), x), expected)
        assert step.traces.count == traces
        if traces == 1:
            change()
    assert all(culprit in step.reason for culprit in culprits), step.reason


logger = logging.getLogger("functions")
logger.addHandler(logging.NullHandler())
