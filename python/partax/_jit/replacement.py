"""`partax.jit` instead of `jax.jit` in the user's code, for a program that does not name partax."""

import functools
import sys
from typing import Any

import jax

from partax._families.installed import is_installed
from partax._jit.jit import jit

_jit_of_jax = jax.jit


def replace_jax_jit() -> None:
    """Replace `jax.jit` for all modules except those of Python and of installed libraries."""
    jax.jit = _jit


@functools.wraps(_jit_of_jax, assigned=("__doc__",))
def _jit(*args: Any, **options: Any) -> Any:
    caller = sys._getframe(1).f_globals.get("__name__")
    # A jax that is installed for its own development is not in a directory of libraries.
    if is_installed(caller) or str(caller).partition(".")[0] == "jax":
        return _jit_of_jax(*args, **options)
    if not args:
        return functools.partial(_jit, **options)
    jitted = _jit_of_jax(*args, **options)  # raises and warns as jax does
    try:
        return jit(*args, **options)
    except (TypeError, ValueError):  # an option, or a function, that jax accepts and partax does not
        return jitted
