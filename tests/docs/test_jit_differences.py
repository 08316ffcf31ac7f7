"""Guards the tables of what `filter_jit` does otherwise than `jax.jit`, `partax.nnx.jit` than `flax.nnx.jit`, and
`partax.equinox` than Equinox, on their pages: each line is code that runs with both.

`python tests/docs/test_jit_differences.py --write` writes them into the pages.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # when this file is run by itself

import partax.equinox
from conftest import TraceCounter
from library_trees import HAS_FLAX
from odd_values import Unhashable
from page_tables import DOCS, assert_shown, cases, outcome, print_or_write, table

Names = dict[str, Any]
FLAX_NNX = DOCS / "coming_from" / "flax_nnx.md"

JAX_CASES = cases(r"""
a model with functions in it: `jit(lambda model, x: model(x))(mlp, x).shape`
    jit(lambda model, x: model(x))(mlp, x).shape
`jit(lambda x, name: x * len(name))(x, "ab")`
    jit(lambda x, name: x * len(name))(x, "ab").tolist()
`jit(lambda x, n: x[:n])(x, 1)`
    jit(lambda x, n: x[:n])(x, 1).tolist()
`jit(lambda x: (x.shape[0], "text"))(x)`
    jit(lambda x: (x.shape[0], "text"))(x)
`jit(lambda x: x.shape[0])(x)`
    jit(lambda x: x.shape[0])(x)
traces of `f(x, 0.1)`, `f(x, 0.2)`
    traces = []
    f = jit(lambda x, rate: traces.append(rate) or x * rate)
    f(x, 0.1), f(x, 0.2)
    len(traces)
traces of `f(x, y)`, `f(x, y=y)`, `f(y=y, x=x)`
    traces = []
    f = jit(lambda x, y: traces.append(x) or x + y)
    f(x, x), f(x, y=x), f(y=x, x=x)
    len(traces)
traces of three lambdas in a loop, `jit(lambda x: x + 1)(x)`
    for _ in range(3): jit(lambda x: counter.tick() or x + 1)(x)
    counter.count
a list in the closure of `f` is changed from `[2]` to `[3]`; `f(x)`, which is `x * closure[0]`
    def scaled(by): return jit(lambda x: x * by[0])
    closure = [2]
    f = scaled(closure)
    f(x)
    closure[0] = 3
    f(x).tolist()
`jit(lambda x: x)(x) is x`
    jit(lambda x: x)(x) is x
`jit(lambda x, y: x + y, in_shardings=(sharding, sharding))(x=x, y=x)`
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    jit(lambda x, y: x + y, in_shardings=(sharding, sharding))(x=x, y=x).tolist()
""")

NNX_CASES = cases(r"""
`jit(lambda net, x, name: net(x) * len(name))(net, x, "ab").shape`
    jit(lambda net, x, name: net(x) * len(name))(net, x, "ab").shape
`jit(lambda net: (3, "text"))(net)`
    jit(lambda net: (3, "text"))(net)
`jit(lambda net: 3)(net)`
    jit(lambda net: 3)(net)
traces of `f(net, 0.1)`, `f(net, 0.2)`
    traces = []
    f = jit(lambda net, rate: traces.append(rate) or net.kernel * rate)
    f(net, 0.1), f(net, 0.2)
    len(traces)
dtype of `jit(lambda holder: holder.mode * ints)(holder)` for a static `mode` of 1, then of 1.0
    ints = jnp.arange(2)
    f = jit(lambda holder: holder.mode * ints)
    [f(Holder(mode=mode)).dtype.name for mode in (1, 1.0)]
type of the value of a Variable with a Python number, after a call that does not change it
    holder = Holder(count=nnx.Variable(3))
    jit(lambda holder: None)(holder)
    type(holder.count.get_value()).__name__
whether an unchanged list of arrays is the same list after the call
    holder = Holder(arrays=nnx.data([x, x]))
    arrays = holder.arrays
    jit(lambda holder: None)(holder)
    holder.arrays is arrays
`holder.count.set_metadata("seen", True)` inside; whether it is set after the call
    holder = Holder(count=nnx.Variable(x))
    jit(lambda holder: holder.count.set_metadata("seen", True))(holder)
    holder.count.has_metadata("seen")
`f = jit(net)`, then `net.bias[...] = 1`: whether `f(zeros)` has it
    net = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
    f = jit(net)
    f(jnp.zeros(2))
    net.bias[...] = jnp.ones(1)
    f(jnp.zeros(2)).tolist() == [1.0]
""")


# `eqx` is one of the two.
EQUINOX_CASES = cases(r"""
`f = filter_jit(lambda n: n)`; `f(1), f(True), f(1.0)`
    f = eqx.filter_jit(lambda n: n)
    f(1), f(True), f(1.0)
