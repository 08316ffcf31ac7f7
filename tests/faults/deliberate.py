"""The bugs of deliberate_native.cpp as operations: the name begins with what the harness must call each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import deliberate_native as native
from case import Case, operation, operations

PAIR = ([None], [None])


def equals(expected: Any) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        assert value == expected, f"{value!r} is not {expected!r}"

    return check


operations("ok", {"no bug": lambda: Case(native.ok, equals(PAIR))})
operations(
    "crash",
    {
        "ignores null": lambda: Case(native.ignores_null, equals([None])),
        "lets a C++ exception out": lambda: Case(native.lets_exception_out, equals(1)),
    },
)
operations(
    "leak",
    {
        "of a list": lambda: Case(native.leaks, equals([None])),
        "of a C++ object": lambda: Case(native.leaks_new, equals([None])),
    },
)
operations("wrong", {"half of a list": lambda: Case(native.half_built, equals([None] * 40))})
operations("other exception", {"a RuntimeError": lambda: Case(native.renames_error, equals(PAIR))})
operations("raises afterwards", {"a static null": lambda: Case(native.remembers_failure, equals([None] * 7))})
operations("unraisable", {"an error that nobody gets": lambda: Case(native.cannot_raise, equals(PAIR))})


@operation("changed: a dictionary")
def _() -> Case:
    state: dict[str, bool] = {"state": False}
    return Case(lambda: native.changes_first(state), equals(PAIR), state=lambda: dict(state))


@operation("reference: to the argument")
def _() -> Case:
    argument = object()
    return Case(lambda: native.keeps_argument(argument), equals(PAIR), watched=(argument,))
