"""All public names of Equinox, those that partax has too as partax has them: `import partax.equinox as eqx`.

    import partax.equinox as eqx

    class Layer(eqx.Module): ...

    @eqx.filter_jit
    def step(model, batch): ...

`Module`, `nn`, `field`, `internal` and all else that partax has not is Equinox's own. For libraries that import equinox
themselves there is `accelerate`; `python -m partax equinox script.py` runs a script so, and with the environment
variable `PARTAX_EQUINOX=1` a program is accelerated from `import partax` on.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

try:
    _equinox = _import_module("equinox")
except ImportError as _error:
    raise ImportError("partax.equinox needs equinox: install the extra `partax[equinox]`", name="equinox") from _error

import partax as _partax
from partax._equinox.accelerate import Accelerated, accelerate
from partax._equinox.names import OURS as _OURS

if _TYPE_CHECKING:
    from equinox import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
    from partax import apply_updates as apply_updates
    from partax import combine as combine
    from partax import filter as filter
    from partax import filter_grad as filter_grad
    from partax import filter_jit as filter_jit
    from partax import filter_value_and_grad as filter_value_and_grad
    from partax import is_array as is_array
    from partax import is_array_like as is_array_like
    from partax import is_inexact_array as is_inexact_array
    from partax import is_inexact_array_like as is_inexact_array_like
    from partax import partition as partition

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "Accelerated",
    "accelerate",
    *(name for name in dir(_equinox) if not name.startswith("_")),
]

Accelerated.__module__ = "partax.equinox"  # where users find it


def __getattr__(name: str) -> object:
    """A name of Equinox's, as partax has it where it does."""
    if name in _OURS:
        return getattr(_partax, name)
    return getattr(_equinox, name)


def __dir__() -> list[str]:
    return sorted(__all__)
