"""Guards the search for leaks: loses a str that the native module made, which the search has to find."""

from __future__ import annotations

import ctypes
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

from partax import _core


def lose() -> None:
    _, spec = _core.flatten({"a name that is nowhere else": [np.ones(2), "static"]})
    (path,) = spec.dynamic_paths()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(path))


lose()
