"""The record of the trace whose program is lowered or compiled after its call."""

import contextlib
from collections.abc import Generator
from contextvars import ContextVar
from typing import Any, TypeVar

_Value = TypeVar("_Value")

record_at_work: ContextVar[Any] = ContextVar("partax_record_at_work", default=None)


@contextlib.contextmanager
def during(variable: ContextVar[_Value], value: _Value) -> Generator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
