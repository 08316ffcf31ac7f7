"""What XLA compiles, as jax itself tells."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax


@contextlib.contextmanager
def compiled_names() -> Iterator[list[str]]:
    """The names of the functions whose programs XLA compiles in this block."""
    names: list[str] = []

    def listen(event: str, _: float, **details: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(details.get("fun_name", ""))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield names
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
