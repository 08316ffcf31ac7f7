"""The results of `filter_jit` and its stages: `Wrapper`, `Bound`, `CacheInfo`, `Traced`, `Lowered` and `Compiled`."""

from partax._core import BoundFunction as Bound
from partax._core import JitFunction as Wrapper
from partax._jit.ahead_of_time import Compiled, Lowered, Traced
from partax._jit.filter_jit import CacheInfo

__all__ = ["Bound", "CacheInfo", "Compiled", "Lowered", "Traced", "Wrapper"]
