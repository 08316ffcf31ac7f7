"""`flax.nnx.jit` at the speed of `filter_jit`: functions that change the nnx objects in their arguments.

    from partax import nnx as fast

    @fast.jit
    def train_step(model, optimizer, batch): ...

When the call returns, the caller's objects have the changes: new values of Variables, new Variables, attributes set or
deleted, submodules replaced, `train()` and `eval()`, the counters of `Rngs`. An object in two places stays one, cycles
are allowed, and a returned argument is that very object. A call that fails or is interrupted changes nothing.

The differences from `nnx.jit` follow plain Python; the page "Coming from Flax NNX" has examples:

- What is not an array is static, as in `filter_jit`. Numbers in Variables and in `nnx.data` attributes are traced.
- What the function has not changed is not touched: an attribute keeps its list, and an array its sharding.
- Changes of a Variable's metadata are made to the caller's, and an array that becomes a new attribute is data.
- A callable nnx object that is compiled itself, `jit(model)`, is an argument. `nnx.jit` compiles its values in.
- An object of an outer trace may be an argument, if the function does not change it. `nnx.jit` refuses it.
- With `graph=False`, `graph_updates=False` or nnx's own switches, the only changes are those of Variables.
- Hijax Variables, an experiment of Flax, are not supported.
"""

import enum
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module as _import_module
from typing import Any, Literal

try:
    _nnx = _import_module("flax.nnx")
except ImportError as _error:
    raise ImportError("partax.nnx needs flax: install the extra `partax[flax]`", name="flax") from _error
if not hasattr(_nnx, "prefix"):
    _found = _import_module("flax").__version__
    raise ImportError(f"partax.nnx needs flax 0.12.8 or newer, found {_found}: install `partax[flax]`", name="flax")

from partax._jit.filter_jit import compilation
from partax._libraries.flax.options import wrapper_for_nnx

__all__ = ["jit"]

_Numbers = int | Sequence[int] | None
_Names = str | Iterable[str] | None


@compilation
def jit(
    fun: Any = None,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: _Numbers = None,
    static_argnames: _Names = None,
    donate_argnums: _Numbers = None,
    donate_argnames: _Names = None,
    keep_unused: bool = False,
    inline: bool | enum.Enum = False,
    graph: bool | None = None,
    graph_updates: bool | None = None,
    donate: str | Sequence[str] = "none",
    compiler_options: dict[str, Any] | None = None,
    cache_size: int = 4096,
    reuse_equal_functions: bool = True,
    dynamic: Callable[[Any], bool] | Sequence[str] | None = None,
    max_traces: int | None = None,
    store: str | os.PathLike[str] | Literal[False] | None = None,
) -> Any:
    """Compile a function that changes nnx objects in its arguments. Same as `flax.nnx.jit`, except for the differences
    in the docstring of `partax.nnx`, and with the options of `filter_jit`.

    Example:
      >>> from flax import nnx
      >>> @partax.nnx.jit
      ... def update(net):
      ...     net.bias[...] += 1
      >>> net = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
      >>> update(net)
      >>> net.bias[...]
      Array([1., 1., 1.], dtype=float32)

    Args:
      fun: A function, an unbound method, or a callable nnx object. Default: None, to return a decorator.
      in_shardings: Same as in `filter_jit`, with `nnx.StateSharding` and `nnx.prefix` as in `nnx.jit`. Default: None.
      out_shardings: A pytree prefix of the result with shardings. Default: None.
      static_argnums, static_argnames: Without effect, except that `in_shardings` has no entry for these. Default: None.
      donate_argnums, donate_argnames: Arguments whose changed arrays' buffers the call may reuse. Default: None.
      keep_unused, inline: Same as in `filter_jit`. Default: False.
      graph, graph_updates: Same as in `nnx.jit`, False for tree mode. Default: None, for nnx's own switches.
      donate: Same as in `filter_jit`, instead of the two options above. Default: `"none"`.
      compiler_options, cache_size, reuse_equal_functions, dynamic, max_traces, store: Same as in `filter_jit`.

    Returns:
      A wrapper that is called as `fun` is, with the methods of `filter_jit`'s.

    Raises:
      ValueError, TypeError: Same as in `filter_jit`; or `fun` is a bound method, or a name is not of a parameter. When
        called: the function returns an object of another trace; or, in tree mode, an object is in two places.
      flax.errors.TraceContextError: When called: the function changes an nnx object that is not in its arguments.

    See Also: The guide "Flax".
    """
    options = {name: value for name, value in locals().items() if name != "fun"}
    if (donate_argnums, donate_argnames) != (None, None) and donate != "none":
        raise ValueError("found donate and donate_argnums or donate_argnames, expected one of them")
    return functools.partial(wrapper_for_nnx, **options) if fun is None else wrapper_for_nnx(fun, **options)
