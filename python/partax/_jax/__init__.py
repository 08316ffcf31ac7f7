"""What partax needs of jax that jax does not promise, and nothing else; each name with what serves where it is gone.

In come names of jax's; out come functions and settings that the rooms below may rely on.
"""

from importlib import import_module
from importlib.util import find_spec

_MODULES = "_interpreters", "_xxsubinterpreters"  # of Python 3.13 and later, and of earlier ones
for _interpreters in map(import_module, filter(find_spec, _MODULES)):
    if _interpreters.get_current() != _interpreters.get_main():  # to import jax there would end the process
        raise ImportError(
            "found a subinterpreter, expected the main interpreter: jax cannot be imported in another one, nor can "
            "partax; use threads or processes"
        )