`f(0.0), f(-0.0)`
    f = eqx.filter_jit(lambda n: n)
    f(0.0), f(-0.0)
traces of three calls, each with a new NaN
    traces = []
    f = eqx.filter_jit(lambda n: traces.append(n))
    [f(float("nan")) for _ in range(3)]
    len(traces)
compiled with `n=2`, called with `n=3`
    f = eqx.filter_jit(lambda x, n: x * n).lower(x, 2).compile()
    f(x, 3).tolist()
`filter_jit(jnp.sin).lower(jax.ShapeDtypeStruct((2,), "float32"))`
    type(eqx.filter_jit(lambda x: jnp.sin(x)).lower(jax.ShapeDtypeStruct((2,), "float32"))).__name__
a static leaf without a hash, in `tree["a"][0]`
    eqx.filter_jit(lambda tree: len(tree))({"a": [Unhashable()]})
a NumPy array in a static field
    model = Model(x, np.arange(2))
    eqx.filter_jit(lambda model: model.weight + model.scale)(model).tolist()
`filter_jit(f, donate=("state",))`
    f = eqx.filter_jit(lambda x, state: (x, state + 1), donate=("state",))
    f(x, jnp.copy(x))[1].tolist()
`filter_jit(f, out_shardings=sharding)`
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    eqx.filter_jit(lambda x: x + 1, out_shardings=sharding)(x).sharding == sharding
whether a weight that a step returns unchanged is the same array
    model = Model(x)
    eqx.filter_jit(lambda model: model)(model).weight is model.weight
`filter_grad(loss, wrt=by_path("a"))({"a": x, "b": x})`
    eqx.filter_grad(lambda t: jnp.sum(t["a"] * t["b"]), wrt=by_path("a"))({"a": x, "b": x})["b"]
`combine` of parts whose static fields differ
    eqx.combine(Model(None, 1), Model(x, 2)).scale
`filter_vmap(f)({"a": x}, x[:1])`
    eqx.filter_vmap(lambda t, y: t["a"] * y)({"a": x}, x[:1])
`filter_jvp(f, (model,), (tangent,))`, whose statics differ
    eqx.filter_jvp(lambda m: m.weight * 2, (Model(x, 1),), (Model(x, 2),))[1].tolist()
""")


class Model(eqx.Module):
    weight: jax.Array
    scale: Any = eqx.field(static=True, default=1)


def differences(rows: dict[str, str], pair: tuple[Any, Any], titles: list[str], names: Callable[[Any], Names]) -> str:
    """What each code gives with both, with names of its own; of other libraries' errors, which vary, only the type."""
    shown = lambda code, it: outcome(code, {"jnp": jnp, "x": jnp.arange(2.0), **names(it)}, with_message=it is pair[1])
    return table(["code", *titles], [(name, *(shown(code, it) for it in pair)) for name, code in rows.items()])


def jax_differences() -> str:
    mlp = eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0))
    # A list that is appended to is a change of what the function holds; what counts here is none.
    names = lambda jit: {"jax": jax, "mlp": mlp, "jit": jit, "counter": TraceCounter()}
    return differences(JAX_CASES, (jax.jit, partax.filter_jit), ["`jax.jit`", "`partax.filter_jit`"], names)


def nnx_differences() -> str:
    nnx, ours = importlib.import_module("flax.nnx"), importlib.import_module("partax.nnx")

    class Holder(nnx.Module):
        def __init__(self, **attributes: Any) -> None:
            for name, value in attributes.items():
                setattr(self, name, value)

    names = lambda jit: {"nnx": nnx, "Holder": Holder, "net": nnx.Linear(2, 1, rngs=nnx.Rngs(0)), "jit": jit}
    return differences(NNX_CASES, (nnx.jit, ours.jit), ["`nnx.jit`", "`partax.nnx.jit`"], names)


def equinox_differences() -> str:
    fixed = {"jax": jax, "np": np, "Model": Model, "Unhashable": Unhashable, "by_path": partax.by_path}
    names = lambda library: {**fixed, "eqx": library}
    return differences(EQUINOX_CASES, (eqx, partax.equinox), ["Equinox", "partax"], names)


TABLES = {
    (DOCS / "coming_from" / "jax_jit.md", "differences"): jax_differences,
    (FLAX_NNX, "differences"): nnx_differences,
    (DOCS / "coming_from" / "equinox.md", "equinox"): equinox_differences,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("page", "name"), TABLES, ids=lambda it: getattr(it, "stem", it))
def test_a_page_shows_what_both_do(page: Path, name: str) -> None:
    if page == FLAX_NNX and not HAS_FLAX:
        pytest.skip("Flax is not here")
    assert_shown(TABLES, page, name)


if __name__ == "__main__":
    print_or_write(TABLES)
