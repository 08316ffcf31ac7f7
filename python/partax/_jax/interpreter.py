"""Refuses subinterpreters, in which jax cannot be imported."""

from importlib import import_module


def _is_subinterpreter() -> bool:
    """Whether this is another interpreter than the first one of the process; False where Python does not tell."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # the names of Python 3.13 and later, and of earlier ones
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() != interpreters.get_main())
    return False


def refuse_subinterpreters() -> None:
    """Raises an ImportError in another interpreter than the main one: importing jax, or any module in C, ends the
    process.
    """
    if _is_subinterpreter():
        raise ImportError(
            "found a subinterpreter, expected the main interpreter: jax cannot be imported in another one, nor can "
            "partax; use threads or processes"
        )
