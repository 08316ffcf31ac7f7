"""Guards the promise that an array in a static object, which is baked into the program, is told with its path, if the
program has it, and that objects of Flax are no static values."""

import dataclasses
import functools
import re
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import partax
from partax import filter_jit
from trees import Layer, array


def holder(**attributes: Any) -> Any:
    """An instance of a plain class of its own."""
    made = type("Holder", (), {"__doc__": "Compared by identity."})()
    vars(made).update(attributes)
    return made


def warnings_of(run: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run()
    return [str(warning.message) for warning in seen if warning.category is UserWarning]


def linear() -> eqx.nn.Linear:
    return eqx.nn.Linear(2, 2, key=jax.random.key(0))


def nnx_linear() -> nnx.Linear:
    return nnx.Linear(2, 2, rngs=nnx.Rngs(0))


@pytest.mark.parametrize(
    ("attributes", "path", "get"),
    [
        ({"weight": jnp.ones(2)}, "config.weight", lambda it: it.weight),
        ({"name": "a", "mean": np.ones(2)}, "config.mean", lambda it: it.mean),
        ({"layers": [1, {"b": jnp.ones(2)}]}, "config.layers[1]['b']", lambda it: it.layers[1]["b"]),
        ({"inner": holder(recent=deque([jnp.ones(1)]))}, "config.inner.recent[0]", lambda it: it.inner.recent[0]),
        ({"losses": [0.5] * 3000 + [jnp.ones(2)]}, "config.losses[3000]", lambda it: it.losses[-1]),
    ],
)
def test_a_static_object_s_array_that_is_read_is_told_once_with_its_path(
    attributes: dict[str, Any], path: str, get: Callable[[Any], Any]
) -> None:
    cls = type(f"Config{abs(hash(path))}", (), {})
    config = cls()
    vars(config).update(attributes)

    @filter_jit
    def f(x: jax.Array, config: Any) -> jax.Array:
        return x + get(config)

    with pytest.warns(UserWarning, match="is an array in a static") as seen:
        f(array(2), config)
    (warning,) = (warning for warning in seen if warning.category is UserWarning)
    assert str(warning.message).startswith(f"`{path}` is an array in a static `{cls.__name__}`")
    assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(jnp.ones((2, 2)), config)
        f(array(2), config)


class Plain:
    def __init__(self, model: Any) -> None:
        self.model = model

    def step(self, x: jax.Array) -> jax.Array:
        return self.model(x)


class Slots:
    __slots__ = ("model",)
    __init__, step = Plain.__init__, Plain.step


class SlotsAndDictionary(Slots):
    pass


@dataclasses.dataclass(eq=False)
class OfIdentity:
    model: Any
    step = Plain.step


@pytest.mark.parametrize(
    ("kind", "model"), [(Plain, nnx_linear), *((kind, linear) for kind in (Plain, SlotsAndDictionary, OfIdentity))]
)
def test_any_object_is_looked_into_also_that_of_a_bound_method(kind: Any, model: Callable[[], Any]) -> None:
    static = kind(model())
    for call, path in (
        (lambda: filter_jit(lambda static, x: static.step(x))(static, array(2)), "static.model."),
        (lambda: filter_jit(lambda step, x: step(x))(static.step, array(2)), "step.__self__.model."),
        (lambda: filter_jit(static.step)(array(2)), "self.model."),
        (lambda: filter_jit(functools.partial(static.step))(array(2)), "step.func.__self__.model."),
    ):
        (text,) = warnings_of(call)
        assert text.startswith(f"`{path}") and f"in a static `{kind.__name__}`" in text


class Trainer:
    def __init__(self) -> None:
        self.rate, self.model, self.layers = 0.1, jnp.ones(2), [linear()]

    @filter_jit
    def step(self, model: jax.Array, x: jax.Array) -> jax.Array:
        return (model - self.rate * x).reshape(self.model.shape) * len(self.layers)

    @filter_jit
    def read(self, x: jax.Array) -> jax.Array:
        return x * self.model


def test_an_array_that_the_trace_does_not_read_is_not_reported() -> None:
    trainer = Trainer()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.model = trainer.step(trainer.model, array(2))
        jax.vmap(lambda x: trainer.step(trainer.model, x))(jnp.ones((3, 2)))
        trainer.step.lower(trainer.model, jnp.ones(2))
    (text,) = warnings_of(lambda: trainer.read(array(2)))
    assert text.startswith("`self.model` is an array in a static `Trainer`")


READ_INSIDE: dict[str, Callable[[Any, jax.Array], Any]] = {
    "jit": lambda static, x: jax.jit(lambda x: x * static.model)(x),
    "scan": lambda static, x: jax.lax.scan(lambda carry, _: (carry * static.model, None), x, None, length=2)[0],
    "filter_grad": lambda static, x: partax.filter_grad(lambda x: (x * static.model).sum())(x),
    "vmap": lambda static, x: jax.vmap(lambda x: x * jnp.sum(static.model))(x),
    "filter_jit": lambda static, x: filter_jit(lambda x: x * static.model)(x),
    "the result": lambda static, x: (x, {"model": static.model}),
}


@pytest.mark.parametrize("name", READ_INSIDE)
def test_an_array_that_a_program_in_the_program_reads_is_reported(name: str) -> None:
    for value in (jnp.ones(2), np.arange(2)):
        static = type(f"Of{name}{type(value)}{value.dtype}", (Plain,), {})(value)
        f = filter_jit(lambda static, x: READ_INSIDE[name](static, x))
        (text,) = warnings_of(lambda f=f, static=static: f(static, array(2)))
        assert text.startswith("`static.model` is an array in a static")


def test_an_instance_of_a_class_with_its_own_equality_is_not_reported(recwarn: pytest.WarningsRecorder) -> None:
    class Hashed:
        def __init__(self, value: np.ndarray) -> None:
            self.value = value

        __eq__ = lambda self, other: np.array_equal(self.value, other.value)
        __hash__ = lambda self: hash(self.value.tobytes())

    f = filter_jit(lambda table, x: x * table.value)
    for value in (1.0, 2.0):
        np.testing.assert_array_equal(f(Hashed(np.full(2, value)), array(2)), array(2) * value)
    assert [str(warning.message) for warning in recwarn] == []


def test_what_is_traced_or_holds_no_array_is_not_reported(recwarn: pytest.WarningsRecorder) -> None:
    f = filter_jit(lambda tree, config: config)
    f(Layer(array(2)), holder(name="a", sizes=[1, 2]))
    for module in (linear(), nnx_linear()):
        filter_jit(module)(array(2))
        filter_jit(module.__call__)(array(2))
    assert [str(warning.message) for warning in recwarn] == []


class Net(nnx.Module, pytree=False):
    def __init__(self) -> None:
        self.layer = nnx_linear()

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layer(x)


class Field(eqx.Module):
    model: Any = eqx.field(static=True)


@pytest.mark.filterwarnings("ignore:.*array is being set as static:UserWarning")
def test_objects_of_flax_are_not_static_values() -> None:
    f = filter_jit(lambda tree, x: x)
    for tree, path in (
        (Net(), "tree"),
        ({"a": (1, Net())}, "tree['a'][1]"),
        ([1, Field(nnx.Sequential(nnx_linear()))], "tree[1].model"),
    ):
        for call in (f, f.lower):
            with pytest.raises(TypeError, match=re.escape(f"`{path}`: found a `") + ".*leave out `pytree=False`"):
                call(tree, array(2))
    assert f.cache_info().traces == 0
