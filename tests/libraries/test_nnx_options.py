"""Guards the promise that partax.nnx.jit has the options of nnx.jit and of filter_jit, from donation to limits, and
that shardings mean to it what they mean to nnx.jit, and are refused where that refuses them."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from flax.nnx import extract
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import partax
import partax.nnx
from meshes import mesh_of
from nnx_graphs import both, described

JITS: list[Any] = [nnx.jit, partax.nnx.jit]


@pytest.fixture
def mesh(devices: list[Any]) -> Mesh:
    return mesh_of(devices[:2])


@pytest.fixture
def filters(split: NamedSharding, everywhere: NamedSharding) -> dict[Any, NamedSharding]:
    return {nnx.PathContains("kernel"): split, ...: everywhere}


class Model(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.layer = nnx.Linear(4, 4, rngs=rngs)
        self.frozen = nnx.Variable(jnp.ones((4, 4)))
        self.count = nnx.Variable(jnp.zeros(()))

    def __call__(self, x: jax.Array) -> jax.Array:
        self.count[...] += 1
        return self.layer(x) @ self.frozen[...]


def step(model: Model, x: jax.Array) -> jax.Array:
    model.layer.kernel[...] -= 0.5
    return model(x)


def test_an_unchanged_variable_is_not_a_result_of_the_program(filters: dict[Any, Any]) -> None:
    model, x = Model(nnx.Rngs(0)), jnp.ones((2, 4))
    frozen, bias = model.frozen.get_raw_value(), model.layer.bias.get_raw_value()
    for options in ({}, {"in_shardings": (nnx.StateSharding(filters), None)}):
        jitted = partax.nnx.jit(step, **options)
        outputs = jax.tree.leaves(jitted.trace(model, x).jaxpr.jaxpr.outvars)
        assert len(outputs) == 3  # the kernel, the count, the result
        jitted(model, x)
        assert model.frozen.get_raw_value() is frozen and model.layer.bias.get_raw_value() is bias


@pytest.mark.parametrize(
    "options", [{"donate_argnames": "model"}, {"donate_argnums": -2}, {"donate": ("model",)}, {"donate": "all"}]
)
def test_donation_keeps_what_stays(options: dict[str, Any]) -> None:
    model, expected, x = Model(nnx.Rngs(0)), Model(nnx.Rngs(0)), jnp.ones((2, 4))
    jitted = partax.nnx.jit(step, **options)
    plain = partax.nnx.jit(step)
    for _ in range(3):
        kernel, frozen = model.layer.kernel.get_raw_value(), model.frozen.get_raw_value()
        jitted(model, jnp.array(x))
        plain(expected, x)
        assert kernel.is_deleted() and model.frozen.get_raw_value() is frozen
        assert described(model) == described(expected)
    assert jitted.cache_info().traces == 1


def test_names_of_options_are_checked() -> None:
    options: Any
    for options, told in (
        ({"donate_argnames": "nodel"}, "found 'nodel' in donate_argnames.*model, x"),
        ({"static_argnames": ("n",)}, "found 'n' in static_argnames"),
        ({"donate_argnums": 2}, "found 2 in donate_argnums"),
        ({"donate": "all", "donate_argnums": 0}, "found donate and donate_argnums"),
    ):
        with pytest.raises(ValueError, match=told):
            partax.nnx.jit(step, **options)


def add_to_all(first: jax.Array, *a: jax.Array) -> list[jax.Array]:
    return [x + 1 for x in (first, *a)]


def test_positions_of_parameters_are_donated_and_those_within_args_refused() -> None:
    for jit in JITS:
        arrays = [jnp.arange(4.0) for _ in range(3)]
        jit(add_to_all, donate_argnums=0)(*arrays)
        assert [x.is_deleted() for x in arrays] == [True, False, False]
    with pytest.raises(ValueError, match=r"where `[*]a` takes several arguments"):
        partax.nnx.jit(add_to_all, donate_argnums=1)


def test_positions_of_a_module_that_is_called() -> None:
    class Scale(nnx.Module):
        def __call__(self, x: jax.Array, y: jax.Array) -> list[jax.Array]:
            return [value + 1 for value in (x, y)]

    on_one = SingleDeviceSharding(jax.devices()[0])
    for jit in JITS:
        arrays = [jnp.arange(4.0) for _ in range(2)]
        jit(Scale(), donate_argnums=1)(*arrays)
        assert [x.is_deleted() for x in arrays] == [False, True]
        assert jit(Scale(), static_argnums=1, in_shardings=(on_one,))(jnp.ones(2), 3)[0][0] == 2


def test_a_donated_value_that_is_returned_is_kept() -> None:
    variable, returned = nnx.Param(jnp.ones(2)), partax.nnx.jit(lambda v: v[...], donate="all")
    for _ in range(3):
        assert returned(variable) is variable.get_raw_value()


def test_static_arguments() -> None:
    def function(model: Model, n: int, mode: str = "a") -> Any:
        return model.layer.kernel[...] * n, mode

    for options in ({"static_argnums": (1, 2)}, {"static_argnames": ("n", "mode")}):
        model = Model(nnx.Rngs(0))
        jitted = partax.nnx.jit(function, **options)
        for n in (3, 3, 4):
            value, mode = jitted(model, n, mode="b")
            assert mode == "b" and value[0, 0] == n * model.layer.kernel[0, 0]
        assert jitted.cache_info().traces == 2


@pytest.mark.parametrize("by_variable", [False, True])
def test_a_changed_variable_keeps_the_sharding_of_its_argument(
    split: NamedSharding, everywhere: NamedSharding, filters: dict[Any, Any], by_variable: bool
) -> None:
    of_model: Any = nnx.StateSharding(filters) if by_variable else everywhere
    model = jax.device_put(Model(nnx.Rngs(0)), everywhere)
    kernel = model.layer.kernel
    kernel.set_raw_value(jax.device_put(kernel.get_raw_value(), split if by_variable else everywhere))

    def grow(model: Model, x: jax.Array) -> jax.Array:
        model.layer.kernel[...] = jax.lax.with_sharding_constraint(model.layer.kernel[...] + 1, split)
        model.count.set_value(jax.lax.with_sharding_constraint(jnp.ones(4), split))
        return x + 1

    jitted = partax.nnx.jit(grow, in_shardings=(of_model, None), out_shardings=split)
    for _ in range(3):
        x = jitted(model, jnp.ones((2, 4)))
        assert x.sharding.is_equivalent_to(split, 2)
        assert kernel.get_raw_value().sharding.is_equivalent_to(split if by_variable else everywhere, 2)
        assert model.count.get_raw_value().sharding.is_equivalent_to(everywhere, 1)


def test_shardings_leave_out_static_arguments(everywhere: NamedSharding) -> None:
    for jit in JITS:
        assert jit(lambda n, x: x * n, in_shardings=(everywhere,), static_argnums=(0,))(2, jnp.ones(2))[0] == 2
        for static in (1, -2):
            jitted = jit(lambda *a: a[0] * a[1] + a[2], in_shardings=(everywhere, everywhere), static_argnums=static)
            assert jitted(jnp.ones(2), 2, jnp.ones(2))[0] == 3


def test_a_wrong_count_of_entries_is_named(everywhere: NamedSharding) -> None:
    function = lambda n, x, m, y: x * n + y * m
    for static, count, message in (
        ({"static_argnums": (0, 2)}, 1, "^in_shardings has no entry for the arrays of `y`"),
        ({"static_argnames": ("n", "m")}, 3, r"^in_shardings has more entries than .* \(n, x, m, y\)$"),
    ):
        with pytest.raises(ValueError, match=message):
            partax.nnx.jit(function, in_shardings=(everywhere,) * count, **static)(2, jnp.ones(2), 3, jnp.ones(2))
    with pytest.raises(ValueError, match=r"^in_shardings has more entries .*x\)$"):
        partax.nnx.jit(Model(nnx.Rngs(0)), in_shardings=(everywhere,) * 3)(jnp.ones((2, 4)))


def test_ahead_of_time() -> None:
    model, expected, x = Model(nnx.Rngs(0)), Model(nnx.Rngs(0)), jnp.ones((2, 4))
    jitted = partax.nnx.jit(step)
    lowered = jitted.trace(model, x).lower()
    compiled = lowered.compile()
    assert jitted.eval_shape(model, x).shape == (2, 4)
    assert described(model) == described(expected)
    assert "stablehlo" in lowered.as_text() and compiled.memory_analysis() is not None
    for _ in range(2):
        assert (compiled(model, x) == jitted(expected, x)).all()
        assert described(model) == described(expected)
    model.extra = "static"
    with pytest.raises(TypeError, match="compile"):
        compiled(model, x)


def test_eval_shape_of_a_result_that_is_an_argument() -> None:
    model = Model(nnx.Rngs(0))
    copy, value = partax.nnx.jit(lambda model: (model, model.layer.kernel[...] + 1)).eval_shape(model)
    assert copy is not model and isinstance(value, jax.ShapeDtypeStruct)
    assert not isinstance(model.layer.kernel.get_raw_value(), jax.ShapeDtypeStruct)


def test_modes_of_nnx() -> None:
    def function(model: Model) -> None:
        model.count[...] += 1
        model.extra = "lost"

    returned: list[tuple[Any, int]] = [(lambda model: model, 1), (lambda model: model.count, 1)]
    for options, bad in (({"graph_updates": False}, returned), ({"graph": False}, [*returned, (lambda a, b: None, 2)])):
        assert not hasattr(both(function, Model(nnx.Rngs(0)), traces=1, **options).ours[0], "extra")
        for (fails, count), jit in itertools.product(bad, JITS):
            with pytest.raises(ValueError, match="Duplicate"):
                jit(fails, **options)(*[Model(nnx.Rngs(0))] * count)
    with nnx.set_graph_updates(False):
        both(function, Model(nnx.Rngs(0)), traces=1)


def linear() -> nnx.Linear:
    return nnx.Linear(4, 4, rngs=nnx.Rngs(0))


def same_of_both(run: Callable[[Any], Any]) -> None:
    """Runs with the one jit and with the other: the shardings are the same, and some are over the mesh."""
    graphs = [nnx.iter_graph(run(jit)) for jit in JITS]
    theirs, ours = (
        [getattr(it.get_raw_value().sharding, "spec", None) for _, it in graph if isinstance(it, nnx.Variable)]
        for graph in graphs
    )
    assert ours == theirs and PartitionSpec("d") in ours


MODES = {
    "filters": {"graph": True, "graph_updates": True},
    "a prefix of a graph": {"graph": True, "graph_updates": False},
    "a prefix of a tree": {"graph": False, "graph_updates": False},
}


def grow_all(given: Any) -> None:
    for it in jax.tree.leaves(given, is_leaf=lambda it: isinstance(it, nnx.Variable)):
        it.set_value(it.get_value() + 1)


@pytest.mark.parametrize("kind", MODES)
def test_what_nnx_accepts_may_be_anywhere_in_a_prefix(kind: str, filters: dict[Any, Any]) -> None:
    options, tree = MODES[kind], lambda: {"a": [linear(), linear()]}
    state = nnx.StateSharding(filters)
    prefix = {"a": [state, state]} if kind == "filters" else nnx.prefix(tree(), filters, graph=options["graph"])

    def changed(jit: Any) -> Any:
        argument = tree()
        jit(grow_all, in_shardings=(prefix,), **options)(argument)
        return argument

    same_of_both(changed)
    same_of_both(lambda jit: jit(tree, out_shardings=prefix, **options)())


def test_a_module_may_be_returned_twice_in_graph_mode(filters: dict[Any, Any]) -> None:
    prefix = nnx.prefix((net := linear(), net), filters, graph=True)

    def run(jit: Any) -> Any:
        make = lambda: (net := linear(), net)
        first, second = jit(make, out_shardings=prefix, graph=True, graph_updates=False)()
        assert first is second
        return first

    same_of_both(run)


@pytest.mark.parametrize("graph_updates", [False, True])
def test_one_variable_has_one_sharding(graph_updates: bool, split: NamedSharding, everywhere: NamedSharding) -> None:
    variable, net = nnx.Param(jnp.ones(4)), linear()
    for jit in JITS:
        options = {"graph": True, "graph_updates": graph_updates}
        add = jit(lambda a, b: a[...] + b[...], in_shardings=(split, everywhere), **options)
        with pytest.raises(ValueError, match="Inconsistent aliasing"):
            add(variable, variable)
        assert add(variable, nnx.Param(jnp.ones(4)))[0] == 2
        pick = jit(lambda net, pair: pair[1][...] + 1, in_shardings=(None, (split, split)), **options)
        with pytest.raises(ValueError, match="Inconsistent aliasing"):
            pick(net, (nnx.Param(jnp.ones(4)), net.bias))
    with pytest.raises(ValueError, match=r"`net\.bias` and `pair\[1\]` .* found None and NamedSharding"):
        pick(net, (nnx.Param(jnp.ones(4)), net.bias))


@pytest.mark.parametrize("option", ["in_shardings", "out_shardings"])
def test_what_is_no_prefix_is_refused_where_it_is_given(option: str, filters: dict[Any, Any]) -> None:
    graph, no_updates, tree = MODES.values()
    wrong = [
        (linear(), graph, "Graph nodes are not allowed as prefixes"),
        (nnx.Param(None), graph, "Variables prefixes are not supported"),
        (nnx.StateSharding(filters), tree, "cannot contain `StateSharding` objects"),
        (nnx.StateSharding(filters), no_updates, "cannot contain `StateSharding` objects"),
        (nnx.prefix(linear(), filters, graph=True), graph, "only allowed as prefixes when"),
        (nnx.prefix(linear(), filters, graph=True), tree, "only allowed as prefixes when"),
    ]
    for prefix, mode, message in wrong:
        for jit in JITS:
            with pytest.raises(ValueError, match=message):
                jit(lambda x: x, **{option: prefix}, **mode)
    bare = jax.tree.map(lambda _: next(iter(filters.values())), extract.to_tree2(linear()))
    with pytest.raises(ValueError, match=r"expected what `nnx\.prefix"):
        partax.nnx.jit(lambda x: linear(), **{option: bare}, **no_updates)
