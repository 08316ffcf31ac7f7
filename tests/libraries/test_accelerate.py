"""Guards the promise that libraries which import Equinox run by partax while accelerated, and as before when that has
ended."""

import gc
import inspect
import sys
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
import partax.equinox
from conftest import TraceCounter
from partax.equinox import OURS
from processes import python
from trees import array, assert_same


class Model(eqx.Module):
    weight: jax.Array
    name: str = "model"

    @eqx.filter_jit
    def __call__(self, x: jax.Array) -> jax.Array:
        return self.weight * x


@eqx.filter_jit
def before(model: Model, x: jax.Array, n: int = 1) -> Any:
    arrays, _ = eqx.partition(model, eqx.is_array)
    return arrays.weight * x * n, model.name


def of_equinox() -> dict[str, Any]:
    """What Equinox consists of, as far as accelerate may change it."""
    modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "equinox"}
    found = {f"{name}.{key}": value for name, module in modules.items() for key, value in vars(module).items()}
    return found | {"call": vars(type(before))["__call__"]}


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    known = of_equinox()
    yield
    now = of_equinox()
    assert [name for name in known if now[name] is not known[name]] == []


def test_functions_that_were_decorated_before() -> None:
    model, x = Model(jnp.arange(3.0)), jnp.ones(3)
    expected = before(model, x, 2)
    with partax.equinox.accelerate():
        for _ in range(3):
            assert_same(before(model, x, n=2), expected)
            assert_same(model(x), model.weight)
        copied: Any = jax.tree.map(lambda leaf: leaf, before)
        assert copied is not before
        assert_same(copied(model, x, n=2), expected)
        ours = partax.filter_jit(before.__wrapped__)
        assert ours.cache_info().traces == 1 and ours.cache_info().hits == 3
    assert_same(before(model, x, 2), expected)
    assert ours.cache_info().hits == 3


def test_functions_that_are_decorated_meanwhile_outlive_it(traces: TraceCounter) -> None:
    with partax.equinox.accelerate():
        jitted = eqx.filter_jit(lambda x: traces.tick() or x * 2)
        assert_same(jitted(jnp.ones(2)), jnp.full(2, 2.0))
    assert type(jitted) is type(before)
    assert_same(jitted(jnp.ones(2)), jnp.full(2, 2.0))
    assert traces.count == 2


