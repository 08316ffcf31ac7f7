"""Guards the promise that jax's own settings retrace only if a program depends on them, and are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from retrace_case import Case, Library, X, played

from counting import seen

MESH = jax.make_mesh((1,), ("data",), (AxisType.Auto,))
OTHER = jax.devices()[-1]


def under(name: str, fun: Any, context: Callable[[], Any], reason: str | None = None, **others: Any) -> Case:
    """A call as it is, and then one in a context."""

    def play(library: Library) -> Iterator[Callable[[], Any]]:
        f = library.jit(fun)

        def within() -> Any:
            with context():
                return f(X)

        yield lambda: f(X)
        yield within

    return played(name, reason and f"<lambda>: trace 2, because {reason}", **others)(play)


CASES: list[Case] = [
    under("`jax_enable_x64`", lambda x: seen(x) + jnp.arange(3).itemsize, lambda: jax.enable_x64(True),
        "jax_enable_x64: False -> True"),
    under("`jax_default_matmul_precision`", lambda x: seen(x) @ x.T, lambda: jax.default_matmul_precision("float32"),
        "jax_default_matmul_precision: None -> float32"),
    under("`jax_numpy_dtype_promotion`", lambda x: seen(x) * 2, lambda: jax.numpy_dtype_promotion("strict"),
        "jax_numpy_dtype_promotion: standard -> strict"),
    under("`jax_numpy_rank_promotion`", lambda x: seen(x) * 2, lambda: jax.numpy_rank_promotion("raise"),
        "jax_numpy_rank_promotion: allow -> raise"),
    under("`jax_default_device`", lambda x: seen(x) * 2, lambda: jax.default_device(OTHER),
        f"jax_default_device: None -> {OTHER}"),
    under("`jax_debug_nans`", lambda x: seen(x) * 2, lambda: jax.debug_nans(True)),
    under("`jax_log_compiles`", lambda x: seen(x) * 2, lambda: jax.log_compiles(False)),
    under("`jax.set_mesh`", lambda x: seen(x) * 2, lambda: jax.set_mesh(MESH), f"mesh: None -> {MESH.abstract_mesh}"),
]  # fmt: skip
