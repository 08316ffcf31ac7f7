"""What partax needs of jax that jax does not promise, and nothing else; each name with what serves where it is gone.

In come names of jax's; out come functions and settings that the rooms below may rely on.
"""

from importlib import import_module


def _refuse_subinterpreters() -> None:
    """Raises an ImportError in another interpreter than the main one: to import jax there ends the process."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # the names of Python 3.13 and later, and of earlier ones
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise ImportError(
                "found a subinterpreter, expected the main interpreter: jax cannot be imported in another one, nor can "
                "partax; use threads or processes"
            )
        return


_refuse_subinterpreters()  # this package is imported before all others and before jax
