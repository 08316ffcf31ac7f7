"""Programs that outlive their process: stored where they are compiled, and loaded by the next one."""

from typing import Any

from partax._jit.observers import observers


class UnstoredError(Exception):
    """Why a call has no program that could be stored."""


def _find_programs(options: Any, *arguments: Any) -> Any:
    if options.store is False or (options.store is None and not observers.stores_all):
        return None
    from partax._store.programs import stored_programs

    return stored_programs(options, *arguments)


def install() -> None:
    """Has a miss look into the store, which is imported at its first use."""
    observers.find_programs = _find_programs
