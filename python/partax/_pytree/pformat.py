"""Trees as text, with arrays as their dtypes and shapes."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax


@dataclasses.dataclass
class Partial:
    """A `jax.tree_util.Partial` as a dataclass of its name, which is written by its fields."""

    func: Any
    args: tuple[Any, ...]
    keywords: dict[str, Any]


def _never(node: Any) -> bool:
    return False


def pformat(
    pytree: Any,
    *,
    width: int = 80,
    indent: int = 2,
    short_arrays: bool = True,
    struct_as_array: bool = False,
    truncate_leaf: Callable[[Any], bool] = _never,
) -> str:
    """A tree as text over several lines, as `equinox.tree_pformat`: an array is written as `f32[3,4]`.

    Example:
      >>> print(partax.tree.pformat({"weight": jnp.ones((3, 4)), "name": "linear"}))
      {'weight': f32[3,4], 'name': 'linear'}

    Args:
      pytree: any pytree.
      width: the number of characters that a line should have at most.
      indent: how far each level is indented.
      short_arrays: whether arrays are written as dtype and shape.
      struct_as_array: whether a `jax.ShapeDtypeStruct` is too.
      truncate_leaf: a predicate on nodes; one for which it is true is written as the name of its class and `(...)`.

    Returns:
      The text.

    Raises:
      ImportError: wadler-lindig is not installed, which the extra `partax[pretty]` installs.
    """
    try:
        import wadler_lindig as wl
    except ImportError as error:
        missing = 'pformat needs wadler-lindig, which was not found: pip install "partax[pretty]"'
        raise ImportError(missing, name="wadler_lindig") from error

    def written(node: Any) -> Any:
        """What wadler-lindig does not write as Equinox does; None for all else."""
        if truncate_leaf(node):
            return wl.TextDoc(f"{type(node).__name__}(...)")
        is_struct = struct_as_array and isinstance(node, jax.ShapeDtypeStruct)
        if short_arrays and (is_struct or isinstance(node, jax.Array)):
            weak = "weak_" if getattr(node, "weak_type", False) else ""
            return wl.array_summary(node.shape, f"{weak}{node.dtype.name}", kind=None)
        if isinstance(node, jax.custom_jvp | jax.custom_vjp):
            return wl.pdoc(node.__wrapped__)
        if isinstance(node, jax.tree_util.Partial):
            return wl.pdoc(Partial(node.func, node.args, node.keywords))
        return None

    return wl.pformat(pytree, width=width, indent=indent, short_arrays=short_arrays, custom=written)
