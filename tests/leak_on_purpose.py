"""Guards the search for leaks: loses a str that the native module made, which the search has to find."""

import ctypes
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from partax import partition

try:
    partition([1], 2.5)
except ValueError as error:
    (text,) = error.args
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(text))
