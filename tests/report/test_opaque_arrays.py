"""Guards the promise that an array in a static object, which is baked into the program, is told with its path."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from partax import filter_jit
from trees import Layer, array


def holder(**attributes: Any) -> Any:
    """An instance of a plain class of its own."""
    made = type("Holder", (), {"__doc__": "Compared by identity."})()
    vars(made).update(attributes)
    return made


@pytest.mark.parametrize(
    ("attributes", "path"),
    [
        ({"weight": jnp.ones(2)}, "config.weight"),
        ({"name": "a", "mean": np.ones(2)}, "config.mean"),
        ({"layers": [1, {"b": jnp.ones(2)}]}, "config.layers[1]['b']"),
        ({"inner": holder(pair=(jnp.ones(1), 2))}, "config.inner.pair[0]"),
    ],
)
def test_an_array_in_a_static_object_is_told_once_with_its_path(attributes: dict[str, Any], path: str) -> None:
    cls = type(f"Config{abs(hash(path))}", (), {})
    config = cls()
    vars(config).update(attributes)

    @filter_jit
    def f(x: jax.Array, config: Any) -> jax.Array:
        return x + 1

    with pytest.warns(UserWarning, match="is an array in a static") as seen:
        f(array(2), config)
    assert str(seen[0].message).startswith(f"`{path}` is an array in a static `{cls.__name__}`")
    assert [str(warning.filename) for warning in seen] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(array(3), config)
        f(array(2), config)


def test_the_bound_instance_of_a_plain_class_is_such_an_object() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.weight = jnp.ones(2)

        @filter_jit
        def step(self, x: jax.Array) -> jax.Array:
            return x * self.weight

    with pytest.warns(UserWarning, match=r"`self\.weight` is an array in a static"):
        Trainer().step(array(2))


def test_what_is_traced_or_holds_no_array_is_not_told(recwarn: pytest.WarningsRecorder) -> None:
    f = filter_jit(lambda tree, config: config)
    f(Layer(array(2)), holder(name="a", sizes=[1, 2]))
    f({"a": array(2)}, holder(function=lambda x: x + array(2)))
    assert [str(warning.message) for warning in recwarn] == []
