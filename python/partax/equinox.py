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
from typing import Any as _Any

try:
    _equinox = _import_module("equinox")
except ImportError as _error:
    raise ImportError("partax.equinox needs equinox: install the extra `partax[equinox]`", name="equinox") from _error

from partax import __all__ as _names_of_partax
from partax._jit.shardings import filter_shard as _filter_shard
from partax._libraries.equinox.accelerate import Accelerated, accelerate
from partax._pytree.partition import PyTree as _PyTree
from partax._transforms.callbacks import filter_pure_callback as _filter_pure_callback

if _TYPE_CHECKING:
    from equinox import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]

    # Of these, those names are here that Equinox has too; `filter_shard` is the one below.
    from partax import *  # noqa: F403  # pyright: ignore[reportAssignmentType]

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "Accelerated",
    "accelerate",
    *(name for name in dir(_equinox) if not name.startswith("_")),
]

OURS = {
    **{name: "partax" for name in __all__ if name in _names_of_partax},
    "tree_at": "partax.tree",
}
"""The module that has a name of Equinox's; in `partax.tree` it is without `tree_`. Its `equal` gives a bool where
Equinox's `tree_equal` gives an array.
"""

Accelerated.__module__ = "partax.equinox"  # where users find it


def filter_shard(x: _PyTree, device_or_shardings: _Any) -> _PyTree:
    """`partax.filter_shard`, with its parameters called as Equinox calls them.

    Example:
      >>> import partax.equinox as eqx
      >>> eqx.filter_shard(x=jnp.ones(2), device_or_shardings=jax.devices()[1]).device
      CpuDevice(id=1)

    Args:
      x: any pytree, of which the arrays are placed.
      device_or_shardings: one device or sharding for all arrays, or a pytree prefix of `x` with those as its leaves.

    Returns:
      A tree like it.

    Raises:
      ValueError: `device_or_shardings` is no prefix of `x`, or does not divide an array.
      TypeError: a leaf of `device_or_shardings` is no sharding, or JAX cannot hold an array.
    """
    return _filter_shard(x, device_or_shardings)


def filter_pure_callback(*args: _Any, vectorized: bool | None = None, **kwargs: _Any) -> _Any:
    """`partax.filter_pure_callback`, also with `vectorized`, the older form of `vmap_method`.

    Example:
      >>> import partax.equinox as eqx
      >>> like = jax.ShapeDtypeStruct((2,), "float32")
      >>> eqx.filter_pure_callback(lambda x: x * 2, jnp.ones(2), result_shape_dtypes=like, vectorized=True)
      Array([2., 2.], dtype=float32)

    Args:
      *args: the callback and its arguments.
      vectorized: True is `vmap_method="expand_dims"`, False is `"sequential"`.
      **kwargs: the options of `partax.filter_pure_callback`, and arguments of the callback by name.

    Returns:
      What the callback returns.
    """
    if vectorized is not None:
        kwargs.setdefault("vmap_method", "expand_dims" if vectorized else "sequential")
    return _filter_pure_callback(*args, **kwargs)


def __getattr__(name: str) -> object:
    """A name of Equinox's, as partax has it where it does."""
    if name in OURS:
        return getattr(_import_module(OURS[name]), name.removeprefix("tree_"))
    return getattr(_equinox, name)


def __dir__() -> list[str]:
    return sorted(__all__)
