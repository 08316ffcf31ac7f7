"""Filtered JAX transformations at the speed of bare jax.jit: arrays are traced, everything else is static."""

from importlib.metadata import version as _version

from partax import _families, _jit
from partax._filters import is_array, is_array_like, is_inexact_array, is_inexact_array_like
from partax._grad import filter_grad, filter_value_and_grad
from partax._jit import CacheInfo, filter_jit
from partax._partition import apply_updates, combine, filter, partition
from partax._stages import Compiled, Lowered, Traced

__version__ = _version("partax")
__all__ = [
    "CacheInfo",
    "Compiled",
    "Lowered",
    "Traced",
    "apply_updates",
    "combine",
    "filter",
    "filter_grad",
    "filter_jit",
    "filter_value_and_grad",
    "is_array",
    "is_array_like",
    "is_inexact_array",
    "is_inexact_array_like",
    "partition",
]

_families.install()
_jit.install()
