"""What XLA compiles, as jax itself tells."""

import contextlib
from collections.abc import Callable, Iterator
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
        _unregister(listen)


def _unregister(listen: Callable[..., None]) -> None:
    public = getattr(jax.monitoring, "unregister_event_duration_listener", None)  # since jax 0.9
    if public is None:
        from jax._src import monitoring

        public = monitoring._unregister_event_duration_listener_by_callback
    public(listen)
