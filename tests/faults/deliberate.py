"""The bugs of deliberate_native.cpp as operations: the name begins with what the harness must call each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import deliberate_native as native
from case import Case, operation

PAIR = ([None], [None])


def equals(expected: Any) -> Callable[[Any], None]:
    """As of `checks`, without jax."""

    def check(value: Any) -> None:
        assert value == expected, f"{value!r} is not {expected!r}"

    return check


@operation("ok: no bug")
def _() -> Case:
    return Case(native.ok, equals(PAIR))


@operation("crash: ignores null")
def _() -> Case:
    return Case(native.ignores_null, equals([None]))


@operation("leak: of a list")
def _() -> Case:
    return Case(native.leaks, equals([None]))


@operation("wrong: half of a list")
def _() -> Case:
    return Case(native.half_built, equals([None] * 40))


@operation("unraisable: an error that nobody gets")
def _() -> Case:
    return Case(native.cannot_raise, equals(PAIR))


@operation("changed: a dictionary")
def _() -> Case:
    state: dict[str, bool] = {"state": False}
    return Case(lambda: native.changes_first(state), equals(PAIR), state=lambda: dict(state))


@operation("reference: to the argument")
def _() -> Case:
    argument = object()
    return Case(lambda: native.keeps_argument(argument), equals(PAIR), watched=(argument,))
