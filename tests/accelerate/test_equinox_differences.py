"""Guards the README's table of what partax does otherwise than Equinox: each line is code that runs with both."""

from __future__ import annotations

import pathlib
import re
import textwrap
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import partax.equinox

README = pathlib.Path(__file__).parents[2] / "README.md"
WIDEST = 60


class Unhashable:
    __hash__ = None  # type: ignore[assignment]


class Model(eqx.Module):
    weight: jax.Array
    scale: Any = eqx.field(static=True, default=1)


NAMES = {
    "jax": jax,
    "jnp": jnp,
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
    """What the last line of the code gives, or the error; of Equinox's and jax's own errors, which vary, the type."""
    *before, last = textwrap.dedent(code).strip().splitlines()
    names = {**NAMES, "eqx": library}
    try:
        exec("\n".join(before), names)
        return f"`{eval(last, names)!r}`"
    except Exception as error:
        if library is eqx:
            return f"`{type(error).__name__}`"
        message = " ".join(str(error).split()).replace("|", "¦")
        cut = message if len(message) <= WIDEST else message[: WIDEST - 3].rstrip() + "..."
        return f"`{type(error).__name__}`: {cut}"


def line(name: str, code: str) -> str:
    return f"| {name} | {shown(code, eqx)} | {shown(code, partax.equinox)} |"


@pytest.mark.filterwarnings("ignore")
def test_the_table_of_the_readme_is_what_both_do() -> None:
    rows = [line(name, code) for name, code in CASES.items()]
    table = "\n".join(["", "| code | Equinox | partax |", "|---|---|---|", *rows, "", ""])
    found = re.search(r"<!-- equinox begin -->\n(.*?)<!-- equinox end -->", README.read_text(encoding="utf-8"), re.S)
    assert found is not None, "README.md has no table between <!-- equinox begin --> and <!-- equinox end -->"
    assert found[1] == table, f"the table is now:\n{table}"
