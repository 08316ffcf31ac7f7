"""What packages that import this one do in a cache miss. It imports nothing, as each import of partax needs it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partax._core import Call, OutputNode, Trace
    from partax._jit.build_target import TracedFunction
    from partax._jit.options import Options


class Observers:
    before_trace: "Callable[[Call, Trace, tuple[Any, ...]], Any]"
    """Records a trace, or refuses it by an exception; returns its record."""
    after_trace: Callable[[Any, bool], None]
    """Completes a record; whether the trace has failed."""
    find_programs: "Callable[[Options, tuple[Any, ...], TracedFunction], Any]"
    """Returns the stored programs of a new key, or None if none are stored for it."""
    describe_result: "Callable[[Call, Any, tuple[Any, ...], OutputNode], bytes | None]"
    """Returns what a stored program needs to rebuild a result; None if it cannot be stored."""
    stores_all = False  # whether `partax.store` has a directory for all functions


observers = Observers()
