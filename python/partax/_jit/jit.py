"""`jit`: jax.jit's signature and semantics, on the path of `filter_jit`."""

import enum
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from partax import _core
from partax._jit.filter_jit import compilation
from partax._jit.jax_options import all_shardings, chosen_arguments
from partax._jit.options import Options, names_of
from partax._pytree.short_text import short_text


@compilation
def jit(
    fun: Callable[..., Any] | None = None,
    /,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    inline: bool | enum.Enum = False,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """Compile a function. Same as `jax.jit`, with the cheap calls, the explanations and the store of `filter_jit`.

    Example:
      >>> @partax.jit(static_argnames="n")
      ... def power(x, n):
      ...     return x**n
      >>> power(2.0, n=3)
      Array(8., dtype=float32, weak_type=True)

    Arrays and Python numbers are traced, static arguments are compared by type and `==`, and any other value is
    refused. A re-created function whose code and everything that it can read are unchanged reuses the earlier program.

    Args:
      fun: The function. The arrays that it holds are constants. Default: None, which returns a decorator.
      in_shardings, out_shardings: Same as in `jax.jit`. Default: None, which leaves them to JAX.
      static_argnums, static_argnames: The static arguments, by position and by name. Default: None.
      donate_argnums, donate_argnames: The arguments whose buffers a call may reuse. Default: None.
      keep_unused, inline: Same as in `jax.jit`. Default: False.
      compiler_options: Same as in `jax.jit`. Default: None.

    Returns:
      A `partax.stages.Wrapper`, which is called like `fun`.

    Raises:
      TypeError: `fun` is not callable. When called: an argument or a part of the result is neither an array nor a
        number; the message has its path.
      ValueError: `fun` has no such argument, or an argument is both static and donated.

    See Also:
      The guide "Fast restarts".
    """
    if fun is None:
        return functools.partial(jit, **{name: value for name, value in locals().items() if name != "fun"})
    if not callable(fun) or inspect.isgeneratorfunction(fun) or inspect.iscoroutinefunction(fun):
        raise TypeError(f"found {short_text(fun)}, expected a function that returns its result: `jit(f)(x)`")
    static = chosen_arguments(fun, "static", static_argnums, static_argnames)
    donated = chosen_arguments(fun, "donate", donate_argnums, donate_argnames)
    for name in donated:
        if name in static:
            raise ValueError(f"found {name!r} among the static and the donated arguments, expected it in one of them")
    if isinstance(in_shardings, (tuple, list)) and not isinstance(in_shardings, jax.sharding.PartitionSpec):
        in_shardings = all_shardings(fun, static, in_shardings)
    options = Options(
        donate=donated or "none",
        inline=inline,
        keep_unused=keep_unused,
        compiler_options=compiler_options,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        static_parameters=static,
    )
    wrapper = _core.make_jit_function(fun, options)
    if isinstance(fun, types.FunctionType) and fun.__dict__:
        wrapper.__dict__.update(fun.__dict__)
    return wrapper


def arrays_of(fun: Any, result: Any) -> Any:
    """Return the result of a traced function of `jit`, with an array for each number in it."""

    def as_array(path: tuple[Any, ...], leaf: Any) -> Any:
        if isinstance(leaf, (jax.Array, Tracer)):
            return leaf
        if _core.is_array_like(leaf):
            return jnp.asarray(leaf)
        place = jax.tree_util.keystr(path)
        raise TypeError(
            f"`the result{place}` of `{names_of(fun)[1]}`: found a `{type(leaf).__name__}`, expected an array or a "
            "number; `filter_jit` returns other values too"
        )

    return jax.tree_util.tree_map_with_path(as_array, result)
