"""All public names of Equinox, with partax's version of each that partax has: `import partax.equinox as eqx`.

    import partax.equinox as eqx

    class Layer(eqx.Module): ...

    @eqx.filter_jit
    def step(model, batch): ...

`Module`, `nn`, `field`, `internal` and all other names are Equinox's own. For libraries that import equinox
themselves, use `accelerate`; `python -m partax equinox script.py` runs a script with it, and the environment variable
`PARTAX_EQUINOX=1` accelerates a program from `import partax` on.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

try:
    _equinox = _import_module("equinox")
except ImportError as _error:
    raise ImportError("partax.equinox needs equinox: install the extra `partax[equinox]`", name="equinox") from _error

from partax import __all__ as _names_of_partax
from partax._libraries.equinox.accelerate import Accelerated, accelerate
from partax._libraries.equinox.spellings import filter_jit as filter_jit
from partax._libraries.equinox.spellings import filter_pure_callback as filter_pure_callback
from partax._libraries.equinox.spellings import filter_shard as filter_shard
from partax._libraries.equinox.spellings import partition as partition

if _TYPE_CHECKING:
    from equinox import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]

    # Of these, those names are here that Equinox has too; the four above are as Equinox spells them.
    from partax import *  # noqa: F403  # pyright: ignore[reportAssignmentType]

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "Accelerated",
    "accelerate",
    *(name for name in dir(_equinox) if not name.startswith("_")),
]

OURS = {**{name: "partax" for name in __all__ if name in _names_of_partax}, "tree_at": "partax.tree"}
"""The module with partax's version of each name. `tree_equal` stays Equinox's, since partax's returns a bool."""

Accelerated.__module__ = "partax.equinox"  # where users find it


def __getattr__(name: str) -> object:
    """Return partax's version of a name of Equinox if there is one, and otherwise Equinox's own."""
    if name in OURS:
        return getattr(_import_module(OURS[name]), name.removeprefix("tree_"))
    return getattr(_equinox, name)


def __dir__() -> list[str]:
    return sorted(__all__)
