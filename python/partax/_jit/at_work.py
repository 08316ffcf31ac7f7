"""What JAX works for now, since it reports the stages of its work without that."""

import contextlib
from collections.abc import Generator
from contextvars import ContextVar
from typing import Any

at_work: ContextVar[Any] = ContextVar("partax_at_work", default=None)
"""The `_core.Call` whose target JAX runs, or the record of a trace that is lowered or compiled after its call; None
inside the user's function.
"""


@contextlib.contextmanager
def during(variable: ContextVar[Any], value: Any) -> Generator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