def test_functions_of_trees_are_ours_in_each_module(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = eqx.partition
    module: Any = type(sys)("a_library")
    module.cut, module.own = theirs, partax.equinox.partition
    monkeypatch.setitem(sys.modules, "a_library", module)
    with partax.equinox.accelerate():
        assert eqx.partition is partax.equinox.partition is module.cut
        module.later = eqx.partition
    assert eqx.partition is theirs is module.cut is module.later
    assert module.own is partax.equinox.partition is not theirs


def test_it_is_counted() -> None:
    first, second = partax.equinox.accelerate(), partax.equinox.accelerate()
    first.end()
    first.end()
    assert eqx.combine is partax.combine
    second.end()
    assert eqx.combine is not partax.combine


def test_a_static_number_that_changes_brings_no_warning() -> None:
    step = eqx.filter_jit(lambda state: {"x": state["x"] * 2, "step": state["step"] + 1})
    state = {"x": jnp.ones(2), "step": 0}
    with partax.equinox.accelerate(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            state = step(dict(reversed(state.items())))
    assert state["step"] == 5


@pytest.mark.parametrize("donate", ["all-except-first", "warn", "none"])
def test_options_go_with_it(donate: Any) -> None:
    def function(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x + 1, y + 1

    jitted = eqx.filter_jit(function, donate=donate, inline=True)
    with partax.equinox.accelerate():
        jitted(*(accelerated := (jnp.ones(2), jnp.ones(3))))
        by_jax = jax.jit(function, inline=True)
        programs = [str(jax.make_jaxpr(jit)(jnp.ones(2), jnp.ones(3))) for jit in (jitted, by_jax)]
        assert programs[0].count("name=function") == programs[1].count("name=function")
    jitted(*(plain := (jnp.ones(2), jnp.ones(3))))
    assert [x.is_deleted() for x in plain] == [x.is_deleted() for x in accelerated]


def test_what_is_donated_and_comes_back_is_another_array_as_with_jax() -> None:
    """Code that has donated a model may look whether it is gone."""
    jitted = eqx.filter_jit(lambda model, x: (model, x + 1, model.weight), donate="all")
    with partax.equinox.accelerate():
        again = model = Model(jnp.arange(3.0))
        for _ in range(3):
            again, _, _ = jitted(again, jnp.ones(3))
        assert model.weight.is_deleted() and again.weight.tolist() == [0, 1, 2]


@pytest.mark.filterwarnings("ignore:backend and device argument:DeprecationWarning")
def test_what_ours_cannot_do_stays_equinoxs() -> None:
    jitted = eqx.filter_jit(lambda x: x + 1, device=jax.devices()[0])
    with partax.equinox.accelerate():
        assert_same(jitted(jnp.ones(2)), jnp.full(2, 2.0))


class Lookup(eqx.Module):
    weight: jax.Array
    table: Any = eqx.field(static=True)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.weight * x + self.table.sum()

    method = eqx.filter_jit(__call__)


def lookup() -> Lookup:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Equinox, about the array
        return Lookup(array(3), np.arange(3))


REFUSED = r"`{}\.table`: found an array \(.*\) as a static value.*Equinox's own filter_jit"


def test_an_array_in_a_static_field_is_known_by_identity(traces: TraceCounter) -> None:
    @eqx.filter_jit
    def apply(model: Lookup, x: jax.Array) -> jax.Array:
        traces.tick()
        return model.weight * x + model.table.sum()

    model = lookup()
    changed = eqx.tree_at(lambda m: m.weight, model, jnp.ones(3))
    expected = [apply(it, array(3)) for it in (model, changed)]
    assert traces.count == 1
    with partax.equinox.accelerate():
        for _ in range(2):
            for it, result in zip((model, changed), expected, strict=True):
                with pytest.warns(UserWarning, match=REFUSED.format("model")) as told:
                    assert_same(apply(it, array(3)), result)
                assert [warning.filename for warning in told] == [__file__]
        assert traces.count == 1  # the trace that Equinox had
        with pytest.warns(UserWarning, match=REFUSED.format("self")):
            assert_same(model.method(array(3)), array(3) * array(3) + 3)
        with pytest.warns(UserWarning, match=REFUSED.format("model")):
            assert_same(jax.jit(lambda x: apply(model, x))(array(3)), expected[0])
        with pytest.warns(UserWarning, match=REFUSED.format("fun")):
            assert_same(eqx.filter_jit(model)(array(3)), expected[0])


def test_what_is_refused_inside_of_a_function_is_its_error(traces: TraceCounter) -> None:
    model, inner = lookup(), partax.filter_jit(lambda model: model.weight)

    outer = eqx.filter_jit(lambda x: traces.tick() or inner(model) + x)
    with partax.equinox.accelerate(), pytest.raises(TypeError, match=r"`model\.table`: found an array"):
        outer(array(3))
    assert traces.count == 1


def test_nothing_is_donated_by_a_call_that_is_refused() -> None:
    step = eqx.filter_jit(lambda model, x: x + model.table, donate="all")
    with partax.equinox.accelerate(), pytest.warns(UserWarning, match=REFUSED.format("model")):
        assert step(lookup(), array(3)).tolist() == [0.0, 2.0, 4.0]


def test_wrappers_are_not_kept() -> None:
    with partax.equinox.accelerate():
        wrapper = eqx.filter_jit(lambda x: x)
        wrapper(jnp.ones(1))
        gone = weakref.ref(wrapper)
        del wrapper
        gc.collect()
        assert gone() is None


def test_each_function_is_called_as_equinox_calls_it_also_by_name() -> None:
    for name in OURS:
        theirs, ours = (inspect.signature(getattr(module, name)).parameters for module in (eqx, partax.equinox))
        by_name = {it.name for it in theirs.values() if it.kind in (it.POSITIONAL_OR_KEYWORD, it.KEYWORD_ONLY)}
        assert by_name <= ours.keys() or any(it.kind is it.VAR_KEYWORD for it in ours.values()), name


SCRIPT = """
import sys, equinox as eqx, jax.numpy as jnp
{first}
@eqx.filter_jit
def step(x, n): return x * n
step(jnp.ones(2), 2); step(jnp.ones(3), 2)
print(sys.argv[1:], eqx.partition.__module__)
"""


@pytest.mark.slow
def test_scripts_run_unchanged(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    for first, command, environment in (
        ("", ["-m", "partax", "equinox"], {}),
        ("import partax", [], {"PARTAX_EQUINOX": "1"}),
    ):
        script.write_text(SCRIPT.format(first=first))
        done = python(*command, str(script), "a", "--b", **environment)
        assert done.stdout.split("\n")[0] == f"['a', '--b'] {partax.equinox.partition.__module__}"
