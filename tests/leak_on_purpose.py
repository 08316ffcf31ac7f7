"""Guards the search for leaks: loses a str that the native module made, which the search has to find."""

import ctypes
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

from partax import flat_partition, is_array

spec, *_ = flat_partition({"a name that is nowhere else": [np.ones(2), "static"]}, is_array)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(spec.paths[0]))
