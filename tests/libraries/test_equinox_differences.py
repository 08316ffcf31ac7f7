"""Guards the table of what partax does otherwise than Equinox, on its page: each line is code that runs with both.

`python tests/libraries/test_equinox_differences.py --write` writes it into the page.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # when this file is run by itself

import partax.equinox
from odd_values import Unhashable
from page_tables import DOCS, assert_shown, outcome, print_or_write, table

PAGE = DOCS / "coming_from" / "equinox.md"


class Model(eqx.Module):
    weight: jax.Array
    scale: Any = eqx.field(static=True, default=1)


NAMES = {
    "jax": jax,
    "jnp": jnp,
    "np": np,
    "x": jnp.arange(2.0),
    "Model": Model,
    "Unhashable": Unhashable,
    "by_path": partax.by_path,
}

# What a line shows, and the code: all but its last line is run, that is shown. `eqx` is one of the two.
CASES: dict[str, str] = {
    "`f = filter_jit(lambda n: n)`; `f(1), f(True), f(1.0)`": """
        f = eqx.filter_jit(lambda n: n)
        f(1), f(True), f(1.0)
    """,
    "`f(0.0), f(-0.0)`": """
        f = eqx.filter_jit(lambda n: n)
        f(0.0), f(-0.0)
    """,
    "traces of three calls with a NaN made anew": """
        traces = []
        f = eqx.filter_jit(lambda n: traces.append(n))
        [f(float("nan")) for _ in range(3)]
        len(traces)
    """,
    "compiled with `n=2`, called with `n=3`": """
        f = eqx.filter_jit(lambda x, n: x * n).lower(x, 2).compile()
        f(x, 3).tolist()
    """,
    '`filter_jit(jnp.sin).lower(jax.ShapeDtypeStruct((2,), "float32"))`': """
        type(eqx.filter_jit(lambda x: jnp.sin(x)).lower(jax.ShapeDtypeStruct((2,), "float32"))).__name__
    """,
    'a static leaf without a hash, in `tree["a"][0]`': """
        eqx.filter_jit(lambda tree: len(tree))({"a": [Unhashable()]})
    """,
    "a NumPy array in a static field": """
        model = Model(x, np.arange(2))
        eqx.filter_jit(lambda model: model.weight + model.scale)(model).tolist()
    """,
    '`filter_jit(f, donate=("state",))`': """
        f = eqx.filter_jit(lambda x, state: (x, state + 1), donate=("state",))
        f(x, jnp.copy(x))[1].tolist()
    """,
    "`filter_jit(f, out_shardings=sharding)`": """
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        eqx.filter_jit(lambda x: x + 1, out_shardings=sharding)(x).sharding == sharding
    """,
    "whether a weight that a step returns as it came is the same array": """
        model = Model(x)
        eqx.filter_jit(lambda model: model)(model).weight is model.weight
    """,
    '`filter_grad(loss, wrt=by_path("a"))({"a": x, "b": x})`': """
        eqx.filter_grad(lambda t: jnp.sum(t["a"] * t["b"]), wrt=by_path("a"))({"a": x, "b": x})["b"]
    """,
    "`combine` of parts whose static fields differ": """
        eqx.combine(Model(None, 1), Model(x, 2)).scale
    """,
    '`filter_vmap(f)({"a": x}, x[:1])`': """
        eqx.filter_vmap(lambda t, y: t["a"] * y)({"a": x}, x[:1])
    """,
    "`filter_jvp(f, (model,), (tangent,))`, whose statics differ": """
        eqx.filter_jvp(lambda m: m.weight * 2, (Model(x, 1),), (Model(x, 2),))[1].tolist()
    """,
}


def shown(code: str, library: Any) -> str:
    """Of Equinox's and jax's own errors, which vary, only the type."""
    return outcome(code, {**NAMES, "eqx": library}, with_message=library is not eqx)


def differences() -> str:
    rows = [(name, shown(code, eqx), shown(code, partax.equinox)) for name, code in CASES.items()]
    return table(["code", "Equinox", "partax"], rows)


TABLES = {(PAGE, "equinox"): differences}


@pytest.mark.filterwarnings("ignore")
def test_the_table_of_the_page_is_what_both_do() -> None:
    assert_shown(TABLES, PAGE, "equinox")


if __name__ == "__main__":
    print_or_write(TABLES)
