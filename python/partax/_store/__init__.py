"""Programs that outlive their process: stored where they are compiled, and loaded by the next one.

In come a call and the target that would be traced for it; out comes the program of an equal call of an earlier process.
"""

from typing import TYPE_CHECKING, Any

from partax._jit.observers import observers

if TYPE_CHECKING:
    from partax._core import Call, OutputNode
    from partax._jit.build_target import TracedFunction
    from partax._jit.options import Options


class UnstoredError(Exception):
    """Why a call has no program that could be stored."""


_is_active = False  # whether `partax.store` has a directory for all functions


def set_active(is_active: bool) -> None:
    global _is_active
    _is_active = is_active


def _find_programs(options: "Options", leaves: tuple[Any, ...], traced: "TracedFunction") -> Any:
    if options.store is False or (options.store is None and not _is_active):
        return None
    from partax._store.programs import stored_programs

    return stored_programs(options, leaves, traced)


def _describe_result(call: "Call", result: Any, inputs: tuple[Any, ...], node: "OutputNode") -> bytes | None:
    from partax._store.results import stored_result

    return stored_result(call, result, inputs, node)


def install() -> None:
    """Has a miss look into the store. Called once, when partax is imported; the store is imported at its first use."""
    observers.find_programs, observers.describe_result = _find_programs, _describe_result
